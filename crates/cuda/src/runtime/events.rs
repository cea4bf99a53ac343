//! Marks between pieces of work in a stream, for other streams to wait for or to tell the time by.

use cudarc::driver::{result, sys};

type DriverResult<T> = Result<T, result::DriverError>;

/// Events made for one purpose, and destroyed when it is served.
pub(crate) struct Events {
    made: Vec<sys::CUevent>,
    kind: sys::CUevent_flags,
}

impl Events {
    /// To be waited for.
    pub fn new() -> Self {
        Events { made: vec![], kind: sys::CUevent_flags::CU_EVENT_DISABLE_TIMING }
    }

    /// To tell the time by.
    pub fn timed() -> Self {
        Events { made: vec![], kind: sys::CUevent_flags::CU_EVENT_DEFAULT }
    }

    /// An event after what is in a stream now.
    ///
    /// # Safety
    /// The stream must be a living one.
    pub unsafe fn after(&mut self, stream: sys::CUstream) -> DriverResult<sys::CUevent> {
        let event = result::event::create(self.kind)?;
        self.made.push(event);
        // SAFETY: the event was just made; the caller's promise.
        unsafe { result::event::record(event, stream)? };
        Ok(event)
    }

    /// What is put in a stream from now on waits for an event.
    ///
    /// # Safety
    /// Both must be living ones.
    pub unsafe fn wait(stream: sys::CUstream, event: sys::CUevent) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        unsafe { result::stream::wait_event(stream, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
    }

    /// Seconds from each event to the next, which must all have happened.
    pub fn seconds(&self) -> DriverResult<Vec<f64>> {
        let seconds = |(&from, &to): (&sys::CUevent, &sys::CUevent)| {
            // SAFETY: both were made above and are not yet destroyed.
            let milliseconds = unsafe { result::event::elapsed(from, to)? };
            Ok(f64::from(milliseconds) / 1e3)
        };
        self.made.iter().zip(self.made.iter().skip(1)).map(seconds).collect()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        for &event in &self.made {
            // SAFETY: made above, and destroyed once; a recorded graph does not need it.
            let _ = unsafe { result::event::destroy(event) };
        }
    }
}
