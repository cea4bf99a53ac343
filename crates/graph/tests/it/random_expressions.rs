//! Random expressions of all primitives: a simplified graph and the graph as written must agree in value, gradient and
//! Hessian product, and forward and backward products must be adjoint.

use crate::common::*;
use bilevel_graph::{
    Array, BinaryOp, DType, DotDims, Graph, Reference, Tensor, UnaryOp, gradient_or_zeros, hessian_vector, jvp, vjp,
};
use proptest::prelude::*;

const MOST: usize = 60;

/// Choices, the same for both graphs: they depend on the seed and on shapes alone.
struct Choice(u64);

impl Choice {
    fn below(&mut self, n: usize) -> usize {
        (uniform(&mut self.0) * n as f64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn subset(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.below(2) == 1).collect()
    }
}

/// One more tensor made from those there are. All values stay of moderate size.
fn grow(choice: &mut Choice, pool: &[Tensor]) -> Tensor {
    let x = pool[choice.below(pool.len())];
    let rank = x.rank();
    match choice.below(22) {
        0 => x.unary(choice.of(&[UnaryOp::Sin, UnaryOp::Cos, UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Erf])),
        1 => -x,
        2 => x.unary(choice.of(&[UnaryOp::Abs, UnaryOp::Floor, UnaryOp::Sign])) * 0.5,
        3 => (x.tanh() + 2.0).unary(choice.of(&[UnaryOp::Log, UnaryOp::Sqrt, UnaryOp::Recip, UnaryOp::Log1p])),
        4 => x * choice.of(&[0.0, 1.0, -1.0, 0.5, -0.25, 2.0]),
        5 => choice.of(&[0.0, 1.0, -1.0]) - x,
        6 => x / choice.of(&[1.0, -2.0, 3.0]),
        7 | 8 => {
            let fits: Vec<Tensor> = pool.iter().copied().filter(|y| y.shape() == x.shape()).collect();
            let y = choice.of(&fits);
            x.binary(choice.of(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min]), y)
        }
        9 => {
            let y = choice.of(pool);
            let small = y.mean_all();
            if choice.below(2) == 0 { x * small } else { small - x }
        }
        10 => x.reshape([x.len()]),
        11 if rank < 4 => x.unsqueeze([choice.below(rank + 1)]),
        12 if rank < 4 && x.len() * 2 <= MOST => {
            let place = choice.below(rank + 1);
            let mut shape = x.shape();
            shape.insert(place, 2);
            x.broadcast((0..rank).map(|a| a + (a >= place) as usize).collect::<Vec<_>>(), shape)
        }
        13 if rank > 1 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                perm.swap(i, choice.below(i + 1));
            }
            x.transpose(perm)
        }
        14 if rank > 0 => {
            let axis = choice.below(rank);
            let length = x.dim(axis);
            let start = choice.below(length);
            let stop = start + 1 + choice.below(length - start);
            x.slice_step(axis, start, stop, 1 + choice.below(2))
        }
        15 if rank > 0 && x.len() * 2 <= MOST => x.pad(choice.below(rank), choice.below(2), choice.below(2)),
        16 if rank > 0 && x.len() * 2 <= MOST => {
            let axis = choice.below(rank);
            let mut shape = x.shape();
            shape[axis] = 1;
            x.concat(&[x.constant_like(0.5, shape), x.slice(axis, 0, 1)], axis)
        }
        17 => x.reverse(choice.subset(rank)),
        18 => x.sum(choice.subset(rank)) * 0.5,
        19 if rank > 0 => {
            let axis = choice.below(rank);
            match choice.below(3) {
                0 => x.max([axis]),
                1 => x.cumsum_from(axis, choice.below(2) == 1) * 0.5,
                _ => x.argmax(axis).convert(DType::F64) * 0.1,
            }
        }
        20 if rank > 0 && x.len() / x.dim(0) <= 7 => {
            let axis = DotDims { lhs_contract: vec![0], rhs_contract: vec![0], ..DotDims::default() };
            x.tanh().dot(x.sin(), axis) * 0.3
        }
        21 if rank > 0 => {
            let y = x.less(0.2).select(x, x * 0.5);
            let indices = x.constant_like(0.0, [3]).iota_like(0).convert(DType::I32).minimum(x.dim(0) as f64 - 1.0);
            y.take(indices)
        }
        _ => (x.stop_gradient() * x).tanh(),
    }
}

/// Value, gradients and Hessian products of a random expression, and how far its products are from adjoint.
fn results(graph: &Graph, seed: u64, length: usize) -> Vec<Vec<f64>> {
    let mut choice = Choice(seed);
    let shapes: [&[usize]; 4] = [&[2, 3], &[3], &[2, 1, 2], &[]];
    let x: Vec<Tensor> = shapes.iter().enumerate().map(|(i, s)| graph.input(format!("x{i}"), s, DType::F64)).collect();
    let v: Vec<Tensor> = shapes.iter().enumerate().map(|(i, s)| graph.input(format!("v{i}"), s, DType::F64)).collect();
    let mut pool = x.clone();
    for _ in 0..length {
        let next = grow(&mut choice, &pool).check().unwrap();
        if !next.is_empty() {
            pool.push(next.tanh());
            pool.push(next);
        }
    }
    let last = pool[pool.len() - 1];
    let loss = pool[x.len()..].iter().rev().take(6).map(|t| wavy(graph, *t)).reduce(|a, b| a + b).unwrap();
    let c = graph.input("c", last.shape(), DType::F64);
    let mut point: Vec<(Tensor, Array)> = vec![(c, numbers(9, &last.shape()))];
    for (i, t) in x.iter().chain(&v).enumerate() {
        point.push((*t, numbers(10 + i as u64, &t.shape())));
    }
    let mut outputs = vec![loss];
    outputs.extend(gradient_or_zeros(loss, &x).unwrap());
    let hv = hessian_vector(loss, &x, &v).unwrap();
    outputs.extend(hv.iter().zip(&x).map(|(d, x)| d.unwrap_or_else(|| x.zeros_like())));
    let forward = jvp(&[last], &x, &v).unwrap()[0].unwrap_or_else(|| last.zeros_like());
    let backward = vjp(&[last], &[c], &x).unwrap();
    let backward = backward.iter().zip(&v).filter_map(|(d, v)| d.map(|d| (d * *v).sum_all()));
    let backward = backward.reduce(|a, b| a + b).unwrap_or_else(|| loss.zeros_like());
    outputs.extend([(forward * c).sum_all(), backward, (forward * c).abs().sum_all()]);
    let found: Vec<Vec<f64>> =
        Reference::evaluate(graph, &point, &outputs).unwrap().iter().map(Array::to_f64).collect();
    let [.., forward, backward, scale] = &found[..] else { panic!("three sums") };
    assert!((forward[0] - backward[0]).abs() <= 1e-11 * (1.0 + scale[0]), "not adjoint: {forward:?} {backward:?}");
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn simplified_expressions_equal_those_as_written(seed in any::<u64>(), length in 1usize..14) {
        let simplified = results(&Graph::new(), seed, length);
        let plain = results(&Graph::without_simplification(), seed, length);
        for (number, (a, b)) in simplified.iter().zip(&plain).enumerate() {
            let scale = a.iter().chain(b).fold(1.0, |m: f64, x| m.max(x.abs()));
            for (x, y) in a.iter().zip(b) {
                prop_assert!(x == y || (x - y).abs() <= 1e-10 * scale, "output {}: {:?} {:?}", number, a, b);
            }
        }
    }
}
