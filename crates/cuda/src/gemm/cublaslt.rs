//! Calls of cuBLASLt.

use crate::compile::step::GemmMath;
use crate::gemm::algo_cache::Algo;
use crate::gemm::key::{GemmKey, MatrixLayout};
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::StorageType;
use cudarc::cublaslt::{result, sys};
use std::ffi::c_void;

use sys::cublasLtMatmulDescAttributes_t as DescAttribute;
use sys::cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute;
use sys::cublasLtMatrixLayoutAttribute_t as LayoutAttribute;

fn failed(what: &str, error: result::CublasError) -> Error {
    Error::new(ErrorKind::Device { what: format!("cuBLASLt could not {what}: {error:?}") })
}

/// The number of heuristics requested from the library.
const MAX_HEURISTICS: usize = 8;

/// The library, opened for one GPU.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    /// Its version; a serialised algorithm is valid for this version only.
    pub version: usize,
}

// SAFETY: the library is thread-safe, with the context made current first.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// An algorithm that the library proposes, and its workspace in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Heuristic {
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
}

/// The addresses and factors of a product C = α·A·B + β·C₀ + b.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmAddresses {
    /// A, B and C.
    pub a: u64,
    pub b: u64,
    pub c: u64,
    /// The factor α.
    pub alpha: f64,
    /// C₀ and its factor β.
    pub addend: Option<(u64, f64)>,
    /// The row b, if the descriptor has one.
    pub bias: Option<u64>,
    /// The workspace.
    pub workspace: u64,
}

impl GemmAddresses {
    /// Returns those of a plain product.
    pub fn plain([a, b, c, workspace]: [u64; 4]) -> Self {
        GemmAddresses { a, b, c, alpha: 1.0, addend: None, bias: None, workspace }
    }
}

/// The operation of a matrix product as the library describes it, destroyed when dropped.
struct Description(sys::cublasLtMatmulDesc_t);

/// An address of a bias for selecting algorithms, which depends on its alignment only.
const ANY_BIAS: u64 = 16;

impl Description {
    /// Describes a product; the address of the bias is used if it has one.
    fn new(key: &GemmKey, bias: u64) -> Result<Self> {
        let describe = |e| failed("describe a product", e);
        let (_, summed, compute) = types(key.math);
        let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
        // SAFETY: every attribute has its type and size.
        unsafe {
            let description = Description(result::create_matmul_desc(compute, summed).map_err(describe)?);
            let set = |attribute, value: *const c_void, size| {
                result::set_matmul_desc_attribute(description.0, attribute, value, size).map_err(describe)
            };
            let [a, b] = [key.matrices[0], key.matrices[1]].map(|matrix| i32::from(matrix.transposed));
            set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const a).cast(), 4)?;
            set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, (&raw const b).cast(), 4)?;
            if key.bias {
                set(DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), 4)?;
                set(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), 8)?;
            }
            Ok(description)
        }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and not used elsewhere.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// Returns the types of operands and sums, and the compute type.
