//! What a loss sees besides λ and θ: data, minibatches and noise.

use bilevel_graph::{DType, Graph, RandomKind, Tensor};
use std::cell::Cell;

/// Given to a loss when it is traced. Everything random drawn through it belongs to one step: all derivatives of that step
/// see the same draw, and another step sees another.
pub struct Scope<'a> {
    graph: &'a Graph,
    data: &'a [(String, Tensor)],
    key: Tensor,
    counter: Tensor,
    dtype: DType,
    stream: Cell<u32>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        data: &'a [(String, Tensor)],
        (key, counter): (Tensor, Tensor),
        dtype: DType,
        first_stream: u32,
    ) -> Self {
        Scope { graph, data, key, counter, dtype, stream: Cell::new(first_stream) }
    }

    /// The graph, for constants.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// The problem's floating-point type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A data set by its name; a name that does not exist is an error when the problem is built.
    #[track_caller]
    pub fn data(&self, name: &str) -> Tensor {
        match self.data.iter().find(|(known, _)| known == name) {
            Some((_, tensor)) => *tensor,
            None => self.key.reshape([usize::MAX]).check_index(0),
        }
    }

    fn draw(&self, kind: RandomKind, shape: &[usize]) -> Tensor {
        let stream = self.stream.get();
        self.stream.set(stream + 1);
        self.key.random(self.counter, kind, stream, shape, self.dtype)
    }

    /// Fresh standard normal numbers.
    pub fn normal(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.draw(RandomKind::Normal, shape.as_ref())
    }

    /// Fresh numbers uniform between two bounds.
    pub fn uniform(&self, shape: impl AsRef<[usize]>, low: f64, high: f64) -> Tensor {
        self.draw(RandomKind::Uniform, shape.as_ref()) * (high - low) + low
    }

    /// `size` row numbers drawn from `0..rows`, with replacement: use them with [`Tensor::take`].
    pub fn minibatch(&self, rows: usize, size: usize) -> Tensor {
        let last = rows.saturating_sub(1) as f64;
        (self.draw(RandomKind::Uniform, &[size]) * rows as f64).floor().minimum(last).convert(DType::I32)
    }
}
