//! A routine gives back what was asked for, leaf by leaf, or says what it does not have.

use bilevel::graph::{Graph, Program};
use bilevel::{Array, Cpu, DType, Problem, Routine, State, Trace, Tree, Variable};

#[derive(Clone, Tree)]
struct Pair<T> {
    first: T,
    second: T,
}

fn problem() -> Problem {
    let pair = |value| Pair { first: Variable::constant([2], value), second: Variable::constant([2], value + 1.0) };
    Problem::new(pair(3.0), pair(1.0))
        .inner(|_, l, t| ((t.first - l.first).square() + (t.second - l.second).square()).sum_all())
        .outer(|_, _, t| (t.first + t.second).sum_all())
        .build()
        .unwrap()
}

/// A program that uses and carries the second leaf of θ and of a group alone.
fn second_only(keep: bool) -> Routine {
    let (graph, problem) = (Graph::new(), problem());
    let trace = Trace::new(&graph, &problem).unwrap();
    let z = trace.inputs_like("z", &trace.theta);
    let mut builder = Program::builder(&graph)
        .carry(trace.theta[1], trace.theta[1] * 2.0)
        .carry(z[1], z[1] + trace.theta[1])
        .output("out.1", trace.theta[1]);
    if keep {
        builder = builder.keep_input(z[0]).keep_input(trace.theta[0]);
    }
    let mut routine = Routine::new(&builder.build().unwrap(), &problem, &Cpu::with_threads(1)).unwrap();
    let state = State::initial(&problem, &Cpu::with_threads(1), Key::from([0, 0])).unwrap();
    routine.set_point(&state.lambda, &state.theta, [0, 0]).unwrap();
    routine
}

fn numbers(value: f64) -> Array {
    Array::full([2], value, DType::F64)
}

#[test]
fn a_leaf_that_a_program_does_not_have_is_an_error_and_lets_no_other_take_its_place() {
    let mut routine = second_only(false);
    let z = [numbers(5.0), numbers(6.0)];
    let said = |result: bilevel::Result<Vec<Array>>| result.unwrap_err().to_string();
    assert!(routine.set_all("z", &z).unwrap_err().to_string().contains("leaf 0 of z is no input of this program"));
    assert!(said(routine.theta()).contains("leaf 0 of θ is no input"));
    assert!(said(routine.carried_all("z")).contains("leaf 0 of z is no input"));
    assert!(said(routine.output_all("out")).contains("leaf 0 of out is no output"));
    assert!(routine.read_theta(&mut [numbers(0.0), numbers(0.0)]).is_err());
}

#[test]
fn an_input_that_is_kept_can_be_set_and_read_whether_or_not_it_matters() {
    let mut routine = second_only(true);
    routine.set_all("z", &[numbers(5.0), numbers(6.0)]).unwrap();
    routine.run(0..1).unwrap();
    assert_eq!(routine.theta().unwrap(), [numbers(1.0), numbers(4.0)]);
    assert_eq!(routine.carried_all("z").unwrap(), [numbers(5.0), numbers(8.0)]);
    let mut into = [numbers(0.0), numbers(0.0)];
    routine.read_theta(&mut into).unwrap();
    assert_eq!(into, [numbers(1.0), numbers(4.0)]);
    assert!(routine.read_theta(&mut into[..1]).is_err());
}

#[test]
fn a_name_that_does_not_exist_and_a_list_of_the_wrong_length_are_refused() {
    let mut routine = second_only(true);
    let error = routine.set_all("y", &[numbers(0.0)]).unwrap_err().to_string();
    assert!(error.contains("no inputs y.0, y.1") && error.contains("its groups are: z"), "{error}");
    for short in [&[numbers(1.0)][..], &[], &[numbers(1.0), numbers(1.0), numbers(1.0)]] {
        let error = routine.set_all("z", short).unwrap_err().to_string();
        assert_eq!(error, format!("{} values were given for the group 'z', which has 2", short.len()));
    }
    assert!(routine.carried_all("y").is_err() && routine.output_all("z").is_err());
}
