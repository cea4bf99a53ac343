//! Convolutions by cuDNN: the library, and the algorithm selected for each geometry.

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

/// Returns the error for a failed library call.
pub(crate) fn failed(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device { what: format!("cuDNN could not {what}: {error:?}") })
}

/// cuDNN, opened for one GPU.
pub(crate) struct Dnn {
    chooser: ConvSelector,
    /// The algorithm selected for a geometry; `None` if the library has no deterministic one.
    choices: Mutex<HashMap<Geometry, Option<ConvAlgo>>>,
    /// The prepared convolutions, indexed by choices. They are dropped before the handles.
    methods: Mutex<Vec<LibraryConv>>,
    /// Lock order: the planning handle before the scratch memory, which a trial needs, and stream handles after it.
    /// `choices` and `methods` are never held while waiting for the first two.
    handles: Handles<Handle>,
}

/// The index of a convolution that is ready to launch.
#[derive(Clone, Copy, Default)]
pub(crate) struct PreparedConv {
    method: usize,
    /// Bytes of workspace it needs.
    pub workspace: usize,
}

/// The algorithm of a convolution.
#[derive(Clone, Copy)]
pub(crate) enum ConvAlgo {
    /// By cuDNN.
    Library(PreparedConv),
    /// By im2col and a GEMM.
    Im2col(Arrangement),
}

impl Dnn {
    /// Opens the library for these streams of a GPU. Its context must be current whenever the library is used or
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

    /// Returns an earlier selection for a geometry.
    fn chosen(&self, geometry: &Geometry) -> Option<Option<ConvAlgo>> {
        self.choices().get(geometry).copied()
    }

    /// Returns the algorithm of a convolution; `None` if cuDNN does not support it as required.
    pub fn algo(&self, geometry: &Geometry) -> Option<ConvAlgo> {
        if let Some(chosen) = self.chosen(geometry) {
            return chosen;
        }
        // One at a time: two selections for one convolution could differ in bits.
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

    /// Stores a prepared convolution until the library is closed.
    fn kept(&self, method: LibraryConv) -> PreparedConv {
        let (workspace, mut methods) = (method.workspace(), self.methods());
        methods.push(method);
        PreparedConv { method: methods.len() - 1, workspace }
    }

    /// Prepares a convolution that was planned for cuDNN.
    pub fn prepare(&self, geometry: &Geometry) -> Result<PreparedConv> {
        match self.algo(geometry) {
            Some(ConvAlgo::Library(convolved)) => Ok(convolved),
            _ => {
                let what = format!("cuDNN has no algorithm for {geometry:?}");
                Err(Error::new(ErrorKind::Device { what }))
            }
        }
    }

    /// Launches a convolution in a stream.
    ///
    /// # Safety
    /// The addresses must be those of x, w, y and the workspace, with no concurrent use.
    pub unsafe fn run(&self, convolved: &PreparedConv, addresses: [u64; 4], stream: usize) -> Result<()> {
        let methods = self.methods();
        let method = methods.get(convolved.method).ok_or_else(|| internal_error("the algorithm of a convolution"))?;
        let handle = self.handles.of_stream(stream).ok_or_else(|| internal_error("the handle of a stream"))?;
        // SAFETY: the caller's promise.
        unsafe { method.run(&handle, addresses) }.map_err(|e| failed("convolve", e))
    }
}
