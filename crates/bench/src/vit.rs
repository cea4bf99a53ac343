//! The vision transformer: one block as the peers time it, and the whole of ViT-B/16.

use crate::case::Start::{Constant, Labels, Uniform};
use crate::case::{Case, Inputs};
use bilevel_graph::{DType, Graph, Tensor, nn};

const WIDTH: usize = 768;
const HIDDEN: usize = 3072;
const HEADS: usize = 12;
const TOKENS: usize = 197;
const BATCH: usize = 8;

/// One ViT-B block: width 768, 12 heads, MLP 3072, 197 tokens, batch 8.
pub fn vit_block(g: &Graph, dtype: DType) -> Case {
    let mut inputs = Inputs::new(g, dtype);
    let p = block_parameters(&mut inputs);
    let x = inputs.data(&[BATCH, TOKENS, WIDTH], Uniform(1.0));
    let o = block(x, &p);
    let loss = (o * o).sum_all() * 1e-6;
    inputs.case("vit_block", loss)
}

/// ViT-B/16 on 224×224 images, 1000 classes, cross entropy, batch 8: 86,567,656 parameters.
pub fn vit_b16(g: &Graph, dtype: DType) -> Case {
    let mut inputs = Inputs::new(g, dtype);
    let patch = inputs.parameter(&[WIDTH, 3, 16, 16], Uniform(0.03));
    let patch_bias = inputs.parameter(&[WIDTH], Constant(0.0));
    let class = inputs.parameter(&[1, 1, WIDTH], Uniform(0.03));
    let position = inputs.parameter(&[1, TOKENS, WIDTH], Uniform(0.03));
    let blocks: Vec<_> = (0..12).map(|_| block_parameters(&mut inputs)).collect();
    let gain = inputs.parameter(&[WIDTH], Constant(1.0));
    let bias = inputs.parameter(&[WIDTH], Constant(0.0));
    let head = inputs.parameter(&[WIDTH, 1000], Uniform(0.03));
    let head_bias = inputs.parameter(&[1000], Constant(0.0));
    let image = inputs.data(&[BATCH, 3, 224, 224], Uniform(1.0));
    let labels = inputs.data(&[BATCH], Labels(1000));
    let geometry = nn::Conv2d { stride: [16, 16], ..nn::Conv2d::default() };
    let patches = nn::conv2d(image, patch, patch_bias, geometry).reshape([BATCH, WIDTH, TOKENS - 1]);
    let tokens = class.broadcast_to([BATCH, 1, WIDTH]).concat(&[patches.transpose([0, 2, 1])], 1);
    let x = blocks.iter().fold(tokens + position, block);
    // Only the class token is classified, so only it is normalised.
    let found = nn::layer_norm(x.index(1, 0), gain, bias, 1e-6);
    let loss = nn::cross_entropy(nn::linear(found, head, head_bias), labels);
    inputs.case("vit_b16", loss)
}

/// Parameters of a block, in the order the peers use.
fn block_parameters(inputs: &mut Inputs) -> [Tensor; 12] {
    [
        inputs.parameter(&[WIDTH], Constant(1.0)),
        inputs.parameter(&[WIDTH], Constant(0.0)),
        inputs.parameter(&[WIDTH, 3 * WIDTH], Uniform(0.03)),
        inputs.parameter(&[3 * WIDTH], Uniform(0.05)),
        inputs.parameter(&[WIDTH, WIDTH], Uniform(0.03)),
        inputs.parameter(&[WIDTH], Uniform(0.05)),
        inputs.parameter(&[WIDTH], Constant(1.0)),
        inputs.parameter(&[WIDTH], Constant(0.0)),
        inputs.parameter(&[WIDTH, HIDDEN], Uniform(0.03)),
        inputs.parameter(&[HIDDEN], Uniform(0.05)),
        inputs.parameter(&[HIDDEN, WIDTH], Uniform(0.03)),
        inputs.parameter(&[WIDTH], Uniform(0.05)),
    ]
}

/// A transformer block: x + attention(norm x), then x + mlp(norm x).
fn block(x: Tensor, p: &[Tensor; 12]) -> Tensor {
    let (batch, tokens, d) = (x.dim(0), x.dim(1), x.dim(2));
    let width = d / HEADS;
    let a = nn::layer_norm(x, p[0], p[1], 1e-6);
    let qkv = nn::linear(a, p[2], p[3]).reshape([batch, tokens, 3, HEADS, width]).transpose([2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|i| qkv.index(0, i));
    let scores = nn::softmax(q.matmul(k.t()) * (width as f64).powf(-0.5), 3);
    let mixed = scores.matmul(v).transpose([0, 2, 1, 3]).reshape([batch, tokens, d]);
    let x = x + nn::linear(mixed, p[4], p[5]);
    x + nn::linear(nn::gelu(nn::linear(nn::layer_norm(x, p[6], p[7], 1e-6), p[8], p[9])), p[10], p[11])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_model_has_the_parameters_of_vit_b16() {
        let g = Graph::new();
        let case = vit_b16(&g, DType::F32);
        assert!(case.loss.check().unwrap().shape().is_empty());
        assert_eq!(case.parameters.iter().map(|(p, _)| p.len()).sum::<usize>(), 86_567_656);
    }
}
