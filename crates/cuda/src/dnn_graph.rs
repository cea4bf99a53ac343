//! Convolutions with channels last by cuDNN's graphs of operations.
//!
//! The calls in `dnn.rs` know neither the newest kernels nor tensors of different types. A graph says the type of each: x and w in
//! bf16 where they are narrow, sums and the result always in 32 bits. Engines that can compute it are proposed, best first, and the
//! first is taken that always gives the same bits and multiplies as it should.

use crate::form::{Geometry, Sought};
use cudarc::cudnn::{CudnnError, sys};
use std::ffi::c_void;
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendDescriptorType_t as Kind;
use sys::cudnnBackendHeurMode_t as Mode;

type Answer<T> = Result<T, CudnnError>;

/// What the tensors of a graph are called.
const X: i64 = 1;
const W: i64 = 2;
const Y: i64 = 3;
const SUMS: i64 = 4;
/// What addresses are multiples of.
const ALIGNED: i64 = 16;
/// Most notes an engine may have.
const NOTES: usize = 32;
/// Most engines to look at.
const OFFERS: i64 = 16;

/// A description of the library's, given back when it is dropped.
struct Described(sys::cudnnBackendDescriptor_t);

impl Described {
    fn new(kind: Kind) -> Answer<Self> {
        let mut made = std::ptr::null_mut();
        // SAFETY: there is room for what is made.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut made).result()? };
        Ok(Described(made))
    }

    /// Sets an attribute to these values, which must be of the Rust type that stands for `kind`.
    fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> Answer<()> {
        // SAFETY: as many values as is said; the library copies them.
        unsafe {
            sys::cudnnBackendSetAttribute(self.0, name, kind, values.len() as i64, values.as_ptr().cast()).result()
        }
    }

    /// Sets an attribute to other descriptions.
    fn refer(&self, name: Name, others: &[&Described]) -> Answer<()> {
        let others: Vec<_> = others.iter().map(|other| other.0).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &others)
    }

    /// Reads an attribute into these values, and says how many there are.
    fn get<T>(&self, name: Name, kind: Type, into: &mut [T]) -> Answer<usize> {
        let mut count = 0;
        let room = into.len() as i64;
        // SAFETY: there is room for as many values as are asked for.
        unsafe {
            sys::cudnnBackendGetAttribute(self.0, name, kind, room, &mut count, into.as_mut_ptr().cast()).result()?;
        }
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn finished(self) -> Answer<Self> {
        // SAFETY: made in `new`.
        unsafe { sys::cudnnBackendFinalize(self.0).result()? };
        Ok(self)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and used by nobody else.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

/// A convolution that is ready to be started, and the bytes of workspace it needs.
pub(crate) struct GraphPlan {
    plan: Described,
    pub workspace: usize,
}

impl GraphPlan {
    /// A way to compute a geometry with channels last and a workspace of at most so many bytes; none where the library has no such
    /// way that always gives the same bits. The handle must be a living one.
    pub fn new(handle: sys::cudnnHandle_t, geometry: &Geometry, most: usize) -> Option<Self> {
        // Operands of two bytes with sums of four are best known to the library where another operation writes the sums.
        let ways = if geometry.narrow { &[true, false][..] } else { &[false] };
        let graphs: Vec<Graph> = ways.iter().filter_map(|&apart| Graph::new(handle, geometry, apart).ok()).collect();
        for mode in [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK] {
            for config in graphs.iter().flat_map(|graph| graph.offers(mode).unwrap_or_default()) {
                if is_plain(&config).unwrap_or(false)
                    && let Ok(plan) = GraphPlan::of(handle, &config)
                    && plan.workspace <= most
                {
                    return Some(plan);
                }
            }
        }
        None
    }

    fn of(handle: sys::cudnnHandle_t, config: &Described) -> Answer<Self> {
        let plan = Described::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?;
        plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config])?;
        let plan = plan.finished()?;
        let mut bytes = [0i64];
        plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Type::CUDNN_TYPE_INT64, &mut bytes)?;
        Ok(GraphPlan { plan, workspace: usize::try_from(bytes[0]).unwrap_or(usize::MAX) })
    }

    /// Starts it in the stream of a handle.
    ///
    /// # Safety
    /// The handle must be a living one of the same GPU, and the addresses those of x, w, y and the workspace, which nobody else uses
    /// meanwhile.
    pub unsafe fn run(&self, handle: sys::cudnnHandle_t, [x, w, y, workspace]: [u64; 4]) -> Answer<()> {
        let pointer = |address: u64| address as *mut c_void;
        let pack = Described::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &[X, W, Y])?;
        let data = [x, w, y].map(pointer);
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &data)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &[pointer(workspace)])?;
        let pack = pack.finished()?;
        // SAFETY: the caller's promise; plan and pack are finished.
        unsafe { sys::cudnnBackendExecute(handle, self.plan.0, pack.0).result() }
    }
}

/// A graph of a convolution, with what it refers to.
struct Graph {
    graph: Described,
    _parts: Vec<Described>,
}

