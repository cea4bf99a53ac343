//! Softmax, its logarithm, losses and the affine map.

use crate::nn_support::{Asked, SMOOTH, array, ask, assert_close, evaluate, noise, noise_around, value};
use bilevel_graph::{Array, DType, ErrorKind, Graph, Reference, gradient, nn};

#[test]
fn linear_has_right_values_and_derivatives() {
    let point = [noise(&[2, 3, 4], 1), noise(&[4, 2], 2), noise(&[2], 3)];
    let found = value(&point, |t| nn::linear(t[0], t[1], t[2]));
    let [x, w, b] = [0, 1, 2].map(|i| point[i].to_f64());
    let mut expected = vec![];
    for row in 0..6 {
        for o in 0..2 {
            expected.push((0..4).map(|i| x[row * 4 + i] * w[i * 2 + o]).sum::<f64>() + b[o]);
        }
    }
    assert_eq!(found.shape(), [2, 3, 2]);
    assert_close(&found.to_f64(), &expected, 1e-14);
    ask("linear", &SMOOTH, &point, |t| nn::linear(t[0], t[1], t[2]));
    ask("linear without bias", &SMOOTH, &point[..2], |t| nn::linear(t[0], t[1], None));
    let vector = [noise(&[4], 1), noise(&[4, 2], 2), noise(&[2], 3)];
    ask("linear of one row", &SMOOTH, &vector, |t| nn::linear(t[0], t[1], t[2]));
}

#[test]
fn softmax_family_has_right_values() {
    let x = noise_around(&[2, 3, 4], 4, 3.0, 0.0);
    let data = x.to_f64();
    for axis in 0..3 {
        let (stride, length) = ([12, 4, 1][axis], [2, 3, 4][axis]);
        let mut expected = vec![0.0; 24];
        for (i, e) in expected.iter_mut().enumerate() {
            let start = i - (i / stride % length) * stride;
            let sum: f64 = (0..length).map(|k| data[start + k * stride].exp()).sum();
            *e = data[i].exp() / sum;
        }
        let point = [x.clone()];
        assert_close(&value(&point, |t| nn::softmax(t[0], axis)).to_f64(), &expected, 1e-14);
        let logs: Vec<f64> = expected.iter().map(|p| p.ln()).collect();
        assert_close(&value(&point, |t| nn::log_softmax(t[0], axis)).to_f64(), &logs, 1e-14);
        let lse = value(&point, |t| nn::logsumexp(t[0], axis)).to_f64();
        let from_parts: Vec<f64> =
            (0..24).filter(|i| i / stride % length == 0).map(|i| data[i] - expected[i].ln()).collect();
        assert_close(&lse, &from_parts, 1e-14);
    }
}

#[test]
fn softmax_family_has_right_derivatives_along_every_axis() {
    let point = [noise(&[2, 3, 4], 5)];
    for axis in 0..3 {
        ask("softmax", &SMOOTH, &point, |t| nn::softmax(t[0], axis));
        ask("log_softmax", &SMOOTH, &point, |t| nn::log_softmax(t[0], axis));
        ask("logsumexp", &SMOOTH, &point, |t| nn::logsumexp(t[0], axis));
    }
}

#[test]
fn logsumexp_does_not_overflow_or_vanish_and_neither_do_its_derivatives() {
    for at in [-1e3, 1e3] {
        let g = Graph::new();
        let x = g.input("x", [3], DType::F64);
        let y = nn::logsumexp(x, 0);
        let first = gradient(y, &[x]).unwrap()[0].unwrap();
        let second = gradient(first.index(0, 0), &[x]).unwrap()[0].unwrap();
        let found = evaluate(&g, &[x], &[array(&[3], &[at, at + 1.0, at])], &[y, first, second]);
        let sum = 2.0 + 1f64.exp();
        let p = [1.0 / sum, 1f64.exp() / sum, 1.0 / sum];
        assert_close(&found[0].to_f64(), &[at + sum.ln()], 1e-15);
        assert_close(&found[1].to_f64(), &p, 1e-14);
        assert_close(&found[2].to_f64(), &[p[0] - p[0] * p[0], -p[0] * p[1], -p[0] * p[2]], 1e-14);
    }
}

#[test]
fn mse_is_right() {
    let point = [noise(&[3, 2], 6), noise(&[3, 2], 7)];
    let (x, y) = (point[0].to_f64(), point[1].to_f64());
    let expected = x.iter().zip(&y).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / 6.0;
    assert_close(&value(&point, |t| nn::mse(t[0], t[1])).to_f64(), &[expected], 1e-15);
    ask("mse", &SMOOTH, &point, |t| nn::mse(t[0], t[1]));
}

