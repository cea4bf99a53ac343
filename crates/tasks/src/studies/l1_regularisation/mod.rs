//! An L1 penalty for every weight of a pretrained network, after a warm-up without any: the paper's tables of L1-regularisation, of
//! the ablation over M and of wall-clock times, with the baselines nobody should skip.
//!
//! A million penalties chosen by a hundred pictures can fit these pictures. So every row has its error on the validation pictures, by
//! which λ was chosen, beside that on the test pictures, which nobody has seen, and there are rows with no penalty, with one that
//! all weights share, with the validation pictures used for training instead, with λ found and the network trained afresh from the
//! warm-up, with fewer penalties, and with more validation pictures.
//!
//! The budget of the full study, on one GPU with EfficientNet-Lite0 at 224 × 224: the rows that carry the argument (plain trainings,
//! HPO-SGLD, IFT-CG and the Langevin adjoint) are taken over three seeds with [`Scale::long`] outer iterations, all others over one
//! seed with [`Scale::short`].

mod entries;
mod rows;
mod show;
mod work;

use crate::photographs::PictureSet;
use crate::tasks::L1Regularisation;
use crate::tasks::l1_regularisation::Network;
use crate::{Findings, Finished, Item, Plan, Study, label};
use bilevel::Result;
use entries::{Entry, entries};
use work::{Clock, Learning, Plain, STEPS, Setup};

/// Its name.
const NAME: &str = "l1-regularisation";
/// The item that takes the times of a large network.
const CLOCK: &str = "clock";

/// How much is done.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// The pictures, those of the long table first.
    sets: Vec<PictureSet>,
    /// Seeds of the rows that carry the argument.
    seeds: u64,
    /// Outer iterations of these rows.
    long: u32,
    /// Outer iterations of all others.
    short: u32,
    /// Looks at the errors on the way of a long run.
    looks: u32,
    /// Penalties that all weights share; the first is none.
    grid: Vec<f64>,
    /// Iterations of the large network that are timed; 0 for none.
    rounds: u32,
}

impl Scale {
    fn quick() -> Self {
        Scale {
            sets: vec![PictureSet::Digits],
            seeds: 2,
            long: 60,
            short: 60,
            looks: 6,
            grid: vec![0.0, 1e-4, 1e-3, 1e-2],
            rounds: 0,
        }
    }

    fn full() -> Self {
        Scale {
            sets: vec![PictureSet::Pets, PictureSet::Dtd10, PictureSet::Flowers102],
            seeds: 3,
            long: 100,
            short: 40,
            looks: 5,
            grid: vec![0.0, 1e-5, 1e-4, 1e-3],
            rounds: 5,
        }
    }

    fn of(plan: &Plan) -> Self {
        plan.choose(Self::quick(), Self::full())
    }

    /// The sets whose pictures are there.
    fn present<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = PictureSet> + 'a {
        self.sets.iter().copied().filter(|set| set.is_there(plan.data.as_deref()))
    }

    /// The task on these pictures.
    fn task(&self, set: PictureSet) -> L1Regularisation {
        match set {
            PictureSet::Digits => L1Regularisation::default(),
            PictureSet::Dtd10 => {
                // 40 % of each class to train on, as in the paper, would leave a fifth to test on.
                let task = L1Regularisation::photographs(set);
                L1Regularisation { train: 10, validation: 10, second: 10, ..task }
            }
            _ => L1Regularisation::photographs(set),
        }
    }

    fn seeds(&self, plan: &Plan, of: Seeds) -> std::ops::Range<u64> {
        plan.seed..plan.seed + if of == Seeds::All { self.seeds } else { 1 }
    }
}

/// How many seeds a row is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seeds {
    /// All.
    All,
    /// The first.
    One,
}

fn setup(plan: &Plan, task: L1Regularisation, seed: u64) -> Setup {
    Setup { task, seed, device: plan.device }
}

fn plain_label(set: PictureSet, both: bool, seed: u64) -> String {
    label(&format!("{set:?} plain{} seed {seed}", if both { " on both" } else { "" }))
}

fn entry_label(set: PictureSet, entry: &Entry, seed: u64) -> String {
    label(&format!("{set:?} {} {} seed {seed}", entry.method, entry.setting))
}

/// The study.
pub(super) struct L1RegularisationStudy;

impl Study for L1RegularisationStudy {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "An L1 penalty for every weight of a pretrained network"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let scale = Scale::of(plan);
        let mut items = vec![];
        for set in scale.present(plan) {
            let task = scale.task(set);
            let main = set == scale.sets[0];
            // By seed, so that what a seed needs is prepared once.
            for seed in scale.seeds(plan, if main { Seeds::All } else { Seeds::One }) {
                for both in [false, true] {
                    let task = L1Regularisation { train_on_validation: both, ..task.clone() };
                    let shared = if both { vec![0.0] } else { scale.grid.clone() };
                    let steps = STEPS * scale.long as usize;
                    let plain = Plain { setup: setup(plan, task, seed), shared, steps };
                    items.push(Item::measure(plain_label(set, both, seed), plain));
                }
                let entries = entries(&scale, set, &task);
                for entry in entries.iter().filter(|entry| scale.seeds(plan, entry.seeds).contains(&seed)) {
                    let long = entry.seeds == Seeds::All;
                    let learning = Learning {
                        setup: setup(plan, entry.task.clone(), seed),
                        method: entry.by.clone(),
                        rate: entry.rate,
                        iterations: if long { scale.long } else { scale.short },
                        looks: if long { scale.looks } else { 1 },
                        retrain: entry.retrain,
                    };
                    items.push(Item::measure(entry_label(set, entry, seed), learning));
                }
            }
        }
        if scale.rounds > 0 && scale.present(plan).any(|set| set == scale.sets[0]) {
            let task = L1Regularisation { network: Network::VitB16, warm_up: 0, test: 1, ..scale.task(scale.sets[0]) };
            let methods = entries::timed(task.step);
            let clock = Clock { setup: setup(plan, task, plan.seed), methods, rounds: scale.rounds };
            items.push(Item::measure(CLOCK, clock).alone());
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let scale = Scale::of(plan);
        let mut findings = Findings::default();
        for set in &scale.sets {
            if !set.is_there(plan.data.as_deref()) {
                findings.rows.push(rows::not_run(*set, plan));
                continue;
            }
            let found = rows::read(&scale, plan, *set, done)?;
            findings.rows.extend(rows::rows(&scale, plan, &found));
            if *set == scale.sets[0] {
                findings.said.extend(show::sentences(&found));
            }
            findings.warnings.extend(show::warnings(&found));
            findings.sections.extend(show::sections(&scale, &found));
        }
        if done.get(CLOCK).is_some() {
            let found: Vec<(String, f64)> = done.measured(CLOCK)?;
            findings.sections.extend(show::clock(&scale, plan, &found));
        }
        Ok(findings)
    }
}
