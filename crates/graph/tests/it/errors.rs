//! Mistakes are refused with a message that names the operation, what it met and the line that made it. Nothing panics.

use crate::common::*;
use bilevel_graph::{
    Array, ConvDims, DType, DotDims, ErrorKind, Executor, Graph, Line, Program, RandomKind, Reference, Tensor,
    WindowDims, gradient, hessian_vector, jvp, mixed_vector, vjp,
};

/// Asserts that this tensor carries an error with these parts and the line of the caller.
#[track_caller]
fn refused(tensor: Tensor, parts: &[&str]) {
    let here = Line::caller();
    let message = tensor.check().expect_err("must be refused").to_string();
    let line = format!("{}:{}:", here.file(), here.line());
    for part in parts.iter().copied().chain([line.as_str()]) {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
    assert!(message.starts_with(parts[0]), "{message} does not start with {}", parts[0]);
    assert_eq!(tensor.sin().check().unwrap_err().to_string(), message, "what follows carries the same error");
}

#[test]
fn elementwise_operations_name_shapes_and_types_that_do_not_fit() {
    let g = Graph::new();
    let (a, b) = (g.input("a", [2, 3], DType::F32), g.input("b", [4], DType::F32));
    let (c, i) = (g.input("c", [2, 3], DType::F64), g.input("i", [2, 3], DType::I32));
    refused(a + b, &["add", "f32[2, 3]", "f32[4]"]);
    refused(a - b, &["sub", "f32[2, 3]", "f32[4]"]);
    refused(a * b, &["mul", "f32[2, 3]", "f32[4]"]);
    refused(a / b, &["div", "f32[2, 3]", "f32[4]"]);
    refused(a + c, &["add", "f32[2, 3]", "f64[2, 3]", "convert"]);
    refused(i / i, &["div", "i32[2, 3]", "floats"]);
    refused(i.pow(2.0), &["pow", "i32[2, 3]"]);
    refused(a.maximum(b), &["max", "f32[2, 3]", "f32[4]"]);
    refused(a.minimum(c), &["min", "f32[2, 3]", "f64[2, 3]"]);
    refused(a.equal(b), &["eq", "f32[4]"]);
    refused(a.not_equal(b), &["ne", "f32[4]"]);
    refused(a.less(b), &["lt", "f32[4]"]);
    refused(a.less_equal(b), &["le", "f32[4]"]);
    refused(a.greater(b), &["lt", "f32[4]"]);
    refused(a.greater_equal(b), &["le", "f32[4]"]);
    refused(i.sin(), &["sin", "i32[2, 3]", "floats"]);
    refused(i.sqrt(), &["sqrt", "i32[2, 3]"]);
    refused(a.greater(0.0).select(b, 0.0), &["select", "f32[2, 3]", "f32[4]"]);
    refused(a.select(a, c), &["select", "f32[2, 3]", "f64[2, 3]"]);
    refused(a.check_index(3), &["check_index", "f32[2, 3]", "i32"]);
}

#[test]
fn a_stretch_of_both_operands_that_comes_from_a_missing_axis_is_refused() {
    let g = Graph::new();
    let (column, flat) = (g.input("column", [3, 1], DType::F64), g.input("flat", [3], DType::F64));
    let parts = ["f64[3, 1]", "f64[3]", "[3, 3]", "reshape explicitly", "[1, 3]"];
    let with = |name: &'static str| [&[name][..], &parts].concat();
    refused(column - flat, &with("sub"));
    refused(flat * column, &["mul", "f64[3, 1]", "f64[3]", "reshape explicitly"]);
    refused(column.less(flat), &with("lt"));
    refused(column.select(flat, 0.0), &["select", "f64[3, 1]", "f64[3]", "reshape explicitly"]);
    let block = g.input("block", [5, 1, 3], DType::F64);
    refused(block + g.input("part", [4, 3], DType::F64), &["add", "[5, 4, 3]", "[1, 4, 3]"]);
}

#[test]
fn a_stretch_that_is_written_out_or_of_one_operand_alone_is_not_refused() {
    let g = Graph::new();
    let (column, flat) = (g.input("column", [3, 1], DType::F64), g.input("flat", [3], DType::F64));
    let number = g.input("number", [], DType::F64);
    for (tensor, shape) in [
        (column - flat.reshape([1, 3]), vec![3, 3]),
        (column - flat.reshape([3, 1]), vec![3, 1]),
        (column.reshape([3]) - flat, vec![3]),
        (column - number, vec![3, 1]),
        (g.input("matrix", [2, 3], DType::F64) - flat, vec![2, 3]),
        (g.input("one", [1, 1], DType::F64) - flat, vec![1, 3]),
        (column - g.input("single", [1], DType::F64), vec![3, 1]),
    ] {
        assert_eq!(tensor.check().unwrap().shape(), shape);
    }
}

#[test]
fn shape_operations_name_what_does_not_fit() {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2, 3], DType::F32), g.input("y", [4, 4], DType::F32));
    let v = g.input("v", [3], DType::F32);
    refused(x.reshape([4]), &["reshape", "f32[2, 3]", "6 elements", "[4]"]);
    refused(x.transpose([0]), &["transpose", "f32[2, 3]", "[0]"]);
    refused(x.transpose([0, 0]), &["transpose", "f32[2, 3]", "[0, 0]"]);
    refused(v.t(), &["t:", "f32[3]", "two axes"]);
    refused(x.broadcast([0, 1], [2, 4]), &["broadcast", "f32[2, 3]", "[2, 4]"]);
    refused(x.broadcast([1, 0], [3, 2]), &["broadcast", "f32[2, 3]", "[3, 2]"]);
    refused(x.broadcast_to([3]), &["broadcast_to", "f32[2, 3]", "[3]"]);
    refused(x.broadcast_to([5, 4, 3]), &["broadcast_to", "f32[2, 3]", "[5, 4, 3]"]);
    refused(x.slice(2, 0, 1), &["slice", "f32[2, 3]", "axis 2"]);
    refused(x.slice(1, 2, 5), &["slice", "f32[2, 3]", "2..5"]);
    refused(x.slice(1, 2, 1), &["slice", "f32[2, 3]", "2..1"]);
    refused(x.slice_step(1, 0, 3, 0), &["slice", "f32[2, 3]", "by 0"]);
    refused(x.slice_all(vec![0], vec![1], vec![1]), &["slice", "f32[2, 3]", "2 axes"]);
    refused(x.index(0, 2), &["slice", "f32[2, 3]", "2..3"]);
    refused(x.index(0, usize::MAX), &["slice", "f32[2, 3]"]);
    refused(x.index(7, 0), &["slice", "f32[2, 3]", "axis 7"]);
    refused(x.pad(2, 1, 1), &["pad", "f32[2, 3]", "axis 2"]);
    refused(x.pad_all(vec![1], vec![0, 0], vec![0, 0]), &["pad", "f32[2, 3]", "2 axes"]);
    refused(x.concat(&[y], 0), &["concat", "f32[2, 3]", "f32[4, 4]"]);
    refused(x.concat(&[v], 0), &["concat", "f32[2, 3]", "f32[3]"]);
    refused(x.concat(&[x], 2), &["concat", "f32[2, 3]", "[2]"]);
    refused(x.reverse([2]), &["reverse", "f32[2, 3]", "[2]"]);
    refused(x.reverse([1, 0]), &["reverse", "f32[2, 3]", "increasing"]);
    refused(x.sum([2]), &["sum", "f32[2, 3]", "[2]"]);
    refused(x.sum([1, 1]), &["sum", "f32[2, 3]", "[1, 1]"]);
    refused(x.max([5]), &["max", "f32[2, 3]", "[5]"]);
    refused(x.mean([5]), &["sum", "f32[2, 3]", "[5]"]);
    refused(x.argmax(2), &["argmax", "f32[2, 3]", "[2]"]);
    refused(x.cumsum(2), &["cumsum", "f32[2, 3]", "[2]"]);
    refused(x.unsqueeze([4]), &["unsqueeze", "f32[2, 3]", "4"]);
    refused(g.iota([2, 3], 2, DType::F32), &["iota", "axis 2", "[2, 3]"]);
    refused(x.iota_like(2), &["iota", "axis 2", "[2, 3]"]);
}

