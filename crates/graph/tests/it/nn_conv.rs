//! Convolution and transposed convolution against plain loops: strides the size does not divide, groups, dilation.

use crate::nn_support::{Asked, SMOOTH, ask, assert_close, evaluate, noise, value};
use bilevel_graph::nn::{self, Conv2d, ConvTranspose2d};
use bilevel_graph::{Array, DType, Graph, vjp};

/// y[n, o, i, j] = b[o] + Σ x[n, c, i·stride + k·dilation − padding, …]·w[o, c, k, l].
fn naive_conv(x: &Array, w: &Array, b: &[f64], g: Conv2d) -> (Vec<usize>, Vec<f64>) {
    let (xs, ws, xv, wv) = (x.shape(), w.shape(), x.to_f64(), w.to_f64());
    let out = |i: usize| (xs[2 + i] + 2 * g.padding[i] - (ws[2 + i] - 1) * g.dilation[i] - 1) / g.stride[i] + 1;
    let shape = vec![xs[0], ws[0], out(0), out(1)];
    let per_group = ws[0] / g.groups;
    let mut y = vec![];
    for n in 0..xs[0] {
        for o in 0..ws[0] {
            for i in 0..shape[2] {
                for j in 0..shape[3] {
                    let mut sum = b[o];
                    for c in 0..ws[1] {
                        for k in 0..ws[2] {
                            for l in 0..ws[3] {
                                let row = (i * g.stride[0] + k * g.dilation[0]) as i64 - g.padding[0] as i64;
                                let column = (j * g.stride[1] + l * g.dilation[1]) as i64 - g.padding[1] as i64;
                                if (0..xs[2] as i64).contains(&row) && (0..xs[3] as i64).contains(&column) {
                                    let channel = o / per_group * ws[1] + c;
                                    let place =
                                        ((n * xs[1] + channel) * xs[2] + row as usize) * xs[3] + column as usize;
                                    sum += xv[place] * wv[((o * ws[1] + c) * ws[2] + k) * ws[3] + l];
                                }
                            }
                        }
                    }
                    y.push(sum);
                }
            }
        }
    }
    (shape, y)
}

fn geometries() -> Vec<(&'static str, Conv2d, [usize; 4], [usize; 4])> {
    let base = Conv2d::default();
    vec![
        ("plain", base, [2, 2, 4, 5], [3, 2, 3, 2]),
        ("one by one", base, [2, 3, 3, 2], [2, 3, 1, 1]),
        ("padded", Conv2d { padding: [1, 2], ..base }, [1, 2, 3, 4], [2, 2, 3, 3]),
        ("stride does not divide", Conv2d { stride: [2, 3], ..base }, [1, 2, 6, 8], [2, 2, 3, 2]),
        (
            "stride and padding do not divide",
            Conv2d { stride: [2, 2], padding: [1, 1], ..base },
            [1, 1, 6, 4],
            [2, 1, 3, 3],
        ),
        ("stride beyond the kernel", Conv2d { stride: [3, 3], ..base }, [1, 1, 7, 6], [1, 1, 2, 1]),
        ("dilated", Conv2d { dilation: [2, 3], padding: [1, 0], ..base }, [1, 2, 5, 6], [2, 2, 2, 2]),
        (
            "dilated and strided",
            Conv2d { dilation: [2, 2], stride: [2, 2], padding: [2, 1], ..base },
            [1, 1, 6, 7],
            [1, 1, 3, 2],
        ),
        ("grouped", Conv2d { groups: 2, ..base }, [2, 4, 3, 3], [6, 2, 2, 2]),
        (
            "depthwise, strided, padded",
            Conv2d { groups: 3, stride: [2, 1], padding: [1, 1], ..base },
            [1, 3, 4, 3],
            [3, 1, 3, 3],
        ),
        ("grouped and dilated", Conv2d { groups: 2, dilation: [2, 1], ..base }, [1, 2, 5, 3], [4, 1, 2, 2]),
    ]
}

#[test]
fn conv2d_agrees_with_loops_and_differences() {
    for (name, geometry, image, kernel) in geometries() {
        let point = [noise(&image, 1), noise(&kernel, 2), noise(&kernel[..1], 3)];
        let (shape, expected) = naive_conv(&point[0], &point[1], &point[2].to_f64(), geometry);
        let found = value(&point, |t| nn::conv2d(t[0], t[1], t[2], geometry));
        assert_eq!(found.shape(), shape, "{name}");
        assert_close(&found.to_f64(), &expected, 1e-13);
        let asked = Asked { coordinates: 10, ..SMOOTH };
        ask(name, &asked, &point, |t| nn::conv2d(t[0], t[1], t[2], geometry));
    }
}

