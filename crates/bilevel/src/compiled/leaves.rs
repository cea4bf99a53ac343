//! Tensors by leaf, on their device.

use crate::hypergradient::MemoryTable;
use crate::{Error, Result};
use bilevel_graph::{Array, Buffer, Executor, Meta};
use std::collections::BTreeSet;
use std::ops::Deref;

/// The leaves of λ, of θ, or of values in their shapes: buffers of one executor, in the order of the tree.
///
/// A clone is another handle to the same memory; [`duplicate`](Self::duplicate) makes a copy.
///
/// ```
/// use bilevel::programs::Leaves;
/// use bilevel::{Array, Cpu};
/// let leaves = Leaves::upload(&Cpu::with_threads(1), &[Array::from_f64([2], vec![1.0, 2.0])?])?;
/// assert_eq!(leaves.numbers()?, [1.0, 2.0]);
/// leaves.zero()?;
/// assert_eq!(leaves.array(0)?.to_f64(), [0.0, 0.0]);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Leaves(Vec<Buffer>);

impl Leaves {
    /// These arrays on an executor.
    pub fn upload(executor: &dyn Executor, arrays: &[Array]) -> Result<Self> {
        Ok(Leaves(arrays.iter().map(|array| executor.upload(array)).collect::<bilevel_graph::Result<_>>()?))
    }

    /// Zeros of these types and shapes.
    pub fn zeros<'m>(executor: &dyn Executor, metas: impl IntoIterator<Item = &'m Meta>) -> Result<Self> {
        Ok(Leaves(metas.into_iter().map(|meta| executor.buffer(meta)).collect::<bilevel_graph::Result<_>>()?))
    }

    /// Zeros of the types and shapes of these.
    pub fn zeros_like(&self, executor: &dyn Executor) -> Result<Self> {
        Self::zeros(executor, self.0.iter().map(Buffer::meta))
    }

    /// A copy in separate memory.
    pub fn duplicate(&self, executor: &dyn Executor) -> Result<Self> {
        Ok(Leaves(self.0.iter().map(|leaf| executor.duplicate(leaf)).collect::<bilevel_graph::Result<_>>()?))
    }

    /// Takes the numbers of others of the same shapes, without the host.
    pub fn copy_from(&self, other: &Leaves) -> Result<()> {
        self.fits(other.len())?;
        Ok(self.0.iter().zip(&other.0).try_for_each(|(to, from)| to.copy_from(from))?)
    }

    /// As [`copy_from`](Self::copy_from), but of tables only the rows that were changed.
    pub(crate) fn copy_changes_from(&self, other: &Leaves, tables: &[MemoryTable]) -> Result<()> {
        self.fits(other.len())?;
        for (leaf, (to, from)) in self.0.iter().zip(&other.0).enumerate() {
            let Some(table) = tables.iter().find(|table| table.leaves.contains(&leaf)) else {
                to.copy_from(from)?;
                continue;
            };
            let row = to.byte_count() / to.shape().first().copied().unwrap_or(1).max(1);
            let rows: BTreeSet<usize> = table.changed.iter().copied().collect();
            rows.into_iter().try_for_each(|number| to.copy_part_from(from, number * row..(number + 1) * row))?;
        }
        Ok(())
    }

    /// Those that are in no table.
    pub(crate) fn outside(&self, tables: &[MemoryTable]) -> Leaves {
        let inside = |leaf: usize| tables.iter().any(|table| table.leaves.contains(&leaf));
        self.0.iter().enumerate().filter(|(leaf, _)| !inside(*leaf)).map(|(_, buffer)| buffer.clone()).collect()
    }

    /// Overwrites the numbers.
    pub fn write(&self, arrays: &[Array]) -> Result<()> {
        self.fits(arrays.len())?;
        Ok(self.0.iter().zip(arrays).try_for_each(|(leaf, array)| leaf.write(array))?)
    }

    /// Sets every number to 0.
    pub fn zero(&self) -> Result<()> {
        Ok(self.0.iter().try_for_each(Buffer::zero)?)
    }

    /// Copies on the host, leaf by leaf.
    pub fn arrays(&self) -> Result<Vec<Array>> {
        Ok(self.0.iter().map(Buffer::to_array).collect::<bilevel_graph::Result<_>>()?)
    }

    /// A copy of one leaf on the host.
    pub fn array(&self, leaf: usize) -> Result<Array> {
        let reason = || format!("there is no leaf {leaf}; there are {}", self.0.len());
        let buffer = self.0.get(leaf).ok_or_else(|| Error::Program { reason: reason() })?;
        Ok(buffer.to_array()?)
    }

    /// All numbers of all leaves, one after the other, as 64-bit floats.
    pub fn numbers(&self) -> Result<Vec<f64>> {
        Ok(self.arrays()?.iter().flat_map(Array::to_f64).collect())
    }

    /// Returns true if both have leaves of the same types and shapes.
    pub fn is_like(&self, other: &Leaves) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a.meta() == b.meta())
    }

    fn fits(&self, given: usize) -> Result<()> {
        if self.0.len() == given {
            return Ok(());
        }
        Err(Error::LeafCount { what: "a list of leaves".into(), found: given, expected: self.0.len() })
    }
}

impl Deref for Leaves {
    type Target = [Buffer];

    fn deref(&self) -> &[Buffer] {
        &self.0
    }
}

impl FromIterator<Buffer> for Leaves {
    fn from_iter<I: IntoIterator<Item = Buffer>>(buffers: I) -> Self {
        Leaves(buffers.into_iter().collect())
    }
}
