//! Square roots and norms that can be differentiated at 0, and the matrix exponential.

use super::call::{Call, require};
use crate::DType;
use crate::tensor::Tensor;

/// √x, and 0 for x ≤ 0. At 0 its derivatives of every order are taken as 0, so they are finite.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, gradient, nn};
/// let g = Graph::new();
/// let x = g.input("x", [2], DType::F64);
/// let dx = gradient(nn::safe_sqrt(x).sum_all(), &[x]).unwrap()[0].unwrap();
/// let value = Array::from_f64([2], vec![0.0, 4.0]).unwrap();
/// assert_eq!(Reference::evaluate(&g, &[(x, value)], &[dx]).unwrap()[0].to_f64(), [0.0, 0.25]);
/// ```
#[track_caller]
pub fn safe_sqrt(x: Tensor) -> Tensor {
    // Selected twice: the operand of an unused root is 1, so that no derivative of it is infinite.
    let positive = x.greater(0.0);
    Call::new("safe_sqrt", &[x]).done(positive.select(positive.select(x, 1.0).sqrt(), 0.0))
}

/// √Σx² over `axes`, which disappear. At 0 its derivatives of every order are taken as 0.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, gradient, nn};
/// let g = Graph::new();
/// let x = g.input("x", [2, 2], DType::F64);
/// let norm = nn::norm(x, [1]);
/// let dx = gradient(norm.sum_all(), &[x]).unwrap()[0].unwrap();
/// let value = Array::from_f64([2, 2], vec![3.0, 4.0, 0.0, 0.0]).unwrap();
/// let found = Reference::evaluate(&g, &[(x, value)], &[norm, dx]).unwrap();
/// assert_eq!(found[0].to_f64(), [5.0, 0.0]);
/// assert!((found[1].to_f64()[0] - 0.6).abs() < 1e-15);
/// assert_eq!(found[1].to_f64()[2..], [0.0, 0.0]);
/// ```
#[track_caller]
pub fn norm(x: Tensor, axes: impl AsRef<[usize]>) -> Tensor {
    let operands = [x];
    let call = Call::new("norm", &operands);
    require!(call, x.dtype().is_float(), "needs floats");
    call.done(safe_sqrt(x.square().sum(axes)))
}

/// Σ Aᵏ/k! for every square matrix of a `[.., d, d]`.
///
/// A/2ˢ is summed to k = 16 and the sum squared s times, with s fixed so that the graph does not depend on the numbers.
/// In f64, s = 5 is right to 1e-12 (relative to the largest element) for norms up to 16. In f32, every squaring doubles
/// the rounding of the sum, and s = 2 is right to single precision for norms up to 8. Scale matrices of larger norms
/// down and square the result.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let a = g.input("a", [2, 2], DType::F64);
/// let turn = Array::from_f64([2, 2], vec![0.0, -0.5, 0.5, 0.0]).unwrap();
/// let found = Reference::evaluate(&g, &[(a, turn)], &[nn::matrix_exponential(a)]).unwrap()[0].to_f64();
/// assert!((found[0] - 0.5f64.cos()).abs() < 1e-14 && (found[2] - 0.5f64.sin()).abs() < 1e-14);
/// ```
#[track_caller]
pub fn matrix_exponential(a: Tensor) -> Tensor {
    let operands = [a];
    let call = Call::new("matrix_exponential", &operands);
    let (shape, rank) = (a.shape(), a.rank());
    require!(call, a.dtype().is_float(), "needs floats");
    require!(call, rank >= 2 && shape[rank - 2] == shape[rank - 1], "needs square matrices [.., d, d]");
    let squarings = if a.dtype() == DType::F64 { 5 } else { 2 };
    let a = a * 0.5f64.powi(squarings);
    let identity = a.iota_like(rank - 2).equal(a.iota_like(rank - 1));
    let square = a.matmul(a);
    let cube = square.matmul(a);
    let fourth = square.matmul(square);
    // eᴬ − I instead of eᴬ, so that small terms are not lost to rounding next to the identity. In blocks of four
    // powers: B₀ + A⁴(B₁ + A⁴(B₂ + A⁴(B₃ + A⁴/16!))), Bⱼ = I/(4j)! + A/(4j+1)! + A²/(4j+2)! + A³/(4j+3)!, but B₀
    // without I.
    let factor = |k: usize| (1..=k).map(|i| 1.0 / i as f64).product::<f64>();
    let mut sum = fourth * factor(16);
    for k in [12, 8, 4, 0] {
        let powers = a * factor(k + 1) + (square * factor(k + 2) + cube * factor(k + 3));
        let block = if k == 0 { powers } else { identity * factor(k) + powers };
        sum = if k == 12 { sum + block } else { fourth.matmul(sum) + block };
    }
    // (I + X)² = I + (2X + X²). The last two squarings include the identity: an element far below 1 would otherwise be
    // the small difference of two near 1.
    for _ in 2..squarings {
        sum = sum * 2.0 + sum.matmul(sum);
    }
    let once = sum + identity;
    let twice = once.matmul(once);
    call.done(twice.matmul(twice))
}
