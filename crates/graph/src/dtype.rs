//! Element types a tensor can have.

use std::fmt;

/// The type of a tensor's elements.
///
/// Comparisons answer 0 or 1 in the type of their operands, so there is no boolean type.
///
/// ```
/// use bilevel_graph::DType;
/// assert_eq!(DType::F32.size(), 4);
/// assert!(DType::F64.is_float() && !DType::I32.is_float());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point.
    F64,
    /// 32-bit signed integer: labels, indices, step counters and random keys.
    I32,
}

impl DType {
    /// Bytes one element takes.
    pub const fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F64 => 8,
        }
    }

    /// Returns true for the types a derivative can be taken in.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I32 => "i32",
        })
    }
}
