//! The guard of a run: λ is judged by rows that no method sees, and the best λ is kept.
//!
//!   dₖ = mean over rows of (held-out loss at iteration k − that at the best iteration),   sₖ its standard error
//!
//! If dₖ < 0, iteration k becomes the best. If dₖ > sₖ, the held-out loss has risen: after `patience` such evaluations in a row the run
//! stops, and a run that ends so returns the best λ and θ. The differences are paired, row by row, because losses of two λ on one row
//! have much in common.
//!
//! An evaluation is due every few iterations, but not before the run has done [`MAX_SHARE`]⁻¹ times its work since the last one. Work is
//! counted in operations of traced programs ([`Prices`]), not measured, so that a run has the same bits everywhere.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::generalisation::row_losses::{Paired, RowLosses};
use crate::generalisation::rows::Part;
use crate::generalisation::work::Prices;
use crate::hypergradient::Oracles;
use crate::outer::measures::{Aim, Best};
use crate::outer::stopping::StopSignal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the metric.
pub(crate) const HELD_OUT: &str = "held-out loss";

/// The share of a run's work that the guard may take.
pub(crate) const MAX_SHARE: f64 = 0.05;

/// The judgement of λ by held-out rows, if the problem has some.
///
/// ```
/// assert_eq!(bilevel::splits::Guard::default(), bilevel::splits::Guard { every: 5, patience: 0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guard {
    /// Outer iterations from one evaluation to the next, at least; 0 is no guard. There are more if evaluations would
    /// otherwise take more than 5 % of the run's work.
    pub every: u32,
    /// Stop after this many evaluations in a row at which the held-out loss had risen by more than its standard error; 0 is never.
    pub patience: u32,
}

impl Default for Guard {
    /// Every fifth iteration, without stopping early.
    fn default() -> Self {
        Guard { every: 5, patience: 0 }
    }
}

/// The state of a guard, part of every checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Losses of the held-out rows at the best iteration.
    best: Vec<f64>,
    /// Evaluations in a row at which they had risen.
    pub risen: u32,
    /// The difference at the last evaluation.
    last: Paired,
    /// The work of the run at the last evaluation.
    #[serde(default)]
    until: Oracles,
}

/// The report of a run's guard.
///
/// ```
/// use bilevel::methods::IftCg;
/// use bilevel::splits::{Guard, Rows};
/// use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .table("y", Array::from_f64([4], vec![1.0, 0.2, 0.9, 0.8])?, &Rows::given([0], [1]).with_held_out([2, 3]))
///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
///     .build()?;
/// // The validation row wants a large penalty, the held-out rows a small one.
/// let outcome = Driver::new(&problem, IftCg::default()).inner(InnerLoop::new(0.1, 100)).rate(0.5).iterations(50).run()?;
/// let guard = outcome.guard.unwrap();
/// assert!(guard.kept_best && guard.iteration < 50, "{guard}");
/// assert!(outcome.lambda.0.item().unwrap() < outcome.state.lambda[0].item()?);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardReport {
    /// The iteration at which the held-out loss was least.
    pub iteration: u32,
    /// The held-out loss there.
    pub held_out_loss: f64,
    /// Its rise at the last evaluation.
    pub rise: Paired,
    /// The number of rows.
    pub rows: usize,
    /// True if it had risen by more than its standard error, so that λ and θ of the best iteration are returned instead of the last.
    pub kept_best: bool,
}

impl fmt::Display for GuardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GuardReport { iteration, held_out_loss, rise, rows, kept_best } = self;
        let Paired { mean, standard_error } = rise;
        match kept_best {
            true => write!(
                f,
                "the loss on {rows} held-out rows was least at iteration {iteration}, {held_out_loss:.4}, and has risen by \
                 {mean:.4} ± {standard_error:.4} since: λ is overfitted to the validation rows, and λ and θ of iteration \
                 {iteration} are returned"
            ),
            false => {
                write!(f, "the loss on {rows} held-out rows has not risen: {held_out_loss:.4} at iteration {iteration}")
            }
        }
    }
}

/// Evaluates held-out rows in a run.
pub(crate) struct Watching {
    pub settings: Guard,
    losses: RowLosses,
    key: Key,
    rows: usize,
    prices: Prices,
    /// Operations of an evaluation.
    price: f64,
}

impl Watching {
    /// The guard in the session of a run with this key; `None` if the run has no guard or the problem no held-out rows.
    /// An evaluation that has begun ends, even if the run is asked to stop.
    pub fn new(settings: Guard, session: &Session, key: Key) -> Result<Option<Self>> {
        let rows = session.problem().rows_of(Part::HeldOut);
        if settings.every == 0 || rows == 0 {
            return Ok(None);
        }
        let session = session.clone().stopped_by(StopSignal::new());
        let losses = RowLosses::new(&session, Part::HeldOut)?;
        // The best λ and θ are copied.
        let (lambda, theta) = session.problem().sizes();
        let price = losses.operations() + (lambda + theta) as f64;
        Ok(Some(Watching { settings, losses, key, rows, prices: Prices::of(&session)?, price }))
    }

