//! Checks of a problem's derivatives, and of methods on it.
//!
//! A method's hypergradient is compared with two references, both in 64 bits:
//!
//!   the training itself:   d/dt f(λ + t·u, θᵀ(λ + t·u)), by differences of whole trainings with the same start and draws
//!   the inner minimum:     f_λ − f_θᵀ·H⁻¹·C, trained and solved until doubling the training no longer matters
//!
//! Methods that follow the training compute the first, implicit methods approximate the second. If training converges,
//! they are the same. A method that does not train by plain descent at its step ([`Descent`](crate::methods::Descent))
//! is compared only with the minimum, which is then found with a step that suits the curvature. For a step or a
//! direction ([`Output`]), whose length depends on the method, only the angle is compared.

use crate::compiled::key::Key;
use crate::compiled::norms::euclidean;
use crate::compiled::session::Session;
use crate::compiled::state::{Snapshot, State};
use crate::error::require;
use crate::health::curvature::Curvature;
use crate::hypergradient::Method;
use crate::hypergradient::loop_use::{LoopUse, Output};
use crate::hypergradient::parts::implicit::{Ending, Implicit};
use crate::inner::inner_loop::InnerLoop;
use crate::methods::{IftCg, Imaml};
use crate::optimizers::InnerOptimizer;
use crate::problem::variable::{Role, Variable};
use crate::problem::{AnyProblem, leaf_name};
use crate::{Error, Result};
use bilevel_cpu::Cpu;
use bilevel_graph::random::fill_normal_f64;
use bilevel_graph::{Array, CheckReport, CheckRow, DType, Executor, GradientCheck, Graph};
use std::fmt;

/// Elements of each leaf whose derivatives are compared with differences.
const COORDINATES: usize = 32;
/// Hypergradients after which a method's memory counts as warm.
const WARM: u32 = 20;
/// How often the point is moved, at most, if derivatives cannot be compared at it.
const MOVES: u32 = 3;
/// How far: this many times the size of a leaf, or this far if all of it is 0.
const MOVE: f64 = 0.1;
/// The step of λ in differences of trainings, for a λ of about 1.
const STEP: f64 = 1e-3;
/// Smaller ones, relatively, for a training that the first steps take across a kink.
const SCALES: [f64; 3] = [1.0, 1.0 / 32.0, 1.0 / 1024.0];
/// Differences that are known to this share are those of a smooth function.
const SMOOTH: f64 = 1e-6;
/// Training has converged if doubling it changes the derivative at its end by less than this, relatively.
const REST: f64 = 1e-3;
/// Iterations of the linear solve at the minimum, at most.
const SOLVE: usize = 500;

/// A check of a problem before a run: see [`AnyProblem::check`](crate::AnyProblem::check).
pub struct Check<'p> {
    pub(crate) problem: &'p AnyProblem,
    pub(crate) executor: Option<Box<dyn Executor>>,
    /// Each with its own inner loop, if it was given one.
    pub(crate) methods: Vec<(Box<dyn Method>, Option<InnerLoop>)>,
    /// The run's inner loop; without one, each method's usual one.
    pub(crate) inner: Option<InnerLoop>,
    pub(crate) seed: u64,
    pub(crate) at: Option<Snapshot>,
    directions: usize,
    pub(crate) draws: u32,
    curvature: Option<Curvature>,
}

impl AnyProblem {
    /// Checks the derivatives of both losses and the results of methods, at the start of a run or at another point.
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// let problem = Problem::builder(Leaf(Variable::constant([2], 0.5)), Leaf(Variable::constant([2], 0.0)))
    ///     .inner(|_, l, t| ((t.0 - 1.0).square() + l.0.exp() * t.0.square()).sum_all())
    ///     .outer(|_, _, t| (t.0 - 0.3).square().sum_all())
    ///     .build()?;
    /// // Five steps are not enough to come to the minimum.
    /// let report = problem
    ///     .check()
    ///     .method(Rmd::default())
    ///     .method(IftCg::default())
    ///     .inner(InnerLoop::new(0.05, 5))
    ///     .run()?;
    /// assert!(report.passed(1e-6), "{report}");
    /// let [rmd, ift] = &report.methods[..] else { panic!("there are two") };
    /// assert!(rmd.training()?.error < 1e-8 && rmd.minimum()?.error > 0.1, "{report}");
    /// assert!(ift.training()?.error > 0.1, "{report}");
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn check(&self) -> Check<'_> {
        let (executor, methods, at, curvature) = (None, vec![], None, None);
        Check { problem: self, executor, methods, inner: None, seed: 0, at, directions: 8, draws: 1, curvature }
    }
}

