//! Submits the work of a step to a stream.

use crate::compile::step::{Call, Work};
use crate::conv::cudnn::PreparedConv;
use crate::gemm::cublaslt::{GemmAddresses, PreparedGemm};
use crate::runtime::device::{Device, Function, failed};
use bilevel_gpu::codegen::limits::SMEM_BYTES;
use bilevel_gpu::codegen::{Arg, Launch};
use bilevel_graph::Result;
use bilevel_plan::{Place, internal_error};
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// The resources needed to launch a step.
pub(crate) enum PreparedLaunch {
    Kernel(Function),
    Gemm(Arc<PreparedGemm>),
    Convolution(PreparedConv),
    Copy,
}

/// Submits work to a stream, given the address of each place and of the record of failed checks.
///
/// # Safety
/// All memory that the work uses must be at these addresses, with no concurrent use.
pub(crate) unsafe fn start(
    device: &Arc<Device>,
    (work, ready): (&Work, &PreparedLaunch),
    (address, error): (impl Fn(Place) -> u64 + Copy, u64),
    branch: usize,
) -> Result<()> {
    let stream = device.stream(branch);
    let at = |arg: Arg| match arg {
        Arg::Memory(place, bytes) => address(place).wrapping_add_signed(bytes as i64),
        _ => 0,
    };
    // SAFETY: the caller's promise.
    unsafe {
        match (work, ready) {
            (Work::Kernel(kernel), PreparedLaunch::Kernel(function)) => {
                launch(kernel, *function, &kernel.words(address, error), stream)
            }
            (Work::Library(Call::Gemm(product)), PreparedLaunch::Gemm(prepared)) => {
                let [addend, bias] = product.added().map(|arg| arg.map(&at));
                let addresses = GemmAddresses {
                    a: at(product.a.at),
                    b: at(product.b.at),
                    c: at(product.c.at),
                    alpha: product.affine.alpha,
                    addend: addend.zip(product.affine.addend.map(|(_, beta)| beta)),
                    bias,
                    workspace: address(product.workspace),
                };
                device.products()?.blas().run(prepared, &addresses, stream)
            }
            (
                Work::Library(Call::Convolution { at: places, workspace, .. }),
                PreparedLaunch::Convolution(convolved),
            ) => {
                let [x, w, y] = places.map(at);
                let dnn = device.dnn().ok_or_else(|| internal_error("cuDNN"))?;
                dnn.run(convolved, [x, w, y, address(*workspace)], branch)
            }
            (Work::Copy { from, to, bytes }, _) => {
                let (from, to) = (address(*from), address(*to));
                result::memcpy_dtod_async(to, from, *bytes, stream).map_err(|e| failed("copy memory", e))
            }
            _ => Err(internal_error("the prepared launch of a step")),
        }
    }
}

/// Launches a kernel.
///
/// # Safety
/// As for [`start`].
unsafe fn launch(launch: &Launch, function: Function, words: &[[u8; 8]], stream: sys::CUstream) -> Result<()> {
    // A batched launch takes all arguments as one array.
    let given = if launch.kernel.batch > 1 { &words[..1] } else { words };
    let mut pointers: Vec<*mut c_void> = given.iter().map(|word| word.as_ptr().cast_mut().cast()).collect();
    let ([x, y], z, block) = (launch.grid, launch.kernel.batch as u32, launch.kernel.block);
    if launch.shared as usize > SMEM_BYTES {
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        unsafe { result::function::set_function_attribute(function.0, most, launch.shared as i32) }
            .map_err(|e| failed("set the shared memory of a kernel", e))?;
    }
    // SAFETY: the caller's promise; the arguments are those the kernel declares, in order.
    unsafe { result::launch_kernel(function.0, (x, y, z), (block, 1, 1), launch.shared, stream, &mut pointers) }
        .map_err(|e| failed("launch a kernel", e))
}
