//! One L2 penalty per feature of a logistic regression on ijcnn1, in minibatches of 64 (Dagréou et al., NeurIPS 2022, and Dagréou et
//! al., AISTATS 2024): the squared norm of the exact hypergradient over the cost spent.
//!
//! The training file is inside, the test file outside. With 22 numbers in θ, ∇h(λ) = −e^λ·θ·H⁻¹∇f at the minimum is
//! known to rounding at every λ, by Newton's method and Cholesky's factors. Every method has the same budget in
//! gradients of a minibatch, plain descent outside, and its best inner step and outer rate of one grid. A quick run
//! uses embedded digits, even against odd ones, in place of ijcnn1.

use bilevel::optimizers::InnerOptimizer;
use bilevel::{Key, Result, Session};
use bilevel_run::price::price;
use bilevel_run::{
    Config, Findings, Finished, Item, Measure, Place, Plan, Row, Series, Settings, Study, Verdict, figure, label,
};
use bilevel_tasks::{FeatureL2, TwoClasses};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};

const NAME: &str = "ijcnn1";
const METRIC: &str = "‖∇h‖²";
/// Points of a curve.
const POINTS: usize = 40;
/// The last points, of which the mean is the end of a curve.
const LAST: usize = 5;

/// The methods, and their place in the published order; ours and those that are not in it have none.
const FIELD: [(&str, Option<u32>); 8] = [
    ("srba", Some(1)),
    ("saba", Some(1)),
    ("soba", Some(2)),
    ("amigo-sgd", Some(2)),
    ("stocbio", Some(3)),
    ("ma-soba", None),
    ("f2sa", None),
    ("langevin-adjoint", None),
];

/// A method on the task, with the best of a grid of inner steps and outer rates.
#[derive(Serialize)]
struct Descent {
    config: Config,
    task: FeatureL2,
    steps: Vec<f64>,
    rates: Vec<f64>,
    budget: f64,
}

/// The best run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    step: f64,
    rate: f64,
    /// Price paid and ‖∇h‖².
    curve: Vec<(f64, f64)>,
}

impl Found {
    fn end(&self) -> f64 {
        let last = &self.curve[self.curve.len().saturating_sub(LAST)..];
        last.iter().map(|(_, square)| square).sum::<f64>() / last.len() as f64
    }
}

/// λ, each with the price paid for it.
type Path = Vec<(f64, Vec<f64>)>;

impl Descent {
    /// λ at times of the run with this step and rate; `None` if it diverged.
    fn path(&self, place: &Place, step: f64, rate: f64) -> Result<Option<Path>> {
        let mut config = self.config.clone();
        config.inner.step = step;
        for key in ["alpha", "beta"] {
            if config.method.get(key).is_some() {
                config.method.set(key, json!(step));
            }
        }
        config.outer.rate = rate;
        let problem = config.problem(place.registry)?;
        let passes = place.registry.known_method(config.method.name())?.passes;
        // The mean cost of the first few hypergradients; the first includes a pass over all rows.
        let mut estimator =
            config.method(place.registry)?.compile(&Session::new(&problem, &place.executor)?, &config.inner)?;
        let mut state = Session::new(&problem, &place.executor)?.state(Key::from_seed(0))?;
        let mut once = 0.0;
        for call in 0..3 {
            once = price(estimator.estimate(&mut state, Key::from_seed(call), step)?.oracles, passes);
        }
        config.outer.iterations = (self.budget / once).max(1.0) as u32;
        let every = (config.outer.iterations / POINTS as u32).max(1);
        let budget = self.budget;
        let path = Arc::new(Mutex::new(vec![]));
        let kept = path.clone();
        let driver = config.driver(place.registry, &problem, place.boxed_executor())?;
        let outcome = driver
            .stop_signal(place.signal.clone())
            .on_iteration(move |iteration, state| {
                let paid = price(iteration.oracles, passes);
                if iteration.number % every == 0 || paid >= budget {
                    let lambda = state.lambda.numbers().unwrap_or_default();
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push((paid, lambda));
                }
                match paid < budget {
                    true => std::ops::ControlFlow::Continue(()),
                    false => std::ops::ControlFlow::Break("the budget is spent"),
                }
            })
            .run()?;
        let path = std::mem::take(&mut *path.lock().unwrap_or_else(PoisonError::into_inner));
        let fine = !outcome.reason.is_failure() && !path.is_empty();
        Ok(fine.then_some(path))
    }
}

