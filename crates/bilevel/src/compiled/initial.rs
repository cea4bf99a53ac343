//! The first values of variables, computed on their device.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::purpose::Purpose;
use crate::outer::step::{bounds_in, project};
use crate::problem::leaf_name;
use crate::problem::variable::{Start, Variable};
use bilevel_graph::{Array, DType, Executor, Graph, Meta, Program, RandomKind, Runnable, Tensor};

/// Draws or copies the first values of λ or of θ.
pub(crate) struct Initial {
    /// λ or θ, for errors.
    tree: &'static str,
    run: Box<dyn Runnable>,
    variables: Vec<(String, Variable)>,
    dtype: DType,
}

impl Initial {
    /// Compiles the draws of these variables of λ or θ.
    pub fn new(
        tree: &'static str,
        variables: &[(String, Variable)],
        dtype: DType,
        executor: &dyn Executor,
    ) -> Result<Self> {
        let graph = Graph::new();
        let key = graph.input("key", [2], DType::I32);
        let mut builder = Program::builder(&graph).keep_input(key);
        for (number, (_, variable)) in variables.iter().enumerate() {
            // A number that no other variable of the run has.
            let counter = graph.scalar(number as f64, DType::I32);
            let draw = |kind| key.random(counter, kind, Purpose::Initial.stream(), &variable.shape, DType::F64);
            let value: Tensor = match &variable.start {
                Start::Fixed(_) => continue,
                // One number until it is placed: nothing as large as the variable is looked through.
                Start::Constant(value) => graph.scalar(*value, DType::F64),
                Start::Normal(deviation) => draw(RandomKind::Normal) * *deviation,
                Start::Uniform(low, high) => draw(RandomKind::Uniform) * (high - low) + *low,
            };
            let all: Vec<usize> = (0..value.rank()).collect();
            let placed = project(value.convert(dtype), bounds_in(variable, dtype)).broadcast_to(&variable.shape);
            builder = builder
                .output(format!("least.{number}"), value.min(&all))
                .output(format!("most.{number}"), value.max(&all))
                .output(format!("value.{number}"), placed);
        }
        Ok(Initial { tree, run: executor.compile(&builder.build()?)?, variables: variables.to_vec(), dtype })
    }

    /// Leaves for these variables.
    pub fn leaves(&self, executor: &dyn Executor) -> Result<Leaves> {
        let meta = |(_, v): &(String, Variable)| Meta { dtype: self.dtype, shape: v.shape.clone() };
        let metas: Vec<Meta> = self.variables.iter().map(meta).collect();
        Leaves::zeros(executor, &metas)
    }

    /// Gives the leaves their first values.
    pub fn place(&mut self, leaves: &Leaves, key: Key) -> Result<()> {
        let run = &mut self.run;
        run.set(run.program().input("key")?, &Array::from_i32([2], key.values().to_vec())?)?;
        for (number, ((name, variable), leaf)) in self.variables.iter().zip(leaves.iter()).enumerate() {
            match &variable.start {
                Start::Fixed(array) => {
                    let values = array.to_f64();
                    let named = leaf_name(self.tree, name);
                    values.iter().try_for_each(|value| variable.check_first(&named, *value))?;
                    let (low, high) = bounds_in(variable, self.dtype);
                    let values: Vec<f64> = values.iter().map(|value| value.max(low).min(high)).collect();
                    leaf.write(&Array::from_values(&variable.shape, &values, self.dtype)?)?;
                }
                _ => run.bind_output(run.program().output(&format!("value.{number}"))?, leaf)?,
            }
        }
        run.run(0..1)?;
        for (number, (name, variable)) in self.variables.iter().enumerate() {
            if matches!(variable.start, Start::Fixed(_)) {
                continue;
            }
            for end in ["least", "most"] {
                let output = run.program().output(&format!("{end}.{number}"))?;
                let value = run.output(output)?.item().unwrap_or(f64::NAN);
                variable.check_first(&leaf_name(self.tree, name), value)?;
            }
        }
        Ok(())
    }
}
