//! Pipelined loops on a symbolic executor: in any order of streams they compute the same as sequential steps.

use crate::codegen::cuda_cpp::CudaCpp;
use crate::compile::plan::{Plan, plan, plan_with};
use crate::compile::step::Step;
use crate::target::H200;
use bilevel_gpu::codegen::{Launch, Renderer};
use bilevel_gpu::compile::passes::GpuPipeline;
use bilevel_gpu::compile::step::Span;
use bilevel_gpu::schedule::oracle::{SymbolicMemory, any_order};
use bilevel_gpu::schedule::pipeline::{
    MAX_PIPELINE_STEPS, PIPELINE_STREAMS, PipelinePart, STEPS_IN_FLIGHT, Stages, Window,
};
use bilevel_gpu::schedule::streams::{StreamSlot, cost, dependencies, finish_times};
use bilevel_graph::conformance::{self, Size, varied_program};
use bilevel_graph::{DType, Graph, Program, Tensor, gradient_or_zeros, mixed_vector};
use bilevel_plan::{Place, Region};
use std::collections::HashMap;

/// Returns true for a loop in two stages.
fn is_staged(plan: &Plan) -> bool {
    plan.pipeline.as_ref().is_some_and(|pipeline| !pipeline.undoes_failed_windows())
}

/// HPO-SGLD on a small network: new weights, the outer gradient at them, and its product with the Jacobian of the
/// old ones.
fn rotating_program() -> Program {
    let g = Graph::new();
    let [w, v] = [("w", [8, 16]), ("v", [16, 4])].map(|(name, shape)| g.input(name, shape, DType::F32));
    let (l, h, data) = (g.input("l", [4], DType::F32), g.input("h", [4], DType::F32), g.input("x", [9, 8], DType::F32));
    let row = |shift: f64| data.take((g.step() + shift).broadcast([], [3]));
    let net = |w: Tensor, v: Tensor, x: Tensor| x.matmul(w).tanh().matmul(v);
    let inner = (net(w, v, row(0.0)).square() * l.exp().broadcast([1], [3, 4])).sum_all();
    let slope = gradient_or_zeros(inner, &[w, v]).unwrap();
    let (new_w, new_v) = (w - slope[0] * 0.1, v - slope[1] * 0.1);
    let outer = (net(new_w, new_v, row(1.0)) - 1.0).square().sum_all();
    let f = gradient_or_zeros(outer, &[new_w, new_v]).unwrap();
    let mixed = mixed_vector(inner, &[w, v], &f, &[l]).unwrap()[0].unwrap();
    // An empty carried input must not be copied.
    let none = g.input("none", [0], DType::F32);
    let builder = Program::builder(&g).carry(w, new_w).carry(v, new_v).carry(h, h - mixed * 0.1).carry(none, none);
    builder.output("outer", outer).build().unwrap()
}

/// Returns the inputs and outputs after pipelines of these lengths, with the steps in a random valid order.
fn left_by_windows(plan: &Plan, lengths: &[usize], seed: u64) -> HashMap<Region, Vec<u64>> {
    let pipeline = plan.pipeline.as_ref().expect("new weights are known early");
    let mut memory = SymbolicMemory::new(STEPS_IN_FLIGHT * (plan.arena_bytes - pipeline.extra_bytes()));
    plan.prologue.iter().for_each(|step| memory.run(step));
    let (_, numbers) = pipeline.counter.expect("rows are chosen by the number of the step");
    for (chain, &count) in lengths.iter().enumerate() {
        let before: usize = lengths[..chain].iter().sum();
        let window = Window { stages: Stages::All(count), shows: chain + 1 == lengths.len() };
        let pipelined_steps = pipeline.unrolled(window, (&plan.body, None));
        assert!(pipelined_steps.iter().all(|pipelined| pipelined.slot.stream < PIPELINE_STREAMS));
        let slots: Vec<&StreamSlot> = pipelined_steps.iter().map(|pipelined| &pipelined.slot).collect();
        for number in any_order(&slots, seed) {
            match pipelined_steps[number].part {
                PipelinePart::First(_) | PipelinePart::Last(_) => memory.copy(&pipelined_steps[number].step),
                _ => memory.run(&pipelined_steps[number].step),
            }
            if matches!(pipelined_steps[number].part, PipelinePart::First(_)) {
                for number in 0..MAX_PIPELINE_STEPS {
                    let place = Place { offset: numbers.offset + 4 * number, ..numbers };
                    memory.bytes(&Span { place, bytes: 4 }).fill((before + number) as u64);
                }
            }
        }
    }
    memory.bound()
}

