//! The errors of a precision: derivatives a with rounded products against derivatives b in full precision, both in 32
//! bits and at one λ and θ:
//!
//!   error = ‖a − b‖ / ‖b‖,   cosine = a·b / (‖a‖·‖b‖)

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::norms::euclidean;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::{Snapshot, State};
use crate::compiled::trace::{Trace, or_zeros};
use crate::error::require;
use crate::health::check::{Check, distance, draw_keys, loop_of, mean_hypergradient, snapshot_in};
use crate::hypergradient::Method;
use crate::{Error, Result};
use bilevel_cpu::Cpu;
use bilevel_graph::random::fill_normal_f64;
use bilevel_graph::{Array, DType, Graph, Precision, Program, Tensor, gradient_or_zeros, mixed_vector};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Folded into the key of a check, so that the vector of the products has separate draws.
const VECTOR: u32 = 3;

/// The derivative of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// ∇θ L_T.
    Gradient,
    /// H·v with H = ∂²L_T/∂θ² and a random v.
    HessianProduct,
    /// vᵀ·C with C = ∂²L_T/∂θ∂λ and the same v.
    MixedProduct,
    /// df/dλ, as the method of this name finds it.
    Hypergradient(String),
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compared::Gradient => f.pad("gradient"),
            Compared::HessianProduct => f.pad("Hessian product"),
            Compared::MixedProduct => f.pad("mixed product"),
            Compared::Hypergradient(method) => f.pad(&format!("hypergradient by {method}")),
        }
    }
}

/// How far one derivative is from itself in full precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PrecisionRow {
    /// The derivative.
    pub quantity: Compared,
    /// Its norm in full precision; `None` if it could not be computed.
    pub norm: Option<f64>,
    /// Norm of the difference over the norm in full precision; `None` if one of the two is not finite or could not be
    /// computed.
    pub error: Option<f64>,
    /// Cosine of the angle between the two; `None` as above.
    pub cosine: Option<f64>,
    /// The reason why it could not be computed, if so.
    pub failure: Option<String>,
}

/// The errors of a precision at one λ and θ: see [`Check::compare_precision`]. Prints as a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PrecisionReport {
    /// The precision that was compared with the full one.
    #[serde(with = "crate::health::precision_name")]
    pub precision: Precision,
    /// Gradient, Hessian product and mixed product of the inner loss, then the hypergradient of every method.
    pub rows: Vec<PrecisionRow>,
}

impl PrecisionReport {
    /// The row of a derivative.
    pub fn row(&self, quantity: &Compared) -> Option<&PrecisionRow> {
        self.rows.iter().find(|row| row.quantity == *quantity)
    }
}

impl Check<'_> {
    /// Compares derivatives in this precision with those in full precision, both in 32 bits and from the same λ, θ and
    /// draws. These are gradient, Hessian product and mixed product of the inner loss, and the hypergradient of every
    /// method. A hypergradient can lose much more accuracy than a gradient, so check this before a long run. Methods
    /// that sample should be averaged over [`draws`](Self::draws).
    ///
    /// ```
    /// use bilevel::diagnostics::Compared;
    /// use bilevel::methods::Rmd;
    /// use bilevel::{Array, DType, InnerLoop, Leaf, Precision, Problem, Variable};
    /// let x = Array::from_f32([4, 2], (0..8).map(|i| (i as f32).sin()).collect())?;
    /// let problem = Problem::builder(Leaf(Variable::constant([2, 1], 0.3)), Leaf(Variable::constant([2, 1], 0.7)))
    ///     .dtype(DType::F32)
    ///     .data("x", x)
    ///     .inner(|s, l, t| ((s.data("x").matmul(t.0) - 1.0).square().sum_all() + (l.0 * t.0.square()).sum_all()))
    ///     .outer(|s, _, t| (s.data("x").matmul(t.0) - 0.5).square().sum_all())
    ///     .build()?;
    /// let check = problem.check().method(Rmd::default()).inner(InnerLoop::new(0.05, 20));
    /// let report = check.compare_precision(Precision::Bf16)?;
    /// let row = report.row(&Compared::Hypergradient("rmd".into())).unwrap();
    /// assert!(row.error.unwrap() > 0.0 && row.error.unwrap() < 0.05, "{report}");
    /// assert!(row.cosine.unwrap() > 0.99, "{report}");
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn compare_precision(self, precision: Precision) -> Result<PrecisionReport> {
        require(self.draws > 0, "draws", 0.0, "at least 1")?;
        let executor = self.executor.unwrap_or_else(|| Box::new(Cpu::new()));
        let problem = self.problem.in_dtype(DType::F32)?.in_precision(Precision::Full)?;
        let full = Session::new(&problem, &*executor)?;
        let both = [full.in_precision(precision)?, full];
        let run_key = Key::from_seed(self.seed);
        let state = match self.at {
            Some(at) => at,
            None => State::initial(&problem, &*executor, run_key)?.snapshot()?,
        };
        let state = snapshot_in(&state, DType::F32)?;
        let keys = draw_keys(run_key, self.draws);

        let v = direction(&state.theta, run_key)?;
        let [rounded, exact] = both.each_ref().map(|session| products(session, &state, &v, keys[0]));
        let (rounded, exact) = (rounded?, exact?);
        let quantities = [Compared::Gradient, Compared::HessianProduct, Compared::MixedProduct];
        let compared = quantities.into_iter().zip(rounded.iter().zip(&exact));
        let mut rows: Vec<PrecisionRow> = compared.map(|(quantity, (a, b))| PrecisionRow::of(quantity, a, b)).collect();
        for (method, own) in &self.methods {
            let quantity = Compared::Hypergradient(method.name().into());
            let inner = loop_of(own.or(self.inner), &**method);
            let compared = |session| mean_hypergradient((&**method, &inner), session, &state, &keys);
            let [rounded, exact] = both.each_ref().map(compared);
            rows.push(match (rounded, exact) {
                (Ok((a, _)), Ok((b, _))) => PrecisionRow::of(quantity, &a, &b),
                (rounded, exact) => PrecisionRow::failed(quantity, precision, rounded.err(), exact),
            });
        }
        Ok(PrecisionReport { precision, rows })
    }
}

