//! The placement of a value's elements: on every rank, in parts along an axis, or as terms of a sum.

use std::fmt;
use std::sync::Arc;

/// The placement of a value's elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Placement {
    /// Every rank has the whole value, with the same bits.
    Replicated,
    /// Every rank has a part of one axis.
    Sharded(Sharding),
    /// Every rank has a term; the value is their sum.
    Partial,
}

/// Parts along an axis, by rank. None is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sharding {
    pub axis: usize,
    pub parts: Arc<[usize]>,
}

impl Placement {
    /// Parts along this axis.
    pub fn sharded(axis: usize, parts: &Arc<[usize]>) -> Self {
        Placement::Sharded(Sharding { axis, parts: parts.clone() })
    }

    pub fn sharding(&self) -> Option<&Sharding> {
        match self {
            Placement::Sharded(sharding) => Some(sharding),
            _ => None,
        }
    }

    pub fn is_partial(&self) -> bool {
        *self == Placement::Partial
    }

    pub fn is_replicated(&self) -> bool {
        *self == Placement::Replicated
    }

    /// The shape that a rank has of a value of this shape.
    pub fn local(&self, shape: &[usize], rank: usize) -> Vec<usize> {
        let mut shape = shape.to_vec();
        if let Some(Sharding { axis, parts }) = self.sharding() {
            shape[*axis] = parts[rank];
        }
        shape
    }
}

/// The placements of a program's inputs and outputs, in their order.
pub(crate) struct Owned {
    /// Those of inputs, and of their next values if they are carried.
    pub inputs: Vec<Placement>,
    pub outputs: Vec<Placement>,
}

impl Owned {
    /// Every rank has all of them.
    pub fn is_whole(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).all(Placement::is_replicated)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicated => f.write_str("replicated"),
            Placement::Sharded(Sharding { axis, parts }) => write!(f, "axis {axis} in parts {parts:?}"),
            Placement::Partial => f.write_str("terms of a sum"),
        }
    }
}
