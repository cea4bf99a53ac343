//! Functions of every model: its leaves as inputs of a graph, the number of trained elements, frozen statistics.

use bilevel::Variable;
use bilevel_graph::{DType, Graph, Tensor, Tree, TreeOf, shape::element_count};

/// A model with its leaves as inputs of a graph, under their names.
///
/// ```
/// use bilevel_graph::{DType, Graph, Tree};
/// use bilevel_models::{inputs, logistic};
/// let g = Graph::new();
/// let model = inputs(&logistic(4, 3)?, &g, DType::F32);
/// assert_eq!(model.weight.shape(), [4, 3]);
/// assert_eq!(model.names(), ["weight", "bias"]);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
pub fn inputs<S: Tree<Leaf = Variable>>(model: &S, graph: &Graph, dtype: DType) -> S::With<Tensor> {
    model.map_named(|name, variable| graph.input(name, variable.shape(), dtype))
}

/// How many numbers training moves: all but frozen leaves and running statistics.
///
/// ```
/// use bilevel_models::{parameter_count, logistic};
/// assert_eq!(parameter_count(&logistic(4, 3)?), 15);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
pub fn parameter_count<S: Tree<Leaf = Variable>>(model: &S) -> usize {
    model.leaves().iter().filter(|leaf| leaf.is_trained()).map(|leaf| element_count(leaf.shape())).sum()
}

/// The model with its running statistics frozen: they are in memory once, with the data, and are never updated. For its
/// forward pass take [`Statistics::Running`](crate::Statistics::Running).
///
/// ```
/// use bilevel_models::{BatchNorm, with_frozen_statistics};
/// let norm = with_frozen_statistics(&BatchNorm::new(3).running());
/// assert!(!norm.running_mean.unwrap().is_statistic());
/// ```
pub fn with_frozen_statistics<S: TreeOf<Variable>>(model: &S) -> S {
    model.map(|leaf| if leaf.is_statistic() { leaf.clone().frozen() } else { leaf.clone() })
}
