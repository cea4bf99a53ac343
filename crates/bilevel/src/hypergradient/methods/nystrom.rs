//! Implicit differentiation with a Nyström approximation of the Hessian (Hataya and Yamada, "Nyström method for accurate and
//! scalable implicit differentiation", AISTATS 2023).
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   H ≈ H_K = H\[:,K\]·H\[K,K\]⁺·H\[K,:\]        from k columns of H, drawn again for every hypergradient
//!   (H_K + ρI)·q = f_θ:   q = f_θ/ρ − H\[:,K\]·(ρ²·H\[K,K\] + ρ·H\[K,:\]·H\[:,K\])⁻¹·H\[K,:\]·f_θ
//!   h = f_λ − qᵀ·C
//!
//! The k × k system is solved on the host in 64-bit floats, with full pivoting; directions in which it is singular are left out. With
//! all columns it is (H + ρI)⁻¹, exactly. With fewer it is biased by what they leave out of H, which ρ stands in for, and which is
//! little where H has few large eigenvalues; unlike an iteration it cannot diverge.

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::purpose::Purpose;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::{Trace, or_zeros};
use crate::error::require;
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{Ending, Implicit, Point, counter};
use crate::hypergradient::parts::unit_vectors::{distinct, unit};
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, positive};
use crate::problem::variable::Role;
use crate::truth::{Claims, Condition};
use crate::{Cause, Result};
use bilevel_graph::{DType, Graph, Program, hessian_vector};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Settings of implicit differentiation with a Nyström approximation.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{Cpu, Key, Leaf, Method, Nystrom, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ²: with ρ added to a curvature of 1, the hypergradient is λ/(1 + ρ).
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let method = Nystrom { columns: 1, regularisation: 0.25, step: 0.5, ..Nystrom::default() };
/// let h = method.prepare_in(&session)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 1.6).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nystrom {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T; 0 takes the hypergradient at the θ given.
    pub steps: usize,
    /// Columns k of the Hessian, at least 1; all of them where θ has fewer numbers.
    pub columns: usize,
    /// ρ, added to every eigenvalue, above 0.
    pub regularisation: f64,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
}

impl Default for Nystrom {
    fn default() -> Self {
        Nystrom { step: 0.01, steps: 100, columns: 10, regularisation: 0.01, optimizer: InnerOptimizer::Sgd }
    }
}

struct Prepared {
    regularisation: f64,
    count: usize,
    /// The numbers of what is trained among all numbers of θ.
    trained: Vec<Range<usize>>,
    implicit: Implicit,
    column: Routine,
    product: Routine,
    adding: Routine,
    session: Session,
    /// The columns, and the solution.
    work: Option<(Vec<Leaves>, Leaves)>,
}

impl Method for Nystrom {
    fn name(&self) -> &'static str {
        "nystrom"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let Nystrom { step, steps, columns, regularisation, optimizer } = *self;
        positive("regularisation", regularisation)?;
        require(columns > 0, "columns", columns as f64, "at least 1")?;
        let inner = InnerLoop::new(step, steps, 0.0, 1.0)?.with_optimizer(optimizer)?;
        let mut trained = vec![];
        let mut from = 0;
        for (_, variable) in &session.problem().theta {
            let size: usize = variable.shape.iter().product();
            if variable.role == Role::Trained {
                trained.push(from..from + size);
            }
            from += size;
        }
        Ok(Box::new(Prepared {
            regularisation,
            count: columns.min(trained.iter().map(ExactSizeIterator::len).sum()),
            trained,
            implicit: Implicit::new(session, inner, Ending { scale: 1.0, proximal: None })?,
            column: column_program(&inner, session)?,
            product: product_program(session)?,
            adding: adding_program(session)?,
            session: session.clone(),
            work: None,
        }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Start
    }

    fn claims(&self) -> Claims {
        // Exact with all columns, as ρ goes to 0.
        Claims { minimum: true, only: Some(Condition::FewParameters), ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps).with_optimizer(self.optimizer))
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps) = (suited.step, suited.steps);
    }
}

/// The column of H whose number is the input `number.0`.
fn column_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let e = unit(&graph, &trace.theta, graph.input("number.0", [], DType::I32));
    let loss = trace.inner(&trace.theta, counter(inner, &graph))?;
    let mut builder = Program::builder(&graph);
    for (i, column) in or_zeros(hessian_vector(loss, &trace.theta, &e)?, &trace.theta).into_iter().enumerate() {
        builder = builder.output(format!("column.{i}"), column);
    }
    Routine::new(&builder.build()?, session)
}

/// aᵀ·b, and the number of b at the place `number.0`.
fn product_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let [a, b] = ["a", "b"].map(|name| trace.inputs_like(name, &trace.theta));
    let e = unit(&graph, &trace.theta, graph.input("number.0", [], DType::I32));
    let mut sums = [graph.scalar(0.0, DType::F64); 2];
    for (sum, left) in sums.iter_mut().zip([&a, &e]) {
        for (left, b) in left.iter().zip(&b) {
            *sum = *sum + (left.convert(DType::F64) * b.convert(DType::F64)).sum_all();
        }
    }
    let builder = Program::builder(&graph).output("product", sums[0]).output("entry", sums[1]);
    Routine::new(&builder.build()?, session)
}

