//! The ways to choose λ, each on the same labelled rows: their rows for learning and for the final training.

use super::cases::{Learned, Pattern};
use bilevel::graph::Executor;
use bilevel::methods::{AnyMethod, Evidence};
use bilevel::optimizers::{Adam, Schedule};
use bilevel::splits::{Guard, Paired, Part, RowLosses, Rows};
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

pub(super) const WAYS: [Way; 23] = [
    way("none, all rows", Kind::Baseline, |b| b.score_on_all(&b.alike(&b.learned.none())?, 1.0)),
    way("one tuned on the split, half the rows", Kind::Baseline, |b| {
        let tuned = b.tuned_on_split()?;
        Ok(b.score(&b.problem, &b.alike(&tuned.values)?)?.tuned(&tuned))
    }),
    way(REFERENCE, Kind::Baseline, |b| {
        let tuned = b.tuned_by_folds()?;
        Ok(b.score_on_all(&b.alike(&tuned.values)?, IN_FOLDS)?.tuned(&tuned))
    }),
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
    way("bagged over five halves, all rows", Kind::Ours, |b| b.score_on_all(&b.bagged()?, IN_A_HALF)),
    way("one by evidence, all rows", Kind::Ours, |b| b.score_on_all(&b.by_evidence(Some(TIED))?, 1.0)),
    way("each by evidence, all rows", Kind::Ours, |b| b.score_on_all(&b.by_evidence(None)?, 1.0)),
    way("each by evidence, shrunk, all rows", Kind::Ours, |b| b.score_on_all(&b.by_evidence(Some(APART))?, 1.0)),
    way("each by evidence, shrunk around one tuned, all rows", Kind::Ours, |b| {
        b.score_on_all(&b.around_one_tuned(&b.by_evidence(Some(APART))?)?, IN_FOLDS)
    }),
    way("each by evidence, its spread by folds, all rows", Kind::Ours, |b| {
        b.score_on_all(&b.evidence_by_folds()?, IN_FOLDS)
    }),
    way("the least by cross-fitting, all rows", Kind::Ours, |b| b.cross_fitted(0.0)),
    way("the least by cross-fitting, if by a standard error", Kind::Ours, |b| b.cross_fitted(1.0)),
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
/// The share that a training of a half without one fold sees.
const IN_A_HALF: f64 = 0.5 * IN_FOLDS;
/// Number of splits whose shared first steps are cached.
const KEPT_SPLITS: usize = 4;
/// Next to not apart, and the width of a broad prior.
const TIED: f64 = 0.01;
const APART: f64 = 1.0;
/// How much of a pattern is taken, besides nothing of it, and its means, from the one tuned value.
const SPREADS: [f64; 3] = [0.25, 0.5, 1.0];
const OFF: [f64; 5] = [2.0, 1.0, 0.0, -1.0, -2.0];
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
    /// Whether the tuned value is at an end of its grid, if one was tuned.
    pub at_an_end: Option<bool>,
}

impl Score {
    /// The same with the tuned value it belongs to.
    fn tuned(self, tuned: &Tuned) -> Self {
        Score { at_an_end: Some(tuned.is_at_an_end), ..self }
    }
}

/// The best point of a grid.
struct Tuned {
    values: Vec<f64>,
    is_at_an_end: bool,
}

/// A λ for each fold that is learned without the rows of that fold, and the losses that all rows have as members of
/// their fold, after a training on the other folds.
struct CrossFitted {
    lambdas: Vec<Named<Array>>,
    losses: Vec<f64>,
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
        Ok(Score { loss, error: error.unwrap_or(f64::NAN), seconds: 0.0, at_an_end: None })
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
    fn tuned_on_split(&self) -> Result<Arc<Tuned>> {
        static KEPT: Kept<Tuned> = Kept::new(KEPT_SPLITS);
        KEPT.get(self.place(), || self.tuned_on(std::slice::from_ref(&self.problem)))
    }

