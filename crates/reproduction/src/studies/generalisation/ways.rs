//! The ways to choose λ, each on the same labelled rows: their rows for learning and for the final training.

use super::cases::{Learned, Pattern};
use bilevel::graph::Executor;
use bilevel::methods::{AnyMethod, Evidence};
use bilevel::optimizers::{Adam, Schedule};
use bilevel::splits::{Guard, Paired, Part, RowLosses};
use bilevel::training::{Trained, Trainer};
use bilevel::{Array, Driver, InnerLoop, Key, Named, Outcome, Problem, Result, Session, State, Tree, Variable};
use bilevel_run::{Context, Kept, Measure, Place};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A way to choose λ.
pub(super) struct Way {
    pub name: &'static str,
    pub kind: Kind,
    take: fn(&Bench) -> Result<Score>,
}

/// The role of a way in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Without hypergradients.
    Baseline,
    /// A run without the additions of this library.
    Plain,
    /// An addition of this library.
    Ours,
    /// An addition with a part left out or changed, to see its effect.
    Variation,
}

/// The reference of all comparisons.
pub(super) const REFERENCE: &str = "one tuned by folds, all rows";

pub(super) const WAYS: [Way; 19] = [
    way("none, all rows", Kind::Baseline, |b| b.score_on_all(&b.alike(&b.learned.none())?, 1.0)),
    way("one tuned on the split, half the rows", Kind::Baseline, |b| b.score(&b.problem, &b.alike(&b.tuned()?)?)),
    way(REFERENCE, Kind::Baseline, |b| b.score_on_all(&b.alike(&b.tuned_by_folds()?)?, IN_FOLDS)),
    way("learned on the split, half the rows", Kind::Plain, |b| {
        b.score(&b.problem, &b.learn(&b.problem, NO_GUARD, &b.tuned()?)?.lambda)
    }),
    way("learned on the split, all rows", Kind::Plain, |b| {
        b.score_on_all(&b.learn(&b.problem, NO_GUARD, &b.tuned()?)?.lambda, 0.5)
    }),
    way("guard, all rows", Kind::Ours, |b| {
        b.score_on_all(&b.learn(&b.held_out()?, Guard::default(), &b.tuned()?)?.lambda, 0.5)
    }),
    way("folds, all rows", Kind::Plain, |b| {
        b.score_on_all(&b.learn(&b.problem.folded(FOLDS, 0.0, b.work.split)?, NO_GUARD, &b.tuned()?)?.lambda, IN_FOLDS)
    }),
    way("folds and guard, all rows", Kind::Ours, |b| {
        b.score_on_all(&b.learn(&b.folded()?, Guard::default(), &b.tuned()?)?.lambda, IN_FOLDS)
    }),
    way("shrinkage and guard, all rows", Kind::Ours, |b| b.score_on_all(&b.shrunk(&b.held_out()?, &b.tuned()?)?, 0.5)),
    way("folds, shrinkage and guard, all rows", Kind::Ours, |b| b.score_on_all(&b.shrunk_by_folds()?, IN_FOLDS)),
    way("all of it, or one tuned if that is no worse", Kind::Ours, |b| b.score_on_all(&b.all_of_it()?, IN_FOLDS)),
    way("one by evidence, all rows", Kind::Ours, |b| b.score_on_all(&b.by_evidence(&b.evidence()?, Some(TIED))?, 1.0)),
    way("each by evidence, all rows", Kind::Ours, |b| b.score_on_all(&b.by_evidence(&b.evidence()?, None)?, 1.0)),
    way("each by evidence, shrunk, all rows", Kind::Ours, |b| {
        b.score_on_all(&b.by_evidence(&b.evidence()?, Some(APART))?, 1.0)
    }),
    way("each by evidence, its spread by folds, all rows", Kind::Ours, |b| {
        b.score_on_all(&b.evidence_by_folds()?, IN_FOLDS)
    }),
    way("learned, mean of the last half, all rows", Kind::Variation, |b| b.score_on_all(&b.averaged()?, 0.5)),
    way("learned by minibatches of 16, all rows", Kind::Variation, |b| {
        let few = b.learned.in_minibatches(16).task().build(&b.context)?;
        b.score_on_all(&b.learn(&few, NO_GUARD, &b.tuned()?)?.lambda, 0.5)
    }),
    way("learned at the temperature 1/n, all rows", Kind::Variation, |b| b.score_on_all(&b.at_temperature(1.0)?, 0.5)),
    way("learned at the temperature 0.1/n, all rows", Kind::Variation, |b| {
        b.score_on_all(&b.at_temperature(0.1)?, 0.5)
    }),
];

