//! Programs inlined into other graphs have the values and the derivatives of what they were built from, and survive writing.

use crate::common::{distance, numbers};
use bilevel_graph::conformance::{Differentiable, Size, primitives, random_program, set_all, varied_program};
use bilevel_graph::{
    Array, CustomRule, DType, Executor, Function, Graph, Program, RandomKind, Reference, Tensor, custom, gradient,
    gradient_or_zeros, hessian_vector,
};
use proptest::prelude::*;
use std::sync::Arc;

/// The outputs of a program after its first step.
fn outputs(program: &Program, inputs: &[(String, Array)]) -> Vec<Array> {
    let mut run = Reference.compile(program).unwrap();
    set_all(&mut *run, &inputs.to_vec()).unwrap();
    run.run(0..1).unwrap();
    (0..program.outputs.len()).map(|i| run.output(i).unwrap()).collect()
}

/// The same program by way of another graph.
fn inlined(program: &Program, graph: &Graph) -> Program {
    let declare = |port: &bilevel_graph::Port| graph.input(port.name.clone(), &port.meta.shape, port.meta.dtype);
    let inputs: Vec<Tensor> = program.inputs.iter().map(declare).collect();
    let found = program.inline(graph, &inputs).unwrap();
    let mut builder = Program::builder(graph);
    for (port, tensor) in program.outputs.iter().zip(found) {
        builder = builder.output(port.name.clone(), tensor);
    }
    builder.build().unwrap()
}

fn assert_same_outputs(case: &str, program: &Program, other: &Program, inputs: &[(String, Array)], tolerance: f64) {
    for (a, b) in outputs(program, inputs).iter().zip(&outputs(other, inputs)) {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{case}");
        if a.to_f64().iter().zip(b.to_f64()).all(|(x, y)| x.to_bits() == y.to_bits()) {
            continue;
        }
        let apart = distance(&a.to_f64(), &b.to_f64());
        assert!(apart <= tolerance, "{case}: {apart:e}");
    }
}

