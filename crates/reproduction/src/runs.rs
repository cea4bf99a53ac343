//! Many short runs of one configuration from several seeds, as one measurement: the method is prepared once for all of them,
//! and of each run only its end is kept.

use crate::prepared::Prepared;
use bilevel::methods::Oracles;
use bilevel::{Result, Session, StopReason, Tree};
use bilevel_run::manifest::Taken;
use bilevel_run::price::price;
use bilevel_run::{Config, Measure, Place};
use serde::Serialize;
use serde_json::{Map, Value};
use std::ops::Range;

/// One configuration from several seeds. Nothing random of the task itself may depend on the seed: the problem is that of the
/// configuration's own. A run that diverges is counted, any other error is passed on.
///
/// ```
/// use bilevel_reproduction::{runs::SeedRuns, studies::synthetic};
/// use bilevel_run::{Done, Item, Place, Plan, Registry, do_item};
/// let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
/// let config = synthetic::run(&Plan::new(&registry), 0.0)?.by(synthetic::cg(100));
/// let item = Item::measure("ift-cg", SeedRuns { config, seeds: 1..2 });
/// let Done::Measured { value, .. } = do_item(&item, &Place::new(&registry, bilevel::Cpu::with_threads(1)))? else { panic!() };
/// assert!((value["numbers"]["λ"][0].as_f64().unwrap() - 0.7488).abs() < 1e-4);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct SeedRuns {
    /// All but the seed.
    pub config: Config,
    /// The seeds.
    pub seeds: Range<u64>,
}

impl SeedRuns {
    /// Runs of this configuration, from its own seed or the `first` after it, with this many `seeds`.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let whole = |name: &str, usual: u64| with.get(name).and_then(Value::as_u64).unwrap_or(usual);
        let first = config.seed + whole("first", 0);
        Ok(SeedRuns { config: config.clone(), seeds: first..first + whole("seeds", 1).max(1) })
    }
}

impl Measure for SeedRuns {
    type Found = Taken;

    /// The last λ of each run that arrived, the θ from before the last update of λ, and the cost of a run that arrived.
    fn take(&self, place: &Place) -> Result<Taken> {
        let SeedRuns { config, seeds } = self;
        let problem = config.problem(place.registry)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let prepared = Prepared::new(&*config.method(place.registry)?, &config.inner, &session)?;
        let passes = place.registry.known_method(config.method.name())?.passes;
        let (mut lambda, mut theta, mut all, mut diverged) = (vec![], vec![], Oracles::default(), 0);
        for seed in seeds.clone() {
            let run = config.clone().seeded(seed);
            let driver = run.driver_by(prepared.clone(), place.registry, &problem, place.boxed_executor())?;
            let outcome = driver.stop_signal(place.signal.clone()).run()?;
            (place.progress)((seed + 1 - seeds.start) as f64 / (seeds.end - seeds.start) as f64);
            match outcome.reason {
                StopReason::Diverged(_) => diverged += 1,
                StopReason::Signal => break,
                _ => {
                    lambda.extend(outcome.lambda.leaves()[0].item());
                    theta.extend(outcome.theta.leaves()[0].item());
                    all += outcome.oracles;
                }
            }
        }
        let cost = (!lambda.is_empty()).then(|| price(all, passes) / lambda.len() as f64);
        let numbers = [("λ".into(), lambda), ("θ".into(), theta)].into();
        Ok(Taken { numbers, cost, diverged, ..Taken::default() })
    }
}