impl Check<'_> {
    /// Also checks this method; there may be several.
    pub fn method(mut self, method: impl Method + 'static) -> Self {
        self.methods.push((Box::new(method), None));
        self
    }

    /// Like [`method`](Self::method), with an inner loop for this method only.
    pub fn method_with(mut self, method: impl Method + 'static, inner: InnerLoop) -> Self {
        self.methods.push((Box::new(method), Some(inner)));
        self
    }

    /// Uses this inner loop for all methods without their own, instead of the usual one of each.
    pub fn inner(mut self, inner: InnerLoop) -> Self {
        self.inner = Some(inner);
        self
    }

    /// Computes on this device instead of on all cores.
    pub fn executor(mut self, executor: impl Executor + 'static) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// The seed of everything random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Checks at this λ and θ instead of at the start of a run with the seed. The method's memory starts empty.
    pub fn at(mut self, state: Snapshot) -> Self {
        self.at = Some(state);
        self
    }

    /// Compares hypergradients along this many random directions, 8 by default; along every hyperparameter if there are
    /// no more of them. Each costs four trainings.
    pub fn directions(mut self, directions: usize) -> Self {
        self.directions = directions;
        self
    }

    /// Averages hypergradients, and the derivative of the training, over this many random draws, 1 by default, for
    /// methods that sample.
    pub fn draws(mut self, draws: u32) -> Self {
        self.draws = draws;
        self
    }

    /// Reports a curvature that was measured already, instead of measuring it at the point of the check.
    pub fn curvature(mut self, measured: Curvature) -> Self {
        self.curvature = Some(measured);
        self
    }

    /// Compares the hypergradients of the methods alone, and leaves out the derivatives of the losses.
    pub fn compare_methods(self) -> Result<Vec<MethodReport>> {
        require(self.directions > 0, "directions", 0.0, "at least 1")?;
        require(self.draws > 0, "draws", 0.0, "at least 1")?;
        let executor = self.executor.unwrap_or_else(|| Box::new(Cpu::new()));
        let run_key = Key::from_seed(self.seed);
        let state = match self.at {
            Some(at) => Snapshot { memory: vec![], ..at },
            None => State::initial(self.problem, &*executor, run_key)?.snapshot()?,
        };
        let curvature = match self.curvature {
            Some(measured) => measured,
            None => self.problem.curvature(&state, &*executor, run_key.fold_in(1))?,
        };
        let sizes = (self.directions, self.draws);
        let mut bench = Bench::new(self.problem, &*executor, state, sizes, (run_key, curvature.largest))?;
        Ok(self
            .methods
            .iter()
            .map(|(method, own)| bench.report(&**method, loop_of(own.or(self.inner), &**method)))
            .collect())
    }

    /// Runs all checks. The failure of a single method is part of its report. If derivatives cannot be compared at the
    /// point, because they are 0 or the losses have a kink there, the check moves it slightly and reports that.
    pub fn run(self) -> Result<ProblemReport> {
        require(self.directions > 0, "directions", 0.0, "at least 1")?;
        require(self.draws > 0, "draws", 0.0, "at least 1")?;
        let Check { problem, executor, methods, inner: given_loop, seed, at, directions, draws, curvature } = self;
        let executor = executor.unwrap_or_else(|| Box::new(Cpu::new()));
        let run_key = Key::from_seed(seed);
        let given = match at {
            Some(at) => Snapshot { memory: vec![], ..at },
            None => State::initial(problem, &*executor, run_key)?.snapshot()?,
        };
        let compare = |state: &Snapshot| derivatives(problem, state, &*executor, run_key);
        let (mut state, mut found, mut moved) = (given.clone(), compare(&given)?, None);
        let at_first = lacking(&found);
        for attempt in 1..=MOVES {
            if lacking(&found) == 0 {
                break;
            }
            let there = move_point(problem, &given, run_key.fold_in(attempt))?;
            let again = compare(&there)?;
            if lacking(&again) < lacking(&found) {
                moved = Some(Moved { by: farthest(&given, &there), lacking: at_first });
                (state, found) = (there, again);
            }
        }
        let curvature = match curvature {
            Some(measured) => measured,
            None => problem.curvature(&state, &*executor, run_key.fold_in(1))?,
        };
        let [inner, outer] = found;
        let idle = problem.idle_hyperparameters()?;
        let mut report = ProblemReport { inner, outer, moved, idle, curvature, directions: 0, methods: vec![] };
        if methods.is_empty() {
            return Ok(report);
        }
        let bench = |at| Bench::new(problem, &*executor, at, (directions, draws), (run_key, curvature.largest));
        let (mut here, mut nearby) = (bench(given)?, moved.map(|_| bench(state)).transpose()?);
        report.directions = here.directions.len();
        for (method, own) in methods {
            let inner = loop_of(own.or(given_loop), &*method);
            let found = here.report(&*method, inner);
            // Zeros say as little of a method as of a loss.
            report.methods.push(match &mut nearby {
                Some(nearby) if found.norm() == Ok(0.0) => nearby.report(&*method, inner),
                _ => found,
            });
        }
        Ok(report)
    }
}