impl PrecisionRow {
    fn of(quantity: Compared, rounded: &[f64], exact: &[f64]) -> Self {
        let finite = |number: f64| Some(number).filter(|number| number.is_finite());
        let (error, cosine) = distance(rounded, exact);
        let (norm, error) = (finite(euclidean(exact)), finite(error));
        PrecisionRow { quantity, norm, error, cosine: error.and(finite(cosine)), failure: None }
    }

    fn failed(
        quantity: Compared,
        precision: Precision,
        rounded: Option<Error>,
        exact: Result<(Vec<f64>, bool)>,
    ) -> Self {
        let (norm, failure) = match (exact, rounded) {
            (Err(error), _) => (None, Some(error.to_string())),
            (Ok((exact, _)), rounded) => {
                (Some(euclidean(&exact)), rounded.map(|error| format!("in {precision}, {error}")))
            }
        };
        PrecisionRow { quantity, norm, error: None, cosine: None, failure }
    }
}

/// A random vector like θ.
fn direction(theta: &[Array], run_key: Key) -> Result<Vec<Array>> {
    let key = run_key.fold_in(VECTOR);
    let one = |(leaf, array): (usize, &Array)| {
        let mut numbers = vec![0.0; array.len()];
        fill_normal_f64(key.words(), leaf as u32, 0, 0, &mut numbers);
        Ok(Array::from_values(array.shape(), &numbers, DType::F32)?)
    };
    theta.iter().enumerate().map(one).collect()
}

/// ∇θ L_T, H·v and vᵀ·C, each with all its leaves one after the other.
fn products(session: &Session, state: &Snapshot, v: &[Array], key: Key) -> Result<[Vec<f64>; 3]> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta) = (&trace.lambda, &trace.theta);
    let loss = trace.inner(theta, graph.step())?;
    let along = trace.inputs_like("v", theta);
    let variables: Vec<Tensor> = theta.iter().chain(lambda).copied().collect();
    let second = or_zeros(mixed_vector(loss, theta, &along, &variables)?, &variables);
    let (hessian, mixed) = second.split_at(theta.len());
    let groups = [("gradient", &gradient_or_zeros(loss, theta)?[..]), ("hessian", hessian), ("mixed", mixed)];
    let mut builder = Program::builder(&graph);
    for (name, leaves) in groups {
        for (i, leaf) in leaves.iter().enumerate() {
            builder = builder.output(format!("{name}.{i}"), *leaf);
        }
    }
    for input in along {
        builder = builder.keep_input(input);
    }
    let mut routine = Routine::new(&builder.build()?, session)?;
    let state = State::from_snapshot(state, session.executor())?;
    routine.bind_point(&state.lambda, &state.theta, key)?;
    routine.bind("v", &Leaves::upload(session.executor(), v)?)?;
    let [gradient, hessian, mixed] = groups.map(|(name, _)| routine.outputs(name));
    let (gradient, hessian, mixed) = (gradient?, hessian?, mixed?);
    routine.run(0..1)?;
    Ok([gradient.numbers()?, hessian.numbers()?, mixed.numbers()?])
}

impl fmt::Display for PrecisionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Derivatives with products in {}, compared with full precision in 32 bits:\n", self.precision)?;
        let widest = self.rows.iter().map(|row| row.quantity.to_string().len()).max().unwrap_or(0);
        writeln!(f, "  {:widest$} {:>10}  {:>11} {:>10}", "derivative", "norm", "error", "cosine")?;
        for PrecisionRow { quantity, norm, error, cosine, .. } in &self.rows {
            let norm = norm.map_or("–".into(), |norm| format!("{norm:.3e}"));
            let error = error.map_or("–".into(), |error| format!("{error:.1e}"));
            let cosine = cosine.map_or("–".into(), |cosine| format!("{cosine:.6}"));
            writeln!(f, "  {quantity:widest$} {norm:>10}  {error:>11} {cosine:>10}")?;
        }
        for row in &self.rows {
            if let Some(failure) = &row.failure {
                writeln!(f, "\n{}: {failure}.", row.quantity)?;
            }
        }
        Ok(())
    }
}
