//! Matrix products by cuBLASLt.

use crate::dot::workspace_bytes;
use crate::step::{Factor, Matrix, Product};
use bilevel_graph::{Error, ErrorKind, Result};
use cudarc::cublaslt::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use sys::cublasLtMatmulDescAttributes_t as DescAttribute;
use sys::cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute;
use sys::cublasLtMatrixLayoutAttribute_t as LayoutAttribute;

fn failed(what: &str, error: result::CublasError) -> Error {
    Error::new(ErrorKind::Device { what: format!("cuBLASLt could not {what}: {error:?}") })
}

/// The library, opened for one GPU.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    /// How products that are alike are computed: a network has many, and the library takes its time to choose.
    chosen: Mutex<HashMap<Alike, Chosen>>,
}

/// All of a product that the choice depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Alike {
    sizes: [usize; 4],
    factor: Factor,
    /// By matrix: transposed, leading distance, distance in the batch, alignment.
    matrices: [(bool, usize, usize, u32); 3],
}

impl Alike {
    fn new(product: &Product) -> Self {
        let Product { m, n, k, batch, factor, a, b, c, .. } = *product;
        let seen = |matrix: Matrix| (matrix.transposed, matrix.leading, matrix.apart, matrix.alignment());
        Alike { sizes: [m, n, k, batch], factor, matrices: [a, b, c].map(seen) }
    }
}

/// A way to compute a product, and the bytes of workspace it takes.
#[derive(Clone, Copy)]
struct Chosen {
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
}

/// A product that is ready to be started. Its parts are given back when it is dropped.
pub(crate) struct Prepared {
    product: Product,
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    chosen: Chosen,
}

// SAFETY: descriptions are plain data of the library's, used by one thread at a time.
unsafe impl Send for Prepared {}

impl Blas {
    /// Opens the library. The context must be current.
    pub fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(|e| failed("be opened", e))?;
        Ok(Blas { handle, chosen: Mutex::default() })
    }

    /// # Safety
    /// Nobody may use it afterwards.
    pub unsafe fn close(&self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }

    /// Describes a product and chooses how to compute it.
    pub fn prepare(&self, product: &Product) -> Result<Prepared> {
        use sys::{cublasComputeType_t as Compute, cudaDataType_t as Type};
        let (operand, result_type, compute) = match product.factor {
            Factor::F32 => (Type::CUDA_R_32F, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
            Factor::Tf32 => (Type::CUDA_R_32F, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
            Factor::Bf16 => (Type::CUDA_R_16BF, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
            Factor::F64 => (Type::CUDA_R_64F, Type::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
        };
        let Product { m, n, k, batch, .. } = *product;
        let describe = |e| failed("describe a product", e);
        // SAFETY: everything set is of the type and size its attribute has, and everything made is destroyed with `Prepared`.
        unsafe {
            let description = result::create_matmul_desc(compute, result_type).map_err(describe)?;
            for (attribute, matrix) in [
                (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, product.a),
                (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, product.b),
            ] {
                let operation = i32::from(matrix.transposed);
                result::set_matmul_desc_attribute(description, attribute, (&raw const operation).cast(), 4)
                    .map_err(describe)?;
            }
            let layout = |matrix: Matrix, kind, rows: usize, columns: usize| -> Result<sys::cublasLtMatrixLayout_t> {
                let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
                let layout = result::create_matrix_layout(kind, rows as u64, columns as u64, matrix.leading as i64)
                    .map_err(describe)?;
                if batch > 1 {
                    let (count, apart) = (batch as i32, matrix.apart as i64);
                    let set = |attribute, value: *const c_void, size| {
                        result::set_matrix_layout_attribute(layout, attribute, value, size).map_err(describe)
                    };
                    set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)?;
                    set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const apart).cast(), 8)?;
                }
                Ok(layout)
            };
            let layouts = [
                layout(product.a, operand, m, k)?,
                layout(product.b, operand, k, n)?,
                layout(product.c, result_type, m, n)?,
            ];
            let alike = Alike::new(product);
            let known = || self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
            let found = known().get(&alike).copied();
            let chosen = match found {
                Some(chosen) => chosen,
                None => {
                    let chosen = self.choose(product, description, layouts)?;
                    known().insert(alike, chosen);
                    chosen
                }
            };
            Ok(Prepared { product: *product, description, layouts, chosen })
        }
    }

    /// What the library thinks is fastest.
    ///
    /// # Safety
    /// The description and the layouts must be those of the product.
    unsafe fn choose(
        &self,
        product: &Product,
        description: sys::cublasLtMatmulDesc_t,
        [a, b, c]: [sys::cublasLtMatrixLayout_t; 3],
    ) -> Result<Chosen> {
        let describe = |e| failed("describe a product", e);
        // SAFETY: the caller's promise; everything set is of the type and size its attribute has.
        unsafe {
            let preference = result::create_matmul_pref().map_err(describe)?;
            let set = |attribute, value: *const c_void, size| {
                result::set_matmul_pref_attribute(preference, attribute, value, size).map_err(describe)
            };
            let bytes = workspace_bytes(product) as u64;
            set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const bytes).cast(), 8)?;
            for (attribute, matrix) in [
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.a),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.b),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.c),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.c),
            ] {
                let bytes = matrix.alignment();
                set(attribute, (&raw const bytes).cast(), 4)?;
            }
            // Parts of a sum are added in the type of the computation or of the result, one after the other: never in the
            // order in which they happen to be done.
            let schemes = 2u32 | 4;
            set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const schemes).cast(), 4)?;
            let chosen = result::get_matmul_algo_heuristic(self.handle, description, a, b, c, c, preference);
            let _ = result::destroy_matmul_pref(preference);
            let chosen = chosen.map_err(|e| {
                let what = format!("find a way to compute {product:?}");
                failed(&what, e)
            })?;
            Ok(Chosen { algorithm: chosen.algo, workspace: chosen.workspaceSize })
        }
    }

    /// Starts a product in a stream.
    ///
    /// # Safety
    /// The addresses must be those of the product's operands, result and workspace, which nobody else uses meanwhile.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        [a, b, c, workspace]: [u64; 4],
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        const ONE: (f32, f64) = (1.0, 1.0);
        const ZERO: (f32, f64) = (0.0, 0.0);
        let double = prepared.product.factor == Factor::F64;
        let number = |pair: &'static (f32, f64)| -> *const c_void {
            if double { (&raw const pair.1).cast() } else { (&raw const pair.0).cast() }
        };
        let [of_a, of_b, of_c] = prepared.layouts;
        // SAFETY: the caller's promise.
        unsafe {
            result::matmul(
                self.handle,
                prepared.description,
                number(&ONE),
                number(&ZERO),
                a as *const c_void,
                of_a,
                b as *const c_void,
                of_b,
                c as *const c_void,
                of_c,
                c as *mut c_void,
                of_c,
                &raw const prepared.chosen.algorithm,
                workspace as *mut c_void,
                prepared.chosen.workspace,
                stream.cast(),
            )
        }
        .map_err(|e| failed("multiply", e))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: made in `prepare`, and used by nobody else.
        unsafe {
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.description);
        }
    }
}
