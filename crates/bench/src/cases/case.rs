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
    /// The name of each parameter in its model; p0, p1, … without a model.
    pub names: Vec<String>,
    /// Data x0, x1, … and their values.
    pub data: Vec<(Tensor, Start)>,
}

/// How an input gets its values.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// Uniform in ±k.
    Uniform(f64),
    /// Uniform within k of c, for c and k in this order.
    Around(f64, f64),
    /// All the same.
    Constant(f64),
    /// i modulo n: labels.
    Labels(usize),
}

impl Start {
    /// Uniform with the mean and the deviation of a variable's start; around a constant, within a tenth.
    fn like(variable: &Variable) -> Start {
        match variable.start() {
            bilevel::data::Start::Constant(value) => Start::Around(*value, 0.1),
            bilevel::data::Start::Normal(deviation) => Start::Uniform(deviation * 3f64.sqrt()),
            bilevel::data::Start::Uniform(low, high) => Start::Around((low + high) / 2.0, (high - low) / 2.0),
            bilevel::data::Start::Fixed(array) => {
                Start::Uniform(array.to_f64().into_iter().fold(0.0, |most, value| value.abs().max(most)))
            }
        }
    }
}

/// Declares the inputs of one case, numbering them as it goes.
pub struct Inputs<'g> {
    graph: &'g Graph,
    dtype: DType,
    parameters: Vec<(Tensor, Start)>,
    names: Vec<String>,
    data: Vec<(Tensor, Start)>,
}

impl<'g> Inputs<'g> {
    /// None yet; floats will be of this type.
    pub fn new(graph: &'g Graph, dtype: DType) -> Self {
        Inputs { graph, dtype, parameters: vec![], names: vec![], data: vec![] }
    }

    /// The next parameter.
    pub fn parameter(&mut self, shape: &[usize], start: Start) -> Tensor {
        let name = format!("p{}", self.parameters.len());
        self.named(&name, shape, start)
    }

    fn named(&mut self, name: &str, shape: &[usize], start: Start) -> Tensor {
        let tensor = self.graph.input(format!("p{}", self.parameters.len()), shape, self.dtype);
        self.parameters.push((tensor, start));
        self.names.push(name.into());
        tensor
    }

    /// The leaves of a model as the next parameters, each with the values that go with its name.
    pub fn model<S: Tree<Leaf = Variable>>(&mut self, model: &S, start: impl Fn(&str) -> Start) -> S::With<Tensor> {
        model.map_named(|name, leaf| self.named(name, leaf.shape(), start(name)))
    }

    /// The same with values as large as those the model starts from, and none that is exactly 0 or 1.
    pub fn model_as_it_starts<S: Tree<Leaf = Variable>>(&mut self, model: &S) -> S::With<Tensor> {
        model.map_named(|name, leaf| self.named(name, leaf.shape(), Start::like(leaf)))
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
        Case { name, loss, parameters: self.parameters, names: self.names, data: self.data }
    }
}