const fn way(name: &'static str, kind: Kind, take: fn(&Bench) -> Result<Score>) -> Way {
    Way { name, kind, take }
}

impl Way {
    /// Whether it can be taken there.
    pub fn applies(&self, learned: &Learned, variations: bool) -> bool {
        let by_evidence = self.name.contains("by evidence");
        (self.kind != Kind::Variation || variations) && (!by_evidence || learned.has_evidence())
    }
}

const FOLDS: usize = 5;
/// The share of the rows that a training of a fold sees.
const IN_FOLDS: f64 = 1.0 - 1.0 / FOLDS as f64;
const HELD_OUT: f64 = 0.2;
const NO_GUARD: Guard = Guard { every: 0, patience: 0 };
/// A training that goes on from that of a neighbour on the grid takes this many times fewer steps.
const ON_FROM_A_NEIGHBOUR: usize = 5;
/// Number of splits whose shared first steps are cached.
const KEPT_SPLITS: usize = 4;
/// Next to not apart, and the width of a broad prior.
const TIED: f64 = 0.01;
const APART: f64 = 1.0;
/// How much of a pattern is taken, besides nothing of it.
const SPREADS: [f64; 2] = [0.5, 1.0];
/// The factors for a multiplied pattern.
const FACTORS: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

/// One way on one split.
#[derive(Clone, Serialize)]
pub(super) struct Work {
    pub learned: Learned,
    pub way: String,
    pub split: u64,
    /// Outer iterations.
    pub iterations: u32,
    /// Steps of a last training, with momentum.
    pub steps: usize,
}

/// The score of a way.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Score {
    pub loss: f64,
    pub error: f64,
    pub seconds: f64,
}

impl Measure for Work {
    type Found = Score;

    fn take(&self, place: &Place) -> Result<Score> {
        let began = Instant::now();
        let dtype = self.learned.task().defaults().dtype;
        let context = Context { seed: self.split, data: place.data.clone(), dtype, ..Context::default() };
        let problem = self.learned.task().build(&context)?;
        let all = problem.on_all_rows()?;
        let learned = &self.learned;
        let bench = Bench { work: self, learned, context, problem, all, executor: place.executor.clone() };
        let way = WAYS.iter().find(|way| way.name == self.way);
        let way = way.ok_or_else(|| bilevel::Error::other(format!("there is no way '{}'", self.way)))?;
        let score = (way.take)(&bench)?;
        Ok(Score { seconds: began.elapsed().as_secs_f64(), ..score })
    }
}

/// A split, and its trainings.
struct Bench<'a> {
    work: &'a Work,
    learned: &'a Learned,
    context: Context,
    problem: Problem,
    /// The same with all labelled rows for training.
    all: Problem,
    executor: Arc<dyn Executor>,
}

