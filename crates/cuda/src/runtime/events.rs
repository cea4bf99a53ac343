//! CUDA events, for synchronisation between streams and for timing.

use cudarc::driver::{result, sys};

type DriverResult<T> = Result<T, result::DriverError>;

/// Events that are destroyed together.
pub(crate) struct Events {
    made: Vec<sys::CUevent>,
    kind: sys::CUevent_flags,
}

impl Events {
    /// Creates events for synchronisation.
    pub fn new() -> Self {
        Events { made: vec![], kind: sys::CUevent_flags::CU_EVENT_DISABLE_TIMING }
    }

    /// Creates events for timing.
    pub fn timed() -> Self {
        Events { made: vec![], kind: sys::CUevent_flags::CU_EVENT_DEFAULT }
    }

    /// Records an event in a stream.
    ///
    /// # Safety
    /// The stream must be alive.
    pub unsafe fn after(&mut self, stream: sys::CUstream) -> DriverResult<sys::CUevent> {
        let event = result::event::create(self.kind)?;
        self.made.push(event);
        // SAFETY: the event was just made; the caller's promise.
        unsafe { result::event::record(event, stream)? };
        Ok(event)
    }

    /// Makes later work in a stream wait for an event.
    ///
    /// # Safety
    /// Both must be alive.
    pub unsafe fn wait(stream: sys::CUstream, event: sys::CUevent) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        unsafe { result::stream::wait_event(stream, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
    }

    /// Returns the seconds between consecutive events, all of which must have completed.
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
