//! `bilevel check`: checks the derivatives, the effect of every hyperparameter, the inner step, the method, and the
//! first iterations of a run.

use super::run::resolve;
use crate::arguments::Check;
use crate::commands::advice::{InnerSteps, advice, overfits, question};
use crate::errors::{CliError, Result};
use crate::run::device::{executor, settled};
use crate::run::execute::problem;
use crate::terminal::interrupt::end_on_interrupt;
use bilevel::diagnostics::{Agreement, Diagnosis, PrecisionReport, ProblemReport};
use bilevel::observers::Recorder;
use bilevel::programs::Snapshot;
use bilevel::{Key, Precision, Problem, Session, StopReason};
use bilevel_graph::CheckReport;
use bilevel_run::advise::Situation;
use bilevel_run::{Config, Recipe, Registry};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Outer iterations that are tried.
const FIRST: u32 = 10;

/// How the run begins.
pub(super) struct FirstIterations {
    /// The state to examine: the last one, or the first one if the run diverged, since the last is then meaningless.
    pub state: Snapshot,
    /// How many are done.
    done: u32,
    /// The outer loss in the first and in the last of them.
    outer_loss: Option<(f64, f64)>,
    /// The diagnosis of the divergence, if any.
    diverged: Option<Diagnosis>,
}

impl FirstIterations {
    /// Runs the first iterations without writing anything.
    pub fn of(config: &Config, registry: &Registry, problem: &Problem, session: &Session) -> Result<Self> {
        let numbers = Recorder::new();
        let executor = Box::new(executor(config.device, config.threads)?);
        let driver = config.driver(registry, problem, executor)?.iterations(config.outer.iterations.min(FIRST));
        let outcome = driver.observe(numbers.clone()).run()?;
        let losses: Vec<f64> = numbers.iterations().iter().map(|iteration| iteration.outer_loss).collect();
        let (state, diverged) = match outcome.reason {
            StopReason::Diverged(diagnosis) => (session.state(Key::from_seed(config.seed))?, Some(diagnosis)),
            _ => (outcome.state, None),
        };
        let outer_loss = losses.first().copied().zip(losses.last().copied());
        Ok(FirstIterations { state: state.snapshot()?, done: outcome.iterations, outer_loss, diverged })
    }

    /// The result as a sentence.
    fn sentence(&self) -> String {
        match (&self.diverged, self.outer_loss) {
            (Some(Diagnosis { iteration, .. }), _) => {
                format!("A run with these settings diverges at iteration {iteration}.")
            }
            (None, Some((first, last))) if self.done > 1 && last <= first => format!(
                "The first {} iterations of a run go well; the outer loss falls from {first:.3e} to {last:.3e}.",
                self.done
            ),
            (None, Some((first, last))) if self.done > 1 => format!(
                "The first {} iterations of a run do not diverge, but the outer loss rises from {first:.3e} to \
                 {last:.3e}. It follows θ as well as λ, so it may rise until training has settled; if it still rises \
                 then, take a lower outer rate.",
                self.done
            ),
            _ => "The first iteration of a run does not diverge.".into(),
        }
    }

    /// Returns an error if the run diverges.
    fn verdict(&self) -> Result<()> {
        match &self.diverged {
            Some(diagnosis) => Err(CliError::CheckFailed(format!("a run with these settings diverges at {diagnosis}"))),
            None => Ok(()),
        }
    }

    fn to_json(&self) -> Value {
        let (first, last) = self.outer_loss.unzip();
        json!({
            "iterations": self.done,
            "first_outer_loss": first,
            "last_outer_loss": last,
            "diverged": self.diverged.as_ref().map(Diagnosis::to_string),
        })
    }
}

