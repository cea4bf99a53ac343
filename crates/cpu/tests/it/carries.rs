//! Loops that carry values: every order in which old and new values can be read, for loops of one tile and of many tasks.

use crate::common::{assert_close, assert_same};
use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{self, Dice, outputs, results, set_all};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};

fn check(rows: usize, columns: usize, dtype: DType, tolerance: f64) {
    let cpus = [1, 2, 3].map(Cpu::with_threads);
    for case in conformance::carries(rows, columns, dtype).unwrap() {
        let (program, inputs, what) = (&case.program, &case.inputs, &case.name);
        let found = outputs(&cpus[0], program, inputs, 4).unwrap();
        if rows * columns < 10_000 {
            assert_close(what, &found, &case.expected().unwrap(), tolerance);
        } else {
            // The reference would take long for running sums; one step is enough to see a wrong order.
            let step = outputs(&cpus[0], program, inputs, 1).unwrap();
            if !what.starts_with("running sums of the old value") && !what.starts_with("products of old and new") {
                assert_close(what, &step, &outputs(&Reference, program, inputs, 1).unwrap(), tolerance);
            }
        }
        for cpu in &cpus[1..] {
            let mut run = cpu.compile(program).unwrap();
            set_all(&mut *run, inputs).unwrap();
            for part in [0..1, 1..3, 3..4] {
                run.run(part).unwrap();
            }
            assert_same(what, &results(&*run).unwrap(), &found);
        }
    }
}

#[test]
fn every_way_to_carry_is_right_for_small_loops() {
    for (rows, columns) in [(2, 3), (8, 8), (5, 13)] {
        check(rows, columns, DType::F64, 1e-12);
        check(rows, columns, DType::F32, 1e-5);
    }
}

#[test]
fn every_way_to_carry_is_right_for_loops_of_several_tiles_and_tasks() {
    check(40, 70, DType::F64, 1e-12);
    check(3, 1100, DType::F64, 1e-12);
    check(600, 2, DType::F64, 1e-12);
    check(200, 400, DType::F64, 1e-12);
}

#[test]
fn scalars_carried_beside_tensors_are_right() {
    let g = Graph::new();
    let (s, t) = (g.input("s", [], DType::F64), g.input("t", [], DType::F64));
    let x = g.input("x", [50, 20], DType::F64);
    let program = Program::builder(&g)
        .output("s", s)
        .carry(s, t)
        .carry(t, s + x.max([0, 1]))
        .carry(x, x * s - t * 0.1)
        .build()
        .unwrap();
    let mut dice = Dice::new(8);
    let inputs = vec![
        ("s".into(), dice.array(&[], DType::F64).unwrap()),
        ("t".into(), dice.array(&[], DType::F64).unwrap()),
        ("x".into(), dice.array(&[50, 20], DType::F64).unwrap()),
    ];
    let expected = outputs(&Reference, &program, &inputs, 6).unwrap();
    assert_same("scalars", &outputs(&Cpu::with_threads(2), &program, &inputs, 6).unwrap(), &expected);
}

#[test]
fn a_row_of_a_carried_table_is_changed_in_place_and_nothing_else_of_the_table_is_touched() {
    let g = Graph::new();
    let (table, at) = (g.input("table", [1000, 300], DType::F32), g.input("at", [], DType::I32));
    let next = table + (table.take(at).sin() - table.take(at)).scatter_add(at, 0, 1000);
    let run = Cpu::with_threads(2).plan(&Program::builder(&g).carry(table, next).build().unwrap()).unwrap();
    let steps = run.describe();
    assert!(steps.contains("scatter-add IndexDims { batch: 1, n: 1000, k: 1, inner: 300 }, in place"), "{steps}");
    let others: Vec<&str> = steps.lines().filter(|line| !line.contains("n: 1000")).collect();
    assert!(
        others.len() == 2 && others[0].contains("index check of 1") && others[1].contains("loop over 300"),
        "{steps}"
    );
    assert!(run.memory_bytes() < 1000 * 300 * 4 + 3000, "no memory for another table");
}

#[test]
fn rows_that_a_carried_table_has_not_are_refused_in_the_name_of_the_scatter_that_asks_for_them() {
    let g = Graph::new();
    let (table, at) = (g.input("table", [4], DType::F64), g.input("at", [2], DType::I32));
    let next = table + g.input("row", [2], DType::F64).scatter_add(at, 0, 4);
    let program = Program::builder(&g).carry(table, next).build().unwrap();
    let refused = |executor: &dyn Executor| {
        let mut run = executor.compile(&program).unwrap();
        let inputs = vec![
            ("table".to_string(), Array::from_f64([4], vec![1.0, 2.0, 3.0, 4.0]).unwrap()),
            ("at".to_string(), Array::from_i32([2], vec![1, 4]).unwrap()),
            ("row".to_string(), Array::from_f64([2], vec![5.0, 6.0]).unwrap()),
        ];
        set_all(&mut *run, &inputs).unwrap();
        let error = run.run(0..1).unwrap_err();
        (error.kind, error.location)
    };
    assert_eq!(refused(&Cpu::with_threads(1)), refused(&Reference));
}
