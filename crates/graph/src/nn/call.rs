//! One call of a composite: its name and operands, so that every error names the composite and not its parts.

use crate::ir::graph::{make, refuse};
use crate::ir::op::Op;
use crate::tensor::Tensor;
use crate::{Error, ErrorKind};

/// The composite's name and the operands it was given.
pub(super) struct Call<'a> {
    pub name: &'static str,
    pub operands: &'a [Tensor],
}

impl<'a> Call<'a> {
    pub fn new(name: &'static str, operands: &'a [Tensor]) -> Self {
        Call { name, operands }
    }

    /// Returns true if every operand is a float and all have one type.
    pub fn floats_of_one_type(&self) -> bool {
        let first = self.operands[0].dtype();
        first.is_float() && self.operands.iter().all(|t| t.dtype() == first)
    }

    /// A tensor that carries this error, or the one an operand carries already.
    #[track_caller]
    pub fn refuse(&self, reason: String) -> Tensor {
        let first = self.operands[0];
        if self.operands.iter().any(|t| t.graph_id() != first.graph_id()) {
            // Tensors of several graphs: refused under this name before the operation is looked at.
            return make(first.graph_id(), self.name, Op::Concat(0), self.operands, None);
        }
        refuse(self.name, self.operands, reason)
    }

    /// The result; an error inside it becomes an error of this composite at the line of its call.
    #[track_caller]
    pub fn done(&self, result: Tensor) -> Tensor {
        match result.check() {
            Err(Error { kind: ErrorKind::Operation { operation, reason, .. }, .. }) if operation != self.name => {
                self.refuse(format!("{operation}: {reason}"))
            }
            // Tensors of several graphs, or of one that was dropped.
            Err(Error { kind: ErrorKind::ForeignTensor { .. }, .. }) => self.refuse(String::new()),
            _ => result,
        }
    }
}

/// Leaves the composite with an error if a condition on its operands does not hold.
macro_rules! require {
    ($call:expr, $holds:expr, $($reason:tt)+) => {
        if !$holds {
            return $call.refuse(format!($($reason)+));
        }
    };
}
pub(super) use require;