/// The derivatives of the inner and of the outer loss, compared with differences at this point.
fn derivatives(
    problem: &AnyProblem,
    state: &Snapshot,
    executor: &dyn Executor,
    run_key: Key,
) -> Result<[CheckReport; 2]> {
    let graph = Graph::new();
    let losses = problem.losses(&graph, state, run_key.fold_in(1))?;
    let of = |loss| -> Result<CheckReport> {
        let check = GradientCheck::new(&graph, loss, &losses.theta, &losses.point);
        let mut report = check.lambda(&losses.lambda).executor(executor).coordinates(COORDINATES).run()?;
        for row in &mut report.rows {
            // A leaf without a name is all there is of its kind.
            row.variable = row.variable.trim_end_matches('.').into();
        }
        Ok(report)
    };
    Ok([of(losses.inner)?, of(losses.outer)?])
}

/// How many quantities were not compared, although the loss depends on their variable.
fn lacking(reports: &[CheckReport; 2]) -> usize {
    let rows = reports.iter().flat_map(|report| &report.rows);
    rows.filter(|row| row.is_empty() && !row.structurally_zero).count()
}

/// λ and θ with a little noise, within their bounds.
fn move_point(problem: &AnyProblem, at: &Snapshot, key: Key) -> Result<Snapshot> {
    let mut number = 0;
    let mut one = |(array, (_, variable)): (&Array, &(String, Variable))| -> Result<Array> {
        if variable.role != Role::Trained {
            return Ok(array.clone());
        }
        let (low, high) = variable.bounds();
        let mut values = array.to_f64();
        let mut noise = vec![0.0; values.len()];
        fill_normal_f64(key.values().map(|k| k as u32), number, 0, 0, &mut noise);
        number += 1;
        let size = euclidean(&values) / (values.len().max(1) as f64).sqrt();
        let by = if size > 0.0 { MOVE * size } else { MOVE };
        values.iter_mut().zip(noise).for_each(|(value, noise)| *value = (*value + by * noise).max(low).min(high));
        Ok(Array::from_values(array.shape(), &values, array.dtype())?)
    };
    let lambda = at.lambda.iter().zip(&problem.lambda).map(&mut one).collect::<Result<_>>()?;
    let theta = at.theta.iter().zip(&problem.theta).map(&mut one).collect::<Result<_>>()?;
    Ok(Snapshot { lambda, theta, memory: vec![] })
}

/// The largest change of a number between two points.
fn farthest(a: &Snapshot, b: &Snapshot) -> f64 {
    let numbers = |s: &Snapshot| s.lambda.iter().chain(&s.theta).flat_map(Array::to_f64).collect::<Vec<f64>>();
    numbers(a).iter().zip(numbers(b)).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()))
}

/// A check that was made near the given point instead of at it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Moved {
    /// The largest change of a number.
    pub by: f64,
    /// Quantities that could not be compared at the given point.
    pub lacking: usize,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved { by, lacking } = self;
        write!(
            f,
            "The derivatives above are at a point nearby, up to {by:.1e} away: at the given one {lacking} of them \
                were 0 or at a kink, which differences cannot verify."
        )
    }
}

/// How far two derivatives agree along the directions they were compared in.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Agreement {
    /// Norm of the difference over the norm of the reference.
    pub error: f64,
    /// Cosine of the angle between them.
    pub cosine: f64,
    /// The relative uncertainty of the reference itself: an error of this size is not significant.
    pub known_to: f64,
}

