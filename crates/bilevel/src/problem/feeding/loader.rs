//! A thread that reads a stream, ahead of those who need its batches.
//!
//! Every reader that needs a batch, now or later, holds a ticket for it. A batch without tickets is not read, and a
//! batch is kept as long as one of its tickets exists.

use crate::compiled::key::Key;
use crate::outer::stopping::StopSignal;
use crate::problem::feeding::stream::Streamed;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, ErrorKind};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a reader that waits for a batch checks whether the run should stop.
const LOOK: Duration = Duration::from_millis(20);

/// A requested batch.
pub(crate) struct Ticket {
    key: Key,
    step: u32,
    batch: OnceLock<Result<Array>>,
}

impl Ticket {
    pub fn is_for(&self, key: Key, step: u32) -> bool {
        (self.key, self.step) == (key, step)
    }
}

/// The thread of one stream. It ends when this is dropped, after the batch it is reading.
pub(crate) struct Loader {
    name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is something to read, or no more ever.
    work: Condvar,
    /// A batch was read.
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Batches to read, the most urgent first.
    jobs: VecDeque<Weak<Ticket>>,
    /// All tickets still in use.
    issued: Vec<Weak<Ticket>>,
    closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next ticket still in use; `None` if the loader was dropped.
    fn next(&self) -> Option<Arc<Ticket>> {
        let mut queue = self.queue();
        loop {
            if queue.closed {
                return None;
            }
            match queue.jobs.pop_front() {
                Some(job) => {
                    if let Some(ticket) = job.upgrade() {
                        return Some(ticket);
                    }
                }
                None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Loader {
    /// Starts the thread of a stream, in a problem of this type.
    pub fn start(stream: Streamed, dtype: DType) -> Result<Self> {
        let (name, shared) = (stream.name.clone(), Arc::new(Shared::default()));
        let work = {
            let shared = shared.clone();
            move || {
                while let Some(ticket) = shared.next() {
                    let batch = stream.read(dtype, ticket.key, ticket.step);
                    // Under the lock, so that no thread checks before it and waits after it.
                    let queue = shared.queue();
                    let _ = ticket.batch.set(batch);
                    drop(queue);
                    shared.done.notify_all();
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("stream {name}")).spawn(work);
        let thread = thread.map_err(|error| {
            Error::other(format!("no thread could be started to read the stream '{name}': {error}"))
        })?;
        Ok(Loader { name, shared, thread: Some(thread) })
    }

    /// The stream it reads.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A ticket for a batch; one that is needed now is read before all that will be.
    pub fn ask(&self, key: Key, step: u32, now: bool) -> Arc<Ticket> {
        let mut queue = self.shared.queue();
        queue.issued.retain(|ticket| ticket.strong_count() > 0);
        let known = queue.issued.iter().filter_map(Weak::upgrade).find(|ticket| ticket.is_for(key, step));
        // A failed read may succeed the next time.
        let known = known.filter(|ticket| !matches!(ticket.batch.get(), Some(Err(_))));
        let is_new = known.is_none();
        let ticket = known.unwrap_or_else(|| Arc::new(Ticket { key, step, batch: OnceLock::new() }));
        let job = Arc::downgrade(&ticket);
        if is_new {
            queue.issued.push(job.clone());
        }
        let waiting = queue.jobs.iter().position(|other| other.ptr_eq(&job));
        match (now, waiting) {
            (true, Some(place)) => {
                queue.jobs.remove(place);
                queue.jobs.push_front(job);
            }
            (true, None) if is_new => queue.jobs.push_front(job),
            (false, None) if is_new => queue.jobs.push_back(job),
            _ => {}
        }
        drop(queue);
        self.shared.work.notify_one();
        ticket
    }

    /// The batch of a ticket, when it has been read.
    pub fn wait<'t>(&self, ticket: &'t Ticket, stop: &StopSignal) -> Result<&'t Array> {
        let mut queue = self.shared.queue();
        loop {
            if let Some(batch) = ticket.batch.get() {
                return batch.as_ref().map_err(Clone::clone);
            }
            if stop.is_set() {
                return Err(Error::Graph(bilevel_graph::Error::new(ErrorKind::Stopped)));
            }
            let waited = self.shared.done.wait_timeout(queue, LOOK);
            queue = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(queue, _)| queue);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // Panics of a stream are caught during the read.
            let _ = thread.join();
        }
    }
}
