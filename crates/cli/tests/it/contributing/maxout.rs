//! Maxout: the largest of several affine maps (Goodfellow and others, 2013).

use crate::error::{Result, sizes};
use crate::init::glorot_uniform;
use crate::layers::Linear;
use bilevel::Variable;
use bilevel_graph::{Tensor, Tree};

/// y = max over k of x·Wₖ + bₖ, for every output on its own.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Maxout<T> {
    /// The affine maps.
    pub pieces: Vec<Linear<T>>,
}

/// Sizes of a [`Maxout`].
#[derive(Clone, Debug, PartialEq)]
pub struct MaxoutConfig {
    /// Numbers that go in.
    pub inputs: usize,
    /// Numbers that come out.
    pub outputs: usize,
    /// Affine maps.
    pub pieces: usize,
}

impl MaxoutConfig {
    /// The model; weights start as [`glorot_uniform`], biases at 0.
    ///
    /// # Errors
    ///
    /// If a size is 0.
    pub fn build(&self) -> Result<Maxout<Variable>> {
        let MaxoutConfig { inputs, outputs, pieces } = *self;
        sizes("Maxout", &[("inputs", inputs), ("outputs", outputs), ("pieces", pieces)])?;
        let piece = |_| Linear::new(glorot_uniform([inputs, outputs], inputs, outputs));
        Ok(Maxout { pieces: (0..pieces).map(piece).collect() })
    }
}

impl Maxout<Tensor> {
    /// `[n, outputs]` of `[n, inputs]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor) -> Tensor {
        let all = self.pieces.iter().map(|piece| piece.forward(x));
        all.reduce(Tensor::maximum).unwrap_or(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{DType, Graph};

    #[test]
    fn added_model_has_its_parameters_and_its_shape() {
        let model = MaxoutConfig { inputs: 4, outputs: 3, pieces: 2 }.build().unwrap();
        assert_eq!(crate::parameter_count(&model), 2 * (4 * 3 + 3));
        let graph = Graph::new();
        let y = crate::inputs(&model, &graph, DType::F32).forward(graph.input("x", [8, 4], DType::F32));
        assert_eq!(y.check().unwrap().shape(), [8, 3]);
        assert!(MaxoutConfig { inputs: 4, outputs: 0, pieces: 2 }.build().is_err());
    }
}
