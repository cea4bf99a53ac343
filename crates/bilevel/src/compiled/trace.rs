//! A problem as tensors on a graph.

use crate::compiled::purpose::{Caller, Purpose};
use crate::generalisation::row_losses::MAX_BLOCKS;
use crate::generalisation::rows::Part;
use crate::problem::AnyProblem;
use crate::problem::feeding::finite_sum::FiniteSum;
use crate::problem::feeding::sources::{Read, Sources};
use crate::problem::scope::Scope;
use crate::problem::variable::{Role, Variable};
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Graph, Tensor, gradient, vjp};

/// A problem as tensors, for a new method to differentiate. λ, θ, data and the random key of a hypergradient are inputs
/// of the graph, and a [`Routine`](crate::programs::Routine) sets them by name.
///
/// ```
/// use bilevel::graph::{Graph, gradient};
/// use bilevel::programs::{Trace, or_zeros};
/// use bilevel::{Leaf, Problem, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([3], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square().sum_all())
///     .outer(|_, _, t| t.0.sum_all())
///     .build()?;
/// let graph = Graph::new();
/// let trace = Trace::new(&graph, &problem)?;
/// let loss = trace.inner(&trace.theta, graph.step())?;
/// let slope = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
/// assert_eq!(slope[0].shape(), [3]);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Trace<'g> {
    /// The graph everything is on.
    pub graph: &'g Graph,
    /// The problem.
    pub problem: &'g AnyProblem,
    /// λ, leaf by leaf.
    pub lambda: Vec<Tensor>,
    /// θ, leaf by leaf.
    pub theta: Vec<Tensor>,
    /// The key of the random draws.
    pub key: Tensor,
    /// The inner step γ, an input: a schedule may change it between runs.
    pub gamma: Tensor,
    /// The size κ·√(2τγ) of the step's noise.
    pub noise_size: Tensor,
    sources: Sources,
    /// Leaves of θ that are not trained, with their places among all leaves.
    frozen: Vec<(usize, Tensor)>,
}

/// The inner loss of one step, and the new values of the statistics among θ's leaves.
pub struct InnerLoss {
    /// L_T.
    pub loss: Tensor,
    /// By leaf of θ: its next value, for a statistic that was updated.
    pub updates: Vec<Option<Tensor>>,
}

impl<'g> Trace<'g> {
    /// Declares λ, θ, data and key as inputs of a graph.
    pub fn new(graph: &'g Graph, problem: &'g AnyProblem) -> Result<Self> {
        let dtype = problem.dtype;
        graph.set_float_type(dtype)?;
        let declare = |prefix: &str, variables: &[(String, crate::Variable)]| -> Vec<Tensor> {
            variables.iter().map(|(name, v)| graph.input(format!("{prefix}.{name}"), &v.shape, dtype)).collect()
        };
        let frozen = |name: &str, array: &Array| graph.input(format!("frozen.{name}"), array.shape(), dtype);
        Ok(Trace {
            graph,
            problem,
            lambda: declare("lambda", &problem.lambda),
            theta: declare("theta", &problem.theta),
            key: graph.input("key", [2], DType::I32),
            gamma: graph.input("gamma", [], dtype),
            noise_size: graph.input("noise", [], dtype),
            sources: Sources::new(graph, problem),
            frozen: problem.frozen.iter().map(|(place, name, array)| (*place, frozen(name, array))).collect(),
        })
    }

    /// Inputs shaped like λ or θ, named `prefix.0`, `prefix.1`, …: for vectors a routine carries.
    pub fn inputs_like(&self, prefix: &str, like: &[Tensor]) -> Vec<Tensor> {
        like.iter().enumerate().map(|(i, t)| self.graph.input(format!("{prefix}.{i}"), t.shape(), t.dtype())).collect()
    }

    /// The data sets, in the problem's order.
    pub fn data(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.sources.data().iter().map(|(_, tensor)| *tensor)
    }

    /// The streams read by the losses traced so far.
    pub(crate) fn read(&self) -> Vec<Read> {
        self.sources.read()
    }

    /// The frozen leaves of θ.
    pub(crate) fn frozen(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.frozen.iter().map(|(_, tensor)| *tensor)
    }

