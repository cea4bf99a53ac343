//! Derivatives of the primitives that move, combine or count elements.

use crate::common::*;
use bilevel_graph::{DType, Graph};

/// Every subset of `0..rank`.
fn subsets(rank: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..1usize << rank).map(move |bits| (0..rank).filter(|a| bits >> a & 1 == 1).collect())
}

#[test]
fn reshape_has_its_derivatives() {
    for shape in [&[6, 2][..], &[12], &[3, 2, 2], &[1, 12, 1]] {
        check(&[numbers(1, &[3, 4])], SMOOTH, |_, x| x[0].reshape(shape));
    }
    check(&[numbers(1, &[1])], SMOOTH, |_, x| x[0].reshape([]));
}

#[test]
fn transpose_has_its_derivatives() {
    for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        check(&[numbers(2, &[2, 3, 4])], SMOOTH, |_, x| x[0].transpose(perm).sin().transpose([1, 2, 0]));
        check(&[numbers(2, &[2, 1, 3])], SMOOTH, |_, x| x[0].transpose(perm));
    }
    check(&[numbers(2, &[2, 3])], SMOOTH, |_, x| x[0].t() * 2.0);
}

#[test]
fn broadcast_has_its_derivatives() {
    let cases: [(&[usize], &[usize], &[usize]); 6] = [
        (&[], &[], &[2, 3]),
        (&[3], &[1], &[2, 3]),
        (&[3], &[0], &[3, 2]),
        (&[2, 3], &[0, 2], &[2, 4, 3]),
        (&[2, 1], &[0, 2], &[2, 3, 1]),
        (&[2], &[1], &[1, 2, 1]),
    ];
    for (from, axes, to) in cases {
        check(&[numbers(3, from)], SMOOTH, |_, x| x[0].broadcast(axes, to));
        check(&[numbers(3, from), numbers(4, to)], SMOOTH, |_, x| x[0].sin().broadcast(axes, to) * x[1]);
    }
    check(&[numbers(3, &[3, 1])], SMOOTH, |_, x| x[0].broadcast_to([2, 3, 4]).cos().sum([0, 2]));
}

#[test]
fn slice_has_its_derivatives_with_any_step() {
    for (start, stop, step) in [(0, 7, 1), (1, 6, 1), (0, 7, 2), (1, 7, 3), (2, 6, 3), (3, 4, 5), (6, 7, 1)] {
        check(&[numbers(5, &[7, 2])], SMOOTH, |_, x| x[0].slice_step(0, start, stop, step));
    }
    check(&[numbers(5, &[5, 6])], SMOOTH, |_, x| x[0].slice_all(vec![1, 0], vec![5, 6], vec![3, 2]).slice(1, 1, 3));
    check(&[numbers(5, &[3, 2])], SMOOTH, |_, x| x[0].index(0, 1) * x[0].index(0, 2));
}

#[test]
fn slices_that_cut_up_overlap_or_repeat_add_their_derivatives() {
    check(&[numbers(6, &[6])], SMOOTH, |_, x| {
        x[0].slice(0, 0, 2).sin().concat(&[x[0].slice(0, 2, 5).exp(), x[0].slice(0, 4, 6).cos()], 0)
    });
    // Sum and difference cut alike bring one cotangent to x twice, beside a piece that does not overlap it.
    check(&[numbers(6, &[6]), numbers(7, &[6])], SMOOTH, |_, x| {
        let (a, b) = (x[0] + x[1], x[0] - x[1]);
        let twice = a.slice(0, 0, 2).sum_all() + b.slice(0, 0, 2).sum_all();
        twice + x[0].slice(0, 3, 6).square().sum_all()
    });
}

#[test]
fn pad_has_its_derivatives_with_zeros_between() {
    for (low, high, interior) in [([1, 0], [0, 2], [0, 0]), ([0, 1], [1, 1], [2, 1]), ([0, 0], [0, 0], [1, 0])] {
        check(&[numbers(8, &[2, 3])], SMOOTH, |_, x| {
            x[0].pad_all(low.to_vec(), high.to_vec(), interior.to_vec()) + 0.1
        });
    }
    check(&[numbers(8, &[2, 3])], SMOOTH, |_, x| x[0].pad(1, 1, 1).slice(1, 1, 4) * x[0].pad(1, 2, 0).slice(1, 1, 4));
}

#[test]
fn concat_has_its_derivatives() {
    let parts = [numbers(9, &[2, 3]), numbers(10, &[2, 1]), numbers(11, &[2, 2])];
    check(&parts, SMOOTH, |_, x| x[0].concat(&[x[1], x[2], x[0]], 1));
    check(&[numbers(9, &[1, 3]), numbers(10, &[2, 3])], SMOOTH, |_, x| x[0].concat(&[x[1]], 0).slice(0, 1, 3));
    check(&[numbers(9, &[2, 2])], SMOOTH, |_, x| x[0].concat(&[], 0));
}

#[test]
fn reverse_has_its_derivatives() {
    for axes in subsets(3) {
        check(&[numbers(12, &[2, 3, 2])], SMOOTH, |_, x| x[0].reverse(&axes) * x[0]);
    }
}

