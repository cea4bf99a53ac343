//! Loops that carry values: every order in which old and new values can be read, for loops of one tile and of many tasks.

mod common;

use bilevel_cpu::Cpu;
use bilevel_graph::{DType, Executor, Graph, Program, Reference, Tensor, gradient, nn};
use common::{Dice, Inputs, assert_close, assert_same, outputs, results, set_all};

/// Outputs and carries of a program on a, b, c of one shape `[r, c]`.
struct Loop {
    outputs: Vec<Tensor>,
    carries: Vec<(Tensor, Tensor)>,
}

type Build = fn(Tensor, Tensor, Tensor) -> Loop;

fn loops() -> Vec<(&'static str, Build)> {
    vec![
        ("two values change places", |a, b, _| Loop { outputs: vec![a - b], carries: vec![(a, b), (b, a)] }),
        ("three values go round", |a, b, c| Loop { outputs: vec![], carries: vec![(a, b), (b, c), (c, a)] }),
        ("each reads the other backwards", |a, b, _| Loop {
            outputs: vec![a, b.reverse([0])],
            carries: vec![(a, a * 0.5 + b.reverse([0, 1])), (b, b * 0.5 - a.reverse([0, 1]))],
        }),
        ("old and new are both read elsewhere", |a, b, _| {
            let next = a * 0.5 + b;
            Loop {
                outputs: vec![a.sum([0]), next.reverse([1]).sin(), next.sum([1]), a.max([1]), a.transpose([1, 0])],
                carries: vec![(a, next)],
            }
        }),
        ("a delay line", |a, b, c| Loop { outputs: vec![c * 2.0], carries: vec![(a, a.cos()), (b, a), (c, b)] }),
        ("momentum", |a, b, c| {
            let slope = gradient((a * c).sin().sum_all(), &[a]).unwrap()[0].unwrap();
            let speed = b * 0.9 + slope;
            Loop { outputs: vec![slope], carries: vec![(b, speed), (a, a - speed * 0.1)] }
        }),
        ("momentum, the other way round", |a, b, c| {
            let speed = b * 0.9 + (a * c).cos();
            Loop { outputs: vec![], carries: vec![(a, a - speed * 0.1), (b, speed)] }
        }),
        ("the old value alone feeds the other", |a, b, _| Loop {
            outputs: vec![],
            carries: vec![(a, a * 0.5 + 1.0), (b, b + a.sum_all() * 1e-3)],
        }),
        ("the new value feeds the other", |a, b, _| {
            let next = a * 0.5 + 1.0;
            Loop {
                outputs: vec![],
                carries: vec![(a, next), (b, b * 0.5 + next.mean([0]) - a.mean([1]).unsqueeze([1]))],
            }
        }),
        ("rows are made of the old value", |a, b, _| Loop {
            outputs: vec![a.sum([1])],
            carries: vec![(a, nn::softmax(a + b, 1)), (b, b - b.mean([1]).unsqueeze([1]))],
        }),
        ("columns are made of the old value", |a, b, _| Loop {
            outputs: vec![],
            carries: vec![(a, a - a.mean([0])), (b, nn::softmax(b, 0))],
        }),
        ("a shift register", |a, b, _| {
            let rows = a.dim(0);
            let shifted = a.slice(0, 1, rows).concat(&[b.slice(0, 0, 1)], 0);
            Loop { outputs: vec![shifted], carries: vec![(a, shifted), (b, b.slice(0, 1, rows).pad(0, 0, 1))] }
        }),
        ("one next value for two", |a, b, c| {
            let next = a * b + c;
            Loop { outputs: vec![next], carries: vec![(a, next), (b, next)] }
        }),
        ("next values that nothing computes", |a, b, c| Loop {
            outputs: vec![a, b, c],
            carries: vec![(a, a.constant_like(0.5, a.shape())), (b, a.iota_like(1)), (c, c)],
        }),
        ("an input that stays", |a, b, c| Loop { outputs: vec![a], carries: vec![(a, c), (b, c.reverse([0]))] }),
        ("a value of the prologue", |a, b, c| {
            let once = c.sin() + c.sum([0]);
            Loop { outputs: vec![once], carries: vec![(a, once), (b, b + once.reverse([1]))] }
        }),
        ("products of old and new", |a, b, _| {
            let next = a.matmul(a.t()).matmul(b) * 1e-3;
            let back = b.matmul(next.t()).matmul(a) * 1e-3;
            Loop { outputs: vec![], carries: vec![(a, next + a * 0.1), (b, back - b.reverse([0]))] }
        }),
        ("running sums of the old value", |a, b, _| Loop {
            outputs: vec![a.cumsum(0) * 1e-2],
            carries: vec![(a, a.cumsum(1) * 1e-2), (b, a + b.cumsum(0) * 1e-2)],
        }),
        ("a choice by the old value", |a, b, _| {
            let mask = a.less(b);
            Loop { outputs: vec![mask], carries: vec![(a, mask.select(b, a * 0.5)), (b, mask.select(a, b * 0.5))] }
        }),
        ("masks made again for each reader", |a, b, _| {
            let mask = a.greater(0.1);
            let next = mask.select(a * 0.5, a + 0.3);
            Loop {
                outputs: vec![mask.sum([0]), mask.transpose([1, 0])],
                carries: vec![(a, next), (b, b * mask + next)],
            }
        }),
    ]
}

fn check(rows: usize, columns: usize, dtype: DType, tolerance: f64) {
    let cpus = [1, 2, 3].map(Cpu::with_threads);
    for (name, build) in loops() {
        let g = Graph::new();
        let [a, b, c] = ["a", "b", "c"].map(|name| g.input(name, [rows, columns], dtype));
        let made = build(a, b, c);
        let mut builder = Program::builder(&g).keep_input(a).keep_input(b).keep_input(c);
        for (i, &output) in made.outputs.iter().enumerate() {
            builder = builder.output(i.to_string(), output);
        }
        for (input, next) in made.carries {
            builder = builder.carry(input, next);
        }
        let program = builder.build().unwrap();
        let mut dice = Dice::new(rows as u64);
        let inputs: Inputs =
            ["a", "b", "c"].map(|name| (name.to_string(), dice.array(&[rows, columns], dtype))).to_vec();
        let what = format!("{name}, [{rows}, {columns}] of {dtype}");
        let found = outputs(&cpus[0], &program, &inputs, 4).unwrap();
        if rows * columns < 10_000 {
            assert_close(&what, &found, &outputs(&Reference, &program, &inputs, 4).unwrap(), tolerance);
        } else {
            // The reference would take long for running sums; one step is enough to see a wrong order.
            let step = outputs(&cpus[0], &program, &inputs, 1).unwrap();
            if name != "running sums of the old value" && name != "products of old and new" {
                assert_close(&what, &step, &outputs(&Reference, &program, &inputs, 1).unwrap(), tolerance);
            }
        }
        for cpu in &cpus[1..] {
            let mut run = cpu.compile(&program).unwrap();
            set_all(&mut *run, &inputs).unwrap();
            for part in [0..1, 1..3, 3..4] {
                run.run(part).unwrap();
            }
            assert_same(&what, &results(&*run).unwrap(), &found);
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
        ("s".into(), dice.array(&[], DType::F64)),
        ("t".into(), dice.array(&[], DType::F64)),
        ("x".into(), dice.array(&[50, 20], DType::F64)),
    ];
    let expected = outputs(&Reference, &program, &inputs, 6).unwrap();
    assert_same("scalars", &outputs(&Cpu::with_threads(2), &program, &inputs, 6).unwrap(), &expected);
}
