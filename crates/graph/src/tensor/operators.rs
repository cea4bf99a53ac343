//! `+ − · /` and unary minus on tensors and numbers.

use crate::ir::op::{BinaryOp, UnaryOp};
use crate::tensor::Tensor;
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! operator {
    ($trait:ident, $method:ident, $op:ident) => {
        impl $trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                self.binary(BinaryOp::$op, other)
            }
        }

        impl $trait<f64> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, value: f64) -> Tensor {
                self.binary(BinaryOp::$op, self.number(stringify!($method), value))
            }
        }

        impl $trait<Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                other.number(stringify!($method), self).binary(BinaryOp::$op, other)
            }
        }
    };
}

operator!(Add, add, Add);
operator!(Sub, sub, Sub);
operator!(Mul, mul, Mul);
operator!(Div, div, Div);

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(UnaryOp::Neg)
    }
}
