//! The losses and measures of a problem at any λ and θ.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::Trace;
use crate::outer::measures::LOSSES;
use crate::problem::AnyProblem;
use bilevel_graph::{Executor, Graph, Program};

/// Evaluates the inner loss, the outer loss and the problem's own measures.
///
/// ```
/// use bilevel::{Cpu, Key, Leaf, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 3.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0)
///     .measure("product", |_, l, t| l.0 * t.0)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut evaluator = session.evaluator()?;
/// let state = session.state(Key::from_seed(0))?;
/// assert_eq!(evaluator.names(), ["inner", "outer", "product"]);
/// assert_eq!(evaluator.at(&state, Key::from_seed(0))?, [1.0, 3.0, 6.0]);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Evaluator {
    routine: Routine,
    names: Vec<String>,
}

impl Evaluator {
    /// Compiles the losses and measures of a problem.
    pub fn new(problem: &AnyProblem, executor: &dyn Executor) -> Result<Self> {
        Self::in_session(&Session::new(problem, executor)?)
    }

    /// As [`new`](Self::new), sharing a session's data with everything else compiled for it.
    pub fn in_session(session: &Session) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let step = graph.step();
        let mut all = vec![trace.inner(&trace.theta, step)?, trace.outer(&trace.theta, step)?];
        all.extend(trace.measures(step)?);
        let mut builder = Program::builder(&graph);
        for (i, number) in all.into_iter().enumerate() {
            builder = builder.output(format!("measure.{i}"), number);
        }
        let own = session.problem().measures.iter().map(|(name, _)| name.clone());
        Ok(Evaluator {
            routine: Routine::new(&builder.build()?, session)?,
            names: LOSSES.map(String::from).into_iter().chain(own).collect(),
        })
    }

    /// `inner`, `outer`, and the problem's measures as they were named.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The numbers at this λ and θ, in the order of the names; random draws follow from the key.
    pub fn at(&mut self, state: &State, key: Key) -> Result<Vec<f64>> {
        self.at_step(state, key, 0)
    }

    /// The same with the draws of another step.
    pub(crate) fn at_step(&mut self, state: &State, key: Key, step: u32) -> Result<Vec<f64>> {
        self.routine.bind_point(&state.lambda, &state.theta, key)?;
        self.routine.run(step..step + 1)?;
        (0..self.names.len()).map(|i| self.routine.number(&format!("measure.{i}"))).collect()
    }
}
