//! Planted mistakes in what rewrites a program, joins its loops or places its values.

use super::{FoundBy, Subject, first, is_binary, machine, view};
use crate::ir::interpret::WORKSPACE;
use crate::ir::node::{Elementwise, Kind, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::verify::memory::verify_memory;
use crate::ir::verify::program::verify_rewrite;
use crate::memory::MemoryMap;
use crate::memory::alias_policy::AliasPolicy;
use crate::pipeline::Pipeline;
use crate::schedule::Schedule;
use crate::target::Target;
use bilevel_graph::{
    BinaryOp, DType, ErrorKind, Graph, Op, Precision, Program, Result, UnaryOp, gradient_or_zeros, nn,
};

#[track_caller]
fn is_refused(result: Result<()>) {
    let error = result.expect_err("a mistake");
    assert!(matches!(error.kind, ErrorKind::Planning { .. }), "{error}");
}

/// A machine whose loops are applied to the results of products.
fn with_epilogues() -> Target {
    machine().with(|target| {
        target.can.epilogue = Some(|_, _| true);
        target.can.affine_epilogue = None;
    })
}

#[test]
fn an_epilogue_without_its_product_out_of_step_or_of_another_function_is_found() {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F64));
    let y = (x.matmul(w) * x).tanh();
    let subject = Subject::new(Program::builder(&g).output("y", y).build().unwrap(), 1e-12).on(with_epilogues());
    fn epilogue(schedule: &mut Schedule) -> usize {
        schedule.groups().iter().position(|group| group.gemm.is_some()).expect("an epilogue")
    }
    subject.finds(FoundBy::Verifier, |schedule| {
        let group = epilogue(schedule);
        schedule.grouping.groups[group].gemm = None;
    });
    subject.finds(FoundBy::Verifier, |schedule| {
        let group = epilogue(schedule);
        schedule.grouping.groups[group].members.swap(0, 1);
    });
    subject.finds(FoundBy::Verifier, |schedule| {
        let id = first(schedule, is_binary(BinaryOp::Mul));
        let group = epilogue(schedule);
        let product = schedule.groups()[group].gemm;
        let reads = |operand: &&mut Operand| operand.at().map(|(read, _)| read) == product;
        view(schedule.nodes[id].operands.iter_mut().find(reads).expect("the product")).strides.swap(0, 1);
    });
    subject.finds(FoundBy::Interpreter, |schedule| {
        let id = first(schedule, |kind| matches!(kind, Kind::Elementwise(Elementwise::Unary(UnaryOp::Tanh))));
        schedule.nodes[id].kind = Kind::Elementwise(Elementwise::Unary(UnaryOp::Sin));
    });
}

#[test]
fn a_value_that_is_computed_again_from_other_operands_is_found() {
    let g = Graph::new();
    let (x, shift) = (g.input("x", [40, 50], DType::F64), g.input("shift", [], DType::F64));
    let error = x - shift.broadcast([], [40, 50]);
    // The sum is complete before any of the loop that reads the error again.
    let y = error * error.square().sum_all().sqrt().broadcast([], [40, 50]);
    let subject = Subject::new(Program::builder(&g).output("y", y.exp()).build().unwrap(), 1e-9);
    subject.finds(FoundBy::Interpreter, |schedule| {
        let again = |id: &usize| schedule.nodes[*id].is_remat && is_binary(BinaryOp::Sub)(&schedule.nodes[*id].kind);
        let id = (0..schedule.nodes.len()).find(again).expect("a difference that is computed again");
        schedule.nodes[id].operands.swap(0, 1);
    });
}

#[test]
fn a_mask_in_two_bytes_that_is_an_output_or_read_by_a_scan_is_found() {
    let masks = || {
        let g = Graph::new();
        let x = g.input("x", [6, 6], DType::F32);
        let mask = x.greater(x.t());
        let sums = mask.cumsum(0);
        Subject::new(Program::builder(&g).output("mask", mask.matmul(x)).output("sums", sums).build().unwrap(), 1e-5)
    };
    masks().finds(FoundBy::Verifier, |schedule| {
        let id = first(schedule, |kind| matches!(kind, Kind::CumSum { .. }));
        let (mask, _) = schedule.nodes[id].operands[0].at().unwrap();
        schedule.nodes[mask].storage = StorageType::Bf16;
    });
    masks().finds(FoundBy::Verifier, |schedule| {
        let (sums, _) = schedule.outputs[1].at().unwrap();
        schedule.nodes[sums].storage = StorageType::Bf16;
    });
}

/// Two layers that read images of three channels, with a max pool between them, and the gradient of both kernels.
fn images() -> Subject {
    let g = Graph::new();
    let x = g.input("x", [2, 3, 8, 8], DType::F32);
    let [v, w] = [("v", [8, 3, 3, 3]), ("w", [8, 8, 3, 3])].map(|(name, shape)| g.input(name, shape, DType::F32));
    let padded = nn::Conv2d { padding: [1, 1], ..Default::default() };
    let pooled = nn::max_pool2d(nn::conv2d(x, v, None, padded), nn::Pool2d::of([2, 2]));
    let loss = nn::conv2d(pooled.tanh(), w, None, padded).square().mean([0, 1, 2, 3]);
    let slopes = gradient_or_zeros(loss, &[v, w]).unwrap();
    let builder = Program::builder(&g).output("v", slopes[0]).carry(w, w - slopes[1]);
    let program = builder.output("loss", loss).build().unwrap().with_precision(Precision::Tf32);
    let machine = Target::PLAIN.with(|target| target.can.channels_last = true);
    Subject::new(program, 64.0 * Precision::Tf32.unit()).on(machine)
}

