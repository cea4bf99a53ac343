//! Matrix exponential, norms, roots, running sums and products.

use crate::nn_support::{Asked, SMOOTH, array, ask, assert_close, evaluate, noise, noise_around, orders, value};
use bilevel_graph::{DType, Graph, gradient, hessian_vector, nn};

fn exponential(shape: &[usize], values: &[f64]) -> Vec<f64> {
    value(&[array(shape, values)], |t| nn::matrix_exponential(t[0])).to_f64()
}

#[test]
fn the_exponential_of_a_turn_is_a_rotation() {
    for angle in [0.0, 0.3, 1.0, 5.0, 16.0] {
        let (s, c) = f64::sin_cos(angle);
        assert_close(&exponential(&[2, 2], &[0.0, -angle, angle, 0.0]), &[c, -s, s, c], 1e-12);
    }
}

#[test]
fn the_exponential_of_a_nilpotent_matrix_is_a_polynomial() {
    let (a, b, c) = (3.0, -2.0, 5.0);
    let found = exponential(&[3, 3], &[0.0, a, b, 0.0, 0.0, c, 0.0, 0.0, 0.0]);
    assert_close(&found, &[1.0, a, b + a * c / 2.0, 0.0, 1.0, c, 0.0, 0.0, 1.0], 1e-14);
}

#[test]
fn the_exponential_of_a_diagonal_matrix_is_right_in_every_element() {
    let d = [16.0f64, -16.0, 0.5, -3.0];
    let matrix: Vec<f64> = (0..16).map(|i| if i / 4 == i % 4 { d[i / 4] } else { 0.0 }).collect();
    let found = exponential(&[4, 4], &matrix);
    for (i, v) in found.iter().enumerate() {
        let expected = if i / 4 == i % 4 { d[i / 4].exp() } else { 0.0 };
        assert!((v - expected).abs() <= 1e-12 * expected, "element {i}: {v} but expected {expected}");
    }
}

#[test]
fn the_exponential_of_a_symmetric_matrix_of_norm_16_is_right() {
    // exp [[a, b], [b, a]] = eᵃ·[[cosh b, sinh b], [sinh b, cosh b]]
    for (a, b) in [(3.0f64, 13.0f64), (-3.0, 13.0), (-8.0, 8.0)] {
        let (c, s) = (a.exp() * b.cosh(), a.exp() * b.sinh());
        assert_close(&exponential(&[2, 2], &[a, b, b, a]), &[c, s, s, c], 1e-12);
    }
}

#[test]
fn matrix_exponential_works_on_batches_and_has_right_derivatives() {
    let point = [noise(&[2, 3, 3], 1)];
    let batch = value(&point, |t| nn::matrix_exponential(t[0])).to_f64();
    for (i, matrix) in point[0].to_f64().chunks(9).enumerate() {
        assert_eq!(batch[i * 9..(i + 1) * 9], exponential(&[3, 3], matrix));
    }
    ask("matrix_exponential", &Asked { coordinates: 6, ..SMOOTH }, &point, |t| nn::matrix_exponential(t[0]));
    let deep = [noise(&[2, 1, 2, 2], 2)];
    ask("with two batch axes", &Asked { coordinates: 4, ..SMOOTH }, &deep, |t| nn::matrix_exponential(t[0]));
    // d exp(tA)/dt = A·exp(tA) at t = 1, and the second derivative A²·exp(A).
    let turned = value(&[array(&[2, 2], &[0.0, -2.0, 2.0, 0.0])], |t| {
        let scale = t[0].constant_like(1.0, []).stop_gradient();
        let y = nn::matrix_exponential(t[0] * scale).index(0, 0).index(0, 0);
        let first = gradient(y, &[scale]).unwrap()[0].unwrap();
        gradient(first, &[scale]).unwrap()[0].unwrap()
    });
    assert_close(&turned.to_f64(), &[-4.0 * 2f64.cos()], 1e-13);
}

