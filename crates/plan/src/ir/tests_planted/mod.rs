//! Planted mistakes: each wrong rule is caught by the verifier, or by the interpreter beside the reference.

mod overlaps;
mod rewrites;

use crate::fuse::group::Role;
use crate::ir::dot_layout::DotLayout;
use crate::ir::interpret::{Interpreter, InterpreterRun, WORKSPACE};
use crate::ir::lowered::LoweredProgram;
use crate::ir::node::{CastForm, Elementwise, Kind, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::verify::memory::verify_memory;
use crate::lower::scaled_fp16::scale::{Pow2Scale, ScaleTerm};
use crate::memory::MemoryMap;
use crate::memory::alias_policy::AliasPolicy;
use crate::schedule::Schedule;
use crate::target::Target;
use bilevel_graph::conformance::{Dice, Inputs, agree, outputs, results, set_all};
use bilevel_graph::{
    BinaryOp, ConvPass, ConvRole, DType, ErrorKind, Graph, Precision, Program, Reference, Runnable, Tensor, gradient,
    nn,
};

/// One that asks for everything but epilogues that are not affine.
fn machine() -> Target {
    Target::PLAIN.with(|target| {
        let can = &mut target.can;
        (can.concat_in_place, can.alignment, can.rounds_operands, can.gemm_reads_bf16) = (true, 16, true, true);
        (can.pad_sum, can.inline_gather) = (true, true);
        can.gemm_gemm = Some(|_, _, _, _| true);
        can.affine_epilogue = Some(|_| true);
        let costs = &mut target.costs;
        (costs.remat_min_bytes, costs.min_scaled_side, costs.load_bytes) = (Some(1), Some(1), 16);
    })
}

/// What finds a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundBy {
    Verifier,
    Interpreter,
}

/// A program with values of its inputs, and how near its results must be.
struct Subject {
    program: Program,
    inputs: Inputs,
    near: f64,
    target: Target,
}

impl Subject {
    fn new(program: Program, near: f64) -> Self {
        let mut dice = Dice::new(3);
        let indices = |length: usize| bilevel_graph::Array::from_i32([length], (0..length as i32).rev().collect());
        let mut value = |port: &bilevel_graph::Port| match port.meta.dtype {
            DType::I32 => indices(port.meta.shape.iter().product()).unwrap(),
            dtype => dice.array(&port.meta.shape, dtype).unwrap(),
        };
        let inputs = program.inputs.iter().map(|port| (port.name.clone(), value(port))).collect();
        Subject { program, inputs, near, target: machine() }
    }

    /// The same on another machine.
    fn on(self, target: Target) -> Self {
        Subject { target, ..self }
    }

    /// True if a schedule in this memory gives the reference's results.
    fn is_right(&self, schedule: Schedule, map: Option<MemoryMap>) -> bool {
        let map = map.unwrap_or_else(|| schedule.lay_out(&vec![WORKSPACE; schedule.groups().len()]).unwrap());
        let mut run = InterpreterRun::with(&self.program, schedule, map);
        set_all(&mut run, &self.inputs).unwrap();
        let expected = outputs(&Reference, &self.program, &self.inputs, 2).unwrap();
        let near = vec![self.near; expected.len()];
        run.run(0..2).is_ok_and(|()| agree(&results(&run).unwrap(), &expected, &near).is_ok())
    }

    /// Plants a mistake, and checks that it is found by this and, where the verifier finds nothing, that it is found at
    /// all.
    #[track_caller]
    fn finds(&self, finder: FoundBy, plant: impl Fn(&mut Schedule)) {
        let planned = || Schedule::new(&self.program, &self.target).unwrap();
        LoweredProgram::of(&planned()).verify().unwrap();
        assert!(self.is_right(planned(), None), "it is right without a mistake");
        let mut wrong = planned();
        plant(&mut wrong);
        let found = match LoweredProgram::of(&wrong).verify() {
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Planning { .. }), "{error}");
                Some(FoundBy::Verifier)
            }
            Ok(()) => (!self.is_right(wrong, None)).then_some(FoundBy::Interpreter),
        };
        assert_eq!(found, Some(finder));
    }
}

/// The first node of this kind that some group computes.
fn first(schedule: &Schedule, kind: impl Fn(&Kind) -> bool) -> usize {
    let is = |id: &usize| schedule.group_of(*id).is_some() && kind(&schedule.nodes[*id].kind);
    (0..schedule.nodes.len()).find(is).expect("a node of this kind")
}

