//! Ranks that compute one program together: how bytes move between them, and sums whose bits are the same on every rank.
//!
//! An implementation only moves bytes. Sums are taken here, in the order of the ranks, so their bits depend neither on
//! the library that moves the bytes nor on the size of a message.

use crate::ir::host::by_number;
use crate::{DType, Error, ErrorKind, Result};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Ranks that exchange bytes. Every rank makes the same calls in the same order; a call returns when its data are
/// complete.
pub trait Communicator: Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Puts the bytes of all ranks one after another, in the order of the ranks; `lengths` has the number of each rank's bytes.
    fn gather(&self, own: &[u8], lengths: &[usize], all: &mut [u8]) -> Result<()>;

    /// Sends every rank its part of `send`, whose parts have these lengths on every rank, and receives this rank's part from each, in the
    /// order of the ranks.
    fn exchange(&self, send: &[u8], lengths: &[usize], receive: &mut [u8]) -> Result<()>;

    /// Ends the work of all ranks: this one has failed for this reason. All later calls of the others fail and name the
    /// reason.
    fn abort(&self, reason: &str);

    /// Takes leave of the other ranks, which do the same; no call follows.
    fn finish(&self) {}
}

/// A handle to a [`Communicator`], with the collectives used by programs and runs. Two are equal if one is a clone of
/// the other.
#[derive(Clone)]
pub struct Link {
    number: u64,
    communicator: Arc<dyn Communicator>,
    /// Only this rank is at work, so nothing can be exchanged.
    is_alone: Arc<AtomicBool>,
}

/// The largest message that is moved at once by a sum: every rank holds a copy of it in addition to its operand.
const MAX_CHUNK: usize = 1 << 26;
/// A sum of at most this many bytes is gathered whole by every rank: one message instead of two.
const MAX_GATHERED: usize = 1 << 12;

impl Link {
    /// A link over this communicator.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let (number, communicator) = (CREATED.fetch_add(1, Ordering::Relaxed), Arc::new(communicator));
        Link { number, communicator, is_alone: Arc::default() }
    }

    /// Does work that the other ranks do not do at the same time. A collective within it is an error, as it would wait
    /// for them for ever.
    pub fn on_one_rank<R>(&self, work: impl FnOnce() -> R) -> R {
        self.is_alone.store(true, Ordering::Relaxed);
        let done = work();
        self.is_alone.store(false, Ordering::Relaxed);
        done
    }

    /// Refuses a collective during [`on_one_rank`](Self::on_one_rank).
    fn together(&self) -> Result<&dyn Communicator> {
        match self.is_alone.load(Ordering::Relaxed) {
            false => Ok(&*self.communicator),
            true => Err(rank_error(
                "an observer runs on one rank alone, which has only a part of this tensor; read it from a checkpoint or from the result",
            )),
        }
    }

    /// Puts the bytes of all ranks one after another ([`Communicator::gather`]).
    pub fn gather(&self, own: &[u8], lengths: &[usize], all: &mut [u8]) -> Result<()> {
        self.together()?.gather(own, lengths, all)
    }

    /// Sends every rank its part, and receives this rank's part from each ([`Communicator::exchange`]).
    pub fn exchange(&self, send: &[u8], lengths: &[usize], receive: &mut [u8]) -> Result<()> {
        self.together()?.exchange(send, lengths, receive)
    }

    /// Replaces the elements, given as their bytes in machine order, by their sums over all ranks. Each sum is taken in the order of
    /// the ranks, in the elements' own type.
    pub fn sum(&self, bytes: &mut [u8], dtype: DType) -> Result<()> {
        let (ranks, size) = (self.size(), dtype.size());
        if ranks == 1 {
            return Ok(());
        }
        if bytes.len() <= MAX_GATHERED {
            let mut all = vec![0; bytes.len() * ranks];
            self.gather(bytes, &vec![bytes.len(); ranks], &mut all)?;
            add_up(&all, bytes, dtype);
            return Ok(());
        }
        bytes.chunks_mut(MAX_CHUNK).try_for_each(|chunk| {
            let lengths: Vec<usize> = even_parts(chunk.len() / size, ranks).iter().map(|n| n * size).collect();
            let own = self.scatter(chunk, &lengths, dtype)?;
            self.gather(&own, &lengths, chunk)
        })
    }

    /// Returns this rank's part of the sum over all ranks, of parts of these lengths in bytes.
    pub fn scatter(&self, bytes: &[u8], lengths: &[usize], dtype: DType) -> Result<Vec<u8>> {
        let own = lengths[self.rank()];
        let mut all = vec![0; own * self.size()];
        self.exchange(bytes, lengths, &mut all)?;
        let mut sum = vec![0; own];
        add_up(&all, &mut sum, dtype);
        Ok(sum)
    }

    /// Replaces the bytes by those of rank `root`.
    pub fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<()> {
        let lengths: Vec<usize> = (0..self.size()).map(|rank| if rank == root { bytes.len() } else { 0 }).collect();
        let own = if self.rank() == root { bytes.to_vec() } else { vec![] };
        self.gather(&own, &lengths, bytes)
    }

    /// Returns the numbers of all ranks, in their order.
    pub fn numbers(&self, own: u64) -> Result<Vec<u64>> {
        let mut all = vec![0; 8 * self.size()];
        self.gather(&own.to_ne_bytes(), &vec![8; self.size()], &mut all)?;
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        Ok(all.chunks_exact(8).map(number).collect())
    }

    /// Returns the bytes of all ranks, in their order; each may have another number of them.
    pub fn bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let lengths: Vec<usize> = self.numbers(own.len() as u64)?.into_iter().map(|length| length as usize).collect();
        let mut all = vec![0; lengths.iter().sum()];
        self.gather(own, &lengths, &mut all)?;
        let mut rest = &all[..];
        Ok(lengths.iter().map(|&length| rest.split_off(..length).unwrap_or_default().to_vec()).collect())
    }

    /// Returns the largest of the numbers of all ranks.
    pub fn largest(&self, own: u64) -> Result<u64> {
        Ok(self.numbers(own)?.into_iter().max().unwrap_or(own))
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        self.numbers(0).map(|_| ())
    }
}

