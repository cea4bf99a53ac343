//! Ranks in one process: each is a thread, and bytes move through shared memory. For tests, and for trying a program out.

use bilevel_graph::{Communicator, Link, Result, rank_error};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A rank that is a thread of this process.
///
/// ```
/// use bilevel_graph::{Communicator, DType};
/// use bilevel_ranks::Threads;
/// let sums = Threads::run(3, |link| {
///     let mut bytes = (1 + link.rank() as i32).to_ne_bytes();
///     link.sum(&mut bytes, DType::I32).map(|()| i32::from_ne_bytes(bytes))
/// });
/// assert_eq!(sums.into_iter().collect::<Result<Vec<_>, _>>()?, [6, 6, 6]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub struct Threads {
    rank: usize,
    size: usize,
    hub: Arc<Hub>,
}

/// The meeting point of the ranks.
struct Hub {
    round: Mutex<Round>,
    changed: Condvar,
}

/// One meeting: the bytes of every rank, and the number of readers so far.
struct Round {
    posted: Vec<Option<Arc<Vec<u8>>>>,
    read: usize,
    ended: Vec<bool>,
    failed: Option<String>,
}

impl Threads {
    /// A link for each of so many ranks.
    pub fn links(ranks: usize) -> Vec<Link> {
        let round = Round { posted: vec![None; ranks], read: 0, ended: vec![false; ranks], failed: None };
        let hub = Arc::new(Hub { round: Mutex::new(round), changed: Condvar::new() });
        (0..ranks).map(|rank| Link::new(Threads { rank, size: ranks, hub: hub.clone() })).collect()
    }

    /// Runs a function on this many ranks, each a thread with its link; returns their results, in the order of ranks.
    pub fn run<R: Send>(ranks: usize, work: impl Fn(Link) -> R + Sync) -> Vec<R> {
        let work = &work;
        std::thread::scope(|scope| {
            let ranks: Vec<_> = Self::links(ranks).into_iter().map(|link| scope.spawn(move || work(link))).collect();
            let joined = ranks.into_iter().map(|rank| rank.join());
            joined.map(|found| found.unwrap_or_else(|cause| std::panic::resume_unwind(cause))).collect()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Round> {
        self.hub.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of all ranks in this meeting.
    fn meet(&self, own: Vec<u8>) -> Result<Vec<Arc<Vec<u8>>>> {
        let mut round = self.lock();
        // The last meeting may not be over for the others.
        while round.posted[self.rank].is_some() && round.failed.is_none() {
            round = self.hub.changed.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        round.posted[self.rank] = Some(Arc::new(own));
        self.hub.changed.notify_all();
        loop {
            if let Some(reason) = &round.failed {
                return Err(rank_error(reason.clone()));
            }
            let all: Vec<_> = round.posted.iter().flatten().cloned().collect();
            if all.len() == round.posted.len() {
                round.read += 1;
                if round.read == all.len() {
                    round.read = 0;
                    round.posted.fill(None);
                }
                self.hub.changed.notify_all();
                return Ok(all);
            }
            if let Some(gone) = (0..round.ended.len()).find(|&rank| round.ended[rank] && round.posted[rank].is_none()) {
                return Err(rank_error(format!("rank {gone} ended while rank {} waited for it", self.rank)));
            }
            round = self.hub.changed.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&self, own: &[u8], lengths: &[usize], all: &mut [u8]) -> Result<()> {
        let mut to = all;
        for (part, &length) in self.meet(own.to_vec())?.iter().zip(lengths) {
            if part.len() != length {
                return Err(rank_error("the ranks have parts of other lengths than they agreed on"));
            }
            let (here, rest) = to.split_at_mut(length);
            here.copy_from_slice(part);
            to = rest;
        }
        Ok(())
    }

    fn exchange(&self, send: &[u8], lengths: &[usize], receive: &mut [u8]) -> Result<()> {
        let start: usize = lengths[..self.rank].iter().sum();
        let own = lengths[self.rank];
        let sent = self.meet(send.to_vec())?;
        for (number, from) in sent.iter().enumerate() {
            let Some(part) = from.get(start..start + own) else {
                return Err(rank_error("the ranks have parts of other lengths than they agreed on"));
            };
            receive[number * own..][..own].copy_from_slice(part);
        }
        Ok(())
    }

    fn abort(&self, reason: &str) {
        self.lock().failed.get_or_insert_with(|| format!("rank {} failed: {reason}", self.rank));
        self.hub.changed.notify_all();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.lock().ended[self.rank] = true;
        self.hub.changed.notify_all();
    }
}
