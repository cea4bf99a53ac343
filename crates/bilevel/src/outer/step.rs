//! One step of λ as one program: clip the hypergradient, compute the optimizer's direction, move, project onto the
//! bounds, and measure the norms that the outer loop needs. Only a handful of numbers is read back.
//!
//!   g = h·min(1, limit/‖h‖),   λ ← project(λ − rate·direction(g))

use crate::compiled::leaves::Leaves;
use crate::compiled::norms;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::Trace;
use crate::inner::optimizer::{LeafStep, Optimizer};
use crate::problem::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{Buffer, DType, Graph, Meta, Program, Tensor};

/// The state of an optimizer: by slot, then by leaf of λ, in the problem's type.
pub(crate) type Slots = Vec<Leaves>;

/// Slots before the first step.
pub(crate) fn zero_slots(optimizer: &dyn Optimizer, lambda: &Leaves, session: &Session) -> Result<Slots> {
    optimizer.slots().iter().map(|_| lambda.zeros_like(session.executor())).collect()
}

/// The nearest values of a type within the bounds: rounding to f32 does not step over them.
pub(crate) fn bounds_in(variable: &Variable, dtype: DType) -> (f64, f64) {
    let (low, high) = variable.bounds();
    if dtype != DType::F32 {
        return (low, high);
    }
    let (low32, high32) = (low as f32, high as f32);
    let low32 = if (low32 as f64) < low { low32.next_up() } else { low32 };
    let high32 = if high32 as f64 > high { high32.next_down() } else { high32 };
    (low32 as f64, high32 as f64)
}

/// A tensor brought within bounds; a NaN stays one.
pub(crate) fn project(value: Tensor, (low, high): (f64, f64)) -> Tensor {
    let value = if low > f64::NEG_INFINITY { value.maximum(low) } else { value };
    if high < f64::INFINITY { value.minimum(high) } else { value }
}

/// The step, compiled for a memory of these shapes.
pub(crate) struct OuterStep {
    routine: Routine,
    memory: Vec<Meta>,
    slots: Vec<String>,
    sums: Sums,
}

/// The position of each measured Σx² among the numbers read back, followed by the largest |x|; `None` without numbers.
struct Sums {
    h: Option<usize>,
    projected: Option<usize>,
    theta: Option<usize>,
    memory: Option<usize>,
    step: Option<usize>,
    next: Option<usize>,
    slots: Option<usize>,
}

impl Sums {
    /// Returns true if nothing that is measured has numbers.
    fn are_none(&self) -> bool {
        let Sums { h, projected, theta, memory, step, next, slots } = self;
        [h, projected, theta, memory, step, next, slots].into_iter().all(Option::is_none)
    }
}

/// The output that has all of them, so that they are read at once.
const MEASURED: &str = "measured";

/// The numbers of that output so far.
#[derive(Default)]
struct StepNumbers(Vec<Tensor>);

impl StepNumbers {
    /// Adds the numbers of one thing.
    fn add(&mut self, tensors: &[Tensor]) -> Option<usize> {
        let place = self.0.len();
        self.0.extend(norms::sums(tensors)?.map(|number| number.reshape([1])));
        Some(place)
    }
}

/// The measurements of a step. Norms are Euclidean, over all leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepNorms {
    pub hypergradient: f64,
    /// ‖λ − project(λ − h)‖, which is ‖h‖ if λ has no bounds.
    pub projected: f64,
    pub theta: f64,
    pub memory: f64,
    /// How far λ moved.
    pub moved: f64,
    /// The norm of λ after the step.
    pub lambda: f64,
    /// λ and the optimizer's state are finite.
    pub is_finite: bool,
}

/// The inputs of a slot.
fn slot_name(number: usize) -> String {
    format!("slot{number}")
}

