//! What a method keeps from one hypergradient to the next: groups of leaves, one after the other in [`State::memory`].
//!
//! They are zeros before the first hypergradient, and part of every checkpoint.

use crate::leaves::Leaves;
use crate::problem::AnyProblem;
use crate::session::Session;
use crate::state::State;
use crate::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{DType, Executor, Meta};
use std::sync::Arc;

/// What one group looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    /// θ.
    Theta,
    /// λ.
    Lambda,
    /// So many rows, each like θ.
    RowsOfTheta(usize),
    /// So many rows, each like λ.
    RowsOfLambda(usize),
    /// A single 64-bit number, such as a count.
    Number,
}

impl Like {
    fn metas(self, problem: &AnyProblem) -> Vec<Meta> {
        let leaf = |rows: Option<usize>, variable: &Variable| {
            let shape = rows.into_iter().chain(variable.shape.iter().copied()).collect();
            Meta { dtype: problem.dtype, shape }
        };
        let all = |variables: &[(String, Variable)], rows| variables.iter().map(|(_, v)| leaf(rows, v)).collect();
        match self {
            Like::Theta => all(&problem.theta, None),
            Like::Lambda => all(&problem.lambda, None),
            Like::RowsOfTheta(rows) => all(&problem.theta, Some(rows)),
            Like::RowsOfLambda(rows) => all(&problem.lambda, Some(rows)),
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
    /// For these groups.
    pub fn new(session: &Session, groups: [Like; N]) -> Self {
        let groups = groups.map(|like| like.metas(session.problem()));
        Warm { groups, executor: session.executor().share() }
    }

    /// The groups in a state's memory, which is made where there is none yet.
    pub fn of(&self, state: &mut State) -> Result<Kept<N>> {
        let fresh = state.memory.is_empty();
        if fresh {
            state.memory = Leaves::zeros(&*self.executor, self.groups.iter().flatten())?;
        }
        if !state.memory.iter().map(|leaf| leaf.meta()).eq(self.groups.iter().flatten()) {
            let reason = "what this state keeps warm is another method's: begin with State::initial";
            return Err(Error::Problem { reason: reason.into() });
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
