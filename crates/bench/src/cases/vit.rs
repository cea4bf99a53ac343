//! The vision transformer: one block as the peers time it, and the whole of ViT-B/16.

use crate::cases::case::Start::{self, Constant, Labels, Uniform};
use crate::cases::case::{Case, Inputs};
use crate::error::Result;
use bilevel_graph::{DType, Graph, nn};
use bilevel_models::VitConfig;
use bilevel_models::vit::Block;

const BATCH: usize = 8;

/// One ViT-B block: width 768, 12 heads, MLP 3072, 197 tokens, batch 8.
pub fn vit_block(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let block = inputs.model(&Block::new(768, 12, 3072), start);
    let x = inputs.data(&[BATCH, 197, 768], Uniform(1.0));
    let loss = block.forward(x).square().sum_all() * 1e-6;
    Ok(inputs.case("vit_block", loss))
}

/// ViT-B/16 on 224×224 images, 1000 classes, cross entropy, batch 8: 86,567,656 parameters.
pub fn vit_b16(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model(&VitConfig::base(16, 1000).build()?, start);
    let image = inputs.data(&[BATCH, 3, 224, 224], Uniform(1.0));
    let labels = inputs.data(&[BATCH], Labels(1000));
    let loss = nn::cross_entropy(net.forward(image), labels);
    Ok(inputs.case("vit_b16", loss))
}

/// The values of a parameter: norms as they start, the rest uniform, as in the peers.
fn start(name: &str) -> Start {
    match (name.contains("norm"), name.ends_with("bias")) {
        (true, true) => Constant(0.0),
        (true, false) => Constant(1.0),
        (false, true) => Uniform(0.05),
        (false, false) => Uniform(0.03),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_model_has_the_parameters_of_vit_b16() {
        let g = Graph::new();
        let case = vit_b16(&g, DType::F32).unwrap();
        assert!(case.loss.check().unwrap().shape().is_empty());
        assert_eq!(case.parameters.iter().map(|(p, _)| p.len()).sum::<usize>(), 86_567_656);
    }
}
