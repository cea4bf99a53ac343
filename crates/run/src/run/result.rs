//! The result of a finished run, which depends only on its configuration: no times, no machine.

use crate::Config;
use bilevel::methods::{AnyMethod, Oracles, Output};
use bilevel::splits::{Baselines, GuardReport};
use bilevel::{Method, Outcome, Problem, Result, StopReason, Tree};
use bilevel_report::number;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A leaf of λ with at most this many numbers is written out.
const SMALL: usize = 16;

/// The result of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The task.
    pub task: String,
    /// The method.
    pub method: String,
    /// The seed.
    pub seed: u64,
    /// Tells configurations apart.
    pub config_hash: String,
    /// Outer iterations done.
    pub iterations: u32,
    /// Why it stopped: `iterations`, `time`, `tolerance`, `patience`, `guard` or `diverged`.
    pub stopped: String,
    /// The same in words.
    pub because: String,
    /// The inner loss in the last iteration.
    pub inner_loss: Option<f64>,
    /// The outer loss in the last iteration.
    pub outer_loss: Option<f64>,
    /// The lowest outer loss of all iterations.
    pub best_outer_loss: Option<f64>,
    /// Norm of the last hypergradient.
    pub hypergradient_norm: Option<f64>,
    /// The task's own measures at the end.
    pub measures: Map<String, Value>,
    /// The measurement whose λ and θ are returned, for a run that keeps the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<BestRecord>,
    /// The report of the guard on held-out rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardReport>,
    /// How the hyperparameters compare with simpler ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baselines: Option<Baselines>,
    /// The hyperparameters: the last, or the best if the guard kept them.
    pub lambda: Vec<LeafSummary>,
    /// Names of hyperparameters that cannot influence the outer loss.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<String>,
    /// How often each kind of derivative was computed.
    pub oracles: Oracles,
}

/// The measurement whose λ and θ a run returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestRecord {
    /// The measure; `inner` and `outer` are the losses.
    pub measure: String,
    /// Its value.
    pub value: f64,
    /// The iteration after which it was measured.
    pub iteration: u32,
}

impl std::fmt::Display for BestRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BestRecord { measure, value, iteration } = self;
        let measure =
            if ["inner", "outer"].contains(&&measure[..]) { format!("{measure} loss") } else { measure.clone() };
        write!(f, "λ and θ are those of iteration {iteration}, with the best {measure}: {}", number(*value))
    }
}

/// A leaf of λ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeafSummary {
    /// Its name; empty if λ is one leaf without a name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// All its numbers, if they are few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<f64>>,
    /// Its Euclidean norm.
    #[serde(deserialize_with = "or_nan")]
    pub norm: f64,
    /// Its least number.
    #[serde(deserialize_with = "or_nan")]
    pub least: f64,
    /// Its largest number.
    #[serde(deserialize_with = "or_nan")]
    pub largest: f64,
}

/// JSON has no word for a number that is not finite, so it was written as null.
fn or_nan<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl LeafSummary {
    /// Whether this summary matches `found`; a number that is not finite was written as none.
    pub fn is_of(&self, found: &LeafSummary) -> bool {
        let same = |said: f64, found: f64| said == found || said.is_nan() && !found.is_finite();
        self.shape == found.shape
            && same(self.norm, found.norm)
            && same(self.least, found.least)
            && same(self.largest, found.largest)
    }

    /// Summarises these numbers in this shape.
    pub fn new(name: &str, shape: &[usize], values: Vec<f64>) -> Self {
        LeafSummary {
            name: name.into(),
            shape: shape.to_vec(),
            norm: values.iter().map(|v| v * v).sum::<f64>().sqrt(),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            largest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            values: (values.len() <= SMALL).then_some(values),
        }
    }
}