#[test]
fn a_rewritten_program_with_other_ports_or_operations_that_do_not_fit_is_refused() {
    let Subject { program, target, .. } = images();
    let rewritten = || Pipeline::new().rewrite(&program, &target).unwrap();
    verify_rewrite(&program, &rewritten()).unwrap();
    let wrong = |plant: &dyn Fn(&mut Program)| {
        let mut new = rewritten();
        plant(&mut new);
        is_refused(verify_rewrite(&program, &new));
    };
    wrong(&|new| new.outputs.clear());
    wrong(&|new| new.outputs.swap(0, 1));
    wrong(&|new| new.inputs[1].name = "another".into());
    wrong(&|new| new.carries.clear());
    wrong(&|new| {
        let node = new.nodes.iter_mut().find(|node| matches!(node.op, Op::Pad { .. })).expect("padded channels");
        node.meta.shape[3] += 1;
    });
}

#[test]
fn a_pool_slice_or_a_padding_in_another_place_is_found_beside_the_reference() {
    let subject = images();
    let is_right = |plant: &dyn Fn(&mut Op) -> bool| {
        let mut new = Pipeline::new().rewrite(&subject.program, &subject.target).unwrap();
        let planted: usize = new.nodes.iter_mut().map(|node| usize::from(plant(&mut node.op))).sum();
        new.validate().unwrap();
        (planted, subject.is_right(Schedule::new(&new, &subject.target).unwrap(), None))
    };
    assert_eq!(is_right(&|_| false), (0, true), "it is right without a mistake");
    let (planted, right) = is_right(&|op| match op {
        Op::Slice { start, stop, step } => (0..4).any(|axis| {
            let shifts = step[axis] == 2 && start[axis] == 1;
            if shifts {
                (start[axis], stop[axis]) = (0, stop[axis] - 1);
            }
            shifts
        }),
        _ => false,
    });
    assert!(planted > 0 && !right, "{planted} slices of a pool");
    let (planted, right) = is_right(&|op| match op {
        // The channel of zeros comes first in what the slice of the kernel's gradient leaves out.
        Op::Pad { low, high, .. } if *high == [0, 0, 0, 1] => {
            std::mem::swap(low, high);
            true
        }
        _ => false,
    });
    assert!(planted > 0 && !right, "{planted} paddings");
}

/// Values that are needed at the same time, with workspaces of all groups.
fn several() -> (Schedule, MemoryMap) {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F64));
    let (a, b) = (x.matmul(w).exp(), w.matmul(x).exp());
    let y = (a.matmul(b) + b.matmul(a)).tanh();
    let program = Program::builder(&g).output("y", y).carry(x, x * 0.5).build().unwrap();
    let target = machine().with(|target| target.can.affine_epilogue = None);
    let schedule = Schedule::new(&program, &target).unwrap();
    let map = schedule.lay_out(&vec![WORKSPACE; schedule.groups().len()]).unwrap();
    (schedule, map)
}

#[test]
fn values_or_workspaces_in_the_place_of_others_that_are_needed_are_refused() {
    let verify = |plant: &dyn Fn(&Schedule, &mut MemoryMap)| {
        let (schedule, mut map) = several();
        plant(&schedule, &mut map);
        verify_memory(&schedule, &map, AliasPolicy::Sequential)
    };
    verify(&|_, _| {}).unwrap();
    /// The last product, and the nodes that it reads.
    fn last_product(schedule: &Schedule) -> (usize, Vec<usize>) {
        let is = |id: &usize| schedule.group_of(*id).is_some() && matches!(schedule.nodes[*id].kind, Kind::Dot(..));
        let id = (0..schedule.nodes.len()).rev().find(is).expect("a product");
        (id, schedule.nodes[id].operands.iter().filter_map(Operand::at).map(|(read, _)| read).collect())
    }
    is_refused(verify(&|schedule, map| {
        let (_, read) = last_product(schedule);
        map.nodes[read[0]] = map.nodes[read[1]];
    }));
    is_refused(verify(&|schedule, map| {
        let (id, read) = last_product(schedule);
        map.nodes[id] = map.nodes[read[0]];
    }));
    is_refused(verify(&|schedule, map| {
        let (id, read) = last_product(schedule);
        map.workspaces[schedule.group_of(id).unwrap()] = map.nodes[read[0]];
    }));
    is_refused(verify(&|schedule, map| {
        let read = last_product(schedule).1[0];
        map.arena_bytes = map.nodes[read].unwrap().offset + schedule.nodes[read].bytes() - 1;
    }));
}
