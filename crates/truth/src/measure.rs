//! One method on one problem: its distance from the truth, the standard error of that, and its cost.

use super::TruthProblem;
use super::dense::norm;
use bilevel::methods::Oracles;
use bilevel::methods::claims::{Settling, Target};
use bilevel::{Error, InnerLoop, Method, Result, Session};
use bilevel_graph::{Buffer, Executor};
use serde::{Deserialize, Serialize};

/// The largest deviation, in standard errors, that counts as chance.
const ERRORS: f64 = 3.0;
/// A standard error above this share of the truth says too little to call a method right.
pub const MAX_STANDARD_ERROR: f64 = 0.1;
/// A deviation of this share of the truth is rounding, or the rest of a training that has all but arrived.
const ROUNDING: f64 = 1e-6;
/// Hypergradients after which an average has forgotten that it began at 0, at a weight of 0.1: 0.9²⁰⁰ is 1e-9.
const LEAST_WARM_UP: u32 = 200;
/// Derivatives of a whole training that grow by this factor are not a truth to compare with.
const CHAOS: f64 = 1e3;

/// How much is done to know a method's bias well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Independent random runs, at least 2.
    pub replicas: u32,
    /// Hypergradients of each that are averaged, after one that warms up the method's memory.
    pub calls: u32,
    /// How many times longer than they need be chains at finite temperature are, for methods whose bias falls with the length.
    pub length: usize,
}

impl Effort {
    /// Seconds for a method on all problems.
    pub const QUICK: Effort = Effort { replicas: 8, calls: 2, length: 1 };
    /// Minutes.
    pub const FULL: Effort = Effort { replicas: 24, calls: 1, length: 10 };
}

/// The verdict on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within three standard errors of the truth, and the standard error is at most [`MAX_STANDARD_ERROR`] of it.
    Right,
    /// Within three standard errors of the truth, but these are too large to say more.
    Noisy,
    /// More than three standard errors from the truth.
    Off,
    /// The method does not apply, for this reason.
    NotApplicable(String),
    /// It found no hypergradient, for this reason.
    Failed(String),
    /// There is no hypergradient to find: sensitivities grow with the length of training.
    NoTruth,
}

impl Verdict {
    /// Judges a mean by its distance from the truth and its standard error, both in units of the truth.
    ///
    /// ```
    /// use bilevel_truth::Verdict;
    /// assert_eq!(Verdict::of(0.02, 0.01), Verdict::Right);
    /// assert_eq!(Verdict::of(0.9, 0.5), Verdict::Noisy);
    /// assert_eq!(Verdict::of(0.02, 1e-3), Verdict::Off);
    /// ```
    pub fn of(relative_bias: f64, relative_error: f64) -> Self {
        match () {
            _ if relative_bias <= ERRORS * relative_error + ROUNDING => match relative_error <= MAX_STANDARD_ERROR {
                true => Verdict::Right,
                false => Verdict::Noisy,
            },
            // A bias that is not a number is off, too.
            _ => Verdict::Off,
        }
    }

    /// Returns true if the method applies to the problem, whether it found a hypergradient or not: the denominator of
    /// "right on".
    pub fn applies(&self) -> bool {
        !matches!(self, Verdict::NotApplicable(_))
    }
}

/// One method on one problem. Norms are over all numbers of λ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The problem's name.
    pub problem: String,
    /// The method's name.
    pub method: String,
    /// Whether the method claims anything on such a problem ([`Claims`](bilevel::methods::claims::Claims)).
    pub claimed: bool,
    /// Whether the claim holds; `None` if there is none, or nothing to compare with.
    pub kept: Option<bool>,
    /// Independent runs that were made.
    pub replicas: u32,
    /// The verdict on it.
    pub verdict: Verdict,
    /// ‖truth‖, if it is finite.
    pub truth: Option<f64>,
    /// ‖mean − truth‖.
    pub bias: Option<f64>,
    /// The standard error of that: of a vector, the root of the sum of squares.
    pub standard_error: Option<f64>,
    /// The standard deviation of a single hypergradient.
    pub spread: Option<f64>,
    /// The cosine of the angle between mean and truth.
    pub cosine: Option<f64>,
    /// ‖mean‖/‖truth‖.
    pub size: Option<f64>,
    /// Derivatives taken for one hypergradient.
    pub oracles: Oracles,
    /// Bytes that the method keeps from one hypergradient to the next.
    pub kept_bytes: usize,
    /// The growth rate of sensitivities that the method measured, per inner step.
    pub growth_rate: Option<f64>,
}

impl Row {
    pub(super) fn empty(method: &dyn Method, problem: &TruthProblem, verdict: Verdict) -> Self {
        Row {
            problem: problem.name.clone(),
            method: method.name().into(),
            claimed: method.claims().cover(&problem.facts),
            kept: None,
            replicas: 0,
            verdict,
            truth: Some(norm(&problem.truth)).filter(|norm| norm.is_finite()),
            bias: None,
            standard_error: None,
            spread: None,
            cosine: None,
            size: None,
            oracles: Oracles::default(),
            kept_bytes: 0,
            growth_rate: None,
        }
    }

    /// ‖mean − truth‖/‖truth‖.
    pub fn relative_bias(&self) -> Option<f64> {
        self.bias.zip(self.truth).map(|(bias, truth)| bias / truth)
    }

    /// The standard error in units of the truth.
    pub fn relative_error(&self) -> Option<f64> {
        self.standard_error.zip(self.truth).map(|(error, truth)| error / truth)
    }
}

