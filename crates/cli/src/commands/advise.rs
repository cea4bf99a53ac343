//! `bilevel advise`: which method to begin with on a problem, and with which settings.

use super::advice::{InnerSteps, advice as sentences, overfits, question};
use super::check::FirstIterations;
use super::run::resolve;
use crate::arguments::{Advise, Asked};
use crate::errors::Result;
use crate::run::device::{executor, settled};
use crate::run::execute::problem;
use bilevel::diagnostics::MethodReport;
use bilevel::methods::Noise;
use bilevel::methods::claims::Target;
use bilevel::{Key, Method, Session};
use bilevel_report::{Column, Table};
use bilevel_run::advise::{Advice, Question, Situation, Suite, advise as ranked};
use bilevel_run::{Config, Recipe, Registry};
use serde_json::json;
use std::io::Write;

/// Methods shown to people; `--json` has all of them.
const SHOWN: usize = 8;
/// The question of the argument, or else of the configuration.
fn asked(config: &Config, registry: &Registry, starts_from_lambda: bool, asked: Option<Asked>) -> Result<Question> {
    let question = question(config, registry, starts_from_lambda)?;
    let temperature = config.inner.temperature;
    let target = match asked {
        Some(Asked::Minimum) => Target::Minimum,
        Some(Asked::Temperature) => Target::Gibbs { temperature: temperature.max(f64::MIN_POSITIVE) },
        Some(Asked::Training) => Target::Training { optimizer: bilevel::optimizers::InnerOptimizer::Sgd },
        None => question.target,
    };
    Ok(Question { target, ..question })
}

/// Runs the command.
pub fn advise(registry: &Registry, arguments: &Advise, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let mut config = resolve(registry, &arguments.which)?;
    config.device = settled(config.device, quiet)?;
    let problem = problem(&config, registry)?;
    let question = asked(&config, registry, problem.starts_from_lambda(), arguments.question)?;
    let executor = executor(config.device, config.threads)?;
    let situation = Situation::measure(&problem, &question, &executor, Key::from_seed(config.seed))?;
    let advice = ranked(registry, &Suite::stored()?, &problem, (situation, &question), None)?;
    let mut said = sentences(situation.curvature, InnerSteps::of(&config, registry)?, None);
    said.extend(overfits(&problem));
    // The verdict of `bilevel check` on the method, in the same words: predictions come from similar problems, this
    // comes from the problem itself.
    let session = Session::new(&problem, &executor)?;
    let first = FirstIterations::of(&config, registry, &problem, &session)?;
    let check = problem.check().executor(executor).seed(config.seed).at(first.state).curvature(situation.curvature);
    let measured = check.method_with(config.method(registry)?, config.inner).compare_methods()?;
    said.extend(measured.iter().map(MethodReport::verdict));
    if arguments.json {
        let command = advice.ranked.first().map(|first| command(&config, registry, &first.recipe));
        let question = words(&question);
        let json = json!({ "question": question, "advice": advice, "sentences": said, "command": command });
        writeln!(out, "{json:#}")?;
        return Ok(());
    }
    print((&config, registry), &question, (&advice, &said), out)
}

/// The question in words.
fn words(question: &Question) -> String {
    match question.target {
        Target::Minimum => "the outer loss at the minimum of the inner loss".into(),
        Target::Gibbs { temperature } => format!("the mean outer loss at temperature {temperature}"),
        Target::Evidence { temperature } => format!("the evidence at temperature {temperature}"),
        Target::Training { .. } => format!("the outer loss after {} steps of training", question.inner.steps),
        Target::Proximal { .. } => "the outer loss at a proximal minimum".into(),
    }
}

/// The command that runs a task by this method with this inner loop.
fn command(config: &Config, registry: &Registry, recipe: &Recipe) -> String {
    let Recipe { method, inner } = recipe;
    let mut words = format!("bilevel run {} --method {}", config.task.name(), method.name());
    let mut set = |key: &str, value: f64| words += &format!(" --set {key}={}", rounded(value));
    set("inner.step", inner.step);
    set("inner.steps", inner.steps as f64);
    let used = registry.read_method(method).map(|method| method.loop_use()).unwrap_or_default();
    if used.burn_in {
        set("inner.burn_in", inner.burn_in as f64);
    }
    if used.noise == Noise::Expected || inner.temperature > 0.0 {
        set("inner.temperature", inner.temperature);
    }
    for key in ["alpha", "beta"] {
        if let Some(value) = method.get(key).and_then(serde_json::Value::as_f64) {
            set(&format!("method.{key}"), value);
        }
    }
    words
}

/// Rounds to two digits.
fn rounded(number: f64) -> f64 {
    if number == 0.0 || number.fract() == 0.0 {
        return number;
    }
    format!("{number:.1e}").parse().unwrap_or(number)
}

fn print(
    (config, registry): (&Config, &Registry),
    question: &Question,
    (advice, said): (&Advice, &[String]),
    out: &mut dyn Write,
) -> Result<()> {
    let Situation { hyperparameters, parameters, curvature, noise, .. } = advice.situation;
    writeln!(out, "{}: the derivative of {}\n", config.task.name(), words(question))?;
    writeln!(out, "Hyperparameters: {hyperparameters}. Parameters: {parameters}.")?;
    writeln!(out, "{curvature}")?;
    match advice.situation.is_noisy() {
        true => writeln!(out, "Its gradients differ from draw to draw by {:.0} % of their mean.", noise * 100.0)?,
        false => writeln!(out, "Its gradients have no noise.")?,
    }
    for line in said {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    let row = |candidate: &bilevel_run::advise::Candidate| {
        let bias = if candidate.bias < 1e-6 { "rounding".into() } else { format!("{:.0e}", candidate.bias) };
        let error = if candidate.error <= 1e-6 { "rounding".into() } else { format!("{:.0e}", candidate.error) };
        vec![candidate.method.clone(), bias, error, format!("{:.0}", candidate.price)]
    };
    let table = Table {
        columns: vec![
            Column::text("method"),
            Column::numeric("bias"),
            Column::numeric("bias and spread"),
            Column::numeric("gradients"),
        ],
        rows: advice.ranked.iter().take(SHOWN).map(row).collect(),
        caption: "Expected error of one hypergradient, relative to its size, from the truth suite".into(),
    };
    writeln!(out, "{}", table.text(100))?;
    match advice.ranked.first() {
        Some(first) => {
            writeln!(out, "Begin with {}:\n\n  {}\n", first.method, command(config, registry, &first.recipe))?;
        }
        None => writeln!(out, "No registered method applies to this problem.\n")?,
    }
    if !advice.refused.is_empty() {
        let names: Vec<&str> = advice.refused.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "Not ranked: {}; --json has the reasons.", names.join(", "))?;
    }
    Ok(())
}
