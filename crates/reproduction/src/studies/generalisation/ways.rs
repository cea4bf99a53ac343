//! The ways to choose λ, each on the same labelled rows: what is learned from which rows, and what is trained on at the end.

use bilevel::graph::Executor;
use bilevel::methods::{Evidence, LangevinAdjoint};
use bilevel::optimizers::{Adam, InnerOptimizer, Momentum, Schedule};
use bilevel::splits::Guard;
use bilevel::{Array, Driver, InnerLoop, Key, Method, Named, Outcome, Problem, Result, State, Tree};
use bilevel_run::{Context, Measure, Place, Task};
use bilevel_tasks::FewRows;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// A way to choose λ.
pub(super) struct Way {
    pub name: &'static str,
    take: fn(&Bench) -> Result<Score>,
}

/// Ways without hypergradients.
pub(super) const BASELINES: [&str; 3] =
    ["no penalty, all rows", "one tuned on the split, half the rows", "one tuned by folds, all rows"];
/// Ways that this library adds.
pub(super) const OURS: [&str; 7] = [
    "guard, all rows",
    "folds and guard, all rows",
    "shrinkage and guard, all rows",
    "folds, shrinkage and guard, all rows",
    "one by evidence, all rows",
    "each by evidence, all rows",
    "each by evidence, shrunk, all rows",
];

pub(super) const WAYS: [Way; 11] = [
    Way { name: BASELINES[0], take: |bench| bench.score_on_all(&bench.one(LOWEST)?, 1.0) },
    Way { name: BASELINES[1], take: |bench| bench.score(&bench.problem, &bench.one(bench.tuned()?)?) },
    Way {
        name: BASELINES[2],
        take: |bench| {
            let folds = bench.problem.folds(FOLDS, bench.work.split)?;
            bench.score_on_all(&bench.one(bench.tuned_on(&folds)?)?, IN_FOLDS)
        },
    },
    Way {
        name: "learned on the split, half the rows",
        take: |bench| bench.score(&bench.problem, &bench.learned(&bench.problem, NO_GUARD)?.lambda),
    },
    Way {
        name: OURS[0],
        take: |bench| {
            let found = bench.learned(&bench.held_out()?, Guard::default())?;
            bench.score_on_all(&found.lambda, 0.5)
        },
    },
    Way {
        name: OURS[1],
        take: |bench| {
            let found = bench.learned(&bench.folded()?, Guard::default())?;
            bench.score_on_all(&found.lambda, IN_FOLDS)
        },
    },
    Way { name: OURS[2], take: |bench| bench.score_on_all(&bench.shrunk(&bench.held_out()?)?, 0.5) },
    Way { name: OURS[3], take: |bench| bench.score_on_all(&bench.shrunk(&bench.folded()?)?, IN_FOLDS) },
    Way { name: OURS[4], take: |bench| bench.score_on_all(&bench.by_evidence(Some(TIED))?, 1.0) },
    Way { name: OURS[5], take: |bench| bench.score_on_all(&bench.by_evidence(None)?, 1.0) },
    Way { name: OURS[6], take: |bench| bench.score_on_all(&bench.by_evidence(Some(APART))?, 1.0) },
];

const FOLDS: usize = 5;
/// The share of the rows that a training of a fold sees.
const IN_FOLDS: f64 = 1.0 - 1.0 / FOLDS as f64;
const HELD_OUT: f64 = 0.2;
const NO_GUARD: Guard = Guard { every: 0, patience: 0 };
/// The logarithm of no penalty.
const LOWEST: f64 = -12.0;
/// Logarithms of one penalty for all weights, the largest first.
const GRID: [f64; 11] = [0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0, -10.0];
/// How far apart logarithms of penalties may be; that with the least held-out loss is taken.
const DEVIATIONS: [f64; 3] = [0.1, 0.4, 1.6];
/// Next to not apart, and the width of a broad prior.
const TIED: f64 = 0.01;
const APART: f64 = 1.0;
/// The rate of λ.
const RATE: f64 = 0.1;

/// One way on one split.
#[derive(Clone, Serialize)]
pub(super) struct Work {
    pub task: FewRows,
    pub way: String,
    pub split: u64,
    /// Outer iterations.
    pub iterations: u32,
    /// Steps of a last training, with momentum.
    pub steps: usize,
}

/// What came of it.
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
        let context = Context { seed: self.split, data: place.data.clone(), ..Context::default() };
        let problem = Task::build(&self.task, &context)?;
        let all = problem.on_all_rows()?;
        let bench = Bench { work: self, context, problem, all, executor: place.executor.clone() };
        let way = WAYS.iter().find(|way| way.name == self.way);
        let way = way.ok_or_else(|| bilevel::Error::other(format!("there is no way '{}'", self.way)))?;
        let score = (way.take)(&bench)?;
        Ok(Score { seconds: began.elapsed().as_secs_f64(), ..score })
    }
}

