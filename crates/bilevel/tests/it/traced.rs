//! Problems whose losses were traced elsewhere are the same problems, to the bit, and fail with errors that name the mistake.

use bilevel::graph::{Function, Graph, Program, RandomKind};
use bilevel::methods::AnyMethod;
use bilevel::{
    Array, Cpu, DType, Error, InnerLoop, Key, Method, Named, Problem, ProblemBuilder, Session, Tensor, Variable,
};

type Tree = Named<Variable>;

fn tree(names: &[&str]) -> Tree {
    names.iter().map(|name| (name.to_string(), Variable::normal([3], 0.3))).collect()
}

fn data() -> Array {
    Array::from_f64([12, 3], (0..36).map(|i| f64::from(i * 7 % 13) * 0.1 - 0.5).collect()).unwrap()
}

/// θ's leaf `m` is a running mean of the rows.
fn builder() -> ProblemBuilder<Tree, Tree> {
    let mut theta: Vec<(String, Variable)> = vec![("w".into(), Variable::normal([3], 0.3))];
    theta.push(("m".into(), Variable::constant([3], 0.0).statistic()));
    Problem::builder(tree(&["l"]), theta.into_iter().collect()).data("x", data())
}

/// Minibatches, noise and a penalty: the loss, and the next mean.
fn formula(l: Tensor, w: Tensor, m: Tensor, x: Tensor, noise: Tensor) -> [Tensor; 2] {
    let mean = x.mean([0]);
    let loss = ((x * w).sum([1]).tanh() - x.sum([1]) + noise).square().mean_all() + (l.exp() * w.square()).sum_all();
    [loss, m * 0.9 + mean * 0.1]
}

fn by_closure() -> Problem<Tree, Tree> {
    let inner = |s: &bilevel::Scope, l: &Named<Tensor>, t: &Named<Tensor>| {
        let (l, w, m) = (*l.get("l").unwrap(), *t.get("w").unwrap(), *t.get("m").unwrap());
        let x = s.data("x").take(s.epochs(12, 4));
        let [loss, mean] = formula(l, w, m, x, s.normal([4]) * 0.1);
        s.update(m, mean);
        loss
    };
    let outer = |s: &bilevel::Scope, _: &Named<Tensor>, t: &Named<Tensor>| {
        (s.data("x") * *t.get("w").unwrap() - *t.get("m").unwrap()).square().mean_all()
    };
    builder().inner(inner).outer(outer).build().unwrap()
}

fn inner_function() -> Function {
    let g = Graph::new();
    let named = |name: &str, shape: &[usize]| g.input(name, shape, DType::F64);
    let (l, w, m) = (named("lambda/l", &[3]), named("theta/w", &[3]), named("theta/m", &[3]));
    let x = named("batch/x", &[4, 3]);
    let noise = g.input("key", [2], DType::I32).random(g.step(), RandomKind::Normal, 17, [4], DType::F64);
    let [loss, mean] = formula(l, w, m, x, noise * 0.1);
    Program::builder(&g).output("loss", loss).output("update/m", mean).function().unwrap()
}

fn outer_function() -> Function {
    let g = Graph::new();
    let named = |name: &str, shape: &[usize]| g.input(name, shape, DType::F64);
    let loss = (named("data/x", &[12, 3]) * named("theta/w", &[3]) - named("theta/m", &[3])).square().mean_all();
    Program::builder(&g).output("loss", loss).function().unwrap()
}

fn traced() -> Problem<Tree, Tree> {
    builder().inner_traced(inner_function()).outer_traced(outer_function()).build().unwrap()
}

fn hypergradient(problem: &Problem<Tree, Tree>, method: &str) -> (Vec<f64>, Vec<f64>) {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let inner = InnerLoop::new(0.1, 7);
    let mut estimator = AnyMethod::named(method).unwrap().prepare_in(&session, &inner).unwrap();
    let mut state = session.state(Key::from_seed(1)).unwrap();
    let found = estimator.estimate(&mut state, Key::from_seed(2)).unwrap();
    (found.value.numbers().unwrap(), state.theta.numbers().unwrap())
}

#[test]
fn a_traced_problem_has_the_hypergradients_of_the_same_closures_to_the_bit() {
    for method in ["rmd", "hpo-sgld", "ift-neumann", "langevin-adjoint", "fmd"] {
        assert_eq!(hypergradient(&traced(), method), hypergradient(&by_closure(), method), "{method}");
    }
}

#[test]
fn a_traced_start_and_metric_are_those_of_closures() {
    let start = {
        let g = Graph::new();
        let l = g.input("lambda/l", [3], DType::F64);
        let zeros = g.constant(0.0, [3], DType::F64);
        Program::builder(&g).output("theta/w", l.sin()).output("theta/m", zeros).function().unwrap()
    };
    let problem = builder()
        .inner_traced(inner_function())
        .outer_traced(outer_function())
        .start_traced(start)
        .measure_traced("again", outer_function())
        .build()
        .unwrap();
    assert!(problem.starts_from_lambda());
    let by_closure = {
        let start = |_: &bilevel::Scope, l: &Named<Tensor>| {
            let l = *l.get("l").unwrap();
            Named::from_iter([("w".to_string(), l.sin()), ("m".to_string(), l.zeros_like())])
        };
        builder().inner_traced(inner_function()).outer_traced(outer_function()).start(start).build().unwrap()
    };
    assert_eq!(hypergradient(&problem, "rmd"), hypergradient(&by_closure, "rmd"));
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let state = session.state(Key::from_seed(3)).unwrap();
    let numbers = session.evaluator().unwrap().at(&state, Key::from_seed(4)).unwrap();
    assert_eq!(numbers[1], numbers[2]);
}

#[test]
fn a_traced_loss_that_does_not_fit_is_an_error_that_names_the_mistake() {
    let function = |names: &[&str], output: &str| {
        let g = Graph::new();
        let inputs = names.iter().map(|name| g.input(*name, [3], DType::F64).sum_all());
        Program::builder(&g).output(output, inputs.reduce(|a, b| a * b).unwrap()).function().unwrap()
    };
    let refused = |names: &[&str], output: &str| {
        let problem = builder().inner_traced(function(names, output)).outer_traced(outer_function()).build();
        problem.err().unwrap().to_string()
    };
    assert!(refused(&["theta/v"], "loss").contains("'v'"));
    assert!(refused(&["theta/w", "lambda/w"], "loss").contains("'w'"));
    assert!(refused(&["theta/w", "data/y"], "loss").contains("'y'"));
    assert!(refused(&["theta/w", "data/x"], "loss").contains("is declared f64[3] but was given f64[12, 3]"));
    assert!(refused(&["theta/w", "colour"], "loss").contains("'colour'"));
    assert!(refused(&["theta/w"], "result").contains("'result'"));
    assert!(refused(&["theta/w"], "update/m").contains("no output named 'loss'"));
}

#[test]
fn a_flat_loss_may_fail_and_its_error_arrives_unchanged() {
    let problem = Problem::builder(tree(&["l"]), tree(&["w"]))
        .inner_flat(|_, l, t| Ok((l[0].exp() * t[0].square()).sum_all()))
        .outer_flat(|_, _, _| Err(Error::Loss { reason: "no outer loss today".into() }))
        .build();
    assert_eq!(problem.err(), Some(Error::Loss { reason: "no outer loss today".into() }));
}