#[test]
fn a_pipeline_computes_the_same_as_sequential_steps_in_any_stream_order() {
    let plan = plan(&rotating_program(), None, true).unwrap();
    let pipeline = plan.pipeline.as_ref().unwrap();
    // The first weights are not needed after the outer gradient, and are updated in place like the sum.
    assert_eq!(pipeline.copies(), (1, 2));
    for count in 2..=7 {
        let expected = left_by_windows(&plan, &vec![1; count], 0);
        assert!((0..40).all(|seed| left_by_windows(&plan, &[count], seed) == expected), "{count} steps");
        assert!(left_by_windows(&plan, &[2, count], 1) == left_by_windows(&plan, &[count + 2], 2), "{count} steps");
    }
}

#[test]
fn a_step_begins_before_the_one_before_it_is_over() {
    let plan = plan(&rotating_program(), None, true).unwrap();
    let pipelined_steps = {
        let window = Window { stages: Stages::All(3), shows: false };
        plan.pipeline.as_ref().unwrap().unrolled(window, (&plan.body, None))
    };
    let steps: Vec<Step> = pipelined_steps.iter().map(|pipelined| pipelined.step.clone()).collect();
    let end = |steps: &[Step]| {
        let done = finish_times(&dependencies(steps), &steps.iter().map(|step| cost(&H200, step)).collect::<Vec<_>>());
        done.into_iter().map(|(end, _)| end).fold(0.0, f64::max)
    };
    let (all, alone) = (end(&steps), end(plan.carry_only.as_ref().unwrap_or(&plan.body)));
    assert!(all < 2.6 * alone, "{all} of {alone}");
}

#[test]
fn loops_with_late_or_in_place_carries_are_not_pipelined() {
    let g = Graph::new();
    let x = g.input("x", [64, 64], DType::F32);
    let planned = |next: Tensor| plan(&Program::builder(&g).carry(x, next).build().unwrap(), None, true).unwrap();
    assert!(planned(x.sin()).pipeline.is_none(), "in place");
    assert!(planned(x.matmul(x).matmul(x)).pipeline.is_none(), "the end of the step");
}

#[test]
fn pipelines_have_about_the_same_length() {
    let plan = plan(&rotating_program(), None, true).unwrap();
    let pipeline = plan.pipeline.as_ref().unwrap();
    let lengths = |mut steps: usize| {
        let mut found = vec![];
        while steps > 0 {
            found.push(pipeline.length(steps));
            steps -= found[found.len() - 1];
        }
        found
    };
    assert_eq!((lengths(1), lengths(16), lengths(17)), (vec![1], vec![16], vec![9, 8]));
    assert_eq!(lengths(100), [15, 15, 14, 14, 14, 14, 14]);
}

/// HPO-SGLD with an L1 weight per parameter: new weights, then the outer gradient at them, times the signs of the
/// old ones. Both stages read the step number.
fn staged_program(size: usize) -> Program {
    let g = Graph::new();
    let [w, h, x, y] = ["w", "h", "x", "y"].map(|name| g.input(name, [size, size], DType::F32));
    let number = || g.step().convert(DType::F32).broadcast([], [size, size]);
    let net = |w: Tensor, x: Tensor| x.matmul(w).tanh().matmul(w);
    let slope = gradient_or_zeros(net(w, x).square().sum_all(), &[w]).unwrap()[0];
    let new = w - (slope + w.sign()) * 0.1 + number().sin();
    let outer = (net(new, y) - 1.0).square().sum_all();
    let f = gradient_or_zeros(outer, &[new]).unwrap()[0];
    let builder = Program::builder(&g).carry(w, new).carry(h, h + f * w.sign() * number());
    builder.output("outer", outer).output("mean", x.matmul(w).mean_all()).build().unwrap()
}

/// Returns the inputs and outputs after this many steps, sequential or in stages in a random valid order.
fn left_by(plan: &Plan, count: usize, seed: Option<u64>) -> HashMap<Region, Vec<u64>> {
    let mut memory = SymbolicMemory::new(plan.arena_bytes);
    let carry_only = plan.carry_only.as_deref().unwrap_or(&plan.body);
    plan.prologue.iter().chain(&plan.initial_casts).for_each(|step| memory.run(step));
    match seed {
        None => {
            for number in 0..count {
                let body = if number + 1 == count { &plan.body } else { carry_only };
                body.iter().for_each(|step| memory.run(step));
            }
        }
        Some(seed) => {
            let pipeline = plan.pipeline.as_ref().unwrap();
            for window in pipeline.windows(count, true).unwrap() {
                let steps = pipeline.unrolled(window, (&plan.body, plan.carry_only.as_deref()));
                let slots: Vec<&StreamSlot> = steps.iter().map(|step| &step.slot).collect();
                any_order(&slots, seed).into_iter().for_each(|number| memory.run(&steps[number].step));
            }
        }
    }
    plan.finish.iter().for_each(|step| memory.copy(step));
    memory.bound()
}

#[test]
fn stages_compute_the_same_as_sequential_steps_in_any_stream_order() {
    let plan = plan(&staged_program(8), None, true).unwrap();
    assert!(plan.carry_only.is_some(), "the mean is an output only");
    for count in 1..=5 {
        let expected = left_by(&plan, count, None);
        assert!((0..40).all(|seed| left_by(&plan, count, Some(seed)) == expected), "{count} steps");
    }
}

