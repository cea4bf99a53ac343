//! A problem on an executor.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::state::State;
use crate::outer::stopping::StopSignal;
use crate::problem::AnyProblem;
use crate::problem::feeding::loader::Loader;
use crate::problem::feeding::stream::Streamed;
use crate::training::Evaluator;
use bilevel_graph::{Buffer, Executor, Precision, rank_error};
use std::sync::Arc;

/// A problem on an executor: its data lie there once, for all that is compiled for it. A clone is another handle to the same
/// session.
///
/// ```
/// use bilevel::methods::{LangevinAdjoint, Rmd};
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0.square())
///     .build()?;
/// let session = Session::new(&problem, &Cpu::new())?;
/// // Both methods, and the evaluator, work on the same data.
/// let inner = InnerLoop::default();
/// let rmd = Rmd::default().prepare_in(&session, &inner)?;
/// let mut methods = [rmd, LangevinAdjoint::default().prepare_in(&session, &inner)?];
/// let mut evaluator = session.evaluator()?;
/// for method in &mut methods {
///     let mut state = session.state(Key::from_seed(1))?;
///     method.estimate(&mut state, Key::from_seed(2))?;
///     assert!(evaluator.at(&state, Key::from_seed(3))?[0] < 4.0, "training has begun");
/// }
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    problem: AnyProblem,
    executor: Arc<dyn Executor>,
    data: Arc<[(String, Buffer)]>,
    /// One for every stream; each ends with the last who can ask it.
    loaders: Arc<[Arc<Loader>]>,
    stop: StopSignal,
}

impl Session {
    /// Brings a problem's data to an executor.
    pub fn new(problem: &AnyProblem, executor: &dyn Executor) -> Result<Self> {
        let executor = executor.share();
        let mut data = vec![];
        for (name, array) in problem.data.iter() {
            data.push((format!("data.{name}"), executor.adopt(array)?));
        }
        for (_, name, array) in problem.frozen.iter() {
            data.push((format!("frozen.{name}"), executor.adopt(array)?));
        }
        let load = |stream: &Streamed| Ok(Arc::new(Loader::start(stream.clone(), problem.dtype)?));
        let loaders = problem.streams.iter().map(load).collect::<Result<_>>()?;
        Ok(Session { problem: problem.clone(), executor, data: data.into(), loaders, stop: StopSignal::new() })
    }

    /// The same session, whose runs end early once this is set, so that a method compiled in it stops with its run.
    pub fn stopped_by(mut self, signal: StopSignal) -> Self {
        self.stop = signal;
        self
    }

    /// A session of the same problem in another precision, on the same data.
    pub(crate) fn in_precision(&self, precision: Precision) -> Result<Self> {
        Ok(Session { problem: self.problem.in_precision(precision)?, ..self.clone() })
    }

    /// The same session for work that this rank does alone, on the same data.
    pub(crate) fn alone(&self) -> Self {
        Session { executor: self.executor.alone(), ..self.clone() }
    }

    /// The problem.
    pub fn problem(&self) -> &AnyProblem {
        &self.problem
    }

    /// The executor.
    pub fn executor(&self) -> &dyn Executor {
        &*self.executor
    }

    /// The state a run with this key starts from.
    pub fn state(&self, key: Key) -> Result<State> {
        State::initial(&self.problem, self.executor(), key)
    }

    /// The losses and measures of the problem.
    pub fn evaluator(&self) -> Result<Evaluator> {
        Evaluator::in_session(self)
    }

    /// The data of the problem and the frozen leaves of θ, by the names of their inputs.
    pub(crate) fn data(&self) -> &[(String, Buffer)] {
        &self.data
    }

    /// The loader of the stream of this name.
    pub(crate) fn loader(&self, name: &str) -> Option<&Arc<Loader>> {
        self.loaders.iter().find(|loader| loader.name() == name)
    }

    pub(crate) fn stop(&self) -> &StopSignal {
        &self.stop
    }

    /// The signal for work that one rank does alone. If several ranks compute together, one that stops alone would
    /// leave the others waiting, so all stop after it.
    pub(crate) fn stop_of_one_rank(&self) -> StopSignal {
        if self.executor.link().is_some() { StopSignal::new() } else { self.stop.clone() }
    }

    /// Refuses to continue if ranks that compute together have not resumed from the same checkpoint.
    pub(crate) fn same_iteration(&self, own: u32) -> Result<()> {
        let Some(link) = self.executor.link() else { return Ok(()) };
        let all = link.numbers(own.into())?;
        match all.iter().position(|&other| other != all[0]) {
            None => Ok(()),
            Some(other) => Err(rank_error(format!(
                "rank {other} resumes after iteration {} and rank 0 after iteration {}; all ranks must see the folder of the run",
                all[other], all[0]
            ))
            .into()),
        }
    }

    /// Does work of this rank alone, such as calling its observers.
    pub(crate) fn on_one_rank<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.executor.link() {
            Some(link) => link.on_one_rank(work),
            None => work(),
        }
    }

    /// The largest of the numbers of all ranks that compute together.
    pub(crate) fn largest(&self, own: u64) -> Result<u64> {
        Ok(match self.executor.link() {
            Some(link) => link.largest(own)?,
            None => own,
        })
    }
}
