//! Nodes with a derivative rule of their own, and derivatives by computed tensors.

use crate::common::*;
use bilevel_graph::{
    Array, CustomRule, DType, ErrorKind, Graph, Op, Program, Reference, Tensor, custom, gradient, hessian_vector, jvp,
    nn, vjp,
};

fn number(value: f64) -> Array {
    Array::scalar(value, DType::F64)
}

/// ln(1 + eˣ) whose rule is its true derivative, written in another way than its value.
fn softplus(x: Tensor) -> Tensor {
    custom(&[x], |x| x[0].maximum(0.0) + (-x[0].abs()).exp().log1p(), |x, _, g| vec![Some(g * x[0].sigmoid())])
}

#[test]
fn a_rule_that_is_the_derivative_agrees_with_differences_to_third_order() {
    check(&[between(1, &[5], 0.2, 2.0)], SMOOTH, |_, x| softplus(x[0]));
    // A product of two operands whose rule uses its own value: y·g/a and y·g/b.
    let product = |x: &[Tensor]| custom(x, |x| x[0] * x[1], |x, y, g| vec![Some(g * y / x[0]), Some(g * y / x[1])]);
    let values = [between(2, &[2, 3], 0.7, 2.0), between(3, &[2, 3], 0.7, 2.0)];
    check(&values, SMOOTH, |_, x| product(&[x[0].sin(), x[1]]) * x[0]);
}

#[test]
fn the_rule_holds_at_second_order_too() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    // The value is x³, the rule says 2x·g: the second derivative is that of x².
    let y = custom(&[x], |x| x[0].pow(3.0), |x, _, g| vec![Some(g * x[0] * 2.0)]);
    let first = gradient(y, &[x]).unwrap()[0].unwrap();
    let second = gradient(first, &[x]).unwrap()[0].unwrap();
    let found = Reference::evaluate(&g, &[(x, number(5.0))], &[y, first, second]).unwrap();
    assert_eq!(found.iter().map(|v| v.item().unwrap()).collect::<Vec<_>>(), [125.0, 10.0, 2.0]);
    // Through its own value in the rule: y' = y, so every derivative is the value, e² here.
    let e = custom(&[x], |x| x[0].exp(), |_, y, g| vec![Some(g * y)]);
    let third = (0..3).fold(e, |y, _| gradient(y, &[x]).unwrap()[0].unwrap());
    assert!(third.is_same_node(e));
}

#[test]
fn a_straight_through_estimator_passes_the_cotangent_and_its_products() {
    let g = Graph::new();
    let (x, v) = (g.input("x", [2], DType::F64), g.input("v", [2], DType::F64));
    let rounded = custom(&[x], |x| (x[0] + 0.5).floor(), |_, _, g| vec![Some(g)]);
    let loss = (rounded * rounded * rounded).sum_all();
    let found = [
        gradient(loss, &[x]).unwrap()[0].unwrap(),
        hessian_vector(loss, &[x], &[v]).unwrap()[0].unwrap(),
        jvp(&[rounded], &[x], &[v]).unwrap()[0].unwrap(),
    ];
    let at = [(x, f64s(&[2], &[1.4, -2.2])), (v, f64s(&[2], &[1.0, 10.0]))];
    let found = Reference::evaluate(&g, &at, &found).unwrap();
    assert_eq!(found[0].to_f64(), [3.0, 12.0], "3·round(x)²");
    assert_eq!(found[1].to_f64(), [6.0, -120.0], "6·round(x)·v");
    assert_eq!(found[2].to_f64(), [1.0, 10.0]);
}