/// Compares with a plan without stages.
#[test]
fn so_it_is_for_every_loop_whose_kernels_are_the_same() {
    let cases = conformance::carries(40, 70, DType::F32).unwrap().into_iter();
    let varied = (0..600).map(|seed| varied_program(seed, &Graph::new(), DType::F32, Size::small).unwrap());
    let mut by_stage = 0;
    for case in cases.chain(varied) {
        let [plan, whole] = [GpuPipeline::new(), GpuPipeline::sequential()]
            .map(|passes| plan_with(&case.program, None, true, &passes).unwrap());
        // Fewer kernels are fused if they are in different stages.
        let texts = |plan: &Plan| {
            // Kernels of one thread count steps; stages have one more of them.
            let counts = |launch: &&Launch| launch.kernel.block == 1;
            let kernels = plan.kernels().filter(|launch| !counts(launch));
            let mut texts: Vec<String> = kernels.map(|launch| CudaCpp.kernel(&launch.kernel, "kernel")).collect();
            texts.sort_unstable();
            texts
        };
        if is_staged(&plan) && texts(&plan) == texts(&whole) {
            let expected = left_by(&whole, 4, None);
            assert!((0..10).all(|seed| left_by(&plan, 4, Some(seed)) == expected), "{}", case.name);
            by_stage += 1;
        }
    }
    assert!(by_stage > 3, "{by_stage} loops");
}

#[test]
fn each_half_counts_by_itself() {
    let plan = plan(&staged_program(8), None, true).unwrap();
    let pipeline = plan.pipeline.as_ref().unwrap();
    let (counter, late) = pipeline.counter.unwrap();
    assert!(counter != late && plan.persistent_bytes >= late.offset + DType::I32.size());
    let first = Window { stages: Stages::First, shows: true };
    let early = pipeline.unrolled(first, (&plan.body, plan.carry_only.as_deref())).len();
    let (steps, others) = plan.body.split_at(early);
    for (stage, own, other) in [(steps, counter, late), (others, late, counter)] {
        let uses = |step: &Step, place: Place| step.reads.iter().chain(&step.writes).any(|span| span.place == place);
        assert!(!stage.iter().any(|step| uses(step, other)));
        let writes = |step: &&Step| step.writes.iter().any(|span| span.place == own);
        assert_eq!(stage.iter().filter(writes).count(), 1);
    }
}

#[test]
fn where_memory_is_short_steps_are_whole() {
    let [some, least] = [GpuPipeline::new(), GpuPipeline::sequential()]
        .map(|passes| plan_with(&staged_program(8), None, true, &passes).unwrap());
    assert!(is_staged(&some) && least.pipeline.is_none());
}

#[test]
fn two_overlapped_stages_take_as_long_as_the_longer_one() {
    let plan = plan(&staged_program(512), None, true).unwrap();
    let pipeline = plan.pipeline.as_ref().unwrap();
    let seconds = |stages| {
        let window = Window { stages, shows: false };
        let steps = pipeline.unrolled(window, (&plan.body, plan.carry_only.as_deref()));
        let steps: Vec<Step> = steps.into_iter().map(|pipelined| pipelined.step).collect();
        let done = finish_times(&dependencies(&steps), &steps.iter().map(|step| cost(&H200, step)).collect::<Vec<_>>());
        done.into_iter().map(|(end, _)| end).fold(0.0, f64::max)
    };
    let [first, last, together] = [Stages::First, Stages::Last, Stages::Overlapped].map(seconds);
    assert!(together < 0.7 * (first + last), "{together} of {first} and {last}");
}

#[test]
fn conformance_has_such_a_loop() {
    let cases = conformance::carries(64, 64, DType::F32).unwrap();
    let case = cases.into_iter().find(|case| case.name.starts_with("what is only added up")).unwrap();
    assert!(is_staged(&plan(&case.program, None, true).unwrap()));
}

#[test]
fn a_step_that_depends_on_all_carried_values_has_no_stages() {
    let g = Graph::new();
    let [x, y] = ["x", "y"].map(|name| g.input(name, [64, 64], DType::F32));
    let planned = |[next_x, next_y]: [Tensor; 2]| {
        let program = Program::builder(&g).carry(x, next_x).carry(y, next_y).build().unwrap();
        is_staged(&plan(&program, None, true).unwrap())
    };
    let (x_next, outer) = (x - x.matmul(x) * 0.1, |x: Tensor| x.sin().matmul(x));
    assert!(planned([x_next, y + outer(x_next)]));
    assert!(!planned([x_next + y, y + outer(x_next)]), "each needs the other");
    assert!(!planned([x_next, y.sin()]), "there is little of what is late");
    assert!(!planned([x.matmul(x), y + outer(x_next)]), "copied at the end of a step");
}
