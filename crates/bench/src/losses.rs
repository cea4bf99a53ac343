//! The multilayer perceptron and the convolutional network of the peers' programs.

use crate::case::Start::{Labels, Uniform};
use crate::case::{Case, Inputs};
use bilevel_graph::{DType, Graph, Tensor, nn};

/// 784-1000(tanh)-10, cross entropy, batch 1000.
pub fn mlp(g: &Graph, dtype: DType) -> Case {
    let mut inputs = Inputs::new(g, dtype);
    let w1 = inputs.parameter(&[784, 1000], Uniform(0.05));
    let b1 = inputs.parameter(&[1000], Uniform(0.05));
    let w2 = inputs.parameter(&[1000, 10], Uniform(0.05));
    let b2 = inputs.parameter(&[10], Uniform(0.05));
    let x = inputs.data(&[1000, 784], Uniform(1.0));
    let y = inputs.data(&[1000], Labels(10));
    let hidden = nn::linear(x, w1, b1).tanh();
    let loss = nn::cross_entropy(nn::linear(hidden, w2, b2), y);
    inputs.case("mlp", loss)
}

/// 4 × [3×3 convolution of 64, relu, 2×2 max pool] on 84×84×3, 5-way head, batch 25.
pub fn conv64(g: &Graph, dtype: DType) -> Case {
    let mut inputs = Inputs::new(g, dtype);
    let kernels: Vec<Tensor> = (0..4)
        .map(|i| inputs.parameter(&[64, if i == 0 { 3 } else { 64 }, 3, 3], Uniform(if i == 0 { 0.2 } else { 0.06 })))
        .collect();
    let head = inputs.parameter(&[64 * 25, 5], Uniform(0.05));
    let mut h = inputs.data(&[25, 3, 84, 84], Uniform(1.0));
    let y = inputs.data(&[25], Labels(5));
    for kernel in kernels {
        let options = nn::Conv2d { padding: [1, 1], ..nn::Conv2d::default() };
        h = nn::max_pool2d(nn::relu(nn::conv2d(h, kernel, None, options)), nn::Pool2d::of([2, 2]));
    }
    let loss = nn::cross_entropy(h.reshape([25, 64 * 25]).matmul(head), y);
    inputs.case("conv64", loss)
}
