//! Programs bound to buffers: memory that several of them share, that changes between runs, and all that must be refused.

use crate::conformance::agreement::Failure;
use crate::conformance::failures::Watch;
use crate::exec::buffer::{Access, Buffer, Storage};
use crate::ir::infer::Meta;
use crate::{Array, DType, DataMut, ErrorKind, Executor, Graph, Program, Result, Runnable};
use std::any::Any;
use std::ops::Range;

/// The contract of executors on buffers. Writes of a program are visible to others, and writes or bindings between runs
/// count in the next. Values that a failed run should have written are not readable. A buffer that does not fit is
/// refused, and earlier bindings stay.
///
/// ```
/// assert!(bilevel_graph::conformance::buffers(&bilevel_graph::Reference)?.is_empty());
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn buffers(executor: &dyn Executor) -> Result<Vec<Failure>> {
    let mut watch = Watch(vec![]);
    let parts = [
        elements,
        shared,
        carried,
        changed_between_runs,
        not_fitting,
        bound_twice,
        unbound,
        failed,
        failed_midway,
        in_use,
        adopted,
    ];
    for part in parts {
        part(executor, &mut watch)?;
    }
    Ok(watch.0)
}

const F64: DType = DType::F64;

fn pair(a: f64, b: f64) -> Result<Array> {
    Array::from_f64([2], vec![a, b])
}

fn upload(executor: &dyn Executor, a: f64, b: f64) -> Result<Buffer> {
    executor.upload(&pair(a, b)?)
}

/// x and y, their sum as an output, and x doubled in every step.
fn doubling() -> Result<Program> {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2], F64), g.input("y", [2], F64));
    Program::builder(&g).output("sum", x + y).carry(x, x * 2.0).build()
}

/// x and y, their difference and their product as outputs.
fn two_outputs() -> Result<Program> {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2], F64), g.input("y", [2], F64));
    Program::builder(&g).output("difference", x - y).output("product", x * y).build()
}

/// x and y bound to buffers with these elements.
fn bound(executor: &dyn Executor, program: &Program) -> Result<(Box<dyn Runnable>, [Buffer; 2])> {
    let mut run = executor.compile(program)?;
    let buffers = [upload(executor, 1.0, 2.0)?, upload(executor, 10.0, 20.0)?];
    for (name, buffer) in ["x", "y"].into_iter().zip(&buffers) {
        run.bind_input(program.input(name)?, buffer)?;
    }
    Ok((run, buffers))
}

