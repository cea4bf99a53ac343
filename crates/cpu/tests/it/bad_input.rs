//! What a person gets wrong: missing and misshapen values, indices out of range, empty tensors, numbers that are none, and
//! executors used from several threads.

use crate::common::assert_same;
use bilevel_cpu::{Cpu, CpuRun};
use bilevel_graph::conformance::{Dice, outputs, results, set_all};
use bilevel_graph::{
    Array, DType, Error, ErrorKind, Executor, Graph, Program, Reference, Runnable, Tensor, WindowDims, gradient,
};

fn f64s(shape: &[usize], values: &[f64]) -> Array {
    Array::from_f64(shape, values.to_vec()).unwrap()
}

fn program_of(g: &Graph, outputs: &[Tensor]) -> Program {
    let builder = Program::builder(g).outputs("output ", outputs.iter().copied());
    builder.build().unwrap()
}

/// The outputs of one step, checked to be those of the reference.
#[track_caller]
fn evaluated(g: &Graph, results: &[Tensor], inputs: &[(&str, Array)]) -> Vec<Array> {
    let program = program_of(g, results);
    let inputs = inputs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let expected = outputs(&Reference, &program, &inputs, 1).unwrap();
    for threads in [1, 2] {
        assert_same("cpu", &outputs(&Cpu::with_threads(threads), &program, &inputs, 1).unwrap(), &expected);
    }
    expected
}

#[test]
fn a_missing_input_is_named_and_can_be_set_afterwards() {
    let g = Graph::new();
    let (x, y) = (g.input("first", [2], DType::F64), g.input("second", [2], DType::F64));
    let program = program_of(&g, &[x + y]);
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    run.set(program.input("first").unwrap(), &f64s(&[2], &[1.0, 2.0])).unwrap();
    let error = run.run(0..1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::MissingInput { name: "second".into() });
    let mut into = Array::zeros([2], DType::F64);
    let error = run.read_input(program.input("second").unwrap(), &mut into).unwrap_err();
    assert_eq!(error.kind, ErrorKind::MissingInput { name: "second".into() });
    run.set(program.input("second").unwrap(), &f64s(&[2], &[10.0, 20.0])).unwrap();
    run.run(0..1).unwrap();
    assert_eq!(run.output(0).unwrap().to_f64(), [11.0, 22.0]);
}

#[test]
fn wrong_shapes_types_and_numbers_of_ports_are_refused_and_change_nothing() {
    let g = Graph::new();
    let x = g.input("x", [2, 3], DType::F32);
    let program = program_of(&g, &[x * 2.0]);
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    let value = Array::full([2, 3], 4.0, DType::F32);
    run.set(0, &value).unwrap();
    for wrong in [Array::zeros([3, 2], DType::F32), Array::zeros([6], DType::F32), Array::zeros([2, 3], DType::F64)] {
        let expected = (DType::F32, vec![2, 3]);
        let found = (wrong.dtype(), wrong.shape().to_vec());
        let kind = ErrorKind::WrongValue { name: "x".into(), expected: expected.clone(), found: found.clone() };
        assert_eq!(run.set(0, &wrong).unwrap_err().kind, kind);
        assert_eq!(run.read_input(0, &mut wrong.clone()).unwrap_err().kind, kind);
        run.run(0..1).unwrap();
        let kind = ErrorKind::WrongValue { name: "output 0".into(), expected, found };
        assert_eq!(run.read(0, &mut wrong.clone()).unwrap_err().kind, kind);
        assert_eq!(run.output(0).unwrap(), Array::full([2, 3], 8.0, DType::F32));
    }
    for error in [
        run.set(1, &value).unwrap_err(),
        run.read(1, &mut value.clone()).unwrap_err(),
        run.output(7).unwrap_err(),
        run.input(7).unwrap_err(),
    ] {
        assert!(matches!(error.kind, ErrorKind::UnknownName { .. }), "{error}");
    }
}

