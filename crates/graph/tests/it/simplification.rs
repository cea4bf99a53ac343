//! What the simplifier may and may not do: values as written, zeros known, nothing endless.

use crate::common::*;
use bilevel_graph::conformance::Dice;
use bilevel_graph::{Array, DType, Graph, Tensor, gradient};

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
fn a_factor_stays_where_it_keeps_a_product_or_a_sum_inside_the_range() {
    type Build = fn(&Graph, Tensor) -> Tensor;
    let cases: [(&str, f32, Build); 9] = [
        ("(x·c)·y", 1e20, |_, x| x * 1e-20 * x.reverse([0])),
        ("x·(y·c)", 1e20, |_, x| x.reverse([0]) * (x * 1e-20)),
        ("(x·c)·(y·c)", 1e20, |_, x| (x * 1e-15) * (x.reverse([0]) * 1e-15)),
        ("(x·c)·y, c large", 1e-25, |_, x| x * 1e20 * x.reverse([0])),
        ("Σ x·c", 1e38, |_, x| (x * 1e-3).sum_all()),
        ("Σ x·b", 1e38, |_, x| (x.slice(0, 0, 1).sum_all().recip().broadcast([], [4]) * x).sum_all()),
        ("Σ −x·c", 1e38, |_, x| (-(x * 1e-3)).sum_all()),
        ("x/c", 1e-5, |_, x| x / 2f64.powi(-130)),
        ("1/(1/x)", 1e-40, |_, x| x.recip().recip()),
    ];
    for (name, size, build) in cases {
        let at = Array::from_f32([4], vec![size, size * 1.5, -size * 0.5, size * 2.0]).unwrap();
        let [simplified, plain] = both(&at, build);
        for (a, b) in simplified.iter().zip(&plain) {
            assert!(a == b || (a - b).abs() <= 1e-6 * b.abs(), "{name}: {simplified:?} and as written {plain:?}");
        }
    }
}

#[test]
fn a_constant_of_at_least_one_leaves_a_sum_and_constants_join() {
    let g = Graph::new();
    let x = g.input("x", [4], DType::F32);
    assert!((x * 3.0).sum_all().is_same_node(x.sum_all() * 3.0));
    assert!((x * 3.0 * 0.25).is_same_node(x * 0.75));
}

#[test]
fn no_chain_of_factors_vanishes_or_overflows_where_it_does_not_as_written() {
    let mut dice = Dice::new(17);
    for _ in 0..20_000 {
        let sizes = [1e-30, 1e-12, 1e-3, 0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 3.0, 1e3, 1e12, 1e30];
        let x = dice.pick(&[1e-45, 3e-45, 5e-44, 1e-40, 1e-37, 1e-20, 1.0, 1e20, 1e37, 3e38]);
        let factors: Vec<f64> = (0..1 + dice.below(4)).map(|_| dice.pick(&sizes)).collect();
        let [simplified, plain] = both(&Array::scalar(x, DType::F32), |_, x| factors.iter().fold(x, |y, &c| y * c));
        let (simplified, plain) = (simplified[0], plain[0]);
        let kept = plain == 0.0 || !plain.is_finite() || (simplified != 0.0 && simplified.is_finite());
        assert!(kept, "{x:e} times {factors:?} is {plain:e} as written and {simplified:e} simplified");
    }
}

#[test]
fn a_product_with_zero_that_a_person_wrote_lets_a_nan_through() {
    let at = f64s(&[3], &[1.0, f64::NAN, f64::INFINITY]);
    let builds: [fn(&Graph, Tensor) -> Tensor; 6] = [
        |_, x| x * 0.0,
        |_, x| 0.0 * (x - 2.0).log(),
        |_, x| 0.0 / (x * 0.0),
        |g, x| x.reshape([1, 3]).matmul(g.constant(0.0, [3, 1], DType::F64)).sum_all(),
        |_, x| (x.sum_all() * 0.0).broadcast([], [3]) + 1.0,
        |_, x| (x * 0.0 * 2.0).sum_all(),
    ];
    for (number, build) in builds.iter().enumerate() {
        let [simplified, plain] = both(&at, build);
        assert!(plain.iter().any(|v| v.is_nan()), "case {number}");
        for (a, b) in simplified.iter().zip(&plain) {
            assert!(a == b || (a.is_nan() && b.is_nan()), "case {number}: {simplified:?} and as written {plain:?}");
        }
    }
}

#[test]
fn a_product_with_zero_has_no_derivative_and_is_zero_where_it_cannot_be_anything_else() {
    let g = Graph::new();
    let (x, i) = (g.input("x", [3], DType::F64), g.input("i", [3], DType::I32));
    assert!(gradient((x * 0.0).sum_all(), &[x]).unwrap()[0].is_none());
    assert!(gradient((0.0 * x.log()).sum_all(), &[x]).unwrap()[0].is_none());
    assert!(gradient((x * 0.0 * x.sin()).sum_all(), &[x]).unwrap()[0].is_some(), "the factor 0·x may be NaN");
    assert_eq!((i * 0.0).constant_value(), Some(0.0), "integers are finite");
    assert_eq!((x.less(1.0) * 0.0).constant_value(), Some(0.0), "so is the answer of a comparison");
}

#[test]
fn an_expression_written_twice_is_one_node() {
    let g = Graph::new();
    let (x, y) = (g.input("x", [3], DType::F64), g.input("y", [3], DType::F64));
    assert!((x * y).sin().is_same_node((y * x).sin()));
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