fn is_binary(op: BinaryOp) -> impl Fn(&Kind) -> bool {
    move |kind| matches!(kind, Kind::Elementwise(Elementwise::Binary(found)) if *found == op)
}

fn view(operand: &mut Operand) -> &mut crate::View {
    let Operand::At { view, .. } = operand else { panic!("an operand in memory") };
    view
}

/// Steps of a carried square matrix that another value reads, with an output that needs it transposed.
fn steps() -> Subject {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F64));
    let next = x * 0.5 - w;
    let read = (x.t() - w).exp().sum([0]);
    Subject::new(
        Program::builder(&g).carry(x, next).output("read", read).output("sum", next.sum([1])).build().unwrap(),
        1e-12,
    )
}

/// Steps of a carried matrix that a product reads before it is written over.
fn updates() -> Subject {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F64));
    let program = Program::builder(&g).carry(x, x * 0.5 - w).output("read", w.matmul(x).sum([0])).build();
    Subject::new(program.unwrap(), 1e-12)
}

#[test]
fn a_view_of_another_order_or_beyond_its_memory_is_found() {
    let of_transpose = |schedule: &mut Schedule| {
        let turned = |operand: &Operand| operand.at().is_some_and(|(_, view)| view.strides == [1, 6]);
        let id = (0..schedule.nodes.len()).find(|&id| schedule.nodes[id].operands.iter().any(turned)).unwrap();
        (id, schedule.nodes[id].operands.iter().position(turned).unwrap())
    };
    steps().finds(FoundBy::Interpreter, |schedule| {
        let (id, operand) = of_transpose(schedule);
        view(&mut schedule.nodes[id].operands[operand]).strides.swap(0, 1);
    });
    steps().finds(FoundBy::Verifier, |schedule| {
        let (id, operand) = of_transpose(schedule);
        view(&mut schedule.nodes[id].operands[operand]).offset = 1;
    });
}

#[test]
fn swapped_or_undefined_operands_are_found() {
    steps().finds(FoundBy::Interpreter, |schedule| {
        let id = first(schedule, is_binary(BinaryOp::Sub));
        schedule.nodes[id].operands.swap(0, 1);
    });
    steps().finds(FoundBy::Verifier, |schedule| {
        let id = first(schedule, is_binary(BinaryOp::Sub));
        let Operand::At { node, .. } = &mut schedule.nodes[id].operands[0] else { panic!("in memory") };
        *node = id + 1;
    });
    steps().finds(FoundBy::Verifier, |schedule| {
        let id = first(schedule, is_binary(BinaryOp::Sub));
        schedule.nodes[id].operands.pop();
    });
}

#[test]
fn an_update_in_place_before_a_reader_is_found_by_the_verifier_and_would_be_by_the_interpreter() {
    /// Runs the loop that writes over the carried input first.
    fn writer_first(schedule: &mut Schedule) {
        let (next, _) = schedule.carries[0].next.at().unwrap();
        assert!(schedule.carries[0].in_place);
        let writer = schedule.group_of(next).unwrap();
        let group = schedule.grouping.groups.remove(writer);
        schedule.grouping.groups.insert(schedule.prologue, group);
        for (g, group) in schedule.grouping.groups.iter().enumerate() {
            group.members.iter().for_each(|&id| schedule.grouping.group_of[id] = Some(g));
        }
    }
    let subject = updates();
    subject.finds(FoundBy::Verifier, writer_first);
    let mut wrong = Schedule::new(&subject.program, &machine()).unwrap();
    writer_first(&mut wrong);
    assert!(!subject.is_right(wrong, None));
}

#[test]
fn a_member_of_no_group_or_with_another_role_is_found() {
    let exp = |schedule: &Schedule| {
        first(schedule, |kind| matches!(kind, Kind::Elementwise(Elementwise::Unary(bilevel_graph::UnaryOp::Exp))))
    };
    steps().finds(FoundBy::Verifier, |schedule| {
        let id = exp(schedule);
        schedule.grouping.groups.iter_mut().for_each(|group| group.members.retain(|&member| member != id));
    });
    steps().finds(FoundBy::Verifier, |schedule| {
        let id = exp(schedule);
        schedule.grouping.role[id] = Some(Role::Reduction { full: true });
    });
    steps().finds(FoundBy::Verifier, |schedule| {
        let id = exp(schedule);
        schedule.nodes[id].invariant = true;
    });
}

