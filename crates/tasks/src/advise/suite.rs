//! What the truth suite found of every method, stored: one line per method and problem, as `bilevel reproduce truth` writes its rows.

use bilevel::truth::{self, Facts, Target};
use bilevel::{AnyMethod, Method, Result};
use serde::Deserialize;

/// Errors below this are rounding.
const ROUNDING: f64 = 1e-6;
/// A hypergradient that is not found at all counts as this far off.
const LOST: f64 = 10.0;

const STORED: &str = include_str!("../../data/truth.jsonl");
const PEAKS: &str = include_str!("../../data/peak.tsv");

/// A line of the stored rows.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    method: String,
    setting: String,
    metric: String,
    ours: Option<f64>,
    spread: Option<f64>,
    cost: Option<f64>,
    verdict: String,
    reason: String,
}

/// A problem of the suite as advice sees it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub facts: Facts,
    /// Numbers of λ and θ.
    pub sizes: (usize, usize),
}

/// A method on a problem of the suite.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The method.
    pub method: String,
    /// The problem's place in [`Suite::problems`].
    pub problem: usize,
    /// ‖mean − truth‖/‖truth‖.
    pub bias: f64,
    /// √(bias² + spread²) of one hypergradient, relative to the truth, for chains of the length that the problem needs.
    pub error: f64,
    /// Gradients that one hypergradient costs, where one was found.
    pub price: Option<f64>,
    /// Within three standard errors of the truth.
    pub right: bool,
}

/// A method in a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Problems on which it is within three standard errors of the truth.
    pub right: usize,
    /// Problems that it gives an answer to, or tries.
    pub applies: usize,
    /// Problems on which its documentation claims to be right.
    pub claimed: usize,
    /// Those of them on which it is not.
    pub broken: usize,
    /// Gradients per inner step, the median over all problems.
    pub per_step: f64,
    /// The most copies of θ alive at once, of 20 inner steps.
    pub peak: Option<f64>,
}

/// The stored suite.
pub struct Suite {
    /// The problems with a known truth.
    pub problems: Vec<Known>,
    /// Every method on those it applies to.
    pub rows: Vec<Measured>,
}

impl Suite {
    /// What is stored.
    pub fn stored() -> Result<Self> {
        let problems: Vec<Known> = truth::problems()?
            .into_iter()
            .map(|p| Known { sizes: p.problem.sizes(), name: p.name, facts: p.facts })
            .collect();
        let mut rows = vec![];
        for line in STORED.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            let Some(problem) = problems.iter().position(|known| known.name == line.setting) else { continue };
            if line.metric != "relative bias" {
                continue;
            }
            let facts = &problems[problem].facts;
            let claimed = AnyMethod::named(&line.method).is_ok_and(|method| method.claims().cover(facts));
            // Chains of methods that claim to be right there were made longer, which makes their spread smaller and their price higher.
            let longer = match facts.target {
                Target::Gibbs { .. } if claimed => truth::Effort::FULL.length as f64,
                _ => 1.0,
            };
            let (bias, spread) = match (line.ours, line.verdict.as_str()) {
                (Some(bias), _) => (bias, line.spread.unwrap_or(0.0) * longer.sqrt()),
                (None, "not run") if line.reason.contains("iverge") => (LOST, 0.0),
                (None, "not run") => continue,
                (None, _) => (LOST, 0.0),
            };
            let error = bias.hypot(spread).clamp(ROUNDING, LOST);
            let price = line.cost.filter(|cost| *cost > 0.0).map(|cost| cost / longer);
            let right = line.verdict == "reproduced";
            rows.push(Measured { method: line.method, problem, bias, error, price, right });
        }
        Ok(Suite { problems, rows })
    }

    /// What a table says of a method.
    ///
    /// ```
    /// let found = bilevel_tasks::advise::Suite::stored()?.summary("langevin-adjoint");
    /// assert!(found.right == found.applies && found.broken == 0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn summary(&self, method: &str) -> Summary {
        let rows: Vec<&Measured> = self.of(method).collect();
        let claims = AnyMethod::named(method).map(|method| method.claims()).unwrap_or_default();
        let facts = |row: &Measured| &self.problems[row.problem].facts;
        let claimed = || rows.iter().filter(|row| claims.cover(facts(row)));
        let prices: Vec<f64> = rows.iter().filter_map(|row| Some(row.price? / facts(row).steps as f64)).collect();
        Summary {
            right: rows.iter().filter(|row| row.right).count(),
            applies: rows.len(),
            claimed: claimed().count(),
            broken: claimed().filter(|row| !row.right).count(),
            per_step: crate::statistics::median(&prices),
            peak: PEAKS
                .lines()
                .filter_map(|line| line.split_once('\t'))
                .find(|(name, _)| *name == method)
                .and_then(|(_, copies)| copies.parse().ok()),
        }
    }

    /// The rows of a method.
    pub fn of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Measured> {
        self.rows.iter().filter(move |row| row.method == method)
    }
}
