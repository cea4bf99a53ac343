//! One derivative rule a primitive: given y = op(x₁, x₂, …) and the cotangent g of y, the cotangent of one operand,
//! written in primitives again. `None` says the derivative is structurally zero.

use crate::DType;
use crate::autodiff::conv_rules::{conv_image, conv_kernel};
use crate::ir::graph::{NodeId, refuse};
use crate::ir::op::{BinaryOp, BlockOp, DotDims, Op, ReduceOp, UnaryOp};
use crate::shape::{inverse_permutation, other_axes};
use crate::tensor::Tensor;
use std::f64::consts::FRAC_2_SQRT_PI;

/// Returns true if the derivative with respect to every operand is structurally zero.
pub(crate) fn has_no_derivative(op: &Op) -> bool {
    match op {
        Op::Unary(UnaryOp::Sign | UnaryOp::Floor) => true,
        Op::Binary(op) => op.is_comparison(),
        Op::Convert(to) => *to == DType::I32,
        Op::StopGradient | Op::CheckIndex(_) | Op::ArgMax(_) | Op::WindowArgMax(_) | Op::Random(..) => true,
        Op::Block(BlockOp::ArgSort | BlockOp::ScatterArgMax { .. }) => true,
        _ => false,
    }
}

/// The operands through which a derivative can flow: of a custom node all but its value.
pub(crate) fn differentiable<'a>(op: &Op, inputs: &'a [NodeId]) -> &'a [NodeId] {
    match op {
        _ if has_no_derivative(op) => &[],
        Op::Custom(_) => inputs.get(1..).unwrap_or_default(),
        _ => inputs,
    }
}

/// The cotangent of operand `which` of `y = op(x)`, given the cotangent `g` of y.
pub(crate) fn pullback(op: &Op, x: &[Tensor], y: Tensor, g: Tensor, which: usize) -> Option<Tensor> {
    if has_no_derivative(op) {
        return None;
    }
    Some(match op {
        Op::Unary(op) => unary(*op, x[0], y, g)?,
        Op::Binary(op) => binary(*op, x[0], x[1], y, g, which)?,
        Op::Select => match which {
            0 => return None,
            1 => x[0].select(g, 0.0),
            _ => x[0].select(0.0, g),
        },
        Op::Convert(_) if x[0].dtype() == DType::I32 => return None,
        Op::Convert(_) => g.convert(x[0].dtype()),
        Op::Reshape => g.reshape(x[0].shape()),
        Op::Transpose(perm) => g.transpose(inverse_permutation(perm)),
        Op::Broadcast(axes) => g.sum(other_axes(y.rank(), axes)),
        Op::Slice { start, step, .. } => {
            let (from, to) = (x[0].shape(), y.shape());
            let used = |i: usize| start[i] + if to[i] == 0 { 0 } else { (to[i] - 1) * step[i] + 1 };
            let high = (0..from.len()).map(|i| from[i] - used(i)).collect();
            g.pad_all(start.clone(), high, step.iter().map(|s| s - 1).collect())
        }
        Op::Pad { low, interior, .. } => {
            let from = x[0].shape();
            let end = |i: usize| low[i] + if from[i] == 0 { 0 } else { (from[i] - 1) * (interior[i] + 1) + 1 };
            g.slice_all(low.clone(), (0..from.len()).map(end).collect(), interior.iter().map(|n| n + 1).collect())
        }
        Op::Concat(axis) => {
            let start: usize = x[..which].iter().map(|t| t.dim(*axis)).sum();
            g.slice(*axis, start, start + x[which].dim(*axis))
        }
        Op::Reverse(axes) => g.reverse(axes),
        Op::Reduce(ReduceOp::Sum, axes) => g.broadcast(other_axes(x[0].rank(), axes), x[0].shape()),
        Op::Reduce(ReduceOp::Max, _) if x[0].is_empty() => x[0].zeros_like(),
        Op::Reduce(ReduceOp::Max, axes) => {
            let spread = g.broadcast(other_axes(x[0].rank(), axes), x[0].shape());
            first_largest(x[0], axes).select(spread, 0.0)
        }
        // In a graph, every product is of full precision.
        Op::Dot(dims, _) if which == 0 => dot_left(dims, x[0], x[1], g),
        Op::Dot(dims, _) => dot_right(dims, x[0], x[1], g),
        // An image without elements is all padding.
        Op::Conv(..) if x[0].is_empty() => x[which].zeros_like(),
        Op::Conv(dims, role, _) if which == 0 => conv_image(dims, *role, [x[0], x[1]], g),
        Op::Conv(dims, role, _) => conv_kernel(dims, *role, [x[0], x[1]], g),
        Op::Gather { batch } if which == 0 => g.scatter_add(x[1], *batch, x[0].dim(*batch)),
        Op::ScatterAdd { batch, .. } if which == 1 => g.gather(x[0], *batch),
        Op::Gather { .. } | Op::ScatterAdd { .. } => return None,
        Op::CumSum { axis, reverse } => g.cumsum_from(*axis, !reverse),
        Op::Host(call) => match call.function().pullback(x, g, which) {
            Ok(cotangent) => cotangent?,
            Err(reason) => refuse(call.function().name(), x, reason),
        },
        Op::Collective(collective) => {
            let reason = "a collective has no derivative; take derivatives of the whole program, then partition it";
            refuse(collective.name(), x, reason.into())
        }
        Op::Block(BlockOp::Cholesky) => cholesky(y, g),
        Op::Block(BlockOp::TriangularSolve { lower, transposed }) => {
            let of_b = x[0].triangular_solve(g, *lower, !transposed);
            match (which, transposed) {
                (0, false) => triangle(-of_b.matmul(y.t()), *lower),
                (0, true) => triangle(-y.matmul(of_b.t()), *lower),
                _ => of_b,
            }
        }
        Op::Block(BlockOp::ArgSort | BlockOp::ScatterArgMax { .. }) => return None,
        // `vjp` gets the cotangents of all operands of a custom node from its rule at once.
        Op::Input(_) | Op::Constant(_) | Op::Iota(_) | Op::Custom(_) => return None,
        Op::StopGradient | Op::CheckIndex(_) | Op::ArgMax(_) | Op::WindowArgMax(_) | Op::Random(..) => return None,
    })
}

