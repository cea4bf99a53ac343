//! A problem with the structs of its λ and θ.

use crate::compiled::leaves::Leaves;
use crate::compiled::state::State;
use crate::problem::AnyProblem;
use crate::problem::named::Named;
use crate::problem::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Executor, Precision, Tree, TreeError};
use std::ops::Deref;

/// min over λ of E\[f(λ, θ)\], with θ drawn from, or minimising, the inner loss L_T(λ, θ).
///
/// λ and θ are structs with `#[derive(Tree)]` whose leaves define the initial value of each variable; the losses
/// receive the same structs filled with tensors.
///
/// ```
/// use bilevel::{Leaf, Problem, Variable};
/// // The paper's synthetic problem: f = (λ−θ)² + (θ−½)², L_T = θ³/3 − (1−λ²)θ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.1)), Leaf(Variable::constant([], 0.1)))
///     .inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
///     .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
///     .build()
///     .unwrap();
/// assert_eq!(problem.lambda_names(), [""]);
/// ```
///
/// Results are these structs, too, filled with arrays. To put problems of different types into one list,
/// [erase](Self::erase) them: this gives a `Problem` without type parameters, whose λ and θ are leaves by name. Every
/// function that needs an [`AnyProblem`] accepts both.
#[derive(Clone)]
pub struct Problem<L = Named<Variable>, T = Named<Variable>> {
    any: AnyProblem,
    lambda: L,
    theta: T,
}

impl<L, T> Deref for Problem<L, T> {
    type Target = AnyProblem;

    fn deref(&self) -> &AnyProblem {
        &self.any
    }
}

impl From<AnyProblem> for Problem {
    fn from(any: AnyProblem) -> Self {
        let lambda = any.lambda.iter().cloned().collect();
        let mut theta = any.theta.clone();
        for (place, name, array) in any.frozen.iter() {
            theta.insert(*place, (name.clone(), Variable::fixed(array.clone()).frozen()));
        }
        Problem { any, lambda, theta: theta.into_iter().collect() }
    }
}

impl<L: Tree<Leaf = Variable>, T: Tree<Leaf = Variable>> Problem<L, T> {
    pub(crate) fn of(any: AnyProblem, lambda: L, theta: T) -> Self {
        Problem { any, lambda, theta }
    }

    /// The same structs with another problem.
    pub(crate) fn with(&self, any: AnyProblem) -> Self
    where
        L: Clone,
        T: Clone,
    {
        Problem { any, lambda: self.lambda.clone(), theta: self.theta.clone() }
    }

    /// The trees of λ's and θ's variables.
    pub(crate) fn trees(&self) -> (&L, &T) {
        (&self.lambda, &self.theta)
    }

