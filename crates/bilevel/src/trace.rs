//! A problem as tensors on a graph, and a compiled routine with its inputs and outputs by name.

use crate::problem::Problem;
use crate::scope::Scope;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Runnable, Tensor, gradient, mixed_vector, vjp};

/// The symbolic problem: λ, θ, data and the random key of a hypergradient.
pub(crate) struct Trace<'g> {
    pub graph: &'g Graph,
    pub problem: &'g Problem,
    pub lambda: Vec<Tensor>,
    pub theta: Vec<Tensor>,
    pub key: Tensor,
    data: Vec<(String, Tensor)>,
}

/// First random stream of each purpose, so that none shares numbers with another.
const INNER_STREAM: u32 = 1_000;
const OUTER_STREAM: u32 = 2_000;
const START_STREAM: u32 = 3_000;
const MEASURE_STREAM: u32 = 5_000;
/// Stream of the Langevin noise of the first leaf of θ.
pub(crate) const NOISE_STREAM: u32 = 4_000;

impl<'g> Trace<'g> {
    pub fn new(graph: &'g Graph, problem: &'g Problem) -> Result<Self> {
        let dtype = problem.dtype;
        let declare = |prefix: &str, variables: &[(String, crate::Variable)]| -> Vec<Tensor> {
            variables.iter().map(|(name, v)| graph.input(format!("{prefix}.{name}"), &v.shape, dtype)).collect()
        };
        let data = problem
            .data
            .iter()
            .map(|(name, array)| (name.clone(), graph.input(format!("data.{name}"), array.shape(), array.dtype())));
        Ok(Trace {
            graph,
            problem,
            lambda: declare("lambda", &problem.lambda),
            theta: declare("theta", &problem.theta),
            key: graph.input("key", [2], DType::I32),
            data: data.collect(),
        })
    }

    /// Inputs shaped like λ or θ, named `prefix.0`, `prefix.1`, …: for vectors a routine carries.
    pub fn inputs_like(&self, prefix: &str, like: &[Tensor]) -> Vec<Tensor> {
        like.iter().enumerate().map(|(i, t)| self.graph.input(format!("{prefix}.{i}"), t.shape(), t.dtype())).collect()
    }

    fn scope(&self, counter: Tensor, stream: u32) -> Scope<'_> {
        Scope::new(self.graph, &self.data, (self.key, counter), self.problem.dtype, stream)
    }

    /// L_T(λ, θ) with the draw of step `counter`.
    pub fn inner(&self, theta: &[Tensor], counter: Tensor) -> Result<Tensor> {
        (self.problem.inner)(&self.scope(counter, INNER_STREAM), &self.lambda, theta)
    }

    /// f(λ, θ) with the draw of step `counter`.
    pub fn outer(&self, theta: &[Tensor], counter: Tensor) -> Result<Tensor> {
        (self.problem.outer)(&self.scope(counter, OUTER_STREAM), &self.lambda, theta)
    }

    /// The problem's own measures at λ and θ, in their order.
    pub fn measures(&self, counter: Tensor) -> Result<Vec<Tensor>> {
        let scope = self.scope(counter, MEASURE_STREAM);
        self.problem.measures.iter().map(|(_, measure)| measure(&scope, &self.lambda, &self.theta)).collect()
    }

    /// θ⁰(λ), where the problem says so.
    pub fn start(&self) -> Result<Option<Vec<Tensor>>> {
        let scope = self.scope(self.graph.scalar(0.0, DType::I32), START_STREAM);
        self.problem.start.as_ref().map(|start| start(&scope, &self.lambda)).transpose()
    }

    /// vᵀ·J0 with J0 = dθ⁰/dλ; zeros where θ⁰ does not depend on λ.
    pub fn through_start(&self, v: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(match self.start()? {
            Some(start) => or_zeros(vjp(&start, v, &self.lambda)?, &self.lambda),
            None => self.lambda.iter().map(|l| l.zeros_like()).collect(),
        })
    }

    /// Langevin noise of one step: a standard normal number for every number of θ.
    pub fn noise(&self, counter: Tensor) -> Vec<Tensor> {
        use bilevel_graph::RandomKind::Normal;
        let draw =
            |(i, t): (usize, &Tensor)| self.key.random(counter, Normal, NOISE_STREAM + i as u32, t.shape(), t.dtype());
        self.theta.iter().enumerate().map(draw).collect()
    }

    /// For each leaf of λ, true where it can influence the outer loss: directly, through the inner loss's gradient, or
    /// through θ⁰. The answer is the graph's, not that of numbers.
    pub fn influential(&self) -> Result<Vec<bool>> {
        let counter = self.graph.step();
        let direct = gradient(self.outer(&self.theta, counter)?, &self.lambda)?;
        let vector = self.inputs_like("vector", &self.theta);
        let mixed = mixed_vector(self.inner(&self.theta, counter)?, &self.theta, &vector, &self.lambda)?;
        let start = match self.start()? {
            Some(start) => vjp(&start, &vector, &self.lambda)?,
            None => vec![None; self.lambda.len()],
        };
        let paths = direct.iter().zip(&mixed).zip(&start);
        Ok(paths.map(|((d, m), s)| d.is_some() || m.is_some() || s.is_some()).collect())
    }

    /// Traces both losses once, for their errors.
    pub fn check(&self) -> Result<()> {
        let counter = self.graph.step();
        gradient(self.inner(&self.theta, counter)?, &self.theta)?;
        gradient(self.outer(&self.theta, counter)?, &self.theta)?;
        for ((name, _), measure) in self.problem.measures.iter().zip(self.measures(counter)?) {
            if measure.shape().iter().product::<usize>() != 1 {
                let reason = format!("measure '{name}' must be one number, but has the shape {:?}", measure.shape());
                return Err(Error::Problem { reason });
            }
        }
        if let Some(start) = self.start()? {
            let fits = start.len() == self.theta.len()
                && start.iter().zip(&self.theta).all(|(s, t)| s.shape() == t.shape() && s.dtype() == t.dtype());
            if !fits {
                let shapes: Vec<_> = start.iter().map(|t| t.shape()).collect();
                let reason = format!("θ⁰(λ) must have θ's structure and shapes, but gives {shapes:?}");
                return Err(Error::Problem { reason });
            }
        }
        Ok(())
    }
}

