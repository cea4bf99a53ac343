//! Many short runs of one configuration from several seeds, as one measurement: the method is prepared once for all of them,
//! and of each run only its end is kept.

use crate::prepared::Prepared;
use crate::price::price;
use crate::{Config, Item, Measure, Place};
use bilevel::{Oracles, Result, Session, StopReason, Tree};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// One configuration from several seeds. Nothing random of the task itself may depend on the seed: the problem is that of the
/// configuration's own.
#[derive(Clone, Debug, Serialize)]
pub struct SeedRuns {
    /// All but the seed.
    pub config: Config,
    /// The seeds.
    pub seeds: Range<u64>,
}

/// Where runs from several seeds ended; λ and θ are single numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ends {
    /// The last λ of each run that arrived.
    pub lambda: Vec<f64>,
    /// The θ from before the last update of λ.
    pub theta: Vec<f64>,
    /// Runs that were given up because something was no longer finite or grew beyond reason.
    pub diverged: u32,
    /// The cost of a run that converged, in gradients; nothing if none did.
    pub cost: Option<f64>,
}

/// Runs of a configuration from several seeds; a run that diverges is counted, any error is passed on.
///
/// ```
/// use bilevel_tasks::studies::synthetic;
/// use bilevel_tasks::{Done, Place, Plan, Registry, do_item, runs};
/// let registry = Registry::everything();
/// let config = synthetic::run(&Plan::new(&registry), 0.0)?.by(synthetic::cg(100));
/// let item = runs::over_seeds("ift-cg", config, 1..2);
/// let Done::Measured { value, .. } = do_item(&item, &Place::new(&registry, bilevel::Cpu::with_threads(1)))? else { panic!() };
/// assert!((value["lambda"][0].as_f64().unwrap() - 0.7488).abs() < 1e-4);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn over_seeds(label: impl Into<String>, config: Config, seeds: Range<u64>) -> Item {
    Item::measure(label, SeedRuns { config, seeds })
}

impl Measure for SeedRuns {
    type Found = Ends;

    fn take(&self, place: &Place) -> Result<Ends> {
        let SeedRuns { config, seeds } = self;
        let problem = config.problem(place.registry)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let prepared = Prepared::new(&*config.method(place.registry)?, &session)?;
        let passes = place.registry.known_method(config.method.name())?.passes;
        let (mut ends, mut all) = (Ends::default(), Oracles::default());
        for seed in seeds.clone() {
            let run = config.clone().seeded(seed);
            let driver = run.driver_by(prepared.clone(), place.registry, &problem, place.boxed_executor())?;
            let outcome = driver.stop_signal(place.signal.clone()).run()?;
            (place.progress)((seed + 1 - seeds.start) as f64 / (seeds.end - seeds.start) as f64);
            match outcome.reason {
                StopReason::Diverged(_) => ends.diverged += 1,
                StopReason::Signal => break,
                _ => {
                    ends.lambda.extend(outcome.lambda.leaves()[0].item());
                    ends.theta.extend(outcome.theta.leaves()[0].item());
                    all += outcome.oracles;
                }
            }
        }
        ends.cost = (!ends.lambda.is_empty()).then(|| price(all, passes) / ends.lambda.len() as f64);
        Ok(ends)
    }
}
