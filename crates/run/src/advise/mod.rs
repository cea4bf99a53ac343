//! Advice on the method: a problem is measured, and methods are ranked by their results in the truth suite on similar
//! problems.
//!
//!   predicted error = geometric mean over the suite's problems with the same question of √(bias² + spread²), weighted by e^(−distance)
//!   predicted price = (price per inner step there) × (inner steps here)
//!
//! The distance of two problems counts differences of kind: whether the inner loss curves downwards, is flat along some
//! direction or is random. To these it adds the powers of ten between their conditions, sizes and temperatures. Between
//! two methods, the one with the smaller error comes first, unless it costs far more: an order of magnitude in price
//! outweighs [`WORTH`] of one in error. A method whose documentation claims to be right on such a problem comes before
//! one that happens to be.

mod situation;
mod standings;
mod suite;

pub use situation::{Question, Situation};
pub use standings::{Standing, standings};
pub use suite::{Known, Measured, Suite, Summary};

use crate::{Recipe, Registry};
use bilevel::methods::Noise;
use bilevel::methods::claims::{Facts, Promise, Target};
use bilevel::{Error, InnerLoop, Problem, Result};
use serde::Serialize;

/// Orders of magnitude in error that one in price is worth.
pub const WORTH: f64 = 0.3;
/// An error below this is as good as none.
const SMALL: f64 = 1e-4;
/// Orders of magnitude in error that a method's own claim to be right on such a problem is worth.
const PROMISE: f64 = 0.5;
/// The distance of a difference of kind, and of an order of magnitude in condition, size or temperature.
const KIND: f64 = 2.0;
const MAGNITUDE: f64 = 0.3;
/// Forward mode costs this for each hyperparameter and step.
const FORWARD: f64 = 3.0;
/// A loop has converged once the error of its start has fallen by this many powers of e.
const ARRIVED: f64 = 3.0;
/// More inner steps than this for one hypergradient are not advised.
const MOST_STEPS: f64 = 1000.0;

/// A method and its predicted error and cost.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Its name.
    pub method: String,
    /// Relative error of one hypergradient, bias and spread together.
    pub error: f64,
    /// Relative bias alone.
    pub bias: f64,
    /// Gradients for one hypergradient.
    pub price: f64,
    /// Its documentation claims that it is right on such a problem.
    pub claimed: bool,
    /// Problems of the suite that say so.
    pub from: usize,
    /// Settings and an inner loop that suit.
    pub recipe: Recipe,
}

/// Which methods to take.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The measured situation.
    pub situation: Situation,
    /// The best first.
    pub ranked: Vec<Candidate>,
    /// Methods that do not apply, and why.
    pub refused: Vec<(String, String)>,
}

fn same_question(a: Target, b: Target) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// How unlike a problem of the suite is.
fn distance(situation: &Situation, question: &Question, known: &Known) -> f64 {
    let facts = &known.facts;
    let kinds = [
        situation.curvature.is_negative() != facts.several_minima,
        situation.curvature.is_singular() != facts.singular,
        situation.is_noisy() != facts.minibatches,
    ];
    let magnitudes = |a: f64, b: f64| (a.max(1e-300) / b.max(1e-300)).log10().abs();
    // A training that arrives takes 30 steps per unit of condition.
    let condition = match (facts.target, situation.curvature.condition()) {
        (Target::Minimum | Target::Proximal { .. }, Some(here)) => magnitudes(here, facts.inner.steps as f64 / 30.0),
        _ => 0.0,
    };
    let heat = match (facts.target, question.target) {
        (Target::Gibbs { temperature: a }, Target::Gibbs { temperature: b })
        | (Target::Evidence { temperature: a }, Target::Evidence { temperature: b }) => magnitudes(a, b),
        _ => 0.0,
    };
    let sizes = magnitudes(situation.hyperparameters as f64, known.sizes.0 as f64)
        + magnitudes(situation.parameters as f64, known.sizes.1 as f64);
    kinds.into_iter().filter(|differ| *differ).count() as f64 * KIND + MAGNITUDE * (condition + heat + sizes)
}