    fn tuned(&self) -> Result<Vec<f64>> {
        Ok(self.tuned_on_split()?.values.clone())
    }

    fn tuned_by_folds(&self) -> Result<Arc<Tuned>> {
        static KEPT: Kept<Tuned> = Kept::new(KEPT_SPLITS);
        KEPT.get(self.place(), || self.tuned_on(&self.folds()?))
    }

    /// All rows with labels, divided once for each fold: its own rows for validation, the others for training.
    fn folds(&self) -> Result<Vec<Problem>> {
        self.problem.folds(FOLDS, self.work.split)
    }

    /// Folds, shrinkage and guard from the value that folds have tuned.
    fn shrunk_by_folds(&self) -> Result<Named<Array>> {
        static KEPT: Kept<Named<Array>> = Kept::new(KEPT_SPLITS);
        let found = KEPT.get(self.place(), || self.shrunk(&self.folded()?, &self.tuned_by_folds()?.values))?;
        Ok((*found).clone())
    }

    /// The identity of a split of a case: several ways share their first steps.
    fn place(&self) -> String {
        let Work { learned, split, iterations, steps, .. } = self.work;
        format!("{split} {iterations} {steps} {:?} {:?}", learned.task(), self.context.data)
    }

    /// The point of the grid with the least mean loss over these divisions: first on the coarse grid, then by finer
    /// steps around the best.
    fn tuned_on(&self, problems: &[Problem]) -> Result<Tuned> {
        let grid = self.learned.grid();
        let mut best = self.best_of(problems, grid.coarse())?;
        for &step in grid.finer() {
            best = self.best_of(problems, grid.around(&best, step))?;
        }
        Ok(Tuned { values: self.learned.values_at(&best), is_at_an_end: grid.is_at_an_end(&best) })
    }

    fn best_of(&self, problems: &[Problem], mut points: Vec<Vec<f64>>) -> Result<Vec<f64>> {
        let all = points.iter().map(|point| self.alike(&self.learned.values_at(point)));
        let all: Vec<Named<Array>> = all.collect::<Result<_>>()?;
        let mut sums = vec![0.0; all.len()];
        for problem in problems {
            sums.iter_mut().zip(self.losses(problem, &all)?).for_each(|(sum, loss)| *sum += loss);
        }
        Ok(points.swap_remove(least(&sums)))
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
        let (folded, one) = (self.folded()?, self.alike(&self.tuned_by_folds()?.values)?);
        let found = self.shrunk_by_folds()?;
        let (ours, theirs) =
            (self.losses_of_rows(&folded, &found, Part::HeldOut)?, self.losses_of_rows(&folded, &one, Part::HeldOut)?);
        let Paired { mean, standard_error } = Paired::of(&ours, &theirs);
        Ok(if mean < -standard_error { found } else { one })
    }

    /// The losses of the rows of a part after a last training with this λ.
    fn losses_of_rows(&self, problem: &Problem, lambda: &Named<Array>, part: Part) -> Result<Vec<f64>> {
        let session = Session::new(problem, &*self.executor)?;
        let key = Key::from_seed(self.work.split);
        let state = session.state(key)?;
        state.lambda.write(&lambda.leaves().into_iter().cloned().collect::<Vec<_>>())?;
        Trainer::new(&session, self.learned.last(self.work.steps))?.train(&state, key.fold_in(1))?;
        RowLosses::new(&session, part)?.at(&state, key)
    }

    /// λ by the evidence of all rows.
    fn by_evidence(&self, deviation: Option<f64>) -> Result<Named<Array>> {
        static KEPT: Kept<Named<Array>> = Kept::new(3 * KEPT_SPLITS);
        let found =
            KEPT.get(format!("{deviation:?} {}", self.place()), || self.by_evidence_of(&self.evidence()?, deviation))?;
        Ok((*found).clone())
    }

