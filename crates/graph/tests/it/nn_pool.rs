//! Pooling: odd sizes, overlapping windows, padding and ties.

use crate::nn_support::{Asked, KINKED, SMOOTH, array, ask, assert_close, evaluate, noise, spread_out, value};
use bilevel_graph::nn::{self, Pool2d};
use bilevel_graph::{Array, DType, Graph, gradient};

/// Applies `pick` to the values inside each window, given with the whole window's size.
fn naive_pool(x: &Array, p: Pool2d, pick: impl Fn(&[f64], usize) -> f64) -> (Vec<usize>, Vec<f64>) {
    let (s, v) = (x.shape(), x.to_f64());
    let out = |i: usize| (s[2 + i] + 2 * p.padding[i] - p.kernel[i]) / p.stride[i] + 1;
    let mut y = vec![];
    for plane in 0..s[0] * s[1] {
        for i in 0..out(0) {
            for j in 0..out(1) {
                let mut inside = vec![];
                for (k, l) in (0..p.kernel[0]).flat_map(|k| (0..p.kernel[1]).map(move |l| (k, l))) {
                    let row = (i * p.stride[0] + k) as i64 - p.padding[0] as i64;
                    let column = (j * p.stride[1] + l) as i64 - p.padding[1] as i64;
                    if (0..s[2] as i64).contains(&row) && (0..s[3] as i64).contains(&column) {
                        inside.push(v[(plane * s[2] + row as usize) * s[3] + column as usize]);
                    }
                }
                y.push(pick(&inside, p.kernel[0] * p.kernel[1]));
            }
        }
    }
    (vec![s[0], s[1], out(0), out(1)], y)
}

fn windows() -> Vec<(&'static str, Pool2d, [usize; 4])> {
    vec![
        ("side by side", Pool2d::of([2, 2]), [2, 2, 4, 4]),
        ("odd sizes", Pool2d::of([2, 2]), [2, 1, 5, 7]),
        ("odd windows on odd sizes", Pool2d::of([3, 2]), [1, 2, 7, 5]),
        ("overlapping", Pool2d { stride: [1, 2], ..Pool2d::of([3, 3]) }, [1, 2, 5, 7]),
        ("overlapping and padded", Pool2d { stride: [2, 2], padding: [1, 1], ..Pool2d::of([3, 3]) }, [1, 2, 5, 6]),
        ("side by side and padded", Pool2d { padding: [1, 1], ..Pool2d::of([3, 2]) }, [1, 2, 7, 5]),
        ("gaps between windows", Pool2d { stride: [3, 3], ..Pool2d::of([2, 1]) }, [1, 1, 7, 8]),
        ("the whole image", Pool2d::of([3, 4]), [2, 2, 3, 4]),
    ]
}

