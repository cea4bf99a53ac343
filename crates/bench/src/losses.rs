//! The losses of the bench cases, written once and used by timings and by the comparison with JAX.

use bilevel_graph::{DType, Graph, Tensor, nn};

/// A loss with the tensors it is derived by and the data it reads.
pub struct Case {
    /// Name, as in the peers' programs.
    pub name: &'static str,
    /// The loss.
    pub loss: Tensor,
    /// Parameters, with the range of uniform values they start from; a zero range means a constant 1 or 0 is meant.
    pub parameters: Vec<(Tensor, Start)>,
    /// Data inputs.
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

/// Builds inputs of one case.
pub struct Inputs<'g> {
    graph: &'g Graph,
    dtype: DType,
    parameters: Vec<(Tensor, Start)>,
    data: Vec<(Tensor, Start)>,
}

impl<'g> Inputs<'g> {
    fn new(graph: &'g Graph, dtype: DType) -> Self {
        Inputs { graph, dtype, parameters: vec![], data: vec![] }
    }

    fn parameter(&mut self, shape: &[usize], start: Start) -> Tensor {
        let tensor = self.graph.input(format!("p{}", self.parameters.len()), shape, self.dtype);
        self.parameters.push((tensor, start));
        tensor
    }

    fn data(&mut self, shape: &[usize], start: Start) -> Tensor {
        let dtype = if let Start::Labels(_) = start { DType::I32 } else { self.dtype };
        let tensor = self.graph.input(format!("x{}", self.data.len()), shape, dtype);
        self.data.push((tensor, start));
        tensor
    }

    fn case(self, name: &'static str, loss: Tensor) -> Case {
        Case { name, loss, parameters: self.parameters, data: self.data }
    }
}

use Start::{Constant, Labels, Uniform};

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

/// One ViT-B block: width 768, 12 heads, MLP 3072, 197 tokens, batch 8.
pub fn vit_block(g: &Graph, dtype: DType) -> Case {
    let (d, m, batch, tokens) = (768, 3072, 8, 197);
    let mut inputs = Inputs::new(g, dtype);
    let p = [
        inputs.parameter(&[d], Constant(1.0)),
        inputs.parameter(&[d], Constant(0.0)),
        inputs.parameter(&[d, 3 * d], Uniform(0.03)),
        inputs.parameter(&[3 * d], Uniform(0.05)),
        inputs.parameter(&[d, d], Uniform(0.03)),
        inputs.parameter(&[d], Uniform(0.05)),
        inputs.parameter(&[d], Constant(1.0)),
        inputs.parameter(&[d], Constant(0.0)),
        inputs.parameter(&[d, m], Uniform(0.03)),
        inputs.parameter(&[m], Uniform(0.05)),
        inputs.parameter(&[m, d], Uniform(0.03)),
        inputs.parameter(&[d], Uniform(0.05)),
    ];
    let x = inputs.data(&[batch, tokens, d], Uniform(1.0));
    let o = vit(x, &p, 12);
    let loss = (o * o).sum_all() * 1e-6;
    inputs.case("vit_block", loss)
}

/// A transformer block in the order of parameters the peers use.
fn vit(x: Tensor, p: &[Tensor], heads: usize) -> Tensor {
    let (batch, tokens, d) = (x.dim(0), x.dim(1), x.dim(2));
    let width = d / heads;
    let a = nn::layer_norm(x, p[0], p[1], 1e-6);
    let qkv = nn::linear(a, p[2], p[3]).reshape([batch, tokens, 3, heads, width]).transpose([2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|i| qkv.index(0, i));
    let scores = nn::softmax(q.matmul(k.t()) * (width as f64).powf(-0.5), 3);
    let mixed = scores.matmul(v).transpose([0, 2, 1, 3]).reshape([batch, tokens, d]);
    let x = x + nn::linear(mixed, p[4], p[5]);
    x + nn::linear(nn::gelu(nn::linear(nn::layer_norm(x, p[6], p[7], 1e-6), p[8], p[9])), p[10], p[11])
}