impl Agreement {
    /// Compares a method's result with the reference, along the same directions. An output with another length is
    /// scaled to the reference's.
    fn of(found: &[f64], reference: &Reference, output: Output) -> Result<Self> {
        let Reference { along, doubt } = reference;
        let (own, size) = (euclidean(found), euclidean(along));
        if own == 0.0 && size == 0.0 {
            let reason = "both derivatives are exactly 0 here, so they cannot be compared";
            return Err(Error::NoReference { reason: reason.into() });
        }
        let scale = if output.has_own_length() && own > 0.0 { size / own } else { 1.0 };
        let (error, cosine) = distance(&found.iter().map(|v| v * scale).collect::<Vec<_>>(), along);
        let known_to = if *doubt == 0.0 { 0.0 } else { doubt / size };
        Ok(Agreement { error, cosine, known_to })
    }

    /// The error is at most a hundredth, or the uncertainty of the reference.
    pub fn is_close(&self) -> bool {
        self.error <= self.known_to.max(0.01)
    }
}

/// ‖f − r‖ / ‖r‖ and f·r / (‖f‖·‖r‖); 0 and 1 if both are zeros.
pub(crate) fn distance(found: &[f64], reference: &[f64]) -> (f64, f64) {
    let difference: Vec<f64> = found.iter().zip(reference).map(|(f, r)| f - r).collect();
    let (size, own, apart) = (euclidean(reference), euclidean(found), euclidean(&difference));
    let product: f64 = found.iter().zip(reference).map(|(f, r)| f * r).sum();
    let error = if apart == 0.0 { 0.0 } else { apart / size };
    let cosine = if size == 0.0 && own == 0.0 { 1.0 } else { (product / (size * own)).clamp(-1.0, 1.0) };
    (error, cosine)
}

/// The mean hypergradient of a method over draws, each from the same state, and whether it keeps something warm.
pub(crate) fn mean_hypergradient(
    (method, inner): (&dyn Method, &InnerLoop),
    session: &Session,
    state: &Snapshot,
    keys: &[Key],
) -> Result<(Vec<f64>, bool)> {
    let mut estimator = method.prepare_in(session, inner)?;
    let (mut mean, mut keeps) = (vec![], false);
    for &key in keys {
        let mut state = State::from_snapshot(state, session.executor())?;
        let found = estimator.estimate(&mut state, key)?.value.numbers()?;
        keeps |= !state.memory.is_empty();
        mean.resize(found.len(), 0.0);
        mean.iter_mut().zip(found).for_each(|(m, v)| *m += v / keys.len() as f64);
    }
    Ok((mean, keeps))
}

/// The keys of this many draws: those of a run's first iterations.
pub(crate) fn draw_keys(run_key: Key, draws: u32) -> Vec<Key> {
    (1..=draws).map(|draw| run_key.fold_in(draw)).collect()
}

/// λ and θ in this type, with nothing kept warm.
pub(crate) fn snapshot_in(state: &Snapshot, dtype: DType) -> Result<Snapshot> {
    let one = |array: &Array| Ok(Array::from_values(array.shape(), &array.to_f64(), dtype)?);
    let all = |arrays: &[Array]| arrays.iter().map(one).collect::<Result<Vec<_>>>();
    Ok(Snapshot { lambda: all(&state.lambda)?, theta: all(&state.theta)?, memory: vec![] })
}

/// The result of a method at this point, compared with both references.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MethodReport {
    /// The method.
    pub method: &'static str,
    /// The kind of its output.
    pub output: Output,
    found: Result<Found>,
}

#[derive(Clone, Debug, PartialEq)]
struct Found {
    norm: f64,
    /// The method keeps something from one iteration to the next, which is empty in the first.
    cold: bool,
    training: Result<Agreement>,
    minimum: Result<Agreement>,
}

impl MethodReport {
    /// The norm of its output; an error if it does not apply or diverges.
    pub fn norm(&self) -> Result<f64> {
        Ok(self.found.as_ref().map_err(Clone::clone)?.norm)
    }

    /// Agreement with the derivative of the training itself.
    pub fn training(&self) -> Result<Agreement> {
        self.found.as_ref().map_err(Clone::clone)?.training.clone()
    }

    /// Agreement with the derivative at the inner minimum; an error if training does not converge.
    pub fn minimum(&self) -> Result<Agreement> {
        self.found.as_ref().map_err(Clone::clone)?.minimum.clone()
    }