    /// λ by the evidence without each fold.
    fn by_evidence_of_folds(&self, deviation: Option<f64>) -> Result<Vec<Named<Array>>> {
        static KEPT: Kept<Vec<Named<Array>>> = Kept::new(3 * KEPT_SPLITS);
        let found = KEPT.get(format!("{deviation:?} {}", self.place()), || {
            let folds = self.evidence()?.folds(FOLDS, self.work.split)?;
            folds.iter().map(|fold| self.by_evidence_of(fold, deviation)).collect()
        })?;
        Ok((*found).clone())
    }

    /// λ by the evidence of the rows that this problem trains on, pulled towards one value if a deviation is given.
    fn by_evidence_of(&self, problem: &Problem, deviation: Option<f64>) -> Result<Named<Array>> {
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
        let candidates = self.candidates()?;
        let mut sums = vec![0.0; candidates.len()];
        for (fold, pattern) in self.folds()?.iter().zip(&self.by_evidence_of_folds(None)?) {
            let all =
                candidates.iter().map(|candidate| self.combined(pattern, candidate)).collect::<Result<Vec<_>>>()?;
            sums.iter_mut().zip(self.losses(fold, &all)?).for_each(|(sum, loss)| *sum += loss);
        }
        self.combined(&self.by_evidence(None)?, &candidates[least(&sums)])
    }

    /// One value for each leaf, and how much of a pattern is added to it or how often it is taken.
    fn candidates(&self) -> Result<Vec<(Vec<f64>, f64)>> {
        let tuned = self.tuned_by_folds()?.values.clone();
        let off = |by: f64| tuned.iter().map(|value| value + by).collect::<Vec<_>>();
        let mut all = vec![(off(0.0), 0.0)];
        match self.learned.pattern() {
            Pattern::Around => all.extend(SPREADS.into_iter().flat_map(|spread| OFF.map(|by| (off(by), spread)))),
            Pattern::Times => all.extend(FACTORS.map(|factor| (vec![0.0], factor))),
        }
        Ok(all)
    }

    /// This pattern around the value that folds have tuned.
    fn around_one_tuned(&self, pattern: &Named<Array>) -> Result<Named<Array>> {
        match self.learned.pattern() {
            Pattern::Around => self.combined(pattern, &(self.tuned_by_folds()?.values.clone(), 1.0)),
            Pattern::Times => self.combined(pattern, &(vec![0.0], 1.0)),
        }
    }

    /// One value for each leaf, or for all, plus so much of a pattern. Its mean in the leaf is subtracted first if it goes
    /// around a value.
    fn combined(&self, pattern: &Named<Array>, (values, spread): &(Vec<f64>, f64)) -> Result<Named<Array>> {
        let leaf = |(place, (name, array)): (usize, (&str, &Array))| {
            let (all, value) = (array.to_f64(), values[place % values.len()]);
            let mean = match self.learned.pattern() {
                Pattern::Around => all.iter().sum::<f64>() / all.len().max(1) as f64,
                Pattern::Times => 0.0,
            };
            let all: Vec<f64> = all.iter().map(|one| value + spread * (one - mean)).collect();
            Ok((name.to_string(), Array::from_values(array.shape(), &all, array.dtype())?))
        };
        pattern.iter().enumerate().map(leaf).collect()
    }

    /// λ without each fold, learned with a guard on a half of the other rows.
    fn halves(&self) -> Result<Arc<CrossFitted>> {
        static KEPT: Kept<CrossFitted> = Kept::new(KEPT_SPLITS);
        KEPT.get(self.place(), || {
            let from = self.tuned_by_folds()?.values.clone();
            let learn = |fold: &Problem| {
                let rows = fold.rows();
                let (train, validation) = rows.of(Part::Train).split_at(rows.of(Part::Train).len() / 2);
                let half = Rows::given(train.to_vec(), validation.to_vec()).with_test(rows.of(Part::Test).to_vec());
                let half = Problem::from(fold.with_rows(|_| half.holding_out(HELD_OUT, self.work.split))?);
                Ok(self.learn(&half, Guard::default(), &from)?.lambda)
            };
            let lambdas = self.folds()?.iter().map(learn).collect::<Result<_>>()?;
            self.judged_by_folds(lambdas, 0.5)
        })
    }