#[test]
fn an_output_read_before_the_first_run_is_refused_by_name() {
    let g = Graph::new();
    let x = g.input("x", [2], DType::F64);
    let program = program_of(&g, &[x + 1.0]);
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    run.set(0, &f64s(&[2], &[1.0, 2.0])).unwrap();
    assert_eq!(run.output(0).unwrap_err().kind, ErrorKind::NotRun { name: "output 0".into() });
    run.run(3..3).unwrap();
    assert_eq!(run.output(0).unwrap_err().kind, ErrorKind::NotRun { name: "output 0".into() });
    run.run(0..1).unwrap();
    assert_eq!(run.output(0).unwrap().to_f64(), [2.0, 3.0]);
}

#[test]
fn an_output_keeps_the_value_of_the_last_run_when_inputs_are_set_anew() {
    let g = Graph::new();
    let (x, y) = (g.input("x", [2, 3], DType::F64), g.input("y", [2], DType::F64));
    let program = Program::builder(&g)
        .output("x", x)
        .output("turned", x.t())
        .output("part", x.slice(1, 1, 2))
        .output("y", y)
        .output("sum", x.sum([1]) + y)
        .carry(y, y * 2.0)
        .build()
        .unwrap();
    let (x, other) = (f64s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Array::full([2, 3], 9.0, DType::F64));
    for executor in [&Cpu::with_threads(1) as &dyn Executor, &Reference] {
        let mut run = executor.compile(&program).unwrap();
        run.set(0, &x).unwrap();
        run.set(1, &f64s(&[2], &[10.0, 20.0])).unwrap();
        run.run(0..1).unwrap();
        run.set(0, &other).unwrap();
        run.set(1, &f64s(&[2], &[0.0, 0.0])).unwrap();
        assert_eq!(run.output(0).unwrap(), x);
        assert_eq!(run.output(1).unwrap().to_f64(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(run.output(2).unwrap().to_f64(), [2.0, 5.0]);
        assert_eq!(run.output(3).unwrap().to_f64(), [10.0, 20.0]);
        assert_eq!(run.output(4).unwrap().to_f64(), [16.0, 35.0]);
        assert_eq!(run.input(0).unwrap(), other);
        run.run(0..1).unwrap();
        assert_eq!(run.output(0).unwrap(), other);
    }
}

#[test]
fn integers_wrap_in_sums_of_every_kind() {
    let g = Graph::new();
    let (x, i) = (g.input("x", [3, 70], DType::I32), g.input("i", [3], DType::I32));
    let results =
        [x.sum([0]), x.sum([1]), x.cumsum(0), x.cumsum(1), x.cumsum_from(1, true), x.scatter_add(i, 0, 2), x * x, -x];
    let mut values = vec![i32::MAX; 210];
    values[70..140].fill(i32::MIN);
    let inputs =
        [("x", Array::from_i32([3, 70], values).unwrap()), ("i", Array::from_i32([3], vec![1, 0, 1]).unwrap())];
    let found = evaluated(&g, &results, &inputs);
    // 2³¹ − 1 twice and −2³¹, less 2³².
    assert_eq!(found[0].to_f64()[0], 2147483646.0);
}

#[test]
fn an_empty_range_of_steps_does_nothing_even_where_it_is_huge() {
    let g = Graph::new();
    let x = g.input("x", [2], DType::F64);
    let program = Program::builder(&g).output("y", x + 1.0).carry(x, x * 2.0).build().unwrap();
    for executor in [&Cpu::with_threads(2) as &dyn Executor, &Reference] {
        let mut run = executor.compile(&program).unwrap();
        run.run(7..7).unwrap();
        run.set(0, &f64s(&[2], &[1.0, 2.0])).unwrap();
        run.run(u32::MAX..u32::MAX).unwrap();
        #[allow(clippy::reversed_empty_ranges)]
        run.run(u32::MAX..0).unwrap();
        assert_eq!(run.input(0).unwrap().to_f64(), [1.0, 2.0]);
        run.run(u32::MAX - 1..u32::MAX).unwrap();
        assert_eq!(run.input(0).unwrap().to_f64(), [2.0, 4.0]);
    }
}

/// A program that fails for a bad index, on inputs named x and i; and the line that makes it.
type Failing = fn(Tensor, Tensor) -> (Tensor, u32);

fn by_gather(x: Tensor, i: Tensor) -> (Tensor, u32) {
    (x.take(i), line!())
}

fn by_scatter(x: Tensor, i: Tensor) -> (Tensor, u32) {
    (x.slice(0, 0, 3).scatter_add(i, 0, 4), line!())
}

fn by_check(x: Tensor, i: Tensor) -> (Tensor, u32) {
    (x.slice(0, 0, 3) * i.check_index(4).convert(DType::F64).unsqueeze([1]), line!())
}

#[test]
fn an_index_out_of_range_names_the_line_and_the_run_can_be_repeated() {
    let cases: [(&str, Failing); 3] = [("gather", by_gather), ("scatter_add", by_scatter), ("check_index", by_check)];
    for (name, build) in cases {
        for threads in [1, 2] {
            let g = Graph::new();
            let (x, i) = (g.input("x", [4, 2], DType::F64), g.input("i", [3], DType::I32));
            let (y, line) = build(x, i);
            let program = Program::builder(&g).output("y", y.sum_all()).carry(x, x + y.sum_all()).build().unwrap();
            let mut run = Cpu::with_threads(threads).compile(&program).unwrap();
            let start = f64s(&[4, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
            for bad in [4, -1, i32::MAX, i32::MIN] {
                run.set(0, &start).unwrap();
                run.set(1, &Array::from_i32([3], vec![3, bad, 0]).unwrap()).unwrap();
                let error = run.run(0..2).unwrap_err();
                let kind = ErrorKind::IndexOutOfRange { operation: name.into(), index: bad as i64, limit: 4 };
                assert_eq!(error.kind, kind);
                let place = error.location.unwrap();
                assert_eq!((place.file().ends_with("bad_input.rs"), place.line()), (true, line), "{error}");
                assert_eq!(run.input(0).unwrap(), start, "{name}: a failed step must not change what it carries");
                assert!(run.output(0).is_err(), "{name}: there is no output of a failed run");

                run.set(1, &Array::from_i32([3], vec![3, 0, 0]).unwrap()).unwrap();
                run.run(0..2).unwrap();
                let inputs =
                    vec![("x".into(), start.clone()), ("i".into(), Array::from_i32([3], vec![3, 0, 0]).unwrap())];
                let expected = outputs(&Reference, &program, &inputs, 2).unwrap();
                assert_same(name, &[run.output(0).unwrap(), run.input(0).unwrap()], &expected);
            }
        }
    }
}

#[test]
fn a_step_that_fails_late_leaves_every_carried_input_as_it_was() {
    // The update of x needs no index; the failing gather reads the updated value.
    let g = Graph::new();
    let (x, i) = (g.input("x", [300], DType::F64), g.input("i", [2], DType::I32));
    let next = x * 2.0 + 1.0;
    let program = Program::builder(&g).output("y", next.take(i)).carry(x, next).carry(i, i + 100.0).build().unwrap();
    let start = Array::full([300], 1.0, DType::F64);
    for executor in [&Cpu::with_threads(1) as &dyn Executor, &Cpu::with_threads(2), &Reference] {
        let mut run = executor.compile(&program).unwrap();
        run.set(0, &start).unwrap();
        run.set(1, &Array::from_i32([2], vec![0, 150]).unwrap()).unwrap();
        // Indices 0 and 150, then 100 and 250, then 200 and 350.
        let error = run.run(0..5).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::IndexOutOfRange { index: 350, .. }), "{error}");
        assert_eq!(run.input(0).unwrap(), Array::full([300], 7.0, DType::F64));
        assert_eq!(run.input(1).unwrap().to_f64(), [200.0, 350.0]);
    }
}

#[test]
fn the_first_of_several_bad_indices_is_reported_whatever_the_threads() {
    let g = Graph::new();
    let count = 200_000;
    let (x, i) = (g.input("x", [10], DType::F64), g.input("i", [count], DType::I32));
    let updates = g.input("u", [count], DType::F64);
    let programs = [program_of(&g, &[x.take(i)]), program_of(&g, &[updates.scatter_add(i, 0, 10)])];
    let mut indices = vec![3; count];
    for bad in (777..count).step_by(501) {
        indices[bad] = 1_000_000 + bad as i32;
    }
    let inputs = vec![
        ("x".into(), Array::zeros([10], DType::F64)),
        ("u".into(), Array::zeros([count], DType::F64)),
        ("i".into(), Array::from_i32([count], indices).unwrap()),
    ];
    for program in programs {
        for threads in [1, 2, 3, 3, 3] {
            let error: Error = outputs(&Cpu::with_threads(threads), &program, &inputs, 1).unwrap_err();
            assert!(matches!(error.kind, ErrorKind::IndexOutOfRange { index: 1_000_777, .. }), "{error}");
        }
    }
}

#[test]
fn more_axes_than_a_loop_can_walk_are_refused_or_computed_but_never_wrong() {
    let g = Graph::new();
    let value = Dice::new(1).array(&[1 << 14], DType::F64).unwrap();
    let deep = g.input("x", [1 << 14], DType::F64).reshape([2; 14]);
    let odd: Vec<usize> = (0..14).step_by(2).collect();
    let backwards: Vec<usize> = (0..14).rev().collect();
    let inputs = vec![("x".to_string(), value)];
    for result in [
        deep.sum(&odd),
        deep.max(&odd),
        deep.transpose(&backwards),
        deep.transpose(&backwards).exp(),
        deep.transpose(&backwards).sum([0, 2, 4, 13]),
        deep.transpose(&backwards).reshape([1 << 14]) * 2.0,
        deep.argmax(5),
        deep.cumsum(3),
        deep.pad(2, 1, 0),
        deep.concat(&[deep.reverse(&odd)], 9),
        deep.sum(&odd).broadcast(odd.iter().map(|a| a + 1).collect::<Vec<_>>(), [2; 14]),
    ] {
        let program = program_of(&g, &[result]);
        let expected = outputs(&Reference, &program, &inputs, 1).unwrap();
        match outputs(&Cpu::with_threads(2), &program, &inputs, 1) {
            Ok(found) => crate::common::assert_close("deep", &found, &expected, 1e-12),
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Unsupported { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("axes") && text.contains("bad_input.rs"), "{text}");
            }
        }
    }
    let twelve = g.input("y", [1 << 12], DType::F64).reshape([2; 12]).transpose((0..12).rev().collect::<Vec<_>>());
    let inputs = vec![("y".to_string(), Dice::new(2).array(&[1 << 12], DType::F64).unwrap())];
    let program = program_of(&g, &[twelve * 2.0, twelve.max([0, 2, 4, 6, 8, 10])]);
    let expected = outputs(&Reference, &program, &inputs, 1).unwrap();
    assert_same("twelve axes", &outputs(&Cpu::with_threads(2), &program, &inputs, 1).unwrap(), &expected);
}

#[test]
fn a_program_too_large_for_memory_is_refused_before_anything_is_touched() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let huge = |k: f64| (x * k).broadcast([], [1 << 59]).sin();
    // Five values of 2⁶² bytes, alive together: their sum does not fit a machine word.
    let parts: Vec<Tensor> = (1..=5).map(|k| huge(k as f64).cumsum(0)).collect();
    let sum = parts.iter().copied().reduce(|a, b| a * b).unwrap();
    for result in [sum.cumsum(0), huge(1.0).cumsum(0)] {
        let error = Cpu::with_threads(1).compile(&program_of(&g, &[result])).err().unwrap();
        assert!(error.to_string().contains("bytes"), "{error}");
    }
}