fn types(math: GemmMath) -> (sys::cudaDataType_t, sys::cudaDataType_t, sys::cublasComputeType_t) {
    use sys::{cublasComputeType_t as Compute, cudaDataType_t as Type};
    let (summed, compute) = match math {
        GemmMath::F64 => (Type::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
        GemmMath::TF32 => (Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
        _ => (Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
    };
    (data_type(math.operands), summed, compute)
}

/// Returns the library's name of a storage type.
fn data_type(storage: StorageType) -> sys::cudaDataType_t {
    match storage {
        StorageType::F32 => sys::cudaDataType_t::CUDA_R_32F,
        StorageType::F64 => sys::cudaDataType_t::CUDA_R_64F,
        StorageType::I32 => sys::cudaDataType_t::CUDA_R_32I,
        StorageType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        StorageType::F16 => sys::cudaDataType_t::CUDA_R_16F,
    }
}

/// A descriptor of a matrix product, destroyed when dropped.
pub(crate) struct GemmDescriptor {
    key: GemmKey,
    description: Description,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

// SAFETY: descriptors are plain data of the library, immutable after creation.
unsafe impl Send for GemmDescriptor {}
// SAFETY: as above.
unsafe impl Sync for GemmDescriptor {}

/// A matrix product that is ready to launch.
pub(crate) struct PreparedGemm {
    descriptor: GemmDescriptor,
    chosen: Heuristic,
}

impl PreparedGemm {
    /// Returns the problem.
    pub fn key(&self) -> &GemmKey {
        &self.descriptor.key
    }

    /// Returns the serialised algorithm.
    pub fn algo(&self) -> Algo {
        self.chosen.algorithm.data
    }
}

impl Blas {
    /// Opens the library. The context must be current.
    pub fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(|e| failed("be opened", e))?;
        // SAFETY: the library is loaded.
        let version = unsafe { sys::cublasLtGetVersion() };
        Ok(Blas { handle, version })
    }

    /// # Safety
    /// It must not be used afterwards.
    pub unsafe fn close(&self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }

    /// Prepares a product with a stored algorithm, if the library still supports it within the workspace.
    pub fn checked(&self, descriptor: GemmDescriptor, algo: Algo) -> Option<PreparedGemm> {
        let algorithm = sys::cublasLtMatmulAlgo_t { data: algo };
        let [a, b, c] = descriptor.layouts;
        // SAFETY: the descriptor is complete, and the result is plain data.
        let checked = unsafe {
            let mut checked: sys::cublasLtMatmulHeuristicResult_t = std::mem::zeroed();
            let status = sys::cublasLtMatmulAlgoCheck(
                self.handle,
                descriptor.description.0,
                a,
                b,
                c,
                c,
                &raw const algorithm,
                &raw mut checked,
            );
            status.result().ok()?;
            checked
        };
        let workspace = checked.workspaceSize;
        let fits = workspace <= descriptor.key.workspace_bytes();
        fits.then(|| descriptor.computed(Heuristic { algorithm, workspace }))
    }

    /// Returns the algorithms that the library proposes, best first; at least one.
    pub fn heuristics(&self, descriptor: &GemmDescriptor) -> Result<Vec<Heuristic>> {
        let describe = |e| failed("describe a product", e);
        let key = &descriptor.key;
        // SAFETY: the descriptor is complete; every attribute has its type and size, and there is room for all
        // requested heuristics.
        unsafe {
            let preference = result::create_matmul_pref().map_err(describe)?;
            let set = |attribute, value: *const c_void, size| {
                result::set_matmul_pref_attribute(preference, attribute, value, size).map_err(describe)
            };
            let bytes = key.workspace_bytes() as u64;
            set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const bytes).cast(), 8)?;
            let [a, b, c] = key.matrices;
            for (attribute, matrix) in [
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
            ] {
                let bytes = matrix.alignment;
                set(attribute, (&raw const bytes).cast(), 4)?;
            }
            // Split-K reductions only in the compute type, or in a result type of the same size, and in order: never by
            // atomics, so that results are deterministic.
            let schemes = if key.result == StorageType::Bf16 { 2u32 } else { 2 | 4 };
            set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const schemes).cast(), 4)?;
            let mut heuristics: [sys::cublasLtMatmulHeuristicResult_t; MAX_HEURISTICS] = std::mem::zeroed();
            let mut count = 0;
            let [a, b, c] = descriptor.layouts;
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                descriptor.description.0,
                a,
                b,
                c,
                c,
                preference,
                MAX_HEURISTICS as i32,
                heuristics.as_mut_ptr(),
                &raw mut count,
            );
            let _ = result::destroy_matmul_pref(preference);
            let wrong = |e| failed(&format!("find an algorithm for {key:?}"), e);
            asked.result().map_err(wrong)?;
            let given = &heuristics[..usize::try_from(count).unwrap_or(0).min(MAX_HEURISTICS)];
            let good = given.iter().filter(|offer| offer.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
            let found: Vec<Heuristic> =
                good.map(|offer| Heuristic { algorithm: offer.algo, workspace: offer.workspaceSize }).collect();
            if found.is_empty() {
                return Err(wrong(result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)));
            }
            Ok(found)
        }
    }

    /// Launches a product in a stream.
    ///
    /// # Safety
    /// The addresses must be those of the product's operands, result and workspace, with no concurrent use.
    pub unsafe fn run(
        &self,
        prepared: &PreparedGemm,
        addresses: &GemmAddresses,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.start(&prepared.descriptor, &prepared.chosen, addresses, stream) }
    }

    /// As [`run`](Self::run), with any of the proposed algorithms.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn start(
        &self,
        descriptor: &GemmDescriptor,
        offer: &Heuristic,
        addresses: &GemmAddresses,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        let GemmAddresses { a, b, c, alpha, addend, bias, workspace } = *addresses;
        let (addend, beta) = addend.unwrap_or((c, 0.0));
        let factors = [(alpha as f32, alpha), (beta as f32, beta)];
        let double = descriptor.key.math == GemmMath::F64;
        let [alpha, beta] = factors.each_ref().map(|pair| -> *const c_void {
            if double { (&raw const pair.1).cast() } else { (&raw const pair.0).cast() }
        });
        let [of_a, of_b, of_c] = descriptor.layouts;
        // Descriptors are shared by threads, so the address of a bias is in one of this call.
        let own = bias.map(|bias| Description::new(&descriptor.key, bias)).transpose()?;
        let description = own.as_ref().unwrap_or(&descriptor.description).0;
        // SAFETY: the caller's promise.
        unsafe {
            result::matmul(
                self.handle,
                description,
                alpha,
                beta,
                a as *const c_void,
                of_a,
                b as *const c_void,
                of_b,
                addend as *const c_void,
                of_c,
                c as *mut c_void,
                of_c,
                &raw const offer.algorithm,
                workspace as *mut c_void,
                offer.workspace,
                stream.cast(),
            )
        }
        .map_err(|e| failed("multiply", e))
    }
}

