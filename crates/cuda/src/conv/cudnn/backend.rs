//! Convolutions by cuDNN's graph API.
//!
//! The calls in `legacy.rs` support neither the newest kernels nor mixed types. A graph has a type per tensor: x, w and
//! y in bf16 if narrow, sums always in f32. The library proposes engines, best first; only deterministic engines with
//! the required precision are used.

use crate::conv::canonical::{ConvPass, Geometry};
use crate::conv::cudnn::descriptor::{CudnnResult, Descriptor};
use crate::conv::cudnn::engine::{Engine, EngineName};
use crate::conv::cudnn::handles::Handle;
use cudarc::cudnn::sys;
use std::ffi::c_void;
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendDescriptorType_t as Kind;
use sys::cudnnBackendHeurMode_t as Mode;

/// The identifiers of the tensors of a graph.
const X: i64 = 1;
const W: i64 = 2;
const Y: i64 = 3;
const SUMS: i64 = 4;
/// The alignment of addresses in bytes.
const LIBRARY_ALIGNMENT: i64 = 16;
/// The maximum number of engines requested per heuristic mode.
const MAX_HEURISTICS: usize = 32;

/// The heuristic modes: the fast one, the more thorough one, and engines that nearly always work.
pub(crate) const MODES: [Mode; 3] = [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_B, Mode::CUDNN_HEUR_MODE_FALLBACK];

/// An execution plan that is ready to launch, and its workspace in bytes.
pub(crate) struct GraphPlan {
    plan: Descriptor,
    pub workspace: usize,
}

impl GraphPlan {
    /// Returns the first suitable engine within this many bytes of workspace.
    pub fn first(handle: &Handle, geometry: &Geometry, most: usize) -> Option<Self> {
        let proposals = Proposals::new(handle, geometry);
        let modes = [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK];
        modes.into_iter().find_map(|mode| proposals.engines(mode).find_map(|engine| proposals.plan(&engine, most)))
    }

    fn of(handle: &Handle, config: &Descriptor) -> CudnnResult<Self> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw()])?;
        plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config])?;
        Self::finished(plan)
    }

    /// Deserialises a plan with its compiled kernels, for a handle of the same GPU model.
    pub fn read(handle: &Handle, written: &[u8]) -> CudnnResult<Self> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw()])?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, Type::CUDNN_TYPE_CHAR, written)?;
        Self::finished(plan)
    }

    /// Serialises the plan, for the same version of the library.
    pub fn written(&self) -> CudnnResult<Vec<u8>> {
        let (name, kind) = (Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, Type::CUDNN_TYPE_CHAR);
        let length = self.plan.get::<u8>(name, kind, &mut [])?;
        let mut written = vec![0u8; length];
        let length = self.plan.get(name, kind, &mut written)?;
        written.truncate(length);
        Ok(written)
    }

    fn finished(plan: Descriptor) -> CudnnResult<Self> {
        let plan = plan.finished()?;
        let mut bytes = [0i64];
        plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Type::CUDNN_TYPE_INT64, &mut bytes)?;
        Ok(GraphPlan { plan, workspace: usize::try_from(bytes[0]).unwrap_or(usize::MAX) })
    }

    /// Launches it in the stream of a handle.
    ///
    /// # Safety
    /// The handle must be of the same GPU, and the addresses those of x, w, y and the workspace, with no concurrent
    /// use.
    pub unsafe fn run(&self, handle: &Handle, [x, w, y, workspace]: [u64; 4]) -> CudnnResult<()> {
        let pointer = |address: u64| address as *mut c_void;
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &[X, W, Y])?;
        let data = [x, w, y].map(pointer);
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &data)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &[pointer(workspace)])?;
        let pack = pack.finished()?;
        // SAFETY: the caller's promise; plan and pack are finished.
        unsafe { sys::cudnnBackendExecute(handle.raw(), self.plan.0, pack.0).result() }
    }
}

/// The engines that the library proposes for a geometry.
pub(crate) struct Proposals<'a> {
    handle: &'a Handle,
    geometry: &'a Geometry,
    graphs: Vec<Graph>,
}

impl<'a> Proposals<'a> {
    /// Builds the graphs of a geometry.
    pub fn new(handle: &'a Handle, geometry: &'a Geometry) -> Self {
        // For bf16, the library may know more engines if a separate operation rounds and writes the sums.
        let ways = if geometry.is_bf16() { &[false, true][..] } else { &[false] };
        let graphs =
            ways.iter().filter_map(|&separate_store| Graph::new(handle, geometry, separate_store).ok()).collect();
        Proposals { handle, geometry, graphs }
    }

    /// Returns the suitable engines, best first.
    pub fn engines(&self, mode: Mode) -> impl Iterator<Item = Engine> {
        let offers = self.graphs.iter().flat_map(move |graph| graph.offers(mode).unwrap_or_default());
        offers.filter_map(|config| Engine::new(config).ok()).filter(|engine| engine.suits(self.geometry))
    }

