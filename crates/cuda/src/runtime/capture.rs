//! CUDA graphs: work that is captured once and launched many times.

use crate::runtime::device::failed;
use bilevel_graph::Result;
use cudarc::driver::{result, sys};

/// An executable graph, destroyed when dropped.
pub(crate) struct Captured(sys::CUgraphExec);

impl Captured {
    /// Captures the work that `put` submits to a stream, and to streams that fork from it, instead of running it.
    ///
    /// # Safety
    /// The stream must be alive, with no other submission meanwhile, and all forked streams must have joined it when
    /// `put` returns. All resources of the work must exist whenever the graph is launched.
    pub unsafe fn new(stream: sys::CUstream, put: impl FnOnce() -> Result<()>) -> Result<Self> {
        let wrong = |e| failed("capture a step", e);
        // The libraries load kernels lazily, and may allocate memory then, which this thread may do only in relaxed
        // mode. Nothing waits for the stream meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the caller's promise.
        unsafe {
            result::stream::begin_capture(stream, mode).map_err(wrong)?;
            let recorded = put();
            // The capture must be ended in any case.
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

    /// Launches the graph in a stream.
    ///
    /// # Safety
    /// All its resources must exist, with no concurrent use until the graph has run.
    pub unsafe fn start(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { result::graph::launch(self.0, stream) }.map_err(|e| failed("launch a graph", e))
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: created in `new`; the driver keeps a running graph until it is done.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}