#[test]
fn products_and_indices_name_what_does_not_fit() {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2, 3], DType::F32), g.input("y", [4, 4], DType::F32));
    let (i, j) = (g.input("i", [5], DType::I32), g.input("j", [2], DType::F32));
    refused(x.matmul(y), &["matmul", "f32[2, 3]", "f32[4, 4]"]);
    refused(x.matmul(j), &["matmul", "f32[2, 3]", "f32[2]"]);
    refused(x.dot(y, pair(1, 0)), &["dot", "f32[2, 3]", "f32[4, 4]", "axis 1"]);
    refused(x.dot(y, pair(7, 0)), &["dot", "f32[2, 3]", "axis 7"]);
    refused(x.dot(x, DotDims { lhs_contract: vec![1], ..DotDims::default() }), &["dot", "pair up"]);
    let twice = DotDims { lhs_batch: vec![1], rhs_batch: vec![1], ..pair(1, 1) };
    refused(x.dot(x, twice), &["dot", "f32[2, 3]", "twice"]);
    refused(i.dot(i, pair(0, 0)), &["dot", "i32[5]", "floats"]);
    refused(x.gather(j, 0), &["gather", "f32[2, 3]", "f32[2]", "i32"]);
    refused(x.gather(i, 1), &["gather", "f32[2, 3]", "i32[5]"]);
    refused(x.gather(i, 3), &["gather", "f32[2, 3]", "i32[5]"]);
    refused(x.scatter_add(i, 0, 4), &["scatter_add", "i32[5]", "f32[2, 3]"]);
    refused(x.scatter_add(j, 0, 4), &["scatter_add", "f32[2]", "i32"]);
    refused(x.window_argmax(window(3, 1, 0)), &["window_argmax", "f32[2, 3]", "window of 3"]);
    refused(x.window_argmax(window(2, 0, 0)), &["window_argmax", "f32[2, 3]", "at least 1"]);
    refused(x.window_argmax(window(2, 1, 2)), &["window_argmax", "f32[2, 3]", "padding"]);
    refused(j.window_argmax(window(1, 1, 0)), &["window_argmax", "f32[2]", "height"]);
    refused(j.random(i, RandomKind::Normal, 0, [2], DType::F32), &["random", "f32[2]", "i32[5]", "key"]);
    let (key, step) = (g.input("key", [2], DType::I32), g.step());
    refused(key.random(step, RandomKind::Normal, 0, [2], DType::I32), &["random", "Normal", "i32"]);
    refused(key.random(step, RandomKind::Bits, 0, [2], DType::F32), &["random", "Bits", "f32"]);
}

