//! The outer loss on the rows of any part, row by row or block by block, so that two λ can be compared on the same rows.
//!
//! The mean of paired differences over m rows has the standard error √(Σ (dᵢ − d)² / (m·(m − 1))). If a problem has no
//! loss row by row, the rows are divided into up to [`MAX_BLOCKS`] blocks of neighbours, whose mean losses take the
//! place of rows.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::Trace;
use crate::generalisation::rows::Part;
use crate::generalisation::work::operations;
use bilevel_graph::{Graph, Program};

/// Blocks that the rows of a part are divided into: few enough to trace the loss as often, enough for a standard error.
pub(crate) const MAX_BLOCKS: usize = 16;

/// Evaluates the outer loss on the rows of a part.
///
/// ```
/// use bilevel::splits::{Part, RowLosses, Rows};
/// use bilevel::{Array, Cpu, Key, Leaf, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 1.0)))
///     .table("y", Array::from_f64([6], (0..6).map(f64::from).collect())?, &Rows::given(0..2, 2..4).with_test(4..6))
///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
///     .outer_rows(|s, _, t| (s.data("y") - t.0).square())
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let state = session.state(Key::from_seed(0))?;
/// assert_eq!(RowLosses::new(&session, Part::Test)?.at(&state, Key::from_seed(0))?, [9.0, 16.0]);
/// assert_eq!(session.evaluator()?.at(&state, Key::from_seed(0))?[1], 2.5); // the mean over the validation rows
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct RowLosses {
    routine: Routine,
    operations: f64,
}

impl RowLosses {
    /// Compiles the losses on a part.
    pub fn new(session: &Session, part: Part) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let rows = trace.row_losses(part, graph.step())?;
        let program = Program::builder(&graph).output("rows", rows).build()?;
        Ok(RowLosses { routine: Routine::new(&program, session)?, operations: operations(&program) })
    }

    /// The operations of an evaluation.
    pub(crate) fn operations(&self) -> f64 {
        self.operations
    }

    /// The losses at this λ and θ, one for each row or block; random draws follow from the key.
    pub fn at(&mut self, state: &State, key: Key) -> Result<Vec<f64>> {
        self.routine.bind_point(&state.lambda, &state.theta, key)?;
        self.routine.run(0..1)?;
        self.routine.numbers("rows")
    }
}

/// The mean of paired differences, and its standard error.
///
/// ```
/// let paired = bilevel::splits::Paired::of(&[1.0, 2.0, 4.0], &[0.5, 1.0, 2.5]);
/// assert_eq!(paired.mean, 1.0);
/// assert!((paired.standard_error - (0.25f64 / 3.0).sqrt()).abs() < 1e-15);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Paired {
    /// The mean of the first less that of the second.
    pub mean: f64,
    /// Its standard error; infinite for a single pair.
    pub standard_error: f64,
}

impl Paired {
    /// The paired difference of two lists of the same rows.
    pub fn of(first: &[f64], second: &[f64]) -> Self {
        let off: Vec<f64> = first.iter().zip(second).map(|(a, b)| a - b).collect();
        let count = off.len() as f64;
        let mean = off.iter().sum::<f64>() / count;
        let squares: f64 = off.iter().map(|d| (d - mean) * (d - mean)).sum();
        let standard_error = if off.len() < 2 { f64::INFINITY } else { (squares / (count * (count - 1.0))).sqrt() };
        Paired { mean, standard_error }
    }
}
