//! Convolutions by cuDNN's legacy API, which has few algorithms; the library's heuristic chooses among them.

use crate::conv::canonical::{ConvPass, Geometry};
use crate::conv::cudnn::descriptor::CudnnResult;
use crate::conv::cudnn::handles::Handle;
use cudarc::cudnn::{result, sys};
use std::ffi::{c_int, c_void};

/// A convolution that is ready to launch, and its workspace in bytes.
pub(crate) struct LegacyConv {
    descriptions: Descriptions,
    algorithm: Algorithm,
    pub workspace: usize,
}

#[derive(Clone, Copy)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Data(sys::cudnnConvolutionBwdDataAlgo_t),
    Filter(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// An algorithm, its math type, and its workspace in bytes.
type LegacyHeuristic = (Algorithm, sys::cudnnMathType_t, usize);

/// The descriptors of a geometry, destroyed when dropped.
struct Descriptions {
    x: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
}

// SAFETY: as for `Descriptor`.
unsafe impl Send for Descriptions {}

impl Descriptions {
    fn new(geometry: &Geometry) -> CudnnResult<Self> {
        use sys::{cudnnConvolutionMode_t as Mode, cudnnDataType_t as Type, cudnnTensorFormat_t as Format};
        let int = |numbers: [usize; 4]| numbers.map(|n| n as c_int);
        let format = if geometry.channels_last() { Format::CUDNN_TENSOR_NHWC } else { Format::CUDNN_TENSOR_NCHW };
        let two = |numbers: [usize; 2]| numbers.map(|n| n as c_int);
        let (kind, Geometry { x, w, y, .. }) = (Type::CUDNN_DATA_FLOAT, *geometry);
        // SAFETY: every descriptor is created, then filled with as many numbers as is said; all are destroyed with
        // this.
        unsafe {
            let made = Descriptions {
                x: result::create_tensor_descriptor()?,
                w: result::create_filter_descriptor()?,
                y: result::create_tensor_descriptor()?,
                convolution: result::create_convolution_descriptor()?,
            };
            for (description, shape) in [(made.x, x), (made.y, y)] {
                let (shape, strides) = (int(shape), int(geometry.strides(shape)));
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

    fn set_math(&self, math: sys::cudnnMathType_t) -> CudnnResult<()> {
        // SAFETY: the descriptor was created in `new`.
        unsafe { sys::cudnnSetConvolutionMathType(self.convolution, math).result() }
    }
}

/// Returns the math type that is allowed.
fn math(geometry: &Geometry) -> sys::cudnnMathType_t {
    use sys::cudnnMathType_t as Math;
    if geometry.rounds() { Math::CUDNN_DEFAULT_MATH } else { Math::CUDNN_FMA_MATH }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and owned by this value alone.
        unsafe {
            let _ = result::destroy_tensor_descriptor(self.x);
            let _ = result::destroy_filter_descriptor(self.w);
            let _ = result::destroy_tensor_descriptor(self.y);
            let _ = result::destroy_convolution_descriptor(self.convolution);
        }
    }
}

/// The maximum number of algorithms that the library may propose.
const MAX_HEURISTICS: usize = 10;

/// Returns the first acceptable proposal: the algorithms in `$may` are deterministic and as precise as a plain sum.
macro_rules! choose {
    ($handle:expr, $ask:ident, $offer:ty, $first:expr, $second:expr, $third:expr, $convolution:expr, $may:expr, $kind:expr, $plain:expr, $most:expr) => {{
        let mut offers: [$offer; MAX_HEURISTICS] = std::mem::zeroed();
        let mut count = 0;
        let offers_at = offers.as_mut_ptr();
        sys::$ask($handle, $first, $second, $convolution, $third, MAX_HEURISTICS as c_int, &mut count, offers_at)
            .result()?;
        offers[..usize::try_from(count).unwrap_or(0).min(MAX_HEURISTICS)]
            .iter()
            .find(|offer| {
                let rounds = offer.mathType != sys::cudnnMathType_t::CUDNN_FMA_MATH;
                offer.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                    && $may.contains(&offer.algo)
                    && !(rounds && $plain)
                    && offer.memory <= $most
            })
            .map(|offer| ($kind(offer.algo), offer.mathType, offer.memory))
    }};
}

impl LegacyConv {
    /// Prepares the fastest acceptable algorithm, by the library's heuristic, within this many bytes of workspace;
    /// `None` if there is none.
    pub fn first(handle: &Handle, geometry: &Geometry, most: usize) -> CudnnResult<Option<Self>> {
        let descriptions = Descriptions::new(geometry)?;
        let Some((algorithm, math, workspace)) = Self::offer(handle, geometry, &descriptions, most)? else {
            return Ok(None);
        };
        descriptions.set_math(math)?;
        Ok(Some(LegacyConv { descriptions, algorithm, workspace }))
    }

    fn offer(
        handle: &Handle,
        geometry: &Geometry,
        d: &Descriptions,
        most: usize,
    ) -> CudnnResult<Option<LegacyHeuristic>> {
        use sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 as DATA;
        use sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 as FILTER;
        use sys::cudnnConvolutionFwdAlgo_t as Forward;
        const FORWARD: [Forward; 3] = [
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
        ];
        let plain = !geometry.rounds();
        let (handle, x, w, y, convolution) = (handle.raw(), d.x, d.w, d.y, d.convolution);
        // SAFETY: the descriptors were just created; there is room for all requested proposals.
        unsafe {
            Ok(match geometry.pass {
                ConvPass::Fprop => choose!(
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
                ConvPass::Dgrad => choose!(
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
                ConvPass::Wgrad => choose!(
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

    /// Launches it in the stream of a handle.
    ///
    /// # Safety
    /// As for [`GraphPlan::run`](crate::conv::cudnn::backend::GraphPlan::run).
    pub unsafe fn run(&self, handle: &Handle, [x, w, y, workspace]: [u64; 4]) -> CudnnResult<()> {
        let (one, zero) = (1f32, 0f32);
        let (one, zero): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
        let given = |address: u64| address as *const c_void;
        let (space, bytes) = (workspace as *mut c_void, self.workspace);
        let (handle, d) = (handle.raw(), &self.descriptions);
        // SAFETY: the caller's promise.
        unsafe {
            match self.algorithm {
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
    }
}