#[test]
fn a_value_that_is_not_in_memory_or_not_computed_in_every_step_is_found() {
    steps().finds(FoundBy::Verifier, |schedule| {
        let (node, _) = schedule.outputs[0].at().unwrap();
        schedule.stored[node] = false;
    });
    updates().finds(FoundBy::Interpreter, |schedule| {
        let (next, _) = schedule.carries[0].next.at().unwrap();
        schedule.in_every_step[next] = false;
    });
    updates().finds(FoundBy::Verifier, |schedule| schedule.carries[0].in_place = false);
}

/// A product of scaled fp16, in steps that carry the copy of the weights.
fn scaled() -> Subject {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
    let next = w - x.matmul(w) * 0.1;
    let program = Program::builder(&g).carry(w, next).output("y", x.matmul(next)).build().unwrap();
    Subject::new(program.with_precision(Precision::Tf32), 8.0 * Precision::Tf32.unit())
}

#[test]
fn a_wrong_exponent_of_a_scale_is_found() {
    let doubled = Pow2Scale::new(&[ScaleTerm { shift: 1, factors: 1 }]).unwrap();
    scaled().finds(FoundBy::Interpreter, |schedule| {
        let id = first(schedule, |kind| matches!(kind, Kind::Elementwise(Elementwise::Unscale(_))));
        schedule.nodes[id].kind = Kind::Elementwise(Elementwise::Unscale([Pow2Scale::AMAX, doubled]));
    });
    scaled().finds(FoundBy::Verifier, |schedule| {
        let id = first(schedule, |kind| matches!(kind, Kind::Elementwise(Elementwise::ScaleToF16(_))));
        schedule.nodes[id].storage = StorageType::F32;
    });
}

#[test]
fn a_carried_cast_of_another_input_or_without_its_amax_is_found() {
    scaled().finds(FoundBy::Interpreter, |schedule| {
        assert!(matches!(
            schedule.nodes[schedule.initial_casts[0].cast].kind,
            Kind::CarriedCast(CastForm::AmaxExponent)
        ));
        let x = schedule.inputs.iter().copied().find(|&input| input != schedule.initial_casts[0].input).unwrap();
        schedule.initial_casts.iter_mut().for_each(|initial_cast| initial_cast.input = x);
    });
    scaled().finds(FoundBy::Verifier, |schedule| schedule.initial_casts[1].amax = None);
    scaled().finds(FoundBy::Verifier, |schedule| schedule.initial_casts.truncate(1));
}

/// Rows of three that loops gather.
fn gathered() -> Subject {
    let g = Graph::new();
    let (table, at) = (g.input("table", [6, 3], DType::F64), g.input("at", [5], DType::I32));
    let y = table.take(at).exp();
    Subject::new(Program::builder(&g).output("y", y).build().unwrap(), 1e-12)
}

#[test]
fn a_wrong_stride_or_limit_of_an_inline_gather_is_found() {
    let change = |by: isize| {
        move |schedule: &mut Schedule| {
            let id = first(schedule, |kind| matches!(kind, Kind::InlineGather { .. }));
            let Kind::InlineGather { stride, .. } = &mut schedule.nodes[id].kind else { panic!("an inline gather") };
            *stride = stride.checked_add_signed(by).unwrap();
        }
    };
    gathered().finds(FoundBy::Interpreter, change(-1));
    gathered().finds(FoundBy::Verifier, change(1));
}

#[test]
fn an_operation_that_can_fail_after_an_update_in_place_is_found() {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F64));
    let rows = w.take(g.input("at", [6], DType::I32)).cumsum(0);
    let subject = Subject::new(Program::builder(&g).carry(x, x * 0.5 - w).output("rows", rows).build().unwrap(), 1e-12);
    subject.finds(FoundBy::Verifier, |schedule| {
        let gather = first(schedule, |kind| matches!(kind, Kind::Gather { .. }));
        let (next, _) = schedule.carries[0].next.at().unwrap();
        let [checking, writer] = [gather, next].map(|id| schedule.group_of(id).unwrap());
        assert!(schedule.index_check(gather).is_some() && schedule.carries[0].in_place && checking < writer);
        let group = schedule.grouping.groups.remove(writer);
        schedule.grouping.groups.insert(checking, group);
        for (g, group) in schedule.grouping.groups.iter().enumerate() {
            group.members.iter().for_each(|&id| schedule.grouping.group_of[id] = Some(g));
        }
    });
}

