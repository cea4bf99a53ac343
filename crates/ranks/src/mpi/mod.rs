//! Ranks that a launcher of MPI started: Open MPI or MPICH, loaded when a run begins, so that nothing of MPI is needed to build.
//!
//! MPI moves bytes and never adds: the sums of this project are its own ([`Link::sum`](bilevel_graph::Link::sum)), so their bits do not
//! depend on which algorithm a library takes for which size.

mod api;

use crate::implementation::Implementation;
use crate::mpi::api::{Api, Calls};
use bilevel_graph::{Communicator, Result, rank_error};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// Offsets and counts of MPI are 32-bit: larger messages move in pieces of this many bytes for all ranks together.
const MAX_MESSAGE: usize = 1 << 28;

/// A rank that a launcher of MPI started.
pub struct Mpi {
    rank: usize,
    size: usize,
    /// One call at a time, from whichever thread.
    calls: Mutex<Box<dyn Calls>>,
}

impl Mpi {
    /// Loads the library and joins the other ranks. A process can do so once.
    pub fn join(implementation: Implementation) -> Result<Self> {
        let (name, library) = (implementation.name(), implementation.library());
        let missing = |error: libloading::Error| {
            rank_error(format!(
                "this rank was started by {name}, whose library {library} cannot be loaded ({error}); install it, or put its folder into \
                 LD_LIBRARY_PATH"
            ))
        };
        // SAFETY: MPI's own initialisation is made to run when its library is loaded. Open MPI finds its parts among global symbols.
        let opened = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) }.map_err(missing)?;
        let calls: Box<dyn Calls> = match implementation {
            Implementation::OpenMpi => Box::new(Api::open_mpi(opened).map_err(missing)?),
            Implementation::Mpich => Box::new(Api::mpich(opened).map_err(missing)?),
        };
        calls.begin()?;
        let (rank, size) = (calls.rank()?, calls.size()?);
        Ok(Mpi { rank, size, calls: Mutex::new(calls) })
    }

    fn with<R>(&self, call: impl FnOnce(&dyn Calls) -> R) -> R {
        call(&**self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The start of each of these lengths.
fn starts(lengths: &[c_int]) -> Vec<c_int> {
    let mut end = 0;
    let start = |&length: &c_int| {
        end += length;
        end - length
    };
    lengths.iter().map(start).collect()
}

/// The lengths of the intersections of a window with each of these parts, and their starts.
fn window(lengths: &[usize], from: usize, to: usize) -> Vec<c_int> {
    // A window has at most MAX_MESSAGE bytes.
    lengths.iter().map(|&length| (length.min(to) - length.min(from)) as c_int).collect()
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&self, own: &[u8], lengths: &[usize], all: &mut [u8]) -> Result<()> {
        let piece = MAX_MESSAGE / self.size;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest <= piece {
            let counts = window(lengths, 0, piece);
            return self.with(|calls| calls.gather(own, &counts, &starts(&counts), all));
        }
        let mut buffer = vec![];
        for from in (0..longest).step_by(piece) {
            let counts = window(lengths, from, from + piece);
            buffer.resize(counts.iter().map(|&n| n as usize).sum(), 0);
            let part = &own[own.len().min(from)..own.len().min(from + piece)];
            self.with(|calls| calls.gather(part, &counts, &starts(&counts), &mut buffer))?;
            let (mut read, mut begin) = (0, 0);
            for (&count, &length) in counts.iter().zip(lengths) {
                let count = count as usize;
                all[begin + length.min(from)..][..count].copy_from_slice(&buffer[read..read + count]);
                read += count;
                begin += length;
            }
        }
        Ok(())
    }

    fn exchange(&self, send: &[u8], lengths: &[usize], receive: &mut [u8]) -> Result<()> {
        let (piece, own) = (MAX_MESSAGE / self.size, lengths[self.rank]);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        for from in (0..longest).step_by(piece) {
            let sent = window(lengths, from, from + piece);
            let received = vec![window(&[own], from, from + piece)[0]; self.size];
            if longest <= piece {
                return self.with(|calls| calls.exchange(send, &sent, receive, &received));
            }
            let (mut packed, mut begin) = (vec![], 0);
            for (&count, &length) in sent.iter().zip(lengths) {
                packed.extend_from_slice(&send[begin + length.min(from)..][..count as usize]);
                begin += length;
            }
            let count = received[0] as usize;
            let mut buffer = vec![0; count * self.size];
            self.with(|calls| calls.exchange(&packed, &sent, &mut buffer, &received))?;
            for rank in 0..self.size {
                receive[rank * own + own.min(from)..][..count].copy_from_slice(&buffer[rank * count..][..count]);
            }
        }
        Ok(())
    }

    fn abort(&self, _reason: &str) {
        // Ends every process; the launcher reports this rank. The failing rank prints the reason first.
        self.with(|calls| calls.abort());
    }

    fn finish(&self) {
        self.with(|calls| calls.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_every_part_once() {
        let lengths = [5, 0, 12, 7];
        let mut covered = [0; 4];
        for from in (0..12).step_by(4) {
            let counts = window(&lengths, from, from + 4);
            assert_eq!(starts(&counts)[3], counts[..3].iter().sum::<c_int>());
            covered.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n as usize);
        }
        assert_eq!(covered, lengths);
    }
}
