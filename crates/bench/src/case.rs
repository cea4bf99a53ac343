//! A loss with the inputs it is derived by and the data it reads.

use bilevel::Variable;
use bilevel_graph::{DType, Graph, Tensor, Tree};

/// A loss with the tensors it is derived by and the data it reads.
pub struct Case {
    /// Name, as in the peers' programs.
    pub name: &'static str,
    /// The loss.
    pub loss: Tensor,
    /// Parameters p0, p1, … and the values they start from.
    pub parameters: Vec<(Tensor, Start)>,
    /// Data x0, x1, … and their values.
    pub data: Vec<(Tensor, Start)>,
}

/// How an input gets its values.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// Uniform in ±k.
    Uniform(f64),
    /// All the same.
    Constant(f64),
    /// i modulo n: labels.
    Labels(usize),
}

/// Declares the inputs of one case, numbering them as it goes.
pub struct Inputs<'g> {
    graph: &'g Graph,
    dtype: DType,
    parameters: Vec<(Tensor, Start)>,
    data: Vec<(Tensor, Start)>,
}

impl<'g> Inputs<'g> {
    /// None yet; floats will be of this type.
    pub fn new(graph: &'g Graph, dtype: DType) -> Self {
        Inputs { graph, dtype, parameters: vec![], data: vec![] }
    }

    /// The next parameter.
    pub fn parameter(&mut self, shape: &[usize], start: Start) -> Tensor {
        let tensor = self.graph.input(format!("p{}", self.parameters.len()), shape, self.dtype);
        self.parameters.push((tensor, start));
        tensor
    }

    /// The leaves of a model as the next parameters, each with the values that go with its name.
    pub fn model<S: Tree<Leaf = Variable>>(&mut self, model: &S, start: impl Fn(&str) -> Start) -> S::With<Tensor> {
        model.map_named(|name, leaf| self.parameter(leaf.shape(), start(name)))
    }

    /// The next data input; labels are integers.
    pub fn data(&mut self, shape: &[usize], start: Start) -> Tensor {
        let dtype = if let Start::Labels(_) = start { DType::I32 } else { self.dtype };
        let tensor = self.graph.input(format!("x{}", self.data.len()), shape, dtype);
        self.data.push((tensor, start));
        tensor
    }

    /// The case, once its loss is known.
    pub fn case(self, name: &'static str, loss: Tensor) -> Case {
        Case { name, loss, parameters: self.parameters, data: self.data }
    }
}
