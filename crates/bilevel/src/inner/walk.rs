//! The inner loop as programs, which the estimators share:
//!
//!   θᵗ⁺¹ = θᵗ − γ·direction(∇θL_T(λ, θᵗ)) + κ·√(2τγ)·ξᵗ,   t = 0 … T−1,
//!
//! from θ⁰ = `state.theta`, or from θ⁰(λ) if the problem defines it. Step t draws with counter t, so any stretch of the
//! loop can be rerun alone with the same minibatches and noise. f is evaluated at θᵀ with counter T.

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::trace::{InnerLoss, Trace, or_zeros};
use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::{LeafStep, Optimizer};
use crate::problem::AnyProblem;
use crate::problem::variable::{Role, Variable};
use crate::{Error, Result};
use bilevel_graph::{Graph, Program, ProgramBuilder, Tensor, gradient};
use std::ops::Range;

/// One step of the loop as tensors: pairs of an input and its new value.
pub struct InnerStep {
    /// θ.
    pub theta: Vec<(Tensor, Tensor)>,
    /// The state of the optimizer, slot by slot and leaf by leaf.
    pub slots: Vec<(Tensor, Tensor)>,
}

impl InnerStep {
    /// θ after the step.
    pub fn next(&self) -> Vec<Tensor> {
        self.theta.iter().map(|(_, next)| *next).collect()
    }

    /// Carries θ and the slots from one step of a program to the next.
    pub fn carry<'g>(&self, mut builder: ProgramBuilder<'g>) -> ProgramBuilder<'g> {
        for &(input, next) in self.theta.iter().chain(&self.slots) {
            builder = builder.carry(input, next);
        }
        builder
    }
}

/// The group of inputs that holds the optimizer's state.
pub(crate) const SLOTS: &str = "slot";

impl InnerLoop {
    /// Prepares a routine for a loop: sets γ and the size of the noise, and resets its optimizer.
    pub fn place(&self, routine: &mut Routine, gamma: f64) -> Result<()> {
        routine.set_step_sizes(gamma, self.noise_scale * (2.0 * self.temperature * gamma).sqrt())?;
        if self.has_slots() {
            routine.zeroed(SLOTS)?;
        }
        Ok(())
    }

    /// The counter of the outer loss, as steps of a program that runs once.
    pub fn last(&self) -> Range<u32> {
        self.steps as u32..self.steps as u32 + 1
    }

    /// One step as tensors, from ∇θL_T, with the statistics given by the inner loss.
    pub fn one_step(&self, trace: &Trace, slope: &[Tensor], updates: &[Option<Tensor>], counter: Tensor) -> InnerStep {
        let (theta, kept) = (&trace.theta, self.optimizer.slots().len());
        let iteration = (counter + 1.0).convert(trace.problem.dtype);
        let noise = if self.is_noisy() { Some(trace.noise(counter)) } else { None };
        let mut step = InnerStep { theta: vec![], slots: vec![] };
        for (i, (gamma, (_, variable))) in trace.steps().into_iter().zip(&trace.problem.theta).enumerate() {
            if variable.role == Role::Statistic {
                step.theta.push((theta[i], updates[i].unwrap_or(theta[i])));
                continue;
            }
            let slot = |s| {
                let name = format!("{SLOTS}.{}", step.slots.len() + s);
                trace.graph.input(name, theta[i].shape(), theta[i].dtype())
            };
            let slots: Vec<Tensor> = (0..kept).map(slot).collect();
            let leaf = LeafStep { gradient: slope[i], value: theta[i], slots: &slots, iteration };
            let (direction, slots_next) = self.optimizer.step(&leaf);
            let mut next = theta[i] - direction * gamma;
            if let Some(noise) = &noise {
                let size =
                    if variable.rate == 1.0 { trace.noise_size } else { trace.noise_size * variable.rate.sqrt() };
                next = next + noise[i] * size;
            }
            step.theta.push((theta[i], next));
            step.slots.extend(slots.into_iter().zip(slots_next));
        }
        step
    }

    /// A program that makes a step each time it runs, and shows L_T at the θ it started from as `inner`.
    pub fn walk(&self, session: &Session) -> Result<Routine> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let InnerLoss { loss, updates } = trace.inner_loss(&trace.theta, graph.step())?;
        let slope = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
        let step = self.one_step(&trace, &slope, &updates, graph.step());
        Routine::new(&step.carry(Program::builder(&graph).output("inner", loss)).build()?, session)
    }
}

/// θ⁰(λ), the start of an inner loop, if the problem defines it.
pub struct InnerStart(Option<Routine>);

