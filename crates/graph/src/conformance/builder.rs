//! A case under construction: its graph, inputs with their values, and results with their tolerances.

use super::{Case, Dice, Inputs};
use crate::{Array, DType, Graph, Program, Result, Tensor};

/// Collects the parts of a [`Case`].
pub(crate) struct CaseBuilder {
    /// The graph of the program.
    pub g: Graph,
    /// Draws the values of the inputs.
    pub dice: Dice,
    inputs: Inputs,
    kept: Vec<Tensor>,
    outputs: Vec<(Tensor, f64)>,
    carries: Vec<(Tensor, Tensor, f64)>,
}

impl CaseBuilder {
    /// Starts a case whose inputs are drawn from this seed.
    pub fn new(seed: u64) -> Self {
        Self::on(Graph::new(), seed)
    }

    /// Starts a case on this graph.
    pub fn on(g: Graph, seed: u64) -> Self {
        CaseBuilder { g, dice: Dice::new(seed), inputs: vec![], kept: vec![], outputs: vec![], carries: vec![] }
    }

    /// Adds an input of this value.
    pub fn given(&mut self, name: impl Into<String>, value: Array) -> Tensor {
        let name = name.into();
        let tensor = self.g.input(&name, value.shape(), value.dtype());
        self.inputs.push((name, value));
        self.kept.push(tensor);
        tensor
    }

    /// Adds an input of numbers in −1..1.
    pub fn input(&mut self, name: impl Into<String>, shape: impl AsRef<[usize]>, dtype: DType) -> Result<Tensor> {
        let value = self.dice.array(shape.as_ref(), dtype)?;
        Ok(self.given(name, value))
    }

    /// Adds an input of whole numbers in 0..limit.
    pub fn indices(&mut self, name: impl Into<String>, shape: impl AsRef<[usize]>, limit: usize) -> Result<Tensor> {
        let value = self.dice.indices(shape.as_ref(), limit)?;
        Ok(self.given(name, value))
    }

    /// Adds a result.
    pub fn output(&mut self, result: Tensor, tolerance: f64) {
        self.outputs.push((result, tolerance));
    }

    /// Adds results of one tolerance.
    pub fn outputs(&mut self, results: impl IntoIterator<Item = Tensor>, tolerance: f64) {
        self.outputs.extend(results.into_iter().map(|result| (result, tolerance)));
    }

    /// After each step, the input takes the next value.
    pub fn carry(&mut self, input: Tensor, next: Tensor, tolerance: f64) {
        self.carries.push((input, next, tolerance));
    }

    /// Builds the case. Inputs that nothing reads stay in the program.
    pub fn build(self, name: impl Into<String>, steps: u32) -> Result<Case> {
        let mut builder = Program::builder(&self.g).outputs("", self.outputs.iter().map(|(result, _)| *result));
        for (input, next, _) in &self.carries {
            builder = builder.carry(*input, *next);
        }
        for input in &self.kept {
            builder = builder.keep_input(*input);
        }
        let of_outputs = self.outputs.iter().map(|(_, tolerance)| *tolerance);
        let tolerances = of_outputs.chain(self.carries.iter().map(|(_, _, tolerance)| *tolerance)).collect();
        Ok(Case { name: name.into(), program: builder.build()?, inputs: self.inputs, steps, tolerances })
    }
}
