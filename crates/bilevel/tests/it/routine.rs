//! A routine works in the buffers it is given, leaf by leaf, or says what it does not have.

use bilevel::graph::{Graph, Program};
use bilevel::programs::{Leaves, Routine, Trace};
use bilevel::{Array, Cpu, DType, Key, Problem, Session, State, Tree, Variable};

#[derive(Clone, Tree)]
struct Pair<T> {
    first: T,
    second: T,
}

fn problem() -> Problem {
    let pair = |value| Pair { first: Variable::constant([2], value), second: Variable::constant([2], value + 1.0) };
    Problem::builder(pair(3.0), pair(1.0))
        .inner(|_, l, t| ((t.first - l.first).square() + (t.second - l.second).square()).sum_all())
        .outer(|_, _, t| (t.first + t.second).sum_all())
        .build()
        .unwrap()
        .erase()
}

/// A program that uses and carries the second leaf of θ and of a group alone, bound to the first state.
fn second_only(keep: bool) -> (Routine, State) {
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
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut routine = Routine::new(&builder.build().unwrap(), &session).unwrap();
    let state = session.state(Key::from_seed(0)).unwrap();
    routine.bind_point(&state.lambda, &state.theta, Key::from_seed(0)).unwrap();
    (routine, state)
}

/// Leaves of two numbers each, all of them the same.
fn leaves(values: &[f64]) -> Leaves {
    let arrays: Vec<Array> = values.iter().map(|value| Array::full([2], *value, DType::F64)).collect();
    Leaves::upload(&Cpu::with_threads(1), &arrays).unwrap()
}

#[test]
fn a_leaf_that_a_program_does_not_have_is_an_error_and_lets_no_other_take_its_place() {
    let (mut routine, state) = second_only(false);
    let two = leaves(&[5.0, 6.0]);
    let said = |result: bilevel::Result<Leaves>| result.unwrap_err().to_string();
    assert!(routine.bind("z", &two).unwrap_err().to_string().contains("leaf 0 of z is not an input of this program"));
    assert!(said(routine.inputs("z")).contains("leaf 0 of z is not an input"));
    assert!(said(routine.zeroed("z")).contains("leaf 0 of z is not an input"));
    assert!(said(routine.outputs("out")).contains("leaf 0 of out is not an output"));
    assert!(routine.bind_outputs("out", &two).unwrap_err().to_string().contains("leaf 0 of out is not an output"));
    // Nothing took the place of z, and θ is as it was.
    assert!(routine.run(0..1).unwrap_err().to_string().contains("z.1"));
    assert_eq!(state.theta.numbers().unwrap(), [1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn an_input_that_is_kept_can_be_bound_whether_or_not_it_matters_and_what_is_carried_is_updated_where_it_lies() {
    let (mut routine, state) = second_only(true);
    let z = leaves(&[5.0, 6.0]);
    routine.bind("z", &z).unwrap();
    routine.run(0..1).unwrap();
    assert_eq!(state.theta.numbers().unwrap(), [1.0, 1.0, 4.0, 4.0]);
    assert_eq!(z.numbers().unwrap(), [5.0, 5.0, 8.0, 8.0]);
    assert_eq!(routine.inputs("z").unwrap().numbers().unwrap(), z.numbers().unwrap());
    let short = routine.bind_theta(&leaves(&[1.0])).unwrap_err().to_string();
    assert_eq!(short, "1 leaves were given for θ, which has 2");
    // What somebody still looks at is not set to zero with the routine's own.
    let other = routine.fresh("z").unwrap();
    assert_eq!((other.numbers().unwrap(), z.numbers().unwrap()), (vec![0.0; 4], vec![5.0, 5.0, 8.0, 8.0]));
}

#[test]
fn a_name_that_does_not_exist_and_a_list_of_the_wrong_length_are_refused() {
    let (mut routine, _) = second_only(true);
    let error = routine.bind("y", &leaves(&[0.0])).unwrap_err().to_string();
    assert!(error.contains("no inputs y.0, y.1") && error.contains("its groups are: z"), "{error}");
    for short in [&[1.0][..], &[], &[1.0, 1.0, 1.0]] {
        let error = routine.bind("z", &leaves(short)).unwrap_err().to_string();
        assert_eq!(error, format!("{} leaves were given for the group 'z', which has 2", short.len()));
    }
    assert!(routine.inputs("y").is_err() && routine.outputs("z").is_err());
}
