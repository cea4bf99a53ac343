//! What the simplifier may and may not do: values as written, zeros known, nothing endless.

mod common;

use bilevel_graph::{Array, DType, Graph, Tensor, gradient};
use common::*;

/// The value on both kinds of graph.
fn both(at: &Array, build: impl Fn(&Graph, Tensor) -> Tensor) -> [Vec<f64>; 2] {
    [Graph::new(), Graph::without_simplification()].map(|g| {
        let x = g.input("x", at.shape(), at.dtype());
        value(&g, &[(x, at.clone())], build(&g, x)).to_f64()
    })
}

#[test]
fn constant_factors_whose_product_leaves_the_range_of_the_type_are_not_joined() {
    let at = Array::from_f32([2], vec![1e-20, 1e20]).unwrap();
    let [simplified, plain] = both(&at, |_, x| x * 1e30 * 1e30);
    assert_eq!(simplified, plain);
    let [simplified, plain] = both(&at, |_, x| x * 1e-30 * 1e-30);
    assert_eq!(simplified, plain);
    let large = Array::from_f32([1], vec![1e30]).unwrap();
    let [simplified, _] = both(&large, |_, x| 1e-25 * (x * 1e-25));
    assert!((simplified[0] / 1e-20 - 1.0).abs() < 1e-6, "{simplified:?}");
}

#[test]
fn integers_wrap_alike_with_and_without_simplification() {
    let at = i32s(&[4], &[i32::MIN, i32::MAX, -7, 0]);
    let builds: [fn(&Graph, Tensor) -> Tensor; 7] = [
        |_, x| -x,
        |_, x| x.abs(),
        |_, x| 0.0 - x,
        |_, x| -(x * (i32::MIN as f64)),
        |_, x| -(x - 3.0),
        |_, x| x + x,
        |g, x| x + g.constant(2e9, [4, 3], DType::I32).sum([1]),
    ];
    for (number, build) in builds.iter().enumerate() {
        let [simplified, plain] = both(&at, build);
        assert_eq!(simplified, plain, "case {number}");
    }
}

#[test]
fn products_of_negated_and_scaled_tensors_come_to_rest() {
    let at = numbers(1, &[3]);
    let [simplified, plain] = both(&at, |_, x| {
        let mut y = x;
        for i in 0..40 {
            y = match i % 8 {
                0 => -(y * 0.5),
                1 => (y * -2.0) * (x * 1.5),
                2 => -(y - x),
                3 => x * -1.0 - -y,
                4 => (-y) * (-x),
                5 => (y + y) / 2.0,
                6 => 0.25 * (-y + x),
                _ => -(-(y * x)) + -x,
            };
        }
        y
    });
    assert!(distance(&simplified, &plain) < 1e-12, "{simplified:?} {plain:?}");
}

#[test]
fn chains_of_shape_operations_come_to_rest_with_the_values_as_written() {
    let at = numbers(2, &[2, 1, 3]);
    let [simplified, plain] = both(&at, |_, x| {
        let y = x.broadcast_to([4, 2, 5, 3]).transpose([3, 1, 0, 2]).reshape([6, 20]).broadcast([1, 2], [2, 6, 20]);
        let z = y.slice_step(2, 1, 20, 3).slice_step(2, 0, 7, 2).reverse([0, 1]).reverse([0, 1]).reverse([2]);
        let w = z.sum([0]).unsqueeze([0, 3]).broadcast_to([2, 6, 4, 2]).sin().max([3]).sum([0, 2]);
        let pieces = w.slice(0, 0, 2).concat(&[w.slice(0, 2, 2), w.slice(0, 2, 6)], 0).concat(&[w], 0);
        pieces.slice(0, 6, 12).pad(0, 2, 1).slice(0, 2, 8) + pieces.slice(0, 1, 7)
    });
    assert!(distance(&simplified, &plain) < 1e-12, "{simplified:?} {plain:?}");
}

#[test]
fn a_sum_over_repeated_axes_is_a_product_with_their_length() {
    let at = numbers(3, &[2, 3]);
    for axes in [&[0][..], &[1], &[2], &[3], &[0, 2], &[1, 3], &[0, 1, 2], &[0, 1, 2, 3]] {
        let [simplified, plain] = both(&at, |_, x| x.broadcast([1, 3], [4, 2, 5, 3]).sum(axes));
        assert!(distance(&simplified, &plain) < 1e-12);
        let [simplified, plain] = both(&at, |_, x| (x.broadcast([1, 3], [4, 2, 5, 3]) * x.sum_all().sin()).sum(axes));
        assert!(distance(&simplified, &plain) < 1e-12);
    }
}

#[test]
fn a_product_with_zero_is_known_to_be_zero() {
    let g = Graph::new();
    let x = g.input("x", [3], DType::F64);
    assert_eq!((x * 0.0).constant_value(), Some(0.0));
    assert!(gradient((x * 0.0).sum_all(), &[x]).unwrap()[0].is_none());
}

#[test]
fn an_expression_written_twice_is_one_node() {
    let g = Graph::new();
    let (x, y) = (g.input("x", [3], DType::F64), g.input("y", [3], DType::F64));
    assert_eq!((x * y).sin(), (y * x).sin());
    let count = g.len();
    let _ = (x * y).sin() + 0.0;
    assert_eq!(g.len(), count + 1, "only the constant is new");
}

#[test]
fn an_input_named_like_the_step_must_be_one() {
    let g = Graph::new();
    let step = g.input("step", [2], DType::F32);
    let error = bilevel_graph::Program::builder(&g).output("y", step * 2.0).build().unwrap_err().to_string();
    assert!(error.contains("loop step") && error.contains("f32[2]"), "{error}");
}