impl InnerStart {
    /// Compiled in a session.
    pub fn new(session: &Session) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let Some(start) = trace.start()? else { return Ok(InnerStart(None)) };
        let mut builder = Program::builder(&graph);
        for (i, theta) in start.into_iter().enumerate() {
            builder = builder.output(format!("start.{i}"), theta);
        }
        Ok(InnerStart(Some(Routine::new(&builder.build()?, session)?)))
    }

    /// Moves θ to the start of the inner loop, θ⁰(λ), if there is one.
    pub fn place(&mut self, lambda: &Leaves, theta: &Leaves, key: Key) -> Result<()> {
        let Some(routine) = &mut self.0 else { return Ok(()) };
        routine.bind_lambda(lambda)?;
        routine.set_key(key)?;
        routine.bind_outputs("start", theta)?;
        routine.run(0..1)
    }
}

/// f with f_λ and f_θ at one θ: outputs `outer`, `direct.i`, `f_theta.i`.
pub(crate) fn outer_gradient(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    let both = [&trace.lambda[..], &trace.theta].concat();
    let by = or_zeros(gradient(loss, &both)?, &both);
    let (direct, f_theta) = by.split_at(trace.lambda.len());
    let mut builder = Program::builder(&graph).output("outer", loss);
    for (prefix, values) in [("direct", direct), ("f_theta", f_theta)] {
        for (i, &value) in values.iter().enumerate() {
            builder = builder.output(format!("{prefix}.{i}"), value);
        }
    }
    Routine::new(&builder.build()?, session)
}

/// f alone, as output `outer`.
pub(crate) fn outer_loss(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    Routine::new(&Program::builder(&graph).output("outer", loss).build()?, session)
}

/// h + vᵀ·J0 from inputs `h.i` and `v.i`, as outputs `h.i`; `None` if θ⁰ does not depend on λ.
pub(crate) fn through_start(session: &Session) -> Result<Option<Routine>> {
    if !session.problem().starts_from_lambda() {
        return Ok(None);
    }
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (h, v) = (trace.inputs_like("h", &trace.lambda), trace.inputs_like("v", &trace.theta));
    let mut builder = Program::builder(&graph);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    for (i, (h, change)) in h.into_iter().zip(trace.through_start(&v)?).enumerate() {
        builder = builder.output(format!("h.{i}"), h + change);
    }
    Ok(Some(Routine::new(&builder.build()?, session)?))
}

/// Adds vᵀ·J0 to h with the routine above.
pub(crate) fn add_through_start(
    routine: &mut Routine,
    (lambda, key): (&Leaves, Key),
    h: &Leaves,
    v: &Leaves,
) -> Result<Leaves> {
    routine.bind_lambda(lambda)?;
    routine.set_key(key)?;
    routine.bind("h", h)?;
    routine.bind("v", v)?;
    let sum = routine.fresh_outputs("h")?;
    routine.run(0..1)?;
    // The code that computed h may use its memory for the next one.
    routine.unbind("h")?;
    Ok(sum)
}

/// Carries these from the step with this number on, and starts them at 0 there.
pub(crate) fn carried_from(first: usize, carried: Vec<Tensor>, step: Tensor) -> Vec<Tensor> {
    let has_begun = step.greater(first as f64);
    carried.into_iter().map(|x| has_begun.select(x, 0.0)).collect()
}

/// A vector in the shapes of θ, each leaf times its own rate.
pub(crate) fn scaled(v: &[Tensor], problem: &AnyProblem) -> Vec<Tensor> {
    let one = |(v, (_, variable)): (&Tensor, &(String, Variable))| match variable.rate {
        1.0 => *v,
        rate => *v * rate,
    };
    v.iter().zip(&problem.theta).map(one).collect()
}

/// Returns true if every leaf of θ⁰ is the leaf of λ itself, or copies of it along leading axes, one per task trained
/// side by side.
pub(crate) fn starts_at_copies_of_lambda(problem: &AnyProblem) -> Result<bool> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let copies = |(start, lambda): (&Tensor, &Tensor)| {
        start.shape().ends_with(&lambda.shape()) && start.is_same_node(lambda.broadcast_to(start.shape()))
    };
    Ok(trace
        .start()?
        .is_some_and(|start| start.len() == trace.lambda.len() && start.iter().zip(&trace.lambda).all(copies)))
}

/// An error for a method that needs a problem of another kind.
pub(crate) fn not_applicable<T>(method: &'static str, reason: &str) -> Result<T> {
    Err(Error::NotApplicable { method, reason: reason.into() })
}
