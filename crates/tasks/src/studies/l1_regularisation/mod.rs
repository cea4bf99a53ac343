//! An L1 penalty for every weight of a pretrained network, after a warm-up without any: the paper's tables of L1-regularisation, of
//! the ablation over M and of wall-clock times, with the baselines nobody should skip.
//!
//! A million penalties chosen by a hundred pictures can fit these pictures. So every row has its error on the validation pictures, by
//! which λ was chosen, beside that on the test pictures, which nobody has seen, and there are rows with no penalty, with one that
//! all weights share, with the validation pictures used for training instead, with λ found and the network retrained from the
//! warm-up, with fewer penalties, and with more validation pictures.
//!
//! The budget of the full study is about five minutes on one GPU. So the long table is of EfficientNet-Lite0 at 128 × 128 pixels, the
//! size the photographs have; the rows that carry the argument (plain trainings, HPO-SGLD, IFT-CG and the Langevin adjoint) are taken
//! over three seeds with [`Scale::long`] outer iterations, all others over one seed with [`Scale::short`]. A short table at 224 × 224,
//! which the network was made for and an iteration takes three times as long, stands beside the reference.

mod entries;
mod rows;
mod show;
mod work;

use crate::photographs::PictureSet;
use crate::studies::deep::{STEPS, Seeds};
use crate::tasks::L1Regularisation;
use crate::tasks::l1_regularisation::Network;
use crate::{Findings, Finished, Item, Plan, Study, label};
use bilevel::Result;
use entries::{Entry, entries};
use work::{Clock, Learning, Plain, Setup};

/// Its name.
const NAME: &str = "l1-regularisation";
/// Every penalty at the start, as in the reference.
const START: f64 = 1e-4;
/// The item that takes the times of a large network.
const CLOCK: &str = "clock";

/// How much is done.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// The pictures, those of the long table first.
    views: Vec<View>,
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
            views: vec![View { set: PictureSet::Digits, side: 8 }],
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
            views: vec![
                View { set: PictureSet::Pets, side: 128 },
                View { set: PictureSet::Pets, side: 224 },
                View { set: PictureSet::Dtd10, side: 128 },
                View { set: PictureSet::Flowers102, side: 128 },
            ],
            seeds: 3,
            long: 60,
            short: 25,
            looks: 5,
            grid: vec![0.0, 1e-5, 1e-4, 1e-3],
            rounds: 5,
        }
    }

    fn of(plan: &Plan) -> Self {
        plan.choose(Self::quick(), Self::full())
    }

    /// Those whose pictures are there.
    fn present<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = View> + 'a {
        self.views.iter().copied().filter(|view| view.set.is_there(plan.data.as_deref()))
    }

    /// Whether this is the long table.
    fn is_main(&self, view: View) -> bool {
        self.views.first() == Some(&view)
    }

    /// Outer iterations of a row.
    fn iterations(&self, view: View, seeds: Seeds) -> u32 {
        if self.is_main(view) && seeds == Seeds::All { self.long } else { self.short }
    }

    /// The task on these pictures.
    fn task(&self, view: View) -> L1Regularisation {
        let task = match view.set {
            PictureSet::Digits => L1Regularisation::default(),
            // 40 % of each class to train on, as in the paper, would leave a fifth to test on.
            PictureSet::Dtd10 => {
                let task = L1Regularisation::photographs(view.set);
                L1Regularisation { train: 10, validation: 10, second: 10, ..task }
            }
            set => L1Regularisation::photographs(set),
        };
        L1Regularisation { side: view.side, start: START, ..task }
    }

    /// The large network whose iterations are timed, without a warm-up.
    fn vit(&self) -> L1Regularisation {
        let task = L1Regularisation::photographs(PictureSet::Pets);
        L1Regularisation { network: Network::VitB16, warm_up: 0, test: 1, ..task }
    }

    fn seeds(&self, plan: &Plan, of: Seeds) -> std::ops::Range<u64> {
        of.range(plan.seed, self.seeds)
    }
}

/// Pictures at a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    set: PictureSet,
    /// Height and width.
    side: usize,
}

impl View {
    /// What it is called.
    fn name(self) -> String {
        match self.set {
            PictureSet::Digits => self.set.name().into(),
            set => format!("{} at {} px", set.name(), self.side),
        }
    }

    /// Whether it is what the reference has.
    fn is_of_reference(self) -> bool {
        self == View { set: PictureSet::Pets, side: 224 }
    }
}

fn setup(plan: &Plan, task: L1Regularisation, seed: u64) -> Setup {
    Setup { task, seed, device: plan.device }
}

fn plain_label(view: View, both: bool, seed: u64) -> String {
    label(&format!("{} plain{} seed {seed}", view.name(), if both { " on both" } else { "" }))
}

fn entry_label(view: View, entry: &Entry, seed: u64) -> String {
    label(&format!("{} {} {} seed {seed}", view.name(), entry.method, entry.setting))
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
        for view in scale.present(plan) {
            let (task, main) = (scale.task(view), scale.is_main(view));
            // By seed, so that what a seed needs is prepared once.
            for seed in scale.seeds(plan, if main { Seeds::All } else { Seeds::One }) {
                for both in [false, true] {
                    let task = L1Regularisation { train_on_validation: both, ..task.clone() };
                    let shared = if both { vec![0.0] } else { scale.grid.clone() };
                    let steps = STEPS * scale.iterations(view, Seeds::All) as usize;
                    let plain = Plain { setup: setup(plan, task, seed), shared, steps };
                    items.push(Item::measure(plain_label(view, both, seed), plain));
                }
                let entries = entries(&scale, view, &task);
                for entry in entries.iter().filter(|entry| scale.seeds(plan, entry.seeds).contains(&seed)) {
                    let learning = Learning {
                        setup: setup(plan, entry.task.clone(), seed),
                        method: entry.by.clone(),
                        rate: entry.rate,
                        iterations: scale.iterations(view, entry.seeds),
                        looks: if main && entry.seeds == Seeds::All { scale.looks } else { 1 },
                        retrain: entry.retrain,
                    };
                    items.push(Item::measure(entry_label(view, entry, seed), learning));
                }
            }
        }
        if scale.rounds > 0 && scale.present(plan).any(|view| scale.is_main(view)) {
            let task = scale.vit();
            let methods = entries::timed(task.step);
            let clock = Clock { setup: setup(plan, task, plan.seed), methods, rounds: scale.rounds };
            items.push(Item::measure(CLOCK, clock).alone());
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let scale = Scale::of(plan);
        let mut findings = Findings::default();
        for &view in &scale.views {
            if !view.set.is_there(plan.data.as_deref()) {
                findings.rows.push(rows::not_run(view, plan));
                continue;
            }
            let found = rows::read(&scale, plan, view, done)?;
            findings.rows.extend(rows::rows(&scale, &found));
            if scale.is_main(view) {
                findings.said.extend(show::sentences(&found));
            }
            findings.warnings.extend(show::warnings(&scale, &found));
            findings.sections.extend(show::sections(&scale, &found));
        }
        if done.get(CLOCK).is_some() {
            let found: Vec<(String, f64)> = done.measured(CLOCK)?;
            findings.sections.extend(show::clock(&scale, plan, &found));
        }
        Ok(findings)
    }
}
