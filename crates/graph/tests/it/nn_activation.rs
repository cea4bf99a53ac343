//! Elementwise nonlinearities: values, derivatives to fourth order, kinks and extremes.

use crate::nn_support::{Asked, SMOOTH, array, ask, assert_close, noise, orders};
use bilevel_graph::nn;

#[test]
fn smooth_ones_have_right_derivatives() {
    let point = [noise(&[3, 5], 1)];
    ask("sigmoid", &SMOOTH, &point, |t| nn::sigmoid(t[0]));
    ask("tanh", &SMOOTH, &point, |t| nn::tanh(t[0]));
    ask("silu", &SMOOTH, &point, |t| nn::silu(t[0]));
    ask("softplus", &SMOOTH, &point, |t| nn::softplus(t[0]));
    ask("gelu", &SMOOTH, &point, |t| nn::gelu(t[0]));
    ask("gelu_tanh", &SMOOTH, &point, |t| nn::gelu_tanh(t[0]));
}

#[test]
fn kinked_ones_have_right_derivatives_off_the_kink() {
    let point = [array(&[8], &[-2.5, -1.0, -0.3, 0.2, 0.9, 4.0, 5.5, 7.0])];
    let asked = Asked { step: 0.01, ..SMOOTH };
    ask("relu", &asked, &point, |t| nn::relu(t[0]));
    ask("relu6", &asked, &point, |t| nn::relu6(t[0]));
    ask("leaky_relu", &asked, &point, |t| nn::leaky_relu(t[0], 0.1));
    ask("elu", &asked, &point, |t| nn::elu(t[0], 1.3));
}

#[test]
fn at_the_kink_one_subgradient_is_taken_and_second_derivatives_are_zero() {
    assert_eq!(orders(&[0.0, -0.0], nn::relu), [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]]);
    assert_eq!(orders(&[0.0, 6.0], nn::relu6), [vec![0.0, 6.0], vec![0.0; 2], vec![0.0; 2]]);
    assert_eq!(orders(&[0.0], |x| nn::leaky_relu(x, 0.1)), [vec![0.0], vec![0.1], vec![0.0]]);
    assert_eq!(orders(&[0.0], |x| nn::elu(x, 2.0)), [vec![0.0], vec![2.0], vec![2.0]]);
    assert_eq!(orders(&[0.0], |x| x.abs()), [vec![0.0], vec![0.0], vec![0.0]]);
    assert_eq!(orders(&[-1.0, 1.0], |x| x.clamp(-1.0, 1.0)), [vec![-1.0, 1.0], vec![1.0; 2], vec![0.0; 2]]);
    assert_eq!(orders(&[-1.5, 1.5], |x| x.clamp(-1.0, 1.0)), [vec![-1.0, 1.0], vec![0.0; 2], vec![0.0; 2]]);
}

#[test]
fn gelu_agrees_with_its_closed_form_to_eight_digits_and_more() {
    // x·Φ(x), Φ(x) + x·φ(x), φ(x)·(2 − x²), with Φ from tables of the normal distribution.
    let at = [-2.0, -1.0, 0.0, 0.5, 1.0, 3.0];
    let cdf =
        [0.022750131948179195, 0.15865525393145707, 0.5, 0.6914624612740131, 0.8413447460685429, 0.9986501019683699];
    let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let [value, first, second] = orders(&at, nn::gelu);
    let expected = |f: &dyn Fn(f64, f64) -> f64| at.iter().zip(cdf).map(|(&x, c)| f(x, c)).collect::<Vec<_>>();
    assert_close(&value, &expected(&|x, c| x * c), 1e-14);
    assert_close(&first, &expected(&|x, c| c + x * density(x)), 1e-14);
    assert_close(&second, &expected(&|x, _| density(x) * (2.0 - x * x)), 1e-14);
}

#[test]
fn gelu_tanh_agrees_with_its_formula() {
    let at = [-2.0, -0.3, 0.0, 0.7, 2.5];
    let formula = |x: f64| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        0.5 * x * (1.0 + inner.tanh())
    };
    assert_close(&orders(&at, nn::gelu_tanh)[0], &at.map(formula), 1e-15);
}

#[test]
fn softplus_and_its_derivatives_are_right_at_zero_and_far_out() {
    let at = [-1e3, -40.0, -1.0, 0.0, 1.0, 40.0, 1e3];
    let [value, first, second] = orders(&at, nn::softplus);
    let sigmoid = |x: f64| if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) };
    for (i, &x) in at.iter().enumerate() {
        let expected = x.max(0.0) + (-x.abs()).exp().ln_1p();
        assert!((value[i] - expected).abs() <= 1e-15 * expected.abs(), "softplus({x}) = {}", value[i]);
        assert!((first[i] - sigmoid(x)).abs() <= 1e-15, "softplus'({x}) = {}", first[i]);
        assert!((second[i] - sigmoid(x) * sigmoid(-x)).abs() <= 1e-15, "softplus''({x}) = {}", second[i]);
    }
}

#[test]
fn far_out_nothing_overflows() {
    let at = [-1e3, 1e3];
    for (name, found) in [
        ("elu", orders(&at, |x| nn::elu(x, 1.0))),
        ("silu", orders(&at, nn::silu)),
        ("sigmoid", orders(&at, nn::sigmoid)),
        ("gelu", orders(&at, nn::gelu)),
        ("gelu_tanh", orders(&at, nn::gelu_tanh)),
        ("tanh", orders(&at, nn::tanh)),
    ] {
        assert!(found.iter().flatten().all(|v| v.is_finite()), "{name}: {found:?}");
        assert!(found[2].iter().all(|v| v.abs() < 1e-12), "{name} is straight far out: {found:?}");
    }
}
