//! cuDNN handles: one for planning and one per stream, each behind its own lock.
//!
//! Threads may call the library concurrently, but not with the same handle. A handle is reached only through its lock,
//! and calls borrow it from there, so that a planning thread and a running thread cannot share one. They do not wait
//! for each other either, because they use different handles.

use crate::conv::cudnn::descriptor::CudnnResult;
use cudarc::cudnn::{result, sys};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cuDNN handle, destroyed when dropped.
pub(crate) struct Handle(sys::cudnnHandle_t);

// SAFETY: a handle belongs to a context, not to a thread. It holds a pointer and so is not `Sync`: one thread uses it
// at a time.
unsafe impl Send for Handle {}

impl Handle {
    /// Creates a handle for the current context that uses this stream.
    ///
    /// # Safety
    /// The stream must belong to that GPU and outlive the handle.
    pub unsafe fn new(stream: cudarc::driver::sys::CUstream) -> CudnnResult<Self> {
        let handle = Handle(result::create_handle()?);
        // SAFETY: the handle was just created; the stream is the caller's promise.
        unsafe { result::set_stream(handle.0, stream.cast())? };
        Ok(handle)
    }

    /// Returns the raw handle, for a call during the borrow.
    pub fn raw(&self) -> sys::cudnnHandle_t {
        self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and owned by this value alone.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

/// The handles of one GPU, generic for tests.
pub(crate) struct Handles<H> {
    planning: Mutex<H>,
    streams: Vec<Mutex<H>>,
}

impl<H> Handles<H> {
    /// A handle for planning and those of the streams, in order.
    pub fn new(planning: H, streams: Vec<H>) -> Self {
        Handles { planning: Mutex::new(planning), streams: streams.into_iter().map(Mutex::new).collect() }
    }

    /// Locks the handle for planning. Its holder waits for scratch memory during a trial, so it must not be requested
    /// while holding that.
    pub fn planning(&self) -> MutexGuard<'_, H> {
        self.planning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the handle of a stream; `None` if there is no such stream.
    pub fn of_stream(&self, stream: usize) -> Option<MutexGuard<'_, H>> {
        self.streams.get(stream).map(|handle| handle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::cudnn::Dnn;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// A handle that detects concurrent use. Like a real one, it is `Send` but not `Sync`.
    #[derive(Default)]
    struct Watched {
        is_used: AtomicBool,
        uses: Cell<usize>,
    }

    impl Watched {
        fn call(&self) {
            assert!(!self.is_used.swap(true, Ordering::SeqCst), "two threads use one handle");
            self.uses.set(self.uses.get() + 1);
            std::thread::sleep(Duration::from_micros(50));
            self.is_used.store(false, Ordering::SeqCst);
        }
    }

    fn watched(streams: usize) -> Handles<Watched> {
        Handles::new(Watched::default(), (0..streams).map(|_| Watched::default()).collect())
    }

    #[test]
    fn threads_that_plan_and_threads_that_run_never_use_one_handle_at_once() {
        let handles = watched(3);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let handles = &handles;
                scope.spawn(move || {
                    for turn in 0..100 {
                        match (thread + turn) % 4 {
                            0 => handles.planning().call(),
                            stream => handles.of_stream(stream - 1).unwrap().call(),
                        }
                    }
                });
            }
        });
        let uses = |handle: MutexGuard<'_, Watched>| handle.uses.get();
        let all: usize = (0..3).map(|stream| uses(handles.of_stream(stream).unwrap())).sum();
        assert_eq!(all + uses(handles.planning()), 600);
    }

    #[test]
    fn a_run_does_not_wait_for_a_thread_that_plans() {
        let handles = watched(2);
        let planning = handles.planning();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let handles = &handles;
            scope.spawn(move || {
                (0..2).for_each(|stream| handles.of_stream(stream).unwrap().call());
                sender.send(()).unwrap();
            });
            let ran = receiver.recv_timeout(Duration::from_secs(60));
            drop(planning);
            assert!(ran.is_ok(), "the handles of the streams are behind the lock of planning");
        });
        assert!(handles.of_stream(2).is_none());
    }

    #[test]
    fn the_library_can_be_shared_although_its_handles_cannot() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Dnn>();
        is_shared::<Handles<Handle>>();
    }
}