    /// The losses of all rows, each with the λ of its fold, which was learned with this share of the other rows.
    fn judged_by_folds(&self, lambdas: Vec<Named<Array>>, share: f64) -> Result<CrossFitted> {
        let mut losses = vec![];
        for (fold, lambda) in self.folds()?.iter().zip(&lambdas) {
            losses.extend(self.losses_of_rows(fold, &self.problem.rescaled(lambda, share)?, Part::Validation)?);
        }
        Ok(CrossFitted { lambdas, losses })
    }

    /// The mean of the λ that are learned without each fold.
    fn bagged(&self) -> Result<Named<Array>> {
        let halves = self.halves()?;
        let count = halves.lambdas.len() as f64;
        let leaf = |(place, (name, first)): (usize, (&str, &Array))| {
            let mut sum = vec![0.0; first.len()];
            for lambda in &halves.lambdas {
                sum.iter_mut().zip(lambda.leaves()[place].to_f64()).for_each(|(sum, value)| *sum += value / count);
            }
            Ok((name.to_string(), Array::from_values(first.shape(), &sum, first.dtype())?))
        };
        halves.lambdas[0].iter().enumerate().map(leaf).collect()
    }

    /// The way with the least loss on rows that neither trained nor chose it: one tuned value, the mean of the λ of
    /// halves, or the evidence. One tuned value stays unless another is better by so many standard errors. All folds have
    /// seen its value, so that the comparison is in its favour.
    fn cross_fitted(&self, errors: f64) -> Result<Score> {
        let tuned = vec![self.alike(&self.tuned_by_folds()?.values)?; FOLDS];
        let tuned = self.judged_by_folds(tuned, 1.0)?.losses;
        let mut best: (f64, Option<(Named<Array>, f64)>) = (0.0, None);
        let mut offer = |losses: &[f64], last: &dyn Fn() -> Result<(Named<Array>, f64)>| -> Result<()> {
            let Paired { mean, standard_error } = Paired::of(losses, &tuned);
            if mean < best.0 && mean < -errors * standard_error {
                best = (mean, Some(last()?));
            }
            Ok(())
        };
        offer(&self.halves()?.losses, &|| Ok((self.bagged()?, IN_A_HALF)))?;
        if self.learned.has_evidence() {
            for deviation in [Some(TIED), None] {
                // The evidence of a fold counts as many rows as there are in all.
                let folds = self.judged_by_folds(self.by_evidence_of_folds(deviation)?, 1.0 / IN_FOLDS)?;
                offer(&folds.losses, &|| Ok((self.by_evidence(deviation)?, 1.0)))?;
            }
            let around = self.by_evidence_of_folds(Some(APART))?;
            let around = around.iter().map(|pattern| self.around_one_tuned(pattern)).collect::<Result<_>>()?;
            offer(&self.judged_by_folds(around, 1.0)?.losses, &|| {
                Ok((self.around_one_tuned(&self.by_evidence(Some(APART))?)?, IN_FOLDS))
            })?;
        }
        match best.1 {
            Some((lambda, share)) => self.score_on_all(&lambda, share),
            None => self.score_on_all(&self.alike(&self.tuned_by_folds()?.values)?, IN_FOLDS),
        }
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

/// The place of the least number; one that is not finite is never less.
fn least(numbers: &[f64]) -> usize {
    let size = |number: &f64| if number.is_finite() { *number } else { f64::INFINITY };
    let all = numbers.iter().map(size).enumerate();
    all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(place, _)| place)
}