#[test]
fn in_f32_the_exponential_is_right_to_six_digits() {
    let g = Graph::new();
    let a = g.input("a", [2, 2], DType::F32);
    let turn = bilevel_graph::Array::from_f32([2, 2], vec![0.0, -3.0, 3.0, 0.0]).unwrap();
    let found = evaluate(&g, &[a], &[turn], &[nn::matrix_exponential(a)])[0].to_f64();
    assert_close(&found, &[3f64.cos(), -3f64.sin(), 3f64.sin(), 3f64.cos()], 1e-6);
}

#[test]
fn safe_sqrt_is_right_and_flat_at_zero_and_below() {
    let [value, first, second] = orders(&[0.0, -1.0, 4.0], nn::safe_sqrt);
    assert_eq!(value, [0.0, 0.0, 2.0]);
    assert_eq!(first, [0.0, 0.0, 0.25]);
    assert_close(&second, &[0.0, 0.0, -1.0 / 32.0], 1e-15);
    ask("safe_sqrt", &SMOOTH, &[noise_around(&[6], 3, 0.5, 1.5)], |t| nn::safe_sqrt(t[0]));
}

#[test]
fn norm_is_right() {
    let point = [noise(&[2, 3, 2], 4)];
    let x = point[0].to_f64();
    let rows: Vec<f64> = x.chunks(2).map(|r| r.iter().map(|v| v * v).sum::<f64>().sqrt()).collect();
    assert_close(&value(&point, |t| nn::norm(t[0], [2])).to_f64(), &rows, 1e-15);
    let all = x.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert_close(&value(&point, |t| nn::norm(t[0], [0, 1, 2])).to_f64(), &[all], 1e-15);
    let asked = Asked { step: 0.01, ..SMOOTH };
    ask("norm over the last axis", &asked, &[noise_around(&[2, 3], 5, 0.5, 1.0)], |t| nn::norm(t[0], [1]));
    ask("norm over two axes", &asked, &point, |t| nn::norm(t[0], [0, 2]));
}

#[test]
fn sqrt_and_norm_have_zero_gradient_and_hessian_product_at_zero() {
    let g = Graph::new();
    let (x, v) = (g.input("x", [2, 3], DType::F64), g.input("v", [2, 3], DType::F64));
    let losses = [nn::norm(x, [1]).sum_all(), nn::safe_sqrt(x).sum_all(), nn::safe_sqrt(x.square()).sum_all()];
    for loss in losses {
        let slope = gradient(loss, &[x]).unwrap()[0].unwrap();
        let product = hessian_vector(loss, &[x], &[v]).unwrap()[0].unwrap();
        let third = gradient((product * v).sum_all(), &[x]).unwrap()[0].unwrap();
        let at = [array(&[2, 3], &[0.0; 6]), noise(&[2, 3], 6)];
        let found = evaluate(&g, &[x, v], &at, &[loss, slope, product, third]);
        assert!(found.iter().all(|a| a.to_f64().iter().all(|&v| v == 0.0)), "{found:?}");
    }
}

#[test]
fn cumsum_and_cumprod_are_right_along_every_axis() {
    for shape in [vec![1], vec![5], vec![3, 7], vec![2, 4, 3]] {
        let point = [noise_around(&shape, 7, 1.0, 0.3)];
        let x = point[0].to_f64();
        for axis in 0..shape.len() {
            let stride: usize = shape[axis + 1..].iter().product();
            let (mut sums, mut products) = (x.clone(), x.clone());
            for i in (0..x.len()).filter(|i| !(i / stride).is_multiple_of(shape[axis])) {
                sums[i] += sums[i - stride];
                products[i] *= products[i - stride];
            }
            assert_close(&value(&point, |t| nn::cumsum(t[0], axis)).to_f64(), &sums, 1e-14);
            assert_close(&value(&point, |t| nn::cumprod(t[0], axis)).to_f64(), &products, 1e-14);
            ask("cumsum", &SMOOTH, &point, |t| nn::cumsum(t[0], axis));
            ask("cumprod", &SMOOTH, &point, |t| nn::cumprod(t[0], axis));
        }
    }
}

#[test]
fn cumprod_has_right_derivatives_where_elements_are_zero() {
    let point = [array(&[6], &[0.7, 0.0, -1.2, 0.0, 0.0, 0.9])];
    ask("cumprod with zeros", &SMOOTH, &point, |t| nn::cumprod(t[0], 0));
}