    /// Returns true if an evaluation is due after this iteration of a run that has computed so much.
    pub fn is_due(&self, iteration: u32, oracles: Oracles, watched: Option<&Watched>) -> bool {
        let until = watched.map_or(Oracles::default(), |watched| watched.until);
        let since = self.prices.of_oracles(oracles) - self.prices.of_oracles(until);
        iteration.is_multiple_of(self.settings.every) && self.price <= MAX_SHARE * since
    }

    /// Judges a state: the held-out loss, and the state if it is the best so far.
    pub fn judge(
        &mut self,
        (iteration, oracles, state): (u32, Oracles, &State),
        watched: &mut Option<Watched>,
        session: &Session,
    ) -> Result<(f64, Option<Best>)> {
        let losses = self.losses.at(state, self.key)?;
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        let last = watched.as_ref().map(|watched| Paired::of(&losses, &watched.best));
        match (watched, last) {
            (Some(watched), Some(last)) if last.mean >= 0.0 || last.mean.is_nan() => {
                // A loss that is not finite has risen, too.
                let risen = last.mean.partial_cmp(&last.standard_error).is_none_or(std::cmp::Ordering::is_gt);
                watched.risen = if risen { watched.risen.saturating_add(1) } else { 0 };
                (watched.last, watched.until) = (last, oracles);
                Ok((mean, None))
            }
            (watched, _) => {
                let last = Paired { mean: 0.0, standard_error: 0.0 };
                *watched = Some(Watched { best: losses, risen: 0, last, until: oracles });
                Ok((mean, Some(Best::at(&Aim::lowest(HELD_OUT), mean, iteration, state, session)?)))
            }
        }
    }

    /// The report so far.
    pub fn report(&self, watched: &Watched, best: &Best) -> GuardReport {
        GuardReport {
            iteration: best.iteration,
            held_out_loss: best.value,
            rise: watched.last,
            rows: self.rows,
            kept_best: watched.risen > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generalisation::rows::Rows;
    use crate::inner::inner_loop::InnerLoop;
    use crate::methods::IftCg;
    use crate::observers::Recorder;
    use crate::problem::typed::Problem;
    use crate::problem::variable::Variable;
    use crate::{Driver, Leaf};
    use bilevel_cpu::Cpu;
    use bilevel_graph::Array;

    /// Two rows to train on, two to choose λ by, and this many held out.
    fn problem(held_out: usize) -> Problem<Leaf<Variable>, Leaf<Variable>> {
        let rows = Rows::given(0..2, 2..4).with_held_out(4..4 + held_out);
        let x = (0..(4 + held_out) * 8).map(|i| (i as f64 * 0.7).sin()).collect();
        let lambda = Variable::constant([], -1.0).at_least(-8.0).at_most(2.0);
        Problem::builder(Leaf(lambda), Leaf(Variable::constant([8, 1], 0.1)))
            .table("x", Array::from_f64([4 + held_out, 8], x).unwrap(), &rows)
            .inner(|s, l, t| (s.data("x").matmul(t.0) - 1.0).square().mean_all() + l.0.exp() * t.0.square().sum_all())
            .outer_rows(|s, _, t| (s.data("x").matmul(t.0) - 1.0).square())
            .build()
            .unwrap()
    }

    #[test]
    fn evaluations_take_at_most_their_share_of_the_work_and_no_fewer_than_that_allows() {
        let (problem, every) = (problem(400), Guard { every: 1, patience: 0 });
        let recorder = Recorder::new();
        let driver = Driver::new(&problem, IftCg::default()).inner(InnerLoop::new(0.05, 3)).rate(0.1).guard(every);
        let outcome = driver.iterations(400).observe(recorder.clone()).run().unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let watching = Watching::new(every, &session, Key::from_seed(0)).unwrap().unwrap();
        let seen = recorder.iterations();
        let evaluations = seen.iter().filter(|i| i.measures.get(HELD_OUT).is_some()).count() as f64;
        let allowed = MAX_SHARE * watching.prices.of_oracles(outcome.oracles) / watching.price;
        // Each waits for the iteration that ends its interval.
        let longest = 1.0 + allowed / 400.0;
        assert!(evaluations > 3.0 && evaluations < 200.0, "{evaluations}");
        assert!(
            evaluations <= allowed && evaluations >= allowed / (1.0 + longest * evaluations / 400.0) - 1.0,
            "{evaluations} of {allowed}"
        );
    }

    #[test]
    fn a_guard_that_is_cheap_keeps_its_interval() {
        let recorder = Recorder::new();
        let driver = Driver::new(&problem(2), IftCg::default()).inner(InnerLoop::new(0.05, 100)).rate(0.1);
        driver.iterations(20).observe(recorder.clone()).run().unwrap();
        let seen = recorder.iterations();
        let seen: Vec<u32> = seen.iter().filter(|i| i.measures.get(HELD_OUT).is_some()).map(|i| i.number).collect();
        assert_eq!(seen, [5, 10, 15, 20]);
    }
}