/// The mean of the hypergradients of one replica, the cost of one of them, and its memory.
struct Replica {
    mean: Vec<f64>,
    /// The standard error of one hypergradient reported by the method itself.
    own_error: Option<f64>,
    oracles: Oracles,
    kept_bytes: usize,
    growth_rate: Option<f64>,
}

fn replica(
    (method, inner): (&dyn Method, &InnerLoop),
    problem: &TruthProblem,
    session: &Session,
    (number, calls): (u32, u32),
) -> Result<Replica> {
    // The estimator itself, without the diagnosis: that one refuses numbers beyond the range, which here are an answer.
    let mut estimator = method.compile(session, inner)?;
    let key = problem.key(number);
    let mut state = session.state(key)?;
    // A whole training starts again, and once is enough.
    let (warm_up, calls) = match (problem.facts.target, method.claims().settling) {
        (Target::Training { .. }, _) => (0, 1),
        (_, Settling::StepByStep) => ((problem.facts.inner.steps as u32).max(LEAST_WARM_UP), calls),
        _ => (1, calls),
    };
    let draw = |call: u32| if warm_up + calls == 1 { key } else { key.fold_in(1000 + call) };
    for call in 0..warm_up {
        estimator.estimate(&mut state, draw(call), inner.step)?;
    }
    let mut mean = vec![0.0; problem.truth.len()];
    let mut last = None;
    for call in warm_up..warm_up + calls {
        let found = estimator.estimate(&mut state, draw(call), inner.step)?;
        let value = found.value.numbers()?;
        mean.iter_mut().zip(value).for_each(|(sum, v)| *sum += v / calls as f64);
        last = Some(found);
    }
    let last = last.ok_or_else(|| Error::other("at least one hypergradient must be taken"))?;
    let own_error = last.standard_error.map(|leaves| leaves.numbers()).transpose()?.map(|all| norm(&all));
    Ok(Replica {
        mean,
        own_error,
        oracles: last.oracles,
        kept_bytes: state.memory.iter().map(Buffer::byte_count).sum(),
        growth_rate: last.diagnostics.growth_rate,
    })
}

/// Runs a method with this inner loop on a problem, with this effort if anything is random.
pub fn measure(
    (method, inner): (&dyn Method, &InnerLoop),
    problem: &TruthProblem,
    effort: Effort,
    executor: &dyn Executor,
) -> Result<Row> {
    let session = Session::new(&problem.problem, executor)?;
    let run = |number| replica((method, inner), problem, &session, (number, effort.calls));
    let refused = |error: Error| match error {
        Error::NotApplicable { reason, .. } => Ok(Row::empty(method, problem, Verdict::NotApplicable(reason))),
        Error::Setting { .. } | Error::InnerLoop { .. } => {
            Ok(Row::empty(method, problem, Verdict::NotApplicable(error.to_string())))
        }
        Error::Diverged { .. } => Ok(Row::empty(method, problem, Verdict::Failed(error.to_string()))),
        error => Err(error),
    };
    if let Err(error) = method.applies(&problem.problem) {
        return refused(error);
    }
    let whole_training = matches!(problem.facts.target, Target::Training { .. });
    let mut all = vec![];
    for number in 0..effort.replicas.max(2) {
        match run(number) {
            Ok(found) => all.push(found),
            Err(error) => return refused(error),
        }
        // If two are the same to the bit, nothing is random; a whole training has only one.
        if whole_training || (all.len() == 2 && all[0].mean == all[1].mean) {
            break;
        }
    }
    Ok(summary(method, problem, &all, effort))
}

fn summary(method: &dyn Method, problem: &TruthProblem, all: &[Replica], effort: Effort) -> Row {
    let n = all.len() as f64;
    let numbers = problem.truth.len();
    let mean: Vec<f64> = (0..numbers).map(|j| all.iter().map(|r| r.mean[j]).sum::<f64>() / n).collect();
    let squares = |j: usize| all.iter().map(|r| (r.mean[j] - mean[j]).powi(2)).sum::<f64>();
    let variance = if all.len() < 2 { 0.0 } else { (0..numbers).map(squares).sum::<f64>() / (n - 1.0) };
    let own = if all.len() < 2 { all[0].own_error } else { None };
    let (error, spread) = match own {
        Some(own) => (own, own),
        None => ((variance / n).sqrt(), (variance * effort.calls as f64).sqrt()),
    };
    let truth = norm(&problem.truth);
    let off: Vec<f64> = mean.iter().zip(&problem.truth).map(|(m, t)| m - t).collect();
    let bias = norm(&off);
    let size = norm(&mean);
    let cosine = mean.iter().zip(&problem.truth).map(|(m, t)| (m / size) * (t / truth)).sum::<f64>();
    let chaotic = problem.growth_rate.is_some_and(|rate| rate * problem.facts.inner.steps as f64 > CHAOS.ln());
    let verdict = match () {
        _ if chaotic || !truth.is_finite() => Verdict::NoTruth,
        _ => Verdict::of(bias / truth, error / truth),
    };
    let finite = |x: f64| Some(x).filter(|x| x.is_finite());
    Row {
        bias: finite(bias),
        standard_error: finite(error),
        spread: finite(spread),
        cosine: finite(cosine),
        size: finite(size / truth),
        oracles: all[0].oracles,
        kept_bytes: all[0].kept_bytes,
        growth_rate: all[0].growth_rate,
        replicas: all.len() as u32,
        ..Row::empty(method, problem, verdict)
    }
}
