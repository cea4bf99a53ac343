//! Derivatives of dot and of convolution, in every geometry.

use crate::common::*;
use bilevel_graph::{ConvDims, DotDims};
use proptest::prelude::*;

fn dims(contract: [&[usize]; 2], batch: [&[usize]; 2]) -> DotDims {
    DotDims {
        lhs_contract: contract[0].to_vec(),
        rhs_contract: contract[1].to_vec(),
        lhs_batch: batch[0].to_vec(),
        rhs_batch: batch[1].to_vec(),
    }
}

fn check_dot(a: &[usize], b: &[usize], dims: DotDims) {
    println!("{a:?} {b:?} {dims:?}");
    check(&[numbers(1, a), numbers(2, b)], SMOOTH, |_, x| x[0].dot(x[1], dims.clone()));
}

#[test]
fn matrix_products_have_their_derivatives() {
    check(&[numbers(1, &[2, 3]), numbers(2, &[3, 4])], SMOOTH, |_, x| x[0].matmul(x[1]));
    check(&[numbers(1, &[2, 2, 3]), numbers(2, &[2, 3, 2])], SMOOTH, |_, x| x[0].matmul(x[1]));
    check(&[numbers(1, &[2, 2, 3]), numbers(2, &[3, 2])], SMOOTH, |_, x| x[0].matmul(x[1]));
    check(&[numbers(1, &[3, 2]), numbers(2, &[4, 3])], SMOOTH, |_, x| x[0].t().matmul(x[1].t()).t());
    check(&[numbers(1, &[3, 3])], SMOOTH, |_, x| x[0].matmul(x[0]).matmul(x[0].t()));
}

#[test]
fn dots_have_their_derivatives_for_any_choice_of_axes() {
    check_dot(&[3], &[3], dims([&[0], &[0]], [&[], &[]]));
    check_dot(&[2], &[3], dims([&[], &[]], [&[], &[]]));
    check_dot(&[], &[2, 2], dims([&[], &[]], [&[], &[]]));
    check_dot(&[3, 2], &[3, 4], dims([&[0], &[0]], [&[], &[]]));
    check_dot(&[2, 3], &[4, 3], dims([&[1], &[1]], [&[], &[]]));
    check_dot(&[2, 3, 4], &[4, 2, 2], dims([&[0, 2], &[1, 0]], [&[], &[]]));
    check_dot(&[2, 3, 4], &[4, 2, 2], dims([&[2, 0], &[0, 2]], [&[], &[]]));
    check_dot(&[2, 3], &[2, 3], dims([&[0, 1], &[0, 1]], [&[], &[]]));
    check_dot(&[3, 2], &[3, 2], dims([&[1], &[1]], [&[0], &[0]]));
    check_dot(&[3, 2], &[2, 3], dims([&[], &[]], [&[0, 1], &[1, 0]]));
    check_dot(&[2, 3, 2, 2], &[2, 2, 3, 3], dims([&[3], &[1]], [&[1, 0], &[2, 0]]));
    check_dot(&[2, 3, 2, 2], &[2, 3, 2, 2], dims([&[0, 3], &[3, 2]], [&[1], &[1]]));
}

/// Two shapes and how their axes meet: shared batch and contracted lengths, free ones, each operand's axes shuffled.
fn random_dot() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, DotDims)> {
    let lengths = |most| prop::collection::vec(1usize..4, 0..=most);
    (lengths(2), lengths(2), lengths(1), lengths(1), any::<u64>()).prop_map(|(batch, contract, left, right, seed)| {
        let mut state = seed;
        let mut place = |free: &[usize]| {
            // (kind, number) for each axis, shuffled.
            let mut axes: Vec<(usize, usize)> = (0..batch.len()).map(|i| (0, i)).collect();
            axes.extend((0..contract.len()).map(|i| (1, i)));
            axes.extend((0..free.len()).map(|i| (2, i)));
            for i in (1..axes.len()).rev() {
                axes.swap(i, (uniform(&mut state) * (i + 1) as f64) as usize);
            }
            let shape = axes.iter().map(|&(kind, i)| [&batch, &contract, free][kind][i]).collect::<Vec<_>>();
            let find = |kind, count| (0..count).map(|i| axes.iter().position(|&a| a == (kind, i)).unwrap()).collect();
            let found: [Vec<usize>; 2] = [find(0, batch.len()), find(1, contract.len())];
            (shape, found)
        };
        let (a, [lhs_batch, lhs_contract]) = place(&left);
        let (b, [rhs_batch, rhs_contract]) = place(&right);
        (a, b, DotDims { lhs_contract, rhs_contract, lhs_batch, rhs_batch })
    })
}

fn conv(
    stride: [usize; 2],
    padding: [(i64, i64); 2],
    image: [usize; 2],
    kernel: [usize; 2],
    groups: usize,
) -> ConvDims {
    ConvDims { stride, padding, image_dilation: image, kernel_dilation: kernel, groups }
}

fn check_conv(image: [usize; 4], kernel: [usize; 4], dims: ConvDims) {
    println!("{image:?} {kernel:?} {dims:?}");
    check(&[numbers(3, &image), numbers(4, &kernel)], SMOOTH, |_, x| x[0].conv(x[1], dims.clone()));
}

