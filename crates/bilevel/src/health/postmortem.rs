//! The cause of a diverged iteration, found by rerunning its inner loop step by step.
//!
//! A method only detects that a number is not finite, and the driver detects which one. Neither distinguishes a step
//! that is too large from a root at 0. So the inner loop is rerun from its start, and the first fault is the cause. The
//! faults, in this order, are a loss or derivative that is not finite though nothing grew, and a loss without upper or
//! lower bound. The last is a step too large for the curvature.

use crate::compiled::key::Key;
use crate::compiled::norms::square_norm;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::{InnerLoss, Trace, or_zeros};
use crate::health::divergence::{Cause, Diagnosis};
use crate::hypergradient::loop_use::{Descent, LoopUse};
use crate::inner::inner_loop::InnerLoop;
use crate::inner::optimizer::InnerOptimizer;
use crate::{Error, Result};
use bilevel_graph::{DType, Graph, Program, Tensor, gradient, vjp};

/// A change of this many times the size at the start is a loss that runs away.
const AWAY: f64 = 1e3;
/// Hessian products spent on the largest curvature.
const PRODUCTS: usize = 20;

/// The driver's data on the iteration.
pub(crate) struct Circumstances<'a> {
    pub session: &'a Session,
    /// λ and θ at the start of the iteration.
    pub state: &'a State,
    pub key: Key,
    /// The inner loop, whose step is the γ of the iteration.
    pub inner: InnerLoop,
    /// How the method uses it.
    pub used: LoopUse,
    /// The step of λ before was larger than 1 and than half of λ.
    pub leap: bool,
    /// The outer loss of the iteration before, if it was the least of the run.
    pub least: Option<f64>,
    /// The start of the run, with which the outer loss is compared.
    pub first: &'a State,
}

/// The numbers at one θ.
#[derive(Clone, Copy, Debug)]
struct Seen {
    step: usize,
    inner: f64,
    /// The sum of |∇θL_T|: a sum of squares would leave the range of numbers before the loss does.
    slope: f64,
    outer: f64,
    /// The sums of |f_θ| and |f_λ|.
    f_theta: f64,
    f_lambda: f64,
}

impl Seen {
    fn inner_is_sound(&self) -> bool {
        self.inner.is_finite() && self.slope.is_finite()
    }
}

/// Observations along an inner loop.
struct Walk {
    first: Seen,
    /// The last whose inner loss and its derivative are finite, and the next, at which they are not.
    sound: Option<Seen>,
    broken: Option<Seen>,
    /// The inner loss or its slope left the size it had at the start far behind.
    away: bool,
    /// The inner loss never rose.
    falls: bool,
    /// The last θ at which the outer loss or a derivative of it is not finite.
    outer: Option<Seen>,
}