fn pair(left: usize, right: usize) -> DotDims {
    DotDims { lhs_contract: vec![left], rhs_contract: vec![right], ..DotDims::default() }
}

fn window(size: usize, stride: usize, padding: usize) -> WindowDims {
    WindowDims { size: [size; 2], stride: [stride; 2], padding: [(padding, padding); 2] }
}

#[test]
fn convolutions_name_what_does_not_fit() {
    let g = Graph::new();
    let (x, k) = (g.input("x", [1, 4, 5, 5], DType::F32), g.input("k", [2, 4, 3, 3], DType::F32));
    let (d, m) = (g.input("d", [2, 4, 3, 3], DType::F64), g.input("m", [4, 4], DType::F32));
    let plain = ConvDims::default();
    let with = |change: fn(&mut ConvDims)| {
        let mut dims = plain.clone();
        change(&mut dims);
        dims
    };
    assert!(x.conv(k, plain.clone()).check().is_ok());
    refused(x.conv(d, plain.clone()), &["conv", "f32[1, 4, 5, 5]", "f64[2, 4, 3, 3]"]);
    refused(x.conv(m, plain.clone()), &["conv", "f32[4, 4]", "4 axes"]);
    refused(x.conv(k, with(|d| d.groups = 2)), &["conv", "f32[2, 4, 3, 3]", "2 groups"]);
    refused(x.conv(k, with(|d| d.groups = 0)), &["conv", "0 groups"]);
    refused(x.conv(k, with(|d| d.stride[1] = 0)), &["conv", "at least 1"]);
    refused(x.conv(k, with(|d| d.kernel_dilation[0] = 3)), &["conv", "height"]);
    refused(x.conv(k, with(|d| d.padding[1] = (-2, -1))), &["conv", "width"]);
    refused(x.conv(k, with(|d| d.padding[1] = (i64::MAX, i64::MAX))), &["conv"]);
    refused(x.conv(k, with(|d| d.image_dilation[1] = usize::MAX)), &["conv"]);
}

#[test]
fn shapes_too_large_to_count_are_refused() {
    let g = Graph::new();
    let huge = usize::MAX / 2;
    let x = g.input("x", [2, 3], DType::F32);
    refused(g.input("y", [huge, 3], DType::F32), &["input", "elements"]);
    refused(g.constant(0.0, [huge, huge], DType::F32), &["constant", "elements"]);
    refused(x.reshape([huge, huge, 4]), &["reshape", "f32[2, 3]"]);
    refused(x.sum_all().broadcast_to([huge, 4]), &["broadcast", "elements"]);
    refused(x.pad(0, huge, huge), &["pad", "f32[2, 3]"]);
    refused(x.pad(0, usize::MAX, 1), &["pad", "f32[2, 3]"]);
}

