//! Loops that continue with a product's result: biases, activations, sums of products, softmaxes of batches, updates in
//! place.

use crate::common::{assert_close, assert_same};
use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{Dice, outputs};
use bilevel_graph::{DType, Graph, Program, Reference, Tensor, gradient, nn};

/// Builds a program of `inputs` and compares it with the reference, and teams with each other to the bit.
fn check(what: &str, shapes: &[&[usize]], build: impl Fn(&Graph, &[Tensor]) -> Program) {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-5)] {
        let g = Graph::new();
        let named = |(i, shape): (usize, &&[usize])| g.input(format!("{i}"), *shape, dtype);
        let inputs: Vec<Tensor> = shapes.iter().enumerate().map(named).collect();
        let program = build(&g, &inputs);
        let mut dice = Dice::new(5);
        let value = |(i, shape): (usize, &&[usize])| (format!("{i}"), dice.array(shape, dtype).unwrap());
        let values: Vec<_> = shapes.iter().enumerate().map(value).collect();
        let found = outputs(&Cpu::with_threads(1), &program, &values, 2).unwrap();
        assert_close(what, &found, &outputs(&Reference, &program, &values, 2).unwrap(), tolerance);
        for threads in [2, 3] {
            assert_same(what, &outputs(&Cpu::with_threads(threads), &program, &values, 2).unwrap(), &found);
        }
    }
}

/// Sizes that are computed in one piece, in pieces of whole rows, and in blocks.
const SIZES: [(usize, usize, usize); 5] = [(70, 80, 3), (700, 9, 40), (270, 150, 40), (90, 410, 30), (5, 1000, 70)];

#[test]
fn activations_of_products_and_their_derivatives_are_right() {
    for (m, n, k) in SIZES {
        check(&format!("{m}×{n}×{k}"), &[&[m, k], &[k, n], &[n]], |g, t| {
            let y = nn::linear(t[0], t[1], t[2]).tanh();
            let loss = (y * y * y).sum_all();
            let slopes = gradient(loss, t).unwrap();
            let builder = Program::builder(g)
                .output("y", y)
                .output("gelu", nn::gelu(t[0].matmul(t[1])))
                .outputs("d", slopes.into_iter().map(|slope| slope.unwrap()));
            builder.build().unwrap()
        });
    }
}

#[test]
fn products_are_added_to_products_and_to_what_was_there() {
    for (m, n, k) in SIZES {
        check(&format!("{m}×{n}×{k}"), &[&[m, k], &[k, n], &[m, n]], |g, t| {
            let (first, second) = (t[0].matmul(t[1]), t[0].sin().matmul(t[1].cos()));
            let sum = first + second;
            let builder = Program::builder(g).output("first", first).output("sum", sum * 2.0 + t[2]);
            builder.output("transposed", (sum.transpose([1, 0]) * 0.5).exp()).build().unwrap()
        });
    }
}

#[test]
fn softmaxes_of_batched_products_are_right() {
    for (rows, length) in [(17, 40), (40, 17)] {
        check("attention", &[&[4, 6, rows, 8], &[4, 6, length, 8]], |g, t| {
            let scores = t[0].matmul(t[1].transpose([0, 1, 3, 2])) * 0.3;
            let weights = nn::softmax(scores, 3);
            let loss = (weights * weights).sum_all();
            let slopes = gradient(loss, t).unwrap();
            let builder = Program::builder(g).output("weights", weights).output("d0", slopes[0].unwrap());
            builder.output("d1", slopes[1].unwrap()).build().unwrap()
        });
    }
}

#[test]
fn updates_made_of_products_are_right_whether_the_product_reads_the_old_value_or_not() {
    for (m, n, k) in [(70, 70, 70), (200, 150, 40)] {
        check("update", &[&[m, n], &[m, k], &[k, n], &[m, m]], |g, t| {
            let slope = t[1].matmul(t[2]);
            let builder = Program::builder(g).output("norm", (slope * slope).sum([0]));
            builder.carry(t[0], t[0] - slope * 0.1).carry(t[1], t[1] - t[3].matmul(t[1]) * 0.01).build().unwrap()
        });
    }
}