impl Circumstances<'_> {
    /// The diagnosis with a better cause, if one is found.
    pub fn examine(&self, diagnosis: Diagnosis) -> Diagnosis {
        // This is only an explanation: its own errors must not hide the divergence.
        match self.cause(&diagnosis) {
            Ok(Some((seen, cause))) => Diagnosis { seen, cause, ..diagnosis },
            _ => diagnosis,
        }
    }

    fn cause(&self, given: &Diagnosis) -> Result<Option<(String, Cause)>> {
        if let Some(seen) = self.outer_loss_falls_without_end()? {
            return Ok(Some((format!("{}; {seen}", given.seen), Cause::OuterLossUnbounded)));
        }
        // A search takes no derivative of the outer loss.
        let walk = self.walk(given.cause != Cause::SearchTooWide)?;
        if let Some(broken) = walk.broken {
            // A loss that is infinite at the start of training was finite before λ and θ moved.
            let moved_there = broken.inner.is_infinite() && (broken.step > 0 || given.iteration > 1);
            if !walk.away && !moved_there {
                let what = undefined("inner", broken.inner, "its derivative with respect to θ");
                return Ok(Some((format!("{what} {}", self.place(broken.step)), Cause::InnerLossUndefined)));
            }
            // A step from which the loss rises is too large; if it only falls, no step is small enough.
            let last = walk.sound.filter(|_| walk.falls && broken.step > 1);
            if self.leap || broken.step == 0 {
                return self.curvature(&given.seen);
            }
            return Ok(match last {
                Some(last) => {
                    let fell = format!("the inner loss fell from {:.3e} to {:.3e}", walk.first.inner, last.inner);
                    Some((format!("{}; {fell}", given.seen), Cause::InnerLossUnbounded))
                }
                None => {
                    let lost = format!("the inner loss is not finite from inner step {} on", broken.step + 1);
                    Some((format!("{}; {lost}", given.seen), self.too_large()))
                }
            });
        }
        // A loss that overflows after a leap of λ is the leap's fault.
        if let Some(seen) = walk.outer.filter(|seen| !(self.leap && seen.outer.is_infinite())) {
            let by = if seen.f_theta.is_finite() {
                "its derivative with respect to λ"
            } else {
                "its derivative with \
                 respect to θ"
            };
            let what = undefined("outer", seen.outer, by);
            return Ok(Some((format!("{what} {}", self.place(seen.step)), Cause::OuterLossUndefined)));
        }
        match given.cause {
            Cause::AdjointGrowing | Cause::InnerStepTooLarge | Cause::OuterStepTooLarge => self.curvature(&given.seen),
            _ => Ok(None),
        }
    }

    /// The cause for inner steps that are too large.
    fn too_large(&self) -> Cause {
        match self.used.descent {
            Descent::Penalised { .. } => Cause::PenaltyStepTooLarge,
            _ => Cause::InnerStepTooLarge,
        }
    }

    fn place(&self, step: usize) -> String {
        match step {
            0 => "at the start of training".into(),
            _ if step == self.inner.steps => "at the end of training".into(),
            step => format!("after inner step {step}"),
        }
    }

    /// The point at which the inner step exceeds the method's limit: the iteration's start, unless λ leapt there, or
    /// the run's start. A step that was too large from the outset moves λ anywhere.
    fn curvature(&self, seen: &str) -> Result<Option<(String, Cause)>> {
        // The curvature limits the step only for plain descent.
        if self.inner.optimizer != InnerOptimizer::Sgd {
            return Ok(None);
        }
        let places = [(self.state, "training"), (self.first, "the run")];
        for (state, what) in places.into_iter().skip(self.leap as usize) {
            let limit = match self.session.curvature(state, self.key, PRODUCTS) {
                Ok(found) => self.used.descent.limit(self.inner.step, found.largest + self.used.added_curvature),
                Err(Error::UndefinedCurvature) => {
                    let seen = format!("the inner loss has no finite second derivative at the start of {what}");
                    return Ok(Some((seen, Cause::InnerLossUndefined)));
                }
                Err(error) => return Err(error),
            };
            if let Some(limit) = limit.filter(|limit| *limit > 2.0) {
                let seen = format!("{seen}; at the start of {what}, {}", self.used.descent.beyond(limit));
                return Ok(Some((seen, self.too_large())));
            }
        }
        Ok(None)
    }

    fn outer_loss_falls_without_end(&self) -> Result<Option<String>> {
        let Some(least) = self.least else { return Ok(None) };
        let first = self.session.evaluator()?.at(self.first, self.key)?[1];
        let fell = least < first - AWAY * first.abs().max(1.0);
        Ok(fell.then(|| format!("the outer loss fell from {first:.3e} to {least:.3e}")))
    }

    /// Walks the inner loop until a number of the inner loss is not finite.
    fn walk(&self, derivatives: bool) -> Result<Walk> {
        let gamma = self.inner.step;
        let steps = if self.used.descent == Descent::Own { 0 } else { self.inner.steps };
        let mut routine = walk_program(self.session, &self.inner, self.used)?;
        self.inner.place(&mut routine, gamma)?;
        if self.used.descent == Descent::Adaptive {
            routine.set_numbers("seen", [gamma.powi(-2)])?;
        }
        let theta = self.state.theta.duplicate(self.session.executor())?;
        routine.bind_point(&self.state.lambda, &theta, self.key)?;
        let mut at = |step: usize| -> Result<Seen> {
            routine.run(step as u32..step as u32 + 1)?;
            let [inner, slope, outer, f_theta, f_lambda] =
                ["inner", "slope", "outer", "f_theta", "f_lambda"].map(|name| routine.number(name));
            Ok(Seen { step, inner: inner?, slope: slope?, outer: outer?, f_theta: f_theta?, f_lambda: f_lambda? })
        };
        let first = at(0)?;
        let mut walk = Walk { first, sound: None, broken: None, away: false, falls: true, outer: None };
        let far = AWAY * first.inner.abs().max(1.0);
        let steep = AWAY * first.slope.max(1.0);
        let mut seen = first;
        loop {
            if !seen.inner_is_sound() {
                walk.broken = Some(seen);
                return Ok(walk);
            }
            walk.away |= (seen.inner - first.inner).abs() > far || seen.slope > steep;
            walk.falls &= walk.sound.is_none_or(|before| seen.inner <= before.inner);
            walk.sound = Some(seen);
            let finite = !derivatives || (seen.f_theta.is_finite() && seen.f_lambda.is_finite());
            if !seen.outer.is_finite() || !finite {
                walk.outer = Some(seen);
            }
            if seen.step == steps {
                return Ok(walk);
            }
            seen = at(seen.step + 1)?;
        }
    }
}