#[test]
fn max_pool2d_agrees_with_loops_and_differences() {
    for (name, windows, shape) in windows() {
        let point = [spread_out(&shape, 1)];
        let (expected_shape, expected) =
            naive_pool(&point[0], windows, |v, _| v.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let found = value(&point, |t| nn::max_pool2d(t[0], windows));
        assert_eq!((found.shape(), found.to_f64()), (&expected_shape[..], expected), "{name}");
        // Neighbours are 2/count apart, far more than the steps.
        let asked = Asked { tolerance: 1e-8, third: true, ..KINKED };
        ask(name, &asked, &point, |t| nn::max_pool2d(t[0], windows));
    }
}

#[test]
fn padding_is_never_the_largest() {
    let point = [Array::full([1, 1, 3, 3], -5.0, DType::F64)];
    let windows = Pool2d { padding: [1, 1], ..Pool2d::of([2, 2]) };
    assert_eq!(value(&point, |t| nn::max_pool2d(t[0], windows)).to_f64(), [-5.0; 4]);
}

#[test]
fn among_ties_the_first_takes_the_derivative() {
    let g = Graph::new();
    let x = g.input("x", [1, 1, 2, 4], DType::F64);
    let y = nn::max_pool2d(x, Pool2d { stride: [1, 1], ..Pool2d::of([2, 2]) });
    let slope = gradient(y.sum_all(), &[x]).unwrap()[0].unwrap();
    let curvature = gradient((slope * slope).sum_all(), &[x]).unwrap()[0];
    assert!(curvature.is_none(), "the choice has no derivative");
    let ties = [array(&[1, 1, 2, 4], &[1.0, 2.0, 2.0, 0.0, 2.0, 1.0, 2.0, 2.0])];
    let found = evaluate(&g, &[x], &ties, &[y, slope]);
    assert_eq!(found[0].to_f64(), [2.0, 2.0, 2.0]);
    assert_eq!(found[1].to_f64(), [0.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    // The same for the whole image.
    let best = gradient(nn::global_max_pool2d(x).sum_all(), &[x]).unwrap()[0].unwrap();
    let found = evaluate(&g, &[x], &ties, &[best]);
    assert_eq!(found[0].to_f64(), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn avg_pool2d_agrees_with_loops_and_differences() {
    for (name, windows, shape) in windows() {
        for count_include_pad in [true, false] {
            let windows = Pool2d { count_include_pad, ..windows };
            let point = [noise(&shape, 2)];
            let (expected_shape, expected) = naive_pool(&point[0], windows, |v, whole| {
                v.iter().sum::<f64>() / if count_include_pad { whole } else { v.len() } as f64
            });
            let found = value(&point, |t| nn::avg_pool2d(t[0], windows));
            assert_eq!(found.shape(), expected_shape, "{name}");
            assert_close(&found.to_f64(), &expected, 1e-14);
            ask(name, &Asked { third: false, ..SMOOTH }, &point, |t| nn::avg_pool2d(t[0], windows));
        }
    }
}

#[test]
fn global_pooling_is_right() {
    let point = [spread_out(&[2, 3, 3, 5], 3)];
    let x = point[0].to_f64();
    let mean: Vec<f64> = x.chunks(15).map(|plane| plane.iter().sum::<f64>() / 15.0).collect();
    let largest: Vec<f64> = x.chunks(15).map(|plane| plane.iter().copied().fold(-2.0, f64::max)).collect();
    let found = value(&point, |t| nn::global_avg_pool2d(t[0]));
    assert_eq!(found.shape(), [2, 3]);
    assert_close(&found.to_f64(), &mean, 1e-14);
    assert_eq!(value(&point, |t| nn::global_max_pool2d(t[0])).to_f64(), largest);
    ask("global_avg_pool2d", &SMOOTH, &point, |t| nn::global_avg_pool2d(t[0]));
    ask("global_max_pool2d", &Asked { tolerance: 1e-8, third: true, ..KINKED }, &point, |t| {
        nn::global_max_pool2d(t[0])
    });
}

#[test]
fn pooling_a_relu_equals_the_relu_of_a_pool_in_value_gradient_and_hessian_product() {
    let g = Graph::new();
    let [x, v] = ["x", "v"].map(|name| g.input(name, [2, 3, 5, 7], DType::F64));
    let windows = Pool2d { kernel: [3, 2], stride: [2, 2], padding: [1, 0], count_include_pad: true };
    // The maximum with 0 is a relu the pooling does not recognise.
    let loss = |y: bilevel_graph::Tensor| (nn::max_pool2d(y, windows) + 0.3).sin().sum_all();
    let results = [loss(nn::relu(x)), loss(x.maximum(0.0))].map(|loss| {
        let dx = gradient(loss, &[x]).unwrap()[0].unwrap();
        let hv = bilevel_graph::hessian_vector(loss, &[x], &[v]).unwrap()[0].unwrap();
        [loss, dx, hv]
    });
    let values = |seed: u64| {
        let numbers = (0..210).map(|i: u64| ((i * 7919 + seed) % 419) as f64 / 210.0 - 1.0).collect();
        Array::from_f64([2, 3, 5, 7], numbers).unwrap()
    };
    let found = bilevel_graph::Reference::evaluate(&g, &[(x, values(11)), (v, values(5))], &results.concat()).unwrap();
    let (pooled_last, pooled_first) = (&found[..3], &found[3..]);
    assert_eq!(pooled_last, pooled_first);
    assert!(found[2].to_f64().iter().filter(|h| **h != 0.0).count() > 10, "the Hessian product is not trivial");
}
