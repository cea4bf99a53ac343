//! Shrinkage: many λ that are pulled towards one value for each of their groups.
//!
//!   λⱼ = μ_g + δⱼ,   δⱼ ~ N(0, s²),   f + (1/n)·Σ δⱼ²/(2s²)   is minimised, with n rows that judge
//!
//! A group g is a leaf of λ. s → 0 is one tuned value per group, s → ∞ leaves λ free: s limits the differences within a
//! group. For a problem that is judged by the evidence, the same prior is added to its inner loss as a hyperprior.

use crate::error::require;
use crate::generalisation::rows::Part;
use crate::outer::stopping::Outcome;
use crate::problem::named::Named;
use crate::problem::typed::Problem;
use crate::problem::variable::{Start, Variable};
use crate::problem::{AnyProblem, FlatLoss};
use crate::{Error, Result};
use bilevel_graph::{Array, Tensor, Tree};
use std::sync::Arc;

/// A problem whose λ are means and offsets, and the way back.
///
/// ```
/// use bilevel::methods::IftCg;
/// use bilevel::splits::Rows;
/// use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Variable};
/// let y = |by: f64| (0..40).map(|i| by + (i as f64 * 1.7).sin()).collect::<Vec<_>>();
/// let columns: Vec<f64> = y(1.0).into_iter().zip(y(0.1)).flat_map(|(a, b)| [a, b]).collect();
/// let lambda = Variable::constant([2], -1.0).at_least(-8.0).at_most(4.0);
/// let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([2], 0.0)))
///     .table("y", Array::from_f64([40, 2], columns)?, &Rows::given(0..20, 20..40))
///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + (l.0.exp() * t.0.square()).sum_all())
///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
///     .build()?;
/// let spread = |strength: f64| {
///     let shrunk = problem.shrunk(strength)?;
///     let run = Driver::new(shrunk.problem(), IftCg::default()).inner(InnerLoop::new(0.2, 100)).rate(2.0).iterations(200);
///     let lambda = shrunk.lambda(&run.run()?.lambda)?.leaves()[0].to_f64();
///     Ok::<_, bilevel::Error>((lambda[0] - lambda[1]).abs())
/// };
/// assert!(spread(0.05)? < 0.2 && spread(100.0)? > 0.5, "{} {}", spread(0.05)?, spread(100.0)?);
/// # use bilevel::Tree;
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone)]
pub struct Shrunk {
    problem: Problem,
    /// Names and bounds of the λ as they were.
    leaves: Vec<(String, Variable)>,
}

/// The result at the strength of shrinkage that held-out rows prefer.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShrunkFound {
    /// The standard deviation within a group.
    pub deviation: f64,
    /// The λ of the problem as it was.
    pub lambda: Named<Array>,
    /// The run, whose λ are means and offsets.
    pub outcome: Outcome,
}

impl Shrunk {
    /// The problem to run.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The λ of the problem as it was, from means and offsets.
    pub fn lambda(&self, found: &Named<Array>) -> Result<Named<Array>> {
        let all = found.leaves();
        let expected = 2 * self.leaves.len();
        if all.len() != expected {
            return Err(Error::LeafCount { what: "λ".into(), found: all.len(), expected });
        }
        let (means, offsets) = all.split_at(self.leaves.len());
        let one = |((name, variable), (mean, offset)): (&(String, Variable), (&&Array, &&Array))| {
            let ((low, high), mean) = (variable.bounds(), mean.item().unwrap_or(f64::NAN));
            let values: Vec<f64> = offset.to_f64().iter().map(|offset| (mean + offset).max(low).min(high)).collect();
            Ok((name.clone(), Array::from_values(offset.shape(), &values, offset.dtype())?))
        };
        self.leaves.iter().zip(means.iter().zip(offsets)).map(one).collect()
    }
}

impl<L, T> Problem<L, T>
where
    L: Tree<Leaf = Variable> + Clone,
    T: Tree<Leaf = Variable> + Clone,
{
    /// The λ of the strength that held-out rows prefer: `learn` runs the shrunk problem of each of these standard
    /// deviations with its guard on. The one with the least held-out loss is kept. The rows that choose the strength
    /// are not those that λ is learned by.
    ///
    /// ```
    /// use bilevel::methods::IftCg;
    /// use bilevel::splits::Split;
    /// use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Variable};
    /// let y: Vec<f64> = (0..80).map(|i| (i as f64 * 1.7).sin() + if i % 2 == 0 { 1.0 } else { 0.1 }).collect();
    /// let lambda = Variable::constant([2], -1.0).at_least(-8.0).at_most(4.0);
    /// let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([2], 0.0)))
    ///     .table("y", Array::from_f64([40, 2], y)?, &Split::default().rows(40)?)
    ///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + (l.0.exp() * t.0.square()).sum_all())
    ///     .outer_rows(|s, _, t| (s.data("y") - t.0).square().sum([1]))
    ///     .build()?;
    /// let found = problem.shrunk_by_held_out_rows(&[0.1, 1.0, 10.0], |shrunk| {
    ///     Driver::new(shrunk, IftCg::default()).inner(InnerLoop::new(0.2, 50)).rate(1.0).iterations(50).run()
    /// })?;
    /// assert!([0.1, 1.0, 10.0].contains(&found.deviation));
    /// assert_eq!(found.lambda.leaves()[0].len(), 2);
    /// # use bilevel::Tree;
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn shrunk_by_held_out_rows(
        &self,
        deviations: &[f64],
        mut learn: impl FnMut(&Problem) -> Result<Outcome>,
    ) -> Result<ShrunkFound> {
        let mut best: Option<(f64, ShrunkFound)> = None;
        for &deviation in deviations {
            let shrunk = self.shrunk(deviation)?;
            let outcome = learn(shrunk.problem())?;
            let Some(guard) = outcome.guard else {
                let reason = "the strength of shrinkage is chosen by held-out rows, but the guard has judged none; hold some out \
                              with .holding_out(…), or run longer";
                return Err(Error::Conflict { reason: reason.into() });
            };
            if best.as_ref().is_none_or(|(least, _)| guard.held_out_loss < *least) {
                let lambda = shrunk.lambda(&outcome.lambda)?;
                best = Some((guard.held_out_loss, ShrunkFound { deviation, lambda, outcome }));
            }
        }
        let none = || Error::Conflict { reason: "there is no standard deviation to try; give at least one".into() };
        best.map(|(_, found)| found).ok_or_else(none)
    }

    /// The same problem with every leaf of λ as a mean and offsets from it that are normal with this standard deviation: see [`Shrunk`].
    pub fn shrunk(&self, deviation: f64) -> Result<Shrunk> {
        let any: &AnyProblem = self;
        any.shrunk_by(deviation)
    }
}