/// Derivatives with zeros where they are structurally zero.
pub(crate) fn or_zeros(derivatives: bilevel_graph::Derivatives, like: &[Tensor]) -> Vec<Tensor> {
    derivatives.into_iter().zip(like).map(|(d, t)| d.unwrap_or_else(|| t.zeros_like())).collect()
}

/// A compiled program of a problem, its data set once, its inputs and outputs by name.
pub(crate) struct Routine {
    run: Box<dyn Runnable>,
}

impl Routine {
    pub fn new(program: &Program, problem: &Problem, executor: &dyn Executor) -> Result<Self> {
        let mut routine = Routine { run: executor.compile(program)? };
        for (name, array) in &problem.data {
            routine.set(&format!("data.{name}"), array)?;
        }
        Ok(routine)
    }

    /// Sets an input; one the program does not use is passed over.
    pub fn set(&mut self, name: &str, value: &Array) -> Result<()> {
        if let Ok(input) = self.run.program().input(name) {
            self.run.set(input, value)?;
        }
        Ok(())
    }

    /// Sets a list of inputs made by `Trace::inputs_like`.
    pub fn set_all(&mut self, prefix: &str, values: &[Array]) -> Result<()> {
        values.iter().enumerate().try_for_each(|(i, value)| self.set(&format!("{prefix}.{i}"), value))
    }

    /// Sets λ and θ.
    pub fn set_point(&mut self, problem: &Problem, lambda: &[Array], theta: &[Array]) -> Result<()> {
        for (prefix, variables, values) in [("lambda", &problem.lambda, lambda), ("theta", &problem.theta, theta)] {
            for ((name, _), value) in variables.iter().zip(values) {
                self.set(&format!("{prefix}.{name}"), value)?;
            }
        }
        Ok(())
    }

    pub fn set_key(&mut self, key: [i32; 2]) -> Result<()> {
        self.set("key", &Array::from_i32([2], key.to_vec())?)
    }

    pub fn run(&mut self, steps: std::ops::Range<u32>) -> Result<()> {
        Ok(self.run.run(steps)?)
    }

    /// A carried input after a run.
    pub fn carried(&self, name: &str) -> Result<Array> {
        Ok(self.run.input(self.run.program().input(name)?)?)
    }

    /// Carried inputs made by `Trace::inputs_like`.
    pub fn carried_all(&self, prefix: &str, count: usize) -> Result<Vec<Array>> {
        (0..count).map(|i| self.carried(&format!("{prefix}.{i}"))).collect()
    }

    /// θ after a run that carries it.
    pub fn theta(&self, problem: &Problem) -> Result<Vec<Array>> {
        problem.theta.iter().map(|(name, _)| self.carried(&format!("theta.{name}"))).collect()
    }

    /// An output of the last step.
    pub fn output(&self, name: &str) -> Result<Array> {
        Ok(self.run.output(self.run.program().output(name)?)?)
    }

    /// Outputs named `prefix.0`, `prefix.1`, …
    pub fn output_all(&self, prefix: &str, count: usize) -> Result<Vec<Array>> {
        (0..count).map(|i| self.output(&format!("{prefix}.{i}"))).collect()
    }

    /// A scalar output of the last step.
    pub fn number(&self, name: &str) -> Result<f64> {
        Ok(self.output(name)?.item().unwrap_or(f64::NAN))
    }
}
