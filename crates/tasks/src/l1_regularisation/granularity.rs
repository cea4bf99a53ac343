//! The sharing of penalties: every weight its own, or one for all weights of a filter, of a layer, or of the network.

use bilevel::{Named, Tree, Variable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The weights that share a penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Nothing: every weight has its own.
    Weight,
    /// The weights that make one output of a layer.
    Filter,
    /// The weights of a layer; its biases and gains have one each.
    Layer,
    /// All weights.
    One,
}

impl Granularity {
    /// λ for the trained leaves of a model, in their order and under their names, or one for all of them.
    pub(super) fn variables<M: Tree<Leaf = Variable>>(self, model: &M, start: f64) -> Named<Variable> {
        let at = |shape: Vec<usize>| Variable::constant(shape, start).at_least(0.0);
        if self == Granularity::One {
            return [("all".to_string(), at(vec![]))].into_iter().collect();
        }
        let leaves = model.names().into_iter().zip(model.leaves()).filter(|(_, leaf)| leaf.is_trained());
        leaves.map(|(name, leaf)| (name, at(self.shape(leaf.shape())))).collect()
    }

    /// The shape of λ for weights of a shape, which it can be broadcast to. Outputs are the first axis of a kernel, the last of
    /// a matrix, and the only one of a vector.
    fn shape(self, weights: &[usize]) -> Vec<usize> {
        match (self, weights) {
            (Granularity::Weight, _) | (Granularity::Filter, [_]) => weights.to_vec(),
            (Granularity::Filter, [_, outputs]) => vec![1, *outputs],
            (Granularity::Filter, [outputs, rest @ ..]) => {
                std::iter::once(*outputs).chain(rest.iter().map(|_| 1)).collect()
            }
            _ => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_models::{EfficientNetConfig, with_frozen_statistics};

    #[test]
    fn a_filter_is_what_makes_one_output_and_frozen_statistics_have_no_penalty() {
        let model = with_frozen_statistics(&EfficientNetConfig::lite0(10).build().unwrap());
        let shape = |granularity: Granularity, leaf: &str| {
            granularity.variables(&model, 0.0).get(leaf).map(|variable| variable.shape().to_vec())
        };
        let (stem, head) = ("stem.conv.weight", "head.weight");
        assert_eq!(shape(Granularity::Weight, stem), Some(vec![32, 3, 3, 3]));
        assert_eq!(shape(Granularity::Filter, stem), Some(vec![32, 1, 1, 1]));
        assert_eq!(shape(Granularity::Filter, head), Some(vec![1, 10]));
        assert_eq!(shape(Granularity::Filter, "head.bias"), Some(vec![10]));
        assert_eq!(shape(Granularity::Layer, head), Some(vec![]));
        assert_eq!(shape(Granularity::Weight, "stem.norm.running_mean"), None);
        assert_eq!(Granularity::One.variables(&model, 0.0).names(), ["all"]);
    }
}
