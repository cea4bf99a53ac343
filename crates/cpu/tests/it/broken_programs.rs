//! The fields of a program are public: whatever is written into them, an executor refuses what does not fit together when
//! it compiles, and no run goes over memory.

use crate::common::assert_close;
use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{Dice, results};
use bilevel_graph::{
    Array, BinaryOp, Carry, ConvDims, DType, ErrorKind, Executor, Graph, Op, Program, Reference, UnaryOp,
};

/// One of every kind of part: inputs, a step, a product, a convolution, indexing, moves, outputs and a carry.
fn whole() -> Program {
    let g = Graph::new();
    let (x, w) = (g.input("x", [4, 6], DType::F64), g.input("w", [6, 3], DType::F64));
    let i = g.input("i", [5], DType::I32);
    let time = g.step().convert(DType::F64).broadcast([], [4, 6]);
    let image = x.reshape([1, 1, 4, 6]);
    let kernel = w.slice(0, 0, 4).reshape([3, 1, 2, 2]);
    let dims = ConvDims::default();
    let seen = image.conv(kernel, dims);
    let rows = x.gather(i, 0);
    Program::builder(&g)
        .output("product", (x + time).matmul(w).tanh())
        .output("image", seen.sum([2, 3]))
        .output("rows", rows.concat(&[x.reverse([1])], 0).cumsum(1))
        .output("back", rows.scatter_add(i, 0, 7).pad_all(vec![1, 0], vec![0, 2], vec![0, 1]))
        .output("argmax", x.t().argmax(0))
        .carry(x, x.sin())
        .build()
        .unwrap()
}

/// Both executors refuse the program once `damage` was done to it.
#[track_caller]
fn refused(damage: impl Fn(&mut Program)) {
    let mut program = whole();
    damage(&mut program);
    for executor in [&Cpu::with_threads(2) as &dyn Executor, &Reference] {
        let Err(error) = executor.compile(&program) else { panic!("was compiled") };
        let kind = &error.kind;
        assert!(matches!(kind, ErrorKind::InvalidProgram { .. } | ErrorKind::DuplicateName { .. }), "{error}");
        program.to_string();
        program.to_dot();
    }
}

fn position(program: &Program, wanted: impl Fn(&Op) -> bool) -> usize {
    program.nodes.iter().position(|node| wanted(&node.op)).unwrap()
}

#[test]
fn a_program_as_built_is_valid() {
    whole().validate().unwrap();
}

#[test]
fn a_shape_that_is_not_the_operations_is_refused() {
    for number in 0..whole().nodes.len() {
        refused(|program| program.nodes[number].meta.shape.push(1000));
        refused(|program| {
            let dtype = &mut program.nodes[number].meta.dtype;
            *dtype = if *dtype == DType::F64 { DType::F32 } else { DType::F64 };
        });
    }
}

#[test]
fn an_operand_that_does_not_come_before_its_user_is_refused() {
    for number in 0..whole().nodes.len() {
        for operand in [number, number + 1, usize::MAX] {
            if !whole().nodes[number].inputs.is_empty() {
                refused(|program| program.nodes[number].inputs[0] = operand);
            }
            refused(|program| program.nodes[number].inputs.push(operand));
        }
    }
}

#[test]
fn an_operation_with_too_many_or_too_few_operands_is_refused() {
    for number in 1..whole().nodes.len() {
        if matches!(whole().nodes[number].op, Op::Concat(_)) {
            continue;
        }
        refused(|program| program.nodes[number].inputs.push(0));
        if !whole().nodes[number].inputs.is_empty() {
            refused(|program| program.nodes[number].inputs.truncate(0));
        }
    }
}

#[test]
fn attributes_that_do_not_fit_the_operand_are_refused() {
    refused(|program| {
        let slice = position(program, |op| matches!(op, Op::Slice { .. }));
        program.nodes[slice].op = Op::Slice { start: vec![0, 0], stop: vec![4000, 3], step: vec![1, 1] };
    });
    refused(|program| {
        let slice = position(program, |op| matches!(op, Op::Slice { .. }));
        program.nodes[slice].op = Op::Slice { start: vec![0, 0], stop: vec![4], step: vec![] };
    });
    refused(|program| {
        let gather = position(program, |op| matches!(op, Op::Gather { .. }));
        program.nodes[gather].op = Op::Gather { batch: 9 };
    });
    refused(|program| {
        let dot = position(program, |op| matches!(op, Op::Dot(..)));
        if let Op::Dot(dims, _) = &mut program.nodes[dot].op {
            dims.rhs_contract = vec![7];
        }
    });
}

