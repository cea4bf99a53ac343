//! Derivatives of the elementwise primitives.

use crate::common::*;
use bilevel_graph::{BinaryOp, DType, Graph, UnaryOp, gradient, hessian_vector};

#[test]
fn every_smooth_unary_function_has_its_derivatives() {
    for op in UnaryOp::ALL {
        let Some([low, high]) = op.smooth_domain() else { continue };
        println!("{op:?}");
        check(&[between(op as u64, &[2, 3], low, high)], SMOOTH, |_, x| x[0].unary(op));
    }
}

#[test]
fn abs_and_recip_have_their_derivatives_on_the_negative_side() {
    for op in [UnaryOp::Abs, UnaryOp::Recip] {
        check(&[between(5, &[4], -2.5, -0.7)], SMOOTH, |_, x| x[0].unary(op));
    }
}

#[test]
fn every_smooth_binary_function_has_its_derivatives() {
    for op in BinaryOp::ALL {
        let Some([[a, b], [c, d]]) = op.smooth_domain() else { continue };
        println!("{op:?}");
        let values = [between(1, &[2, 3], a, b), between(2, &[2, 3], c, d)];
        check(&values, SMOOTH, |_, x| x[0].binary(op, x[1]));
    }
}

#[test]
fn polygamma_has_its_derivatives_by_its_argument_and_none_by_its_order() {
    for order in [0, 1, 4] {
        check(&[between(14, &[5], 1.5, 4.0)], SMOOTH, |_, x| x[0].polygamma(order));
        check(&[between(15, &[5], -2.8, -2.2)], KINKED, |_, x| x[0].polygamma(order) * 1e-3);
    }
    let g = Graph::new();
    let (n, x) = (g.input("n", [], DType::F64), g.input("x", [], DType::F64));
    let d = gradient(n.binary(BinaryOp::Polygamma, x), &[n, x]).unwrap();
    assert!(d[0].is_none());
    assert!(d[1].is_some_and(|d| d.is_same_node((n + 1.0).binary(BinaryOp::Polygamma, x))));
}

#[test]
fn the_fourth_derivative_of_the_log_gamma_function_is_a_polygamma_of_order_3() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let fourth = (0..4).fold(x.ln_gamma(), |y, _| gradient(y, &[x]).unwrap()[0].unwrap());
    assert!(fourth.is_same_node(x.polygamma(3)), "{fourth:?}");
}

#[test]
fn both_operands_may_be_one_tensor() {
    for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Pow, BinaryOp::Max, BinaryOp::Min]
    {
        println!("{op:?}");
        check(&[between(3, &[4], 0.7, 2.0)], KINKED, |_, x| x[0].binary(op, x[0]) * x[0]);
    }
}

#[test]
fn max_and_min_have_their_derivatives_away_from_ties() {
    for op in [BinaryOp::Max, BinaryOp::Min] {
        let (a, b) = (separated(4, &[3, 4]), separated(5, &[3, 4]));
        let b = f64s(&[3, 4], &b.to_f64().iter().map(|v| v + 0.11).collect::<Vec<_>>());
        check(&[a, b], KINKED, |_, x| x[0].binary(op, x[1]));
    }
}

#[test]
fn binary_functions_stretch_their_operands() {
    let shapes: [(&[usize], &[usize]); 4] =
        [(&[2, 3], &[3]), (&[2, 1], &[1, 3]), (&[], &[2, 2]), (&[4, 1, 2], &[1, 3, 1])];
    for (a, b) in shapes {
        check(&[between(6, a, 0.7, 2.0), between(7, b, 0.7, 2.0)], SMOOTH, |_, x| x[0] / x[1] + x[1] * x[0]);
    }
}

#[test]
fn numbers_stand_on_either_side() {
    check(&[between(8, &[5], 0.7, 2.0)], SMOOTH, |_, x| {
        (2.0 - x[0]) * (1.5 / x[0]) + (3.0 * x[0] - 1.0) / 7.0 + (0.5 + x[0]).pow(2.5)
    });
}

#[test]
fn powers_by_whole_numbers_hold_for_negative_bases() {
    for power in [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0] {
        println!("{power}");
        check(&[between(9, &[4], -2.0, -0.7)], SMOOTH, |_, x| x[0].pow(power) + x[0]);
    }
}

#[test]
fn powers_with_a_variable_exponent_have_a_zero_derivative_at_base_zero() {
    let g = Graph::new();
    let (a, b) = (g.input("a", [2], DType::F64), g.input("b", [2], DType::F64));
    let d = gradient(a.pow(b).sum_all(), &[a, b]).unwrap();
    let at = [(a, f64s(&[2], &[0.0, 2.0])), (b, f64s(&[2], &[2.0, 3.0]))];
    assert_eq!(value(&g, &at, d[0].unwrap()).to_f64(), [0.0, 12.0]);
    assert_eq!(value(&g, &at, d[1].unwrap()).to_f64(), [0.0, 8.0 * 2f64.ln()]);
}

