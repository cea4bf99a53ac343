//! Convolutions by cuDNN: the library, and what was chosen for each geometry.

use crate::dnn_choice::{Choice, Chooser, Method};
use crate::driver::Device;
use crate::form::Geometry;
use crate::unfolded::Arrangement;
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::lacks;
use cudarc::cudnn::{CudnnError, result, sys};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The error for a call of the library that failed.
pub(crate) fn failed(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device { what: format!("cuDNN could not {what}: {error:?}") })
}

/// The library, opened for one GPU: once for each of its streams.
pub(crate) struct Dnn {
    handles: Vec<sys::cudnnHandle_t>,
    chooser: Chooser,
    /// What was chosen for a geometry; none where the library has no way that always gives the same bits.
    choices: Mutex<HashMap<Geometry, Option<Way>>>,
    /// What choices name by its number. It is all here, so that nothing of it outlives the library.
    methods: Mutex<Vec<Method>>,
    /// Held by who chooses. It is taken before the scratch memory, which a trial needs, and `choices` and `methods` are held by nobody
    /// who waits for either.
    choosing: Mutex<()>,
}

// SAFETY: a handle is used by one thread at a time, the one with the right to put work in the queue or to plan.
unsafe impl Send for Dnn {}
// SAFETY: as above.
unsafe impl Sync for Dnn {}

/// A convolution that is ready to be started by the library: the number of its method.
#[derive(Clone, Copy, Default)]
pub(crate) struct Convolved {
    method: usize,
    /// Bytes of workspace it needs.
    pub workspace: usize,
}

/// How a convolution is computed.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// By the library.
    Library(Convolved),
    /// As a product with patches.
    Own(Arrangement),
}

impl Dnn {
    /// Opens the library for these streams of a GPU, whose context must be current.
    pub fn new(device: &Arc<Device>, streams: &[cudarc::driver::sys::CUstream]) -> Result<Self> {
        let mut opened = Dnn {
            handles: vec![],
            chooser: Chooser::new(device, &device.cache, result::get_version()),
            choices: Mutex::default(),
            methods: Mutex::default(),
            choosing: Mutex::default(),
        };
        for &stream in streams {
            let handle = result::create_handle().map_err(|e| failed("be opened", e))?;
            opened.handles.push(handle);
            // SAFETY: the stream is the device's and lives as long as this.
            unsafe { result::set_stream(handle, stream.cast()) }.map_err(|e| failed("use a stream", e))?;
        }
        Ok(opened)
    }

    /// # Safety
    /// Nobody may use it afterwards.
    pub unsafe fn close(&self) {
        self.choices().clear();
        self.methods().clear();
        for &handle in &self.handles {
            // SAFETY: the caller's promise.
            let _ = unsafe { result::destroy_handle(handle) };
        }
    }

    fn choices(&self) -> MutexGuard<'_, HashMap<Geometry, Option<Way>>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn methods(&self) -> MutexGuard<'_, Vec<Method>> {
        self.methods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was chosen for a geometry before.
    fn chosen(&self, geometry: &Geometry) -> Option<Option<Way>> {
        self.choices().get(geometry).copied()
    }

    /// How a convolution is computed; none where the library cannot compute it as it should be.
    pub fn way(&self, geometry: &Geometry) -> Option<Way> {
        if let Some(chosen) = self.chosen(geometry) {
            return chosen;
        }
        // One at a time: two choices for one convolution would be other bits.
        let _turn = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = self.chosen(geometry) {
            return chosen;
        }
        let way = self.chooser.choose(&self.handles, geometry).map(|choice| match choice {
            Choice::Library(method) => Way::Library(self.kept(method)),
            Choice::Own(arrangement) => Way::Own(arrangement),
        });
        self.choices().insert(*geometry, way);
        way
    }

    /// Keeps a method as long as the library is open.
    fn kept(&self, method: Method) -> Convolved {
        let (workspace, mut methods) = (method.workspace(), self.methods());
        methods.push(method);
        Convolved { method: methods.len() - 1, workspace }
    }

    /// Makes a convolution ready that was planned to be the library's.
    pub fn prepare(&self, geometry: &Geometry) -> Result<Convolved> {
        match self.way(geometry) {
            Some(Way::Library(convolved)) => Ok(convolved),
            _ => {
                let what = format!("cuDNN has no way to compute {geometry:?}");
                Err(Error::new(ErrorKind::Device { what }))
            }
        }
    }

    /// Starts a convolution in the stream with this number.
    ///
    /// # Safety
    /// The addresses must be those of x, w, y and the workspace, which nobody else uses meanwhile.
    pub unsafe fn run(&self, convolved: &Convolved, addresses: [u64; 4], stream: usize) -> Result<()> {
        let methods = self.methods();
        let method = methods.get(convolved.method).ok_or_else(|| lacks("a way to compute a convolution"))?;
        // SAFETY: the caller's promise.
        unsafe { method.run(self.handles[stream], addresses) }.map_err(|e| failed("convolve", e))
    }
}