#[test]
fn a_clipped_gradient_has_reverse_products_of_every_order_and_no_forward_one() {
    let g = Graph::new();
    let (x, v) = (g.input("x", [3], DType::F64), g.input("v", [3], DType::F64));
    let clipped = custom(&[x], |x| x[0], |_, _, g| vec![Some(g.clamp(-1.0, 1.0))]);
    let loss = (clipped * clipped).sum_all();
    let slope = gradient(loss, &[x]).unwrap()[0].unwrap();
    let product = hessian_vector(loss, &[x], &[v]).unwrap()[0].unwrap();
    let at = [(x, f64s(&[3], &[0.2, 3.0, -4.0])), (v, f64s(&[3], &[1.0, 1.0, 1.0]))];
    let found = Reference::evaluate(&g, &at, &[slope, product]).unwrap();
    assert_eq!(found[0].to_f64(), [0.4, 1.0, -1.0]);
    // Where the gradient is clipped it does not change; elsewhere its slope 2v is clipped in turn on its way to x.
    assert_eq!(found[1].to_f64(), [1.0, 0.0, 0.0]);
    let refused = jvp(&[loss], &[x], &[v]).unwrap_err();
    assert!(refused.to_string().contains("not linear in the cotangent"), "{refused}");
}

#[test]
fn a_program_holds_nothing_of_a_custom_node_but_its_value() {
    let g = Graph::new();
    let (x, unused) = (g.input("x", [3], DType::F32), g.input("unused", [3], DType::F32));
    let y = custom(&[x, unused], |x| x[0].exp(), |_, _, g| vec![Some(g), Some(g * 2.0)]);
    let program = Program::builder(&g).output("y", y + 1.0).build().unwrap();
    assert!(program.nodes.iter().all(|node| !matches!(node.op, Op::Custom(_))), "{program}");
    assert_eq!(program.inputs.len(), 1, "an operand that only the rule knows is not needed");
    let d = gradient(y.sum_all(), &[x, unused]).unwrap();
    assert_eq!([d[0].unwrap().constant_value(), d[1].unwrap().constant_value()], [Some(1.0), Some(2.0)]);
}

#[test]
fn equal_values_by_one_rule_are_one_node_and_by_two_rules_are_two() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let rule = CustomRule::new(|_, _, g| vec![Some(g)]);
    assert!(rule.of(&[x], |x| x[0].floor()).is_same_node(rule.of(&[x], |x| x[0].floor())));
    let other = CustomRule::new(|_, _, g| vec![Some(g * 2.0)]);
    assert!(!rule.of(&[x], |x| x[0].floor()).is_same_node(other.of(&[x], |x| x[0].floor())));
    let constant = g.scalar(1.5, DType::F64);
    assert_eq!(rule.of(&[constant], |x| x[0].floor()).constant_value(), Some(1.0), "nothing to derive by");
}

#[test]
fn no_derivative_flows_through_the_value() {
    let g = Graph::new();
    let (x, z) = (g.input("x", [], DType::F64), g.input("z", [], DType::F64));
    let y = custom(&[x], |x| x[0] * z, |_, _, g| vec![Some(g)]);
    let d = gradient(y, &[x, z]).unwrap();
    assert_eq!(d[0].unwrap().constant_value(), Some(1.0));
    assert!(d[1].is_none(), "what the value uses beside the operands counts as constant");
    let none = custom(&[x], |x| x[0].sin(), |_, _, _| vec![None]);
    assert!(gradient(none, &[x]).unwrap()[0].is_none());
}

#[test]
fn a_rule_whose_cotangents_do_not_fit_is_refused_with_the_line_of_the_node() {
    let g = Graph::new();
    let x = g.input("x", [3], DType::F64);
    let refused = |y: Tensor, reason: &str| {
        let error = gradient(y.sum_all(), &[x]).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.location.is_some_and(|at| at.file().ends_with("custom.rs")), "{error}");
    };
    refused(custom(&[x], |x| x[0], |_, _, _| vec![]), "1 operands but 0 cotangents");
    refused(custom(&[x], |x| x[0], |_, _, g| vec![Some(g.sum_all())]), "must have its operand's shape");
    let broken = custom(&[x], |x| x[0].reshape([2]), |_, _, g| vec![Some(g)]);
    assert!(broken.check().is_err());
    assert!(custom(&[], |_| x, |_, _, _| vec![]).check().is_err());
}

/// The error of a derivative by a computed tensor, or the derivative.
fn by_computed(loss: Tensor, y: Tensor) -> std::result::Result<Option<Tensor>, String> {
    match gradient(loss, &[y]) {
        Ok(found) => Ok(found[0]),
        Err(error) => {
            assert!(matches!(error.kind, ErrorKind::Operation { .. }));
            Err(error.to_string())
        }
    }
}

