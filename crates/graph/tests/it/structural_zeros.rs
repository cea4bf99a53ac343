//! Derivatives that are known to be zero without computing anything.

use bilevel_graph::{
    DType, Derivatives, Graph, RandomKind, Tensor, UnaryOp, WindowDims, gradient, hessian_vector, jvp, mixed_vector,
    vjp,
};

/// The gradient with respect to x[2, 3] of a loss through this tensor, on both kinds of graph.
fn gradients(build: impl Fn(&Graph, Tensor) -> Tensor) -> Vec<Option<Tensor>> {
    let both = [Graph::new(), Graph::without_simplification()];
    let found = both.iter().map(|g| {
        let x = g.input("x", [2, 3], DType::F64);
        gradient(build(g, x).convert(DType::F64).sum_all(), &[x]).unwrap()[0]
    });
    found.collect()
}

fn is_zero(found: &Derivatives) -> bool {
    found.iter().all(Option::is_none)
}

#[test]
fn an_unused_variable_has_none() {
    assert!(is_zero(&gradients(|g, _| g.input("y", [2], DType::F64))));
}

#[test]
fn a_path_through_comparisons_has_none() {
    assert!(is_zero(&gradients(|_, x| x.less(0.5))));
    assert!(is_zero(&gradients(|_, x| x.less_equal(0.5) + x.greater(1.0) + x.greater_equal(1.0))));
    assert!(is_zero(&gradients(|_, x| x.equal(0.5).not_equal(x.sin()))));
}

#[test]
fn a_path_through_whole_numbers_has_none() {
    assert!(is_zero(&gradients(|_, x| x.unary(UnaryOp::Floor))));
    assert!(is_zero(&gradients(|_, x| x.sign())));
    assert!(is_zero(&gradients(|_, x| x.convert(DType::I32))));
    assert!(is_zero(&gradients(|_, x| x.convert(DType::I32).check_index(3).convert(DType::F64).sin())));
}

#[test]
fn a_path_through_positions_of_the_largest_has_none() {
    assert!(is_zero(&gradients(|_, x| x.argmax(1))));
    let dims = WindowDims { size: [2, 2], stride: [1, 1], padding: [(0, 0), (0, 0)] };
    assert!(is_zero(&gradients(|_, x| x.window_argmax(dims.clone()))));
    assert!(is_zero(&gradients(|g, x| g.iota([3, 2], 0, DType::F64).take(x.argmax(1)))));
}

#[test]
fn a_path_through_stop_gradient_has_none_and_others_keep_theirs() {
    assert!(is_zero(&gradients(|_, x| x.stop_gradient().sin())));
    assert!(is_zero(&gradients(|_, x| x.sin().stop_gradient() * 2.0)));
    assert!(!is_zero(&gradients(|_, x| x.stop_gradient() * x)));
}

#[test]
fn the_mask_of_a_select_has_none() {
    assert!(is_zero(&gradients(|g, x| x.select(g.constant(1.0, [2, 3], DType::F64), 2.0))));
}

#[test]
fn random_draws_have_none_with_respect_to_key_and_counter() {
    let g = Graph::new();
    let (key, counter) = (g.input("key", [2], DType::I32), g.input("counter", [], DType::I32));
    let draw = key.random(counter, RandomKind::Normal, g.fresh_stream(), [4], DType::F64);
    assert!(is_zero(&gradient(draw.sum_all(), &[key, counter]).unwrap()));
}

#[test]
fn products_of_a_linear_loss_are_none() {
    let g = Graph::new();
    let [x, y, v] = ["x", "y", "v"].map(|name| g.input(name, [3], DType::F64));
    let loss = (x * 3.0 + y.sin()).sum_all();
    assert!(is_zero(&hessian_vector(loss, &[x], &[v]).unwrap()));
    assert!(is_zero(&mixed_vector(loss, &[x], &[v], &[y]).unwrap()));
    assert!(is_zero(&mixed_vector(loss, &[y], &[v], &[x]).unwrap()), "no term has both");
    assert!(!is_zero(&hessian_vector(loss, &[y], &[v]).unwrap()));
    assert!(is_zero(&jvp(&[y.exp()], &[x], &[v]).unwrap()));
    assert!(is_zero(&vjp(&[y.exp()], &[v], &[x]).unwrap()));
}

#[test]
fn a_derivative_does_not_flow_through_one_variable_into_another() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let y = x.sin();
    let d = gradient(y * y, &[x, y]).unwrap();
    assert!(d[0].is_none(), "y counts as independent");
    assert!(d[1].is_some_and(|d| d.is_same_node(y * 2.0)), "{d:?}");
}

#[test]
fn nothing_asked_is_nothing_found() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    assert!(gradient(x, &[]).unwrap().is_empty());
    assert!(is_zero(&vjp(&[], &[], &[x]).unwrap()));
    let twice = gradient(x, &[x, x]).unwrap();
    assert_eq!(twice.len(), 2, "asked twice, answered twice");
    assert!(twice.iter().all(|d| d.is_some_and(|d| d.is_same_node(x.ones_like()))), "{twice:?}");
}