#[test]
fn means_and_positions_over_nothing_are_refused() {
    let g = Graph::new();
    let x = g.input("x", [0, 3], DType::F32);
    refused(x.mean([0]), &["mean", "f32[0, 3]"]);
    refused(x.mean_all(), &["mean", "f32[0, 3]"]);
    refused(x.argmax(0), &["argmax", "f32[0, 3]", "empty"]);
    refused(x.window_argmax(window(1, 1, 0)), &["window_argmax", "f32[0, 3]"]);
}

#[test]
fn the_first_error_is_the_one_reported() {
    let g = Graph::new();
    let (a, b) = (g.input("a", [2, 3], DType::F32), g.input("b", [4], DType::F32));
    let broken = a.matmul(b);
    let later = (broken.sin() + a).sum_all() * broken.reshape([7]);
    assert_eq!(later.check().unwrap_err(), broken.check().unwrap_err());
    assert_eq!(gradient(later, &[a]).unwrap_err(), broken.check().unwrap_err());
    let built = Program::builder(&g).output("y", later).build();
    assert_eq!(built.unwrap_err(), broken.check().unwrap_err());
}

#[test]
fn tensors_of_two_graphs_do_not_mix() {
    let (g, h) = (Graph::new(), Graph::new());
    let (x, y) = (g.input("x", [2], DType::F64), h.input("y", [2], DType::F64));
    let foreign = |error: bilevel_graph::Error| matches!(error.kind, ErrorKind::ForeignTensor { .. });
    assert!(foreign((x + y).check().unwrap_err()));
    assert!(foreign(x.concat(&[y], 0).check().unwrap_err()));
    assert!(foreign(x.greater(0.0).select(x, y).check().unwrap_err()));
    assert!(foreign(gradient(x.sum_all(), &[y]).unwrap_err()));
    assert!(foreign(Program::builder(&g).output("y", y).build().unwrap_err()));
    assert!(foreign(Program::builder(&g).carry(x, y).build().unwrap_err()));
    let message = (x + y).check().unwrap_err().to_string();
    assert!(message.starts_with("add: ") && message.contains("another graph"), "{message}");
}

#[test]
fn a_tensor_that_outlives_its_graph_is_an_error() {
    let g = Graph::new();
    let x = g.input("x", [2], DType::F64);
    drop(g);
    assert!(matches!(x.check().unwrap_err().kind, ErrorKind::ForeignTensor { .. }));
    let y = (x.sin() + x * 2.0).reshape([1, 2]).matmul(x.t()).sum_all();
    assert!(y.check().is_err());
    assert!(x.concat(&[x], 0).check().is_err() && x.select(1.0, 2.0).check().is_err());
    assert!(gradient(y, &[x]).is_err());
    assert!(x.shape().is_empty() && !format!("{x:?}").is_empty());
}

#[test]
fn derivatives_name_what_they_cannot_take() {
    let g = Graph::new();
    let (x, v) = (g.input("x", [2], DType::F64), g.input("v", [3], DType::F64));
    let i = g.input("i", [], DType::I32);
    let message = |error: bilevel_graph::Error| error.to_string();
    assert!(message(gradient(x, &[x]).unwrap_err()).contains("gradient: the loss must be a single number"));
    assert!(message(gradient(i, &[x]).unwrap_err()).contains("must be a float"));
    assert!(message(vjp(&[x], &[v], &[x]).unwrap_err()).contains("f64[2] and f64[3]"));
    assert!(message(vjp(&[x], &[], &[x]).unwrap_err()).contains("1 outputs but 0 cotangents"));
    assert!(message(jvp(&[x], &[x], &[v]).unwrap_err()).starts_with("jvp"));
    assert!(message(hessian_vector(x.sum_all(), &[x], &[v]).unwrap_err()).contains("mixed_vector"));
    assert!(message(mixed_vector(x.sum_all(), &[x], &[], &[v]).unwrap_err()).contains("1 variables but 0 vectors"));
}

#[test]
fn programs_refuse_names_given_twice_and_carries_that_do_not_fit() {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2], DType::F64), g.input("x", [2], DType::F64));
    let z = g.input("z", [3], DType::F64);
    let twice = |name: &str| ErrorKind::DuplicateName { name: name.into() };
    assert_eq!(Program::builder(&g).output("a", x + y).build().unwrap_err().kind, twice("x"));
    assert_eq!(Program::builder(&g).output("a", x).output("a", z).build().unwrap_err().kind, twice("a"));
    let reason = |builder: bilevel_graph::ProgramBuilder| builder.build().unwrap_err().to_string();
    assert!(reason(Program::builder(&g).carry(x, z)).contains("f64[2] and f64[3]"));
    assert!(reason(Program::builder(&g).carry(x.sin(), x)).contains("only a program input"));
    assert!(reason(Program::builder(&g).carry(x, x.sin()).carry(x, x.cos())).contains("carried already"));
    let program = Program::builder(&g).output("a", x).build().unwrap();
    assert!(program.input("w").unwrap_err().to_string().contains("'w'; the names are: x"));
    assert!(program.output("w").is_err() && program.input("x").is_ok());
}

