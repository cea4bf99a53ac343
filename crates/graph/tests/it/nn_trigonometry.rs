//! Inverse trigonometric functions.

use crate::common::*;
use bilevel_graph::{DType, Graph, Reference, nn};

#[test]
fn arcsine_and_arccosine_have_their_values_and_derivatives() {
    let points: Vec<f64> = (-50..=50).map(|i| f64::from(i) / 50.0).chain([1.0 - 1e-12, -1.0 + 1e-12, 1e-300]).collect();
    let g = Graph::new();
    let x = g.input("x", [points.len()], DType::F64);
    let at = f64s(&[points.len()], &points);
    let found = Reference::evaluate(&g, &[(x, at)], &[nn::asin(x), nn::acos(x)]).unwrap();
    for (i, p) in points.iter().enumerate() {
        for (found, exact) in [(found[0].to_f64()[i], p.asin()), (found[1].to_f64()[i], p.acos())] {
            assert!((found - exact).abs() <= 4.0 * f64::EPSILON * exact.abs(), "{p}: {found} {exact}");
        }
    }
    let outside = Reference::evaluate(&g, &[], &[nn::asin(g.scalar(1.5, DType::F64))]).unwrap();
    assert!(outside[0].item().unwrap().is_nan());
    check(&[between(1, &[6], -0.7, 0.7)], SMOOTH, |_, x| nn::asin(x[0]) * nn::acos(x[0]));
}

#[test]
fn the_angle_of_a_point_has_the_values_of_ieee_754_on_every_side() {
    let few = [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 1e300, -1e-300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    for dtype in [DType::F64, DType::F32] {
        let round = |v: f64| if dtype == DType::F32 { f64::from(v as f32) } else { v };
        let unit = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let g = Graph::new();
        let (y, x) = (g.input("y", [], dtype), g.input("x", [], dtype));
        let angle = nn::atan2(y, x);
        for a in few {
            for b in few {
                let at = [(y, scalar(a, dtype)), (x, scalar(b, dtype))];
                let found = Reference::evaluate(&g, &at, &[angle]).unwrap()[0].item().unwrap();
                let exact = round(a).atan2(round(b));
                let same = (found - exact).abs() <= 2.0 * unit * exact.abs() && found.signum() == exact.signum();
                assert!(same || (found.is_nan() && exact.is_nan()), "{dtype}: atan2({a}, {b}) is {exact}, not {found}");
            }
        }
    }
}

#[test]
fn the_angle_of_a_point_has_its_derivatives_in_every_quadrant() {
    for (y, x) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
        for (a, b) in [(0.3, 1.2), (1.2, 0.3)] {
            let at = [between(2, &[3], y * a, y * (a + 0.2)), between(3, &[3], x * b, x * (b + 0.2))];
            check(&at, SMOOTH, |_, t| nn::atan2(t[0], t[1]));
        }
    }
}

fn scalar(value: f64, dtype: DType) -> bilevel_graph::Array {
    bilevel_graph::Array::scalar(value, dtype)
}