const NONE: [(i64, i64); 2] = [(0, 0), (0, 0)];

#[test]
fn plain_convolution_has_its_derivatives() {
    check_conv([2, 2, 4, 3], [2, 2, 3, 2], conv([1, 1], NONE, [1, 1], [1, 1], 1));
    check_conv([1, 1, 3, 3], [1, 1, 1, 1], conv([1, 1], NONE, [1, 1], [1, 1], 1));
    check_conv([1, 2, 2, 3], [3, 2, 2, 3], conv([1, 1], NONE, [1, 1], [1, 1], 1));
}

#[test]
fn convolution_with_a_stride_that_does_not_divide_has_its_derivatives() {
    for height in 3..7 {
        check_conv([1, 1, height, 5], [1, 1, 2, 3], conv([2, 3], NONE, [1, 1], [1, 1], 1));
    }
}

#[test]
fn convolution_with_uneven_and_negative_padding_has_its_derivatives() {
    check_conv([1, 1, 3, 3], [1, 1, 2, 2], conv([1, 1], [(2, 0), (0, 1)], [1, 1], [1, 1], 1));
    check_conv([1, 1, 5, 4], [1, 1, 2, 2], conv([1, 1], [(-1, -2), (1, -1)], [1, 1], [1, 1], 1));
    check_conv([1, 1, 2, 2], [1, 1, 2, 2], conv([2, 1], [(4, 3), (3, 2)], [1, 1], [1, 1], 1));
}

#[test]
fn convolution_with_dilations_has_its_derivatives() {
    check_conv([1, 1, 5, 5], [1, 1, 2, 3], conv([1, 1], NONE, [1, 1], [3, 2], 1));
    check_conv([1, 1, 3, 2], [1, 1, 2, 2], conv([1, 1], NONE, [2, 3], [1, 1], 1));
}

#[test]
fn grouped_convolution_has_its_derivatives() {
    check_conv([2, 4, 3, 3], [4, 2, 2, 2], conv([1, 1], NONE, [1, 1], [1, 1], 2));
    check_conv([1, 3, 3, 3], [6, 1, 2, 2], conv([2, 1], [(1, 0), (0, 1)], [1, 1], [1, 1], 3));
}

#[test]
fn convolution_with_everything_at_once_has_its_derivatives() {
    check_conv([2, 4, 5, 4], [2, 2, 2, 2], conv([2, 3], [(-1, 3), (2, -1)], [2, 1], [1, 2], 2));
    check_conv([1, 2, 3, 5], [4, 1, 3, 2], conv([3, 2], [(2, 1), (-2, 3)], [2, 2], [2, 3], 2));
}

#[test]
fn a_convolution_of_an_empty_image_can_be_differentiated() {
    let image = f64s(&[1, 1, 0, 2], &[]);
    let dims = conv([1, 1], [(2, 1), (0, 0)], [2, 1], [1, 1], 1);
    let found = gradient_at(&image, |g, x| {
        let kernel = g.constant(1.0, [1, 1, 2, 2], x.dtype());
        (x.conv(kernel, dims.clone()) + 1.0).square().sum_all()
    });
    assert!(found.is_empty());
    let kernel = numbers(5, &[1, 1, 2, 2]);
    let found = gradient_at(&kernel, |g, k| {
        let image = g.constant(1.0, [1, 1, 0, 2], k.dtype());
        (image.conv(k, dims.clone()) + 1.0).square().sum_all()
    });
    assert_eq!(found, [0.0; 4]);
}

prop_compose! {
    /// Image, kernel and geometry; some do not fit and are passed over.
    fn random_conv()(
        batch in 1usize..3, groups in 1usize..3, inner in 1usize..3, outer in 1usize..3,
        size in prop::array::uniform2(1usize..6), kernel in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..4), image_dilation in prop::array::uniform2(1usize..3),
        kernel_dilation in prop::array::uniform2(1usize..4), padding in prop::array::uniform4(-2i64..4),
    ) -> ([usize; 4], [usize; 4], ConvDims) {
        let image = [batch, groups * inner, size[0], size[1]];
        let weights = [groups * outer, inner, kernel[0], kernel[1]];
        let padding = [(padding[0], padding[1]), (padding[2], padding[3])];
        (image, weights, ConvDims { stride, padding, image_dilation, kernel_dilation, groups })
    }
}

fn fits(image: &[usize; 4], kernel: &[usize; 4], dims: &ConvDims) -> bool {
    (0..2).all(|i| {
        let spread = |n: usize, by: usize| ((n - 1) * by + 1) as i64;
        let room = spread(image[2 + i], dims.image_dilation[i]) + dims.padding[i].0 + dims.padding[i].1;
        room >= spread(kernel[2 + i], dims.kernel_dilation[i])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_dots_have_their_derivatives((a, b, dims) in random_dot()) {
        check_dot(&a, &b, dims);
    }

    #[test]
    fn random_convolutions_have_their_derivatives((image, kernel, dims) in random_conv()) {
        prop_assume!(fits(&image, &kernel, &dims));
        let demand = Demand { tolerance: 1e-7, third: false };
        check(&[numbers(3, &image), numbers(4, &kernel)], demand, |_, x| x[0].conv(x[1], dims.clone()));
    }
}
