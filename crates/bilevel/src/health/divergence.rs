//! Watches a few sizes of a run, and advises a change if one of them diverges.
//!
//! A number that is not finite ends the run at once. A number a million times its usual size ends it when that happens in
//! three iterations in a row: a single outlier is noise, a row of them is divergence.

use serde::{Deserialize, Serialize};
use std::fmt;

/// This many times the usual size is suspect.
const GROWTH: f64 = 1e6;
/// This many suspect iterations in a row are a divergence.
const PATIENCE: u32 = 3;
/// Sizes below this are never called too large, because near an optimum they fall to rounding.
const FLOOR: f64 = 1.0;
/// The usual size follows the present one by at most this factor an iteration, so a steady blow-up outruns it.
const DRIFT: f64 = 1.1;
/// Iterations at the start in which the usual size is the largest seen.
const SETTLING: u32 = 5;

/// The most likely cause of a divergence.
///
/// ```
/// assert!(bilevel::diagnostics::Cause::InnerStepTooLarge.advice().contains("inner step"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The inner loop itself blows up.
    InnerStepTooLarge,
    /// The inner steps are too large for a penalty on the slope of the inner loss.
    PenaltyStepTooLarge,
    /// The inner loop is stable, but the adjoint that the method carries along it grows.
    AdjointGrowing,
    /// λ moves too far in one step.
    OuterStepTooLarge,
    /// The steps of a linear solve, α of a Neumann series or β of AmIGO, are too large for the curvature.
    SolveStepTooLarge,
    /// A linear solve met a Hessian that is singular or not positive.
    HessianNotPositive,
    /// The outer loss or its derivative is not finite, though nothing grew.
    OuterLossUndefined,
    /// The inner loss or its derivative is not finite, though nothing grew.
    InnerLossUndefined,
    /// The outer loss falls without end, as one of the wrong sign does.
    OuterLossUnbounded,
    /// The inner loss falls without end, as one of the wrong sign does.
    InnerLossUnbounded,
    /// A sample of the search reached a region in which training diverges.
    SearchTooWide,
}

impl Cause {
    /// The remedy.
    ///
    /// ```
    /// assert!(bilevel::diagnostics::Cause::OuterStepTooLarge.advice().contains("learning rate"));
    /// ```
    pub fn advice(self) -> &'static str {
        match self {
            Cause::InnerStepTooLarge => {
                "the inner loop diverges: take a smaller inner step (step × curvature must stay below 2), \
                 or scale the data"
            }
            Cause::PenaltyStepTooLarge => {
                "descent on the method's penalty diverges: use a smaller inner step (step × curvature² must stay below 1)"
            }
            Cause::AdjointGrowing => {
                "the adjoint grows although the inner loop is fine: take a smaller inner step, more inner steps per \
                 iteration or a smaller outer learning rate, or start the adjoint cold"
            }
            Cause::SolveStepTooLarge => {
                "alpha (or beta) is too large: multiplied by the largest curvature it must stay below 2; take a \
                 smaller one"
            }
            Cause::HessianNotPositive => {
                "the Hessian of the inner loss is close to singular or not positive: use curvature = \"gauss-newton\", \
                 more \
                 regularisation (a larger rho for imaml), or more inner steps"
            }
            Cause::OuterLossUndefined => {
                "look for a root, logarithm or division at 0 in the outer loss, and keep λ away from there with bounds"
            }
            Cause::InnerLossUndefined => {
                "look for a root, logarithm or division at 0 in the inner loss, and start θ elsewhere"
            }
            Cause::OuterLossUnbounded => {
                "the outer loss has no minimum: check its sign, and add a penalty on λ or bound it"
            }
            Cause::InnerLossUnbounded => {
                "the inner loss has no minimum, so no step is small enough: check its sign, and add a penalty on θ"
            }
            Cause::SearchTooWide => {
                "an inner loop diverged: take a smaller inner step, or a smaller sigma if λ + σz leaves its range"
            }
            Cause::OuterStepTooLarge => {
                "λ moves too far in one step: take a smaller outer learning rate, clip the hypergradient, or bound λ"
            }
        }
    }
}

/// The symptom of a diverged run, and its remedy.
///
/// ```
/// use bilevel::diagnostics::Cause;
/// use bilevel::methods::Rmd;
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0.square())
///     .build()?;
/// // Steps of 3 on a curvature of 2 multiply θ − λ by −5.
/// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(3.0, 500)).iterations(10).run()?;
/// let StopReason::Diverged(diagnosis) = outcome.reason else { panic!("{:?}", outcome.reason) };
/// assert!(diagnosis.iteration == 1 && diagnosis.cause == Cause::InnerStepTooLarge, "{diagnosis}");
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The iteration that was given up.
    pub iteration: u32,
    /// The symptom.
    pub seen: String,
    /// The likely cause.
    pub cause: Cause,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iteration {}: {}; {}", self.iteration, self.seen, self.cause.advice())
    }
}

/// The usual size of a number: a running median on a logarithmic scale, moving one notch an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RunningMedian {
    usual: f64,
    seen: u32,
}

impl RunningMedian {
    fn is_large(&self, size: f64) -> bool {
        self.seen >= SETTLING && self.usual > 0.0 && size > FLOOR && size > GROWTH * self.usual
    }

    fn update(&mut self, size: f64) {
        self.seen = self.seen.saturating_add(1);
        self.usual = if self.usual == 0.0 {
            size
        } else if self.seen <= SETTLING {
            self.usual.max(size)
        } else {
            size.clamp(self.usual / DRIFT, self.usual * DRIFT)
        };
    }
}

