//! Programs bound to buffers, on both executors: sharing, updating in place, and every way to bind wrongly.

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, ErrorKind, Executor, Graph, Meta, Program, Reference};

fn executors() -> Vec<(&'static str, Box<dyn Executor>)> {
    vec![("reference", Box::new(Reference)), ("cpu", Box::new(Cpu::with_threads(2)))]
}

fn meta(shape: &[usize]) -> Meta {
    Meta { dtype: DType::F64, shape: shape.to_vec() }
}

fn array(values: &[f64]) -> Array {
    Array::from_f64([values.len()], values.to_vec()).unwrap()
}

/// x ← x + y, with the sum of x·y as an output.
fn accumulate() -> Program {
    let g = Graph::new();
    let (x, y) = (g.input("x", [3], DType::F64), g.input("y", [3], DType::F64));
    Program::builder(&g).output("sum", (x * y).sum_all()).carry(x, x + y).build().unwrap()
}

#[test]
fn a_carried_input_is_updated_in_its_buffer_and_two_programs_share_data() {
    for (name, executor) in executors() {
        let (program, data) = (accumulate(), executor.upload(&array(&[1.0, 2.0, 3.0])).unwrap());
        let states = [executor.buffer(&meta(&[3])).unwrap(), executor.upload(&array(&[5.0, 5.0, 5.0])).unwrap()];
        let mut runs = [executor.compile(&program).unwrap(), executor.compile(&program).unwrap()];
        let (x, y) = (program.input("x").unwrap(), program.input("y").unwrap());
        for (run, state) in runs.iter_mut().zip(&states) {
            run.bind_input(x, state).unwrap();
            run.bind_input(y, &data).unwrap();
            run.run(0..2).unwrap();
        }
        assert_eq!(states[0].to_array().unwrap().to_f64(), [2.0, 4.0, 6.0], "{name}");
        assert_eq!(states[1].to_array().unwrap().to_f64(), [7.0, 9.0, 11.0], "{name}");
        assert_eq!(runs[0].output(0).unwrap().item(), Some(14.0), "{name}: of the last step");
        assert_eq!(data.to_array().unwrap().to_f64(), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn an_output_is_written_to_the_buffer_bound_to_it_and_a_copy_is_another_buffer() {
    for (name, executor) in executors() {
        let program = accumulate();
        let mut run = executor.compile(&program).unwrap();
        run.set(0, &array(&[1.0, 1.0, 1.0])).unwrap();
        run.set(1, &array(&[2.0, 0.0, 1.0])).unwrap();
        let sum = executor.buffer(&meta(&[])).unwrap();
        run.bind_output(0, &sum).unwrap();
        run.run(0..1).unwrap();
        let copy = executor.duplicate(&sum).unwrap();
        assert_eq!((sum.item().unwrap(), copy.item().unwrap()), (3.0, 3.0), "{name}");
        sum.zero().unwrap();
        assert_eq!((sum.item().unwrap(), copy.item().unwrap()), (0.0, 3.0), "{name}");
    }
}

#[test]
fn what_is_the_same_in_every_step_is_computed_again_only_when_its_inputs_change() {
    // exp(y) does not change along the loop; it must still follow y from one run to the next.
    let g = Graph::new();
    let (x, y) = (g.input("x", [2], DType::F64), g.input("y", [2], DType::F64));
    let program = Program::builder(&g).carry(x, x + y.exp()).output("once", y.exp()).build().unwrap();
    for (name, executor) in executors() {
        let mut run = executor.compile(&program).unwrap();
        let data = executor.buffer(&meta(&[2])).unwrap();
        run.set(0, &array(&[0.0, 0.0])).unwrap();
        run.bind_input(1, &data).unwrap();
        run.run(0..1).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(run.input(0).unwrap().to_f64(), [2.0, 2.0], "{name}");
        data.write(&array(&[f64::NEG_INFINITY, 0.0])).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(run.input(0).unwrap().to_f64(), [2.0, 3.0], "{name}: after a write");
        let other = executor.upload(&array(&[0.0, f64::NEG_INFINITY])).unwrap();
        run.bind_input(1, &other).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(run.input(0).unwrap().to_f64(), [3.0, 3.0], "{name}: after another buffer was bound");
        let kept = executor.buffer(&meta(&[2])).unwrap();
        run.bind_output(0, &kept).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(kept.to_array().unwrap().to_f64(), [1.0, 0.0], "{name}: in an output bound late");
    }
}

#[test]
fn every_wrong_way_to_bind_is_an_error_with_a_sentence() {
    for (name, executor) in executors() {
        let program = accumulate();
        let mut run = executor.compile(&program).unwrap();
        let said = |result: bilevel_graph::Result<()>| result.unwrap_err().to_string();
        let good = executor.buffer(&meta(&[3])).unwrap();
        let foreign: Box<dyn Executor> =
            if name == "cpu" { Box::new(Reference) } else { Box::new(Cpu::with_threads(1)) };
        let foreign = foreign.buffer(&meta(&[3])).unwrap();
        assert!(said(run.bind_input(0, &foreign)).contains("belongs to another executor"), "{name}");
        assert!(said(good.copy_from(&foreign)).contains("belongs to another executor"), "{name}");
        let scalar = executor.buffer(&meta(&[])).unwrap();
        assert_eq!(said(run.bind_input(0, &scalar)), "'x' is declared f64[3] but was given f64[]", "{name}");
        let whole = executor.buffer(&Meta { dtype: DType::I32, shape: vec![3] }).unwrap();
        assert_eq!(said(run.bind_input(1, &whole)), "'y' is declared f64[3] but was given i32[3]", "{name}");
        assert!(said(run.bind_input(7, &good)).contains("input 7"), "{name}");
        assert!(said(run.bind_output(7, &scalar)).contains("output 7"), "{name}");
        assert_eq!(said(run.run(0..1)), "input 'x' was never set; set it before the run", "{name}");

        run.bind_input(0, &good).unwrap();
        run.bind_input(0, &good).unwrap();
        let twice = said(run.bind_input(1, &good));
        assert!(twice.contains("'y'") && twice.contains("bound to 'x' already"), "{name}: {twice}");
        let sentence = said(good.write(&array(&[1.0])));
        assert_eq!(sentence, "'the buffer' is declared f64[3] but was given f64[1]", "{name}");
        assert!(said(good.write_bytes(&[0; 5])).contains("shape [3] holds 3 elements"), "{name}");
    }
}

#[test]
fn a_buffer_that_a_failed_run_should_have_filled_cannot_be_read() {
    let g = Graph::new();
    let index = g.input("index", [2], DType::I32);
    let program = Program::builder(&g).output("checked", index.check_index(3)).build().unwrap();
    for (name, executor) in executors() {
        let mut run = executor.compile(&program).unwrap();
        run.set(0, &Array::from_i32([2], vec![0, 5]).unwrap()).unwrap();
        let buffer = run.output_buffer(0).unwrap();
        assert!(run.run(0..1).is_err());
        let error = buffer.to_array().unwrap_err();
        assert_eq!(error.kind, ErrorKind::RunFailed, "{name}");
        assert_eq!(error.to_string(), "the run that should have filled this buffer failed; run it again first");
        assert!(run.output(0).unwrap_err().to_string().contains("has no value before"), "{name}");
        run.set(0, &Array::from_i32([2], vec![0, 1]).unwrap()).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(buffer.to_array().unwrap().to_f64(), [0.0, 1.0], "{name}");
    }
}

#[test]
fn a_buffer_in_use_is_not_lent_to_a_second_user() {
    use bilevel_graph::Access;
    for (name, executor) in executors() {
        let buffer = executor.buffer(&meta(&[3])).unwrap();
        buffer.acquire(Access::Read).unwrap();
        buffer.to_array().unwrap();
        assert_eq!(buffer.zero().unwrap_err().kind, ErrorKind::BufferBusy, "{name}");
        let mut run = executor.compile(&accumulate()).unwrap();
        run.bind_input(0, &buffer).unwrap();
        run.set(1, &array(&[1.0; 3])).unwrap();
        assert!(run.run(0..1).unwrap_err().to_string().starts_with("a buffer is in use by another run"), "{name}");
        // SAFETY: acquired above.
        unsafe { buffer.release(Access::Read, true) };
        run.run(0..1).unwrap();
        assert_eq!(buffer.to_array().unwrap().to_f64(), [1.0; 3], "{name}");
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_that_says_how_much_was_needed() {
    let cpu = Cpu::with_threads(1);
    for elements in [1 << 45, usize::MAX / 16] {
        let error = cpu.buffer(&meta(&[elements])).unwrap_err();
        assert!(
            matches!(error.kind, ErrorKind::OutOfMemory { needed, .. } if needed == 8 * elements as u64),
            "{error}"
        );
        assert!(error.to_string().contains("bytes of memory are needed"), "{error}");
    }
}

#[test]
fn a_buffer_is_read_and_written_in_parts_and_never_beyond_its_end() {
    for (name, executor) in executors() {
        // More than one thread's share, in parts that are none of it.
        let count = 700_001;
        let values: Vec<f64> = (0..count).map(|i| i as f64).collect();
        let array = Array::from_f64([count], values).unwrap();
        let buffer = executor.buffer(&meta(&[count])).unwrap();
        for (number, part) in array.bytes().chunks(3 << 20).enumerate() {
            buffer.write_part(number * (3 << 20), part).unwrap();
        }
        assert_eq!(buffer.to_array().unwrap(), array, "{name}");
        let mut bytes = vec![0; 8 * count];
        for (number, part) in bytes.chunks_mut((1 << 20) + 24).enumerate() {
            buffer.read_part(number * ((1 << 20) + 24), part).unwrap();
        }
        assert_eq!(bytes, array.bytes(), "{name}");
        buffer.write_part(8 * count, &[]).unwrap();
        let beyond = |first, end| ErrorKind::BeyondBuffer { first, end, bytes: 8 * count };
        let refused = buffer.write_part(8 * count - 7, &[1; 8]).unwrap_err().kind;
        assert_eq!(refused, beyond(8 * count - 7, 8 * count + 1), "{name}");
        let refused = buffer.read_part(usize::MAX, &mut [0; 8]).unwrap_err().kind;
        assert_eq!(refused, beyond(usize::MAX, usize::MAX), "{name}");
        assert_eq!(buffer.to_array().unwrap(), array, "{name}: what was refused changed nothing");
    }
}