/// The word for why a finished run stopped; `None` for a run that is not finished.
fn word(reason: &StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Iterations => Some("iterations"),
        StopReason::Time => Some("time"),
        StopReason::Tolerance => Some("tolerance"),
        StopReason::Patience | StopReason::MeasurePatience(_) => Some("patience"),
        StopReason::Guard => Some("guard"),
        StopReason::Diverged(_) => Some("diverged"),
        _ => None,
    }
}

impl RunResult {
    /// The result of a finished run; `None` if it was stopped from outside.
    pub fn new(config: &Config, problem: &Problem, outcome: &Outcome) -> Result<Option<Self>> {
        let Some(stopped) = word(&outcome.reason) else { return Ok(None) };
        let last = outcome.last.as_ref();
        let arrays = outcome.lambda.leaves();
        let leaves = problem.lambda_names().into_iter().zip(arrays);
        Ok(Some(RunResult {
            task: config.task.name().into(),
            method: config.method.name().into(),
            seed: config.seed,
            config_hash: config.hash(),
            iterations: outcome.iterations,
            stopped: stopped.into(),
            because: outcome.reason.to_string(),
            inner_loss: last.map(|last| last.inner_loss),
            outer_loss: last.map(|last| last.outer_loss),
            best_outer_loss: outcome.best_outer_loss,
            hypergradient_norm: last.map(|last| last.hypergradient_norm),
            measures: outcome.measures.iter().map(|(name, value)| (name.to_string(), Value::from(value))).collect(),
            best: outcome.best.as_ref().map(|best| BestRecord {
                measure: best.aim.measure().into(),
                value: best.value,
                iteration: best.iteration,
            }),
            guard: outcome.guard,
            baselines: None,
            lambda: leaves.map(|(name, array)| LeafSummary::new(name, array.shape(), array.to_f64())).collect(),
            idle: problem.idle_hyperparameters()?,
            oracles: outcome.oracles,
        }))
    }

    /// The text of `result.json`.
    pub fn to_json(&self) -> String {
        // A struct of numbers and words can always be written down.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// A few lines for people.
    pub fn summary(&self) -> String {
        let iterations = format!("{} iteration{}", self.iterations, if self.iterations == 1 { "" } else { "s" });
        let ended = match self.stopped.as_str() {
            "iterations" => iterations,
            _ => format!("{} after {iterations}", self.because),
        };
        let mut lines = vec![format!("{} by {}, seed {}: {ended}", self.task, self.method, self.seed)];
        lines.extend(self.best.iter().map(|best| format!("  {best}")));
        lines.extend(self.guard.iter().map(|guard| format!("  {guard}")));
        let mut line = |name: &str, text: String| lines.push(format!("  {name:<40} {text}"));
        let output = AnyMethod::named(&self.method).map_or(Output::Hypergradient, |method| method.output());
        for (name, value) in [
            ("inner loss", self.inner_loss),
            ("outer loss", self.outer_loss),
            (&format!("norm of the {output}"), self.hypergradient_norm),
        ] {
            line(name, value.map_or("–".into(), number));
        }
        for (name, value) in &self.measures {
            line(name, value.as_f64().map_or("–".into(), number));
        }
        for leaf in &self.lambda {
            let name = if leaf.name.is_empty() { "λ".to_string() } else { format!("λ.{}", leaf.name) };
            line(
                &name,
                match &leaf.values {
                    Some(values) => values.iter().copied().map(number).collect::<Vec<_>>().join(" "),
                    None => {
                        let count: usize = leaf.shape.iter().product();
                        format!("{count} numbers from {} to {}", number(leaf.least), number(leaf.largest))
                    }
                },
            );
        }
        if let Some(baselines) = &self.baselines {
            lines.push(String::new());
            lines.push(baselines.to_string());
            let sentence = baselines.sentence();
            let mut letters = sentence.chars();
            let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
            let sentence = format!("{first}{}.", letters.as_str());
            // The most important warning comes first.
            let place = if baselines.wins() { 1 } else { 0 };
            lines.insert(place, sentence);
        }
        lines.join("\n").trim_end().to_string() + "\n"
    }
}
