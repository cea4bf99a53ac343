//! The memory of a method between hypergradients: groups of leaves, one after the other in [`State::memory`].
//!
//! They are zeros before the first hypergradient, and part of every checkpoint.

use crate::hypergradient::vocabulary::*;
use crate::problem::variable::Variable;
use bilevel_graph::{Executor, Meta};
use std::sync::Arc;

/// The shapes of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    /// θ.
    Theta,
    /// λ.
    Lambda,
    /// This many of θ, one after the other.
    ManyTheta(usize),
    /// This many of λ, one after the other.
    ManyLambda(usize),
    /// This many rows, each like θ.
    RowsOfTheta(usize),
    /// This many rows, each like λ.
    RowsOfLambda(usize),
    /// A single 64-bit number, such as a count.
    Number,
}

impl Like {
    /// One such group, of zeros.
    pub fn zeros(self, session: &Session) -> Result<Leaves> {
        Leaves::zeros(session.executor(), &self.metas(session.problem()))
    }

    fn metas(self, problem: &AnyProblem) -> Vec<Meta> {
        let leaf = |(_, variable): &(String, Variable)| Meta { dtype: problem.dtype, shape: variable.shape.clone() };
        let table = |rows: usize, variable: &(String, Variable)| {
            let Meta { dtype, shape } = leaf(variable);
            Meta { dtype, shape: [vec![rows], shape].concat() }
        };
        let all = |variables: &[(String, Variable)], times: usize| {
            let one: Vec<Meta> = variables.iter().map(leaf).collect();
            std::iter::repeat_n(one, times).flatten().collect()
        };
        match self {
            Like::Theta => all(&problem.theta, 1),
            Like::Lambda => all(&problem.lambda, 1),
            Like::ManyTheta(times) => all(&problem.theta, times),
            Like::ManyLambda(times) => all(&problem.lambda, times),
            Like::RowsOfTheta(rows) => problem.theta.iter().map(|variable| table(rows, variable)).collect(),
            Like::RowsOfLambda(rows) => problem.lambda.iter().map(|variable| table(rows, variable)).collect(),
            Like::Number => vec![Meta { dtype: DType::F64, shape: vec![] }],
        }
    }
}

/// The layout of a method's memory.
pub struct Warm<const N: usize> {
    groups: [Vec<Meta>; N],
    executor: Arc<dyn Executor>,
}

/// The groups of a memory.
pub struct Kept<const N: usize> {
    /// The groups, in the order of the layout.
    pub groups: [Leaves; N],
    /// True before the first hypergradient: all are zeros.
    pub fresh: bool,
}

impl<const N: usize> Warm<N> {
    /// Prepares a memory of these groups.
    pub fn new(session: &Session, groups: [Like; N]) -> Self {
        let groups = groups.map(|like| like.metas(session.problem()));
        Warm { groups, executor: session.executor().share() }
    }

    /// The groups in a state's memory, which is created if there is none yet.
    pub fn of(&self, state: &mut State) -> Result<Kept<N>> {
        let fresh = state.memory.is_empty();
        if fresh {
            state.memory = Leaves::zeros(&*self.executor, self.groups.iter().flatten())?;
        }
        if !state.memory.iter().map(|leaf| leaf.meta()).eq(self.groups.iter().flatten()) {
            let reason = "the memory of this state belongs to another method; start with State::initial";
            return Err(Error::ForeignState { reason: reason.into() });
        }
        let mut leaves = state.memory.iter().cloned();
        let groups = self.groups.each_ref().map(|group| leaves.by_ref().take(group.len()).collect());
        Ok(Kept { groups, fresh })
    }
}

/// The number in a group of one.
pub fn number(group: &Leaves) -> Result<f64> {
    Ok(group[0].item()?)
}

/// Sets the number in a group of one.
pub fn set_number(group: &Leaves, value: f64) -> Result<()> {
    Ok(group[0].set_item(value)?)
}

/// One after the other of a group of many, each like these leaves.
pub fn each(group: &Leaves, like: &Leaves) -> Vec<Leaves> {
    group.chunks(like.len()).map(|leaves| leaves.iter().cloned().collect()).collect()
}
