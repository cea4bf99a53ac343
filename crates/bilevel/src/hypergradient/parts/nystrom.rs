//! The Nyström solver: the inverse of a curvature that is known by some of its columns.
//!
//!   H_K = H\[:,K\]·H\[K,K\]⁺·H\[K,:\]        from k columns of H, drawn again for every hypergradient
//!   (H_K + ρI)·q = f_θ:   q = f_θ/ρ − H\[:,K\]·(ρ²·H\[K,K\] + ρ·H\[K,:\]·H\[:,K\])⁻¹·H\[K,:\]·f_θ
//!
//! The k × k system is solved on the host in 64-bit floats, with full pivoting; directions in which it is singular are left out. With
//! all columns it is (H + ρI)⁻¹, exactly.

use crate::compiled::purpose::Purpose;
use crate::hypergradient::parts::implicit::{CurvatureProduct, Point};
use crate::hypergradient::parts::solve::{LinearSolver, Solution};
use crate::hypergradient::parts::unit_vectors::{distinct, unit};
use crate::hypergradient::vocabulary::*;
use crate::problem::variable::Role;
use std::ops::Range;

/// The solver with its programs and memory.
pub(crate) struct NystromSolver {
    regularisation: f64,
    /// The positions of the trained elements among all elements of θ.
    trained: Vec<Range<usize>>,
    column: Routine,
    product: Routine,
    adding: Routine,
    columns: Vec<Leaves>,
    q: Leaves,
}

impl NystromSolver {
    /// Compiles the solver with this many columns and this ρ.
    pub fn new(
        session: &Session,
        inner: &InnerLoop,
        curvature: CurvatureProduct,
        (columns, regularisation): (usize, f64),
    ) -> Result<Self> {
        let mut trained = vec![];
        let mut from = 0;
        for (_, variable) in &session.problem().theta {
            let size: usize = variable.shape.iter().product();
            if variable.role == Role::Trained {
                trained.push(from..from + size);
            }
            from += size;
        }
        let count = columns.min(trained.iter().map(ExactSizeIterator::len).sum());
        Ok(NystromSolver {
            regularisation,
            trained,
            column: column_program(inner, curvature, session)?,
            product: product_program(session)?,
            adding: adding_program(session)?,
            columns: (0..count).map(|_| Like::Theta.zeros(session)).collect::<Result<_>>()?,
            q: Like::Theta.zeros(session)?,
        })
    }

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
}

impl LinearSolver for NystromSolver {
    fn solve_for(&mut self, point: &Point, _: Option<&Leaves>, _: Option<f64>) -> Result<Solution> {
        let (columns, q) = (self.columns.clone(), self.q.clone());
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
        self.adding.bind("q", &q)?;
        let parts = columns.iter().zip(weights.iter().map(|weight| -weight)).chain([(&point.f_theta, 1.0 / rho)]);
        for (part, weight) in parts {
            self.adding.bind("column", part)?;
            self.adding.set_numbers("weight", [weight])?;
            self.adding.run(0..1)?;
        }
        Ok(Solution::after(q, k))
    }

    fn cause(&self) -> Cause {
        Cause::HessianNotPositive
    }
}

/// The column of H whose number is the input `number.0`.
fn column_program(inner: &InnerLoop, curvature: CurvatureProduct, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let e = unit(&graph, &trace.theta, graph.input("number.0", [], DType::I32));
    let mut builder = Program::builder(&graph);
    for (i, column) in curvature.times(inner, &trace, &e)?.into_iter().enumerate() {
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

/// The solution of a square system by elimination with full pivoting, 0 along the rest once no pivot is above rounding.
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
