//! The Langevin adjoint on deep networks at default settings for 2000 outer iterations, compared with HPO-SGLD at the
//! same price. It learns a penalty for each of a million weights, one for each weight of a pretrained network, and the
//! coefficients of a loss.
//!
//! On a deep network an adjoint could grow without bound: products of (I − γH) along a training need not contract. The
//! study shows that the trust region keeps the run going to its end, and its results. The networks of quick runs are
//! small.

use super::deep::precision_on;
use bilevel::optimizers::Shape;
use bilevel::{Error, Result};
use bilevel_run::{AnyTask, Config, Findings, Finished, FinishedRun, Item, Plan, Row, Study, Verdict, figure};
use bilevel_tasks::PictureSet;
use bilevel_tasks::{L1Regularisation, LearnedLoss, MlpL2};

const OURS: &str = "langevin-adjoint";
const THEIRS: &str = "hpo-sgld";
/// One iteration of each, to measure its cost.
const ONE_OF_OURS: &str = "langevin-adjoint-once";
const ONE_OF_THEIRS: &str = "hpo-sgld-once";
/// The outer rate of HPO-SGLD with a penalty for each weight.
const PAPERS_RATE: f64 = 0.01;
/// So many iterations are averaged.
const LAST: usize = 20;

/// The hyperparameters of a long run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LongRun {
    /// A penalty for each of a million weights of a perceptron.
    MillionWeights,
    /// A penalty for each weight of EfficientNet-Lite0.
    Penalties,
    /// The coefficients of the loss of AlexNet.
    Loss,
}

impl LongRun {
    fn task(self, plan: &Plan) -> Box<dyn AnyTask> {
        match self {
            LongRun::MillionWeights => Box::new(MlpL2 { hidden: plan.choose(24, 970), ..MlpL2::default() }),
            LongRun::Penalties => {
                let pets = L1Regularisation { side: 128, ..L1Regularisation::photographs(PictureSet::Pets) };
                Box::new(plan.choose(L1Regularisation::default(), pets))
            }
            LongRun::Loss => Box::new(plan.choose(LearnedLoss::default(), LearnedLoss::cifar10())),
        }
    }

    /// The error for missing pictures, which explains how to get them.
    fn missing(self, plan: &Plan) -> Option<Error> {
        let (data, pets, small) = (plan.data.as_deref(), PictureSet::Pets, LearnedLoss::cifar10().pictures);
        match self {
            _ if plan.is_quick() => None,
            LongRun::Penalties => (!pets.is_there(data)).then(|| pets.missing(data)),
            LongRun::Loss => (!small.are_there(data)).then(|| small.missing(data)),
            LongRun::MillionWeights => None,
        }
    }

    fn config(self, plan: &Plan, method: &str, iterations: u32) -> Result<Config> {
        let task = self.task(plan);
        let mut config = plan.run(&*task)?;
        config = config.by(plan.registry.suited(&*task, method)?);
        // HPO-SGLD has the rate of its paper, from the start.
        if self == LongRun::Penalties && method == THEIRS {
            (config.outer.rate, config.outer.schedule.warm_up) = (PAPERS_RATE, 0);
        }
        // The products of pictures are rounded as in the studies of these tasks.
        if self != LongRun::MillionWeights {
            config.precision = precision_on(plan.device);
        }
        config.outer.iterations = iterations;
        let over = iterations.saturating_sub(config.outer.schedule.warm_up).max(1);
        config.outer.schedule.shape = Shape::Cosine { over, last: 0.0 };
        (config.metrics.every, config.metrics.diagnose) = ((iterations / 20).max(1), 0);
        config.checkpoint.every = (iterations / 4).max(1);
        Ok(config)
    }

    /// One iteration, for its price: the network need not be trained before.
    fn once(self, plan: &Plan, method: &str) -> Result<Config> {
        let mut config = self.config(plan, method, 1)?;
        if config.task.get("warm_up").is_some() {
            config.task.set("warm_up", 0);
        }
        Ok(config)
    }
}

fn iterations(plan: &Plan) -> u32 {
    plan.choose(60, 2000)
}

/// Means of the outer loss over this many iterations, one window after the other.
fn windows(run: &FinishedRun) -> Vec<f64> {
    let losses: Vec<f64> = run.history.rows.iter().filter_map(|row| row.outer_loss).collect();
    losses.chunks(LAST).map(|window| window.iter().sum::<f64>() / window.len() as f64).collect()
}