#[test]
fn tensors_without_elements_go_through_every_operation() {
    for g in [Graph::new(), Graph::without_simplification()] {
        empty_tensors(&g);
    }
}

fn empty_tensors(g: &Graph) {
    let e = g.input("e", [0, 3], DType::F64);
    let x = g.input("x", [2, 3], DType::F64);
    let none = g.input("none", [0], DType::I32);
    let results = [
        e.exp() + e,
        e.sum([0]),
        e.sum([1]),
        e.sum_all(),
        e.max([0]),
        e.max_or_rows(),
        e.reshape([3, 0]),
        e.reshape([0]).reshape([5, 0, 2]) * 2.0,
        e.reverse([0]).transpose([1, 0]) + 1.0,
        e.concat(&[x, e], 0),
        e.pad(0, 1, 1),
        e.broadcast([1, 2], [2, 0, 3]).sin(),
        e.t().matmul(e),
        e.matmul(x.t()),
        x.matmul(e.t()),
        x.take(none),
        x.take(none).scatter_add(none, 0, 4),
        e.cumsum(1),
        e.cumsum(0),
        e.argmax(1),
        x.slice(0, 1, 1) * 2.0,
        none.check_index(0),
        e.less(0.0).select(e, 1.0),
        e.convert(DType::I32),
        g.iota([0, 2], 0, DType::F64),
        g.iota([0, 2], 1, DType::F64) * 2.0,
    ];
    let results: Vec<Tensor> = results.into_iter().map(|t| t.check().unwrap()).collect();
    let inputs = [
        ("e", Array::zeros([0, 3], DType::F64)),
        ("x", f64s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("none", Array::zeros([0], DType::I32)),
    ];
    let found = evaluated(g, &results, &inputs);
    assert_eq!(found[4].to_f64(), [f64::NEG_INFINITY; 3]);
}

trait MaxOrRows {
    fn max_or_rows(self) -> Tensor;
}

impl MaxOrRows for Tensor {
    /// The largest of each row, then of all rows: −∞ of nothing.
    fn max_or_rows(self) -> Tensor {
        self.max([1]).max([0])
    }
}

#[test]
fn numbers_that_are_none_flow_through_as_in_the_reference() {
    let g = Graph::new();
    for (rows, columns) in [(2, 3), (3, 40), (40, 3), (2, 700), (5, 5000)] {
        let x = g.input(format!("x{rows} {columns}"), [rows, columns], DType::F64);
        let image = x.reshape([1, 1, rows, columns]);
        let dims = WindowDims { size: [2, 2], stride: [1, 1], padding: [(0, 0); 2] };
        let paired = WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 0); 2] };
        let results = [
            x.max([1]),
            x.max([0]),
            x.max([0, 1]),
            x.argmax(1),
            x.argmax(0),
            x.maximum(0.5),
            x.minimum(x.reverse([1])),
            image.window_argmax(dims),
            image.window_argmax(paired),
            x.convert(DType::I32),
            x.convert(DType::F32),
            x.less(0.0),
            x.equal(x),
            x.not_equal(x),
            x.sign(),
            x.select(1.0, 2.0),
            x.abs(),
            x.floor(),
            x.floor().sum([1]),
            x.floor().sum([0]),
            x.floor().sum_all(),
            x.take(g.constant(1.0, [2], DType::I32)),
            x.sqrt().sign(),
            x.exp().sign(),
            x.log().sign(),
            x.tanh().sign(),
            x.sin().sign(),
            x.erf().sign(),
            x.sigmoid().sign(),
        ];
        for places in [vec![0], vec![1, 4], vec![2, 5], vec![columns * rows - 1], vec![]] {
            let mut values = Dice::new(rows as u64).array(&[rows, columns], DType::F64).unwrap().to_f64();
            for (k, &place) in places.iter().enumerate() {
                values[place] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][(k + places[0]) % 3];
            }
            if places.len() == 1 {
                values[places[0]] = f64::NAN;
            }
            let name = format!("x{rows} {columns}");
            let found = evaluated(&g, &results, &[(&name, f64s(&[rows, columns], &values))]);
            if places.len() == 1 {
                let (row, column) = (places[0] / columns, places[0] % columns);
                assert!(found[0].to_f64()[row].is_nan() && found[1].to_f64()[column].is_nan());
                assert_eq!(found[3].to_f64()[row], column as f64, "the largest is the NaN");
                assert_eq!(found[4].to_f64()[column], row as f64, "the largest is the NaN");
                assert!(found[18].to_f64()[row].is_nan() && found[20].item().unwrap().is_nan());
            }
        }
    }
}

