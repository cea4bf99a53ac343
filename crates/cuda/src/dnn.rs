//! Convolutions by cuDNN.

use crate::dnn_graph::GraphPlan;
use crate::form::{Geometry, Sought};
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::lacks;
use cudarc::cudnn::{CudnnError, result, sys};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn failed(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device { what: format!("cuDNN could not {what}: {error:?}") })
}

/// The library, opened for one GPU: once for each of its streams.
pub(crate) struct Dnn {
    handles: Vec<sys::cudnnHandle_t>,
    /// What was chosen for a geometry; none where the library has no way that always gives the same bits.
    choices: Mutex<HashMap<Geometry, Option<Choice>>>,
    /// What choices name by its number. It is all here, so that nothing of it outlives the library.
    graphs: Mutex<Vec<GraphPlan>>,
}

// SAFETY: a handle is used by one thread at a time, the one with the right to put work in the queue or to plan.
unsafe impl Send for Dnn {}
// SAFETY: as above.
unsafe impl Sync for Dnn {}

/// How a convolution is computed.
#[derive(Clone, Copy)]
struct Choice {
    algorithm: Algorithm,
    math: sys::cudnnMathType_t,
    workspace: usize,
}

#[derive(Clone, Copy)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Data(sys::cudnnConvolutionBwdDataAlgo_t),
    Filter(sys::cudnnConvolutionBwdFilterAlgo_t),
    /// The graph with this number.
    Graph(usize),
}

/// What the library must be told of a geometry; given back when it is dropped.
struct Descriptions {
    x: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
}

/// A convolution that is ready to be started.
pub(crate) struct Convolved {
    descriptions: Descriptions,
    choice: Choice,
}

// SAFETY: descriptions are plain data of the library's, used by one thread at a time.
unsafe impl Send for Convolved {}

impl Descriptions {
    fn new(geometry: &Geometry) -> std::result::Result<Self, CudnnError> {
        use sys::{cudnnConvolutionMode_t as Mode, cudnnDataType_t as Type, cudnnTensorFormat_t as Format};
        let int = |numbers: [usize; 4]| numbers.map(|n| n as c_int);
        let apart = |[_, c, h, w]: [usize; 4]| match geometry.last {
            true => int([c * h * w, 1, w * c, c]),
            false => int([c * h * w, h * w, w, 1]),
        };
        let format = if geometry.last { Format::CUDNN_TENSOR_NHWC } else { Format::CUDNN_TENSOR_NCHW };
        let two = |numbers: [usize; 2]| numbers.map(|n| n as c_int);
        let (kind, Geometry { x, w, y, .. }) = (Type::CUDNN_DATA_FLOAT, *geometry);
        // SAFETY: every description is made, then filled with as many numbers as is said; all are destroyed with this.
        unsafe {
            let made = Descriptions {
                x: result::create_tensor_descriptor()?,
                w: result::create_filter_descriptor()?,
                y: result::create_tensor_descriptor()?,
                convolution: result::create_convolution_descriptor()?,
            };
            for (description, shape) in [(made.x, x), (made.y, y)] {
                let (shape, strides) = (int(shape), apart(shape));
                sys::cudnnSetTensorNdDescriptor(description, kind, 4, shape.as_ptr(), strides.as_ptr()).result()?;
            }
            let shape = int(w);
            sys::cudnnSetFilterNdDescriptor(made.w, kind, format, 4, shape.as_ptr()).result()?;
            let (padding, stride, dilation) = (two(geometry.padding), two(geometry.stride), two(geometry.dilation));
            sys::cudnnSetConvolutionNdDescriptor(
                made.convolution,
                2,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                Mode::CUDNN_CROSS_CORRELATION,
                kind,
            )
            .result()?;
            sys::cudnnSetConvolutionGroupCount(made.convolution, geometry.groups as c_int).result()?;
            made.set_math(math(geometry))?;
            Ok(made)
        }
    }

    fn set_math(&self, math: sys::cudnnMathType_t) -> std::result::Result<(), CudnnError> {
        // SAFETY: the description was made in `new`.
        unsafe { sys::cudnnSetConvolutionMathType(self.convolution, math).result() }
    }
}

