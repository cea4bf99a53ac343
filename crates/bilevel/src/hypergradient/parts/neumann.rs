//! The truncated Neumann series of the inverse Hessian, with one draw for all its factors or a draw for each.
//!
//!   p = Σ over j = 0 … i of (I − αH)ʲ·f_θ,      α·p ≈ H⁻¹·f_θ
//!
//! With one draw it runs as p ← f_θ + (I − αH)·p. Both make one Hessian product for each term after the first.

use crate::hypergradient::parts::implicit::{CurvatureProduct, Point};
use crate::hypergradient::parts::solve::{LinearSolver, Richardson, Solution};
use crate::hypergradient::vocabulary::*;

/// A series that grows by more than this beyond its number of terms cannot be convergent.
const MAX_GROWTH: f64 = 1e6;

/// The series with the draw of the hypergradient.
pub(crate) struct NeumannSeries {
    /// The method, for its error.
    name: &'static str,
    series: Richardson,
    terms: usize,
    sum: Leaves,
    norm: LazyNorm,
}

impl NeumannSeries {
    /// This many terms after the first, with this α.
    pub fn new(
        name: &'static str,
        session: &Session,
        inner: &InnerLoop,
        curvature: CurvatureProduct,
        (alpha, terms): (f64, usize),
    ) -> Result<Self> {
        let series = Richardson::with_curvature(session, inner, curvature, (alpha, 1.0), terms)?;
        let norm = LazyNorm::new(session.executor());
        Ok(NeumannSeries { name, series, terms, sum: Like::Theta.zeros(session)?, norm })
    }
}

impl LinearSolver for NeumannSeries {
    fn solve_for(&mut self, point: &Point, _: Option<&Leaves>, _: Option<f64>) -> Result<Solution> {
        // The first term is f_θ itself, which the sum must not overwrite.
        self.sum.copy_from(&point.f_theta)?;
        self.series.solve(point, &self.sum)?;
        // If the series converges, no partial sum is longer than its number of terms times the first.
        let growth = self.norm.of(&self.sum)? / self.norm.of(&point.f_theta)? / (self.terms + 1) as f64;
        if growth > MAX_GROWTH {
            let seen = format!("{}: the series grew {growth:.0e} times beyond its first term", self.name);
            return Err(Error::Diverged { seen, cause: Cause::SolveStepTooLarge });
        }
        Ok(Solution::after(self.sum.clone(), self.terms))
    }

    fn cause(&self) -> Cause {
        Cause::SolveStepTooLarge
    }
}

/// The series with the draws of the steps after the inner loop, one for each factor.
pub(crate) struct StochasticSeries {
    series: Routine,
    /// The step whose draw the first factor has.
    first: u32,
    terms: usize,
}

impl StochasticSeries {
    /// This many terms after the first, with this α.
    pub fn new(
        session: &Session,
        inner: &InnerLoop,
        curvature: CurvatureProduct,
        (alpha, terms): (f64, usize),
    ) -> Result<Self> {
        // r ← (I − αH)·r with the draw of the step, and sum ← sum + r.
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let [r, sum] = ["r", "sum"].map(|name| trace.inputs_like(name, &trace.theta));
        let product = curvature.times_at(graph.step(), &trace, &r)?;
        let mut builder = Program::builder(&graph);
        for i in 0..r.len() {
            let next = r[i] - product[i] * alpha;
            builder = builder.carry(r[i], next).carry(sum[i], sum[i] + next);
        }
        let series = Routine::new(&builder.build()?, session)?;
        Ok(StochasticSeries { series, first: inner.last().end, terms })
    }
}

impl LinearSolver for StochasticSeries {
    fn solve_for(&mut self, point: &Point, _: Option<&Leaves>, _: Option<f64>) -> Result<Solution> {
        let (r, sum) = (self.series.inputs("r")?, self.series.inputs("sum")?);
        r.copy_from(&point.f_theta)?;
        sum.copy_from(&point.f_theta)?;
        point.place(&mut self.series)?;
        self.series.run(self.first..self.first + self.terms as u32)?;
        Ok(Solution::after(sum, self.terms))
    }

    fn cause(&self) -> Cause {
        Cause::SolveStepTooLarge
    }
}