#[test]
fn cross_entropy_is_right_and_its_derivative_is_softmax_less_one_hot() {
    let labels = Array::from_i32([4], vec![2, 0, 1, 2]).unwrap();
    let point = [noise_around(&[4, 3], 8, 2.0, 0.0), labels];
    let x = point[0].to_f64();
    let (mut loss, mut slope) = (0.0, vec![]);
    for (row, &label) in [2usize, 0, 1, 2].iter().enumerate() {
        let z: f64 = (0..3).map(|k| x[row * 3 + k].exp()).sum();
        loss += (z.ln() - x[row * 3 + label]) / 4.0;
        slope.extend((0..3).map(|k| (x[row * 3 + k].exp() / z - (k == label) as i32 as f64) / 4.0));
    }
    assert_close(&value(&point, |t| nn::cross_entropy(t[0], t[1])).to_f64(), &[loss], 1e-14);
    let found = value(&point, |t| gradient(nn::cross_entropy(t[0], t[1]), &t[..1]).unwrap()[0].unwrap());
    assert_close(&found.to_f64(), &slope, 1e-14);
    ask("cross_entropy", &SMOOTH, &point, |t| nn::cross_entropy(t[0], t[1]));
    ask("cross_entropy_rows", &SMOOTH, &point, |t| nn::cross_entropy_rows(t[0], t[1]));
    // A row weight a row, as in reweighting.
    let weighted = [point[0].clone(), point[1].clone(), noise(&[4], 9)];
    ask("weighted", &SMOOTH, &weighted, |t| (nn::sigmoid(t[2]) * nn::cross_entropy_rows(t[0], t[1])).sum_all());
    // Labels of any rank.
    let image = [noise(&[2, 2, 3], 8), Array::from_i32([2, 2], vec![2, 0, 1, 2]).unwrap()];
    ask("cross_entropy of pixels", &SMOOTH, &image, |t| nn::cross_entropy(t[0], t[1]));
    // Logits that are all but hidden.
    let hidden = [array(&[1, 3], &[0.0, f64::NEG_INFINITY, 0.0]), Array::from_i32([1], vec![0]).unwrap()];
    assert_close(&value(&hidden, |t| nn::cross_entropy(t[0], t[1])).to_f64(), &[2f64.ln()], 1e-15);
}

#[test]
fn cross_entropy_soft_is_right() {
    let point = [noise(&[4, 3], 8), noise_around(&[4, 3], 10, 0.4, 0.5)];
    let hard = [point[0].clone(), Array::from_i32([4], vec![2, 0, 1, 2]).unwrap()];
    let as_soft = value(&hard, |t| nn::cross_entropy_soft(t[0], nn::one_hot(t[1], 3, DType::F64)));
    let expected = value(&hard, |t| nn::cross_entropy(t[0], t[1]));
    assert_close(&as_soft.to_f64(), &expected.to_f64(), 1e-15);
    ask("cross_entropy_soft", &Asked { ..SMOOTH }, &point, |t| nn::cross_entropy_soft(t[0], t[1]));
}

#[test]
fn a_wrong_label_is_a_typed_error_of_the_run_in_the_loss_and_in_its_gradient() {
    let g = Graph::new();
    let (logits, labels) = (g.input("logits", [2, 3], DType::F64), g.input("labels", [2], DType::I32));
    let loss = nn::cross_entropy(logits, labels);
    let slope = gradient(loss, &[logits]).unwrap()[0].unwrap();
    for wrong in [3, -1] {
        let given =
            [(logits, Array::zeros([2, 3], DType::F64)), (labels, Array::from_i32([2], vec![0, wrong]).unwrap())];
        for output in [loss, slope] {
            let error = Reference::evaluate(&g, &given, &[output]).unwrap_err();
            let ErrorKind::IndexOutOfRange { index, limit, .. } = &error.kind else { panic!("{error}") };
            assert_eq!((*index, *limit), (wrong as i64, 3));
            assert!(error.to_string().contains("nn_loss.rs"), "{error}");
        }
    }
}

#[test]
fn priors_are_normalised_and_have_right_derivatives() {
    // The trapezoid rule over a grid: ∫ exp(−prior) dx is 1 at any scale.
    for scale in [0.3, 1.0, 7.0] {
        let points = 40_001;
        let at = |i: usize| (i as f64 - 20_000.0) * 2e-3 / scale;
        let x = Array::from_f64([points, 1], (0..points).map(at).collect()).unwrap();
        let masses = [nn::gaussian_prior as fn(_, _) -> _, nn::laplace_prior].map(|prior| {
            // One row at a time, so that no sum goes over the grid.
            let of = |row: f64| {
                let g = Graph::new();
                let (x, a) = (g.constant(row, [1], DType::F64), g.constant(scale * scale, [], DType::F64));
                Reference::evaluate(&g, &[], &[prior(x, a)]).unwrap()[0].item().unwrap()
            };
            let every = 40;
            let mass: f64 = x.to_f64().iter().step_by(every).map(|row| (-of(*row)).exp()).sum();
            mass * 2e-3 * every as f64 / scale
        });
        assert!((masses[0] - 1.0).abs() < 1e-9, "{masses:?}");
        // A kink at 0, which is a point of the grid: the error is b·h²/12, with h = 0.08/scale and b = scale².
        assert!((masses[1] - 1.0).abs() < scale.powi(4) * (0.08 / scale).powi(2), "{masses:?}");
    }
    let point = [noise_around(&[2, 3], 7, 1.0, 2.0), noise_around(&[3], 8, 0.2, 1.0)];
    ask("gaussian_prior", &SMOOTH, &point, |t| nn::gaussian_prior(t[0], t[1]));
    ask("laplace_prior", &SMOOTH, &point, |t| nn::laplace_prior(t[0], t[1]));
}
