//! A learned loss: the paper's table, with what λ starts from as a row of its own, TaylorGLO's search, and every λ found used to train a
//! network from scratch.
//!
//! A method learns λ while its network is trained. Its row has the error of that network, which was trained with a loss that changed on
//! the way, beside that of cross entropy after as many steps; a second row has the error of a network retrained with the loss found.
//!
//! The budget of the full study, on one GPU with AlexNet and CIFAR-10: cross entropy, HPO-SGLD, IFT-CG and the Langevin adjoint over three
//! seeds with [`Scale::long`] outer iterations of ten steps, all others over one seed with [`Scale::short`]; trainings with a loss that
//! was found have [`Scale::retrained`] steps.

mod entries;
mod rows;
mod work;

use crate::studies::deep::{STEPS, Seeds};
use crate::tasks::LearnedLoss;
use crate::tasks::learned_loss::{FirstLoss, SmallPictures};
use crate::{Findings, Finished, Item, Plan, Study, label};
use bilevel::Result;
use entries::{COLD_STEPS, Entry, entries};
use work::{Coefficients, Learned, Learning, Search, Searched, Setup, Training};

/// Its name.
const NAME: &str = "learned-loss";
/// TaylorGLO's search.
const SEARCH: &str = "taylor-glo";

/// How much is done.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    task: LearnedLoss,
    /// Seeds of the rows that carry the argument.
    seeds: u64,
    /// Outer iterations of these rows; twice those of all others.
    long: u32,
    /// Outer iterations of all others.
    short: u32,
    /// Outer iterations in which the network starts from scratch and is trained for longer.
    cold: u32,
    /// Steps of a training with a loss that was found.
    retrained: usize,
    /// Points of a generation, generations, and steps of a training of the search.
    search: [usize; 3],
}

impl Scale {
    fn quick() -> Self {
        let task = LearnedLoss::default();
        Scale { task, seeds: 2, long: 60, short: 30, cold: 5, retrained: 1200, search: [6, 4, 200] }
    }

    fn full() -> Self {
        let task = LearnedLoss::cifar10();
        Scale { task, seeds: 3, long: 400, short: 200, cold: 30, retrained: 10_000, search: [8, 6, 800] }
    }

    fn of(plan: &Plan) -> Self {
        plan.choose(Self::quick(), Self::full())
    }

    fn seeds(&self, plan: &Plan, of: Seeds) -> std::ops::Range<u64> {
        of.range(plan.seed, self.seeds)
    }

    fn iterations(&self, entry: &Entry) -> u32 {
        match (entry.cold, entry.seeds) {
            (true, _) => self.cold,
            (_, Seeds::All) => self.long,
            _ => self.short,
        }
    }

    /// A training that looks after as many steps as short and long runs have, and at its end.
    fn training(&self, plan: &Plan, task: LearnedLoss, seed: u64, coefficients: Option<Coefficients>) -> Training {
        let steps = STEPS * self.short as usize;
        let setup = Setup { task, seed, device: plan.device };
        Training { setup, coefficients, steps, looks: self.retrained / steps }
    }
}

/// The losses that stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// Cross entropy itself.
    CrossEntropy,
    /// Where λ starts: cross entropy, expanded to second order.
    Expansion,
    /// Brier's.
    Brier,
    /// Cross entropy with a step this many times as large: a steeper loss is a larger step, so this is what λ has to beat.
    Step(u32),
    /// Cross entropy on nearly all pictures, the validation pictures among them.
    Both,
}

/// What is left to validate on where the validation pictures are trained on.
const LEAST: f64 = 0.01;

impl Fixed {
    const ALL: [Fixed; 6] =
        [Fixed::CrossEntropy, Fixed::Expansion, Fixed::Brier, Fixed::Step(3), Fixed::Step(10), Fixed::Both];

