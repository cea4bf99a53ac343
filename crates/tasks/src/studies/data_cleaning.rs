//! Data cleaning on MNIST (Dagréou et al., NeurIPS 2022): 20 000 training digits of which a share has labels drawn again, 5000 clean ones, a
//! linear classifier with a penalty of 0.2·‖θ‖², and minibatches of 64 in both losses.
//!
//! Published are curves of the test error and no numbers, so what a row is held against is a classifier that trusts every label
//! alike. Every method has the same budget in gradients of a minibatch. Embedded digits stand for MNIST in a quick run.

use crate::digits::DigitSource;
use crate::price::price;
use crate::tasks::HyperCleaning;
use crate::{Config, Findings, Finished, Item, Plan, Row, Series, Settings, Study, Verdict, figure, label};
use bilevel::{InnerOptimizer, Result};
use serde_json::json;

const NAME: &str = "data-cleaning";
const CORRUPTED: [f64; 3] = [0.5, 0.7, 0.9];
const FIELD: [&str; 7] = ["soba", "saba", "ma-soba", "stocbio", "amigo-sgd", "f2sa", "langevin-adjoint"];
const QUICK: [&str; 3] = ["soba", "f2sa", "langevin-adjoint"];
/// Trusts every label alike.
const NONE: &str = "no cleaning";

fn task(plan: &Plan, corrupted: f64) -> HyperCleaning {
    let full = HyperCleaning {
        source: DigitSource::Mnist,
        train: 20_000,
        clean: 5000,
        test: 10_000,
        corrupted,
        decay: 0.2,
        batch: 64,
        ..HyperCleaning::default()
    };
    plan.choose(HyperCleaning { source: DigitSource::Digits, train: 599, clean: 599, test: 599, ..full.clone() }, full)
}

fn methods(plan: &Plan) -> &'static [&'static str] {
    if plan.quick { &QUICK } else { &FIELD }
}

fn item(method: &str, corrupted: f64) -> String {
    label(&format!("{method} {corrupted}"))
}

/// A run with this budget.
fn run(plan: &Plan, method: &str, corrupted: f64) -> Result<Config> {
    let task = task(plan, corrupted);
    let mut config = plan.run(&task)?;
    let (plain, steps) = (method == NONE, 10);
    config.method = plan.registry.suited(&task, if plain { "soba" } else { method })?;
    let wanted = [("step", json!(0.1)), ("steps", json!(steps)), ("samples", json!(steps)), ("burn_in", json!(0))];
    let solves = [("terms", json!(steps)), ("iterations", json!(steps)), ("alpha", json!(0.1)), ("beta", json!(0.1))];
    for (key, value) in wanted.into_iter().chain(solves) {
        if config.method.get(key).is_some() {
            config.method.set(key, value);
        }
    }
    // Ten steps of θ and of the adjoint, with a gradient of either loss and a product each, cost about 40.
    config.outer.iterations = plan.choose(40, 1500);
    // The tables of saba are large.
    config.checkpoint.every = config.outer.iterations / 10;
    config.outer.optimizer = Settings::new("sgd", &InnerOptimizer::Sgd);
    // The mean over all digits leaves each of them little, so λ moves at a rate in proportion to their number.
    config.outer.rate = if plain { 1e-12 } else { task.train as f64 };
    (config.metrics.every, config.metrics.diagnose) = (plan.choose(10, 50), 0);
    Ok(config)
}

/// The study.
pub(super) struct DataCleaning;

impl Study for DataCleaning {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: digits with 50, 70 and 90 % of their labels drawn again, in minibatches"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let mut items = vec![];
        for corrupted in CORRUPTED {
            for method in methods(plan).iter().chain([&NONE]) {
                items.push(Item::run(item(method, corrupted), run(plan, method, corrupted)?));
            }
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let (mut rows, mut plots) = (vec![], vec![]);
        for corrupted in CORRUPTED {
            let mut series: Vec<Series> = vec![];
            let plain = done.run(&item(NONE, corrupted))?.measure("test accuracy").map(|accuracy| 1.0 - accuracy);
            for method in methods(plan).iter().chain([&NONE]) {
                let Ok(run) = done.run(&item(method, corrupted)) else { continue };
                let passes = plan.registry.known_method(run.config.method.name())?.passes;
                let curve: Vec<(f64, f64)> = run
                    .history
                    .rows
                    .iter()
                    .filter_map(|row| {
                        let accuracy = row.measures.get("test accuracy")?.as_f64()?;
                        Some((price(row.oracles, passes), 1.0 - accuracy))
                    })
                    .collect();
                let setting = format!("{} % redrawn", corrupted * 100.0);
                let last = curve.last().map_or(f64::NAN, |(_, error)| *error);
                let best = curve.iter().map(|(_, error)| *error).fold(f64::INFINITY, f64::min);
                for (metric, ours) in [("test error, last iterate", last), ("test error, least", best)] {
                    let row = Row::new(NAME, *method, metric, ours).setting(&setting).cost(run.price).took(run.seconds);
                    let verdict = match plain.filter(|_| *method != NONE && !plan.quick) {
                        Some(plain) if ours < plain => Verdict::Better,
                        Some(_) => Verdict::NotReproduced("no better than trusting every label alike".into()),
                        None => Verdict::NotClaimed,
                    };
                    rows.push(row.reference(plain.filter(|_| *method != NONE)).verdict(verdict));
                }
                series.push((method.to_string(), curve));
            }
            let title = format!("Test error, {} % of labels redrawn", corrupted * 100.0);
            plots.push(figure(title, "gradients of a minibatch", "test error", series));
        }
        Ok(Findings::new(rows, plots))
    }
}
