//! Shared parts of the implicit methods: the inner loop, the outer derivatives at its end, and the product that follows
//! the linear solve.
//!
//! Every derivative of one hypergradient uses the draw of step T, one past the inner loop's steps 0 … T−1. So all
//! products of a solve have the same minibatch and noise, different from those of the inner loop.

use crate::compiled::norms::square_norm;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{InnerStart, outer_gradient};
use bilevel_graph::{GaussNewton, gradient, hessian_vector, mixed_vector};

/// The number of the step whose draw the hypergradient uses.
pub(crate) fn counter(inner: &InnerLoop, graph: &Graph) -> Tensor {
    graph.scalar(inner.steps as f64, DType::I32)
}

/// The curvature matrix of the inner loss in a linear solve.
///
/// ```
/// use bilevel::methods::{CurvatureProduct, IftCg};
/// let method = IftCg { curvature: CurvatureProduct::GaussNewton, ..IftCg::default() };
/// assert_eq!(serde_json::to_value(method).unwrap()["curvature"], "gauss-newton");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CurvatureProduct {
    /// H = ∂²L_T/∂θ² itself: exact, and positive only if θ is at a minimum.
    #[default]
    Hessian,
    /// The Gauss-Newton matrix of the inner loss ([`GaussNewton`]), which omits the curvature of the model. It is
    /// positive semidefinite for a loss that is convex in the outputs of its model, and equal to H if the model is
    /// linear or fits without an error. Otherwise the omitted part biases the hypergradient.
    GaussNewton,
}

impl CurvatureProduct {
    /// The product with v, with the draw of the hypergradient.
    pub(crate) fn times(self, inner: &InnerLoop, trace: &Trace, v: &[Tensor]) -> Result<Vec<Tensor>> {
        self.times_at(counter(inner, trace.graph), trace, v)
    }

    /// The product with v, with the draw of this step.
    pub(crate) fn times_at(self, step: Tensor, trace: &Trace, v: &[Tensor]) -> Result<Vec<Tensor>> {
        let loss = trace.inner(&trace.theta, step)?;
        let product = match self {
            CurvatureProduct::Hessian => hessian_vector(loss, &trace.theta, v)?,
            CurvatureProduct::GaussNewton => GaussNewton::new(loss, &trace.theta)?.times(v)?,
        };
        Ok(or_zeros(product, &trace.theta))
    }

    /// Returns true if the matrix is positive semidefinite by construction, for every θ.
    ///
    /// ```
    /// use bilevel::methods::CurvatureProduct;
    /// use bilevel::{Leaf, Problem, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([3], 0.0)), Leaf(Variable::constant([3], 0.1)))
    ///     .inner(|_, l, t| (t.0.tanh() - 0.5).square().sum_all() + (l.0.exp() * t.0.square()).sum_all())
    ///     .outer(|_, _, t| t.0.square().sum_all())
    ///     .build()?;
    /// assert!(CurvatureProduct::GaussNewton.is_definite(&problem)?);
    /// assert!(!CurvatureProduct::Hessian.is_definite(&problem)?, "nobody knows before θ is there");
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn is_definite(self, problem: &AnyProblem) -> Result<bool> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let loss = trace.inner(&trace.theta, graph.step())?;
        Ok(self == CurvatureProduct::GaussNewton && GaussNewton::new(loss, &trace.theta)?.is_definite())
    }
}

/// A number of loop steps from `least` on.
pub(crate) fn count(name: &'static str, value: usize, least: usize) -> Result<()> {
    let must = if least == 0 { "below 2³¹" } else { "at least 1 and below 2³¹" };
    require((least..=i32::MAX as usize).contains(&value), name, value, must)
}

/// How the solution v of the linear system becomes the hypergradient: h = f_λ + \[vᵀ·J0\] − scale·vᵀC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ending {
    /// Factor of vᵀC.
    pub scale: f64,
    /// ρ of a proximal term (ρ/2)·‖θ−θ⁰(λ)‖² of the inner loop, whose own C is −ρ·J0: vᵀ·J0 is added.
    pub proximal: Option<f64>,
}