impl Measure for Descent {
    type Found = Option<Found>;

    fn take(&self, place: &Place) -> Result<Option<Found>> {
        let mut best: Option<Found> = None;
        let all = self.steps.len() * self.rates.len();
        let mut exact = self.task.exact(&self.config.context())?;
        let mut square = |lambda: &[f64]| exact.gradient(lambda).map(|g| g.iter().map(|g| g * g).sum::<f64>());
        let grid = self.steps.iter().flat_map(|step| self.rates.iter().map(move |rate| (*step, *rate)));
        for (number, (step, rate)) in grid.enumerate() {
            if place.signal.is_set() {
                break;
            }
            (place.progress)(number as f64 / all as f64);
            let Some(path) = self.path(place, step, rate)? else { continue };
            let squares = |points: &[(f64, Vec<f64>)], square: &mut dyn FnMut(&[f64]) -> Result<f64>| {
                points.iter().map(|(paid, lambda)| Ok((*paid, square(lambda)?))).collect::<Result<Vec<_>>>()
            };
            // The end decides; the whole curve is wanted of the best alone.
            let end = Found { step, rate, curve: squares(&path[path.len().saturating_sub(LAST)..], &mut square)? };
            if best.as_ref().is_none_or(|best| end.end() < best.end()) {
                best = Some(Found { curve: squares(&path, &mut square)?, ..end });
            }
        }
        Ok(best.filter(|found| found.end().is_finite()))
    }
}

/// The study.
pub(super) struct Ijcnn1;

impl Study for Ijcnn1 {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: a penalty per feature on ijcnn1, in minibatches"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let task = FeatureL2 { source: plan.choose(TwoClasses::Digits, TwoClasses::Ijcnn1), ..FeatureL2::default() };
        let mut items = vec![];
        for (name, _) in FIELD {
            let mut config = plan.run(&task)?;
            config = config.by(plan.registry.suited(&task, name)?);
            // As published: the single-loop methods take one step for each of λ, the others ten.
            let single = ["soba", "saba", "srba", "ma-soba"].contains(&name);
            (config.inner.steps, config.inner.burn_in) = (if single { 1 } else { 10 }, 0);
            for key in ["terms", "iterations"] {
                if config.method.get(key).is_some() {
                    config.method.set(key, json!(10));
                }
            }
            config.outer.optimizer = Settings::new("sgd", &InnerOptimizer::Sgd);
            (config.metrics.diagnose, config.metrics.every) = (0, u32::MAX);
            let steps = plan.choose(vec![0.1], vec![0.03, 0.1, 0.3]);
            let rates = plan.choose(vec![0.3, 3.0], vec![0.1, 0.3, 1.0, 3.0]);
            let budget = plan.choose(4000.0, 100_000.0);
            items.push(Item::measure(label(name), Descent { config, task: task.clone(), steps, rates, budget }));
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let mut found = vec![];
        for (name, place) in FIELD {
            if let Some(best) = done.measured::<Option<Found>>(&label(name))? {
                found.push((name, place, best));
            }
        }
        let mut series: Vec<Series> = vec![];
        let mut rows = vec![];
        for (name, place, best) in &found {
            let beyond: Vec<&str> = found
                .iter()
                .filter(|(_, theirs, other)| {
                    place.zip(*theirs).is_some_and(|(ours, theirs)| ours < theirs && best.end() > other.end())
                })
                .map(|(other, _, _)| *other)
                .collect();
            let verdict = match place {
                None => Verdict::NotClaimed,
                Some(_) if plan.is_quick() => Verdict::NotClaimed,
                Some(_) => Verdict::when(
                    beyond.is_empty(),
                    format!(
                        "another order: ends above {} within this budget, in which the descent of λ is the limit and not the \
                         variance that it would remove",
                        beyond.join(", ")
                    ),
                ),
            };
            let setting = format!("γ = {}, rate {}", best.step, best.rate);
            let cost = best.curve.last().map(|(paid, _)| *paid);
            let row = Row::new(NAME, *name, METRIC, best.end()).setting(setting).cost(cost);
            rows.push(row.took(done.seconds(&label(name))).verdict(verdict));
            series.push((name.to_string(), best.curve.clone()));
        }
        let title = "‖∇h‖² over oracle calls";
        Ok(Findings::new(rows, [figure(title, "gradients of a minibatch", METRIC, series)]))
    }
}
