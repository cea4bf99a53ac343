//! Submits the work of a step to a stream.

use crate::codegen::{Arg, Launch};
use crate::compile::step::Work;
use crate::conv::cudnn::PreparedConv;
use crate::gemm::cublaslt::PreparedGemm;
use crate::runtime::device::{Device, Function, failed};
use bilevel_graph::{DType, Result};
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
    (address, error): (impl Fn(Place) -> u64, u64),
    branch: usize,
) -> Result<()> {
    let stream = device.stream(branch);
    let at = |arg: Arg| match arg {
        Arg::Memory(place, bytes) => address(place).wrapping_add_signed(bytes as i64),
        Arg::Error => error,
        _ => 0,
    };
    // SAFETY: the caller's promise.
    unsafe {
        match (work, ready) {
            (Work::Kernel(kernel), PreparedLaunch::Kernel(function)) => launch(kernel, *function, at, stream),
            (Work::Gemm(product), PreparedLaunch::Gemm(prepared)) => {
                let addresses = [at(product.a.at), at(product.b.at), at(product.c.at), address(product.workspace)];
                device.products()?.blas().run(prepared, addresses, stream)
            }
            (Work::Convolution { at: places, workspace, .. }, PreparedLaunch::Convolution(convolved)) => {
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

/// The dynamic shared memory of a block in bytes that needs no opt-in.
const DEFAULT_SMEM_BYTES: u32 = 48 << 10;

/// Launches a kernel.
///
/// # Safety
/// As for [`start`].
unsafe fn launch(launch: &Launch, function: Function, at: impl Fn(Arg) -> u64, stream: sys::CUstream) -> Result<()> {
    let long = launch.source.starts_with("typedef u64 U;");
    // Each argument occupies eight bytes, in the representation of its kernel type.
    let words: Vec<[u8; 8]> = launch
        .args
        .iter()
        .map(|&arg| {
            let mut word = [0; 8];
            match arg {
                Arg::Memory(..) | Arg::Error => word = at(arg).to_ne_bytes(),
                Arg::Count(count) if long => word = count.to_ne_bytes(),
                Arg::Count(count) => word[..4].copy_from_slice(&(count as u32).to_ne_bytes()),
                Arg::Number(DType::F64, value) => word = value.to_ne_bytes(),
                Arg::Number(DType::F32, value) => word[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
                Arg::Number(DType::I32, value) => word[..4].copy_from_slice(&(value as i32).to_ne_bytes()),
            }
            word
        })
        .collect();
    // A batched launch takes all arguments as one array.
    let given = if launch.parts > 1 { &words[..1] } else { &words[..] };
    let mut pointers: Vec<*mut c_void> = given.iter().map(|word| word.as_ptr().cast_mut().cast()).collect();
    let ([x, y], z, block) = (launch.grid, launch.parts, launch.block);
    if launch.shared > DEFAULT_SMEM_BYTES {
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        unsafe { result::function::set_function_attribute(function.0, most, launch.shared as i32) }
            .map_err(|e| failed("set the shared memory of a kernel", e))?;
    }
    // SAFETY: the caller's promise; the arguments are those the kernel declares, in order.
    unsafe { result::launch_kernel(function.0, (x, y, z), (block, 1, 1), launch.shared, stream, &mut pointers) }
        .map_err(|e| failed("launch a kernel", e))
}
