//! Evolutionary search on the synthetic and the noisy synthetic 1-D problem: errors of λ and θ.

use super::amigo::error_rows;
use super::synthetic::{self, NOISE};
use crate::runs::over_seeds;
use crate::tasks::Synth1d;
use crate::{Findings, Finished, Item, Plan, Study, label};
use bilevel::Result;

const NAME: &str = "evolutionary-search";

type Pair = (Option<f64>, Option<f64>);

struct Case {
    setting: &'static str,
    task: Synth1d,
    antithetic: bool,
    /// A run from each of this many seeds.
    seeds: u64,
    first: u64,
    paper: Pair,
    reference: Pair,
}

fn cases(plan: &Plan) -> [Case; 4] {
    let seeds: u64 = plan.choose(8, 100);
    let printed = (Some(0.0275), Some(0.0169));
    let case = |setting, paper, reference| Case {
        setting,
        task: Synth1d::default(),
        antithetic: false,
        seeds,
        first: plan.seed + 1,
        paper,
        reference,
    };
    [
        case("as printed", printed, (None, None)),
        // λ of the paper's problem lies in \[0, 1\]; the plain form is so noisy that it leaves it.
        Case {
            task: Synth1d { bounded: true, ..Synth1d::default() },
            ..case("as printed, λ kept in [0, 1]", printed, (Some(0.050), Some(0.051)))
        },
        Case {
            antithetic: true,
            seeds: seeds / 4,
            ..case("antithetic pairs", (None, None), (Some(0.0127), Some(0.0141)))
        },
        Case {
            task: Synth1d { noise: NOISE, ..Synth1d::default() },
            seeds: seeds / 2,
            first: plan.seed,
            ..case("noisy", (Some(0.0041), Some(0.0173)), (None, None))
        },
    ]
}

/// The study.
pub(super) struct EvolutionarySearch;

impl Study for EvolutionarySearch {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Evolutionary search on synthetic 1-D"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let item = |case: Case| {
            let run = synthetic::run_of(plan, &case.task)?.by(synthetic::es(case.antithetic));
            Ok(over_seeds(label(case.setting), run, case.first..case.first + case.seeds))
        };
        cases(plan).into_iter().map(item).collect()
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let mut rows = vec![];
        for case in cases(plan) {
            let name = ("Evolutionary search", case.setting);
            rows.extend(error_rows(NAME, name, &done.measured(&label(case.setting))?, case.paper, case.reference));
        }
        Ok(Findings::new(rows, []))
    }
}
