//! The last training: on all rows that have labels, with the λ that was found on a part of them.
//!
//! A penalty e^λ added to a mean over n' rows equals n'·e^λ added to a sum. On n rows it keeps its share of the sum if
//! λ becomes λ − ln(n/n'). Leaves that are declared so ([`Variable::log_penalty`]) are shifted; all others stay.

use crate::Result;
use crate::error::require;
use crate::generalisation::rows::Part;
use crate::problem::AnyProblem;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use bilevel_graph::{Array, Tree};

impl<L, T> Problem<L, T>
where
    L: Tree<Leaf = Variable> + Clone,
    T: Tree<Leaf = Variable> + Clone,
{
    /// Rescales this λ, learned with this share of the rows, for a training on all of them: logarithms of penalties
    /// added to a mean ([`Variable::log_penalty`]) are shifted, other leaves stay.
    ///
    /// ```
    /// use bilevel::{Array, Leaf, Problem, Variable};
    /// let lambda = Variable::constant([], 0.0).log_penalty();
    /// let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([], 0.0)))
    ///     .inner(|_, l, t| (t.0 - 1.0).square() + l.0.exp() * t.0.square())
    ///     .outer(|_, _, t| t.0.square())
    ///     .build()?;
    /// // Found with half of the rows: half the penalty is as large a part of the sum over all.
    /// let whole = problem.rescaled(&Leaf(Array::from_f64([], vec![0.0])?), 0.5)?;
    /// assert_eq!(whole.0.item().unwrap(), 0.5f64.ln());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn rescaled(&self, lambda: &L::With<Array>, share: f64) -> Result<L::With<Array>> {
        require(share > 0.0 && share.is_finite(), "share", share, "above 0")?;
        let any: &AnyProblem = self;
        let shifted = any.shifted(self.given_lambda(lambda)?, share.ln())?;
        let tree = self.trees().0;
        tree.rebuild(shifted).map_err(|error| crate::Error::Structure { what: "λ", error })
    }

    /// The same problem with all rows that have labels for training, and this λ of the problem [rescaled](Self::rescaled) for it: for the last
    /// training. A λ with a number for every training row does not fit more rows, and is refused.
    ///
    /// ```
    /// use bilevel::splits::{Part, Rows};
    /// use bilevel::{Array, Leaf, Problem, Variable};
    /// let lambda = Variable::constant([], 0.0).log_penalty();
    /// let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([], 0.0)))
    ///     .table("y", Array::from_f64([4], vec![1.0, 2.0, 3.0, 4.0])?, &Rows::given(0..2, 2..4))
    ///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    ///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
    ///     .build()?;
    /// let (whole, lambda) = problem.to_retrain(&Leaf(Array::from_f64([], vec![0.0])?))?;
    /// let trained = whole.train(&lambda).step(0.1).steps(200).run()?;
    /// assert_eq!(whole.rows_of(Part::Train), 4);
    /// assert!((trained.theta.0.item().unwrap() - 2.5 / 1.5).abs() < 1e-9); // a penalty of ½
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn to_retrain(&self, lambda: &L::With<Array>) -> Result<(Self, L::With<Array>)> {
        let whole = self.on_all_rows()?;
        let share = self.rows_of(Part::Train) as f64 / whole.rows_of(Part::Train).max(1) as f64;
        let lambda = self.rescaled(lambda, share)?;
        Ok((whole, lambda))
    }
}

impl AnyProblem {
    /// λ with the logarithms of penalties shifted.
    pub(crate) fn shifted(&self, lambda: Vec<Array>, by: f64) -> Result<Vec<Array>> {
        let one = |((_, variable), array): (&(String, Variable), Array)| {
            let by = if variable.penalty { by } else { 0.0 };
            let values: Vec<f64> = array.to_f64().iter().map(|value| value + by).collect();
            Ok(Array::from_values(array.shape(), &values, array.dtype())?)
        };
        self.lambda.iter().zip(lambda).map(one).collect()
    }
}
