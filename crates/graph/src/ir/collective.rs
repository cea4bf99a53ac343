//! Communication as primitives, which only programs partitioned for ranks have.
//!
//! Derivatives are taken of the whole program, before it is partitioned. So no collective has a derivative, and none needs one.

use crate::exec::communicator::{Link, part_of};
use crate::ir::graph::make;
use crate::ir::infer::Meta;
use crate::ir::op::Op;
use crate::shape::element_count;
use crate::{DType, Result, Tensor};

/// The operation of the ranks on an array of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// The sum over all ranks, on every rank: an all-reduce.
    SumRanks,
    /// The parts of all ranks along the first axis, on every rank: an all-gather. These are their lengths.
    GatherRanks(Vec<usize>),
    /// This rank's part along the first axis of the sum over all ranks: a reduce-scatter. These are the lengths of the parts.
    ScatterSum(Vec<usize>),
}

/// A collective over the ranks of a communicator. All ranks run the collectives of a program in one order: each has the
/// previous one as its second operand, which is not read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collective {
    /// The operation.
    pub kind: CollectiveKind,
    /// The ranks that do it.
    pub link: Link,
}

impl Collective {
    /// Its name in programs and errors.
    pub fn name(&self) -> &'static str {
        match self.kind {
            CollectiveKind::SumRanks => "sum_ranks",
            CollectiveKind::GatherRanks(_) => "gather_ranks",
            CollectiveKind::ScatterSum(_) => "scatter_sum",
        }
    }

    /// Its value of this operand, for tests of executors. It has no derivative.
    #[track_caller]
    pub fn of(&self, x: Tensor) -> Tensor {
        make(x.graph_id(), self.name(), Op::Collective(self.clone()), &[x], None)
    }

    /// The type and shape of the result, or the reason why the operand does not fit.
    pub(crate) fn result(&self, operands: &[&Meta]) -> std::result::Result<Meta, String> {
        let ([x] | [x, _]) = operands else {
            return Err("needs one operand, and at most the collective before".into());
        };
        let (rank, ranks) = (self.link.rank(), self.link.size());
        let with_first = |length: usize| Meta { dtype: x.dtype, shape: [&[length], &x.shape[1..]].concat() };
        let (parts, expected) = match &self.kind {
            CollectiveKind::SumRanks => return Ok((*x).clone()),
            CollectiveKind::GatherRanks(parts) => (parts, parts.get(rank).copied()),
            CollectiveKind::ScatterSum(parts) => (parts, Some(parts.iter().sum())),
        };
        if parts.len() != ranks {
            return Err(format!("there are {} parts for {ranks} ranks", parts.len()));
        }
        if x.shape.first().copied() != expected {
            return Err(format!("the first axis must have parts {parts:?}, of which this is rank {rank}"));
        }
        Ok(match &self.kind {
            CollectiveKind::ScatterSum(parts) => with_first(parts[rank]),
            _ => with_first(parts.iter().sum()),
        })
    }

    /// Computes it for an executor, from the row-major bytes of the operand in machine order to those of the result.
    pub fn run(&self, operand: &[u8], dtype: DType, result: &mut [u8]) -> Result<()> {
        let bytes = |parts: &[usize], whole: usize| -> Vec<usize> {
            let elements: usize = parts.iter().sum();
            parts.iter().map(|n| n * whole / elements.max(1)).collect()
        };
        match &self.kind {
            CollectiveKind::SumRanks => {
                result.copy_from_slice(operand);
                self.link.sum(result, dtype)
            }
            CollectiveKind::GatherRanks(parts) => self.link.gather(operand, &bytes(parts, result.len()), result),
            CollectiveKind::ScatterSum(parts) => {
                let own = self.link.scatter(operand, &bytes(parts, operand.len()), dtype)?;
                result.copy_from_slice(&own);
                Ok(())
            }
        }
    }

    /// Computes it for an executor that holds every type as `f64`.
    pub(crate) fn run_on_f64(&self, operand: &[f64], meta: &Meta) -> Result<Vec<f64>> {
        let shape = [operand.len()];
        let typed = crate::Array::from_values(shape, operand, meta.dtype)?;
        let mut result = crate::Array::zeros([element_count(&meta.shape)], meta.dtype);
        self.run(typed.bytes(), meta.dtype, result.bytes_mut())?;
        Ok(result.to_f64())
    }

    /// The elements of this rank along an axis of these parts.
    pub fn own_part(parts: &[usize], rank: usize) -> std::ops::Range<usize> {
        part_of(parts, rank)
    }
}
