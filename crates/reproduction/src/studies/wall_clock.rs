//! Time of one outer iteration of the synthetic 1-D problem, in units of RMD in the same run.
//!
//! Methods take turns, so that other load on the machine affects all of them, and medians are compared. Only ratios are
//! reported.

use super::synthetic::{self, STEP};
use bilevel::{Key, Method, Result, Session};
use bilevel_run::statistics::{mean_sd, median};
use bilevel_run::{Config, Findings, Finished, Item, Measure, Place, Plan, Recipe, Row, Study, Verdict};
use serde::Serialize;
use std::time::Instant;

const NAME: &str = "wall-clock";
const ITEM: &str = "rounds";
/// The paper's milliseconds for RMD.
const PAPER_RMD: f64 = 52.0;
/// The first rounds warm up.
const WARM_UP: i32 = 20;

/// Methods with the paper's milliseconds.
fn methods() -> [(&'static str, Recipe, Option<f64>); 9] {
    [
        ("RMD", synthetic::rmd(100).into(), Some(PAPER_RMD)),
        ("HPO-SGLD", synthetic::hpo_sgld(100, STEP, 1e-6).into(), Some(179.8)),
        ("IFT-Neumann", synthetic::neumann(100, false).into(), Some(76.7)),
        ("IFT-CG", synthetic::cg(100).into(), Some(90.7)),
        ("FMD", synthetic::fmd(100).into(), Some(164.3)),
        ("RMD-FO", synthetic::rmd_fo(100).into(), None),
        ("AmIGO-SGD", synthetic::amigo_sgd().into(), None),
        ("AmIGO-CG", synthetic::amigo_cg().into(), None),
        ("Langevin adjoint", synthetic::adjoint(STEP, 1e-6).into(), None),
    ]
}

/// All methods in turn, this many times.
#[derive(Serialize)]
struct Rounds {
    config: Config,
    rounds: i32,
}

impl Measure for Rounds {
    /// The median time of each method, and the medians of five parts, which show its uncertainty, in seconds.
    type Found = Vec<(f64, Vec<f64>)>;

    fn take(&self, place: &Place) -> Result<Self::Found> {
        let problem = self.config.problem(place.registry)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let mut running = vec![];
        for (_, Recipe { method, inner }, _) in methods() {
            let method = place.registry.read_method(&method)?;
            running.push((method.prepare_in(&session, &inner)?, session.state(Key::from_seed(1))?, vec![]));
        }
        for round in 0..self.rounds + WARM_UP {
            for (estimator, state, times) in &mut running {
                let start = Instant::now();
                estimator.estimate(state, Key::from([round, 1]))?;
                if round >= WARM_UP {
                    times.push(start.elapsed().as_secs_f64());
                }
            }
            (place.progress)(f64::from(round) / f64::from(self.rounds + WARM_UP));
        }
        let parts = |times: &[f64]| times.chunks(times.len().div_ceil(5)).map(median).collect();
        Ok(running.iter().map(|(_, _, times)| (median(times), parts(times))).collect())
    }
}

/// The study.
pub(super) struct WallClock;

impl Study for WallClock {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Time of an outer iteration of synthetic 1-D"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let rounds = Rounds { config: synthetic::run(plan, 0.0)?, rounds: plan.choose(200, 2000) };
        Ok(vec![Item::measure(ITEM, rounds).alone()])
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let found: Vec<(f64, Vec<f64>)> = done.measured(ITEM)?;
        let unit = found.first().map_or(f64::NAN, |(unit, _)| *unit);
        let rows = methods().into_iter().zip(&found).map(|((name, _, paper), (time, parts))| {
            let parts: Vec<f64> = parts.iter().map(|part| part / unit).collect();
            let (ours, paper) = (time / unit, paper.map(|p| p / PAPER_RMD));
            let verdict = match paper {
                Some(paper) if ours < 0.8 * paper => Verdict::Better,
                Some(paper) => Verdict::when(ours < 1.25 * paper, "costs more relative to RMD than in the paper"),
                None => Verdict::NotClaimed,
            };
            let row = Row::new(NAME, name, "time ÷ RMD's", ours).paper(paper);
            row.over(mean_sd(&parts).1, parts.len() as u32).verdict(verdict)
        });
        Ok(Findings::new(rows.collect(), []))
    }
}