/// q ← q + weight·column.
fn adding_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let [q, column] = ["q", "column"].map(|name| trace.inputs_like(name, &trace.theta));
    let weight = graph.input("weight.0", [], session.problem().dtype);
    let builder =
        q.iter().zip(column).fold(Program::builder(&graph), |builder, (q, c)| builder.carry(*q, *q + c * weight));
    Routine::new(&builder.build()?, session)
}

impl Prepared {
    /// The place among all numbers of θ of a number of those that are trained.
    fn place(&self, mut number: usize) -> usize {
        for range in &self.trained {
            match number.checked_sub(range.len()) {
                Some(rest) => number = rest,
                None => return range.start + number,
            }
        }
        number
    }

    /// aᵀ·b and b at this place.
    fn product(&mut self, a: &Leaves, b: &Leaves, place: usize) -> Result<(f64, f64)> {
        self.product.bind("a", a)?;
        self.product.bind("b", b)?;
        self.product.set_numbers("number", [place as f64])?;
        self.product.run(0..1)?;
        Ok((self.product.number("product")?, self.product.number("entry")?))
    }

    /// (H_K + ρI)⁻¹·f_θ.
    fn solve(&mut self, point: &Point, columns: &[Leaves], q: &Leaves) -> Result<()> {
        let (k, rho) = (columns.len(), self.regularisation);
        let total = self.trained.iter().map(ExactSizeIterator::len).sum();
        let places: Vec<usize> =
            distinct(point.key, Purpose::Columns, total, k).into_iter().map(|number| self.place(number)).collect();
        point.place(&mut self.column)?;
        for (column, &place) in columns.iter().zip(&places) {
            self.column.bind_outputs("column", column)?;
            self.column.set_numbers("number", [place as f64])?;
            self.column.run(0..1)?;
        }
        let mut matrix = vec![vec![0.0; k]; k];
        let mut right = vec![0.0; k];
        for i in 0..k {
            for j in 0..=i {
                let (product, entry) = self.product(&columns[j], &columns[i], places[j])?;
                matrix[i][j] = rho * rho * entry + rho * product;
                matrix[j][i] = matrix[i][j];
            }
            right[i] = self.product(&columns[i], &point.f_theta, 0)?.0;
        }
        let weights = eliminate(matrix, right);
        q.zero()?;
        self.adding.bind("q", q)?;
        let parts = columns.iter().zip(weights.iter().map(|weight| -weight)).chain([(&point.f_theta, 1.0 / rho)]);
        for (part, weight) in parts {
            self.adding.bind("column", part)?;
            self.adding.set_numbers("weight", [weight])?;
            self.adding.run(0..1)?;
        }
        Ok(())
    }
}

/// The solution of a square system by elimination with full pivoting, 0 along whatever is left once no pivot is above rounding.
fn eliminate(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    let mut order: Vec<usize> = (0..n).collect();
    let mut largest = 0.0;
    let mut rank = n;
    for k in 0..n {
        let places = (k..n).flat_map(|i| (k..n).map(move |j| (i, j)));
        let size = |(i, j): &(usize, usize)| a[*i][*j].abs();
        let Some((row, column)) = places.max_by(|x, y| size(x).total_cmp(&size(y))) else { break };
        let pivot = a[row][column].abs();
        largest = f64::max(largest, pivot);
        if pivot <= largest * n as f64 * f64::EPSILON {
            rank = k;
            break;
        }
        a.swap(k, row);
        b.swap(k, row);
        a.iter_mut().for_each(|row| row.swap(k, column));
        order.swap(k, column);
        let (above, below) = a.split_at_mut(k + 1);
        let pivoted = &above[k];
        for (number, row) in below.iter_mut().enumerate() {
            let factor = row[k] / pivoted[k];
            row[k..].iter_mut().zip(&pivoted[k..]).for_each(|(x, y)| *x -= factor * y);
            b[k + 1 + number] -= factor * b[k];
        }
    }
    let mut x = vec![0.0; n];
    for k in (0..rank).rev() {
        let rest: f64 = (k + 1..rank).map(|j| a[k][j] * x[order[j]]).sum();
        x[order[k]] = (b[k] - rest) / a[k][k];
    }
    x
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let point = self.implicit.descend(state, key)?;
        let work = match self.work.take() {
            Some(work) => work,
            None => {
                let executor = self.session.executor();
                let columns = (0..self.count).map(|_| state.theta.zeros_like(executor)).collect::<Result<_>>()?;
                (columns, state.theta.zeros_like(executor)?)
            }
        };
        let (columns, q) = self.work.insert(work).clone();
        self.solve(&point, &columns, &q)?;
        self.implicit.finish(point, &q, self.count, Cause::HessianNotPositive)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
