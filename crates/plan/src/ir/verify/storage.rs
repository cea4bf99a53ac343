//! The verifier's rules for storage types and math modes: the storage, operands and math modes that a node of each kind
//! may have.

use crate::ir::lowered::LoweredProgram;
use crate::ir::node::{CastForm, Elementwise, Kind, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::verify::require;
use crate::lower::pad_sum::are_disjoint;
use bilevel_graph::{DType, Precision, Result, UnaryOp};

impl LoweredProgram<'_> {
    /// Checks the storage of a node's result and of its operands, and its math mode.
    pub(crate) fn verify_storage(&self, id: usize) -> Result<()> {
        let node = &self.nodes[id];
        let storage = node.storage;
        require(storage.dtype() == node.dtype, || format!("node {id} is of {} and stored as {storage:?}", node.dtype))?;
        let allowed = match storage {
            StorageType::F16 => is_scaled(&node.kind),
            StorageType::Bf16 => self.may_be_bf16(id),
            StorageType::F32 => !is_scaled(&node.kind) && !matches!(node.kind, Kind::CarriedCast(CastForm::Bf16)),
            StorageType::F64 | StorageType::I32 => true,
        };
        require(allowed, || format!("node {id} cannot be stored as {storage:?}"))?;
        for (read, _) in node.reads() {
            let storage = self.nodes[read].storage;
            require(reads(&node.kind, storage), || {
                format!("node {id} cannot read node {read}, stored as {storage:?}")
            })?;
        }
        self.verify_math_mode(id)
    }

    /// Returns true if bf16 represents all values of a node, or they are what a `Bf16` product rounds its result to.
    fn may_be_bf16(&self, id: usize) -> bool {
        let node = &self.nodes[id];
        let is_bf16 =
            |operand: &Operand| operand.at().is_some_and(|(read, _)| self.nodes[read].storage == StorageType::Bf16);
        let moves_bf16 = || node.operands.iter().all(is_bf16);
        match &node.kind {
            Kind::CarriedCast(form) => *form == CastForm::Bf16,
            Kind::Dot(_, mode) | Kind::Conv(_, _, mode) => *mode == Precision::Bf16,
            Kind::Elementwise(function) => match function {
                Elementwise::Copy => moves_bf16(),
                Elementwise::Round(precision) => *precision == Precision::Bf16,
                Elementwise::Unary(op) => *op == UnaryOp::Sign,
                Elementwise::Binary(op) => op.is_comparison(),
                Elementwise::Select
                | Elementwise::Convert(_)
                | Elementwise::ScaleToF16(_)
                | Elementwise::Unscale(_)
                | Elementwise::Random(..) => false,
            },
            Kind::Concat(_) | Kind::Pad(_) => moves_bf16(),
            // At the boundary of two pieces, their sum has more bits.
            Kind::PadSum(frames) => moves_bf16() && are_disjoint(frames, &node.operands),
            Kind::Input
            | Kind::Table(_)
            | Kind::Reduce(..)
            | Kind::AmaxExponent
            | Kind::ArgMax
            | Kind::Gather { .. }
            | Kind::InlineGather { .. }
            | Kind::ScatterAdd { .. }
            | Kind::AddRows { .. }
            | Kind::WindowArgMax(_)
            | Kind::CumSum { .. }
            | Kind::Block(_)
            | Kind::Host(_)
            | Kind::Collective(_)
            | Kind::CheckIndex { .. } => false,
        }
    }

    /// Only 32-bit floats are rounded by a multiplication. Scaled fp16 is multiplied by scaled fp16.
    fn verify_math_mode(&self, id: usize) -> Result<()> {
        let node = &self.nodes[id];
        let (Kind::Dot(_, mode) | Kind::Conv(_, _, mode)) = node.kind else { return Ok(()) };
        require(mode == Precision::Full || node.dtype == DType::F32, || {
            format!("node {id} multiplies {} in the mode {mode}", node.dtype)
        })?;
        let scaled = node.reads().filter(|(read, _)| self.nodes[*read].storage == StorageType::F16).count();
        require(scaled != 1, || format!("node {id} multiplies scaled fp16 and another type"))
    }
}

/// Returns true for the kinds whose results are scaled fp16.
fn is_scaled(kind: &Kind) -> bool {
    matches!(kind, Kind::Elementwise(Elementwise::ScaleToF16(_)) | Kind::CarriedCast(CastForm::ScaledF16))
}

/// Returns true if a node of this kind can read operands that are stored so.
fn reads(kind: &Kind, storage: StorageType) -> bool {
    match kind {
        Kind::Dot(_, Precision::Tf32) => storage != StorageType::Bf16,
        Kind::Dot(_, Precision::Bf16) | Kind::Conv(_, _, Precision::Bf16) => storage != StorageType::F16,
        Kind::Elementwise(Elementwise::Random(..)) => !storage.is_reduced(),
        Kind::Elementwise(_)
        | Kind::Reduce(..)
        | Kind::AmaxExponent
        | Kind::ArgMax
        | Kind::InlineGather { .. }
        | Kind::Concat(_)
        | Kind::Pad(_)
        | Kind::PadSum(_) => storage != StorageType::F16,
        Kind::Dot(_, Precision::Full)
        | Kind::Conv(_, _, Precision::Full | Precision::Tf32)
        | Kind::Input
        | Kind::CarriedCast(_)
        | Kind::Table(_)
        | Kind::Gather { .. }
        | Kind::ScatterAdd { .. }
        | Kind::AddRows { .. }
        | Kind::WindowArgMax(_)
        | Kind::CumSum { .. }
        | Kind::Block(_)
        | Kind::Host(_)
        | Kind::Collective(_)
        | Kind::CheckIndex { .. } => !storage.is_reduced(),
    }
}
