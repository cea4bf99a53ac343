//! The work of traced programs, counted in operations: the costs of the guard and of a run, the same on every machine.
//!
//! | node | operations |
//! |---|---|
//! | a product of m × k by k × n | 2·m·k·n |
//! | a convolution | 2 · results · summed products of each |
//! | a sum or another reduction | the numbers it reads |
//! | a view, a constant or an input | 0 |
//! | anything else | the elements of its result |

use crate::Result;
use crate::compiled::session::Session;
use crate::compiled::trace::Trace;
use crate::hypergradient::Oracles;
use bilevel_graph::{Graph, Op, Program, Tensor, gradient};

/// The operations of one step of a program.
pub(crate) fn operations(program: &Program) -> f64 {
    let size = |node: usize| program.nodes[node].meta.shape.iter().product::<usize>() as f64;
    let one = |(number, node): (usize, &bilevel_graph::ProgramNode)| {
        let shape = |operand: usize| &program.nodes[node.inputs[operand]].meta.shape;
        match &node.op {
            Op::Input(_) | Op::Constant(_) | Op::Iota(_) | Op::Reshape | Op::Transpose(_) | Op::Broadcast(_) => 0.0,
            Op::StopGradient | Op::Custom(_) | Op::Slice { .. } => 0.0,
            Op::Dot(dims, _) => {
                let summed: usize = dims.lhs_contract.iter().map(|axis| shape(0)[*axis]).product();
                2.0 * size(number) * summed as f64
            }
            // In every role: each result is a sum over one kernel.
            Op::Conv(..) => 2.0 * size(number) * shape(1)[1..].iter().product::<usize>() as f64,
            Op::Reduce(..) | Op::ArgMax(_) | Op::ScatterAdd { .. } | Op::WindowArgMax(_) | Op::Block(_) => {
                node.inputs.iter().map(|input| size(*input)).sum()
            }
            _ => size(number),
        }
    };
    program.nodes.iter().enumerate().map(one).sum()
}

/// The operations of the derivatives of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prices {
    inner: f64,
    outer: f64,
}

impl Prices {
    /// Traces both losses and their gradients.
    pub fn of(session: &Session) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let priced = |loss: Tensor| -> Result<f64> {
            let slopes = gradient(loss, &trace.theta)?.into_iter().flatten();
            let program = Program::builder(&graph).output("loss", loss);
            let program =
                slopes.enumerate().fold(program, |program, (i, slope)| program.output(format!("slope.{i}"), slope));
            Ok(operations(&program.build()?))
        };
        let inner = priced(trace.inner(&trace.theta, graph.step())?)?;
        Ok(Prices { inner, outer: priced(trace.outer(&trace.theta, graph.step())?)? })
    }

    /// The least cost of these derivatives: a reverse pass over a gradient costs two gradients, products of one pass
    /// count once, and a loss costs a third of its gradient.
    pub fn of_oracles(&self, oracles: Oracles) -> f64 {
        let Oracles { inner_gradients, outer_gradients, hessian_products, mixed_products, losses } = oracles;
        let passes = hessian_products.max(mixed_products);
        self.inner * (inner_gradients + 2 * passes) as f64
            + self.outer * outer_gradients as f64
            + self.inner.min(self.outer) / 3.0 * losses as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::DType;

    #[test]
    fn products_sums_and_elements_are_counted_and_views_are_free() {
        let graph = Graph::new();
        let (x, w) = (graph.input("x", [5, 3], DType::F64), graph.input("w", [3, 2], DType::F64));
        let product = x.matmul(w);
        let count = |value: Tensor| operations(&Program::builder(&graph).output("it", value).build().unwrap());
        assert_eq!(count(product), 60.0);
        assert_eq!(count(product.reshape([10])), 60.0);
        assert_eq!(count(product.tanh()), 70.0);
        assert_eq!(count(product.tanh().sum_all()), 80.0);
    }

    #[test]
    fn a_convolution_and_the_gradient_of_its_kernel_cost_alike() {
        let graph = Graph::new();
        let (x, w) = (graph.input("x", [4, 3, 8, 8], DType::F64), graph.input("w", [6, 3, 3, 3], DType::F64));
        let spacing = [1, 1];
        let y = x.conv(
            w,
            bilevel_graph::ConvDims {
                stride: spacing,
                padding: [(0, 0); 2],
                image_dilation: spacing,
                kernel_dilation: spacing,
                groups: 1,
            },
        );
        let count = |value: Tensor| operations(&Program::builder(&graph).output("it", value).build().unwrap());
        let once = 2.0 * (4 * 6 * 6 * 6 * 27) as f64;
        assert_eq!(count(y), once);
        let slope = gradient((y * y).sum_all(), &[w]).unwrap()[0].unwrap();
        // Forward, and the sums over images and places for each number of the kernel; the rest are elements.
        let elements = count(slope) - 2.0 * once;
        assert!((0.0..once / 10.0).contains(&elements), "{elements}");
    }
}
