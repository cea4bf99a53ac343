//! Matrix products by cuBLASLt.

use crate::cache::Cache;
use crate::dot::workspace_bytes;
use crate::driver::{Device, Memory};
use crate::step::{Factor, Matrix, Product};
use crate::target::ALIGN;
use bilevel_graph::{Error, ErrorKind, Result};
use cudarc::cublaslt::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

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
    /// Held by who chooses.
    choosing: Mutex<()>,
}

// SAFETY: the library may be used from any thread, with the context made current first.
unsafe impl Send for Blas {}

/// All of a product that the choice depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

impl Chosen {
    /// The way as it is kept.
    fn bytes(&self) -> Vec<u8> {
        self.algorithm.data.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// What the library was told of a product; given back when it is dropped.
struct Parts {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

/// Ways the library is asked for.
const OFFERS: usize = 8;
/// Times each is run on trial, after a first; twice, of which the faster counts: other threads may load kernels meanwhile.
const TIMES: u32 = 5;
/// Multiplications from which the best way is worth a trial.
const TRIED: usize = 1 << 26;

/// A product that is ready to be started. Its parts are given back when it is dropped.
pub(crate) struct Prepared {
    product: Product,
    parts: Parts,
    chosen: Chosen,
}

// SAFETY: descriptions are plain data of the library's, used by one thread at a time.
unsafe impl Send for Prepared {}

impl Blas {
    /// Opens the library. The context must be current.
    pub fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(|e| failed("be opened", e))?;
        Ok(Blas { handle, chosen: Mutex::default(), choosing: Mutex::default() })
    }

    /// # Safety
    /// Nobody may use it afterwards.
    pub unsafe fn close(&self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }

    /// Describes a product and chooses how to compute it.
    pub fn prepare(&self, product: &Product, device: &Arc<Device>) -> Result<Prepared> {
        let parts = Parts::new(product)?;
        let chosen = self.settle(product, &parts, device)?;
        Ok(Prepared { product: *product, parts, chosen })
    }

    /// Chooses how to compute a product, unless that is known.
    fn settle(&self, product: &Product, parts: &Parts, device: &Arc<Device>) -> Result<Chosen> {
        let alike = Alike::new(product);
        let known = || self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let find = || known().get(&alike).copied();
        if let Some(chosen) = find() {
            return Ok(chosen);
        }
        // One at a time: trials at once would disturb each other, and two choices for one product would be other bits.
        let _turn = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = find() {
            return Ok(chosen);
        }
        // SAFETY: the parts are those of the product.
        let chosen = unsafe { self.choose(product, parts, device)? };
        known().insert(alike, chosen);
        Ok(chosen)
    }

    /// Chooses how to compute a product before it is [prepared](Self::prepare), on any thread.
    pub fn choose_early(&self, product: &Product, device: &Arc<Device>) -> Result<()> {
        self.settle(product, &Parts::new(product)?, device).map(|_| ())
    }

    /// The fastest of the ways the library offers, by trial where that pays: what was found is kept beside the kernels, so that a
    /// later process takes the same way, to the same bits. Where nothing can be kept, what the library thinks is fastest.
    ///
    /// # Safety
    /// The description and the layouts must be those of the product.
    unsafe fn choose(&self, product: &Product, parts: &Parts, device: &Arc<Device>) -> Result<Chosen> {
        let work = product.m.saturating_mul(product.n).saturating_mul(product.k).saturating_mul(product.batch);
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(chosen) = self.kept(product, parts, device) {
                return Ok(chosen);
            }
            let offers = self.offers(product, parts)?;
            let first = offers[0];
            if offers.len() == 1 || work < TRIED || !device.cache.keeps() {
                return Ok(first);
            }
            let fastest = self.fastest(&offers, product, parts, device).unwrap_or(first);
            device.cache.put(&key(product, device), &fastest.bytes());
            Ok(fastest)
        }
    }

    /// What an earlier process chose, if it is known.
    ///
    /// # Safety
    /// As for [`choose`](Self::choose).
    unsafe fn kept(&self, product: &Product, parts: &Parts, device: &Device) -> Option<Chosen> {
        let bytes = device.cache.get(&key(product, device))?;
        // SAFETY: the caller's promise.
        unsafe { self.known(&bytes, product, parts) }
    }

    /// What was kept of an earlier choice, if the library still can do it so.
    unsafe fn known(&self, bytes: &[u8], product: &Product, parts: &Parts) -> Option<Chosen> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|b| b.try_into().map(u64::from_le_bytes))
            .collect::<std::result::Result<_, _>>()
            .ok()?;
        let algorithm = sys::cublasLtMatmulAlgo_t { data: words.try_into().ok()? };
        let [a, b, c] = parts.layouts;
        // SAFETY: the caller's promise; the answer is plain data.
        let checked = unsafe {
            let mut checked: sys::cublasLtMatmulHeuristicResult_t = std::mem::zeroed();
            let status = sys::cublasLtMatmulAlgoCheck(
                self.handle,
                parts.description,
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
        let fits = checked.workspaceSize <= workspace_bytes(product);
        fits.then_some(Chosen { algorithm, workspace: checked.workspaceSize })
    }

    /// The ways the library offers, the one it thinks is fastest first; at least one.
    unsafe fn offers(&self, product: &Product, parts: &Parts) -> Result<Vec<Chosen>> {
        let describe = |e| failed("describe a product", e);
        // SAFETY: the caller's promise; everything set is of the type and size its attribute has, and there is room for as many
        // offers as are asked for.
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
            let mut offers: [sys::cublasLtMatmulHeuristicResult_t; OFFERS] = std::mem::zeroed();
            let mut count = 0;
            let [a, b, c] = parts.layouts;
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                parts.description,
                a,
                b,
                c,
                c,
                preference,
                OFFERS as i32,
                offers.as_mut_ptr(),
                &raw mut count,
            );
            let _ = result::destroy_matmul_pref(preference);
            let wrong = |e| failed(&format!("find a way to compute {product:?}"), e);
            asked.result().map_err(wrong)?;
            let given = &offers[..usize::try_from(count).unwrap_or(0).min(OFFERS)];
            let good = given.iter().filter(|offer| offer.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
            let found: Vec<Chosen> =
                good.map(|offer| Chosen { algorithm: offer.algo, workspace: offer.workspaceSize }).collect();
            if found.is_empty() {
                return Err(wrong(result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)));
            }
            Ok(found)
        }
    }

    /// Runs each way some times on zeros.
    unsafe fn fastest(
        &self,
        offers: &[Chosen],
        product: &Product,
        parts: &Parts,
        device: &Arc<Device>,
    ) -> Result<Chosen> {
        let Product { m, n, k, batch, factor, .. } = *product;
        let operand = match factor {
            Factor::Bf16 => 2,
            Factor::F64 => 8,
            Factor::F32 | Factor::Tf32 => 4,
        };
        let extent = |matrix: Matrix, rows: usize, columns: usize, size: usize| {
            let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
            ((batch - 1) * matrix.apart + (columns - 1) * matrix.leading + rows) * size
        };
        let result_size = if factor == Factor::F64 { 8 } else { 4 };
        let sizes = [
            extent(product.a, m, k, operand),
            extent(product.b, k, n, operand),
            extent(product.c, m, n, result_size),
            workspace_bytes(product),
        ];
        let mut ends = sizes.map(|size| size.next_multiple_of(ALIGN));
        (1..4).for_each(|i| ends[i] += ends[i - 1]);
        // Who holds the scratch memory may put work in the queue.
        let _turn = device.scratch();
        let memory = Memory::new(device, ends[3])?;
        let places = [0, ends[0], ends[1], ends[2]].map(|offset| memory.start + offset as u64);
        let stream = device.queue();
        // SAFETY: the memory was just had and is as long as is said.
        unsafe { cudarc::driver::result::memset_d8_async(memory.start, 0, ends[3], stream) }
            .map_err(|e| crate::driver::failed("clear memory", e))?;
        let mut best = (f64::INFINITY, offers[0]);
        for &chosen in offers {
            let run = |times: u32| -> Result<f64> {
                device.wait()?;
                let start = Instant::now();
                for _ in 0..times {
                    // SAFETY: the places are those of operands of the product's size.
                    unsafe { self.start(product, parts, &chosen, places, stream)? };
                }
                device.wait()?;
                Ok(start.elapsed().as_secs_f64())
            };
            // What cannot be run is not chosen.
            if let Ok(seconds) = run(1).and_then(|_| Ok(run(TIMES)?.min(run(TIMES)?)))
                && seconds < best.0
            {
                best = (seconds, chosen);
            }
        }
        Ok(best.1)
    }

    /// Starts a product in a stream.
    ///
    /// # Safety
    /// The addresses must be those of the product's operands, result and workspace, which nobody else uses meanwhile.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        addresses: [u64; 4],
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.start(&prepared.product, &prepared.parts, &prepared.chosen, addresses, stream) }
    }

    unsafe fn start(
        &self,
        product: &Product,
        parts: &Parts,
        chosen: &Chosen,
        [a, b, c, workspace]: [u64; 4],
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        const ONE: (f32, f64) = (1.0, 1.0);
        const ZERO: (f32, f64) = (0.0, 0.0);
        let double = product.factor == Factor::F64;
        let number = |pair: &'static (f32, f64)| -> *const c_void {
            if double { (&raw const pair.1).cast() } else { (&raw const pair.0).cast() }
        };
        let [of_a, of_b, of_c] = parts.layouts;
        // SAFETY: the caller's promise.
        unsafe {
            result::matmul(
                self.handle,
                parts.description,
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
                &raw const chosen.algorithm,
                workspace as *mut c_void,
                chosen.workspace,
                stream.cast(),
            )
        }
        .map_err(|e| failed("multiply", e))
    }
}

/// The name under which the choice for a product is kept.
fn key(product: &Product, device: &Device) -> String {
    // SAFETY: the library is there.
    let version = unsafe { sys::cublasLtGetVersion() }.to_string();
    Cache::key(&["product", &format!("{:?}", Alike::new(product)), &device.name, &version])
}

impl Parts {
    /// Describes a product.
    fn new(product: &Product) -> Result<Self> {
        use sys::{cublasComputeType_t as Compute, cudaDataType_t as Type};
        let (operand, result_type, compute) = match product.factor {
            Factor::F32 => (Type::CUDA_R_32F, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
            Factor::Tf32 => (Type::CUDA_R_32F, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
            Factor::Bf16 => (Type::CUDA_R_16BF, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
            Factor::F64 => (Type::CUDA_R_64F, Type::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
        };
        let Product { m, n, k, batch, .. } = *product;
        let describe = |e| failed("describe a product", e);
        // SAFETY: everything set is of the type and size its attribute has, and everything made is destroyed with the parts.
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
            Ok(Parts { description, layouts })
        }
    }
}

impl Drop for Parts {
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
