//! Convolutions by cuDNN: the library, and what was chosen for each geometry.

pub(crate) mod backend;
pub(crate) mod descriptor;
pub(crate) mod engine;
pub(crate) mod handles;
pub(crate) mod key;
pub(crate) mod legacy;
pub(crate) mod select;

use crate::conv::canonical::Geometry;
use crate::conv::cudnn::handles::{Handle, Handles};
use crate::conv::cudnn::select::{ConvChoice, ConvSelector, LibraryConv};
use crate::conv::im2col::Arrangement;
use crate::runtime::device::Device;
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::internal_error;
use cudarc::cudnn::{CudnnError, result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The error for a call of the library that failed.
pub(crate) fn failed(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device { what: format!("cuDNN could not {what}: {error:?}") })
}

/// The library, opened for one GPU.
pub(crate) struct Dnn {
    chooser: ConvSelector,
    /// What was chosen for a geometry; none if the library has no way that always gives the same bits.
    choices: Mutex<HashMap<Geometry, Option<ConvAlgo>>>,
    /// What choices name by its number. It is all here, so that nothing of it outlives the handles, which are dropped
    /// after it.
    methods: Mutex<Vec<LibraryConv>>,
    /// The handle for planning is locked before the scratch memory, which a trial needs; those of streams after it.
    /// `choices` and `methods` are held by nobody who waits for the first two.
    handles: Handles<Handle>,
}

/// A convolution that is ready to be started by the library: the number of its method.
#[derive(Clone, Copy, Default)]
pub(crate) struct PreparedConv {
    method: usize,
    /// Bytes of workspace it needs.
    pub workspace: usize,
}

/// How a convolution is computed.
#[derive(Clone, Copy)]
pub(crate) enum ConvAlgo {
    /// By the library.
    Library(PreparedConv),
    /// As a product with patches.
    Im2col(Arrangement),
}

impl Dnn {
    /// Opens the library for these streams of a GPU, whose context must be current whenever it is used, and when it is
    /// dropped.
    pub fn new(device: &Arc<Device>, streams: &[cudarc::driver::sys::CUstream]) -> Result<Self> {
        // SAFETY: the streams are the device's, which drops the library before it destroys them.
        let open = |&stream: &_| unsafe { Handle::new(stream) }.map_err(|e| failed("be opened", e));
        let first = streams.first().ok_or_else(|| internal_error("a stream"))?;
        Ok(Dnn {
            chooser: ConvSelector::new(device, &device.cache, result::get_version()),
            choices: Mutex::default(),
            methods: Mutex::default(),
            handles: Handles::new(open(first)?, streams.iter().map(open).collect::<Result<_>>()?),
        })
    }

    fn choices(&self) -> MutexGuard<'_, HashMap<Geometry, Option<ConvAlgo>>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn methods(&self) -> MutexGuard<'_, Vec<LibraryConv>> {
        self.methods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was chosen for a geometry before.
    fn chosen(&self, geometry: &Geometry) -> Option<Option<ConvAlgo>> {
        self.choices().get(geometry).copied()
    }

    /// How a convolution is computed; none if the library cannot compute it as it should be.
    pub fn algo(&self, geometry: &Geometry) -> Option<ConvAlgo> {
        if let Some(chosen) = self.chosen(geometry) {
            return chosen;
        }
        // One at a time: two choices for one convolution would be other bits.
        let planning = self.handles.planning();
        if let Some(chosen) = self.chosen(geometry) {
            return chosen;
        }
        let algo = self.chooser.choose(&planning, &self.handles, geometry).map(|choice| match choice {
            ConvChoice::Library(method) => ConvAlgo::Library(self.kept(method)),
            ConvChoice::Im2col(arrangement) => ConvAlgo::Im2col(arrangement),
        });
        self.choices().insert(*geometry, algo);
        algo
    }

    /// Keeps a method as long as the library is open.
    fn kept(&self, method: LibraryConv) -> PreparedConv {
        let (workspace, mut methods) = (method.workspace(), self.methods());
        methods.push(method);
        PreparedConv { method: methods.len() - 1, workspace }
    }

    /// Makes a convolution ready that was planned to be the library's.
    pub fn prepare(&self, geometry: &Geometry) -> Result<PreparedConv> {
        match self.algo(geometry) {
            Some(ConvAlgo::Library(convolved)) => Ok(convolved),
            _ => {
                let what = format!("cuDNN has no algo to compute {geometry:?}");
                Err(Error::new(ErrorKind::Device { what }))
            }
        }
    }

    /// Starts a convolution in the stream with this number.
    ///
    /// # Safety
    /// The addresses must be those of x, w, y and the workspace, which nobody else uses meanwhile.
    pub unsafe fn run(&self, convolved: &PreparedConv, addresses: [u64; 4], stream: usize) -> Result<()> {
        let methods = self.methods();
        let method = methods.get(convolved.method).ok_or_else(|| internal_error("a algo to compute a convolution"))?;
        let handle = self.handles.of_stream(stream).ok_or_else(|| internal_error("the handle of a stream"))?;
        // SAFETY: the caller's promise.
        unsafe { method.run(&handle, addresses) }.map_err(|e| failed("convolve", e))
    }
}