#[test]
fn select_passes_the_derivative_of_the_side_it_takes() {
    let mask = f64s(&[2, 3], &[1.0, 0.0, -2.0, 0.0, 0.5, 0.0]);
    check(&[numbers(10, &[2, 3]), numbers(11, &[3])], SMOOTH, |g, x| {
        let mask = g.iota([2, 3], 1, DType::F64).equal(1.0);
        mask.select(x[0].sin(), x[1].exp()) * x[1]
    });
    let g = Graph::new();
    let (m, a, b) = (g.input("m", [2, 3], DType::F64), g.input("a", [], DType::F64), g.input("b", [], DType::F64));
    let d = gradient(m.select(a, b).sum_all(), &[m, a, b]).unwrap();
    let at = [(m, mask), (a, f64s(&[], &[2.0])), (b, f64s(&[], &[5.0]))];
    assert!(d[0].is_none(), "a mask has no derivative");
    assert_eq!([1, 2].map(|i| value(&g, &at, d[i].unwrap()).item()), [Some(3.0), Some(3.0)]);
}

#[test]
fn conversion_between_float_types_passes_the_derivative_rounded() {
    let x = between(12, &[5], -1.0, 1.0);
    let found = gradient_at(&x, |_, x| x.convert(DType::F32).sin().convert(DType::F64).sum_all());
    for (d, x) in found.iter().zip(x.to_f64()) {
        assert_eq!(*d, *d as f32 as f64, "computed in f32");
        assert!((d - x.cos()).abs() < 1e-6);
    }
    let g = Graph::new();
    let x = g.input("x", [5], DType::F32);
    let dx = gradient(x.convert(DType::F64).square().sum_all(), &[x]).unwrap()[0].unwrap();
    assert_eq!(dx.dtype(), DType::F32);
    let v = g.input("v", [5], DType::F32);
    assert!(hessian_vector(x.convert(DType::F64).square().sum_all(), &[x], &[v]).unwrap()[0].is_some());
}

#[test]
fn relu_as_select_has_derivative_zero_at_the_kink() {
    let at = f64s(&[3], &[-1.0, 0.0, 2.0]);
    assert_eq!(gradient_at(&at, |_, x| x.greater(0.0).select(x, 0.0).sum_all()), [0.0, 0.0, 1.0]);
    let second = gradient_at(&at, |_, x| {
        let y = x.greater(0.0).select(x, 0.0);
        gradient((y * y * y).sum_all(), &[x]).unwrap()[0].unwrap().sum_all()
    });
    assert_eq!(second, [0.0, 0.0, 12.0]);
}

#[test]
fn abs_has_derivative_zero_at_the_kink() {
    let at = f64s(&[3], &[-1.5, 0.0, 2.0]);
    assert_eq!(gradient_at(&at, |_, x| x.abs().sum_all()), [-1.0, 0.0, 1.0]);
}

#[test]
fn clamp_has_derivative_one_on_its_closed_interval() {
    let at = f64s(&[5], &[-2.0, -1.0, 0.3, 1.0, 1.5]);
    assert_eq!(gradient_at(&at, |_, x| x.clamp(-1.0, 1.0).sum_all()), [0.0, 1.0, 1.0, 1.0, 0.0]);
    check(&[separated(13, &[6])], KINKED, |_, x| x[0].clamp(-0.5, 0.4));
}

#[test]
fn where_two_are_equal_the_first_takes_the_derivative_of_their_maximum_and_minimum() {
    for op in [BinaryOp::Max, BinaryOp::Min] {
        let g = Graph::new();
        let (a, b) = (g.input("a", [1], DType::F64), g.input("b", [1], DType::F64));
        let d = gradient(a.binary(op, b).sum_all(), &[a, b]).unwrap();
        let at = [(a, f64s(&[1], &[0.7])), (b, f64s(&[1], &[0.7]))];
        assert_eq!(value(&g, &at, d[0].unwrap()).item(), Some(1.0));
        assert_eq!(value(&g, &at, d[1].unwrap()).item(), Some(0.0));
    }
}

#[test]
fn sqrt_is_differentiated_near_zero_to_any_order() {
    let at = f64s(&[2], &[0.01, 1e-4]);
    let second = gradient_at(&at, |_, x| gradient(x.sqrt().sum_all(), &[x]).unwrap()[0].unwrap().sum_all());
    for (found, x) in second.iter().zip([0.01f64, 1e-4]) {
        assert!((found / (-0.25 * x.powf(-1.5)) - 1.0).abs() < 1e-12);
    }
}

#[test]
fn sigmoid_and_tanh_saturate_without_nan() {
    let at = f64s(&[4], &[-800.0, -40.0, 40.0, 800.0]);
    for op in [UnaryOp::Sigmoid, UnaryOp::Tanh, UnaryOp::Erf] {
        let second = gradient_at(&at, |_, x| gradient(x.unary(op).sum_all(), &[x]).unwrap()[0].unwrap().sum_all());
        assert!(second.iter().all(|d| d.abs() < 1e-15), "{op:?} {second:?}");
    }
}
