//! Attention against plain loops, and to fourth order in every argument.

use crate::nn_support::{Asked, SMOOTH, array, ask, assert_close, noise, value};
use bilevel_graph::nn::{self, AttentionParameters};
use bilevel_graph::{Array, Tensor};

/// softmax(q·kᵀ/√d + mask)·v for one batch element, row-major.
fn naive_attention(q: &[f64], k: &[f64], v: &[f64], mask: &[f64], d: usize, e: usize) -> Vec<f64> {
    let (l, s) = (q.len() / d, k.len() / d);
    let mut out = vec![];
    for i in 0..l {
        let score = |j: usize| (0..d).map(|c| q[i * d + c] * k[j * d + c]).sum::<f64>() / (d as f64).sqrt();
        let weights: Vec<f64> = (0..s).map(|j| (score(j) + mask[i * s + j]).exp()).collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..e).map(|c| (0..s).map(|j| weights[j] * v[j * e + c]).sum::<f64>() / total));
    }
    out
}

#[test]
fn scaled_dot_product_attention_is_right() {
    let point = [noise(&[2, 3, 2], 1), noise(&[2, 4, 2], 2), noise(&[2, 4, 3], 3), noise(&[3, 4], 4)];
    let [q, k, v, mask] = [0, 1, 2, 3].map(|i| point[i].to_f64());
    let mut expected = vec![];
    let mut unmasked = vec![];
    for b in 0..2 {
        let (q, k, v) = (&q[b * 6..b * 6 + 6], &k[b * 8..b * 8 + 8], &v[b * 12..b * 12 + 12]);
        expected.extend(naive_attention(q, k, v, &mask, 2, 3));
        unmasked.extend(naive_attention(q, k, v, &[0.0; 12], 2, 3));
    }
    let masked = |t: &[Tensor]| nn::scaled_dot_product_attention(t[0], t[1], t[2], t[3]);
    let plain = |t: &[Tensor]| nn::scaled_dot_product_attention(t[0], t[1], t[2], None);
    assert_close(&value(&point, masked).to_f64(), &expected, 1e-14);
    assert_close(&value(&point[..3], plain).to_f64(), &unmasked, 1e-14);
    ask("scaled_dot_product_attention", &SMOOTH, &point, masked);
    let single = [noise(&[3, 2], 1), noise(&[4, 2], 2), noise(&[4, 1], 3)];
    ask("attention without batch", &SMOOTH, &single, plain);
    let deep = [noise(&[2, 1, 2, 2], 1), noise(&[2, 1, 3, 2], 2), noise(&[2, 1, 3, 2], 3)];
    ask("attention with two batch axes", &SMOOTH, &deep, plain);
}

#[test]
fn a_large_negative_mask_hides_a_place_at_every_order() {
    let mask = array(&[1, 3], &[0.0, -1e30, 0.0]);
    let point = [noise(&[1, 2], 1), noise(&[3, 2], 2), noise(&[3, 1], 3)];
    let hidden = |t: &[Tensor]| {
        let last = t[0].constant_like(0.0, [1, 3]).iota_like(1).equal(1.0) * -1e30;
        nn::scaled_dot_product_attention(t[0], t[1], t[2], last)
    };
    let [q, k, v] = [0, 1, 2].map(|i| point[i].to_f64());
    let expected = naive_attention(&q, &[&k[..2], &k[4..]].concat(), &[v[0], v[2]], &[0.0; 2], 2, 1);
    assert_close(&value(&point, hidden).to_f64(), &expected, 1e-14);
    ask("hidden place", &SMOOTH, &point, hidden);
    let given = [point[0].clone(), point[1].clone(), point[2].clone(), mask];
    let found = value(&given, |t| nn::scaled_dot_product_attention(t[0], t[1], t[2], t[3]));
    assert_close(&found.to_f64(), &expected, 1e-14);
}

/// Rows of `width` times a matrix, plus a bias.
fn affine(x: &[f64], w: &Array, b: &[f64]) -> Vec<f64> {
    let (i, o, w) = (w.shape()[0], w.shape()[1], w.to_f64());
    let rows = x.chunks(i);
    rows.flat_map(|row| (0..o).map(|c| (0..i).map(|r| row[r] * w[r * o + c]).sum::<f64>() + b[c]).collect::<Vec<_>>())
        .collect()
}

/// Columns of one head.
fn head(x: &[f64], width: usize, heads: usize, which: usize) -> Vec<f64> {
    let own = width / heads;
    x.chunks(width).flat_map(|row| row[which * own..(which + 1) * own].to_vec()).collect()
}

#[test]
fn multi_head_attention_is_right_in_every_argument() {
    let heads = 2;
    // Query, key, value, then weight and bias of query, key, value and output, then the mask.
    let shapes: [&[usize]; 12] =
        [&[2, 3, 4], &[2, 2, 3], &[2, 2, 5], &[4, 4], &[4], &[3, 4], &[4], &[5, 6], &[6], &[6, 3], &[3], &[3, 2]];
    let point: Vec<Array> = shapes.iter().enumerate().map(|(i, shape)| noise(shape, 10 + i as u64)).collect();
    let built = |t: &[Tensor]| {
        let parameters = AttentionParameters {
            query: (t[3], t[4]).into(),
            key: (t[5], t[6]).into(),
            value: (t[7], t[8]).into(),
            output: (t[9], t[10]).into(),
        };
        nn::multi_head_attention(t[0], t[1], t[2], &parameters, heads, t[11])
    };
    let raw: Vec<Vec<f64>> = point.iter().map(|a| a.to_f64()).collect();
    let mut expected = vec![];
    for b in 0..2 {
        let q = affine(&raw[0][b * 12..(b + 1) * 12], &point[3], &raw[4]);
        let k = affine(&raw[1][b * 6..(b + 1) * 6], &point[5], &raw[6]);
        let v = affine(&raw[2][b * 10..(b + 1) * 10], &point[7], &raw[8]);
        let found: Vec<Vec<f64>> = (0..heads)
            .map(|h| naive_attention(&head(&q, 4, 2, h), &head(&k, 4, 2, h), &head(&v, 6, 2, h), &raw[11], 2, 3))
            .collect();
        let joined: Vec<f64> =
            (0..3).flat_map(|row| found.iter().flat_map(move |f| f[row * 3..(row + 1) * 3].to_vec())).collect();
        expected.extend(affine(&joined, &point[9], &raw[10]));
    }
    let found = value(&point, built);
    assert_eq!(found.shape(), [2, 3, 3]);
    assert_close(&found.to_f64(), &expected, 1e-13);
    ask("multi_head_attention", &Asked { coordinates: 8, ..SMOOTH }, &point, built);
}

#[test]
fn self_attention_without_biases_has_right_derivatives() {
    let point = [noise(&[1, 3, 4], 1), noise(&[4, 4], 2), noise(&[4, 4], 3), noise(&[4, 4], 4), noise(&[4, 4], 5)];
    ask("self attention", &Asked { coordinates: 8, ..SMOOTH }, &point, |t| {
        let parameters =
            AttentionParameters { query: t[1].into(), key: t[2].into(), value: t[3].into(), output: t[4].into() };
        nn::multi_head_attention(t[0], t[0], t[0], &parameters, 2, None)
    });
}