impl Bench<'_> {
    fn held_out(&self) -> Result<Problem> {
        self.problem.holding_out(HELD_OUT, self.work.split)
    }

    fn folded(&self) -> Result<Problem> {
        self.problem.folded(FOLDS, HELD_OUT, self.work.split)
    }

    /// The same rows, judged by the evidence.
    fn evidence(&self) -> Result<Problem> {
        self.learned.task().build(&Context { evidence: true, ..self.context.clone() })
    }

    /// One value for each leaf of λ, or for all.
    fn alike(&self, values: &[f64]) -> Result<Named<Array>> {
        self.filled(&self.problem, |leaf| values[leaf % values.len()])
    }

    /// λ of a problem with one value in each leaf.
    fn filled(&self, problem: &Problem, value: impl Fn(usize) -> f64) -> Result<Named<Array>> {
        let start = State::initial(problem, &*self.executor, Key::from_seed(0))?.lambda.arrays()?;
        let names = problem.lambda_names().into_iter().map(String::from);
        let leaves = start.iter().enumerate().map(|(i, leaf)| Array::full(leaf.shape(), value(i), leaf.dtype()));
        Ok(names.zip(leaves).collect())
    }

    /// How λ does on test rows after a training by this problem.
    fn score(&self, problem: &Problem, lambda: &Named<Array>) -> Result<Score> {
        let trained = self.train(problem, lambda)?.measures;
        let number = |name: &str| trained.get(name).copied();
        let error = number("test error").or_else(|| number("test accuracy").map(|right| 1.0 - right));
        let loss = number("test loss").unwrap_or(f64::NAN);
        Ok(Score { loss, error: error.unwrap_or(f64::NAN), seconds: 0.0 })
    }

    fn train(&self, problem: &Problem, lambda: &Named<Array>) -> Result<Trained<Named<Variable>>> {
        let training = problem.train(lambda).inner(self.learned.last(self.work.steps));
        training.seed(self.work.split).executor(self.executor.clone()).run()
    }

    fn task_loop(&self) -> InnerLoop {
        self.learned.task().defaults().inner
    }

    /// The same by a training on all labelled rows, for penalties that were added to a mean over this share of them.
    fn score_on_all(&self, lambda: &Named<Array>, share: f64) -> Result<Score> {
        self.score(&self.all, &self.problem.rescaled(lambda, share)?)
    }

    /// One value for each leaf that is best on the validation rows.
    fn tuned(&self) -> Result<Vec<f64>> {
        static KEPT: Kept<Vec<f64>> = Kept::new(KEPT_SPLITS);
        let found = KEPT.get(self.place(), || self.tuned_on(std::slice::from_ref(&self.problem)))?;
        Ok(found.to_vec())
    }

    fn tuned_by_folds(&self) -> Result<Vec<f64>> {
        static KEPT: Kept<Vec<f64>> = Kept::new(KEPT_SPLITS);
        let found = KEPT.get(self.place(), || self.tuned_on(&self.problem.folds(FOLDS, self.work.split)?))?;
        Ok(found.to_vec())
    }

    /// Folds, shrinkage and guard from the value that folds have tuned.
    fn shrunk_by_folds(&self) -> Result<Named<Array>> {
        static KEPT: Kept<Named<Array>> = Kept::new(KEPT_SPLITS);
        let found = KEPT.get(self.place(), || self.shrunk(&self.folded()?, &self.tuned_by_folds()?))?;
        Ok((*found).clone())
    }

    /// The identity of a split of a case: several ways share their first steps.
    fn place(&self) -> String {
        let Work { learned, split, iterations, steps, .. } = self.work;
        format!("{split} {iterations} {steps} {:?} {:?}", learned.task(), self.context.data)
    }

    /// The same by the mean over these divisions.
    fn tuned_on(&self, problems: &[Problem]) -> Result<Vec<f64>> {
        let grid = self.learned.grid();
        let all: Vec<Named<Array>> = grid.iter().map(|values| self.alike(values)).collect::<Result<_>>()?;
        let mut sums = vec![0.0; grid.len()];
        for problem in problems {
            let losses = self.losses(problem, &all)?;
            sums.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        }
        let best = sums.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(place, _)| place);
        Ok(grid[best].clone())
    }

    /// The outer loss after a training with each λ. If θ need not start from scratch, all but the first continue from
    /// the last one, with fewer steps.
    fn losses(&self, problem: &Problem, all: &[Named<Array>]) -> Result<Vec<f64>> {
        let session = Session::new(problem, &*self.executor)?;
        let key = Key::from_seed(self.work.split);
        let (state, start) = (session.state(key)?, session.state(key)?);
        let last = self.learned.last(self.work.steps);
        let fewer = if self.learned.is_cold() { last.steps } else { (last.steps / ON_FROM_A_NEIGHBOUR).max(1) };
        let mut first = Trainer::new(&session, last)?;
        let mut next = Trainer::new(&session, InnerLoop { steps: fewer, ..last })?;
        let mut evaluator = session.evaluator()?;
        let mut losses: Vec<f64> = vec![];
        for lambda in all {
            state.lambda.write(&lambda.leaves().into_iter().cloned().collect::<Vec<_>>())?;
            // One that ran away is no place to go on from.
            if self.learned.is_cold() || losses.last().is_none_or(|loss| !loss.is_finite()) {
                state.theta.write(&start.theta.arrays()?)?;
                first.train(&state, key.fold_in(1))?;
            } else {
                next.train(&state, key.fold_in(1))?;
            }
            losses.push(evaluator.at(&state, key)?[1]);
        }
        Ok(losses)
    }

    /// λ from one value on.
    fn learn(&self, problem: &Problem, guard: Guard, from: &[f64]) -> Result<Outcome> {
        let start = self.alike(&self.learned.start(from))?;
        self.driver(problem, self.learned.method(), (self.task_loop(), guard), &start).run()
    }

    fn driver(
        &self,
        problem: &Problem,
        method: AnyMethod,
        (inner, guard): (InnerLoop, Guard),
        start: &Named<Array>,
    ) -> Driver {
        let (rate, iterations) = (self.learned.rate(), self.work.iterations);
        let driver = Driver::new(problem, method).inner(inner).guard(guard).seed(self.work.split);
        let driver = driver.executor(self.executor.clone()).start_from(start).diagnose_every(0);
        let driver = driver.cold(self.learned.is_cold()).optimizer(Adam::default());
        driver.schedule(Schedule::cosine(rate, iterations, 0.0)).iterations(iterations)
    }

    /// λ that are pulled towards one value, as strongly as held-out rows want it.
    fn shrunk(&self, problem: &Problem, from: &[f64]) -> Result<Named<Array>> {
        let found = problem.shrunk_by_held_out_rows(&self.learned.deviations(), |shrunk| {
            let start = self.shrunk_start(shrunk, &self.learned.start(from))?;
            self.driver(shrunk, self.learned.method(), (self.task_loop(), Guard::default()), &start).run()
        })?;
        Ok(found.lambda)
    }

    /// One value as the mean of every group, and no offsets.
    fn shrunk_start(&self, problem: &Problem, values: &[f64]) -> Result<Named<Array>> {
        let groups = problem.lambda_names().len() / 2;
        self.filled(problem, |leaf| if leaf < groups { values[leaf % values.len()] } else { 0.0 })
    }

    /// Folds, shrinkage and guard from the value that folds have tuned; kept if the held-out rows of all folds prefer it to that value by
    /// more than a standard error.
    fn all_of_it(&self) -> Result<Named<Array>> {
        let (folded, one) = (self.folded()?, self.alike(&self.tuned_by_folds()?)?);
        let found = self.shrunk_by_folds()?;
        let (ours, theirs) = (self.held_out_losses(&folded, &found)?, self.held_out_losses(&folded, &one)?);
        let Paired { mean, standard_error } = Paired::of(&ours, &theirs);
        Ok(if mean < -standard_error { found } else { one })
    }

    /// The losses of held-out rows after a last training with this λ.
    fn held_out_losses(&self, problem: &Problem, lambda: &Named<Array>) -> Result<Vec<f64>> {
        let session = Session::new(problem, &*self.executor)?;
        let key = Key::from_seed(self.work.split);
        let state = session.state(key)?;
        state.lambda.write(&lambda.leaves().into_iter().cloned().collect::<Vec<_>>())?;
        Trainer::new(&session, self.learned.last(self.work.steps))?.train(&state, key.fold_in(1))?;
        RowLosses::new(&session, Part::HeldOut)?.at(&state, key)
    }

    /// λ by the evidence of the rows that this problem trains on, pulled towards one value if a deviation is given.
    fn by_evidence(&self, problem: &Problem, deviation: Option<f64>) -> Result<Named<Array>> {
        let inner = InnerLoop { burn_in: 0, ..self.task_loop() }.at_temperature(1.0 / self.learned.rows() as f64);
        let start = self.learned.start_by_evidence();
        let go = |problem: &Problem, from: &Named<Array>| {
            let method = AnyMethod::Evidence(Evidence::default());
            Ok::<_, bilevel::Error>(self.driver(problem, method, (inner, NO_GUARD), from).run()?.lambda)
        };
        match deviation {
            None => go(problem, &self.alike(&start)?),
            Some(deviation) => {
                let shrunk = problem.shrunk(deviation)?;
                shrunk.lambda(&go(shrunk.problem(), &self.shrunk_start(shrunk.problem(), &start)?)?)
            }
        }
    }

    /// The pattern of the evidence, around one value, with its value and width chosen by folds. For each fold the
    /// pattern comes from its own training rows, so that no row chooses twice.
    fn evidence_by_folds(&self) -> Result<Named<Array>> {
        let folds = self.problem.folds(FOLDS, self.work.split)?;
        let of_folds = self.evidence()?.folds(FOLDS, self.work.split)?;
        let patterns: Vec<Named<Array>> =
            of_folds.iter().map(|fold| self.by_evidence(fold, None)).collect::<Result<_>>()?;
        let candidates = self.candidates();
        let mut sums = vec![0.0; candidates.len()];
        for (fold, pattern) in folds.iter().zip(&patterns) {
            let all =
                candidates.iter().map(|candidate| self.combined(pattern, *candidate)).collect::<Result<Vec<_>>>()?;
            sums.iter_mut().zip(self.losses(fold, &all)?).for_each(|(sum, loss)| *sum += loss);
        }
        let best = sums.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(place, _)| place);
        self.combined(&self.by_evidence(&self.evidence()?, None)?, candidates[best])
    }

    /// One value, and how much of a pattern is added to it or how often it is taken.
    fn candidates(&self) -> Vec<(f64, f64)> {
        let values = || self.learned.grid().into_iter().map(|values| values[0]);
        let alone = values().map(|value| (value, 0.0));
        match self.learned.pattern() {
            Pattern::Around => {
                alone.chain(SPREADS.into_iter().flat_map(|spread| values().map(move |value| (value, spread)))).collect()
            }
            Pattern::Times => alone.chain(FACTORS.map(|factor| (0.0, factor))).collect(),
        }
    }

    fn combined(&self, pattern: &Named<Array>, (value, spread): (f64, f64)) -> Result<Named<Array>> {
        let all: Vec<f64> = pattern.leaves().into_iter().flat_map(Array::to_f64).collect();
        let mean = match self.learned.pattern() {
            Pattern::Around => all.iter().sum::<f64>() / all.len().max(1) as f64,
            Pattern::Times => 0.0,
        };
        let leaf = |(name, array): (&str, &Array)| {
            let values: Vec<f64> = array.to_f64().iter().map(|one| value + spread * (one - mean)).collect();
            Ok((name.to_string(), Array::from_values(array.shape(), &values, array.dtype())?))
        };
        pattern.iter().map(leaf).collect()
    }

    /// The mean of λ over the second half of a run.
    fn averaged(&self) -> Result<Named<Array>> {
        let start = self.alike(&self.learned.start(&self.tuned()?))?;
        let (from, sum) = (self.work.iterations / 2, Arc::new(Mutex::new(vec![])));
        let shared = sum.clone();
        let driver = self.driver(&self.problem, self.learned.method(), (self.task_loop(), NO_GUARD), &start);
        driver
            .on_iteration(move |iteration, state| {
                if iteration.number > from
                    && let Ok(arrays) = state.lambda.arrays()
                {
                    let mut sum: std::sync::MutexGuard<Vec<Vec<f64>>> =
                        shared.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.resize(arrays.len(), vec![]);
                    for (sum, array) in sum.iter_mut().zip(arrays) {
                        sum.resize(array.len(), 0.0);
                        sum.iter_mut().zip(array.to_f64()).for_each(|(sum, value)| *sum += value);
                    }
                }
            })
            .run()?;
        let (sum, count) = (sum.lock().unwrap_or_else(PoisonError::into_inner), f64::from(self.work.iterations - from));
        let leaf = |((name, array), sum): ((&str, &Array), &Vec<f64>)| {
            let values: Vec<f64> = sum.iter().map(|sum| sum / count).collect();
            Ok((name.to_string(), Array::from_values(array.shape(), &values, array.dtype())?))
        };
        start.iter().zip(sum.iter()).map(leaf).collect()
    }

    /// λ learned with inner noise of the temperature `share`/n.
    fn at_temperature(&self, share: f64) -> Result<Named<Array>> {
        let start = self.alike(&self.learned.start(&self.tuned()?))?;
        let inner = self.task_loop().at_temperature(share / self.learned.rows() as f64);
        Ok(self.driver(&self.problem, self.learned.method(), (inner, NO_GUARD), &start).run()?.lambda)
    }
}
