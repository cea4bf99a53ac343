//! Programs of very many operations are planned: the time grows with their number, not with its square.

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, Executor, Graph, Program, Tensor, gradient};

/// With debug assertions the verifier goes over the whole program after every pass; a third is enough to see a square: 10 ns for each pair
/// of operations would be four minutes.
const CHAIN_LENGTH: usize = if cfg!(debug_assertions) { 160_000 } else { 480_000 };

/// The value of the chain x, f(x), f(f(x)), … at its end.
fn end_of_chain(x: &Array, length: usize, f: impl Fn(Tensor, Tensor) -> Tensor) -> Vec<f64> {
    let g = Graph::new();
    let start = g.input("x", x.shape(), x.dtype());
    let end = (0..length).fold(start, |y, _| f(start, y));
    let program = Program::builder(&g).output("end", end).build().unwrap();
    assert!(program.nodes.len() >= length);
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    run.set(0, x).unwrap();
    run.run(0..1).unwrap();
    run.output(0).unwrap().to_f64()
}

#[test]
fn a_chain_of_very_many_numbers_is_planned_and_run() {
    let one = Array::scalar(1.0, DType::F64);
    assert_eq!(end_of_chain(&one, CHAIN_LENGTH, |x, y| x + y), [CHAIN_LENGTH as f64 + 1.0]);
}

#[test]
fn a_chain_of_very_many_vectors_is_planned_and_run() {
    let ones = Array::full([100], 1.0, DType::F32);
    assert_eq!(end_of_chain(&ones, CHAIN_LENGTH, |x, y| x + y), [CHAIN_LENGTH as f64 + 1.0; 100]);
}

#[test]
fn a_chain_of_products_and_its_gradient_are_planned_and_run() {
    let g = Graph::new();
    let (x, w) = (g.input("x", [2, 2], DType::F64), g.input("w", [2, 2], DType::F64));
    // Twelve thousand products whose values the backward pass needs, and one constant for each.
    let length = 12_000;
    let end = (0..length).fold(x, |y, i| (y * (1.0 + 1e-9 * i as f64)).matmul(w).tanh());
    let slope = gradient(end.sum_all(), &[w]).unwrap()[0].unwrap();
    let program = Program::builder(&g).output("slope", slope).build().unwrap();
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    run.set(program.input("x").unwrap(), &Array::full([2, 2], 0.5, DType::F64)).unwrap();
    run.set(program.input("w").unwrap(), &Array::from_f64([2, 2], vec![1.0, 0.5, -0.5, 1.0]).unwrap()).unwrap();
    run.run(0..1).unwrap();
    assert!(run.output(0).unwrap().to_f64().iter().all(|v| v.is_finite()));
}
