//! Derivatives through indices: gather, scatter and selection by window.

use crate::common::*;
use bilevel_graph::{Graph, Tensor, WindowDims};

#[test]
fn gather_adds_the_derivatives_of_repeated_indices() {
    let at = f64s(&[3], &[1.0, 2.0, 3.0]);
    let found = gradient_at(&at, |g, x| {
        let i = g.iota([4], 0, bilevel_graph::DType::I32).minimum(1.0);
        x.take(i).sum_all()
    });
    assert_eq!(found, [1.0, 3.0, 0.0]);
}

#[test]
fn gather_has_its_derivatives_with_and_without_batch() {
    let indices = i32s(&[4], &[2, 0, 2, 2]);
    check(&[numbers(1, &[3, 2]), indices.clone()], SMOOTH, |_, x| x[0].take(x[1]));
    check(&[numbers(1, &[3]), i32s(&[], &[1])], SMOOTH, |_, x| x[0].take(x[1]));
    check(&[numbers(1, &[3]), i32s(&[2, 2], &[0, 0, 1, 0])], SMOOTH, |_, x| x[0].gather(x[1], 0));
    check(&[numbers(1, &[2, 3, 2]), i32s(&[2, 3], &[0, 0, 1, 2, 1, 2])], SMOOTH, |_, x| x[0].gather(x[1], 1));
    check(&[numbers(1, &[2, 3]), i32s(&[2], &[2, 0])], SMOOTH, |_, x| x[0].gather(x[1], 1));
    check(&[numbers(1, &[2, 2, 3]), i32s(&[2, 2, 2], &[0, 1, 2, 2, 1, 1, 0, 2])], SMOOTH, |_, x| x[0].gather(x[1], 2));
}

#[test]
fn scatter_add_has_its_derivatives_with_and_without_batch() {
    check(&[numbers(2, &[4, 2]), i32s(&[4], &[2, 0, 2, 2])], SMOOTH, |_, x| x[0].scatter_add(x[1], 0, 3));
    check(&[numbers(2, &[]), i32s(&[], &[1])], SMOOTH, |_, x| x[0].scatter_add(x[1], 0, 3));
    check(&[numbers(2, &[2, 2]), i32s(&[2, 2], &[0, 0, 1, 0])], SMOOTH, |_, x| x[0].scatter_add(x[1], 0, 2));
    check(&[numbers(2, &[2, 3, 2]), i32s(&[2, 3], &[0, 0, 1, 2, 1, 2])], SMOOTH, |_, x| x[0].scatter_add(x[1], 1, 4));
    check(&[numbers(2, &[2, 3]), i32s(&[2, 3], &[1, 1, 1, 0, 0, 1])], SMOOTH, |_, x| x[0].scatter_add(x[1], 1, 2));
}

#[test]
fn gathering_from_a_scatter_has_its_derivatives() {
    let indices = [i32s(&[4], &[2, 0, 2, 1]), i32s(&[3], &[2, 2, 0])];
    let [a, b] = indices;
    check(&[numbers(3, &[4, 2]), a, b], SMOOTH, |_, x| x[0].sin().scatter_add(x[1].check_index(3), 0, 3).take(x[2]));
}

/// Max pooling written with the flat index of each window's largest element.
fn pool(x: Tensor, dims: &WindowDims) -> Tensor {
    let shape = x.shape();
    let lead = shape.len() - 2;
    let mut flat = shape[..lead].to_vec();
    flat.push(shape[lead] * shape[lead + 1]);
    x.reshape(flat).gather(x.window_argmax(dims.clone()), lead)
}

fn window(size: [usize; 2], stride: [usize; 2], padding: [(usize, usize); 2]) -> WindowDims {
    WindowDims { size, stride, padding }
}

#[test]
fn selection_by_window_has_its_derivatives() {
    let none = [(0, 0), (0, 0)];
    let cases = [
        ([4, 4], window([2, 2], [2, 2], none)),
        ([5, 3], window([2, 2], [2, 2], none)),
        ([5, 4], window([3, 2], [1, 1], none)),
        ([3, 5], window([3, 3], [2, 2], [(1, 1), (1, 1)])),
        ([4, 3], window([3, 2], [2, 1], [(2, 0), (0, 1)])),
        ([1, 1], window([2, 2], [1, 1], [(1, 1), (1, 1)])),
    ];
    for (size, dims) in cases {
        check(&[separated(4, &[2, 1, size[0], size[1]])], KINKED, |_, x| pool(x[0], &dims));
        check(&[separated(5, &size)], KINKED, |_, x| pool(x[0], &dims));
    }
}

#[test]
fn a_window_with_ties_takes_the_first_in_row_order() {
    let at = f64s(&[2, 4], &[1.0, 2.0, 5.0, 5.0, 2.0, 2.0, 5.0, 5.0]);
    let dims = window([2, 2], [2, 2], [(0, 0), (0, 0)]);
    assert_eq!(gradient_at(&at, |_, x| pool(x, &dims).sum_all()), [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let g = Graph::new();
    let x = g.input("x", [2, 4], bilevel_graph::DType::F64);
    assert_eq!(integers(&value(&g, &[(x, at)], x.window_argmax(dims))), [1, 2]);
}

#[test]
fn overlapping_windows_add_their_derivatives() {
    let at = f64s(&[1, 4], &[0.0, 3.0, 1.0, 2.0]);
    let dims = window([1, 2], [1, 1], [(0, 0), (0, 0)]);
    assert_eq!(gradient_at(&at, |_, x| pool(x, &dims).sum_all()), [0.0, 2.0, 0.0, 1.0]);
}

#[test]
fn padding_is_never_chosen_even_below_everything() {
    let at = f64s(&[2, 2], &[f64::NEG_INFINITY, -3.0, -2.0, -1.0]);
    let dims = window([2, 2], [2, 2], [(1, 1), (1, 1)]);
    let g = Graph::new();
    let x = g.input("x", [2, 2], bilevel_graph::DType::F64);
    assert_eq!(integers(&value(&g, &[(x, at)], x.window_argmax(dims))), [0, 1, 2, 3]);
}