fn undefined(loss: &str, value: f64, derivative: &str) -> String {
    match value.is_finite() {
        true => format!("the {loss} loss is {value:.3e}, but {derivative} is not finite"),
        false => format!("the {loss} loss is {value}"),
    }
}

fn walk_program(session: &Session, inner: &InnerLoop, used: LoopUse) -> Result<Routine> {
    let added = used.added_curvature;
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let mut slope = or_zeros(gradient(loss, theta)?, theta);
    let pulled = added != 0.0 && lambda.iter().map(|l| l.shape()).eq(theta.iter().map(|t| t.shape()));
    if pulled {
        slope = (0..slope.len()).map(|i| slope[i] + (theta[i] - lambda[i]) * added).collect();
    }
    let outer = trace.outer(theta, step)?;
    let both = [&lambda[..], theta].concat();
    let by = or_zeros(gradient(outer, &both)?, &both);
    let (f_lambda, f_theta) = by.split_at(lambda.len());
    let zero = graph.scalar(0.0, session.problem().dtype);
    let size = |all: &[Tensor]| all.iter().map(|t| t.abs().sum_all()).reduce(|a, b| a + b).unwrap_or(zero);
    let mut builder = Program::builder(&graph)
        .output("inner", loss)
        .output("slope", size(&slope))
        .output("outer", outer)
        .output("f_theta", size(f_theta))
        .output("f_lambda", size(f_lambda));
    let direction: Vec<Tensor> = match used.descent {
        Descent::Plain | Descent::Own => slope,
        Descent::Adaptive => {
            let seen = graph.input("seen.0", [], DType::F64);
            let sum = seen + square_norm(&slope).unwrap_or(seen.zeros_like());
            builder = builder.carry(seen, sum);
            let share = 1.0 / (sum.sqrt() * trace.gamma.convert(DType::F64));
            slope.iter().map(|slope| *slope * share.convert(slope.dtype())).collect()
        }
        Descent::Penalised { penalty } => {
            let product = or_zeros(vjp(&slope, &slope, theta)?, theta);
            f_theta.iter().zip(product).map(|(f, product)| *f / penalty + product * 2.0).collect()
        }
    };
    builder = inner.one_step(&trace, &direction, &updates, step).carry(builder);
    Routine::new(&builder.build()?, session)
}
