//! Refusals of an executor, and its correct work afterwards.

use crate::conformance::agreement::Failure;
use crate::conformance::failures::Watch;
use crate::{Array, DType, ErrorKind, Executor, Graph, Program, Result, WindowDims};

/// Everything an executor must refuse: values that are missing, misshapen, of another type or of a port there is not, results
/// before there are any, and indices outside their axis. None of it may keep it from working afterwards.
///
/// ```
/// assert!(bilevel_graph::conformance::refusals(&bilevel_graph::Reference)?.is_empty());
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn refusals(executor: &dyn Executor) -> Result<Vec<Failure>> {
    let mut watch = Watch(vec![]);
    inputs_and_outputs(executor, &mut watch)?;
    indices(executor, &mut watch)?;
    Ok(watch.0)
}

fn inputs_and_outputs(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2], DType::F64), g.input("y", [2], DType::F64));
    let program = Program::builder(&g).output("sum", x + y).carry(x, x * 2.0).build()?;
    let mut run = executor.compile(&program)?;
    let (first, second) = (program.input("x")?, program.input("y")?);
    let value = |a: f64, b: f64| Array::from_f64([2], vec![a, b]);
    let missing = || ErrorKind::MissingInput { name: "y".into() };
    let not_run = || ErrorKind::NotRun { name: "sum".into() };

    watch.refused("an output read before the first run", run.output(0), not_run());
    run.set(first, &value(1.0, 2.0)?)?;
    watch.refused("a run before an input is set", run.run(0..1), missing());
    watch.refused("an input read before it is set", run.input(second), missing());
    watch.refused("an output read after a run that was refused", run.output(0), not_run());
    run.set(second, &value(10.0, 20.0)?)?;
    run.run(3..3)?;
    watch.refused("an output read after a run of no steps", run.output(0), not_run());
    run.run(0..1)?;
    watch.is("a run after one that was refused", run.output(0), &[11.0, 22.0]);
    watch.is("a carried input after a step", run.input(first), &[2.0, 4.0]);

    let expected = (DType::F64, vec![2]);
    for wrong in [Array::zeros([3], DType::F64), Array::zeros([2, 1], DType::F64), Array::zeros([2], DType::F32)] {
        let found = (wrong.dtype(), wrong.shape().to_vec());
        let kind =
            |name: &str| ErrorKind::WrongValue { name: name.into(), expected: expected.clone(), found: found.clone() };
        watch.refused("an input set to another shape or type", run.set(second, &wrong), kind("y"));
        let mut into = wrong.clone();
        watch.refused("an input read into another shape or type", run.read_input(second, &mut into), kind("y"));
        watch.refused("an output read into another shape or type", run.read(0, &mut into), kind("sum"));
    }
    let unknown = |kind: &ErrorKind| matches!(kind, ErrorKind::UnknownName { .. });
    let wanted = "there is nothing of that number";
    let mut into = value(0.0, 0.0)?;
    watch.refused_as("an input of a number there is not", run.set(2, &into), wanted, unknown);
    watch.refused_as("an input of a number there is not, read", run.read_input(2, &mut into), wanted, unknown);
    watch.refused_as("an output of a number there is not", run.read(1, &mut into), wanted, unknown);
    watch.is("an output after values that were refused", run.output(0), &[11.0, 22.0]);
    run.run(1..2)?;
    watch.is("a run after values that were refused", run.output(0), &[12.0, 24.0]);
    Ok(())
}

fn indices(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    for limit in [1, 3] {
        let g = Graph::new();
        let (x, at) = (g.input("x", [limit], DType::F64), g.input("at", [2], DType::I32));
        let program = Program::builder(&g).output("taken", x.take(at)).build()?;
        let mut run = executor.compile(&program)?;
        run.set(program.input("x")?, &Array::full([limit], 5.0, DType::F64))?;
        for wrong in [limit as i32, -1, i32::MAX, i32::MIN] {
            run.set(program.input("at")?, &Array::from_i32([2], vec![0, wrong])?)?;
            let wanted = format!("index {wrong} is not in 0..{limit}");
            let is = |kind: &ErrorKind| {
                matches!(kind, ErrorKind::IndexOutOfRange { index, limit: found, .. }
                    if (*index, *found) == (i64::from(wrong), limit))
            };
            watch.refused_as("an index outside its axis", run.run(0..1), &wanted, is);
            let not_run = ErrorKind::NotRun { name: "taken".into() };
            watch.refused("an output read after a run that failed", run.output(0), not_run);
            run.set(program.input("at")?, &Array::from_i32([2], vec![0, limit as i32 - 1])?)?;
            run.run(0..1)?;
            watch.is("a run after one that failed", run.output(0), &[5.0, 5.0]);
        }
    }
    index_in_a_loop(executor, watch)?;
    index_of_a_window(executor, watch)?;
    index_of_a_row_that_nobody_reads(executor, watch)
}