#[test]
fn cumsum_has_its_derivatives_from_both_ends() {
    for axis in 0..3 {
        for reverse in [false, true] {
            check(&[numbers(13, &[2, 3, 4])], SMOOTH, |_, x| x[0].cumsum_from(axis, reverse));
        }
    }
}

#[test]
fn sum_and_mean_have_their_derivatives_over_every_subset_of_axes() {
    for axes in subsets(3) {
        check(&[numbers(14, &[2, 3, 4])], SMOOTH, |_, x| x[0].exp().sum(&axes));
        check(&[numbers(14, &[2, 1, 4])], SMOOTH, |_, x| (x[0] * x[0]).mean(&axes));
    }
    check(&[numbers(14, &[2, 3, 4])], SMOOTH, |_, x| x[0].sum([1]).sum([0]).square());
    check(&[numbers(14, &[2, 3]), numbers(15, &[3])], SMOOTH, |_, x| (x[0] * x[1].sin().broadcast_to([2, 3])).sum([0]));
    check(&[numbers(14, &[2, 3]), numbers(15, &[2, 1])], SMOOTH, |_, x| {
        (x[0] * x[1].broadcast_to([2, 3])).sum([1]) * (-x[0]).sum([1])
    });
}

#[test]
fn max_and_min_have_their_derivatives_over_every_subset_of_axes() {
    for axes in subsets(3) {
        check(&[separated(16, &[2, 3, 4])], KINKED, |_, x| x[0].max(&axes).sin());
        check(&[separated(17, &[2, 3, 4])], KINKED, |_, x| x[0].min(&axes));
    }
    check(&[separated(16, &[2, 3, 4])], KINKED, |_, x| x[0].max([0]).max([1]));
}

#[test]
fn the_first_of_equal_largest_takes_the_derivative() {
    let at = f64s(&[2, 3], &[1.0, 3.0, 3.0, 2.0, 2.0, 2.0]);
    assert_eq!(gradient_at(&at, |_, x| x.max([1]).sum_all()), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(gradient_at(&at, |_, x| x.max([0, 1])), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(gradient_at(&at, |_, x| x.max([0]).sum_all()), [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn nested_maxima_with_ties_choose_as_written() {
    // Over columns first: each column's largest is 1; the first column wins, and in it the second row.
    let at = f64s(&[2, 2], &[0.0, 1.0, 1.0, 0.0]);
    assert_eq!(gradient_at(&at, |_, x| x.max([0]).max([0])), [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(gradient_at(&at, |_, x| x.max([1]).max([0])), [0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn a_mask_from_argmax_selects_the_largest_with_its_derivatives() {
    for axis in 0..2 {
        check(&[separated(18, &[3, 4])], KINKED, |_, x| {
            let chosen = x[0].argmax(axis).unsqueeze([axis]).broadcast_to([3, 4]);
            let mask = chosen.iota_like(axis).equal(chosen).convert(DType::F64);
            (mask * x[0].exp()).sum([axis])
        });
    }
}

#[test]
fn a_softmax_loss_has_its_derivatives() {
    check(&[separated(19, &[3, 4])], KINKED, |_, x| {
        let shifted = x[0] - x[0].max([1]).unsqueeze([1]).stop_gradient();
        shifted.exp() / shifted.exp().sum([1]).unsqueeze([1])
    });
}

#[test]
fn constants_and_indices_mix_with_variables() {
    check(&[numbers(20, &[3, 2])], SMOOTH, |g, x| {
        let row = g.iota([3, 2], 0, DType::F64);
        let column = g.iota([2], 0, DType::I32).convert(DType::F64);
        x[0] * row + column * g.constant(0.5, [3, 2], DType::F64) - x[0].ones_like() * x[0].iota_like(1)
    });
}

#[test]
fn repeated_addition_and_constant_factors_keep_their_value() {
    check(&[numbers(21, &[4])], SMOOTH, |_, x| {
        let y = x[0] * 3.0;
        (y + y) * (x[0] * -2.0) - (-(x[0] * 0.25)) * -x[0] + (0.0 - x[0]) * 1.0 + y / 4.0 - 3.0 * -y
    });
    check(&[numbers(21, &[4]), numbers(22, &[4])], SMOOTH, |_, x| {
        -(x[0] - x[1]) * (-x[0]) + (x[0] + (-x[1])) - (x[1] - (-x[0])) + (-x[0] + x[1])
    });
}

#[test]
fn empty_tensors_have_empty_derivatives() {
    let empty = f64s(&[0, 3], &[]);
    assert!(gradient_at(&empty, |_, x| x.sin().sum_all()).is_empty());
    assert!(gradient_at(&empty, |_, x| x.max([0]).exp().sum_all()).is_empty());
    assert!(gradient_at(&empty, |_, x| x.matmul(x.transpose([1, 0])).sum_all() + x.t().matmul(x).sum_all()).is_empty());
    let g = Graph::new();
    let x = g.input("x", [0, 3], DType::F64);
    let at = [(x, empty)];
    assert_eq!(value(&g, &at, x.sum([0])).to_f64(), [0.0; 3]);
    assert_eq!(value(&g, &at, x.max([0])).to_f64(), [f64::NEG_INFINITY; 3]);
    assert_eq!(value(&g, &at, x.sin()).shape(), [0, 3]);
    assert_eq!(value(&g, &at, x.concat(&[x, x.ones_like()], 0)).shape(), [0, 3]);
}
