//! Learning rates and weight decays of an MLP, one of each per layer, as hyperparameters of an inner Adam, by reverse mode through the
//! whole training.
//!
//! They are compared with the best of a grid with one rate and one decay for all layers, chosen by the same validation
//! loss. Training restarts in every outer iteration.

use bilevel::Result;
use bilevel::optimizers::Shape;
use bilevel_run::{Config, Findings, Finished, FinishedRun, Item, Plan, Row, Study, Verdict, figure};
use bilevel_tasks::LayerRates;

const NAME: &str = "layer-rates";
const LEARNED: &str = "learned";
const METRICS: [&str; 2] = ["test loss", "test accuracy"];

/// Logarithms of one rate for all layers, and of one decay.
fn grid(plan: &Plan) -> Vec<(f64, f64)> {
    let rates = plan.choose(&[-1.0, 0.0, 1.0][..], &[-2.0, -1.0, 0.0, 1.0, 2.0]);
    let decays = plan.choose(&[-9.0][..], &[-11.0, -9.0, -7.0, -5.0]);
    rates.iter().flat_map(|rate| decays.iter().map(move |decay| (*rate, *decay))).collect()
}

fn config(plan: &Plan, (rate, decay): (f64, f64), iterations: u32) -> Result<Config> {
    let task = LayerRates { hidden: plan.choose(16, 64), rate, decay, ..LayerRates::default() };
    let mut config = plan.run(&task)?;
    config.inner.steps = plan.choose(30, 100);
    (config.outer.iterations, config.metrics.every, config.metrics.diagnose) = (iterations, 1, 0);
    // Every training redraws its minibatches, so λ settles only if the rate falls.
    config.outer.schedule = Shape::Cosine { over: iterations, last: 0.0 }.into();
    Ok(config)
}

fn item(number: usize) -> String {
    format!("one-rate-{number}")
}

/// The measured iteration with the least outer loss, which is that of the training measured with it.
fn best(run: &FinishedRun) -> Option<usize> {
    let rows = run.history.rows.iter().enumerate();
    let losses = rows.filter_map(|(place, row)| Some((place, row.outer_loss.filter(|loss| loss.is_finite())?)));
    losses.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place)
}

/// The study.
pub(super) struct LayerRatesTable;

impl Study for LayerRatesTable {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: a learning rate and a weight decay for each layer, through a training by Adam"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let mut items = vec![Item::run(LEARNED, config(plan, (0.0, -9.0), plan.choose(20, 200))?)];
        for (number, point) in grid(plan).into_iter().enumerate() {
            let mut one = config(plan, point, 1)?;
            // One training, whose λ does not move.
            one.outer.rate = 1e-12;
            items.push(Item::run(item(number), one));
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let learned = done.run(LEARNED)?;
        let mut fixed: Option<((f64, f64), &FinishedRun)> = None;
        for (number, point) in grid(plan).into_iter().enumerate() {
            let run = done.run(&item(number))?;
            let loss = |run: &FinishedRun| run.result.outer_loss.unwrap_or(f64::INFINITY);
            if fixed.is_none_or(|(_, best)| loss(run) < loss(best)) {
                fixed = Some((point, run));
            }
        }
        let mut rows = vec![];
        let measured = |run: &FinishedRun, place: Option<usize>, name: &str| {
            place.and_then(|place| run.history.rows[place].measures.get(name)?.as_f64()).unwrap_or(f64::NAN)
        };
        let validation = |run: &FinishedRun, place: Option<usize>| {
            place.and_then(|place| run.history.rows[place].outer_loss).unwrap_or(f64::NAN)
        };
        let reference = fixed.map(|(_, run)| validation(run, best(run)));
        if let Some((point, run)) = fixed {
            let setting =
                format!("one rate e^{} and one decay e^{}, best of a grid of {}", point.0, point.1, grid(plan).len());
            let row = |metric: &str, ours: f64| Row::new(NAME, "adam", metric, ours).setting(&setting).cost(run.price);
            rows.push(row("validation loss", validation(run, best(run))));
            rows.extend(METRICS.map(|metric| row(metric, measured(run, best(run), metric))));
        }
        for (setting, place) in
            [("last iterate", learned.history.rows.len().checked_sub(1)), ("least validation loss", best(learned))]
        {
            let ours = validation(learned, place);
            let verdict = match reference.filter(|_| !plan.is_quick()) {
                Some(one) if ours < one => Verdict::Better,
                Some(_) => Verdict::NotReproduced("no better than one rate and one decay for all layers".into()),
                None => Verdict::NotClaimed,
            };
            let row = |metric: &str, ours: f64| {
                Row::new(NAME, "rmd", metric, ours).setting(setting).cost(learned.price).took(learned.seconds)
            };
            rows.push(row("validation loss", ours).reference(reference).verdict(verdict));
            rows.extend(METRICS.map(|metric| row(metric, measured(learned, place, metric))));
        }
        let points = learned.history.points(|row| row.outer_loss);
        let title = "Validation loss after a whole training, over outer iterations";
        let found = Findings::new(rows, [figure(title, "outer iteration", "loss", vec![("rmd".into(), points)])]);
        let values = |name: &str| {
            let leaf = learned.lambda.iter().find(|leaf| leaf.name == name);
            let shown = |value: &f64| bilevel_report::number(value.exp());
            leaf.map_or(String::new(), |leaf| leaf.values.iter().map(shown).collect::<Vec<_>>().join(", "))
        };
        let said = format!(
            "Learned rates, from the first layer to the last, in units of the inner step: {}; decays: {}.",
            values("log_rate"),
            values("log_decay")
        );
        Ok(Findings { said: vec![said], ..found })
    }
}
