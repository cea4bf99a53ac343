//! The primitives on single numbers, in the obvious way: for constant folding, the reference evaluator, and executors that
//! compute a single number at a time. Every f32 and i32 is an f64, so one form serves all types.
//!
//! ```
//! use bilevel_graph::{BinaryOp, DType, UnaryOp, scalar};
//! assert_eq!(scalar::binary(BinaryOp::Add, i32::MAX as f64, 1.0, DType::I32), i32::MIN as f64);
//! assert!(scalar::unary(UnaryOp::Sign, -0.0, DType::F32).is_sign_negative());
//! ```

use crate::DType;
use crate::ir::op::{BinaryOp, UnaryOp};
use crate::scalar_gamma::{digamma, polygamma};

/// `op(x)` in the arithmetic of `dtype`, for an x that the type can hold.
#[inline]
pub fn unary(op: UnaryOp, x: f64, dtype: DType) -> f64 {
    let y = match op {
        // 0 − x wraps for integers, and −x is the same.
        UnaryOp::Neg if dtype == DType::I32 => (x as i32).wrapping_neg() as f64,
        UnaryOp::Abs if dtype == DType::I32 => (x as i32).wrapping_abs() as f64,
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign if x == 0.0 || x.is_nan() => x,
        UnaryOp::Sign => 1f64.copysign(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Expm1 => x.exp_m1(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid if x >= 0.0 => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Sigmoid => x.exp() / (1.0 + x.exp()),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Erfc => libm::erfc(x),
        UnaryOp::LnGamma => libm::lgamma(x),
        UnaryOp::Digamma => digamma(x),
    };
    round(y, dtype)
}

/// `op(a, b)` in the arithmetic of `dtype`, for operands that the type can hold.
#[inline]
pub fn binary(op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64 {
    let truth = |holds: bool| holds as i32 as f64;
    if dtype == DType::I32 {
        let (i, j) = (a as i32, b as i32);
        match op {
            BinaryOp::Add => return i.wrapping_add(j) as f64,
            BinaryOp::Sub => return i.wrapping_sub(j) as f64,
            BinaryOp::Mul => return i.wrapping_mul(j) as f64,
            _ => {}
        }
    }
    let y = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Max => {
            if b > a {
                b
            } else {
                a
            }
        }
        BinaryOp::Min if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Min => {
            if b < a {
                b
            } else {
                a
            }
        }
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Polygamma => polygamma(a, b),
        BinaryOp::Eq => truth(a == b),
        BinaryOp::Ne => truth(a != b),
        BinaryOp::Lt => truth(a < b),
        BinaryOp::Le => truth(a <= b),
    };
    round(y, dtype)
}

/// The nearest value the type can hold; integers as in [`Op::Convert`](crate::Op::Convert).
#[inline]
pub fn round(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => x as f32 as f64,
        DType::F64 => x,
        DType::I32 => x as i32 as f64,
    }
}
