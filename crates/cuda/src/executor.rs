//! The executor for NVIDIA GPUs.

use crate::compile::background::LaterRun;
use crate::compile::nvrtc::kernels_beside;
use crate::compile::stats::Spent;
use crate::conv::cudnn::Dnn;
use crate::runtime::buffer::CudaStorage;
use crate::runtime::device::Device;
use crate::runtime::dynlib::{Missing, require};
use crate::runtime::run::{CompiledPlan, CudaRun};
use bilevel_graph::{Buffer, Executor, Meta, Op, Program, Result, Runnable};
use std::collections::HashSet;
use std::sync::Arc;

/// The CUDA executor: a program is planned once, and its state stays on the GPU from run to run.
///
/// ```
/// use bilevel_cuda::Cuda;
/// use bilevel_graph::{Array, DType, Executor, Graph, Program};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F32);
/// let program = Program::builder(&g).output("y", x * x).build()?;
/// match Cuda::new(0) {
///     Ok(cuda) => {
///         let mut run = cuda.compile(&program)?;
///         run.set(0, &Array::from_f32([3], vec![1.0, 2.0, 3.0])?)?;
///         run.run(0..1)?;
///         assert_eq!(run.output(0)?.to_f64(), [1.0, 4.0, 9.0]);
///     }
///     Err(error) => println!("skipped: {error}"),
/// }
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct Cuda {
    device: Arc<Device>,
    /// Whether convolutions use cuDNN if it is available.
    cudnn: bool,
}

/// The properties of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The ordinal that [`Cuda::new`] takes.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability, 90 for `sm_90`.
    pub architecture: u32,
    /// Bytes of its memory.
    pub total_bytes: u64,
}

/// Bytes copied between a GPU and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedBytes {
    /// Bytes read from the GPU.
    pub to_host: u64,
    /// Bytes written to the GPU.
    pub to_device: u64,
}

impl Cuda {
    /// Opens the GPU with this ordinal. The error names the missing part if it cannot be used.
    pub fn new(ordinal: usize) -> Result<Self> {
        Device::open(ordinal).map(|device| Cuda { device, cudnn: true })
    }

    /// Returns the same GPU without cuDNN: convolutions use im2col or direct kernels, slower and equal up to rounding.
    pub fn without_cudnn(&self) -> Self {
        Cuda { device: self.device.clone(), cudnn: false }
    }

    /// Returns cuDNN, for a program with convolutions.
    fn dnn(&self, program: &Program) -> Option<&Dnn> {
        let convolves = self.cudnn && program.nodes.iter().any(|node| matches!(node.op, Op::Conv(..)));
        convolves.then(|| self.device.dnn()).flatten()
    }

    /// Returns the GPUs of this machine, or an error if there is no driver.
    pub fn devices() -> Result<Vec<DeviceInfo>> {
        require(Missing::Driver)?;
        let look = |ordinal| {
            let (_, name, architecture, bytes) = Device::look(ordinal)?;
            Ok(DeviceInfo { ordinal, name, architecture: architecture.0, total_bytes: bytes as u64 })
        };
        (0..Device::count()?).map(look).collect()
    }

    /// Returns the properties of this GPU.
    pub fn info(&self) -> DeviceInfo {
        let Device { ordinal, name, architecture, total_bytes, .. } = &*self.device;
        DeviceInfo {
            ordinal: *ordinal,
            name: name.clone(),
            architecture: architecture.0,
            total_bytes: *total_bytes as u64,
        }
    }

    /// As [`Executor::compile`], returning the concrete type, which has more to report.
    pub fn plan(&self, program: &Program) -> Result<CudaRun> {
        program.validate()?;
        let dnn = self.dnn(program);
        let compiled = CompiledPlan::new(program, dnn, &self.device)?;
        CudaRun::new(program.clone(), compiled, dnn, &self.device)
    }

    /// Compiles and loads the kernels of several programs at once on all cores, and returns their number. Compiling one
    /// of these programs later does not wait for kernels.
    pub fn load_kernels<'a>(&self, programs: impl IntoIterator<Item = &'a Program>) -> Result<usize> {
        let mut kernels = HashSet::new();
        for program in programs {
            kernels.extend(kernels_beside(program, self.dnn(program))?);
        }
        let kernels: Vec<_> = kernels.into_iter().collect();
        self.device.functions(&kernels).map(|functions| functions.len())
    }

    /// Returns the peak memory of this process on the GPU in bytes, if the driver reports it.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.device.peak_bytes()
    }

    /// Resets [`peak_bytes`](Self::peak_bytes) to the memory in use now.
    pub fn forget_peak_bytes(&self) -> Result<()> {
        self.device.forget_peak()
    }

    /// Returns the bytes copied between this GPU and the host since it was opened.
    pub fn copied_bytes(&self) -> CopiedBytes {
        let (to_host, to_device) = self.device.copied();
        CopiedBytes { to_host, to_device }
    }

    /// Returns the time spent on compiling programs since this GPU was opened.
    pub fn spent(&self) -> Spent {
        self.device.clock.spent()
    }

    /// Waits until all submitted work is done. Reading a result waits by itself.
    pub fn wait(&self) -> Result<()> {
        self.device.enter()?;
        self.device.wait()
    }
}

impl Executor for Cuda {
    /// Starts compiling the program on a background thread, so that the caller can build the next one. The first run
    /// reports any error.
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        // cuDNN is opened by one thread.
        if self.dnn(program).is_some() {
            return Ok(Box::new(self.plan(program)?));
        }
        program.validate()?;
        Ok(Box::new(LaterRun::new(program, &self.device)))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        CudaStorage::buffer(meta, &self.device)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.device.free_bytes()
    }
}