#[test]
fn ports_without_their_operation_are_refused() {
    let last = whole().nodes.len() - 1;
    for node in [None, Some(usize::MAX), Some(last)] {
        refused(|program| program.inputs[0].node = node);
        refused(|program| program.outputs[0].node = node);
    }
    refused(|program| program.inputs[0].meta.shape = vec![400, 600]);
    refused(|program| program.outputs[0].meta.shape = vec![1]);
    refused(|program| program.inputs[1] = program.inputs[0].clone());
    refused(|program| program.outputs[1].name = program.outputs[0].name.clone());
    refused(|program| drop(program.inputs.pop()));
    refused(|program| program.step = Some(0));
    refused(|program| program.step = Some(99));
}

#[test]
fn carries_that_do_not_fit_are_refused() {
    refused(|program| program.carries[0].input = 99);
    refused(|program| program.carries[0].next = usize::MAX);
    refused(|program| program.carries.push(program.carries[0]));
    refused(|program| program.carries[0].input = program.input("w").unwrap());
    refused(|program| {
        let input = program.step.unwrap();
        program.carries = vec![Carry { input, next: program.inputs[input].node.unwrap() }];
    });
}

/// A random change of one field.
fn damage(dice: &mut Dice, program: &mut Program) {
    let number = dice.below(program.nodes.len());
    let count = program.nodes.len();
    let ports = program.inputs.len();
    let node = &mut program.nodes[number];
    match dice.below(9) {
        0 => node.meta.shape = (0..dice.below(4)).map(|_| dice.below(9)).collect(),
        1 => node.meta.dtype = dice.pick(&[DType::F32, DType::F64, DType::I32]),
        2 => node.inputs = (0..dice.below(4)).map(|_| dice.below(count)).collect(),
        3 => node.op = Op::Unary(dice.pick(&UnaryOp::ALL)),
        4 => node.op = Op::Binary(dice.pick(&BinaryOp::ALL)),
        5 => node.op = Op::Transpose(vec![dice.below(3), dice.below(3)]),
        6 => program.inputs[dice.below(ports)].node = Some(number),
        7 => program.outputs[0].node = Some(number),
        _ => program.carries = vec![Carry { input: dice.below(ports + 1), next: number }],
    }
}

#[test]
fn a_program_changed_at_random_is_refused_or_runs_as_the_reference_does() {
    let (mut dice, mut compiled) = (Dice::new(5), 0);
    let (cpu, reference) = (Cpu::with_threads(2), Reference);
    for case in 0..4000 {
        let mut program = whole();
        (0..1 + dice.below(2)).for_each(|_| damage(&mut dice, &mut program));
        let mut found = vec![];
        for executor in [&cpu as &dyn Executor, &reference] {
            let Ok(mut run) = executor.compile(&program) else { continue };
            let mut values = Dice::new(case);
            for (number, port) in program.inputs.iter().enumerate().filter(|(i, _)| program.step != Some(*i)) {
                let value = match port.meta.dtype {
                    DType::I32 => values.indices(&port.meta.shape, 4),
                    float => values.array(&port.meta.shape, float),
                };
                run.set(number, &value.unwrap()).unwrap();
            }
            found.push(run.run(0..2).and_then(|()| results(&*run)));
        }
        match &found[..] {
            [] => {}
            [Ok(cpu), Ok(reference)] => {
                compiled += 1;
                assert_close(&format!("case {case}"), cpu, reference, 1e-9);
            }
            [Err(cpu), Err(reference)] => assert_eq!(cpu, reference, "case {case}"),
            _ => panic!("case {case}: the executors disagree on whether the program can run"),
        }
    }
    assert!(compiled > 100, "only {compiled} programs were compiled");
}

#[test]
fn an_array_always_fills_the_memory_of_its_port() {
    let program = whole();
    let mut run = Cpu::with_threads(1).compile(&program).unwrap();
    let mut value = Array::zeros([4, 6], DType::F64);
    // The elements come as a slice: they can be exchanged, not added or taken away.
    if let bilevel_graph::DataMut::F64(values) = value.data_mut() {
        values.fill(2.0);
    }
    run.set(program.input("x").unwrap(), &value).unwrap();
    assert_eq!(run.input(program.input("x").unwrap()).unwrap().to_f64(), [2.0; 24]);
}
