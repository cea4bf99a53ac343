//! Random draws are the same bits on the reference and on the CPU, for every size, type, team and split of the loop.

use crate::common::assert_same;
use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{Dice, Inputs, outputs, results, set_all};
use bilevel_graph::{Array, DType, Executor, Graph, Program, RandomKind, Reference, Tensor, random::seed_key};

const KINDS: [(RandomKind, DType); 5] = [
    (RandomKind::Normal, DType::F32),
    (RandomKind::Normal, DType::F64),
    (RandomKind::Uniform, DType::F32),
    (RandomKind::Uniform, DType::F64),
    (RandomKind::Bits, DType::I32),
];

fn key(seed: u64) -> Inputs {
    vec![("key".into(), Array::from_i32([2], seed_key(seed).to_vec()).unwrap())]
}

#[test]
fn draws_of_every_size_are_the_same_bits_as_in_the_reference() {
    let cpus = [1, 2, 3].map(Cpu::with_threads);
    let mut shapes: Vec<Vec<usize>> = (0..70).map(|n| vec![n]).collect();
    shapes.extend([vec![], vec![3, 5], vec![2, 1, 7], vec![1000], vec![4, 4099], vec![90_001]]);
    for (number, shape) in shapes.iter().enumerate() {
        let g = Graph::new();
        let key_input = g.input("key", [2], DType::I32);
        let mut builder = Program::builder(&g);
        for (i, (kind, dtype)) in KINDS.into_iter().enumerate() {
            let draw = key_input.random(g.step(), kind, number as u32, shape, dtype);
            builder = builder.output(format!("draw {i}"), draw);
        }
        let program = builder.build().unwrap();
        for steps in [1, 3] {
            let inputs = key(number as u64);
            let expected = outputs(&Reference, &program, &inputs, steps).unwrap();
            for cpu in &cpus {
                assert_eq!(outputs(cpu, &program, &inputs, steps).unwrap(), expected, "{shape:?}, {steps} steps");
            }
        }
    }
}

#[test]
fn draws_inside_fused_loops_and_with_computed_keys_and_counters_are_the_same_bits() {
    let g = Graph::new();
    let key_input = g.input("key", [2], DType::I32);
    let step = g.step();
    let x = g.input("x", [2, 5000], DType::F64);
    // Keys and counters from every kind of group: a row reduction, a scalar chain, a view, a constant.
    let rows = x.argmax(1);
    let keys = [key_input, key_input.reverse([0]), key_input * 3.0 + 1.0, rows, rows + key_input];
    let counters = [step, step * 7.0 + 2.0, g.scalar(5.0, DType::I32), key_input.index(0, 1), rows.sum_all()];
    let mut results: Vec<Tensor> = vec![];
    for (i, &key) in keys.iter().enumerate() {
        for (j, &counter) in counters.iter().enumerate() {
            let stream = (i * 10 + j) as u32;
            for shape in [vec![], vec![2], vec![2, 5000], vec![64]] {
                results.push(key.random(counter, RandomKind::Uniform, stream, &shape, DType::F64) * 2.0 - 1.0);
                results.push(key.random(counter, RandomKind::Bits, stream, &shape, DType::I32).maximum(0.0));
            }
        }
    }
    // In the loop that reduces x too, and as a row value of it.
    let row_noise = rows.random(step, RandomKind::Normal, 1, [2], DType::F64);
    results.push(x + row_noise.unsqueeze([1]));
    results.push(rows.random(rows.max([0]), RandomKind::Normal, 2, [2], DType::F64));
    let builder = Program::builder(&g).outputs("", results.iter().copied());
    let program = builder.build().unwrap();
    let mut inputs = key(77);
    inputs.push(("x".into(), Dice::new(3).array(&[2, 5000], DType::F64).unwrap()));
    let expected = outputs(&Reference, &program, &inputs, 2).unwrap();
    for threads in [1, 2, 3] {
        assert_same("computed", &outputs(&Cpu::with_threads(threads), &program, &inputs, 2).unwrap(), &expected);
    }
}

#[test]
fn a_key_that_the_loop_of_long_rows_computes_is_whole_before_the_first_draw() {
    let g = Graph::new();
    let x = g.input("x", [2, 5000], DType::F64);
    let rows = x.argmax(1);
    let draw = rows.random(g.scalar(3.0, DType::I32), RandomKind::Bits, 1, [2], DType::I32);
    let program = Program::builder(&g).output("draw", draw).carry(x, x.reverse([1])).build().unwrap();
    let inputs: Inputs = vec![("x".into(), Dice::new(3).array(&[2, 5000], DType::F64).unwrap())];
    for steps in [1, 2] {
        let expected = outputs(&Reference, &program, &inputs, steps).unwrap();
        assert_same("draw", &outputs(&Cpu::with_threads(1), &program, &inputs, steps).unwrap(), &expected);
    }
}

#[test]
fn a_loop_in_parts_is_the_loop_in_one() {
    let g = Graph::new();
    let (key_input, step) = (g.input("key", [2], DType::I32), g.step());
    let (x, h) = (g.input("x", [300, 70], DType::F64), g.input("h", [70], DType::F64));
    let noise = key_input.random(step, RandomKind::Normal, 1, [300, 70], DType::F64);
    let next = x * 0.9 + noise * 0.1 + h;
    let kept = step.greater_equal(2.0).convert(DType::F64);
    let program = Program::builder(&g)
        .output("noise", noise)
        .output("step", step)
        .carry(x, next)
        .carry(h, h + next.mean([0]) * kept)
        .build()
        .unwrap();
    let mut inputs = key(5);
    let mut dice = Dice::new(6);
    inputs.push(("x".into(), dice.array(&[300, 70], DType::F64).unwrap()));
    inputs.push(("h".into(), dice.array(&[70], DType::F64).unwrap()));
    let whole = outputs(&Cpu::with_threads(1), &program, &inputs, 5).unwrap();
    let reference = outputs(&Reference, &program, &inputs, 5).unwrap();
    crate::common::assert_close("whole", &whole, &reference, 1e-13);
    for threads in [1, 2, 3] {
        for parts in [vec![0..1, 1..2, 2..3, 3..4, 4..5], vec![0..3, 3..3, 3..5], vec![0..4, 4..5]] {
            let mut run = Cpu::with_threads(threads).compile(&program).unwrap();
            set_all(&mut *run, &inputs).unwrap();
            for part in parts {
                run.run(part).unwrap();
            }
            assert_same("in parts", &results(&*run).unwrap(), &whole);
        }
    }
}

#[test]
fn another_key_counter_or_stream_is_another_draw_and_the_same_ones_the_same() {
    let g = Graph::new();
    let (key_input, step) = (g.input("key", [2], DType::I32), g.step());
    let draw = |counter: Tensor, stream: u32| key_input.random(counter, RandomKind::Bits, stream, [64], DType::I32);
    let program = Program::builder(&g)
        .output("a", draw(step, 1))
        .output("b", draw(step, 2))
        .output("c", draw(step + 1.0, 1))
        .output("d", draw(step + 0.0, 1))
        .build()
        .unwrap();
    let cpu = Cpu::with_threads(2);
    let first = outputs(&cpu, &program, &key(1), 1).unwrap();
    assert_eq!(first[0], first[3]);
    assert_ne!(first[0], first[1]);
    assert_ne!(first[0], first[2]);
    let second = outputs(&cpu, &program, &key(1), 2).unwrap();
    assert_eq!(second[0], first[2], "the counter of step 1");
    let other = outputs(&cpu, &program, &key(2), 1).unwrap();
    assert_ne!(first[0], other[0]);
}