/// A method with settings, and an inner loop, for this situation.
fn recipe(registry: &Registry, method: &str, situation: &Situation, question: &Question) -> Result<Recipe> {
    let temperature = match question.target {
        Target::Gibbs { temperature } | Target::Evidence { temperature } => temperature,
        _ => 0.0,
    };
    let largest = situation.curvature.largest.max(f64::MIN_POSITIVE);
    // Half of the stable step, and less with minibatches, whose curvatures differ.
    let safe = if situation.is_noisy() { 0.5 / largest } else { 1.0 / largest };
    let step = question.inner.step.min(safe);
    let arriving = situation
        .curvature
        .condition()
        .map_or(question.inner.steps as f64, |_| (ARRIVED / (step * situation.curvature.smallest)).ceil());
    let known = registry.known_method(method)?;
    let Recipe { method, .. } = known.tuned(InnerLoop::new(step, question.inner.steps), largest);
    let read = registry.read_method(&method)?;
    // Methods that follow training must converge in every hypergradient; the others keep θ warm and converge in the
    // course of a run.
    let claims = read.claims();
    let follows = claims.training && claims.only.is_none();
    let steps = match question.target {
        Target::Minimum | Target::Proximal { .. } if follows => {
            arriving.clamp(1.0, MOST_STEPS).max(question.inner.steps as f64) as usize
        }
        _ => question.inner.steps,
    };
    let temperature = if read.loop_use().noise == Noise::Never { 0.0 } else { temperature };
    Ok(Recipe { method, inner: InnerLoop::new(step, steps).at_temperature(temperature) })
}

/// A situation as claims are about it.
fn facts(situation: &Situation, question: &Question) -> Facts {
    Facts {
        target: question.target,
        several_minima: situation.curvature.is_negative(),
        singular: situation.curvature.is_singular(),
        minibatches: situation.is_noisy(),
        inner: question.inner,
        parameters: situation.parameters,
        smallest_curvature: situation.curvature.smallest,
        largest_curvature: situation.curvature.largest,
        straight: situation.curvature.largest == 0.0,
        // Equality of the losses cannot be detected from outside.
        same_losses: false,
    }
}

/// Weighted sums of logarithms over the results of a method.
#[derive(Default)]
struct Seen {
    weights: f64,
    error: f64,
    bias: f64,
    priced: f64,
    price: f64,
    from: usize,
}

impl Seen {
    fn add(&mut self, weight: f64, row: &Measured) {
        self.weights += weight;
        self.error += weight * row.error.log10();
        self.bias += weight * row.bias.clamp(1e-16, 10.0).log10();
        if let Some(price) = row.price {
            self.priced += weight;
            self.price += weight * (price / row.steps).log10();
        }
        self.from += 1;
    }

    /// Without results, the method's claims count.
    fn error(&self) -> f64 {
        if self.from == 0 { 1e-6 } else { 10f64.powf(self.error / self.weights) }
    }

    fn bias(&self) -> f64 {
        if self.from == 0 { 1e-16 } else { 10f64.powf(self.bias / self.weights) }
    }

    /// Per inner step; without results, a gradient of either loss and a product.
    fn price(&self) -> f64 {
        if self.priced == 0.0 { 4.0 } else { 10f64.powf(self.price / self.priced) }
    }
}

/// Ranks the methods that apply to a problem of this kind. A problem of the suite can be excluded by name, so that
/// advice can be validated on the suite itself.
pub fn advise(
    registry: &Registry,
    suite: &Suite,
    problem: &Problem,
    (situation, question): (Situation, &Question),
    leave_out: Option<&str>,
) -> Result<Advice> {
    let (mut ranked, mut refused) = (vec![], vec![]);
    for known in registry.methods() {
        let name = known.info.name;
        let recipe = recipe(registry, name, &situation, question)?;
        let method = registry.read_method(&recipe.method)?;
        match method.applies(problem) {
            Ok(()) => {}
            Err(Error::NotApplicable { reason, .. }) => {
                refused.push((name.to_string(), reason));
                continue;
            }
            Err(error) => return Err(error),
        }
        let mut seen = Seen::default();
        for row in suite.of(name) {
            let like = &suite.problems[row.problem];
            if Some(like.name.as_str()) != leave_out && same_question(like.facts.target, question.target) {
                seen.add((-distance(&situation, question, like)).exp(), row);
            }
        }
        let claims = method.claims();
        let claimed = claims.promise == Promise::Exact && claims.cover(&facts(&situation, question));
        if seen.from == 0 && !claimed {
            refused.push((name.to_string(), "the truth suite has nothing to say of it on such a question".into()));
            continue;
        }
        let per_step = if name == "fmd" { FORWARD * situation.hyperparameters as f64 } else { seen.price() };
        ranked.push(Candidate {
            method: name.to_string(),
            error: seen.error(),
            bias: seen.bias(),
            price: per_step * recipe.inner.steps as f64,
            claimed,
            from: seen.from,
            recipe,
        });
    }
    let score = |candidate: &Candidate| {
        let word = if candidate.claimed { PROMISE } else { 0.0 };
        candidate.error.max(SMALL).log10() + WORTH * candidate.price.log10() - word
    };
    ranked.sort_by(|a, b| score(a).total_cmp(&score(b)));
    Ok(Advice { situation, ranked, refused })
}