/// The point of a hypergradient, and the outer derivatives there.
pub struct Point {
    /// λ.
    pub lambda: Leaves,
    /// θ at the end of the inner loop.
    pub theta: Leaves,
    /// The key of the random draws.
    pub key: Key,
    /// f_λ.
    pub direct: Leaves,
    /// f_θ.
    pub f_theta: Leaves,
    /// f.
    pub outer_loss: f64,
}

impl Point {
    /// Binds λ and θ of a routine, and sets its key.
    pub fn place(&self, routine: &mut Routine) -> Result<()> {
        routine.bind_point(&self.lambda, &self.theta, self.key)
    }
}

/// The compiled parts around a linear solve: train, take the outer derivatives, and make the hypergradient of a solution.
///
/// ```
/// use bilevel::diagnostics::Cause;
/// use bilevel::parts::{ConjugateGradients, Ending, Implicit, Matrix};
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let inner = InnerLoop::new(0.5, 100);
/// let mut implicit = Implicit::new(&session, inner, Ending { scale: 1.0, proximal: None })?;
/// let matrix = Matrix { hessian: 1.0, identity: 0.0 };
/// let mut solver = ConjugateGradients::new(&session, &inner, matrix, 1, false)?;
///
/// let point = implicit.descend(&session.state(Key::from_seed(0))?, Key::from_seed(0), inner.step)?;
/// let solution = solver.solve(&point, None)?;
/// let found = implicit.finish(point, &solution.q, solver.products(), Cause::HessianNotPositive)?;
/// assert!((found.value[0].item()? - 2.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Implicit {
    /// The inner loop.
    pub inner: InnerLoop,
    start: InnerStart,
    descent: Routine,
    outer: Routine,
    ending: Routine,
    /// Whether the inner loss has a C, so that vᵀC is computed.
    mixed: bool,
}

impl Implicit {
    /// Compiles the parts for this inner loop and this ending.
    pub fn new(session: &Session, inner: InnerLoop, ending: Ending) -> Result<Self> {
        Self::stopping(session, inner, ending, false)
    }

    /// The same, with an inner loop that may end at a tolerance if this is true.
    pub(crate) fn stopping(session: &Session, inner: InnerLoop, ending: Ending, at_tolerance: bool) -> Result<Self> {
        let (last, mixed) = ending_program(session, &inner, ending)?;
        Ok(Implicit {
            inner,
            start: InnerStart::new(session)?,
            descent: descent_program(session, &inner, ending.proximal, at_tolerance)?,
            outer: outer_gradient(session)?,
            ending: last,
            mixed,
        })
    }

    /// Runs the inner loop from the state's θ with steps of γ, and evaluates the outer derivatives at its end.
    pub fn descend(&mut self, state: &State, key: Key, gamma: f64) -> Result<Point> {
        Ok(self.descend_to(state, key, gamma, None)?.0)
    }

    /// The same, until the gradient is at most the tolerance, if there is one; and the steps taken.
    pub(crate) fn descend_to(
        &mut self,
        state: &State,
        key: Key,
        gamma: f64,
        tolerance: Option<f64>,
    ) -> Result<(Point, usize)> {
        let (lambda, theta, steps) = (&state.lambda, &state.theta, self.inner.steps);
        self.start.place(lambda, theta, key)?;
        self.inner.place(&mut self.descent, gamma)?;
        self.descent.bind_point(lambda, theta, key)?;
        let taken = match tolerance {
            Some(tolerance) => until_small(&mut self.descent, tolerance, steps)?,
            None => {
                self.descent.run(0..steps as u32)?;
                steps
            }
        };
        Ok((self.here(state, key)?, taken))
    }