#[test]
fn none_or_many_threads_are_accepted() {
    let g = Graph::new();
    let x = g.input("x", [1000, 300], DType::F64);
    let program = program_of(&g, &[x.sin().sum([0]), x.exp().sum([1])]);
    let inputs = vec![("x".to_string(), Dice::new(4).array(&[1000, 300], DType::F64).unwrap())];
    let expected = outputs(&Cpu::with_threads(0), &program, &inputs, 1).unwrap();
    for threads in [1, 7, 16] {
        assert_eq!(outputs(&Cpu::with_threads(threads), &program, &inputs, 1).unwrap(), expected);
    }
    let many: Vec<Cpu> = (0..20).map(|_| Cpu::with_threads(3)).collect();
    let mut runs: Vec<CpuRun> = many.iter().map(|cpu| cpu.plan(&program).unwrap()).collect();
    drop(many);
    for run in &mut runs {
        run.set(0, &inputs[0].1).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(run.output(0).unwrap(), expected[0]);
    }
}

/// A chain whose steps depend on one another, so that a wrong interleaving cannot go unseen.
fn chain(g: &Graph, n: usize) -> Program {
    let x = g.input("x", [n, 64], DType::F64);
    let w = g.input("w", [64, 64], DType::F64);
    let loss = x.matmul(w).tanh().square().sum_all();
    let slope = gradient(loss, &[w]).unwrap()[0].unwrap();
    Program::builder(g).output("loss", loss).carry(w, w - slope * 1e-3).build().unwrap()
}

