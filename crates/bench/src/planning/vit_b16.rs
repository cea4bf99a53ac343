//! Times the work before the first run: tracing, differentiating and planning a whole ViT-B/16 gradient step.

use crate::cases::case::Case;
use crate::cases::vit::vit_b16;
use crate::error::Result;
use bilevel_cpu::Cpu;
use bilevel_graph::{DType, Graph, Program, gradient_or_zeros};
use std::time::Instant;

/// Goal for the sum of all parts, in seconds.
const GOAL: f64 = 1.0;

/// Prints one JSON line for each of `reps` times the step is made from scratch.
///
/// The step is θ ← θ − 0.01·∇L for all 86,567,656 parameters, carried, with the loss as output.
pub fn run(threads: usize, reps: usize) -> Result<()> {
    let cpu = Cpu::with_threads(threads);
    for _ in 0..reps {
        let mut clock = Clock(Instant::now());
        let g = Graph::new();
        let case = vit_b16(&g, DType::F32)?;
        let (trace, traced) = (clock.lap(), g.len());
        let program = step(&g, &case)?;
        let (derive, derived) = (clock.lap(), g.len());
        let run = cpu.plan(&program)?;
        let plan = clock.lap();
        let total = trace + derive + plan;
        let (bytes, bound) = (run.memory_bytes(), run.memory_lower_bound());
        say!(
            "{{\"case\": \"vit_b16_step\", \"trace_s\": {trace:.4}, \"derive_s\": {derive:.4}, \"plan_s\": {plan:.4}, \
             \"total_s\": {total:.4}, \"goal_s\": {GOAL}, \"met\": {}, \"traced_nodes\": {traced}, \
             \"derived_nodes\": {derived}, \"program_nodes\": {}, \"steps\": {}, \"memory_bytes\": {bytes}, \
             \"lower_bound\": {bound}, \"memory_ratio\": {:.4}}}",
            total <= GOAL,
            program.nodes.len(),
            run.describe().lines().count(),
            bytes as f64 / bound as f64,
        );
    }
    Ok(())
}

/// The step of ViT-B/16 that is planned.
pub fn vit_b16_step() -> Result<Program> {
    let g = Graph::new();
    let case = vit_b16(&g, DType::F32)?;
    step(&g, &case)
}

/// A step of gradient descent on all parameters, with the loss as output.
fn step(g: &Graph, case: &Case) -> Result<Program> {
    let parameters: Vec<_> = case.parameters.iter().map(|(p, _)| *p).collect();
    let gradient = gradient_or_zeros(case.loss, &parameters)?;
    let mut builder = Program::builder(g).output("loss", case.loss);
    for (&p, d) in parameters.iter().zip(gradient) {
        builder = builder.carry(p, p - d * 0.01);
    }
    Ok(builder.build()?)
}

/// Seconds since the last time it was asked.
struct Clock(Instant);

impl Clock {
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        (now - std::mem::replace(&mut self.0, now)).as_secs_f64()
    }
}
