//! The domains in which the elementwise primitives are smooth and well scaled, for tests of values and of derivatives.

use crate::{BinaryOp, UnaryOp};

impl UnaryOp {
    /// An interval on which the function is smooth and its derivatives are moderate; `None` if its derivative is structurally zero.
    ///
    /// ```
    /// assert_eq!(bilevel_graph::UnaryOp::Log.smooth_domain(), Some([0.7, 2.5]));
    /// ```
    pub fn smooth_domain(self) -> Option<[f64; 2]> {
        match self {
            UnaryOp::Sign | UnaryOp::Floor => None,
            UnaryOp::Recip | UnaryOp::Sqrt | UnaryOp::Log => Some([0.7, 2.5]),
            UnaryOp::LnGamma | UnaryOp::Digamma => Some([0.9, 3.5]),
            UnaryOp::Log1p => Some([-0.4, 1.5]),
            UnaryOp::Abs => Some([0.3, 2.0]),
            _ => Some([-1.5, 1.5]),
        }
    }
}

impl BinaryOp {
    /// Intervals of both operands on which the function is smooth in both; `None` if there are none.
    ///
    /// ```
    /// assert_eq!(bilevel_graph::BinaryOp::Lt.smooth_domain(), None);
    /// ```
    pub fn smooth_domain(self) -> Option<[[f64; 2]; 2]> {
        match self {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow => {
                Some([[0.7, 2.0], [0.6, 1.9]])
            }
            _ => None,
        }
    }
}