#[test]
fn runs_refuse_missing_and_wrong_values() {
    let g = Graph::new();
    let (x, unset) = (g.input("x", [2], DType::F64), g.input("unset", [2], DType::F64));
    let program = Program::builder(&g).output("y", x * unset).build().unwrap();
    let mut run = Reference.compile(&program).unwrap();
    assert!(run.run(0..0).is_ok(), "an empty range needs nothing");
    assert!(run.run(0..1).is_err());
    run.set(0, &f64s(&[2], &[1.0, 2.0])).unwrap();
    assert_eq!(run.run(0..1).unwrap_err().kind, ErrorKind::MissingInput { name: "unset".into() });
    assert_eq!(run.output(0).unwrap_err().kind, ErrorKind::NotRun { name: "y".into() });
    assert_eq!(run.input(1).unwrap_err().kind, ErrorKind::MissingInput { name: "unset".into() });
    let message = run.set(1, &f64s(&[3], &[1.0, 2.0, 3.0])).unwrap_err().to_string();
    assert_eq!(message, "'unset' is declared f64[2] but was given f64[3]");
    assert!(run.set(1, &i32s(&[2], &[1, 2])).is_err());
    assert!(run.set(7, &i32s(&[2], &[1, 2])).is_err() && run.output(7).is_err() && run.input(7).is_err());
    run.set(1, &f64s(&[2], &[3.0, 4.0])).unwrap();
    run.run(0..1).unwrap();
    assert_eq!(run.output(0).unwrap().to_f64(), [3.0, 8.0]);
    assert!(run.read(0, &mut Array::zeros([2], DType::F32)).is_err());
    assert!(run.read_input(0, &mut Array::zeros([3], DType::F64)).is_err());
}

#[test]
fn indices_out_of_range_are_found_at_run_time_with_the_line_that_made_the_operation() {
    let g = Graph::new();
    let (x, i) = (g.input("x", [3], DType::F64), g.input("i", [2], DType::I32));
    let line = line!() + 1;
    let made = [x.take(i), x.slice(0, 0, 2).scatter_add(i, 0, 3), i.check_index(3)];
    for (tensor, name) in made.into_iter().zip(["gather", "scatter_add", "check_index"]) {
        for bad in [3, -1] {
            let inputs = [(x, f64s(&[3], &[1.0, 2.0, 3.0])), (i, i32s(&[2], &[0, bad]))];
            let error = Reference::evaluate(&g, &inputs, &[tensor]).unwrap_err();
            let kind = ErrorKind::IndexOutOfRange { operation: name.into(), index: bad as i64, limit: 3 };
            assert_eq!(error.kind, kind);
            assert_eq!(error.location.map(|l| (l.file(), l.line())), Some((file!(), line)), "{error}");
        }
    }
}

#[test]
fn labels_that_are_not_classes_are_refused_with_their_position() {
    for (bad, said) in [(f64::NAN, "NaN"), (0.5, "0.5"), (-1.0, "-1"), (3.0, "3"), (f64::INFINITY, "inf")] {
        let message = Array::labels(&[0.0, 2.0, bad], 3).unwrap_err().to_string();
        assert!(message.contains(&format!("label {said} at position 2")), "{message}");
    }
    assert_eq!(integers(&Array::labels(&[0.0, 2.0], 3).unwrap()), [0, 2]);
    assert!(Array::labels(&[], 3).unwrap().is_empty());
}

#[test]
fn arrays_refuse_a_wrong_number_of_elements() {
    let message = Array::from_f32([2, 2], vec![1.0]).unwrap_err().to_string();
    assert_eq!(message, "shape [2, 2] holds 4 elements but 1 were given");
    assert!(Array::from_i32([usize::MAX, 2], vec![]).is_err());
}

#[test]
fn only_inputs_can_be_given_values() {
    let g = Graph::new();
    let x = g.input("x", [2], DType::F64);
    let error = Reference::evaluate(&g, &[(x.sin(), f64s(&[2], &[1.0, 2.0]))], &[x]).unwrap_err().to_string();
    assert!(error.contains("evaluate") && error.contains("f64[2]"), "{error}");
}