/// Every x[n, c, i, j] adds x·w[c, o, k, l] at i·stride + k·dilation − padding.
fn naive_transpose(x: &Array, w: &Array, b: &[f64], g: ConvTranspose2d) -> (Vec<usize>, Vec<f64>) {
    let (xs, ws, xv, wv) = (x.shape(), w.shape(), x.to_f64(), w.to_f64());
    let out = |i: usize| {
        (xs[2 + i] - 1) * g.stride[i] + (ws[2 + i] - 1) * g.dilation[i] + 1 + g.output_padding[i] - 2 * g.padding[i]
    };
    let channels = ws[1] * g.groups;
    let shape = vec![xs[0], channels, out(0), out(1)];
    let mut y: Vec<f64> = (0..shape.iter().product()).map(|p| b[p / (shape[2] * shape[3]) % channels]).collect();
    for n in 0..xs[0] {
        for c in 0..xs[1] {
            let group = c / (xs[1] / g.groups);
            for (i, j) in (0..xs[2]).flat_map(|i| (0..xs[3]).map(move |j| (i, j))) {
                for o in 0..ws[1] {
                    for (k, l) in (0..ws[2]).flat_map(|k| (0..ws[3]).map(move |l| (k, l))) {
                        let row = (i * g.stride[0] + k * g.dilation[0]) as i64 - g.padding[0] as i64;
                        let column = (j * g.stride[1] + l * g.dilation[1]) as i64 - g.padding[1] as i64;
                        if (0..shape[2] as i64).contains(&row) && (0..shape[3] as i64).contains(&column) {
                            let place = ((n * channels + group * ws[1] + o) * shape[2] + row as usize) * shape[3];
                            y[place + column as usize] += xv[((n * xs[1] + c) * xs[2] + i) * xs[3] + j]
                                * wv[((c * ws[1] + o) * ws[2] + k) * ws[3] + l];
                        }
                    }
                }
            }
        }
    }
    (shape, y)
}

#[test]
fn conv_transpose2d_agrees_with_loops_and_differences() {
    let base = ConvTranspose2d::default();
    let cases: Vec<(&str, ConvTranspose2d, [usize; 4], [usize; 4])> = vec![
        ("plain", base, [2, 2, 3, 2], [2, 3, 2, 3]),
        ("strided", ConvTranspose2d { stride: [2, 3], ..base }, [1, 2, 3, 2], [2, 1, 2, 3]),
        ("padded", ConvTranspose2d { stride: [2, 2], padding: [1, 2], ..base }, [1, 1, 3, 4], [1, 2, 3, 3]),
        (
            "padding beyond the kernel",
            ConvTranspose2d { stride: [3, 2], padding: [2, 1], ..base },
            [1, 1, 4, 4],
            [1, 1, 2, 1],
        ),
        (
            "output padding",
            ConvTranspose2d { stride: [2, 3], padding: [1, 1], output_padding: [1, 2], ..base },
            [1, 2, 3, 2],
            [2, 1, 3, 3],
        ),
        ("dilated", ConvTranspose2d { dilation: [2, 3], output_padding: [1, 2], ..base }, [1, 1, 2, 3], [1, 2, 3, 2]),
        ("grouped", ConvTranspose2d { groups: 2, stride: [2, 1], ..base }, [1, 4, 2, 3], [4, 3, 2, 2]),
    ];
    for (name, geometry, image, kernel) in cases {
        let bias = kernel[1] * geometry.groups;
        let point = [noise(&image, 4), noise(&kernel, 5), noise(&[bias], 6)];
        let (shape, expected) = naive_transpose(&point[0], &point[1], &point[2].to_f64(), geometry);
        let found = value(&point, |t| nn::conv_transpose2d(t[0], t[1], t[2], geometry));
        assert_eq!(found.shape(), shape, "{name}");
        assert_close(&found.to_f64(), &expected, 1e-13);
        let asked = Asked { coordinates: 10, ..SMOOTH };
        ask(name, &asked, &point, |t| nn::conv_transpose2d(t[0], t[1], t[2], geometry));
    }
}

#[test]
fn conv_transpose2d_is_the_transpose_of_conv2d() {
    // On a size the stride does not divide, the output padding makes up for what was left out.
    let g = Graph::new();
    let (x, w, u) = (noise(&[2, 4, 6, 7], 7), noise(&[6, 2, 3, 2], 8), noise(&[2, 6, 3, 3], 9));
    let point = [x, w, u];
    let t = crate::nn_support::declare(&g, &point);
    let geometry = Conv2d { stride: [2, 2], padding: [1, 0], groups: 2, ..Conv2d::default() };
    let y = nn::conv2d(t[0], t[1], None, geometry);
    assert_eq!(y.check().unwrap().shape(), [2, 6, 3, 3]);
    let pulled = vjp(&[y], &[t[2]], &[t[0]]).unwrap()[0].unwrap();
    let back = ConvTranspose2d {
        stride: [2, 2],
        padding: [1, 0],
        output_padding: [1, 1],
        groups: 2,
        ..ConvTranspose2d::default()
    };
    let transposed = nn::conv_transpose2d(t[2], t[1], None, back);
    let found = evaluate(&g, &t, &point, &[pulled, transposed]);
    assert_eq!(found[0].shape(), found[1].shape());
    assert_close(&found[0].to_f64(), &found[1].to_f64(), 1e-14);
}

#[test]
fn in_f32_the_same_graph_is_built() {
    let g = Graph::new();
    let x = g.input("x", [1, 2, 5, 5], DType::F32);
    let y = nn::conv2d(x, g.input("w", [2, 2, 3, 3], DType::F32), g.input("b", [2], DType::F32), Conv2d::default());
    assert_eq!((y.check().unwrap().dtype(), y.shape()), (DType::F32, vec![1, 2, 3, 3]));
}