    /// Whether it can be trusted here, in a sentence or two.
    pub fn verdict(&self) -> String {
        let cold = match &self.found {
            Ok(Found { cold: true, .. }) => {
                " For the comparison with training it started cold; for that with the minimum, warm."
            }
            _ => "",
        };
        let compared = match (self.output, &self.found) {
            (_, Err(_)) | (Output::Hypergradient, _) => "",
            (Output::Step, _) => " It returns a step of λ, so only the direction was compared.",
            (Output::Direction { .. }, _) => {
                " It returns a direction of λ that matches its step of θ; at a fixed λ and θ, it may differ from the \
                    hypergradient."
            }
        };
        self.judgement() + compared + cold
    }

    fn judgement(&self) -> String {
        let name = self.method;
        let found = match &self.found {
            Ok(found) => found,
            Err(error) => return format!("{name}: {error}."),
        };
        let close = |agreement: &Result<Agreement>| agreement.as_ref().is_ok_and(Agreement::is_close);
        match (close(&found.training), close(&found.minimum)) {
            (true, true) => {
                format!("{name} is correct, both for this training and for the minimum that it approaches.")
            }
            (true, false) => format!("{name} is correct for this training."),
            (false, true) => {
                format!("{name} is correct for the minimum of the inner loss, which this training does not reach.")
            }
            (false, false) => {
                let both = [&found.training, &found.minimum].map(|agreement| agreement.as_ref().ok());
                match both.into_iter().flatten().max_by(|a, b| a.cosine.total_cmp(&b.cosine)) {
                    Some(Agreement { cosine, error, .. }) if *cosine > 0.9 => {
                        format!(
                            "{name} points in the right direction (cosine {cosine:.3}), but has a relative error of \
                             {error:.1e}."
                        )
                    }
                    Some(Agreement { cosine, .. }) if matches!(self.output, Output::Direction { .. }) => {
                        format!("{name} does not point along the hypergradient (cosine {cosine:.3}).")
                    }
                    Some(Agreement { cosine, .. }) if *cosine > 0.0 => {
                        format!(
                            "{name} points only roughly in the right direction (cosine {cosine:.3}): do not trust \
                             it here."
                        )
                    }
                    Some(Agreement { cosine, .. }) => {
                        format!("{name} points in the wrong direction (cosine {cosine:.3}): do not use it here.")
                    }
                    None => format!("There is nothing to compare {name} with."),
                }
            }
        }
    }
}

/// The findings on a problem. Prints as a page.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProblemReport {
    /// Derivatives of the inner loss.
    pub inner: CheckReport,
    /// Derivatives of the outer loss.
    pub outer: CheckReport,
    /// Set if the check was made near the given point, because derivatives could not be compared at it.
    pub moved: Option<Moved>,
    /// Names of the hyperparameters that cannot influence the outer loss.
    pub idle: Vec<String>,
    /// Curvature of the inner loss.
    pub curvature: Curvature,
    /// Directions along which hypergradients were compared.
    pub directions: usize,
    /// The report of each method.
    pub methods: Vec<MethodReport>,
}

impl ProblemReport {
    /// Returns true if no derivative of a loss has a relative error above the tolerance, and some of each loss were
    /// compared.
    pub fn passed(&self, tolerance: f64) -> bool {
        [&self.inner, &self.outer].iter().all(|report| report.passed(tolerance) && report.is_informative())
    }

    /// Quantities that were not compared although the loss depends on their variable, as sentences.
    pub fn empty(&self) -> Vec<String> {
        let sentence = |loss: &str, row: &CheckRow| {
            let why = if row.coordinates == 0 { "is at a kink" } else { "is 0 here, and so are the differences" };
            format!("Nothing was compared for {} by {} of the {loss} loss: it {why}.", row.quantity, row.variable)
        };
        let rows = |(loss, report): (&'static str, &CheckReport)| -> Vec<String> {
            let empty = report.rows.iter().filter(|row| row.is_empty() && !row.structurally_zero);
            empty.map(|row| sentence(loss, row)).collect()
        };
        [("inner", &self.inner), ("outer", &self.outer)].into_iter().flat_map(rows).collect()
    }

    /// Elements at which the losses have a kink, so that differences say nothing of their derivatives.
    pub fn kinks(&self) -> usize {
        self.inner.rows.iter().chain(&self.outer.rows).map(|row| row.kinks).sum()
    }