    /// Builds the plan of an engine, if it needs at most this many bytes of workspace.
    pub fn plan(&self, engine: &Engine, most: usize) -> Option<GraphPlan> {
        GraphPlan::of(self.handle, &engine.config).ok().filter(|plan| plan.workspace <= most)
    }

    /// Builds the plan of the engine with this name, likewise.
    pub fn named(&self, name: &EngineName, most: usize) -> Option<GraphPlan> {
        let is_it = |engine: &Engine| engine.name().is_ok_and(|found| found == *name);
        let engine = MODES.into_iter().find_map(|mode| self.engines(mode).find(is_it))?;
        self.plan(&engine, most)
    }
}

/// An operation graph, with the descriptors it refers to.
struct Graph {
    graph: Descriptor,
    _parts: Vec<Descriptor>,
}

impl Graph {
    /// Builds the graph. If `separate_store`, the result is first a virtual tensor that a pointwise operation writes.
    fn new(handle: &Handle, geometry: &Geometry, separate_store: bool) -> CudnnResult<Self> {
        let Geometry { pass, x, w, y, .. } = *geometry;
        let float = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
        let stored = if geometry.is_bf16() { sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16 } else { float };
        let shaped = |part: ConvPass| match part {
            ConvPass::Dgrad => (X, x),
            ConvPass::Wgrad => (W, w),
            ConvPass::Fprop => (Y, y),
        };
        let of = |part: ConvPass| -> CudnnResult<Descriptor> {
            let (name, shape) = shaped(part);
            match (part == pass, separate_store) {
                (true, true) => tensor(geometry, (SUMS, shape), float, true),
                _ => tensor(geometry, (name, shape), stored, false),
            }
        };
        let (image, kernel, result) = (of(ConvPass::Dgrad)?, of(ConvPass::Wgrad)?, of(ConvPass::Fprop)?);
        let convolution = convolution(geometry)?;
        let names = names(pass);
        let operation = Descriptor::new(names.operation)?;
        operation.refer(names.convolution, &[&convolution])?;
        operation.refer(names.image, &[&image])?;
        operation.refer(names.kernel, &[&kernel])?;
        operation.refer(names.result, &[&result])?;
        operation.set(names.alpha, Type::CUDNN_TYPE_FLOAT, &[1f32])?;
        operation.set(names.beta, Type::CUDNN_TYPE_FLOAT, &[0f32])?;
        let operation = operation.finished()?;
        let mut parts = vec![];
        if separate_store {
            let sums = match pass {
                ConvPass::Dgrad => &image,
                ConvPass::Wgrad => &kernel,
                ConvPass::Fprop => &result,
            };
            let written = tensor(geometry, shaped(pass), stored, false)?;
            let identity = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
            let mode = sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_IDENTITY;
            identity.set(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?;
            identity.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Type::CUDNN_TYPE_DATA_TYPE, &[float])?;
            let identity = identity.finished()?;
            let writes = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
            writes.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&identity])?;
            writes.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[sums])?;
            writes.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&written])?;
            parts.extend([writes.finished()?, identity, written]);
        }
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        let operations: Vec<&Descriptor> = [&operation].into_iter().chain(parts.first()).collect();
        graph.refer(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw()])?;
        let graph = graph.finished()?;
        parts.extend([image, kernel, result, convolution, operation]);
        Ok(Graph { graph, _parts: parts })
    }

    /// Returns the proposed engine configurations, best first.
    fn offers(&self, mode: Mode) -> CudnnResult<Vec<Descriptor>> {
        let heuristic = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristic.refer(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&self.graph])?;
        heuristic.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?;
        let heuristic = heuristic.finished()?;
        let (name, kind) = (Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        heuristic.referred(name, kind, MAX_HEURISTICS)
    }
}

/// Describes a tensor in the layout of the geometry; a virtual one if `within` a graph.
fn tensor(
    geometry: &Geometry,
    (name, shape): (i64, [usize; 4]),
    of: sys::cudnnDataType_t,
    within: bool,
) -> CudnnResult<Descriptor> {
    let made = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    let strides = geometry.strides(shape).map(|stride| stride as i64);
    let shape = shape.map(|length| length as i64);
    made.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[of])?;
    made.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &shape)?;
    made.set(Name::CUDNN_ATTR_TENSOR_STRIDES, Type::CUDNN_TYPE_INT64, &strides)?;
    made.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[name])?;
    made.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &[LIBRARY_ALIGNMENT])?;
    if within {
        made.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Type::CUDNN_TYPE_BOOLEAN, &[true])?;
    }
    made.finished()
}

fn convolution(geometry: &Geometry) -> CudnnResult<Descriptor> {
    let made = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
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

/// The names of an operation and of its attributes.
struct Names {
    operation: Kind,
    convolution: Name,
    image: Name,
    kernel: Name,
    result: Name,
    alpha: Name,
    beta: Name,
}

fn names(pass: ConvPass) -> Names {
    match pass {
        ConvPass::Fprop => Names {
            operation: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            convolution: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            image: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            kernel: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            result: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        },
        ConvPass::Dgrad => Names {
            operation: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            convolution: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            image: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            kernel: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            result: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        },
        ConvPass::Wgrad => Names {
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