fn unary(op: UnaryOp, x: Tensor, y: Tensor, g: Tensor) -> Option<Tensor> {
    Some(match op {
        UnaryOp::Neg => -g,
        UnaryOp::Abs => g * x.sign(),
        UnaryOp::Sign | UnaryOp::Floor => return None,
        UnaryOp::Recip => -(g * y * y),
        UnaryOp::Sqrt => g * 0.5 / y,
        UnaryOp::Exp => g * y,
        UnaryOp::Expm1 => g * (y + 1.0),
        UnaryOp::Log => g / x,
        UnaryOp::Log1p => g / (x + 1.0),
        UnaryOp::Sin => g * x.cos(),
        UnaryOp::Cos => -(g * x.sin()),
        UnaryOp::Atan => g / (x * x + 1.0),
        UnaryOp::Tanh => g * (1.0 - y * y),
        UnaryOp::Sigmoid => g * (y * (1.0 - y)),
        UnaryOp::Erf => g * ((-(x * x)).exp() * FRAC_2_SQRT_PI),
        UnaryOp::Erfc => g * ((-(x * x)).exp() * -FRAC_2_SQRT_PI),
        UnaryOp::LnGamma => g * x.digamma(),
        UnaryOp::Digamma => g * x.polygamma(1),
    })
}

fn binary(op: BinaryOp, a: Tensor, b: Tensor, y: Tensor, g: Tensor, which: usize) -> Option<Tensor> {
    Some(match (op, which) {
        (BinaryOp::Add, _) | (BinaryOp::Sub, 0) => g,
        (BinaryOp::Sub, _) => -g,
        (BinaryOp::Mul, 0) => g * b,
        (BinaryOp::Mul, _) => g * a,
        (BinaryOp::Div, 0) => g / b,
        (BinaryOp::Div, _) => -(g / b * y),
        // If both are equal, the first takes it all: one subgradient, and the same at every order.
        (BinaryOp::Max, 0) => b.less_equal(a).select(g, 0.0),
        (BinaryOp::Max, _) => b.less_equal(a).select(0.0, g),
        (BinaryOp::Min, 0) => a.less_equal(b).select(g, 0.0),
        (BinaryOp::Min, _) => a.less_equal(b).select(0.0, g),
        (BinaryOp::Pow, 0) => g * b * a.pow(b - 1.0),
        (BinaryOp::Pow, _) => {
            let positive = a.greater(0.0);
            let log = positive.select(a, 1.0).log();
            positive.select(g * y * log, 0.0)
        }
        // Only whole orders have a value.
        (BinaryOp::Polygamma, 0) => return None,
        (BinaryOp::Polygamma, _) => g * (a + 1.0).binary(BinaryOp::Polygamma, b),
        (BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le, _) => return None,
    })
}