    fn task(self, task: &LearnedLoss) -> LearnedLoss {
        let task = task.clone();
        match self {
            Fixed::CrossEntropy => LearnedLoss { plain: true, ..task },
            Fixed::Expansion => LearnedLoss { first: FirstLoss::CrossEntropy, ..task },
            Fixed::Brier => LearnedLoss { first: FirstLoss::Brier, ..task },
            Fixed::Step(times) => LearnedLoss { plain: true, step: f64::from(times) * task.step, ..task },
            Fixed::Both => LearnedLoss { plain: true, validation: LEAST, ..task },
        }
    }

    /// What the row is called.
    fn name(self) -> String {
        match self {
            Fixed::CrossEntropy => "cross entropy".into(),
            Fixed::Expansion => "RMD-FO".into(),
            Fixed::Brier => "Brier's loss".into(),
            Fixed::Step(times) => format!("cross entropy, {times} times the step"),
            Fixed::Both => "cross entropy, trained on the validation pictures too".into(),
        }
    }

    fn seeds(self) -> Seeds {
        if self == Fixed::CrossEntropy { Seeds::All } else { Seeds::One }
    }
}

fn fixed_label(fixed: Fixed, seed: u64) -> String {
    label(&format!("{} seed {seed}", fixed.name()))
}

fn entry_label(entry: &Entry, seed: u64) -> String {
    label(&format!("{} {} seed {seed}", entry.method, entry.setting))
}

fn afresh(of: &str) -> String {
    label(&format!("{of} afresh"))
}

/// The study.
pub(super) struct LearnedLossStudy;

impl Study for LearnedLossStudy {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "A loss that is learned, beside cross entropy"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let scale = Scale::of(plan);
        if !scale.task.pictures.are_there(plan.data.as_deref()) {
            return Ok(vec![]);
        }
        let mut items = vec![];
        for seed in scale.seeds(plan, Seeds::All) {
            for fixed in Fixed::ALL.into_iter().filter(|fixed| scale.seeds(plan, fixed.seeds()).contains(&seed)) {
                let training = scale.training(plan, fixed.task(&scale.task), seed, None);
                items.push(Item::measure(fixed_label(fixed, seed), training));
            }
            for entry in entries(&scale.task) {
                if !scale.seeds(plan, entry.seeds).contains(&seed) {
                    continue;
                }
                let learning = Learning {
                    setup: Setup { task: entry.task.clone(), seed, device: plan.device },
                    method: entry.by.clone(),
                    optimizer: entry.optimizer.clone(),
                    rate: entry.rate,
                    iterations: scale.iterations(&entry),
                    cold: entry.cold,
                    looks: if entry.seeds == Seeds::All { 5 } else { 1 },
                };
                items.push(Item::measure(entry_label(&entry, seed), learning));
            }
        }
        let [population, generations, steps] = scale.search;
        let setup = Setup { task: scale.task.clone(), seed: plan.seed, device: plan.device };
        items.push(Item::measure(SEARCH, Search { setup, population, generations, steps }));
        Ok(items)
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let scale = Scale::of(plan);
        if done.is_empty() {
            return Ok(vec![]);
        }
        let mut found: Vec<(String, Coefficients)> = vec![];
        // With the first seed of each: what a loss is worth is seen when a network is trained for longer.
        for entry in entries(&scale.task).iter().filter(|entry| entry.retrain) {
            let name = entry_label(entry, plan.seed);
            let learned: Learned = done.measured(&name)?;
            found.extend(learned.loss().map(|loss| (name, loss)));
        }
        let searched: Searched = done.measured(SEARCH)?;
        found.push((SEARCH.into(), searched.coefficients));
        let new = found.into_iter().filter(|(name, _)| done.get(&afresh(name)).is_none());
        Ok(new
            .map(|(name, loss)| {
                let training = scale.training(plan, scale.task.clone(), plan.seed, Some(loss));
                Item::measure(afresh(&name), training)
            })
            .collect())
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let scale = Scale::of(plan);
        if !scale.task.pictures.are_there(plan.data.as_deref()) {
            let rows = vec![rows::not_run(&scale, plan), rows::large(SmallPictures::Cifar100)];
            return Ok(Findings { rows, ..Findings::default() });
        }
        rows::findings(&scale, plan, done)
    }
}