/// The mean of the last iterations, and the least mean.
fn ends(run: &FinishedRun) -> [(&'static str, f64); 2] {
    let means = windows(run);
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let last = means.last().copied().unwrap_or(f64::NAN);
    [("outer loss, mean of the last 20 iterations", last), ("outer loss, least mean of 20 iterations", least)]
}

impl Study for LongRun {
    fn name(&self) -> &str {
        match self {
            LongRun::MillionWeights => "million-weights",
            LongRun::Penalties => "l1-regularisation-long",
            LongRun::Loss => "learned-loss-long",
        }
    }

    fn title(&self) -> &str {
        match self {
            LongRun::MillionWeights => {
                "Beyond the paper: a million weights with a penalty each, 2000 iterations of the adjoint"
            }
            LongRun::Penalties => {
                "Beyond the paper: a penalty for every weight of a pretrained network, 2000 iterations of the adjoint"
            }
            LongRun::Loss => "Beyond the paper: a loss that is learned, 2000 iterations of the adjoint",
        }
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        if self.missing(plan).is_some() {
            return Ok(vec![]);
        }
        let once = [(ONE_OF_OURS, OURS), (ONE_OF_THEIRS, THEIRS)].into_iter();
        once.map(|(label, method)| Ok(Item::run(label, self.once(plan, method)?))).collect()
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        if self.missing(plan).is_some() {
            return Ok(vec![]);
        }
        let ours = iterations(plan);
        let cost = done.run(ONE_OF_OURS)?.price / done.run(ONE_OF_THEIRS)?.price;
        let equal = (f64::from(ours) * cost).max(1.0) as u32;
        let runs = [(OURS, ours), (THEIRS, equal)].into_iter().filter(|(method, _)| done.get(method).is_none());
        runs.map(|(method, iterations)| Ok(Item::run(method, self.config(plan, method, iterations)?))).collect()
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        if let Some(why) = self.missing(plan) {
            let row = Row::new(self.name(), OURS, "outer iterations without divergence", f64::NAN);
            let row = row.without_runs(Verdict::NotRun(why.to_string()));
            return Ok(Findings { rows: vec![row], ..Findings::default() });
        }
        let (ours, theirs) = (done.run(OURS)?, done.run(THEIRS)?);
        let parameters: usize = ours.lambda.iter().map(|leaf| leaf.values.len()).sum();
        let setting = format!("{parameters} hyperparameters");
        let row = |method: &str, run: &FinishedRun, metric: &str, number: f64| {
            Row::new(self.name(), method, metric, number).setting(&setting).cost(run.price).took(run.seconds)
        };
        let mut rows = vec![];
        let wanted = f64::from(iterations(plan));
        let arrived = ours.arrived() && f64::from(ours.result.iterations) == wanted;
        rows.push(
            row(OURS, ours, "outer iterations without divergence", f64::from(ours.result.iterations))
                .reference(wanted)
                .verdict(Verdict::when(arrived, ours.result.because.clone())),
        );
        for ((metric, mine), (_, other)) in ends(ours).into_iter().zip(ends(theirs)) {
            let below = if mine < other {
                Verdict::Better
            } else {
                Verdict::NotReproduced("HPO-SGLD is lower at the same price".into())
            };
            rows.push(row(OURS, ours, metric, mine).reference(other).verdict(below));
            rows.push(row(THEIRS, theirs, metric, other));
        }
        for (method, run) in [(OURS, ours), (THEIRS, theirs)] {
            for name in run.result.measures.keys() {
                rows.push(row(method, run, name, run.measure(name).unwrap_or(f64::NAN)));
            }
        }
        let exits: f64 = ours.history.rows.iter().filter_map(|row| row.diagnostics.trust_exits).sum();
        let said = format!("The adjoint left its trust region {exits} times in {} iterations.", ours.result.iterations);
        let curve = |run: &FinishedRun| {
            let each = run.price / f64::from(run.result.iterations.max(1));
            run.history.points(|row| row.outer_loss).into_iter().map(|(n, loss)| (n * each, loss)).collect()
        };
        let series = vec![(OURS.to_string(), curve(ours)), (THEIRS.to_string(), curve(theirs))];
        let found = Findings::new(rows, [figure("Outer loss over cost", "gradients", "outer loss", series)]);
        Ok(Findings { said: vec![said], ..found })
    }
}