impl AnyProblem {
    fn shrunk_by(&self, deviation: f64) -> Result<Shrunk> {
        require(deviation > 0.0 && deviation.is_finite(), "deviation", deviation, "above 0")?;
        let judging = if self.judged_by_evidence { Part::Train } else { Part::Validation };
        let rows = self.rows_of(judging).max(1);
        let weight = 0.5 / (deviation * deviation * rows as f64);
        let bounds: Arc<[(f64, f64)]> = self.lambda.iter().map(|(_, variable)| variable.bounds()).collect();
        let groups = bounds.len();
        let together = Arc::new(move |lambda: &[Tensor]| -> Vec<Tensor> {
            let (means, offsets) = lambda.split_at(groups);
            let one = |((&mean, &offset), &(low, high)): ((&Tensor, &Tensor), &(f64, f64))| {
                let sum = mean.broadcast_to(offset.shape()) + offset;
                if (low, high) == (f64::NEG_INFINITY, f64::INFINITY) { sum } else { sum.clamp(low, high) }
            };
            means.iter().zip(offsets).zip(bounds.iter()).map(one).collect()
        });
        let plain = |loss: &FlatLoss| -> FlatLoss {
            let (loss, together) = (loss.clone(), together.clone());
            Arc::new(move |scope, lambda, theta| loss(scope, &together(lambda), theta))
        };
        let with_prior = |loss: &FlatLoss| -> FlatLoss {
            let loss = plain(loss);
            Arc::new(move |scope, lambda, theta| {
                let squares = lambda[groups..].iter().map(|offset| offset.square().sum_all());
                let sum = squares.reduce(|a, b| a + b);
                let loss = loss(scope, lambda, theta)?.reshape([]);
                Ok(sum.map_or(loss, |sum| loss + sum * weight).check()?)
            })
        };
        let start = self.start.clone().map(|start| -> crate::problem::FlatStart {
            let together = together.clone();
            Arc::new(move |scope, lambda| start(scope, &together(lambda)))
        });
        let mut lambda: Vec<(String, Variable)> = vec![];
        let mut offsets = vec![];
        for (name, variable) in &self.lambda {
            let ((low, high), (mean, offset)) = (variable.bounds(), centred(variable)?);
            let bounded = Variable::constant([], mean).at_least(low).at_most(high).rate(variable.rate);
            lambda.push((format!("{name}{}mean", if name.is_empty() { "" } else { "." }), bounded));
            offsets
                .push((format!("{name}{}offset", if name.is_empty() { "" } else { "." }), offset.rate(variable.rate)));
        }
        lambda.extend(offsets);
        let (inner, outer) = match self.judged_by_evidence {
            true => (with_prior(&self.inner), with_prior(&self.outer)),
            false => (plain(&self.inner), with_prior(&self.outer)),
        };
        let problem = AnyProblem {
            lambda,
            inner,
            outer,
            // Rows are judged without the prior, block by block too.
            outer_rows: self.outer_rows.as_ref().map(plain),
            outer_plain: Some(plain(self.outer_plain.as_ref().unwrap_or(&self.outer))),
            start,
            measures: self.measures.iter().map(|(name, measure)| (name.clone(), plain(measure))).collect(),
            paths: Arc::default(),
            ..self.clone()
        };
        let graph = bilevel_graph::Graph::new();
        crate::compiled::trace::Trace::new(&graph, &problem)?.check()?;
        Ok(Shrunk { problem: problem.into(), leaves: self.lambda.clone() })
    }
}

/// The mean of a leaf's start, and the leaf with that mean subtracted from its start.
fn centred(variable: &Variable) -> Result<(f64, Variable)> {
    let shape = &variable.shape;
    Ok(match &variable.start {
        Start::Constant(value) => (*value, Variable::constant(shape, 0.0)),
        Start::Fixed(array) => {
            let values = array.to_f64();
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let off: Vec<f64> = values.iter().map(|value| value - mean).collect();
            (mean, Variable::fixed(Array::from_values(shape, &off, array.dtype())?))
        }
        Start::Normal(deviation) => (0.0, Variable::normal(shape, *deviation)),
        Start::Uniform(low, high) => {
            let mean = 0.5 * (low + high);
            (mean, Variable::uniform(shape, low - mean, high - mean))
        }
    })
}