    /// The same problem without its structs: its λ and θ are leaves by name.
    ///
    /// ```
    /// use bilevel::methods::Rmd;
    /// use bilevel::{Driver, Leaf, Problem, Result, Tree, Variable};
    /// #[derive(Clone, Tree)]
    /// struct Pull<T> { to: T }
    /// fn one() -> Result<Problem> {
    ///     let (lambda, theta) = (Pull { to: Variable::constant([], 3.0) }, Leaf(Variable::constant([], 0.0)));
    ///     Problem::builder(lambda, theta)
    ///         .inner(|_, l, t| (t.0 - l.to).square())
    ///         .outer(|_, _, t| t.0.square())
    ///         .build()
    ///         .map(Problem::erase)
    /// }
    /// let outcome = Driver::new(&one()?, Rmd::default()).iterations(5).run()?;
    /// assert!(outcome.lambda.get("to").unwrap().item().unwrap() < 3.0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn erase(self) -> Problem {
        self.any.into()
    }

    /// λ's struct with the numbers of leaves of its shapes: a λ, a hypergradient, its standard error.
    ///
    /// ```
    /// use bilevel::methods::Rmd;
    /// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Tree, Variable};
    /// #[derive(Clone, Tree)]
    /// struct Pull<T> { to: T }
    /// let problem = Problem::builder(Pull { to: Variable::constant([], 3.0) }, Leaf(Variable::constant([], 0.0)))
    ///     .inner(|_, l, t| (t.0 - l.to).square() * 0.5)
    ///     .outer(|_, _, t| t.0.square() * 0.5)
    ///     .build()?;
    /// let session = Session::new(&problem, &Cpu::with_threads(1))?;
    /// let mut method = Rmd::default().prepare_in(&session, &InnerLoop::new(0.5, 50))?;
    /// let mut state = session.state(Key::from_seed(0))?;
    /// let slope = problem.lambda_of(&method.estimate(&mut state, Key::from_seed(0))?.value)?;
    /// assert!((slope.to.item().unwrap() - 3.0).abs() < 1e-6); // θ is λ and f is ½θ²
    /// assert!((problem.theta_of(&state.theta)?.0.item().unwrap() - 3.0).abs() < 1e-6);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn lambda_of(&self, leaves: &Leaves) -> Result<L::With<Array>> {
        self.lambda.rebuild(self.any.lambda_arrays(leaves)?).map_err(unlike("λ"))
    }

    /// θ's struct with the numbers of such leaves; those that are frozen have the problem's.
    pub fn theta_of(&self, leaves: &Leaves) -> Result<T::With<Array>> {
        self.theta.rebuild(self.any.theta_arrays(leaves)?).map_err(unlike("θ"))
    }

    /// The state with this λ and θ on an executor, with an empty memory. Numbers are converted to the problem's type.
    ///
    /// ```
    /// use bilevel::training::Evaluator;
    /// use bilevel::{Array, Cpu, Key, Leaf, Problem, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 3.0)))
    ///     .inner(|_, l, t| (t.0 - l.0).square())
    ///     .outer(|_, _, t| t.0)
    ///     .build()?;
    /// let cpu = Cpu::with_threads(1);
    /// let number = |value| Array::from_f64([], vec![value]).map(Leaf);
    /// let state = problem.state_at(&number(5.0)?, &number(1.0)?, &cpu)?;
    /// assert_eq!(Evaluator::new(&problem, &cpu)?.at(&state, Key::from_seed(0))?, [16.0, 1.0]);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn state_at(&self, lambda: &L::With<Array>, theta: &T::With<Array>, executor: &dyn Executor) -> Result<State> {
        Ok(State {
            lambda: Leaves::upload(executor, &self.given_lambda(lambda)?)?,
            theta: Leaves::upload(executor, &self.given_theta(theta)?)?,
            memory: Leaves::default(),
        })
    }

    /// The same problem in another floating-point type.
    ///
    /// ```
    /// use bilevel::{DType, Leaf, Problem, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .dtype(DType::F32)
    ///     .inner(|_, l, t| (t.0 - l.0).square())
    ///     .outer(|_, _, t| t.0)
    ///     .build()?;
    /// assert_eq!(problem.in_dtype(DType::F64)?.dtype(), DType::F64);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn in_dtype(&self, dtype: DType) -> Result<Self>
    where
        L: Clone,
        T: Clone,
    {
        Ok(Problem { any: self.any.in_dtype(dtype)?, lambda: self.lambda.clone(), theta: self.theta.clone() })
    }

    /// The same problem with the operands of all matrix products and convolutions rounded to this precision, and in
    /// `Bf16` also their results. This applies to both losses, all their derivatives, and the metrics. Sums and all
    /// other operations stay 32-bit floats. A problem in 64 bits has full precision only.
    ///
    /// It is part of a run's identity: a checkpoint cannot continue in another precision.
    /// [`Check::compare_precision`](crate::diagnostics::Check::compare_precision) measures the change of derivatives.
    /// The CPU computes the same numbers as a GPU, but gains no speed.
    ///
    /// ```
    /// use bilevel::{Array, DType, Leaf, Precision, Problem, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([1, 1], 0.0)), Leaf(Variable::constant([1, 1], 0.0)))
    ///     .dtype(DType::F32)
    ///     .data("x", Array::from_f32([1, 1], vec![1.0 + 1.0 / 256.0])?)
    ///     .inner(|s, l, t| (s.data("x").matmul(t.0) - l.0).square().sum_all())
    ///     .outer(|s, _, t| s.data("x").matmul(t.0).sum_all())
    ///     .build()?;
    /// let one = Leaf(Array::from_f32([1, 1], vec![1.0])?);
    /// let rounded = problem.in_precision(Precision::Bf16)?;
    /// assert_eq!(problem.train(&one).theta(&one).steps(0).run()?.outer_loss, 1.0 + 1.0 / 256.0);
    /// assert_eq!(rounded.train(&one).theta(&one).steps(0).run()?.outer_loss, 1.0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn in_precision(&self, precision: Precision) -> Result<Self>
    where
        L: Clone,
        T: Clone,
    {
        Ok(Problem { any: self.any.in_precision(precision)?, lambda: self.lambda.clone(), theta: self.theta.clone() })
    }

    /// The arrays of a given λ, leaf by leaf.
    pub(crate) fn given_lambda(&self, lambda: &L::With<Array>) -> Result<Vec<Array>> {
        self.any.given_lambda(&like(&self.lambda, lambda, "λ")?)
    }

    /// The arrays of the trained leaves of a given θ.
    pub(crate) fn given_theta(&self, theta: &T::With<Array>) -> Result<Vec<Array>> {
        self.any.given_theta(&like(&self.theta, theta, "θ")?)
    }
}

/// The leaves of a tree, which must have the structure of the problem's.
fn like<'a, S: Tree<Leaf = Variable>>(
    own: &S,
    given: &'a S::With<Array>,
    name: &'static str,
) -> Result<Vec<&'a Array>> {
    own.same_structure(given).map_err(unlike(name))?;
    Ok(given.leaves())
}

fn unlike(name: &'static str) -> impl Fn(TreeError) -> Error {
    move |error| Error::Structure { what: name, error }
}