#[test]
fn a_convolution_with_the_role_of_another_pass_is_found() {
    let g = Graph::new();
    let (x, w) = (g.input("x", [2, 3, 7, 7], DType::F64), g.input("w", [4, 3, 3, 3], DType::F64));
    let y = nn::conv2d(x, w, None, nn::Conv2d { stride: [2, 2], ..Default::default() });
    let slopes = bilevel_graph::gradient_or_zeros(y.sin().sum_all(), &[x, w]).unwrap();
    let program = Program::builder(&g).output("x", slopes[0]).output("w", slopes[1]).build().unwrap();
    let subject = Subject::new(program, 1e-12);
    for (pass, wrong) in [
        (ConvPass::Fprop, ConvRole::FPROP.of_image()),
        (ConvPass::Dgrad, ConvRole::FPROP.of_kernel()),
        (ConvPass::Wgrad, ConvRole::FPROP.exchanged()),
    ] {
        subject.finds(FoundBy::Verifier, |schedule| {
            let id = first(schedule, |kind| matches!(kind, Kind::Conv(_, role, _) if role.pass() == pass));
            let Kind::Conv(_, role, _) = &mut schedule.nodes[id].kind else { panic!("a convolution") };
            *role = wrong;
        });
    }
}

#[test]
fn an_index_check_that_is_dropped_is_found() {
    let failures = |plants: bool| {
        let interpreter = Interpreter::of(move |program| {
            let mut schedule = Schedule::new(program, &machine())?;
            for node in schedule.nodes.iter_mut().filter(|_| plants) {
                if let Kind::InlineGather { checked, .. } = &mut node.kind {
                    *checked = false;
                }
            }
            Ok(schedule)
        });
        bilevel_graph::conformance::refusals(&interpreter).unwrap().len()
    };
    assert_eq!(failures(false), 0);
    assert!(failures(true) > 0);
}

#[test]
fn a_piece_of_a_sum_of_pads_in_another_place_is_found() {
    let g = Graph::new();
    let x = g.input("x", [4, 10], DType::F64);
    let piece = |start: usize| (x.slice(1, start, start + 7) * (start + 2) as f64).sin();
    let loss = (piece(0).square() + piece(2).exp() + piece(3).tanh()).sum_all();
    let slope: Tensor = gradient(loss, &[x]).unwrap()[0].unwrap();
    let subject = Subject::new(Program::builder(&g).output("slope", slope).build().unwrap(), 1e-12);
    fn frames(schedule: &mut Schedule) -> &mut Vec<crate::Padding> {
        let id = first(schedule, |kind| matches!(kind, Kind::PadSum(_)));
        let Kind::PadSum(frames) = &mut schedule.nodes[id].kind else { panic!("pads") };
        frames
    }
    subject.finds(FoundBy::Interpreter, |schedule| frames(schedule).swap(0, 1));
    subject.finds(FoundBy::Verifier, |schedule| frames(schedule)[0].low[1] += 9);
}

/// An attention, which is one group with both its products.
fn attention() -> Subject {
    let g = Graph::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, [2, 3, 6, 6], DType::F32));
    let y = nn::scaled_dot_product_attention(q, k, v, None);
    Subject::new(Program::builder(&g).output("y", y).build().unwrap(), 1e-5)
}

#[test]
fn a_wrong_stride_of_a_fused_product_is_found() {
    fn next(schedule: &mut Schedule) -> &mut DotLayout {
        let next = schedule.groups().iter().find_map(|group| group.second_gemm).expect("two products in one group");
        let Kind::Dot(layout, _) = &mut schedule.nodes[next].kind else { panic!("a product") };
        layout
    }
    attention().finds(FoundBy::Interpreter, |schedule| {
        let layout = next(schedule);
        (layout.b.0, layout.b.1) = (layout.b.1, layout.b.0);
    });
    attention().finds(FoundBy::Verifier, |schedule| next(schedule).b.0 += 1);
}