/// A split, and what is trained on it.
struct Bench<'a> {
    work: &'a Work,
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

    /// One logarithm for all penalties.
    fn one(&self, value: f64) -> Result<Named<Array>> {
        self.filled(&self.problem, |_| value)
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
        let number = |name: &str| trained.get(name).copied().unwrap_or(f64::NAN);
        Ok(Score { loss: number("test loss"), error: number("test error"), seconds: 0.0 })
    }

    fn train(
        &self,
        problem: &Problem,
        lambda: &Named<Array>,
    ) -> Result<bilevel::training::Trained<Named<bilevel::Variable>>> {
        let optimizer = InnerOptimizer::Momentum(Momentum::default());
        let inner = self.task_loop();
        let training = problem.train(lambda).step(0.5 * inner.step).steps(self.work.steps).optimizer(optimizer);
        training.seed(self.work.split).executor(self.executor.clone()).run()
    }

    fn task_loop(&self) -> InnerLoop {
        Task::defaults(&self.work.task).inner
    }

    /// The same by a training on all labelled rows, where λ is beside a mean over this share of them.
    fn score_on_all(&self, lambda: &Named<Array>, share: f64) -> Result<Score> {
        let shifted = lambda.map(|leaf| {
            let values: Vec<f64> = leaf.to_f64().iter().map(|value| value + share.ln()).collect();
            Array::from_values(leaf.shape(), &values, leaf.dtype())
        });
        let leaves = shifted.into_leaves().into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        let names = self.problem.lambda_names().into_iter().map(String::from);
        self.score(&self.all, &names.zip(leaves).collect())
    }

    /// The logarithm of one penalty that is best on the validation rows.
    fn tuned(&self) -> Result<f64> {
        self.tuned_on(std::slice::from_ref(&self.problem))
    }

    /// The same by the mean over these divisions.
    fn tuned_on(&self, problems: &[Problem]) -> Result<f64> {
        let mut best = (f64::INFINITY, GRID[0]);
        for value in GRID {
            let lambda = self.one(value)?;
            let losses = problems.iter().map(|problem| Ok(self.train(problem, &lambda)?.outer_loss));
            let loss = losses.sum::<Result<f64>>()?;
            if loss < best.0 {
                best = (loss, value);
            }
        }
        Ok(best.1)
    }

    /// λ from the best single value on.
    fn learned(&self, problem: &Problem, guard: Guard) -> Result<Outcome> {
        self.run(problem, LangevinAdjoint::default(), (self.task_loop(), guard), &self.one(self.tuned()?)?)
    }

    fn run(
        &self,
        problem: &Problem,
        method: impl Method + 'static,
        (inner, guard): (InnerLoop, Guard),
        start: &Named<Array>,
    ) -> Result<Outcome> {
        let driver = Driver::new(problem, method).inner(inner).guard(guard).seed(self.work.split);
        let driver = driver.executor(self.executor.clone()).start_from(start).diagnose_every(0);
        let schedule = Schedule::cosine(RATE, self.work.iterations, 0.0);
        driver.optimizer(Adam::default()).schedule(schedule).iterations(self.work.iterations).run()
    }

    /// λ that are pulled towards one value, as strongly as held-out rows want it.
    fn shrunk(&self, problem: &Problem) -> Result<Named<Array>> {
        let tuned = self.tuned()?;
        let mut best: Option<(f64, Named<Array>)> = None;
        for deviation in DEVIATIONS {
            let shrunk = problem.shrunk(deviation)?;
            let start = self.shrunk_start(shrunk.problem(), tuned)?;
            let method = LangevinAdjoint::default();
            let found = self.run(shrunk.problem(), method, (self.task_loop(), Guard::default()), &start)?;
            let loss = found.guard.map_or(f64::INFINITY, |guard| guard.held_out_loss);
            if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                best = Some((loss, shrunk.lambda(&found.lambda)?));
            }
        }
        best.map(|(_, lambda)| lambda).ok_or_else(|| bilevel::Error::other("there is no deviation to try"))
    }

    /// One value as the mean of every group, and no offsets.
    fn shrunk_start(&self, problem: &Problem, value: f64) -> Result<Named<Array>> {
        let groups = problem.lambda_names().len() / 2;
        self.filled(problem, |leaf| if leaf < groups { value } else { 0.0 })
    }

    /// λ by the evidence of all labelled rows, pulled towards one value where a deviation is given.
    fn by_evidence(&self, deviation: Option<f64>) -> Result<Named<Array>> {
        let problem = Task::build(&self.work.task, &Context { evidence: true, ..self.context.clone() })?;
        let inner = InnerLoop { burn_in: 0, ..self.task_loop() }.at_temperature(1.0 / self.work.task.rows as f64);
        let start = self.work.task.start;
        let go = |problem: &Problem, from: &Named<Array>| {
            Ok::<_, bilevel::Error>(self.run(problem, Evidence::default(), (inner, NO_GUARD), from)?.lambda)
        };
        match deviation {
            None => go(&problem, &self.one(start)?),
            Some(deviation) => {
                let shrunk = problem.shrunk(deviation)?;
                let found = go(shrunk.problem(), &self.shrunk_start(shrunk.problem(), start)?)?;
                shrunk.lambda(&found)
            }
        }
    }
}