    fn scope(&self, counter: Tensor, caller: Caller) -> Scope<'_> {
        Scope::new(self.graph, &self.sources, (self.key, counter), self.problem.dtype, caller)
    }

    /// θ as a loss sees it: no derivative goes through a statistic.
    fn seen(&self, theta: &[Tensor]) -> Vec<Tensor> {
        let one = |(t, (_, variable)): (&Tensor, &(String, Variable))| match variable.role {
            Role::Statistic => t.stop_gradient(),
            _ => *t,
        };
        theta.iter().zip(&self.problem.theta).map(one).collect()
    }

    /// All leaves of θ, those that are frozen in their places.
    fn whole(&self, theta: &[Tensor]) -> Vec<Tensor> {
        let mut all = theta.to_vec();
        for &(place, tensor) in &self.frozen {
            all.insert(place, tensor);
        }
        all
    }

    /// L_T(λ, θ) with the draw of step `counter`: the same counter gives the same minibatch and noise, so all products of one
    /// step must have the same.
    pub fn inner(&self, theta: &[Tensor], counter: Tensor) -> Result<Tensor> {
        Ok(self.inner_loss(theta, counter)?.loss)
    }

    /// As [`inner`](Self::inner), with the new values of statistics, for a program that takes the step.
    pub fn inner_loss(&self, theta: &[Tensor], counter: Tensor) -> Result<InnerLoss> {
        let scope = self.scope(counter, Caller::Inner);
        let seen = self.seen(theta);
        let loss = (self.problem.inner)(&scope, &self.lambda, &self.whole(&seen));
        let mut loss = scope.check().and(loss)?;
        for ((_, variable), t) in self.problem.theta.iter().zip(&seen) {
            if variable.weight_decay != 0.0 {
                loss = loss.reshape([]) + t.square().sum_all() * (0.5 * variable.weight_decay);
            }
        }
        let statistic = |(t, (_, v)): (&Tensor, &(String, Variable))| (v.role == Role::Statistic).then_some(*t);
        let statistics: Vec<Option<Tensor>> = seen.iter().zip(&self.problem.theta).map(statistic).collect();
        Ok(InnerLoss { loss, updates: scope.updated(&statistics)? })
    }

    /// f(λ, θ) with the draw of step `counter`.
    pub fn outer(&self, theta: &[Tensor], counter: Tensor) -> Result<Tensor> {
        let scope = self.scope(counter, Caller::Outer);
        let loss = (self.problem.outer)(&scope, &self.lambda, &self.whole(&self.seen(theta)));
        scope.check().and(loss)
    }

    /// The outer loss on the rows of a part, row by row, or block by block if the problem does not define it row by
    /// row.
    pub(crate) fn row_losses(&self, part: Part, counter: Tensor) -> Result<Tensor> {
        let theta = self.whole(&self.seen(&self.theta));
        if let Some(rows) = &self.problem.outer_rows {
            let scope = self.scope(counter, Caller::Outer).seeing(part, None);
            let losses = rows(&scope, &self.lambda, &theta);
            let losses = scope.check().and(losses)?;
            return Ok(losses.reshape([losses.len()]));
        }
        let blocks = self.problem.rows_of(part).min(MAX_BLOCKS);
        let one = |block: usize| {
            let scope = self.scope(counter, Caller::Outer).seeing(part, Some((block, blocks)));
            let outer = self.problem.outer_plain.as_ref().unwrap_or(&self.problem.outer);
            let loss = outer(&scope, &self.lambda, &theta);
            Ok(scope.check().and(loss)?.reshape([1]))
        };
        let all: Vec<Tensor> = (0..blocks).map(one).collect::<Result<_>>()?;
        match all.split_first() {
            Some((first, rest)) => Ok(first.concat(rest, 0).check()?),
            None => Err(Error::Data { what: format!("the {part} part of the tables"), reason: "has no rows".into() }),
        }
    }

    /// Over how many minibatches the inner and the outer loss are means.
    pub(crate) fn finite_sums(&self) -> Result<[FiniteSum; 2]> {
        let theta = self.whole(&self.seen(&self.theta));
        let sum = |loss: &crate::problem::FlatLoss, caller| -> Result<FiniteSum> {
            let scope = self.scope(self.graph.step(), caller);
            let traced = loss(&scope, &self.lambda, &theta);
            scope.check().and(traced)?;
            Ok(scope.finite_sum())
        };
        Ok([sum(&self.problem.inner, Caller::Inner)?, sum(&self.problem.outer, Caller::Outer)?])
    }

    /// The problem's own measures at λ and θ, in their order.
    pub(crate) fn measures(&self, counter: Tensor) -> Result<Vec<Tensor>> {
        let theta = self.whole(&self.seen(&self.theta));
        let take = |(i, (_, measure)): (usize, &(String, crate::problem::FlatLoss))| {
            let scope = self.scope(counter, Caller::Measure(i as u32));
            let number = measure(&scope, &self.lambda, &theta);
            scope.check().and(number)
        };
        self.problem.measures.iter().enumerate().map(take).collect()
    }

    /// θ⁰(λ), if the problem defines it.
    pub fn start(&self) -> Result<Option<Vec<Tensor>>> {
        let scope = self.scope(self.graph.scalar(0.0, DType::I32), Caller::Start);
        let start = self.problem.start.as_ref().map(|start| start(&scope, &self.lambda)).transpose();
        let mut start = scope.check().and(start)?;
        if let Some(start) = &mut start {
            for &(place, _) in self.frozen.iter().rev() {
                if place < start.len() {
                    start.remove(place);
                }
            }
        }
        Ok(start)
    }

    /// vᵀ·J0 with J0 = dθ⁰/dλ; zeros if θ⁰ does not depend on λ.
    pub fn through_start(&self, v: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(match self.start()? {
            Some(start) => or_zeros(vjp(&start, v, &self.lambda)?, &self.lambda),
            None => self.lambda.iter().map(|l| l.zeros_like()).collect(),
        })
    }

    /// The inner step of each leaf of θ: γ times the rate of the leaf.
    pub fn steps(&self) -> Vec<Tensor> {
        let one = |(_, variable): &(String, Variable)| match variable.rate {
            1.0 => self.gamma,
            rate => self.gamma * rate,
        };
        self.problem.theta.iter().map(one).collect()
    }

    /// Langevin noise of one step: a standard normal number for every number of θ.
    pub fn noise(&self, counter: Tensor) -> Vec<Tensor> {
        use bilevel_graph::RandomKind::Normal;
        let draw = |(i, t): (usize, &Tensor)| {
            self.key.random(counter, Normal, Purpose::Noise(i as u32).stream(), t.shape(), t.dtype())
        };
        self.theta.iter().enumerate().map(draw).collect()
    }

    /// Traces both losses once, for their errors.
    pub(crate) fn check(&self) -> Result<()> {
        let counter = self.graph.step();
        let slope = gradient(self.inner(&self.theta, counter)?, &self.theta)?;
        if slope.iter().all(Option::is_none) {
            let reason = "the inner loss does not depend on θ, so there is nothing to train; use θ in .inner(…)";
            return Err(Error::Loss { reason: reason.into() });
        }
        gradient(self.outer(&self.theta, counter)?, &self.theta)?;
        for ((name, _), measure) in self.problem.measures.iter().zip(self.measures(counter)?) {
            if measure.shape().iter().product::<usize>() != 1 {
                let found = measure.shape().to_vec();
                return Err(Error::Shape { what: format!("measure '{name}'"), found, expected: vec![] });
            }
        }
        // The guard of a run evaluates the outer loss there.
        if self.problem.rows_of(Part::HeldOut) > 0 && !self.problem.judged_by_evidence {
            self.row_losses(Part::HeldOut, counter)?;
        }
        if let Some(start) = self.start()? {
            let fits = start.len() == self.theta.len()
                && start.iter().zip(&self.theta).all(|(s, t)| s.shape() == t.shape() && s.dtype() == t.dtype());
            if !fits {
                let shapes: Vec<_> = start.iter().map(|t| t.shape()).collect();
                let reason = format!("θ⁰(λ) must have θ's structure and shapes, but gives {shapes:?}");
                return Err(Error::Loss { reason });
            }
        }
        Ok(())
    }
}

/// Tensors that count as independent variables from here on, for derivatives with respect to a computed value: θ after
/// a step, or a gradient. Without this, −(a − b) becomes b − a, which depends on a and band no longer on a − b.
pub(crate) fn as_variables(computed: &[Tensor]) -> Vec<Tensor> {
    computed.iter().map(|tensor| tensor.stop_gradient()).collect()
}

/// Derivatives, with zeros for structural zeros; see [`Trace`].
pub fn or_zeros(derivatives: bilevel_graph::Derivatives, like: &[Tensor]) -> Vec<Tensor> {
    derivatives.into_iter().zip(like).map(|(d, t)| d.unwrap_or_else(|| t.zeros_like())).collect()
}