#[test]
fn a_run_can_be_sent_to_another_thread_and_back() {
    let g = Graph::new();
    let program = chain(&g, 500);
    let mut dice = Dice::new(9);
    let inputs = vec![
        ("x".into(), dice.array(&[500, 64], DType::F64).unwrap()),
        ("w".into(), dice.array(&[64, 64], DType::F64).unwrap()),
    ];
    let expected = outputs(&Cpu::with_threads(1), &program, &inputs, 6).unwrap();
    let cpu = Cpu::with_threads(2);
    let mut run = cpu.plan(&program).unwrap();
    set_all(&mut run, &inputs).unwrap();
    run.run(0..2).unwrap();
    let mut run = std::thread::spawn(move || {
        run.run(2..4).unwrap();
        run
    })
    .join()
    .unwrap();
    run.run(4..6).unwrap();
    assert_same("sent", &results(&run).unwrap(), &expected);
}

#[test]
fn two_runs_that_share_an_executor_run_at_once_and_do_not_disturb_each_other() {
    let g = Graph::new();
    let program = chain(&g, 700);
    let cpu = Cpu::with_threads(3);
    let given = |seed: u64| {
        let mut dice = Dice::new(seed);
        vec![
            ("x".to_string(), dice.array(&[700, 64], DType::F64).unwrap()),
            ("w".to_string(), dice.array(&[64, 64], DType::F64).unwrap()),
        ]
    };
    let expected: Vec<_> = (0..4).map(|s| outputs(&Cpu::with_threads(1), &program, &given(s), 12).unwrap()).collect();
    let (program, cpu) = (&program, &cpu);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn(move || {
                    let mut run = cpu.plan(program).unwrap();
                    set_all(&mut run, &given(seed)).unwrap();
                    for step in 0..12 {
                        run.run(step..step + 1).unwrap();
                    }
                    results(&run).unwrap()
                })
            })
            .collect();
        for (thread, expected) in threads.into_iter().zip(&expected) {
            assert_same("at once", &thread.join().unwrap(), expected);
        }
    });
}