#[test]
fn every_primitive_inlined_has_the_same_bits() {
    for dtype in [DType::F64, DType::F32] {
        for case in primitives(dtype).unwrap() {
            let other = inlined(&case.program, &Graph::without_simplification());
            assert_same_outputs(&case.name, &case.program, &other, &case.inputs, 0.0);
        }
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_written_primitive_is_the_same_program() {
    for case in primitives(DType::F32).unwrap() {
        let written = match serde_json::to_string(&case.program) {
            Ok(written) => written,
            Err(error) => {
                assert!(error.to_string().contains("Host"), "{}: {error}", case.name);
                continue;
            }
        };
        let read: Program = serde_json::from_str(&written).unwrap();
        // All but the lines of user code, which are not written.
        assert_eq!(serde_json::to_string(&read).unwrap(), written, "{}", case.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_random_program_inlined_has_the_same_values(seed: u64, simplify: bool) {
        let graph = || if simplify { Graph::new() } else { Graph::without_simplification() };
        for case in [
            random_program(seed, &graph(), DType::F64, Size::small).unwrap(),
            varied_program(seed, &graph(), DType::F64, Size::small).unwrap(),
        ] {
            let other = inlined(&case.program, &graph());
            assert_same_outputs(&case.name, &case.program, &other, &case.inputs, 1e-11);
        }
    }

    #[test]
    fn an_inlined_loss_has_the_same_derivatives(seed: u64) {
        let g = Graph::new();
        let made = Differentiable::new(seed, &g, DType::F64, Size::small).unwrap();
        let mut builder = Program::builder(&g).output("loss", made.loss);
        for (tensor, _, _) in &made.inputs {
            builder = builder.keep_input(*tensor);
        }
        let function = builder.function().unwrap();
        let other = Graph::new();
        let declare = |port: &bilevel_graph::Port| other.input(port.name.clone(), &port.meta.shape, port.meta.dtype);
        let inputs: Vec<Tensor> = function.inputs().iter().map(declare).collect();
        let loss = function.inline(&other, &inputs).unwrap()[0];
        let name = |tensor: &Tensor| made.inputs.iter().find(|(t, _, _)| t.is_same_node(*tensor)).unwrap().1.clone();
        let there = |name: &str| inputs[function.inputs().iter().position(|port| port.name == name).unwrap()];
        let variables: Vec<Tensor> = made.variables.iter().map(|variable| there(&name(variable))).collect();
        let bindings: Vec<(Tensor, Array)> = made.inputs.iter().map(|(t, _, v)| (*t, v.clone())).collect();
        let others: Vec<(Tensor, Array)> = made.inputs.iter().map(|(_, n, v)| (there(n), v.clone())).collect();
        let products = |loss: Tensor, variables: &[Tensor]| {
            let ones: Vec<Tensor> = variables.iter().map(|v| v.ones_like()).collect();
            let mut all = gradient_or_zeros(loss, variables).unwrap();
            let product = hessian_vector(loss, variables, &ones).unwrap();
            all.extend(product.into_iter().zip(variables).map(|(h, v)| h.unwrap_or_else(|| v.zeros_like())));
            all
        };
        let expected = Reference::evaluate(&g, &bindings, &products(made.loss, &made.variables)).unwrap();
        let found = Reference::evaluate(&other, &others, &products(loss, &variables)).unwrap();
        for (a, b) in expected.iter().zip(&found) {
            let (a, b) = (a.to_f64(), b.to_f64());
            let same = a.iter().zip(&b).all(|(x, y)| x.to_bits() == y.to_bits());
            prop_assert!(same || distance(&a, &b) < 1e-9, "{}", distance(&a, &b));
        }
    }
}

#[cfg(feature = "serde")]
proptest! {
    #[test]
    fn a_random_program_written_and_read_is_the_same(seed: u64) {
        let case = varied_program(seed, &Graph::new(), DType::F64, Size::small).unwrap();
        if let Ok(written) = serde_json::to_string(&case.program) {
            let read: Program = serde_json::from_str(&written).unwrap();
            assert_same_outputs(&case.name, &case.program, &read, &case.inputs, 0.0);
        }
    }

    #[test]
    fn damaged_text_is_never_an_invalid_function(place in 0.0..1.0f64, new in "[0-9\\[\\]{},\"a-zA-Z]{0,4}", cut in 0usize..6) {
        let written = serde_json::to_string(&straight_through_function()).unwrap();
        let at = (place * written.len() as f64) as usize;
        let end = (at + cut).min(written.len());
        let damaged = format!("{}{new}{}", &written[..at], &written[end..]);
        if let Ok(function) = serde_json::from_str::<Function>(&damaged) {
            // What is read can be used, or refused, but never panics.
            let g = Graph::new();
            let declare = |port: &bilevel_graph::Port| g.input(port.name.clone(), &port.meta.shape, port.meta.dtype);
            let inputs: Vec<Tensor> = function.inputs().iter().map(declare).collect();
            if let Ok(found) = function.inline(&g, &inputs)
                && let Some(loss) = found.first().filter(|loss| loss.len() == 1)
            {
                let _ = gradient(loss.sum_all(), &inputs);
            }
        }
    }
}

/// Σ sin(round-with-the-derivative-of-3x(x))·w, whose rule has a rule of its own.
fn straight_through_function() -> Function {
    let inner_rule = {
        let g = Graph::new();
        Program::builder(&g).output("0", g.input("cotangent", [3], DType::F64) * 5.0).function().unwrap()
    };
    let inner_rule = CustomRule::from_function(Arc::new(inner_rule));
    let rule = {
        let g = Graph::new();
        let (x, ct) = (g.input("0", [3], DType::F64), g.input("cotangent", [3], DType::F64));
        let odd = inner_rule.of(&[x], |x| x[0].square());
        Program::builder(&g).output("0", ct * odd).function().unwrap()
    };
    let rule = CustomRule::from_function(Arc::new(rule));
    let g = Graph::new();
    let (x, w) = (g.input("x", [3], DType::F64), g.input("w", [3], DType::F64));
    let value = rule.of(&[x], |x| x[0].floor()).sin() * w;
    Program::builder(&g).output("loss", value.sum_all()).function().unwrap()
}

#[cfg(feature = "serde")]
fn written_and_read(function: &Function) -> Function {
    serde_json::from_str(&serde_json::to_string(function).unwrap()).unwrap()
}

#[cfg(not(feature = "serde"))]
fn written_and_read(function: &Function) -> Function {
    function.clone()
}

#[test]
fn rules_of_a_function_hold_to_second_order_after_writing_and_reading() {
    let function = written_and_read(&straight_through_function());
    let g = Graph::new();
    let named = |name: &str| g.input(name, [3], DType::F64);
    let inputs: Vec<Tensor> = function.inputs().iter().map(|port| named(&port.name)).collect();
    let at = |name: &str| inputs[function.inputs().iter().position(|port| port.name == name).unwrap()];
    let (x, w) = (at("x"), at("w"));
    let loss = function.inline(&g, &inputs).unwrap()[0];
    let slope = gradient(loss, &[x]).unwrap()[0].unwrap();
    let bent = gradient(slope.sum_all(), &[x]).unwrap()[0].unwrap();
    let (xs, ws) = (numbers(1, &[3]), numbers(2, &[3]));
    let found = Reference::evaluate(&g, &[(x, xs.clone()), (w, ws.clone())], &[loss, slope, bent]).unwrap();
    let (xs, ws) = (xs.to_f64(), ws.to_f64());
    for i in 0..3 {
        let (f, x2) = (xs[i].floor(), xs[i] * xs[i]);
        // d/dx = cos(f)·w·x², of which f, a step, has the derivative 0, and x² the derivative 5 by its own rule.
        assert!((found[1].to_f64()[i] - f.cos() * ws[i] * x2).abs() < 1e-14);
        let second = f.cos() * ws[i] * 5.0;
        assert!((found[2].to_f64()[i] - second).abs() < 1e-14);
    }
}

#[test]
fn the_gradient_that_a_rule_gives_has_its_true_derivative() {
    // y = x³ with the derivative −½ in place of 3x², and then sin y·z: the gradient −½·cos(x³)·z has the derivative
    // ½·sin(x³)·3x²·z by x, whatever the rule says of y.
    let rule = {
        let g = Graph::new();
        Program::builder(&g).output("0", g.input("cotangent", [3], DType::F64) * -0.5).function().unwrap()
    };
    let rule = CustomRule::from_function(Arc::new(rule));
    let g = Graph::new();
    let x = g.input("x", [3], DType::F64);
    // The operand of the second is the result of the first.
    let once = rule.of(&[x], |x| x[0] * x[0] * x[0]);
    let twice = rule.of(&[once], |y| y[0].sin());
    let slope = gradient(twice.sum_all(), &[x]).unwrap()[0].unwrap();
    let weighed = gradient((once.sin() * x).sum_all(), &[x]).unwrap()[0].unwrap();
    let bent = gradient(weighed.sum_all(), &[x]).unwrap()[0].unwrap();
    let xs = numbers(5, &[3]);
    let found = Reference::evaluate(&g, &[(x, xs.clone())], &[slope, weighed, bent]).unwrap();
    for (i, x) in xs.to_f64().into_iter().enumerate() {
        let y = x * x * x;
        assert_eq!(found[0].to_f64()[i], 0.25);
        assert!((found[1].to_f64()[i] - (y.sin() - 0.5 * y.cos() * x)).abs() < 1e-14);
        let second = y.cos() * 3.0 * x * x + 0.5 * y.sin() * 3.0 * x * x * x - 0.5 * y.cos();
        assert!((found[2].to_f64()[i] - second).abs() < 1e-14, "{i}");
    }
}

#[test]
fn a_random_draw_gets_the_stream_it_is_given() {
    let g = Graph::new();
    let key = g.input("key", [2], DType::I32);
    let draw = key.random(g.step(), RandomKind::Normal, 3, [4], DType::F64);
    let function = Program::builder(&g).output("draw", draw).function().unwrap();
    assert!(function.is_random());
    let inputs: Vec<Tensor> =
        function.inputs().iter().map(|port| if port.name == "key" { key } else { g.step() }).collect();
    let same = function.inline(&g, &inputs).unwrap()[0];
    let other = function.inline_with(&g, &inputs, &mut |stream| stream + 1).unwrap()[0];
    assert!(same.is_same_node(draw));
    assert!(other.is_same_node(key.random(g.step(), RandomKind::Normal, 4, [4], DType::F64)));
}

#[test]
fn inputs_that_do_not_fit_and_functions_of_closures_are_refused() {
    let g = Graph::new();
    let x = g.input("x", [2], DType::F64);
    let program = Program::builder(&g).output("y", x.exp()).build().unwrap();
    assert!(program.inline(&g, &[]).unwrap_err().to_string().contains("0 inputs were given in place of 1"));
    let other = Graph::new();
    let foreign = other.input("x", [2], DType::F64);
    assert!(program.inline(&g, &[foreign]).is_err());
    let closure = custom(&[x], |x| x[0].floor(), |_, _, g| vec![Some(g)]);
    assert!(Program::builder(&g).output("y", closure).function().is_err());
    assert!(Program::builder(&g).output("y", x).carry(x, x * 2.0).function().is_err());
    // A rule with a cotangent of another shape than its value.
    let rule = {
        let g = Graph::new();
        Program::builder(&g).output("0", g.input("cotangent", [3], DType::F64)).function().unwrap()
    };
    let wrong = CustomRule::from_function(Arc::new(rule)).of(&[x], |x| x[0].floor());
    let error = Program::builder(&g).output("y", wrong).function().unwrap_err().to_string();
    assert!(error.contains("'cotangent' of a derivative rule"), "{error}");
}

#[test]
fn named_lines_go_with_a_program_into_another_graph_and_into_errors_of_runs() {
    let g = Graph::new();
    let (x, index) = (g.input("x", [3], DType::F64), g.input("index", [2], DType::I32));
    g.set_line(Some("model.py:7 (embed)"));
    let rows = x.gather(index, 0);
    g.set_line(None);
    let y = rows.square().sum_all();
    let program = Program::builder(&g).output("y", y).build().unwrap();
    let other = Graph::new();
    let inputs = [other.input("x", [3], DType::F64), other.input("index", [2], DType::I32)];
    let loss = program.inline(&other, &inputs).unwrap()[0];
    let slope = gradient_or_zeros(loss, &inputs[..1]).unwrap()[0];
    let found = Program::builder(&other).output("y", loss).output("slope", slope).build().unwrap();
    let mut run = Reference.compile(&found).unwrap();
    run.set(found.input("x").unwrap(), &Array::zeros([3], DType::F64)).unwrap();
    run.set(found.input("index").unwrap(), &Array::from_i32([2], vec![1, 5]).unwrap()).unwrap();
    let error = run.run(0..1).unwrap_err().to_string();
    assert!(error.ends_with("(at model.py:7 (embed))"), "{error}");
    // Afterwards lines are those of Rust again.
    let error = loss.reshape([2]).check().unwrap_err().to_string();
    assert!(error.contains("inline.rs"), "{error}");
}