/// Lengths of `ranks` parts of so many elements, which differ by one at most.
///
/// ```
/// assert_eq!(bilevel_graph::even_parts(7, 3), [3, 2, 2]);
/// ```
pub fn even_parts(elements: usize, ranks: usize) -> Vec<usize> {
    (0..ranks).map(|rank| elements / ranks + usize::from(rank < elements % ranks)).collect()
}

/// Adds equally long parts, one of each rank, in their order.
fn add_up(parts: &[u8], sum: &mut [u8], dtype: DType) {
    if sum.is_empty() {
        return;
    }
    let mut parts = parts.chunks_exact(sum.len());
    if let Some(first) = parts.next() {
        sum.copy_from_slice(first);
    }
    for part in parts {
        match dtype {
            DType::F32 => add_each(sum, part, |a, b| (f32::from_ne_bytes(a) + f32::from_ne_bytes(b)).to_ne_bytes()),
            DType::F64 => add_each(sum, part, |a, b| (f64::from_ne_bytes(a) + f64::from_ne_bytes(b)).to_ne_bytes()),
            DType::I32 => {
                add_each(sum, part, |a, b| i32::from_ne_bytes(a).wrapping_add(i32::from_ne_bytes(b)).to_ne_bytes())
            }
        }
    }
}

fn add_each<const N: usize>(sum: &mut [u8], part: &[u8], add: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    for (a, b) in sum.as_chunks_mut::<N>().0.iter_mut().zip(part.as_chunks::<N>().0) {
        *a = add(*a, *b);
    }
}

/// The bounds of the part of each rank among the elements of an axis.
pub(crate) fn part_of(parts: &[usize], rank: usize) -> Range<usize> {
    let start: usize = parts[..rank].iter().sum();
    start..start + parts[rank]
}

/// An error of ranks that work together.
pub fn rank_error(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Ranks { what: what.into() })
}

impl Deref for Link {
    type Target = dyn Communicator;

    fn deref(&self) -> &Self::Target {
        &*self.communicator
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link(rank {} of {})", self.rank(), self.size())
    }
}

by_number!(Link);
