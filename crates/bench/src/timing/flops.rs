//! The arithmetic a program cannot avoid: multiplications with additions of its matrix products and convolutions.

use bilevel_graph::{ConvDims, Op, Program};

/// Floating point operations of all matrix products and convolutions of one step, two for each multiply-add.
///
/// A product of m×k and k×n takes 2·m·n·k for each batch; a convolution takes 2 for each pair of a kernel element and an
/// image element it meets. Multiplications with padding or with zeros spread between elements are not counted.
pub fn flops(program: &Program) -> u64 {
    let shape = |node: usize| program.nodes[node].meta.shape.as_slice();
    let nodes = program.nodes.iter().map(|node| match &node.op {
        Op::Dot(dims, _) => {
            let left = shape(node.inputs[0]);
            product(&node.meta.shape) * dims.lhs_contract.iter().map(|&axis| left[axis] as u64).product::<u64>()
        }
        Op::Conv(dims, ..) => conv(dims, shape(node.inputs[0]), shape(node.inputs[1]), &node.meta.shape),
        _ => 0,
    });
    2 * nodes.sum::<u64>()
}

fn product(shape: &[usize]) -> u64 {
    shape.iter().map(|&length| length as u64).product()
}

/// n·o·(c/groups)·(meetings along the height)·(meetings along the width).
fn conv(dims: &ConvDims, image: &[usize], kernel: &[usize], out: &[usize]) -> u64 {
    product(&[out[0], out[1], kernel[1]]) * (0..2).map(|i| meetings(dims, i, image, kernel, out)).product::<u64>()
}

/// Number of pairs (output place, kernel element) along one spatial axis that meet an element of the image.
fn meetings(dims: &ConvDims, axis: usize, image: &[usize], kernel: &[usize], out: &[usize]) -> u64 {
    let [image, kernel, out] = [image, kernel, out].map(|shape| shape[2 + axis] as i64);
    let (stride, spread) = (dims.stride[axis] as i64, dims.kernel_dilation[axis] as i64);
    let (low, gap) = (dims.padding[axis].0, dims.image_dilation[axis] as i64);
    let meets = |y: i64, k: i64| {
        let place = y * stride + k * spread - low;
        place >= 0 && place % gap == 0 && place / gap < image
    };
    (0..out).map(|y| (0..kernel).filter(|&k| meets(y, k)).count() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{DType, Graph, Tensor, gradient};

    fn count(g: &Graph, output: Tensor) -> u64 {
        flops(&Program::builder(g).output("y", output).build().unwrap())
    }

    #[test]
    fn a_matrix_product_takes_2mnk() {
        let g = Graph::new();
        let (a, b) = (g.input("a", [3, 4], DType::F32), g.input("b", [4, 5], DType::F32));
        assert_eq!(count(&g, a.matmul(b)), 2 * 3 * 4 * 5);
        let (a, b) = (g.input("c", [7, 3, 4], DType::F32), g.input("d", [7, 4, 5], DType::F32));
        assert_eq!(count(&g, a.matmul(b)), 7 * 2 * 3 * 4 * 5);
    }

    #[test]
    fn elementwise_work_is_not_counted() {
        let g = Graph::new();
        let a = g.input("a", [3, 4], DType::F32);
        assert_eq!(count(&g, (a * a).exp().sum_all()), 0);
    }

    fn dims(padding: i64) -> ConvDims {
        ConvDims {
            stride: [1, 1],
            padding: [(padding, padding); 2],
            image_dilation: [1, 1],
            kernel_dilation: [1, 1],
            groups: 1,
        }
    }

    #[test]
    fn a_convolution_counts_what_its_kernel_meets() {
        let g = Graph::new();
        let (x, k) = (g.input("x", [2, 3, 5, 5], DType::F32), g.input("k", [4, 3, 3, 3], DType::F32));
        assert_eq!(count(&g, x.conv(k, dims(0))), 2 * (2 * 4 * 3) * (3 * 3) * (3 * 3));
        // With padding the outer two places of an axis meet two elements each, the inner three meet three.
        assert_eq!(count(&g, x.conv(k, dims(1))), 2 * (2 * 4 * 3) * 13 * 13);
        let spread = ConvDims { image_dilation: [2, 2], ..dims(0) };
        // Five elements with gaps are nine places; of 7 windows of three, four meet two elements and three meet one.
        assert_eq!(count(&g, x.conv(k, spread)), 2 * (2 * 4 * 3) * 11 * 11);
    }

    #[test]
    fn groups_and_strides_reduce_the_count() {
        let g = Graph::new();
        let (x, k) = (g.input("x", [1, 4, 6, 6], DType::F32), g.input("k", [8, 2, 3, 3], DType::F32));
        let halving = ConvDims { stride: [2, 2], groups: 2, ..dims(0) };
        assert_eq!(count(&g, x.conv(k, halving)), 2 * (8 * 2) * (2 * 3) * (2 * 3));
    }

    #[test]
    fn each_derivative_of_a_product_or_convolution_costs_as_much_as_itself() {
        let g = Graph::new();
        let (x, k) = (g.input("x", [2, 3, 5, 5], DType::F32), g.input("k", [4, 3, 3, 3], DType::F32));
        let y = x.conv(k, dims(1));
        let forward = count(&g, y);
        // Cosine keeps the forward product alive in the derivative.
        for by in [x, k] {
            let d = gradient(y.sin().sum_all(), &[by]).unwrap()[0].unwrap();
            assert_eq!(count(&g, d), 2 * forward);
        }
    }
}
