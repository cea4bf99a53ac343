//! Work that is recorded once as a CUDA graph, to be started many times.

use crate::runtime::device::failed;
use bilevel_graph::Result;
use cudarc::driver::{result, sys};

/// A graph that can be started; given back when it is dropped.
pub(crate) struct Captured(sys::CUgraphExec);

impl Captured {
    /// Records what is put in a stream, and in those that join it, instead of running it.
    ///
    /// # Safety
    /// The stream must be a living one that nobody else puts work in meanwhile, and all streams that join it must have
    /// come back to it when `put` returns. All that the work uses must be there whenever the graph is started.
    pub unsafe fn new(stream: sys::CUstream, put: impl FnOnce() -> Result<()>) -> Result<Self> {
        let wrong = |e| failed("record a step", e);
        // The libraries load kernels when they first need them, and may ask for memory then, which no other mode lets
        // this thread do while it records. Nothing here waits for the stream meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the caller's promise.
        unsafe {
            result::stream::begin_capture(stream, mode).map_err(wrong)?;
            let recorded = put();
            // The recording must be ended, whatever happened in it.
            let graph = result::stream::end_capture(stream).map_err(wrong);
            let graph = match (recorded, graph) {
                (Ok(()), graph) => graph?,
                (Err(error), graph) => {
                    let _ = graph.map(|graph| result::graph::destroy(graph));
                    return Err(error);
                }
            };
            let mut ready = std::ptr::null_mut();
            let made = sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0).result().map_err(wrong);
            let _ = result::graph::destroy(graph);
            made.map(|()| Captured(ready))
        }
    }

    /// Puts the whole graph in a stream.
    ///
    /// # Safety
    /// All that it uses must be there, and nobody else may use it until the graph has run.
    pub unsafe fn start(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { result::graph::launch(self.0, stream) }.map_err(|e| failed("start a step", e))
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the driver keeps a graph that still runs until it is done.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}