/// Operations on a buffer without a program.
fn elements(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    for dtype in [DType::F32, F64, DType::I32] {
        let meta = Meta { dtype, shape: vec![3, 2] };
        let buffer = executor.buffer(&meta)?;
        watch.is("a new buffer", buffer.to_array(), &[0.0; 6]);
        buffer.write(&Array::from_values([3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype)?)?;
        watch.is("a buffer that was written", buffer.to_array(), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let size = dtype.size();
        let mut middle = vec![0; 2 * size];
        buffer.read_part(2 * size, &mut middle)?;
        buffer.write_part(4 * size, &middle)?;
        watch.is("a stretch read and written elsewhere", buffer.to_array(), &[1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        buffer.write_part(6 * size, &[])?;
        let beyond = |first: usize, end: usize| ErrorKind::BeyondBuffer { first, end, bytes: 6 * size };
        watch.refused(
            "a stretch beyond the end, read",
            buffer.read_part(5 * size, &mut middle),
            beyond(5 * size, 7 * size),
        );
        watch.refused(
            "a stretch beyond the end, written",
            buffer.write_part(6 * size, &[0]),
            beyond(6 * size, 6 * size + 1),
        );
        let short = ErrorKind::WrongLength { shape: vec![3, 2], found: 5 };
        watch.refused("too few bytes", buffer.write_bytes(&vec![0; 5 * size]), short);

        let copy = executor.duplicate(&buffer)?;
        buffer.zero()?;
        watch.is("a buffer set to 0", buffer.to_array(), &[0.0; 6]);
        watch.is("a copy of what it was", copy.to_array(), &[1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        buffer.copy_from(&copy)?;
        copy.copy_from(&copy.clone())?;
        copy.write_part(0, &middle)?;
        watch.is("what was copied from another", buffer.to_array(), &[1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        watch.is("a copy that changed later", copy.to_array(), &[3.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
        buffer.copy_part_from(&copy, size..3 * size)?;
        watch.is("what a stretch was copied to", buffer.to_array(), &[1.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
        let too_far = buffer.copy_part_from(&copy, 5 * size..6 * size + 1);
        watch.refused("a stretch beyond the end, copied", too_far, beyond(5 * size, 6 * size + 1));

        let other = executor.buffer(&Meta { dtype, shape: vec![2, 3] })?;
        let wrong = |found| ErrorKind::WrongValue { name: "the buffer".into(), expected: (dtype, vec![3, 2]), found };
        watch.refused("a copy from another shape", buffer.copy_from(&other), wrong((dtype, vec![2, 3])));
        let array = Array::zeros([6], dtype);
        watch.refused("an array of another shape", buffer.write(&array), wrong((dtype, vec![6])));
        watch.refused("a copy from another executor", buffer.copy_from(&elsewhere(&meta)), foreign("a copy"));
        watch.refused("a copy to another executor", elsewhere(&meta).copy_from(&buffer), foreign("a copy"));
    }
    let none = executor.buffer(&Meta { dtype: F64, shape: vec![0, 4] })?;
    watch.is("a buffer without elements", none.to_array(), &[]);
    none.zero()?;
    none.copy_from(&executor.duplicate(&none)?)?;
    // More than there is, and more than can be counted.
    for shape in [vec![1 << 50], vec![1 << 40, 1 << 40]] {
        let no_memory = |kind: &ErrorKind| matches!(kind, ErrorKind::OutOfMemory { .. });
        let wanted = "there is no memory for it";
        watch.refused_as(
            "a buffer larger than any memory",
            executor.buffer(&Meta { dtype: F64, shape }),
            wanted,
            no_memory,
        );
    }
    Ok(())
}

/// One buffer, several programs.
fn shared(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let program = two_outputs()?;
    let (mut first, [x, y]) = bound(executor, &program)?;
    let between = executor.buffer(&Meta { dtype: F64, shape: vec![2] })?;
    first.bind_output(0, &between)?;
    let mut second = executor.compile(&program)?;
    second.bind_input(program.input("x")?, &between)?;
    second.bind_input(program.input("y")?, &y)?;
    first.run(0..1)?;
    second.run(0..1)?;
    watch.is("an output in the buffer it is bound to", between.to_array(), &[-9.0, -18.0]);
    watch.is("another program's output as an input", second.output(0), &[-19.0, -38.0]);
    y.write(&pair(1.0, 1.0)?)?;
    first.run(0..1)?;
    second.run(0..1)?;
    watch.is("an input of two programs that was written", second.output(0), &[-1.0, 0.0]);
    watch.is("a second output of the same run", first.output(1), &[1.0, 2.0]);
    second.bind_input(program.input("y")?, &between)?;
    second.run(0..1)?;
    watch.is("one buffer for two inputs that are only read", second.output(1), &[0.0, 1.0]);
    watch.is("an input that was only read", x.to_array(), &[1.0, 2.0]);
    Ok(())
}

/// A carried input is updated in place, for all its handles.
fn carried(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let program = doubling()?;
    let (mut run, [x, y]) = bound(executor, &program)?;
    let mut other = executor.compile(&program)?;
    let into = executor.buffer(&Meta { dtype: F64, shape: vec![2] })?;
    other.bind_input(program.input("x")?, &x)?;
    other.bind_input(program.input("y")?, &y)?;
    other.bind_output(0, &into)?;
    run.run(0..2)?;
    watch.is("a carried input in its buffer", x.to_array(), &[4.0, 8.0]);
    other.run(0..1)?;
    watch.is("a carried input as another program finds it", into.to_array(), &[14.0, 28.0]);
    run.run(2..3)?;
    watch.is("a carried input that another program carried on", x.to_array(), &[16.0, 32.0]);
    run.set(program.input("x")?, &pair(3.0, 5.0)?)?;
    watch.is("an input that is set, in its buffer", x.to_array(), &[3.0, 5.0]);
    run.advance(0..2)?;
    let not_run = ErrorKind::NotRun { name: "sum".into() };
    watch.refused("an output of steps whose outputs were not asked for", run.output(0), not_run);
    watch.is("a carried input after such steps", x.to_array(), &[12.0, 20.0]);
    run.run(2..3)?;
    watch.is("an output after such steps", run.output(0), &[22.0, 40.0]);
    Ok(())
}

/// Whatever is written or bound between two runs counts in the second.
fn changed_between_runs(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let program = two_outputs()?;
    let (mut run, [x, y]) = bound(executor, &program)?;
    let (into, instead) = (upload(executor, 0.0, 0.0)?, upload(executor, 0.0, 0.0)?);
    run.bind_output(0, &into)?;
    run.run(0..1)?;
    into.zero()?;
    run.run(0..1)?;
    watch.is("an output that somebody overwrote, after the next run", into.to_array(), &[-9.0, -18.0]);
    run.bind_output(0, &instead)?;
    let not_run = ErrorKind::NotRun { name: "difference".into() };
    watch.refused("an output in another buffer, before the next run", run.output(0), not_run);
    run.run(0..1)?;
    watch.is("an output in another buffer", instead.to_array(), &[-9.0, -18.0]);
    run.bind_input(program.input("x")?, &upload(executor, 5.0, 5.0)?)?;
    run.run(0..1)?;
    watch.is("an input in another buffer", run.output(0), &[-5.0, -15.0]);
    run.bind_input(program.input("x")?, &x)?;
    y.zero()?;
    run.run(0..1)?;
    watch.is("an input in its first buffer again", run.output(0), &[1.0, 2.0]);

    // A loop has loop-invariant work: it must be repeated if its operands have changed.
    let g = Graph::new();
    let (x, w) = (g.input("x", [2], F64), g.input("w", [2], F64));
    let once = (w + 1.0).square().sum_all();
    let program = Program::builder(&g).output("once", once).carry(x, x + once).build()?;
    let mut run = executor.compile(&program)?;
    let (x, w) = (program.input("x")?, program.input("w")?);
    let (start, weight) = (upload(executor, 0.0, 1.0)?, upload(executor, 0.0, 1.0)?);
    run.bind_input(x, &start)?;
    run.bind_input(w, &weight)?;
    run.run(0..2)?;
    watch.is("what is the same in every step", start.to_array(), &[10.0, 11.0]);
    weight.zero()?;
    run.run(2..3)?;
    watch.is("the same with an input that was written", start.to_array(), &[12.0, 13.0]);
    run.bind_input(w, &upload(executor, 2.0, 0.0)?)?;
    run.run(3..4)?;
    watch.is("the same with an input in another buffer", start.to_array(), &[22.0, 23.0]);
    watch.is("an output that is the same in every step", run.output(0), &[10.0]);
    let elsewhere = upload(executor, 0.0, 0.0)?;
    run.bind_input(x, &elsewhere)?;
    run.bind_output(0, &executor.buffer(&Meta { dtype: F64, shape: vec![] })?)?;
    run.run(4..5)?;
    watch.is("a carried input in another buffer", elsewhere.to_array(), &[10.0, 10.0]);
    watch.is("a carried input in the buffer it had before", start.to_array(), &[22.0, 23.0]);
    watch.is("an output that is the same in every step, in another buffer", run.output(0), &[10.0]);
    Ok(())
}

/// Buffers of another executor, shape or type.
fn not_fitting(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let program = doubling()?;
    let (mut run, _) = bound(executor, &program)?;
    let (x, y) = (program.input("x")?, program.input("y")?);
    let alien = elsewhere(&Meta { dtype: F64, shape: vec![2] });
    watch.refused("an input in a buffer of another executor", run.bind_input(x, &alien), foreign("x"));
    watch.refused("an output in a buffer of another executor", run.bind_output(0, &alien), foreign("sum"));
    for (dtype, shape) in [(F64, vec![3]), (F64, vec![2, 1]), (DType::F32, vec![2])] {
        let other = executor.buffer(&Meta { dtype, shape: shape.clone() })?;
        let kind = |name: &str| ErrorKind::WrongValue {
            name: name.into(),
            expected: (F64, vec![2]),
            found: (dtype, shape.clone()),
        };
        watch.refused("an input in a buffer of another shape or type", run.bind_input(y, &other), kind("y"));
        watch.refused("an output in a buffer of another shape or type", run.bind_output(0, &other), kind("sum"));
    }
    let fitting = upload(executor, 0.0, 0.0)?;
    let unknown = |kind: &ErrorKind| matches!(kind, ErrorKind::UnknownName { .. });
    let wanted = "there is nothing of that number";
    watch.refused_as("a buffer for an input there is not", run.bind_input(2, &fitting), wanted, unknown);
    watch.refused_as("a buffer for an output there is not", run.bind_output(1, &fitting), wanted, unknown);
    run.run(0..1)?;
    watch.is("a run after buffers that were refused", run.output(0), &[11.0, 22.0]);
    Ok(())
}

/// A value that a program writes must have its own buffer.
fn bound_twice(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let twice = |name: &str, other: &str| ErrorKind::BoundTwice { name: name.into(), other: other.into() };
    let program = doubling()?;
    let (mut run, [x, y]) = bound(executor, &program)?;
    let (first, second) = (program.input("x")?, program.input("y")?);
    watch.refused("a carried input in another's buffer", run.bind_input(first, &y), twice("x", "y"));
    watch.refused("an input in a carried one's buffer", run.bind_input(second, &x), twice("y", "x"));
    watch.refused("an output in an input's buffer", run.bind_output(0, &y), twice("sum", "y"));
    run.bind_input(first, &x)?;
    let into = upload(executor, 0.0, 0.0)?;
    run.bind_output(0, &into)?;
    run.bind_output(0, &into)?;
    watch.refused("an input in an output's buffer", run.bind_input(second, &into), twice("y", "sum"));
    run.run(0..1)?;
    watch.is("a run after buffers that were taken", into.to_array(), &[11.0, 22.0]);
    let program = two_outputs()?;
    let (mut run, _) = bound(executor, &program)?;
    run.bind_output(0, &into)?;
    watch.refused("two outputs in one buffer", run.bind_output(1, &into), twice("product", "difference"));
    run.run(0..1)?;
    watch.is("an output that was refused a buffer", run.output(1), &[10.0, 40.0]);
    Ok(())
}

/// Nothing runs before every input has a buffer.
fn unbound(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let program = doubling()?;
    let mut run = executor.compile(&program)?;
    let missing = |name: &str| ErrorKind::MissingInput { name: name.into() };
    let (x, y) = (upload(executor, 1.0, 2.0)?, upload(executor, 10.0, 20.0)?);
    run.bind_input(program.input("x")?, &x)?;
    watch.refused("a run with an input that is not bound", run.run(0..1), missing("y"));
    watch.is("a carried input after a run that was refused", x.to_array(), &[1.0, 2.0]);
    run.bind_input(program.input("y")?, &y)?;
    run.run(0..1)?;
    run.unbind_input(program.input("x")?);
    watch.refused("a run with an input that was let go", run.run(1..2), missing("x"));
    watch.refused("an input that was let go, read", run.input(program.input("x")?), missing("x"));
    y.zero()?;
    run.bind_input(program.input("x")?, &x)?;
    run.run(1..2)?;
    watch.is("a run after an input was bound again", run.output(0), &[2.0, 4.0]);
    Ok(())
}

/// Values that a failed run should have written cannot be read, and its carried values are unchanged.
fn failed(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let g = Graph::new();
    let (x, at) = (g.input("x", [2], F64), g.input("at", [2], DType::I32));
    let taken = x.take(at);
    let program = Program::builder(&g).output("taken", taken).carry(x, x + taken).build()?;
    let mut run = executor.compile(&program)?;
    let (x, into) = (upload(executor, 1.0, 2.0)?, upload(executor, 7.0, 7.0)?);
    let indices = executor.upload(&Array::from_i32([2], vec![1, 0])?)?;
    run.bind_input(program.input("x")?, &x)?;
    run.bind_input(program.input("at")?, &indices)?;
    run.bind_output(0, &into)?;
    let (wrong, right) = (Array::from_i32([2], vec![0, 2])?, Array::from_i32([2], vec![1, 0])?);
    let lost = || ErrorKind::RunFailed;
    let out_of_range = |kind: &ErrorKind| matches!(kind, ErrorKind::IndexOutOfRange { index: 2, limit: 2, .. });
    let mut fail = |watch: &mut Watch| -> Result<()> {
        indices.write(&wrong)?;
        watch.refused_as("an index outside its axis", run.run(0..1), "index 2 is not in 0..2", out_of_range);
        watch.refused("an output of a failed run", run.output(0), ErrorKind::NotRun { name: "taken".into() });
        watch.refused("the buffer of an output of a failed run", into.to_array(), lost());
        indices.write(&right)
    };
    fail(watch)?;
    watch.is("a carried input after a failed run", x.to_array(), &[1.0, 2.0]);
    let copy = upload(executor, 0.0, 0.0)?;
    watch.refused("a copy of what a failed run should have written", copy.copy_from(&into), lost());
    let two = two_outputs()?;
    let (mut reader, _) = bound(executor, &two)?;
    reader.bind_input(two.input("y")?, &into)?;
    watch.refused("a run on what a failed run should have written", reader.run(0..1), lost());
    into.write_part(0, &1f64.to_ne_bytes())?;
    watch.refused("the buffer with a part of it written", into.to_array(), lost());
    into.write(&pair(3.0, 4.0)?)?;
    watch.is("the buffer when all of it was written", into.to_array(), &[3.0, 4.0]);
    reader.run(0..1)?;
    watch.is("a run when all of it was written", reader.output(1), &[3.0, 8.0]);
    fail(watch)?;
    into.zero()?;
    watch.is("the buffer set to 0", into.to_array(), &[0.0, 0.0]);
    fail(watch)?;
    into.copy_part_from(&x, 0..8)?;
    watch.refused("the buffer with a part of it copied", into.to_array(), lost());
    into.copy_from(&x)?;
    watch.is("the buffer with a copy of another", into.to_array(), &[1.0, 2.0]);
    fail(watch)?;
    run.run(0..1)?;
    watch.is("the buffer after a run that did not fail", into.to_array(), &[2.0, 1.0]);
    watch.is("a carried input after a run that did not fail", x.to_array(), &[3.0, 3.0]);
    Ok(())
}

/// A run that fails in one of its steps keeps the carried values of the steps before it. This holds for a value updated
/// in place, and for one whose new value is known long before the last read of the old one, so that an executor may
/// have begun other steps by then.
fn failed_midway(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    const ROWS: usize = 5;
    let g = Graph::new();
    let (w, sum, rows) = (g.input("w", [2], F64), g.input("sum", [2], F64), g.input("rows", [ROWS, 2], F64));
    let next = w + rows.take(g.step());
    let late = (next.cumsum(0).cumsum(0) * w).cumsum(0);
    let program = Program::builder(&g).carry(w, next).carry(sum, sum + late.cumsum(0)).build()?;
    let mut run = executor.compile(&program)?;
    let values: Vec<f64> = (0..2 * ROWS).map(|n| n as f64).collect();
    run.set(program.input("rows")?, &Array::from_f64([ROWS, 2], values.clone())?)?;
    // After these steps; all numbers are whole, and exact.
    let after = |steps: Range<usize>| {
        let (mut w, mut sum) = ([1.0, 2.0], [0.0, 0.0]);
        for row in values.chunks(2).take(steps.end).skip(steps.start) {
            let next = [w[0] + row[0], w[1] + row[1]];
            let late = [next[0] * w[0], next[0] * w[0] + (2.0 * next[0] + next[1]) * w[1]];
            sum = [sum[0] + late[0], sum[1] + late[0] + late[1]];
            w = next;
        }
        [w, sum]
    };
    let out_of_range = |kind: &ErrorKind| matches!(kind, ErrorKind::IndexOutOfRange { index: 5, limit: ROWS, .. });
    for steps in [0..5, 0..7, 3..40, 5..6] {
        let buffers = [upload(executor, 1.0, 2.0)?, upload(executor, 0.0, 0.0)?];
        for (name, buffer) in ["w", "sum"].into_iter().zip(&buffers) {
            run.bind_input(program.input(name)?, buffer)?;
        }
        let fails = steps.end as usize > ROWS;
        let answer = run.run(steps.clone());
        if fails {
            watch.refused_as("a row that is not there", answer, "index 5 is not in 0..5", out_of_range);
        } else {
            answer?;
        }
        let expected = after(steps.start as usize..ROWS);
        for ((name, buffer), expected) in ["w", "sum"].into_iter().zip(&buffers).zip(expected) {
            let case = format!("{name} after the steps of {steps:?} that did not fail");
            watch.is(&case, buffer.to_array(), &expected);
        }
    }
    Ok(())
}

/// A buffer in use is not used by a run.
fn in_use(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    let program = doubling()?;
    let (mut run, [x, y]) = bound(executor, &program)?;
    for (case, buffer, access) in [
        ("a carried input that somebody reads", &x, Access::Read),
        ("a carried input that somebody writes", &x, Access::Write),
        ("an input that somebody writes", &y, Access::Write),
    ] {
        buffer.acquire(access)?;
        watch.refused(case, run.run(0..1), ErrorKind::BufferBusy);
        // SAFETY: acquired above, and not used.
        unsafe { buffer.release(access, true) };
    }
    y.acquire(Access::Read)?;
    run.run(0..1)?;
    // SAFETY: acquired above, and no longer in use.
    unsafe { y.release(Access::Read, true) };
    watch.is("an input that somebody reads too", run.output(0), &[11.0, 22.0]);
    Ok(())
}

/// Elements that an executor may use in place: a run only reads them, and they never change.
fn adopted(executor: &dyn Executor, watch: &mut Watch) -> Result<()> {
    // Aligned, so that an executor can work in their memory, and not.
    for (case, mut array) in
        [("aligned", Array::from_values([2], &[10.0, 20.0], F64)?), ("a vector", pair(10.0, 20.0)?)]
    {
        let buffer = executor.adopt(&array)?;
        watch.is(&format!("{case}, adopted"), buffer.to_array(), &[10.0, 20.0]);
        if let DataMut::F64(values) = array.data_mut() {
            values[0] = 5.0;
        }
        watch.is(&format!("{case}, adopted, and the array changed"), buffer.to_array(), &[10.0, 20.0]);
        let program = doubling()?;
        let (mut run, [x, _]) = bound(executor, &program)?;
        run.bind_input(program.input("y")?, &buffer)?;
        run.run(0..2)?;
        watch.is(&format!("a sum with {case}, adopted"), run.output(0), &[12.0, 24.0]);
        let copy = executor.duplicate(&buffer)?;
        copy.copy_from(&x)?;
        watch.is(&format!("a duplicate of {case}, adopted, and written"), copy.to_array(), &[4.0, 8.0]);
        watch.is(&format!("{case}, adopted, after its duplicate was written"), buffer.to_array(), &[10.0, 20.0]);
    }
    Ok(())
}

fn foreign(name: &str) -> ErrorKind {
    ErrorKind::ForeignBuffer { name: name.into() }
}

/// A buffer of no executor that can be checked.
fn elsewhere(meta: &Meta) -> Buffer {
    Buffer::new(meta.clone(), Box::new(Elsewhere))
}

/// Memory without readers.
struct Elsewhere;

impl Storage for Elsewhere {
    unsafe fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    unsafe fn read(&self, _: usize, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    unsafe fn copy_from(&self, other: &dyn Storage, _: Range<usize>) -> Result<bool> {
        Ok(other.as_any().is::<Elsewhere>())
    }

    unsafe fn zero(&self) -> Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