    /// Only the part on methods; empty if none was requested.
    pub fn methods_table(&self) -> String {
        let mut text = String::new();
        if self.methods.is_empty() {
            return text;
        }
        let directions = counted(self.directions, "direction");
        text += &format!(
            "Hypergradients along {directions}, in 64 bits, compared with whole trainings and the inner minimum:\n\n"
        );
        text += &format!("  {:18} {:>10}  {:>22}  {:>22}\n", "", "", "training", "minimum");
        text += &format!(
            "  {:18} {:>10}  {:>11} {:>10}  {:>11} {:>10}\n",
            "method", "norm", "error", "cosine", "error", "cosine"
        );
        for report in &self.methods {
            let agreement = |found: Result<Agreement>| match found {
                Ok(Agreement { error, cosine, .. }) => format!("{error:>11.1e} {cosine:>10.6}"),
                Err(_) => format!("{:>11} {:>10}", "–", "–"),
            };
            let norm = report.norm().map_or("–".into(), |norm| format!("{norm:.3e}"));
            let (training, minimum) = (agreement(report.training()), agreement(report.minimum()));
            text += &format!("  {:18} {norm:>10}  {training}  {minimum}\n", report.method);
        }
        text.push('\n');
        for report in &self.methods {
            text += &format!("{}\n", report.verdict());
        }
        // Each reason once: it is the training's, not the method's.
        let mut reasons = vec![];
        for Found { training, minimum, .. } in self.methods.iter().filter_map(|report| report.found.as_ref().ok()) {
            for (what, found) in [("the training", training), ("the minimum", minimum)] {
                if let Err(error) = found {
                    let reason = format!("Nothing could be compared with {what}: {error}.\n");
                    if !reasons.contains(&reason) {
                        reasons.push(reason);
                    }
                }
            }
        }
        text + &reasons.concat()
    }
}

impl fmt::Display for ProblemReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (loss, report) in [("inner", &self.inner), ("outer", &self.outer)] {
            writeln!(f, "Derivatives of the {loss} loss, compared with finite differences in 64 bits:\n")?;
            for line in report.to_string().lines() {
                writeln!(f, "  {}", line.trim_end())?;
            }
            writeln!(f)?;
        }
        if let Some(moved) = self.moved {
            writeln!(f, "{moved}\n")?;
        }
        if self.kinks() > 0 {
            writeln!(f, "{} at a kink of a loss were skipped.\n", counted(self.kinks(), "element"))?;
        }
        for sentence in self.empty() {
            writeln!(f, "{sentence}\n")?;
        }
        if self.idle.is_empty() {
            writeln!(f, "Every hyperparameter can influence the outer loss.")?;
        }
        for name in &self.idle {
            let leaf = leaf_name("λ", name);
            writeln!(f, "{leaf} cannot influence the outer loss: a run would not change it.")?;
        }
        writeln!(f, "\n{}", self.curvature)?;
        match self.methods_table() {
            table if table.is_empty() => Ok(()),
            table => write!(f, "\n{table}"),
        }
    }
}

