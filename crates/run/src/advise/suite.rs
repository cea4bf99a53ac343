//! The stored results of the truth suite: one line per method and problem, as `bilevel reproduce truth` writes its
//! rows.

use bilevel::methods::AnyMethod;
use bilevel::methods::claims::{Facts, Target};
use bilevel::{Method, Result};
use bilevel_truth::{self as truth, Verdict};
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
    seeds: u32,
    cost: Option<f64>,
    verdict: String,
}

/// A problem of the suite as advice sees it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Facts about the problem.
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
    /// Gradients that one hypergradient costs, if one was found.
    pub price: Option<f64>,
    /// Inner steps of that hypergradient.
    pub steps: f64,
    /// Within three standard errors of the truth, with a standard error that is small compared with it
    /// ([`Verdict::of`]).
    pub right: bool,
    /// A claim that does not hold.
    pub broken: bool,
}

/// A method in a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Problems on which it is right ([`Verdict::Right`]).
    pub right: usize,
    /// Problems to which it applies ([`Verdict::applies`]), whether it finds a hypergradient or not.
    pub applies: usize,
    /// Problems that its claims cover.
    pub claimed: usize,
    /// Those of them on which its claim does not hold.
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
    /// The stored results.
    pub fn stored() -> Result<Self> {
        let suite = truth::problems()?;
        let problems: Vec<Known> =
            suite.iter().map(|p| Known { sizes: p.problem.sizes(), name: p.name.clone(), facts: p.facts }).collect();
        let mut rows = vec![];
        for line in STORED.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            let Some(problem) = problems.iter().position(|known| known.name == line.setting) else { continue };
            if line.metric != "relative bias" {
                continue;
            }
            let facts = &problems[problem].facts;
            let Ok(method) = AnyMethod::named(&line.method) else { continue };
            let claimed = method.claims().cover(facts);
            // Chains of methods that claim to be right there were made longer, which makes their spread smaller and their price higher.
            let longer = match facts.target {
                Target::Gibbs { .. } | Target::Evidence { .. } if claimed => truth::Effort::FULL.length as f64,
                _ => 1.0,
            };
            // No seeds: the method does not apply.
            if line.seeds == 0 {
                continue;
            }
            let (bias, measured) = (line.ours.unwrap_or(LOST), line.spread.unwrap_or(0.0));
            let spread = measured * longer.sqrt();
            let error = bias.hypot(spread).clamp(ROUNDING, LOST);
            let price = line.cost.filter(|cost| *cost > 0.0).map(|cost| cost / longer);
            let right = Verdict::of(bias, measured / f64::from(line.seeds).sqrt()) == Verdict::Right;
            let broken = line.verdict == "not reproduced";
            let steps = truth::fitted_steps(&method, &suite[problem])? as f64;
            rows.push(Measured { method: line.method, problem, bias, error, price, steps, right, broken });
        }
        Ok(Suite { problems, rows })
    }

    /// The entries of a table for a method.
    ///
    /// ```
    /// let found = bilevel_run::advise::Suite::stored()?.summary("langevin-adjoint");
    /// assert!(found.right >= found.claimed - 1 && found.right <= found.applies && found.broken == 0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn summary(&self, method: &str) -> Summary {
        let rows: Vec<&Measured> = self.of(method).collect();
        let claims = AnyMethod::named(method).map(|method| method.claims()).unwrap_or_default();
        let facts = |row: &Measured| &self.problems[row.problem].facts;
        let claimed = || rows.iter().filter(|row| claims.cover(facts(row)));
        let prices: Vec<f64> = rows.iter().filter_map(|row| Some(row.price? / row.steps)).collect();
        Summary {
            right: rows.iter().filter(|row| row.right).count(),
            applies: rows.len(),
            claimed: claimed().count(),
            broken: rows.iter().filter(|row| row.broken).count(),
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