/// What units may be used.
fn math(geometry: &Geometry) -> sys::cudnnMathType_t {
    use sys::cudnnMathType_t as Math;
    if geometry.rounds { Math::CUDNN_DEFAULT_MATH } else { Math::CUDNN_FMA_MATH }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and used by nobody else.
        unsafe {
            let _ = result::destroy_tensor_descriptor(self.x);
            let _ = result::destroy_filter_descriptor(self.w);
            let _ = result::destroy_tensor_descriptor(self.y);
            let _ = result::destroy_convolution_descriptor(self.convolution);
        }
    }
}

/// Most ways the library may offer.
const OFFERS: usize = 10;

/// The first offer that may be taken: the algorithms in `$may` always give the same bits, and are as exact as a plain sum.
macro_rules! choose {
    ($handle:expr, $ask:ident, $offer:ty, $first:expr, $second:expr, $third:expr, $convolution:expr, $may:expr, $kind:expr, $plain:expr, $most:expr) => {{
        let mut offers: [$offer; OFFERS] = std::mem::zeroed();
        let mut count = 0;
        let offers_at = offers.as_mut_ptr();
        sys::$ask($handle, $first, $second, $convolution, $third, OFFERS as c_int, &mut count, offers_at).result()?;
        offers[..usize::try_from(count).unwrap_or(0).min(OFFERS)]
            .iter()
            .find(|offer| {
                let rounds = offer.mathType != sys::cudnnMathType_t::CUDNN_FMA_MATH;
                offer.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                    && $may.contains(&offer.algo)
                    && !(rounds && $plain)
                    && offer.memory <= $most
            })
            .map(|offer| Choice { algorithm: $kind(offer.algo), math: offer.mathType, workspace: offer.memory })
    }};
}

impl Dnn {
    /// Opens the library for these streams. The context must be current.
    pub fn new(streams: &[cudarc::driver::sys::CUstream]) -> Result<Self> {
        let mut opened = Dnn { handles: vec![], choices: Mutex::default(), graphs: Mutex::default() };
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
        self.graphs().clear();
        for &handle in &self.handles {
            // SAFETY: the caller's promise.
            let _ = unsafe { result::destroy_handle(handle) };
        }
    }

    /// Bytes of workspace for a convolution; none where the library cannot compute it as it should be.
    pub fn workspace_bytes(&self, geometry: &Geometry) -> Option<usize> {
        self.choice(geometry).map(|choice| choice.workspace)
    }

    fn choices(&self) -> MutexGuard<'_, HashMap<Geometry, Option<Choice>>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graphs(&self) -> MutexGuard<'_, Vec<GraphPlan>> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn choice(&self, geometry: &Geometry) -> Option<Choice> {
        // Whatever it refuses to describe it cannot compute either.
        *self.choices().entry(*geometry).or_insert_with(|| self.choose(geometry).ok().flatten())
    }

    fn choose(&self, geometry: &Geometry) -> std::result::Result<Option<Choice>, CudnnError> {
        use sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 as DATA;
        use sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 as FILTER;
        use sys::cudnnConvolutionFwdAlgo_t as Forward;
        const FORWARD: [Forward; 3] = [
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
        ];
        let (handle, plain) = (self.handles[0], !geometry.rounds);
        let elements = [geometry.x, geometry.w, geometry.y].map(|shape| shape.iter().product::<usize>());
        // Room for all three in another order, and a little.
        let most = elements.iter().sum::<usize>() * size_of::<f32>() * 2 + (8 << 20);
        if geometry.last {
            let chosen = GraphPlan::new(handle, geometry, most).map(|plan| self.kept(plan));
            if chosen.is_some() || geometry.narrow {
                return Ok(chosen);
            }
        }
        let Descriptions { x, w, y, convolution } = &Descriptions::new(geometry)?;
        let (x, w, y, convolution) = (*x, *w, *y, *convolution);
        // SAFETY: the descriptions were just made; there is room for as many offers as are asked for.
        unsafe {
            Ok(match geometry.sought {
                Sought::Result => choose!(
                    handle,
                    cudnnGetConvolutionForwardAlgorithm_v7,
                    sys::cudnnConvolutionFwdAlgoPerf_t,
                    x,
                    w,
                    y,
                    convolution,
                    FORWARD,
                    Algorithm::Forward,
                    plain,
                    most
                ),
                Sought::Image => choose!(
                    handle,
                    cudnnGetConvolutionBackwardDataAlgorithm_v7,
                    sys::cudnnConvolutionBwdDataAlgoPerf_t,
                    w,
                    y,
                    x,
                    convolution,
                    [DATA],
                    Algorithm::Data,
                    plain,
                    most
                ),
                Sought::Kernel => choose!(
                    handle,
                    cudnnGetConvolutionBackwardFilterAlgorithm_v7,
                    sys::cudnnConvolutionBwdFilterAlgoPerf_t,
                    x,
                    y,
                    w,
                    convolution,
                    [FILTER],
                    Algorithm::Filter,
                    plain,
                    most
                ),
            })
        }
    }