#[test]
fn a_step_number_that_is_no_i32_is_refused_and_changes_nothing() {
    let g = Graph::new();
    for shape in [vec![], vec![3]] {
        let x = g.input(format!("x {}", shape.len()), &shape, DType::F64);
        let next = x + g.step().convert(DType::F64).broadcast([], &shape);
        let program = Program::builder(&g).output("next", next).carry(x, next).build().unwrap();
        let mut run = Cpu::with_threads(1).compile(&program).unwrap();
        let input = run.program().carries[0].input;
        run.set(input, &Array::zeros(&shape, DType::F64)).unwrap();
        run.run(i32::MAX as u32..1 << 31).unwrap();
        let before = run.input(input).unwrap();
        assert_eq!(before.item(), Some(i32::MAX as f64));
        let error = run.run(5..(1 << 31) + 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::StepTooLarge { step: 1 << 31 });
        assert_eq!(run.input(input).unwrap(), before);
        assert_eq!(run.output(0).unwrap(), before, "a run that was refused leaves the last output");
    }
}

#[test]
fn an_output_too_large_for_any_memory_is_an_error() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let program = program_of(&g, &[x.sin().broadcast([], [1 << 50])]);
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    run.set(0, &Array::scalar(1.0, DType::F64)).unwrap();
    let error = run.run(0..1).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::OutOfMemory { needed, .. } if needed == 8 << 50), "{error}");
}