#[test]
fn a_derivative_by_a_computed_tensor_that_was_simplified_away_is_an_error() {
    let g = Graph::new();
    let (a, b) = (g.input("a", [4], DType::F64), g.input("b", [4], DType::F64));
    type Use = fn(Tensor) -> Tensor;
    // A computed tensor, and an expression of it that is rewritten past it.
    let cases: [(Tensor, Use); 9] = [
        (a - b, |y| -y),
        (-a, |y| -y),
        (-a, |y| y * y),
        (a * 3.0, |y| y * 5.0),
        (a.sum_all().broadcast_to([4]), |y| y.exp()),
        (a.reshape([2, 2]), |y| y.reshape([4])),
        (a.transpose([0]).reshape([2, 2]).t(), |y| y.t()),
        (a.concat(&[b], 0), |y| y.slice(0, 0, 4)),
        (a.reverse([0]), |y| y.reverse([0])),
    ];
    for (number, (y, used)) in cases.into_iter().enumerate() {
        let error = by_computed(used(y).sum_all(), y).unwrap_err();
        assert!(error.contains("as_variable"), "case {number}: {error}");
        // Beside a part that is not lost, it is an error all the same.
        assert!(by_computed(used(y).sin().sum_all() + y.cumsum(0).sum_all(), y).is_err(), "case {number}");
        // Uses that are not rewritten have their derivative, and so has a variable.
        assert!(by_computed(y.cumsum(0).sum_all(), y).is_ok_and(|d| d.is_some()), "case {number}");
        let v = y.as_variable();
        let found = by_computed(used(v).sum_all(), v).unwrap().unwrap();
        let through = vjp(&[v], &[found], &[a]).unwrap()[0].unwrap();
        let direct = gradient(used(y).sum_all(), &[a]).unwrap()[0].unwrap();
        let at = [(a, f64s(&[4], &[0.1, 0.2, 0.3, 0.4])), (b, f64s(&[4], &[1.0, 2.0, 3.0, 4.0]))];
        let found = Reference::evaluate(&g, &at, &[through, direct]).unwrap();
        assert_eq!(found[0], found[1], "case {number}");
    }
}

#[test]
fn a_pool_that_moves_a_rectifier_says_so_to_derivatives_by_it() {
    let g = Graph::new();
    let x = g.input("x", [1, 1, 4, 4], DType::F64);
    let y = nn::relu(x);
    let pooled = nn::max_pool2d(y, nn::Pool2d::of([2, 2]));
    assert!(by_computed(pooled.sum_all(), y).is_err());
    assert!(by_computed(pooled.sum_all(), x).unwrap().is_some());
}

#[test]
fn a_derivative_by_a_computed_tensor_is_by_all_its_equal_expressions() {
    let g = Graph::new();
    let (a, b) = (g.input("a", [], DType::F64), g.input("b", [], DType::F64));
    let y = a + b;
    let shared = gradient(y * (a + b), &[y]).unwrap()[0].unwrap();
    assert!(shared.is_same_node(y * 2.0), "y and a + b are one tensor");
    let v = y.as_variable();
    assert!(gradient(v * (a + b), &[v]).unwrap()[0].unwrap().is_same_node(y), "a variable is its own");
    assert!(!y.as_variable().is_same_node(v));
}

#[test]
fn a_second_derivative_by_a_computed_tensor_is_right_or_an_error() {
    let g = Graph::new();
    let (a, b, v) = (g.input("a", [], DType::F64), g.input("b", [], DType::F64), g.input("v", [], DType::F64));
    let y = (a - b).as_variable();
    let loss = (-y).exp() * y;
    let product = hessian_vector(loss, &[y], &[v]).unwrap()[0].unwrap();
    let at = [(a, number(1.5)), (b, number(0.5)), (v, number(1.0))];
    let found = Reference::evaluate(&g, &at, &[product]).unwrap()[0].item().unwrap();
    assert!((found - (-1.0f64).exp() * (1.0 - 2.0)).abs() < 1e-15, "e⁻ʸ·(y − 2) at 1: {found}");
    let computed = a - b;
    assert!(hessian_vector((-computed).exp() * computed, &[computed], &[v]).is_err());
}