impl Graph {
    /// With `apart`, what is sought is first a tensor that is nowhere in memory, and an operation of its own writes it.
    fn new(handle: sys::cudnnHandle_t, geometry: &Geometry, apart: bool) -> Answer<Self> {
        let Geometry { sought, x, w, y, .. } = *geometry;
        let float = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
        let given = if geometry.narrow { sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16 } else { float };
        let shaped = |part: Sought| match part {
            Sought::Image => (X, x),
            Sought::Kernel => (W, w),
            Sought::Result => (Y, y),
        };
        let of = |part: Sought| -> Answer<Described> {
            let (name, shape) = shaped(part);
            match (part == sought, apart) {
                (true, true) => tensor(SUMS, shape, float, true),
                (true, false) => tensor(name, shape, float, false),
                _ => tensor(name, shape, given, false),
            }
        };
        let (image, kernel, result) = (of(Sought::Image)?, of(Sought::Kernel)?, of(Sought::Result)?);
        let convolution = convolution(geometry)?;
        let names = names(sought);
        let operation = Described::new(names.operation)?;
        operation.refer(names.convolution, &[&convolution])?;
        operation.refer(names.image, &[&image])?;
        operation.refer(names.kernel, &[&kernel])?;
        operation.refer(names.result, &[&result])?;
        operation.set(names.alpha, Type::CUDNN_TYPE_FLOAT, &[1f32])?;
        operation.set(names.beta, Type::CUDNN_TYPE_FLOAT, &[0f32])?;
        let operation = operation.finished()?;
        let mut parts = vec![];
        if apart {
            let (name, shape) = shaped(sought);
            let sums = match sought {
                Sought::Image => &image,
                Sought::Kernel => &kernel,
                Sought::Result => &result,
            };
            let written = tensor(name, shape, float, false)?;
            let identity = Described::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
            let mode = sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_IDENTITY;
            identity.set(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?;
            identity.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Type::CUDNN_TYPE_DATA_TYPE, &[float])?;
            let identity = identity.finished()?;
            let writes = Described::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
            writes.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&identity])?;
            writes.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[sums])?;
            writes.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&written])?;
            parts.extend([writes.finished()?, identity, written]);
        }
        let graph = Described::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        let operations: Vec<&Described> = [&operation].into_iter().chain(parts.first()).collect();
        graph.refer(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?;
        let graph = graph.finished()?;
        parts.extend([image, kernel, result, convolution, operation]);
        Ok(Graph { graph, _parts: parts })
    }

    /// What the library proposes, best first.
    fn offers(&self, mode: Mode) -> Answer<Vec<Described>> {
        let heuristic = Described::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristic.refer(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&self.graph])?;
        heuristic.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?;
        let heuristic = heuristic.finished()?;
        let kind = || Described::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        let mut configs = (0..OFFERS).map(|_| kind()).collect::<Answer<Vec<_>>>()?;
        let mut filled: Vec<_> = configs.iter().map(|config| config.0).collect();
        let (name, kind) = (Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR);
        let count = heuristic.get(name, kind, &mut filled)?;
        configs.truncate(count);
        Ok(configs)
    }
}

/// True where an engine always gives the same bits, and is as exact as a plain sum of products.
fn is_plain(config: &Described) -> Answer<bool> {
    use sys::cudnnBackendNumericalNote_t as Note;
    const REFUSED: [Note; 8] = [
        Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        Note::CUDNN_NUMERICAL_NOTE_FFT,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
    ];
    let engine = Described::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let kind = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
    config.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, kind, &mut [engine.0])?;
    // As numbers: a newer library may have notes that have no name here.
    let mut notes = [0u32; NOTES];
    let (name, kind) = (Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
    let count = engine.get(name, kind, &mut notes)?;
    Ok(count <= NOTES && !notes[..count].iter().any(|&note| REFUSED.iter().any(|&refused| refused as u32 == note)))
}

/// A tensor with its channels last; one that is nowhere in memory where it is `within` a graph.
fn tensor(name: i64, [n, c, h, w]: [usize; 4], of: sys::cudnnDataType_t, within: bool) -> Answer<Described> {
    let made = Described::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    let shape = [n, c, h, w].map(|length| length as i64);
    let strides = [c * h * w, 1, w * c, c].map(|stride| stride as i64);
    made.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[of])?;
    made.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &shape)?;
    made.set(Name::CUDNN_ATTR_TENSOR_STRIDES, Type::CUDNN_TYPE_INT64, &strides)?;
    made.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[name])?;
    made.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &[ALIGNED])?;
    if within {
        made.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Type::CUDNN_TYPE_BOOLEAN, &[true])?;
    }
    made.finished()
}

fn convolution(geometry: &Geometry) -> Answer<Described> {
    let made = Described::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
    let two = |numbers: [usize; 2]| numbers.map(|number| number as i64);
    let (float, mode) = (sys::cudnnDataType_t::CUDNN_DATA_FLOAT, sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION);
    made.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[float])?;
    made.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?;
    made.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Type::CUDNN_TYPE_INT64, &[2i64])?;
    for (name, numbers) in [
        (Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, geometry.dilation),
        (Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, geometry.stride),
        (Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, geometry.padding),
        (Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, geometry.padding),
    ] {
        made.set(name, Type::CUDNN_TYPE_INT64, &two(numbers))?;
    }
    made.finished()
}

/// What an operation and its attributes are called.
struct Names {
    operation: Kind,
    convolution: Name,
    image: Name,
    kernel: Name,
    result: Name,
    alpha: Name,
    beta: Name,
}

fn names(sought: Sought) -> Names {
    match sought {
        Sought::Result => Names {
            operation: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            convolution: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            image: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            kernel: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            result: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        },
        Sought::Image => Names {
            operation: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            convolution: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            image: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            kernel: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            result: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        },
        Sought::Kernel => Names {
            operation: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            convolution: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            image: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            kernel: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            result: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        },
    }
}