/// The index of a window's largest element can be outside a table that is smaller than the image.
fn index_of_a_window(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let g = Graph::new();
    let (image, table) = (g.input("image", [4, 4], DType::F64), g.input("table", [6, 2], DType::F64));
    let at = image.window_argmax(WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 0); 2] });
    let program = Program::builder(&g).output("taken", table.take(at)).carry(image, image + 1.0).build()?;
    let mut run = executor.compile(&program)?;
    let pixels: Vec<f64> = (0..16).map(f64::from).collect();
    let input = program.input("image")?;
    run.set(input, &Array::from_f64([4, 4], pixels.clone())?)?;
    run.set(program.input("table")?, &Array::zeros([6, 2], DType::F64))?;
    let is = |kind: &ErrorKind| matches!(kind, ErrorKind::IndexOutOfRange { index: 7, limit: 6, .. });
    let wanted = "index 7 is not in 0..6";
    watch.refused_as("an index of a window outside a table", run.run(0..1), wanted, is);
    watch.is("what was carried into a step that failed", run.input(input), &pixels);
    watch.refused_as("the same in a step whose outputs are not asked for", run.advance(0..1), wanted, is);
    watch.is("what was carried into a step that failed", run.input(input), &pixels);
    Ok(())
}

/// A gather fails on an index out of range even if its row is not read.
fn index_of_a_row_that_nobody_reads(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let g = Graph::new();
    let (x, at) = (g.input("x", [3, 2], DType::F64), g.input("at", [4], DType::I32));
    let rows = x.take(at);
    let (some, others) = (rows.slice(0, 0, 1).sin(), rows.slice(0, 1, 3).cos());
    let program = Program::builder(&g).output("some", some).output("others", others).build()?;
    let mut run = executor.compile(&program)?;
    run.set(program.input("x")?, &Array::zeros([3, 2], DType::F64))?;
    for place in 0..4 {
        let mut indices = vec![0; 4];
        indices[place] = 5;
        run.set(program.input("at")?, &Array::from_i32([4], indices)?)?;
        let is = |kind: &ErrorKind| matches!(kind, ErrorKind::IndexOutOfRange { index: 5, limit: 3, .. });
        watch.refused_as("an index out of range, read or not", run.run(0..1), "index 5 is not in 0..3", is);
    }
    Ok(())
}

/// Carried values are unchanged if an index in their loop is out of range.
fn index_in_a_loop(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let g = Graph::new();
    let (x, at) = (g.input("x", [3, 2], DType::F64), g.input("at", [4], DType::I32));
    let sum = g.input("sum", [4], DType::F64);
    let taken = x.take(at + 1.0);
    let next = sum + taken.index(1, 0) * taken.index(1, 1);
    let program = Program::builder(&g).carry(sum, next).build()?;
    let mut run = executor.compile(&program)?;
    run.set(program.input("x")?, &Array::from_f64([3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?)?;
    run.set(program.input("sum")?, &Array::full([4], 7.0, DType::F64))?;
    run.set(program.input("at")?, &Array::from_i32([4], vec![0, -1, 2, 1])?)?;
    let is = |kind: &ErrorKind| matches!(kind, ErrorKind::IndexOutOfRange { index: 3, limit: 3, .. });
    watch.refused_as("an index that a loop computes, outside its axis", run.run(0..1), "index 3 is not in 0..3", is);
    watch.is("what was carried into a step that failed", run.input(program.input("sum")?), &[7.0; 4]);
    run.set(program.input("at")?, &Array::from_i32([4], vec![0, -1, 1, 1])?)?;
    run.run(0..1)?;
    watch.is("a step after one that failed", run.input(program.input("sum")?), &[19.0, 9.0, 37.0, 37.0]);
    Ok(())
}
