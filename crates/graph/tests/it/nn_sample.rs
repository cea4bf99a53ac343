//! Grids and sampling, with PyTorch's conventions, against plain loops and hand-computed places.

use crate::nn_support::{Asked, SMOOTH, array, ask, assert_close, noise, noise_around, value};
use bilevel_graph::{Array, nn};

#[test]
fn affine_grid_is_right_with_and_without_aligned_corners() {
    let point = [noise(&[2, 2, 3], 1)];
    let v = point[0].to_f64();
    let (h, w) = (3, 4);
    for align in [true, false] {
        let place = |i: usize, n: usize| {
            if align { 2.0 * i as f64 / (n - 1) as f64 - 1.0 } else { (2.0 * i as f64 + 1.0) / n as f64 - 1.0 }
        };
        let mut expected = vec![];
        for n in 0..2 {
            for (i, j) in (0..h).flat_map(|i| (0..w).map(move |j| (i, j))) {
                for row in 0..2 {
                    let t = &v[n * 6 + row * 3..];
                    expected.push(t[0] * place(j, w) + t[1] * place(i, h) + t[2]);
                }
            }
        }
        let found = value(&point, |t| nn::affine_grid(t[0], [h, w], align));
        assert_eq!(found.shape(), [2, 3, 4, 2]);
        assert_close(&found.to_f64(), &expected, 1e-14);
        ask("affine_grid", &SMOOTH, &point, |t| nn::affine_grid(t[0], [h, w], align));
        // One pixel sits in the middle.
        let single = value(&point, |t| nn::affine_grid(t[0], [1, 1], align)).to_f64();
        assert_close(&single, &[v[2], v[5], v[8], v[11]], 1e-15);
    }
}

/// Bilinear with zeros outside, one place at a time.
fn naive_sample(x: &Array, grid: &Array, align: bool) -> Vec<f64> {
    let (s, gs, v, g) = (x.shape(), grid.shape(), x.to_f64(), grid.to_f64());
    let mut out = vec![];
    for n in 0..s[0] {
        for c in 0..s[1] {
            for p in 0..gs[1] * gs[2] {
                let at = (n * gs[1] * gs[2] + p) * 2;
                let pixel = |c: f64, size: usize| {
                    if align { (c + 1.0) / 2.0 * (size as f64 - 1.0) } else { ((c + 1.0) * size as f64 - 1.0) / 2.0 }
                };
                let (px, py) = (pixel(g[at], s[3]), pixel(g[at + 1], s[2]));
                let mut sum = 0.0;
                for (dy, dx) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
                    let (yi, xi) = (py.floor() + dy, px.floor() + dx);
                    let weight = (1.0 - (py - yi).abs()) * (1.0 - (px - xi).abs());
                    if yi >= 0.0 && yi < s[2] as f64 && xi >= 0.0 && xi < s[3] as f64 {
                        sum += weight * v[((n * s[1] + c) * s[2] + yi as usize) * s[3] + xi as usize];
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

#[test]
fn grid_sample_agrees_with_loops_and_differences() {
    for align in [true, false] {
        // Places reach beyond the image on every side.
        let point = [noise(&[2, 3, 4, 5], 2), noise_around(&[2, 3, 2, 2], 3, 1.4, 0.0)];
        let found = value(&point, |t| nn::grid_sample(t[0], t[1], align));
        assert_eq!(found.shape(), [2, 3, 3, 2]);
        assert_close(&found.to_f64(), &naive_sample(&point[0], &point[1], align), 1e-13);
        let asked = Asked { step: 1e-3, ..SMOOTH };
        ask("grid_sample", &asked, &point, |t| nn::grid_sample(t[0], t[1], align));
    }
}

#[test]
fn grid_sample_at_hand_computed_places() {
    let image = array(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let grid = array(&[1, 1, 4, 2], &[0.0, 0.0, -1.0, -1.0, 1.0, -1.0, 3.0, 0.0]);
    let point = [image, grid];
    // Aligned: the middle, two corners, and far outside. Not aligned: the corners lie half a pixel beyond the centres.
    assert_close(&value(&point, |t| nn::grid_sample(t[0], t[1], true)).to_f64(), &[2.5, 1.0, 2.0, 0.0], 1e-15);
    assert_close(&value(&point, |t| nn::grid_sample(t[0], t[1], false)).to_f64(), &[2.5, 0.25, 0.5, 0.0], 1e-15);
}

#[test]
fn the_identity_grid_gives_the_image_back_and_a_quarter_turn_turns_it() {
    let image = noise(&[1, 2, 3, 3], 4);
    for align in [true, false] {
        let identity = [image.clone(), array(&[1, 2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0])];
        let sampled = |t: &[bilevel_graph::Tensor]| nn::grid_sample(t[0], nn::affine_grid(t[1], [3, 3], align), align);
        assert_close(&value(&identity, sampled).to_f64(), &image.to_f64(), 1e-13);
        let turn = [image.clone(), array(&[1, 2, 3], &[0.0, -1.0, 0.0, 1.0, 0.0, 0.0])];
        let found = value(&turn, sampled).to_f64();
        // Place (i, j) takes column −y = 2 − i and row x = j.
        let v = image.to_f64();
        let expected: Vec<f64> = (0..18).map(|p| v[p / 9 * 9 + p % 3 * 3 + (2 - p / 3 % 3)]).collect();
        assert_close(&found, &expected, 1e-13);
    }
    // Through both, with respect to the image and the transform.
    let point = [image, array(&[1, 2, 3], &[0.8, 0.13, 0.07, -0.11, 0.75, 0.05])];
    let asked = Asked { step: 1e-3, ..SMOOTH };
    ask("a spatial transformer", &asked, &point, |t| {
        nn::grid_sample(t[0], nn::affine_grid(t[1], [3, 2], false), false)
    });
}