/// The sizes of one iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub inner_loss: f64,
    pub outer_loss: f64,
    pub hypergradient: f64,
    /// Norm of the method's memory.
    pub memory: f64,
    /// Norm of θ.
    pub theta: f64,
}

/// Follows the sizes over a run. Part of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Watch {
    inner_loss: RunningMedian,
    outer_loss: RunningMedian,
    hypergradient: RunningMedian,
    memory: RunningMedian,
    theta: RunningMedian,
    /// Suspect iterations in a row.
    pub suspect: u32,
}

impl Watch {
    /// False for one that no run can have left behind.
    #[cfg(feature = "checkpoints")]
    pub fn is_sound(&self) -> bool {
        let all = [self.inner_loss, self.outer_loss, self.hypergradient, self.memory, self.theta];
        all.iter().all(|gauge| gauge.usual >= 0.0 && gauge.usual.is_finite())
    }

    /// Takes in an iteration; the diagnosis, if the run should be given up. `leap` says that the last step of λ was larger
    /// than 1 and than half of λ.
    pub fn judge(&mut self, iteration: u32, sizes: Sizes, leap: bool) -> Option<Diagnosis> {
        let inner_cause = if leap { Cause::OuterStepTooLarge } else { Cause::InnerStepTooLarge };
        // From the inside out: the first that is wrong explains those after it.
        let all = [
            ("θ", sizes.theta, &mut self.theta, inner_cause),
            ("the inner loss", sizes.inner_loss, &mut self.inner_loss, inner_cause),
            ("the method's memory", sizes.memory, &mut self.memory, Cause::AdjointGrowing),
            ("the outer loss", sizes.outer_loss, &mut self.outer_loss, Cause::OuterStepTooLarge),
            ("the hypergradient", sizes.hypergradient, &mut self.hypergradient, Cause::AdjointGrowing),
        ];
        let mut found = None;
        for (name, size, gauge, cause) in all {
            let size = size.abs();
            if !size.is_finite() {
                let seen = format!("{name} is no longer finite");
                return Some(Diagnosis { iteration, seen, cause });
            }
            if gauge.is_large(size) && found.is_none() {
                let seen = format!(
                    "the size of {name} has been {size:.3e}, {:.0e} times its usual value in this run, for {PATIENCE} \
                    iterations",
                    size / gauge.usual
                );
                found = Some(Diagnosis { iteration, seen, cause });
            }
            gauge.update(size);
        }
        self.suspect = if found.is_some() { self.suspect.saturating_add(1) } else { 0 };
        found.filter(|_| self.suspect >= PATIENCE)
    }

    /// The method stopped with this message and this likely cause.
    pub fn method_gave_up(&self, iteration: u32, seen: String, cause: Cause, leap: bool, memory: f64) -> Diagnosis {
        let grown = self.memory.seen > 0 && memory > 1e3 * self.memory.usual && memory > FLOOR;
        // The driver has data that the method lacks: the move of λ, and the growth of the memory over the run.
        let cause = match cause {
            Cause::InnerStepTooLarge | Cause::AdjointGrowing if leap => Cause::OuterStepTooLarge,
            Cause::InnerStepTooLarge if grown => Cause::AdjointGrowing,
            cause => cause,
        };
        Diagnosis { iteration, seen, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(hypergradient: f64) -> Sizes {
        Sizes { inner_loss: 1.0, outer_loss: 1.0, hypergradient, memory: 1.0, theta: 1.0 }
    }

    #[test]
    fn one_outlier_is_noise_and_three_in_a_row_are_a_divergence() {
        let mut watch = Watch::default();
        for k in 1..=10 {
            assert_eq!(watch.judge(k, sizes(1.0), false), None);
        }
        for k in 11..=12 {
            assert_eq!(watch.judge(k, sizes(1e9), false), None);
        }
        assert_eq!(watch.judge(13, sizes(1.0), false), None);
        assert_eq!(watch.suspect, 0);
        assert_eq!(watch.judge(14, sizes(1e9), false), None);
        assert_eq!(watch.judge(15, sizes(1e9), false), None);
        assert_eq!(watch.judge(16, sizes(1e9), false).unwrap().cause, Cause::AdjointGrowing);
    }

    #[test]
    fn steady_doubling_is_noticed_long_before_it_overflows() {
        let mut watch = Watch::default();
        let given_up = (1..200).find(|&k| watch.judge(k, sizes(2f64.powi(k as i32)), false).is_some());
        assert!(given_up.is_some_and(|k| k < 40), "{given_up:?}");
    }

    #[test]
    fn sizes_that_fall_to_rounding_and_come_back_are_no_divergence() {
        let mut watch = Watch::default();
        for k in 1..500 {
            assert_eq!(watch.judge(k, sizes(0.9f64.powi(k as i32)), false), None);
        }
        for k in 500..520 {
            assert_eq!(watch.judge(k, sizes(0.5), false), None);
        }
    }

    #[test]
    fn a_number_that_is_not_finite_ends_the_run_at_once() {
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(Watch::default().judge(1, sizes(bad), false).is_some());
            let inner = Sizes { inner_loss: bad, ..sizes(1.0) };
            assert_eq!(Watch::default().judge(1, inner, false).unwrap().cause, Cause::InnerStepTooLarge);
            assert_eq!(Watch::default().judge(1, inner, true).unwrap().cause, Cause::OuterStepTooLarge);
        }
    }
}