impl GemmDescriptor {
    /// Creates the descriptor of a problem.
    pub fn new(key: &GemmKey) -> Result<Self> {
        let (operand, result_type) = (data_type(key.math.operands), data_type(key.result));
        let ([a, b, c], stored, batch) = (key.matrices, key.stored(), key.batch);
        let describe = |e| failed("describe a product", e);
        let description = Description::new(key, ANY_BIAS)?;
        // SAFETY: every attribute has its type and size, and everything created is destroyed with the descriptor.
        unsafe {
            let layout =
                |matrix: MatrixLayout, kind, (rows, columns): (usize, usize)| -> Result<sys::cublasLtMatrixLayout_t> {
                    let layout = result::create_matrix_layout(kind, rows as u64, columns as u64, matrix.leading as i64)
                        .map_err(describe)?;
                    if batch > 1 {
                        let (count, batch_stride) = (batch as i32, matrix.batch_stride as i64);
                        let set = |attribute, value: *const c_void, size| {
                            result::set_matrix_layout_attribute(layout, attribute, value, size).map_err(describe)
                        };
                        set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)?;
                        set(
                            LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                            (&raw const batch_stride).cast(),
                            8,
                        )?;
                    }
                    Ok(layout)
                };
            let layouts =
                [layout(a, operand, stored[0])?, layout(b, operand, stored[1])?, layout(c, result_type, stored[2])?];
            Ok(GemmDescriptor { key: *key, description, layouts })
        }
    }

    /// Returns the problem.
    pub fn key(&self) -> &GemmKey {
        &self.key
    }

    /// Selects an algorithm.
    pub fn computed(self, chosen: Heuristic) -> PreparedGemm {
        PreparedGemm { descriptor: self, chosen }
    }
}

impl Drop for GemmDescriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and not used elsewhere.
        unsafe {
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}
