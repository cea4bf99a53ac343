//! Layer, batch and group normalisation: values against plain loops, derivatives in every argument.

use crate::nn_support::{SMOOTH, ask, assert_close, declare, evaluate, noise, noise_around, value};
use bilevel_graph::{Array, Graph, nn};

/// (x − mean)/√(variance + eps) over each set of places, and the statistics.
fn standardise(x: &[f64], sets: &[Vec<usize>], eps: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut y = vec![0.0; x.len()];
    let (mut means, mut variances) = (vec![], vec![]);
    for set in sets {
        let mean = set.iter().map(|&i| x[i]).sum::<f64>() / set.len() as f64;
        let variance = set.iter().map(|&i| (x[i] - mean).powi(2)).sum::<f64>() / set.len() as f64;
        for &i in set {
            y[i] = (x[i] - mean) / (variance + eps).sqrt();
        }
        means.push(mean);
        variances.push(variance);
    }
    (y, means, variances)
}

#[test]
fn layer_norm_is_right_over_one_axis_and_over_two() {
    for tail in [vec![4], vec![3, 4]] {
        let point = [noise(&[2, 3, 4], 1), noise(&tail, 2), noise(&tail, 3)];
        let [x, gain, bias] = [0, 1, 2].map(|i| point[i].to_f64());
        let width = gain.len();
        let sets: Vec<Vec<usize>> = (0..24 / width).map(|r| (r * width..(r + 1) * width).collect()).collect();
        let (y, ..) = standardise(&x, &sets, 1e-3);
        let expected: Vec<f64> = (0..24).map(|i| y[i] * gain[i % width] + bias[i % width]).collect();
        assert_close(&value(&point, |t| nn::layer_norm(t[0], t[1], t[2], 1e-3)).to_f64(), &expected, 1e-14);
        ask("layer_norm", &SMOOTH, &point, |t| nn::layer_norm(t[0], t[1], t[2], 1e-3));
    }
}

#[test]
fn layer_norm_of_equal_elements_is_finite_to_second_order() {
    let point = [Array::full([1, 3], 2.0, bilevel_graph::DType::F64), noise(&[3], 2), noise(&[3], 3)];
    ask(
        "layer_norm of equal elements",
        &crate::nn_support::Asked { step: 1e-3, tolerance: 1e-6, third: false, ..SMOOTH },
        &point,
        |t| nn::layer_norm(t[0], t[1], t[2], 1e-2),
    );
}

#[test]
fn batch_norm_is_right_with_its_statistics() {
    let point = [noise(&[3, 2, 2, 2], 4), noise(&[2], 5), noise(&[2], 6)];
    let [x, gain, bias] = [0, 1, 2].map(|i| point[i].to_f64());
    let sets: Vec<Vec<usize>> = (0..2).map(|c| (0..24).filter(|i| i / 4 % 2 == c).collect()).collect();
    let (y, means, variances) = standardise(&x, &sets, 1e-3);
    let expected: Vec<f64> = (0..24).map(|i| y[i] * gain[i / 4 % 2] + bias[i / 4 % 2]).collect();
    let g = Graph::new();
    let t = declare(&g, &point);
    let norm = nn::batch_norm(t[0], t[1], t[2], 1e-3);
    let found = evaluate(&g, &t, &point, &[norm.y, norm.mean, norm.variance]);
    assert_close(&found[0].to_f64(), &expected, 1e-14);
    assert_close(&found[1].to_f64(), &means, 1e-14);
    assert_close(&found[2].to_f64(), &variances, 1e-14);
    ask("batch_norm", &SMOOTH, &point, |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).y);
    ask("batch_norm's mean", &SMOOTH, &point[..3], |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).mean);
    ask("batch_norm's variance", &SMOOTH, &point[..3], |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).variance);
    let rows = [noise(&[5, 3], 4), noise(&[3], 5), noise(&[3], 6)];
    ask("batch_norm of rows", &SMOOTH, &rows, |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).y);
}

#[test]
fn batch_norm_with_frozen_statistics_is_right_and_agrees_with_its_own_batch() {
    let point =
        [noise(&[3, 2, 2, 2], 4), noise(&[2], 7), noise_around(&[2], 8, 0.3, 1.0), noise(&[2], 5), noise(&[2], 6)];
    let [x, mean, variance, gain, bias] = [0, 1, 2, 3, 4].map(|i| point[i].to_f64());
    let expected: Vec<f64> = (0..24)
        .map(|i| {
            let c = i / 4 % 2;
            (x[i] - mean[c]) / (variance[c] + 1e-3).sqrt() * gain[c] + bias[c]
        })
        .collect();
    let frozen = |t: &[bilevel_graph::Tensor]| nn::batch_norm_frozen(t[0], t[1], t[2], t[3], t[4], 1e-3);
    assert_close(&value(&point, frozen).to_f64(), &expected, 1e-14);
    ask("batch_norm_frozen", &SMOOTH, &point, frozen);
    let batch = [point[0].clone(), point[3].clone(), point[4].clone()];
    let own = value(&batch, |t| {
        let norm = nn::batch_norm(t[0], t[1], t[2], 1e-3);
        nn::batch_norm_frozen(t[0], norm.mean, norm.variance, t[1], t[2], 1e-3) - norm.y
    });
    assert!(own.to_f64().iter().all(|d| d.abs() < 1e-13));
}

#[test]
fn group_norm_is_right_for_every_number_of_groups() {
    for groups in [1, 2, 4] {
        let point = [noise(&[2, 4, 3, 1], 9), noise(&[4], 10), noise(&[4], 11)];
        let [x, gain, bias] = [0, 1, 2].map(|i| point[i].to_f64());
        let size = 12 / groups;
        let sets: Vec<Vec<usize>> = (0..2 * groups).map(|s| (s * size..(s + 1) * size).collect()).collect();
        let (y, ..) = standardise(&x, &sets, 1e-3);
        let expected: Vec<f64> = (0..24).map(|i| y[i] * gain[i / 3 % 4] + bias[i / 3 % 4]).collect();
        assert_close(&value(&point, |t| nn::group_norm(t[0], groups, t[1], t[2], 1e-3)).to_f64(), &expected, 1e-14);
        ask("group_norm", &SMOOTH, &point, |t| nn::group_norm(t[0], groups, t[1], t[2], 1e-3));
    }
}