/// 1 at the first largest element over `axes`, else 0, in the shape and type of `x`.
fn first_largest(x: Tensor, axes: &[usize]) -> Tensor {
    let shape = x.shape();
    let kept = other_axes(shape.len(), axes);
    // The reduced axes last and as one, so that "first" has a meaning.
    let perm: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let ordered = x.transpose(&perm);
    let mut flat: Vec<usize> = kept.iter().map(|&a| shape[a]).collect();
    flat.push(axes.iter().map(|&a| shape[a]).product());
    let last = flat.len() - 1;
    let rows = ordered.reshape(&flat);
    let chosen = rows.argmax(last).broadcast((0..last).collect::<Vec<_>>(), &flat);
    let mask = chosen.iota_like(last).equal(chosen).convert(x.dtype());
    mask.reshape(ordered.shape()).transpose(inverse_permutation(&perm))
}

/// The lower or the upper triangle of matrices, with zeros elsewhere.
fn triangle(x: Tensor, lower: bool) -> Tensor {
    let (row, column) = (x.iota_like(x.rank() - 2), x.iota_like(x.rank() - 1));
    if lower { column.less_equal(row).select(x, 0.0) } else { row.less_equal(column).select(x, 0.0) }
}

/// With A = L·Lᵀ and Φ the lower triangle with half of the diagonal: M = L⁻ᵀ·Φ(Lᵀ·g)·L⁻¹ and ∂/∂A = 2Φ(½(M + Mᵀ)), which is for the
/// lower triangle of A alone (Murray, "Differentiation of the Cholesky decomposition", 2016).
fn cholesky(l: Tensor, g: Tensor) -> Tensor {
    let half = |x: Tensor| {
        let (row, column) = (x.iota_like(x.rank() - 2), x.iota_like(x.rank() - 1));
        column.less(row).select(x, column.equal(row).select(x * 0.5, 0.0))
    };
    let inner = half(l.t().matmul(triangle(g, true)));
    let left = l.triangular_solve(inner, true, true);
    let m = l.triangular_solve(left.t(), true, true).t();
    half(m + m.t())
}

/// With y = [batch, free a, free b]: ∂/∂a = g·b over b's free axes, its axes put in a's order.
fn dot_left(dims: &DotDims, a: Tensor, b: Tensor, g: Tensor) -> Tensor {
    let batch = dims.lhs_batch.len();
    let free_a = other_axes(a.rank(), &[&dims.lhs_batch[..], &dims.lhs_contract].concat());
    let free_b = other_axes(b.rank(), &[&dims.rhs_batch[..], &dims.rhs_contract].concat());
    let product = g.dot(
        b,
        DotDims {
            lhs_contract: (batch + free_a.len()..g.rank()).collect(),
            rhs_contract: free_b,
            lhs_batch: (0..batch).collect(),
            rhs_batch: dims.rhs_batch.clone(),
        },
    );
    let contracted = paired_in_order(&dims.rhs_contract, &dims.lhs_contract);
    let places = [&dims.lhs_batch[..], &free_a, &contracted].concat();
    product.transpose(inverse_permutation(&places))
}

/// As `dot_left`, for b: ∂/∂b = a·g over a's free axes.
fn dot_right(dims: &DotDims, a: Tensor, b: Tensor, g: Tensor) -> Tensor {
    let batch = dims.lhs_batch.len();
    let free_a = other_axes(a.rank(), &[&dims.lhs_batch[..], &dims.lhs_contract].concat());
    let free_b = other_axes(b.rank(), &[&dims.rhs_batch[..], &dims.rhs_contract].concat());
    let product = a.dot(
        g,
        DotDims {
            rhs_contract: (batch..batch + free_a.len()).collect(),
            lhs_contract: free_a,
            lhs_batch: dims.lhs_batch.clone(),
            rhs_batch: (0..batch).collect(),
        },
    );
    let contracted = paired_in_order(&dims.lhs_contract, &dims.rhs_contract);
    let places = [&dims.rhs_batch[..], &contracted, &free_b].concat();
    product.transpose(inverse_permutation(&places))
}

/// The partners of `axes`, in increasing order of `axes`.
fn paired_in_order(axes: &[usize], partners: &[usize]) -> Vec<usize> {
    let mut pairs: Vec<(usize, usize)> = axes.iter().copied().zip(partners.iter().copied()).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, partner)| partner).collect()
}
