//! Independent parts of one hypergradient, such as chains or directions, shared out over ranks.
//!
//! A rank computes its parts as if there were no others, and then all ranks receive all results. So a part has the same bits on any
//! number of ranks. If there are fewer parts than ranks, all ranks compute every part together.

use crate::compiled::leaves::Leaves;
use crate::compiled::session::Session;
use crate::{Error, Result};
use bilevel_graph::{Buffer, ErrorKind, Link, even_parts, rank_error};
use std::ops::Range;

/// The assignment of parts to ranks.
#[derive(Clone)]
pub(crate) struct Shares {
    /// The ranks that share the parts out; `None` if all parts are this rank's.
    link: Option<Link>,
    parts: usize,
}

impl Shares {
    /// Shares this many parts, and returns the session in which to compile their programs.
    pub fn new(parts: usize, session: &Session) -> (Self, Session) {
        let alone = session.alone();
        match session.executor().link() {
            Some(link) if parts >= link.size() && alone.executor().link().is_none() => {
                (Shares { link: Some(link.clone()), parts }, alone)
            }
            _ => (Shares { link: None, parts }, session.clone()),
        }
    }

    /// True if this rank computes some of the parts only.
    pub fn is_shared_out(&self) -> bool {
        self.link.is_some()
    }

    /// The parts of this rank, of which there is at least one.
    pub fn own(&self) -> Range<usize> {
        let Some(link) = &self.link else { return 0..self.parts };
        let lengths = even_parts(self.parts, link.size());
        let start = lengths[..link.rank()].iter().sum();
        start..start + lengths[link.rank()]
    }

    /// Computes the parts of this rank, one after the other, and returns the numbers of all parts.
    pub fn numbers_of<const N: usize>(&self, part: impl FnMut(usize) -> Result<[f64; N]>) -> Result<Vec<[f64; N]>> {
        let own = self.agree(self.own().map(part).collect::<Result<Vec<_>>>())?;
        self.numbers(own)
    }

    /// The result of this rank; an error on every rank if there is one on any.
    pub fn agree<T>(&self, own: Result<T>) -> Result<T> {
        let Some(link) = &self.link else { return own };
        let code = match &own {
            Ok(_) => 0,
            Err(Error::Graph(error)) if error.kind == ErrorKind::Stopped => 1,
            Err(_) => 2,
        };
        let all = link.numbers(code)?;
        let own = own?;
        if let Some(failed) = all.iter().position(|&code| code == 2) {
            return Err(rank_error(format!("rank {failed} failed; see its message")).into());
        }
        match all.contains(&1) {
            true => Err(bilevel_graph::Error::new(ErrorKind::Stopped).into()),
            false => Ok(own),
        }
    }

    /// The numbers of all parts, from those of this rank's.
    pub fn numbers<const N: usize>(&self, own: Vec<[f64; N]>) -> Result<Vec<[f64; N]>> {
        let Some(link) = &self.link else { return Ok(own) };
        let bytes: Vec<u8> = own.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        let mut all = vec![0; 8 * N * self.parts];
        link.gather(&bytes, &self.lengths(link, 8 * N), &mut all)?;
        let numbers: Vec<f64> = all.as_chunks::<8>().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect();
        Ok(numbers.as_chunks::<N>().0.to_vec())
    }

    /// Fills the leaves of all parts, given part by part, from the rank of each. All parts have leaves of the same
    /// types and shapes.
    pub fn fill(&self, all: &[Leaves]) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let size = all.first().map_or(0, |leaves| leaves.iter().map(Buffer::byte_count).sum());
        if size == 0 {
            return Ok(());
        }
        let mut own = vec![0; size * self.own().len()];
        for (leaves, bytes) in all[self.own()].iter().zip(own.chunks_mut(size)) {
            each_leaf(leaves, bytes, |leaf, bytes| leaf.read_bytes(bytes))?;
        }
        let mut bytes = vec![0; size * self.parts];
        link.gather(&own, &self.lengths(link, size), &mut bytes)?;
        for (part, (leaves, bytes)) in all.iter().zip(bytes.chunks_mut(size)).enumerate() {
            if !self.own().contains(&part) {
                each_leaf(leaves, bytes, |leaf, bytes| leaf.write_bytes(bytes))?;
            }
        }
        Ok(())
    }

    /// Gives all ranks the bits of rank 0, for values that each has computed for itself: processors of another kind may
    /// round differently.
    pub fn as_on_the_first(&self, leaves: &Leaves) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let mut bytes = vec![0; leaves.iter().map(Buffer::byte_count).sum()];
        each_leaf(leaves, &mut bytes, |leaf, bytes| leaf.read_bytes(bytes))?;
        link.broadcast(&mut bytes, 0)?;
        match link.rank() {
            0 => Ok(()),
            _ => each_leaf(leaves, &mut bytes, |leaf, bytes| leaf.write_bytes(bytes)),
        }
    }

    /// The bytes of each rank's parts, if each has this many.
    fn lengths(&self, link: &Link, size: usize) -> Vec<usize> {
        even_parts(self.parts, link.size()).iter().map(|parts| parts * size).collect()
    }
}

/// Every leaf with its stretch of the bytes of all.
fn each_leaf(
    leaves: &Leaves,
    mut bytes: &mut [u8],
    mut work: impl FnMut(&Buffer, &mut [u8]) -> bilevel_graph::Result<()>,
) -> Result<()> {
    for leaf in leaves.iter() {
        let (own, rest) = bytes.split_at_mut(leaf.byte_count());
        work(leaf, own)?;
        bytes = rest;
    }
    Ok(())
}
