//! The state of an outer loop between hypergradients.

use crate::Result;
use crate::compiled::initial::Initial;
use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::hypergradient::MemoryTable;
use crate::problem::AnyProblem;
use crate::problem::variable::Variable;
use bilevel_graph::{Array, Executor};

/// Folded into the key of a run, so that λ and θ have separate draws.
const LAMBDA: u32 = 1;
pub(crate) const THETA: u32 = 2;

/// λ, θ and the method's memory, on their device. A method updates them in place.
///
/// ```
/// use bilevel::{Cpu, Key, Leaf, Problem, State, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([2], 0.5)), Leaf(Variable::constant([], 3.0)))
///     .inner(|_, l, t| (t.0 - l.0.sum_all()).square())
///     .outer(|_, _, t| t.0.square())
///     .build()?;
/// let cpu = Cpu::with_threads(1);
/// let state = State::initial(&problem, &cpu, Key::from_seed(0))?;
/// assert_eq!(state.lambda.numbers()?, [0.5, 0.5]);
/// // A copy that does not change with it, and back again.
/// let snapshot = state.snapshot()?;
/// assert_eq!(State::from_snapshot(&snapshot, &cpu)?.snapshot()?, snapshot);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct State {
    /// λ, leaf by leaf.
    pub lambda: Leaves,
    /// θ, leaf by leaf.
    pub theta: Leaves,
    /// The method's memory, such as an adjoint; empty at first.
    pub memory: Leaves,
}

/// A [`State`] on the host, for users, files and tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// λ, leaf by leaf.
    pub lambda: Vec<Array>,
    /// θ, leaf by leaf.
    pub theta: Vec<Array>,
    /// The method's memory.
    pub memory: Vec<Array>,
}

impl State {
    /// The state a run with this key starts from.
    pub fn initial(problem: &AnyProblem, executor: &dyn Executor, key: Key) -> Result<Self> {
        let first = |tree: &'static str, variables: &[(String, Variable)], number: u32| -> Result<Leaves> {
            let mut initial = Initial::new(tree, variables, problem.dtype, executor)?;
            let leaves = initial.leaves(executor)?;
            initial.place(&leaves, key.fold_in(number))?;
            Ok(leaves)
        };
        let (lambda, theta) = (first("λ", &problem.lambda, LAMBDA)?, first("θ", &problem.theta, THETA)?);
        Ok(State { lambda, theta, memory: Leaves::default() })
    }

    /// A copy on the host.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot { lambda: self.lambda.arrays()?, theta: self.theta.arrays()?, memory: self.memory.arrays()? })
    }

    /// Creates a state from a copy on the host.
    pub fn from_snapshot(snapshot: &Snapshot, executor: &dyn Executor) -> Result<Self> {
        let upload = |arrays: &[Array]| Leaves::upload(executor, arrays);
        Ok(State {
            lambda: upload(&snapshot.lambda)?,
            theta: upload(&snapshot.theta)?,
            memory: upload(&snapshot.memory)?,
        })
    }

    /// A copy in separate memory, made without the host.
    pub fn duplicate(&self, executor: &dyn Executor) -> Result<Self> {
        Ok(State {
            lambda: self.lambda.duplicate(executor)?,
            theta: self.theta.duplicate(executor)?,
            memory: self.memory.duplicate(executor)?,
        })
    }

    /// Takes the numbers of another state of the same problem, without the host.
    pub fn copy_from(&mut self, other: &State, executor: &dyn Executor) -> Result<()> {
        self.copy_changes_from(other, &[], executor)
    }

    /// As [`copy_from`](Self::copy_from), if the tables in their memory differ only in these rows.
    pub(crate) fn copy_changes_from(
        &mut self,
        other: &State,
        tables: &[MemoryTable],
        executor: &dyn Executor,
    ) -> Result<()> {
        self.lambda.copy_from(&other.lambda)?;
        self.theta.copy_from(&other.theta)?;
        if self.memory.is_like(&other.memory) {
            self.memory.copy_changes_from(&other.memory, tables)
        } else {
            self.memory = other.memory.duplicate(executor)?;
            Ok(())
        }
    }
}