#[test]
fn storage_in_two_bytes_where_four_are_needed_is_found() {
    let g = Graph::new();
    let [x, y] = ["x", "y"].map(|name| g.input(name, [40, 30], DType::F32));
    let sines = x.sin();
    let kept = sines * (y - sines).matmul(y.t()).sum_all();
    let subject = Subject::new(Program::builder(&g).output("kept", kept).build().unwrap(), 1e-5);
    let stored = |schedule: &Schedule, op: BinaryOp| {
        let id = first(schedule, is_binary(op));
        assert!(schedule.is_stored(id));
        id
    };
    subject.finds(FoundBy::Verifier, |schedule| {
        let id = stored(schedule, BinaryOp::Sub);
        schedule.nodes[id].storage = StorageType::Bf16;
    });
    steps_in_f32().finds(FoundBy::Verifier, |schedule| {
        let in_memory = |id: &usize| schedule.is_stored(*id) && schedule.role(*id) == Some(Role::Row);
        let id = (0..schedule.nodes.len()).find(in_memory).expect("row values in memory");
        schedule.nodes[id].storage = StorageType::Bf16;
    });
    steps_in_f32().finds(FoundBy::Verifier, |schedule| {
        let id = first(schedule, is_binary(BinaryOp::Mul));
        schedule.nodes[id].storage = StorageType::F64;
    });
}

/// A gradient step, which is the affine epilogue of its product.
fn gradient_step() -> Subject {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F64));
    Subject::new(Program::builder(&g).carry(w, w - x.t().matmul(w.exp()) * 0.1).build().unwrap(), 1e-12)
}

#[test]
fn a_wrong_factor_or_addend_of_an_affine_epilogue_is_found() {
    fn affine(schedule: &mut Schedule) -> &mut crate::AffineEpilogue {
        schedule.grouping.groups.iter_mut().find_map(|group| group.affine.as_mut()).expect("an affine epilogue")
    }
    let subject = gradient_step();
    subject.finds(FoundBy::Verifier, |schedule| affine(schedule).alpha = 0.1);
    subject.finds(FoundBy::Verifier, |schedule| affine(schedule).addend = None);
    let mut wrong = Schedule::new(&subject.program, &machine()).unwrap();
    affine(&mut wrong).alpha = 0.1;
    assert!(!subject.is_right(wrong, None));
}

/// Sets the math mode of the first product.
fn multiply_in(mode: Precision) -> impl Fn(&mut Schedule) {
    move |schedule| {
        let id = first(schedule, |kind| matches!(kind, Kind::Dot(..)));
        let Kind::Dot(_, found) = &mut schedule.nodes[id].kind else { panic!("a product") };
        *found = mode;
    }
}

#[test]
fn a_product_in_another_math_mode_than_its_operands_or_its_program_is_found() {
    scaled().finds(FoundBy::Verifier, multiply_in(Precision::Full));
    updates().finds(FoundBy::Verifier, multiply_in(Precision::Tf32));
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F32));
    let exact = Subject::new(Program::builder(&g).output("y", x.matmul(w)).build().unwrap(), 1e-5);
    exact.finds(FoundBy::Interpreter, multiply_in(Precision::Bf16));
}

/// Row sums that a later loop over columns reads.
fn steps_in_f32() -> Subject {
    let g = Graph::new();
    let x = g.input("x", [6, 5], DType::F32);
    let sums = x.exp().sum([1]);
    let y = x.t() * sums.broadcast([1], [5, 6]);
    Subject::new(Program::builder(&g).output("y", y.sin()).build().unwrap(), 1e-6)
}

#[test]
fn a_part_of_a_concatenation_in_the_place_of_another_is_found() {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [4, 4], DType::F64));
    // Products are in memory; the parts of the concatenation are computed where they belong.
    let parts = [x.matmul(w), w.matmul(x)];
    let joined = parts[0].concat(&[parts[1]], 0);
    let subject = Subject::new(Program::builder(&g).output("y", joined.matmul(w).exp()).build().unwrap(), 1e-12);
    let planned = || Schedule::new(&subject.program, &machine()).unwrap();
    let map = |schedule: &Schedule| schedule.lay_out(&vec![WORKSPACE; schedule.groups().len()]).unwrap();
    let schedule = planned();
    let concat = first(&schedule, |kind| matches!(kind, Kind::Concat(_)));
    let [a, b] = [0, 1].map(|part| schedule.nodes[concat].operands[part].at().unwrap().0);
    let right = map(&schedule);
    assert_eq!(right.nodes[a], right.nodes[concat], "the first part begins where the whole does");
    assert!(subject.is_right(schedule, Some(right)));
    // Both parts in one place.
    let schedule = planned();
    let mut wrong = map(&schedule);
    wrong.nodes[b] = wrong.nodes[a];
    assert!(verify_memory(&schedule, &wrong, AliasPolicy::Sequential).is_err());
    assert!(!subject.is_right(schedule, Some(wrong)));
}