fn counted(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// A derivative along the directions of a check, and its uncertainty.
#[derive(Clone, Debug, PartialEq)]
struct Reference {
    along: Vec<f64>,
    doubt: f64,
}

/// An inner loop, and how it is used.
type Loop = (InnerLoop, LoopUse);

/// The loop of the run, or the usual one of a method.
pub(crate) fn loop_of(given: Option<InnerLoop>, method: &dyn Method) -> InnerLoop {
    given.unwrap_or_else(|| method.usual_loop())
}

/// The point of the comparison, and its references.
struct Bench {
    session: Session,
    state: Snapshot,
    /// Each as long as λ has numbers.
    directions: Vec<Vec<f64>>,
    keys: Vec<Key>,
    /// The derivatives of the training and at the minimum, by the inner loop they belong to.
    references: Vec<(Loop, [Result<Reference>; 2])>,
    /// The largest curvature of the inner loss.
    curvature: f64,
}

impl Bench {
    fn new(
        problem: &AnyProblem,
        executor: &dyn Executor,
        state: Snapshot,
        (most, draws): (usize, u32),
        (run_key, curvature): (Key, f64),
    ) -> Result<Self> {
        let session = Session::new(&problem.in_dtype(DType::F64)?, executor)?;
        let state = snapshot_in(&state, DType::F64)?;
        let size = problem.sizes().0;
        let direction = |number: usize| {
            let mut direction = vec![0.0; size];
            if size <= most {
                direction[number] = 1.0;
            } else {
                fill_normal_f64(run_key.values().map(|k| k as u32), number as u32, 0, 0, &mut direction);
                let length = euclidean(&direction);
                direction.iter_mut().for_each(|v| *v /= length);
            }
            direction
        };
        let directions = (0..most.min(size)).map(direction).collect();
        let keys = draw_keys(run_key, draws);
        Ok(Bench { session, state, directions, keys, references: vec![], curvature })
    }

    /// The state, with λ moved by so much along a direction.
    fn moved(&self, direction: &[f64], by: f64) -> Result<State> {
        let (mut at, mut lambda) = (direction, vec![]);
        for array in &self.state.lambda {
            let (part, rest) = at.split_at(array.len());
            let numbers: Vec<f64> = array.to_f64().iter().zip(part).map(|(l, d)| l + by * d).collect();
            lambda.push(Array::from_values(array.shape(), &numbers, DType::F64)?);
            at = rest;
        }
        State::from_snapshot(&Snapshot { lambda, ..self.state.clone() }, self.session.executor())
    }

    /// A vector by its components along the directions.
    fn along(&self, vector: &[f64]) -> Vec<f64> {
        self.directions.iter().map(|d| d.iter().zip(vector).map(|(d, v)| d * v).sum()).collect()
    }

    fn mean(&self, method: &dyn Method, inner: &InnerLoop) -> Result<(Vec<f64>, bool)> {
        mean_hypergradient((method, inner), &self.session, &self.state, &self.keys)
    }

    /// The mean over draws of the last of a few hypergradients at this λ, which leave θ and the memory to the next.
    fn warm(&self, method: &dyn Method, inner: &InnerLoop) -> Result<Vec<f64>> {
        let mut estimator = method.prepare_in(&self.session, inner)?;
        let mut mean = vec![];
        for &key in &self.keys {
            let mut state = State::from_snapshot(&self.state, self.session.executor())?;
            let mut found = vec![];
            for number in 0..WARM {
                found = estimator.estimate(&mut state, key.fold_in(number))?.value.numbers()?;
            }
            mean.resize(found.len(), 0.0);
            mean.iter_mut().zip(found).for_each(|(m, v)| *m += v / self.keys.len() as f64);
        }
        Ok(mean)
    }

    fn report(&mut self, method: &dyn Method, inner: InnerLoop) -> MethodReport {
        MethodReport { method: method.name(), output: method.output(), found: self.find(method, inner) }
    }

    fn find(&mut self, method: &dyn Method, inner: InnerLoop) -> Result<Found> {
        let (found, cold) = self.mean(method, &inner)?;
        // The averages and kept steps of a method do not change the training.
        let used = LoopUse { scales_indirect: false, ..method.loop_use() };
        let key = (InnerLoop { burn_in: 0, ..inner }, used);
        if !self.references.iter().any(|(known, ..)| *known == key) {
            self.references.push((key, [self.training(inner, used), self.minimum(inner, used)]));
        }
        let along = self.along(&found);
        // An initially empty memory is not representative of the method in a run.
        let warm = if cold { self.along(&self.warm(method, &inner)?) } else { along.clone() };
        let known = self.references.iter().find(|(known, ..)| *known == key);
        let against = |along: &[f64], reference: &Result<Reference>| {
            Agreement::of(along, reference.as_ref().map_err(Clone::clone)?, method.output())
        };
        let (training, minimum) = match known {
            Some((_, [training, minimum])) => (against(&along, training), against(&warm, minimum)),
            None => return Err(Error::NoReference { reason: "no reference was computed".into() }),
        };
        Ok(Found { norm: euclidean(&found), cold, training, minimum })
    }

    /// Returns an error for a problem that uses the evidence: neither reference is its derivative.
    fn has_outer_loss(&self) -> Result<()> {
        let reason = "the evidence is a mean over a chain, to which no single training or minimum corresponds; check \
            its standard error, or compare with a chain of twice the length";
        match self.session.problem().judged_by_evidence {
            true => Err(Error::NoReference { reason: reason.into() }),
            false => Ok(()),
        }
    }

    /// The strength of a proximal term, if the inner loop has one.
    fn proximal(&self, used: LoopUse) -> Result<Option<f64>> {
        if used.added_curvature == 0.0 {
            return Ok(None);
        }
        Imaml { rho: used.added_curvature, ..Imaml::default() }.applies(self.session.problem())?;
        Ok(Some(used.added_curvature))
    }

    /// Computed by central differences of whole trainings, with two steps of λ to estimate their uncertainty:
    ///
    ///   D(ε) = (F(λ + ε·u) − F(λ − ε·u)) / 2ε,   (4·D(ε/2) − D(ε)) / 3
    fn training(&self, inner: InnerLoop, used: LoopUse) -> Result<Reference> {
        self.has_outer_loss()?;
        if !used.descent.is_plain() {
            let reason = "the method does not train by plain descent, so only the minimum can be compared";
            return Err(Error::NoReference { reason: reason.into() });
        }
        let ending = Ending { scale: 1.0, proximal: self.proximal(used)? };
        let mut train = Implicit::new(&self.session, inner, ending)?;
        let mut loss = |direction: &[f64], by: f64| -> Result<f64> {
            let mut sum = 0.0;
            for &key in &self.keys {
                sum += train.descend(&self.moved(direction, by)?, key, inner.step)?.outer_loss;
            }
            Ok(sum / self.keys.len() as f64)
        };
        let largest = self.state.lambda.iter().flat_map(Array::to_f64).fold(1.0, |m: f64, l| m.max(l.abs()));
        let (mut along, mut doubts) = (vec![], vec![]);
        for direction in &self.directions {
            let mut difference =
                |step: f64| Ok::<_, Error>((loss(direction, step)? - loss(direction, -step)?) / (2.0 * step));
            let mut best = (f64::NAN, f64::INFINITY);
            for scale in SCALES {
                let step = STEP * scale * largest;
                let (coarse, fine) = (difference(step)?, difference(0.5 * step)?);
                let (value, doubt) = ((4.0 * fine - coarse) / 3.0, (fine - coarse).abs() / 3.0);
                if doubt < best.1 {
                    best = (value, doubt);
                }
                if doubt <= SMOOTH * value.abs() {
                    break;
                }
            }
            along.push(best.0);
            doubts.push(best.1);
        }
        if along.iter().any(|d| !d.is_finite()) {
            let reason = "the outer loss after a training with a λ nearby is not finite: take a smaller inner step";
            return Err(Error::NoReference { reason: reason.into() });
        }
        Ok(Reference { along, doubt: euclidean(&doubts) })
    }

    /// Computed by an implicit solve at the end of a long training without noise, and of one of twice the length. For a
    /// method without plain steps, the reference uses a step of 1 over the curvature. If that diverges, it uses the
    /// first smaller one that converges, because the curvature may be larger elsewhere.
    fn minimum(&self, inner: InnerLoop, used: LoopUse) -> Result<Reference> {
        self.has_outer_loss()?;
        if used.descent.is_plain() {
            return self.minimum_by(inner, used);
        }
        let first = if self.curvature > 0.0 { 1.0 / self.curvature } else { inner.step };
        let plain = |step: f64| InnerLoop { step, optimizer: InnerOptimizer::Sgd, ..inner };
        let mut found = self.minimum_by(plain(first), used);
        for smaller in [4.0, 16.0, 64.0] {
            if found.is_ok() {
                break;
            }
            found = self.minimum_by(plain(first / smaller), used);
        }
        found
    }

    fn minimum_by(&self, inner: InnerLoop, used: LoopUse) -> Result<Reference> {
        let parameters = self.session.problem().sizes().1;
        let (iterations, rho) = ((2 * parameters + 10).min(SOLVE), self.proximal(used)?);
        let at = |steps: usize| -> Result<(Vec<f64>, bool)> {
            let InnerLoop { step, optimizer, .. } = inner;
            let long = InnerLoop { optimizer, ..InnerLoop::new(step, steps) };
            match rho {
                Some(rho) => self.mean(&Imaml { rho, iterations, ..Imaml::default() }, &long),
                None => self.mean(&IftCg { iterations, ..IftCg::default() }, &long),
            }
        };
        let long = inner.steps.saturating_mul(10).clamp(1000, 100_000);
        let (once, twice) = (self.along(&at(long)?.0), self.along(&at(2 * long)?.0));
        let change: Vec<f64> = once.iter().zip(&twice).map(|(a, b)| a - b).collect();
        let doubt = euclidean(&change);
        if doubt > REST * euclidean(&twice) {
            let reason = format!(
                "training does not converge in {} steps: in the second half the derivative at the end changes by \
                 {:.1e}, relatively",
                2 * long,
                doubt / euclidean(&twice)
            );
            return Err(Error::NoReference { reason });
        }
        Ok(Reference { along: twice, doubt })
    }
}
