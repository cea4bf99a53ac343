//! `bilevel check`: are the derivatives right, does every hyperparameter count, is the inner step well chosen?

use super::run::resolve;
use crate::advice::{InnerSteps, advice};
use crate::arguments::Check;
use crate::config::Config;
use crate::errors::{CliError, Result};
use bilevel::graph::random::{fold_in, seed_key};
use bilevel::{Curvature, Problem, State};
use bilevel_graph::{CheckReport, GradientCheck, Graph};
use serde_json::{Value, json};
use std::io::Write;

/// Hessian products spent on the curvature.
const PRODUCTS: usize = 60;

/// What was found of a problem.
pub struct Findings {
    /// Derivatives of the inner loss.
    pub inner: CheckReport,
    /// Derivatives of the outer loss.
    pub outer: CheckReport,
    /// Names of the hyperparameters that cannot influence the outer loss.
    pub idle: Vec<String>,
    /// Curvature of the inner loss.
    pub curvature: Curvature,
}

impl Findings {
    /// Looks at a problem at this state.
    pub fn of(problem: &Problem, state: &State, key: [i32; 2], executor: &bilevel::Cpu) -> Result<Self> {
        let graph = Graph::new();
        let losses = problem.losses(&graph, state, key)?;
        let check = |loss| -> Result<CheckReport> {
            let check = GradientCheck::new(&graph, loss, &losses.theta, &losses.point);
            let mut report = check.lambda(&losses.lambda).executor(executor).coordinates(32).run()?;
            for row in &mut report.rows {
                // A leaf without a name is all there is of its kind.
                row.variable = row.variable.trim_end_matches('.').into();
            }
            Ok(report)
        };
        Ok(Findings {
            inner: check(losses.inner)?,
            outer: check(losses.outer)?,
            idle: problem.idle_hyperparameters()?,
            curvature: losses.curvature(&graph, executor, PRODUCTS)?,
        })
    }
}

/// Where to look: after one outer iteration of the run, or at its start where that does not work out.
fn state(config: &Config, setup: &bilevel_tasks::Setup) -> Result<State> {
    let key = seed_key(config.seed);
    match config.driver(setup).iterations(1).run() {
        Ok(outcome) if !outcome.reason.is_failure() => Ok(outcome.state),
        // A step that is far too large is what the check is to find: look at where the run starts.
        Ok(_) | Err(bilevel::Error::Diverged { .. }) => Ok(State::initial(&setup.problem, key)?),
        Err(error) => Err(error.into()),
    }
}

/// Runs the command.
pub fn check(arguments: &Check, out: &mut dyn Write) -> Result<()> {
    let tolerance = arguments.tolerance;
    if !(tolerance > 0.0 && tolerance.is_finite()) {
        return Err(CliError::Usage(format!("--tolerance is {tolerance} but must be finite and above 0")));
    }
    let config = resolve(&arguments.which)?;
    let setup = config.setup()?;
    let state = state(&config, &setup)?;
    let executor = config.executor();
    let findings = Findings::of(&setup.problem, &state, fold_in(seed_key(config.seed), 1), &executor)?;
    let said = advice(findings.curvature, InnerSteps::of(&config));
    if arguments.json {
        writeln!(out, "{:#}", to_json(&findings, &said, arguments.tolerance))?;
    } else {
        print(&config, &setup.problem, &findings, &said, out)?;
    }
    verdict(&findings, arguments.tolerance)
}

/// An error where a derivative is wrong.
pub fn verdict(findings: &Findings, tolerance: f64) -> Result<()> {
    for (loss, report) in [("inner", &findings.inner), ("outer", &findings.outer)] {
        if !report.passed(tolerance) {
            let worst = report.rows.iter().max_by(|a, b| a.max_relative_error.total_cmp(&b.max_relative_error));
            let which = worst.map_or(String::new(), |row| format!("{} by {}", row.quantity, row.variable));
            return Err(CliError::CheckFailed(format!(
                "the {loss} loss has a wrong derivative: {which} is off by {:.1e}, relatively, and {tolerance:e} is \
                 allowed",
                report.worst()
            )));
        }
    }
    Ok(())
}

fn print(config: &Config, problem: &Problem, findings: &Findings, said: &[String], out: &mut dyn Write) -> Result<()> {
    let (lambda, theta) = problem.sizes();
    let method = bilevel::Method::name(&config.method);
    let (lambda, theta) = (count(lambda, "hyperparameter"), count(theta, "parameter"));
    writeln!(out, "{} by {method}: {lambda}, {theta}\n", config.experiment)?;
    for (loss, report) in [("inner", &findings.inner), ("outer", &findings.outer)] {
        writeln!(out, "Derivatives of the {loss} loss, against finite differences in 64 bits:\n")?;
        for line in report.to_string().lines() {
            writeln!(out, "  {}", line.trim_end())?;
        }
        writeln!(out)?;
    }
    if findings.idle.is_empty() {
        writeln!(out, "Every hyperparameter can influence the outer loss.")?;
    }
    for name in &findings.idle {
        writeln!(out, "λ.{name} cannot influence the outer loss: a run would leave it where it is.")?;
    }
    let Curvature { largest, smallest, products } = findings.curvature;
    let products = count(products, "Hessian product");
    writeln!(out, "\nCurvature of the inner loss, by {products}: {smallest:.3e} to {largest:.3e}.")?;
    for line in said {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

fn to_json(findings: &Findings, said: &[String], tolerance: f64) -> Value {
    let rows = |report: &CheckReport| -> Vec<Value> {
        let rows = report.rows.iter().map(|row| {
            json!({
                "quantity": row.quantity.to_string(),
                "variable": row.variable,
                "elements": row.coordinates,
                "absolute_error": row.max_absolute_error,
                "relative_error": row.max_relative_error,
                "structurally_zero": row.structurally_zero,
            })
        });
        rows.collect()
    };
    let Curvature { largest, smallest, products } = findings.curvature;
    json!({
        "passed": verdict(findings, tolerance).is_ok(),
        "inner": rows(&findings.inner),
        "outer": rows(&findings.outer),
        "idle": findings.idle,
        "curvature": { "largest": largest, "smallest": smallest, "products": products },
        "advice": said,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::{Cpu, DType, Leaf, Variable};

    fn findings(wrong: bool, dtype: DType) -> Findings {
        let problem = Problem::new(Leaf(Variable::constant([3], 0.4)), Leaf(Variable::constant([3], 0.7)))
            .dtype(dtype)
            .inner(move |_, l, t| {
                let strength = if wrong { l.0.stop_gradient() } else { l.0 };
                (strength.exp() * t.0.square() * 0.5 - t.0).sum_all()
            })
            .outer(|s, _, t| (t.0 - s.normal([3])).square().sum_all())
            .build()
            .unwrap();
        let state = State::initial(&problem, [1, 2]).unwrap();
        Findings::of(&problem, &state, [3, 4], &Cpu::with_threads(1)).unwrap()
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