impl OuterStep {
    /// Compiles the step for checking a memory like this one.
    pub fn new(session: &Session, optimizer: &dyn Optimizer, clip: Option<f64>, kept: &Leaves) -> Result<Self> {
        let problem = session.problem();
        let dtype = problem.dtype;
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let (lambda, h) = (&trace.lambda, trace.inputs_like("h", &trace.lambda));
        let memory = |(i, leaf): (usize, &Buffer)| graph.input(format!("memory.{i}"), leaf.shape(), leaf.dtype());
        let memory: Vec<Tensor> = kept.iter().enumerate().map(memory).collect();
        let [rate, iteration] = ["rate.0", "iteration.0"].map(|name| graph.input(name, [], dtype));
        let mut builder = Program::builder(&graph).keep_input(rate).keep_input(iteration);
        builder = memory.iter().fold(builder, |builder, leaf| builder.keep_input(*leaf));
        let factor = clip.and_then(|limit| {
            let norm = norms::square_norm(&h)?.sqrt();
            Some(norm.greater(limit).select(norm.constant_like(limit, []) / norm, 1.0).convert(dtype))
        });
        let (mut next, mut moved, mut projected, mut remembered) = (vec![], vec![], vec![], vec![]);
        for (i, (_, variable)) in problem.lambda.iter().enumerate() {
            let slot = |s| graph.input(format!("{}.{i}", slot_name(s)), lambda[i].shape(), dtype);
            let slots: Vec<Tensor> = (0..optimizer.slots().len()).map(slot).collect();
            let gradient = factor.map_or(h[i], |factor| h[i] * factor);
            let gradient = match variable.weight_decay {
                0.0 => gradient,
                decay => gradient + lambda[i] * decay,
            };
            let rate = if variable.rate == 1.0 { rate } else { rate * variable.rate };
            let (direction, kept) = optimizer.step(&LeafStep { gradient, value: lambda[i], slots: &slots, iteration });
            if kept.len() != slots.len() {
                let (kind, given) = (optimizer.kind(), kept.len());
                let reason = format!("the optimizer '{kind}' keeps {} tensors but returned {given}", slots.len());
                return Err(Error::Contract { reason });
            }
            let bounds = bounds_in(variable, dtype);
            next.push(project(lambda[i] - direction * rate, bounds));
            moved.push(next[i] - lambda[i]);
            projected.push(match variable.bounds() {
                (f64::NEG_INFINITY, f64::INFINITY) => h[i],
                _ => lambda[i] - project(lambda[i] - h[i], bounds),
            });
            builder = builder.carry(lambda[i], next[i]);
            for (slot, kept) in slots.iter().zip(&kept) {
                builder = builder.carry(*slot, *kept);
            }
            remembered.extend(kept);
        }
        let mut measures = StepNumbers::default();
        let sums = Sums {
            h: measures.add(&h),
            projected: measures.add(&projected),
            theta: measures.add(&trace.theta),
            memory: measures.add(&memory),
            step: measures.add(&moved),
            next: measures.add(&next),
            slots: measures.add(&remembered),
        };
        if let [first, others @ ..] = &measures.0[..] {
            builder = builder.output(MEASURED, first.concat(others, 0));
        }
        let routine = Routine::new(&builder.build()?, session)?;
        let memory = kept.iter().map(|leaf| leaf.meta().clone()).collect();
        Ok(OuterStep { routine, memory, slots: (0..optimizer.slots().len()).map(slot_name).collect(), sums })
    }

    /// Returns true if it was compiled for a memory of these shapes.
    pub fn fits(&self, memory: &Leaves) -> bool {
        memory.iter().map(Buffer::meta).eq(&self.memory)
    }

    /// Moves λ and the optimizer's state, in place.
    pub fn take(
        &mut self,
        state: &State,
        memory: &Leaves,
        h: &Leaves,
        slots: &Slots,
        (rate, iteration): (f64, u32),
    ) -> Result<StepNorms> {
        if !h.is_like(&state.lambda) {
            return Err(Error::Contract { reason: "the method's hypergradient does not have the shapes of λ".into() });
        }
        let routine = &mut self.routine;
        routine.set_numbers("rate", [rate])?;
        routine.set_numbers("iteration", [iteration as f64])?;
        routine.bind_lambda(&state.lambda)?;
        routine.bind_theta(&state.theta)?;
        routine.bind("h", h)?;
        if !memory.is_empty() {
            routine.bind("memory", memory)?;
        }
        for (name, slot) in self.slots.iter().zip(slots) {
            routine.bind(name, slot)?;
        }
        routine.run(0..1)?;
        // The method may use the hypergradient's memory for the next one.
        routine.unbind("h")?;
        let sums = &self.sums;
        let measured = if sums.are_none() { vec![] } else { routine.numbers(MEASURED)? };
        let read = |place: Option<usize>| place.map_or([0.0; 2], |square| [measured[square], measured[square + 1]]);
        let norm = |[square, largest]: [f64; 2], leaves: &Leaves| norms::norm(square, largest, leaves);
        // If squares over- or underflow, the largest element replaces the norm: these arrays are gone by now.
        let size = |[square, largest]: [f64; 2]| {
            let in_range = square.is_nan() || (square.is_finite() && (square > 0.0 || largest == 0.0));
            if in_range { square.sqrt() } else { largest }
        };
        let is_finite = |[square, largest]: [f64; 2]| !square.is_nan() && largest.is_finite();
        let next = read(sums.next);
        Ok(StepNorms {
            hypergradient: norm(read(sums.h), h)?,
            projected: size(read(sums.projected)),
            theta: norm(read(sums.theta), &state.theta)?,
            memory: norm(read(sums.memory), memory)?,
            moved: size(read(sums.step)),
            lambda: norm(next, &state.lambda)?,
            is_finite: is_finite(next) && is_finite(read(sums.slots)),
        })
    }
}
