//! Loops of scalar steps: run in one go they must give what they give step by step, and what the reference gives.

use bilevel_cpu::Cpu;
use bilevel_graph::conformance::Dice;
use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference, Runnable, Tensor};

/// A program of scalars: carried ones, fixed ones, the step's number, random draws, and outputs of every kind of value.
fn program(seed: u64, dtype: DType) -> Program {
    let mut dice = Dice::new(seed);
    let graph = Graph::new();
    let carried: Vec<Tensor> = (0..1 + dice.below(4)).map(|i| graph.input(format!("c{i}"), [], dtype)).collect();
    let mut values = carried.clone();
    values.extend((0..2).map(|i| graph.input(format!("f{i}"), [], dtype)));
    values.push(graph.step().convert(dtype) * 0.1);
    let key = graph.input("key", [2], DType::I32);
    if dice.below(2) == 0 {
        values.push(key.random(graph.step(), bilevel_graph::RandomKind::Normal, 7, [], dtype));
    }
    for _ in 0..4 + dice.below(30) {
        let [a, b, c] = [0; 3].map(|_| values[dice.below(values.len())]);
        values.push(match dice.below(9) {
            0 | 1 => a + b,
            2 => a - b,
            3 | 4 => a * b * 0.5,
            5 => a / (b.square() + 1.0),
            6 => a.less_equal(b).select(b, c),
            7 => a.tanh(),
            _ => a.sin() * b - c,
        });
    }
    let mut builder = Program::builder(&graph);
    for (i, carried) in carried.iter().enumerate() {
        // Bounded, so that no loop runs away; now and then a plain copy of another.
        let next = values[dice.below(values.len())];
        builder = builder.carry(*carried, if dice.below(6) == 0 { next } else { next.tanh() });
        builder = builder.output(format!("o{i}"), values[dice.below(values.len())]);
    }
    builder.output("key sum", key.convert(dtype).sum_all()).build().unwrap()
}

fn start(program: &Program, run: &mut dyn Runnable) {
    for (i, port) in program.inputs.iter().enumerate().filter(|(i, _)| program.step != Some(*i)) {
        let value = match port.name.as_str() {
            "key" => Array::from_i32([2], vec![3, 4]).unwrap(),
            _ => Array::scalar(0.3 + 0.17 * i as f64, port.meta.dtype),
        };
        run.set(i, &value).unwrap();
    }
}

/// Everything that can be read after a run.
fn all(program: &Program, run: &dyn Runnable) -> Vec<f64> {
    let inputs = (0..program.inputs.len()).filter(|i| program.step != Some(*i)).map(|i| run.input(i).unwrap());
    let outputs = (0..program.outputs.len()).map(|i| run.output(i).unwrap());
    inputs.chain(outputs).flat_map(|a| a.to_f64()).collect()
}

#[test]
fn a_loop_in_one_go_has_the_bits_of_its_steps_and_agrees_with_the_reference() {
    let cpu = Cpu::with_threads(1);
    for seed in 0..600 {
        let dtype = if seed % 3 == 0 { DType::F32 } else { DType::F64 };
        let program = program(seed, dtype);
        let (mut whole, mut steps) = (cpu.compile(&program).unwrap(), cpu.compile(&program).unwrap());
        let mut reference = Reference.compile(&program).unwrap();
        start(&program, &mut *whole);
        start(&program, &mut *steps);
        start(&program, &mut *reference);
        let count = 1 + (seed % 7) as u32;
        whole.run(0..count).unwrap();
        (0..count).for_each(|step| steps.run(step..step + 1).unwrap());
        reference.run(0..count).unwrap();
        let found = all(&program, &*whole);
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&all(&program, &*steps)), "seed {seed}\n{}", program.dump(false));
        let tolerance = if dtype == DType::F64 { 1e-12 } else { 2e-4 };
        for (a, b) in found.iter().zip(all(&program, &*reference)) {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "seed {seed}: {a} and {b}\n{}", program.dump(false));
        }
    }
}