    /// Computes the outer derivatives at the state's θ, for a method with its own training.
    pub fn here(&mut self, state: &State, key: Key) -> Result<Point> {
        let (lambda, theta) = (&state.lambda, &state.theta);
        let (direct, f_theta) = (self.outer.outputs("direct")?, self.outer.outputs("f_theta")?);
        self.outer.bind_point(lambda, theta, key)?;
        self.outer.run(self.inner.last())?;
        let outer_loss = self.outer.number("outer")?;
        Ok(Point { lambda: lambda.clone(), theta: theta.clone(), key, direct, f_theta, outer_loss })
    }

    /// The hypergradient from the solution `v`, which took `products` Hessian products. `cause` is for a solution that is
    /// not finite.
    pub fn finish(&mut self, point: Point, v: &Leaves, products: usize, cause: Cause) -> Result<Hypergradient> {
        point.place(&mut self.ending)?;
        self.ending.bind("direct", &point.direct)?;
        self.ending.bind("v", v)?;
        let value = self.ending.fresh_outputs("h")?;
        self.ending.run(0..1)?;
        let oracles = Oracles {
            inner_gradients: self.inner.steps as u64,
            outer_gradients: 1,
            hessian_products: products as u64,
            mixed_products: self.mixed as u64,
            losses: 0,
        };
        Ok(Hypergradient::new(value, oracles)
            .with_inner_loss(self.ending.number("inner")?)
            .with_outer_loss(point.outer_loss)
            .blaming(cause))
    }
}

/// Steps, or iterations, between two checks of the residual. Nothing starts again there.
pub(crate) const STRETCH: usize = 10;

/// Runs a routine until the root of its output `square` is at most the tolerance, or it has made the most steps; how many it made.
pub(crate) fn until_small(routine: &mut Routine, tolerance: f64, most: usize) -> Result<usize> {
    let mut taken = 0;
    while taken < most {
        let next = (taken + STRETCH).min(most);
        routine.run(taken as u32..next as u32)?;
        taken = next;
        if routine.number("square")?.sqrt() <= tolerance {
            break;
        }
    }
    Ok(taken)
}

/// A step of the inner loop; with the square of its gradient, if the loop may end at a tolerance.
fn descent_program(session: &Session, inner: &InnerLoop, proximal: Option<f64>, at_tolerance: bool) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let mut slope = or_zeros(gradient(loss, theta)?, theta);
    if let (Some(rho), Some(start)) = (proximal, trace.start()?) {
        let pulled = |(i, s): (usize, &Tensor)| *s + (theta[i] - start[i]) * rho;
        slope = slope.iter().enumerate().map(pulled).collect();
    }
    let mut builder = inner.one_step(&trace, &slope, &updates, step).carry(Program::builder(&graph));
    if at_tolerance {
        builder = builder.output("square", square_norm(&slope).unwrap_or(graph.scalar(0.0, DType::F64)));
    }
    Routine::new(&builder.build()?, session)
}

/// The program, and whether it computes vᵀC.
fn ending_program(session: &Session, inner: &InnerLoop, ending: Ending) -> Result<(Routine, bool)> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta) = (&trace.lambda, &trace.theta);
    let (direct, v) = (trace.inputs_like("direct", lambda), trace.inputs_like("v", theta));
    let loss = trace.inner(theta, counter(inner, &graph))?;
    let mixed = mixed_vector(loss, theta, &v, lambda)?;
    let pulled = ending.proximal.map(|_| trace.through_start(&v)).transpose()?;
    let mut builder = Program::builder(&graph).output("inner", loss);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    for i in 0..lambda.len() {
        let base = pulled.as_ref().map_or(direct[i], |pulled| direct[i] + pulled[i]);
        builder = builder.output(format!("h.{i}"), mixed[i].map_or(base, |mixed| base - mixed * ending.scale));
    }
    Ok((Routine::new(&builder.build()?, session)?, mixed.iter().any(Option::is_some)))
}