    /// Keeps a graph, and says how it is chosen.
    fn kept(&self, plan: GraphPlan) -> Choice {
        let (workspace, mut graphs) = (plan.workspace, self.graphs());
        graphs.push(plan);
        let algorithm = Algorithm::Graph(graphs.len() - 1);
        Choice { algorithm, math: sys::cudnnMathType_t::CUDNN_DEFAULT_MATH, workspace }
    }

    /// Makes a convolution ready that the library can compute.
    pub fn prepare(&self, geometry: &Geometry) -> Result<Convolved> {
        let describe = |e| failed("describe a convolution", e);
        let descriptions = Descriptions::new(geometry).map_err(describe)?;
        let Some(choice) = self.choice(geometry) else {
            let what = format!("cuDNN has no way to compute {geometry:?}");
            return Err(Error::new(ErrorKind::Device { what }));
        };
        descriptions.set_math(choice.math).map_err(describe)?;
        Ok(Convolved { descriptions, choice })
    }

    /// Starts a convolution in the stream with this number.
    ///
    /// # Safety
    /// The addresses must be those of x, w, y and the workspace, which nobody else uses meanwhile.
    pub unsafe fn run(&self, convolved: &Convolved, [x, w, y, workspace]: [u64; 4], stream: usize) -> Result<()> {
        let (one, zero) = (1f32, 0f32);
        let (one, zero): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
        let given = |address: u64| address as *const c_void;
        let (space, bytes) = (workspace as *mut c_void, convolved.choice.workspace);
        let (handle, d) = (self.handles[stream], &convolved.descriptions);
        // SAFETY: the caller's promise.
        unsafe {
            match convolved.choice.algorithm {
                Algorithm::Graph(number) => {
                    let graphs = self.graphs();
                    let graph = graphs.get(number).ok_or_else(|| lacks("a graph of the library of convolutions"))?;
                    return graph.run(handle, [x, w, y, workspace]).map_err(|e| failed("convolve", e));
                }
                Algorithm::Forward(how) => sys::cudnnConvolutionForward(
                    handle,
                    one,
                    d.x,
                    given(x),
                    d.w,
                    given(w),
                    d.convolution,
                    how,
                    space,
                    bytes,
                    zero,
                    d.y,
                    y as *mut c_void,
                ),
                Algorithm::Data(how) => sys::cudnnConvolutionBackwardData(
                    handle,
                    one,
                    d.w,
                    given(w),
                    d.y,
                    given(y),
                    d.convolution,
                    how,
                    space,
                    bytes,
                    zero,
                    d.x,
                    x as *mut c_void,
                ),
                Algorithm::Filter(how) => sys::cudnnConvolutionBackwardFilter(
                    handle,
                    one,
                    d.x,
                    given(x),
                    d.y,
                    given(y),
                    d.convolution,
                    how,
                    space,
                    bytes,
                    zero,
                    d.w,
                    w as *mut c_void,
                ),
            }
            .result()
        }
        .map_err(|e| failed("convolve", e))
    }
}