/// Runs the command.
pub fn check(registry: &Registry, arguments: &Check, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let tolerance = arguments.tolerance;
    if !(tolerance > 0.0 && tolerance.is_finite()) {
        return Err(CliError::Usage(format!("--tolerance is {tolerance} but must be finite and above 0")));
    }
    let mut config = resolve(registry, &arguments.which)?;
    config.device = settled(config.device, quiet)?;
    let problem = problem(&config, registry)?;
    let run_on = || executor(config.device, config.threads);
    let printing = Arc::new(Mutex::new(()));
    end_on_interrupt(printing.clone(), |()| "stopped before the check was done".into())?;
    let session = Session::new(&problem, &run_on()?)?;
    let first = FirstIterations::of(&config, registry, &problem, &session)?;
    // Measured at the same point as by `bilevel advise`, so that both agree.
    let question = question(&config, registry, problem.starts_from_lambda())?;
    let situation = Situation::measure(&problem, &question, &run_on()?, Key::from_seed(config.seed))?;
    let looking = || -> Result<bilevel::diagnostics::Check> {
        let mut looking = problem.check().executor(run_on()?).seed(config.seed).at(first.state.clone());
        looking = looking.curvature(situation.curvature);
        looking = looking.method_with(config.method(registry)?, config.inner);
        if arguments.all_methods {
            let task = registry.read_task(&config.task)?;
            for known in registry.methods().iter().filter(|known| known.info.name != config.method.name()) {
                let Recipe { method, inner } = registry.suited(&*task, known.info.name)?;
                let method = registry.read_method(&method)?;
                match method.applies(&problem) {
                    Ok(()) => looking = looking.method_with(method, inner),
                    Err(bilevel::Error::NotApplicable { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(looking)
    };
    let findings = looking()?.run()?;
    let rounding = match config.precision {
        Precision::Full => None,
        precision => Some(looking()?.compare_precision(precision)?),
    };
    let cause = first.diverged.as_ref().map(|diagnosis| diagnosis.cause);
    let mut said = advice(findings.curvature, InnerSteps::of(&config, registry)?, cause);
    said.extend(overfits(&problem));
    said.push(first.sentence());
    let answer = verdict(&findings, tolerance).and_then(|()| first.verdict());
    let _printing = printing.lock().unwrap_or_else(PoisonError::into_inner);
    if arguments.json {
        let json = to_json(&findings, rounding.as_ref(), &first, &said, answer.is_ok());
        writeln!(out, "{json:#}")?;
    } else {
        print(&config, &problem, (&findings, rounding.as_ref()), &said, out)?;
    }
    answer
}

/// Returns an error if a derivative is wrong.
pub fn verdict(findings: &ProblemReport, tolerance: f64) -> Result<()> {
    for (loss, report) in [("inner", &findings.inner), ("outer", &findings.outer)] {
        if !report.is_informative() {
            return Err(CliError::CheckFailed(format!(
                "no derivative of the {loss} loss could be compared, at this point or near it: all are 0 or at kinks"
            )));
        }
        if !report.passed(tolerance) {
            let worst = report.rows.iter().max_by(|a, b| a.max_relative_error.total_cmp(&b.max_relative_error));
            let which = worst.map_or(String::new(), |row| format!("{} by {}", row.quantity, row.variable));
            return Err(CliError::CheckFailed(format!(
                "the {loss} loss has a wrong derivative: {which} has a relative error of {:.1e}, and {tolerance:e} is \
                 allowed",
                report.worst()
            )));
        }
    }
    Ok(())
}

fn print(
    config: &Config,
    problem: &Problem,
    (findings, rounding): (&ProblemReport, Option<&PrecisionReport>),
    said: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    let (lambda, theta) = problem.sizes();
    let (task, method) = (config.task.name(), config.method.name());
    let (lambda, theta) = (count(lambda, "hyperparameter"), count(theta, "parameter"));
    writeln!(out, "{task} by {method}: {lambda}, {theta}\n")?;
    writeln!(out, "{findings}")?;
    if let Some(rounding) = rounding {
        writeln!(out, "{rounding}")?;
    }
    for line in said {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

fn to_json(
    findings: &ProblemReport,
    rounding: Option<&PrecisionReport>,
    first: &FirstIterations,
    said: &[String],
    passed: bool,
) -> Value {
    let rows = |report: &CheckReport| -> Vec<Value> {
        let rows = report.rows.iter().map(|row| {
            json!({
                "quantity": row.quantity.to_string(),
                "variable": row.variable,
                "elements": row.coordinates,
                "kinks": row.kinks,
                "empty": row.is_empty(),
                "absolute_error": row.max_absolute_error,
                "relative_error": row.max_relative_error,
                "structurally_zero": row.structurally_zero,
            })
        });
        rows.collect()
    };
    let agreement = |found: bilevel::Result<Agreement>| match found {
        Ok(Agreement { error, cosine, known_to, .. }) => {
            json!({ "error": error, "cosine": cosine, "known_to": known_to })
        }
        Err(_) => Value::Null,
    };
    let methods = findings.methods.iter().map(|method| {
        json!({
            "method": method.method,
            "output": method.output.to_string(),
            "norm": method.norm().ok(),
            "training": agreement(method.training()),
            "minimum": agreement(method.minimum()),
            "verdict": method.verdict(),
        })
    });
    json!({
        "passed": passed,
        "inner": rows(&findings.inner),
        "outer": rows(&findings.outer),
        "idle": findings.idle,
        "moved_by": findings.moved.map(|moved| moved.by),
        "curvature": findings.curvature,
        "methods": methods.collect::<Vec<_>>(),
        "precision": rounding,
        "first_iterations": first.to_json(),
        "advice": said,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::{Cpu, DType, Leaf, Variable};

    fn findings(wrong: bool, dtype: DType) -> ProblemReport {
        let problem = Problem::builder(Leaf(Variable::constant([3], 0.4)), Leaf(Variable::constant([3], 0.7)))
            .dtype(dtype)
            .inner(move |_, l, t| {
                let strength = if wrong { l.0.stop_gradient() } else { l.0 };
                (strength.exp() * t.0.square() * 0.5 - t.0).sum_all()
            })
            .outer(|s, _, t| (t.0 - s.normal([3])).square().sum_all())
            .build()
            .unwrap();
        problem.check().executor(Cpu::with_threads(1)).run().unwrap()
    }

    #[test]
    fn a_right_loss_passes_in_either_type_and_its_curvature_is_known() {
        for dtype in [DType::F64, DType::F32] {
            let found = findings(false, dtype);
            verdict(&found, 1e-7).unwrap();
            assert!((found.curvature.largest - 0.4f64.exp()).abs() < 1e-6, "{:?}", found.curvature);
            assert!(found.idle.is_empty());
        }
    }

    #[test]
    fn a_hyperparameter_cut_off_by_mistake_fails_with_its_name_and_code_1() {
        let found = findings(true, DType::F64);
        assert_eq!(found.idle, [""]);
        let error = verdict(&found, 1e-6).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().starts_with("the inner loss has a wrong derivative: "), "{error}");
        assert!(error.to_string().contains("by lambda "), "{error}");
    }
}
