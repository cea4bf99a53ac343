//! The toy runtime: an executor that compiles kernels by the machine's C++ compiler and runs steps one after another.
//!
//! Before each step, memory outside the spans that the step declares is overwritten. Afterwards it must be untouched,
//! as must be the operands that the step only reads. So a kernel that reads or writes more than its step declares is
//! detected.

use crate::codegen::naive_gemm::{AffineStore, Start, product};
use crate::codegen::renderer::{Dialect, unit};
use crate::codegen::{Context, Kernel, Launch, MAX_ROW_LENGTH};
use crate::compile::backend::Backend;
use crate::compile::conv_as_gemm::conv_as_gemm;
use crate::compile::failure_record;
use crate::compile::lower_group::operand;
use crate::compile::passes::GpuPipeline;
use crate::compile::plan::{Plan, plan};
use crate::compile::step::{Span, Step, Work};
use crate::compile::workspace::{ALIGN, Workspace};
use crate::host::{COSTS, HostCpp, NoCall};
use crate::schedule::oracle::any_order;
use crate::schedule::pipeline::{SoftwarePipeline, Window};
use crate::schedule::streams::StreamSlot;
use bilevel_graph::{
    Bindings, Buffer, DType, Error, ErrorKind, Executor, HostBytes, Meta, Program, Reference, Result, Runnable,
};
use bilevel_plan::{AffineEpilogue, DotLayout, IndexCheck, Kind, Place, Region, Target, internal_error};
use libloading::Library;
use std::collections::HashMap;
use std::ops::Range;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The byte that overwrites memory that a step does not declare: NaN in both float types, and a large index.
const POISON: u8 = 0x7f;

/// Returns the toy GPU as planning sees it: as a real one, with products by generated kernels.
fn target() -> Target {
    Target::PLAIN.with(|target| {
        target.costs = COSTS;
        target.can.row = MAX_ROW_LENGTH;
        target.can.members = 64;
        target.can.alignment = ALIGN;
        target.can.rounds_operands = true;
        target.can.pool_grad_as_select = true;
        target.can.pad_sum = true;
        target.can.inline_gather = true;
        target.can.concat_in_place = true;
        target.can.epilogue = Some(|_, _| true);
        target.can.affine_epilogue = Some(|_| true);
    })
}

/// Little enough that some batches are divided.
const MAX_PATCH_BYTES: usize = 16 << 10;

/// Products and convolutions by generated kernels.
struct HostBackend;

impl Backend for HostBackend {
    type Call = NoCall;

    fn dialect(&self) -> Dialect {
        &HostCpp
    }

    fn gemm(&self, context: Context, id: usize, _: &mut Workspace) -> Result<Vec<Work<NoCall>>> {
        gemm(context, id, None)
    }

    fn affine_gemm(
        &self,
        context: Context,
        id: usize,
        form: &AffineEpilogue,
        _: &mut Workspace,
    ) -> Result<Option<Vec<Work<NoCall>>>> {
        gemm(context, id, Some(&AffineStore::new(&context, form)?)).map(Some)
    }

    fn convolution(&self, context: Context, id: usize, space: &mut Workspace) -> Result<Vec<Work<NoCall>>> {
        let node = &context.schedule.nodes[id];
        let Kind::Conv(dims, _, precision) = &node.kind else { return Err(internal_error("a convolution")) };
        if node.count() == 0 {
            return Ok(vec![]);
        }
        let (operands, types) = ((operand(&context, id, 0)?.0, operand(&context, id, 1)?.0), (node.dtype, *precision));
        let to = (&node.layout, context.place(id)?, context.storage(id));
        let mut gemm = |layout: &DotLayout, [a, b, c]: [Start; 3], _: &mut Workspace| {
            vec![Work::Kernel(product(&HostCpp, layout, types, a, b, c, None))]
        };
        Ok(conv_as_gemm((&HostCpp, dims), operands, types, to, (space, MAX_PATCH_BYTES), &mut gemm))
    }
}

fn gemm(context: Context, id: usize, affine: Option<&AffineStore>) -> Result<Vec<Work<NoCall>>> {
    let node = &context.schedule.nodes[id];
    let Kind::Dot(layout, precision) = &node.kind else { return Err(internal_error("a product")) };
    if node.count() == 0 {
        return Ok(vec![]);
    }
    let start = |number: usize| {
        operand(&context, id, number).map(|(elements, storage)| (elements.place, elements.view.offset, storage))
    };
    let (types, to) = ((node.dtype, *precision), (context.place(id)?, 0, context.storage(id)));
    Ok(vec![Work::Kernel(product(&HostCpp, layout, types, start(0)?, start(1)?, to, affine))])
}

/// A compiled kernel: arguments, and blocks along x and y.
type Function = unsafe extern "C" fn(*const [u8; 8], u32, u32);

/// The kernels compiled so far. Kernels have static variables, so the holder of the lock alone may run them.
#[derive(Default)]
pub struct Functions {
    by_kernel: HashMap<Arc<Kernel>, Function>,
    libraries: Vec<Library>,
}

/// Returns true if the machine has a C++ compiler.
pub fn can_compile() -> bool {
    let found = Command::new("cc").args(["-x", "c++", "-std=c++17", "-fsyntax-only", "/dev/null"]).status();
    found.is_ok_and(|status| status.success())
}

impl Functions {
    /// Compiles those of these kernels that are not known yet, some in each library.
    pub fn load(&mut self, kernels: impl IntoIterator<Item = Arc<Kernel>>) -> Result<()> {
        const KERNELS_PER_LIBRARY: usize = 250;
        let mut unknown: Vec<Arc<Kernel>> = vec![];
        for kernel in kernels {
            if !self.by_kernel.contains_key(&kernel) && !unknown.contains(&kernel) {
                unknown.push(kernel);
            }
        }
        let failed = |what: String| Error::new(ErrorKind::Device { what });
        for kernels in unknown.chunks(KERNELS_PER_LIBRARY) {
            let folder = tempfile::tempdir().map_err(|e| failed(e.to_string()))?;
            let (source, library) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
            std::fs::write(&source, unit(&HostCpp, kernels.iter().map(|kernel| &**kernel)))
                .map_err(|e| failed(e.to_string()))?;
            // No contraction: the bits of an element must not depend on the rest of its kernel.
            let options = [
                "-x",
                "c++",
                "-std=c++17",
                "-O0",
                "-ffp-contract=off",
                "-fno-strict-aliasing",
                "-fno-threadsafe-statics",
                "-w",
            ];
            let mut compiler = Command::new("cc");
            compiler.args(options).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-lm");
            let output = compiler.output().map_err(|e| failed(e.to_string()))?;
            if !output.status.success() {
                let said: String = String::from_utf8_lossy(&output.stderr).chars().take(3000).collect();
                return Err(failed(format!("a kernel does not compile: {said}")));
            }
            // SAFETY: the library was just made; it has no initialisers.
            let library = unsafe { Library::new(&library) }.map_err(|e| failed(e.to_string()))?;
            for (number, kernel) in kernels.iter().enumerate() {
                // SAFETY: the renderer defines a function of this name and type for each kernel.
                let function = unsafe { library.get::<Function>(format!("kernel_{number}").as_bytes()) };
                self.by_kernel.insert(kernel.clone(), *function.map_err(|e| failed(e.to_string()))?);
            }
            self.libraries.push(library);
        }
        Ok(())
    }

    /// Returns how many kernels are known.
    pub fn count(&self) -> usize {
        self.by_kernel.len()
    }
}

/// The toy GPU.
#[derive(Clone, Default)]
pub struct Host {
    pub functions: Arc<Mutex<Functions>>,
}

/// A plan in memory.
pub struct HostRun {
    bindings: Bindings,
    functions: Arc<Mutex<Functions>>,
    pub plan: Plan<NoCall>,
    failures: Vec<u64>,
    /// All memory, and the start of each region.
    memory: Vec<u128>,
    inputs: Vec<Range<usize>>,
    outputs: Vec<Range<usize>>,
    arena: usize,
}

impl HostRun {
    pub fn new(program: &Program, functions: Arc<Mutex<Functions>>) -> Result<Self> {
        program.validate()?;
        let plan = plan(program, &target(), &HostBackend, &GpuPipeline::new())?;
        let mut end = plan.persistent_bytes.next_multiple_of(ALIGN);
        let mut region = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGN);
            start..start + bytes
        };
        let arena = region(plan.arena_bytes).start;
        let bytes = |meta: &Meta| meta.shape.iter().product::<usize>() * meta.dtype.size();
        let inputs = program.inputs.iter().map(|port| region(bytes(&port.meta))).collect();
        let outputs = program.outputs.iter().map(|port| region(bytes(&port.meta))).collect();
        let mut run = HostRun {
            bindings: Bindings::new(program.clone()),
            functions,
            failures: vec![failure_record::NO_ERROR; 1 + plan.checks.len()],
            memory: vec![0; end / size_of::<u128>() + 1],
            plan,
            inputs,
            outputs,
            arena,
        };
        for (place, dtype, values) in run.plan.tables.clone() {
            let (start, bytes) = (run.start(place), written(dtype, &values));
            run.bytes()[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(run)
    }

    /// Returns the kernels of all steps.
    pub fn kernels(&self) -> impl Iterator<Item = Arc<Kernel>> {
        self.plan.kernels().map(|launch| launch.kernel.clone())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: any bytes are valid numbers, and bytes need no alignment.
        unsafe { self.memory.align_to_mut::<u8>() }.1
    }

    /// Returns the byte at which a place begins.
    fn start(&self, place: Place) -> usize {
        place.offset
            + match place.region {
                Region::Persistent => 0,
                Region::Arena => self.arena,
                Region::Input(number) => self.inputs[number].start,
                Region::Output(number) => self.outputs[number].start,
            }
    }

    /// Runs a step, and compares its accesses with its declarations.
    fn step(&mut self, functions: &Functions, step: &Step<NoCall>) {
        let range = |span: &Span| self.start(span.place)..self.start(span.place) + span.bytes;
        let [reads, writes] = [&step.reads, &step.writes].map(|spans| spans.iter().map(range).collect::<Vec<_>>());
        let before = self.bytes().to_vec();
        let mut seen = vec![POISON; before.len()];
        for range in reads.iter().chain(&writes) {
            seen[range.clone()].copy_from_slice(&before[range.clone()]);
        }
        self.bytes().copy_from_slice(&seen);
        match &step.work {
            Work::Kernel(launch) => self.launch(functions, launch),
            &Work::Copy { from, to, bytes } => {
                let (from, to) = (self.start(from), self.start(to));
                self.bytes().copy_within(from..from + bytes, to);
            }
            Work::Library(call) => match *call {},
        }
        let mut expected = seen;
        for range in &writes {
            expected[range.clone()].copy_from_slice(&self.bytes()[range.clone()]);
        }
        assert!(self.bytes() == &expected[..], "a write that is not declared: {step:?}");
        let mut after = before;
        for range in &writes {
            after[range.clone()].copy_from_slice(&expected[range.clone()]);
        }
        self.bytes().copy_from_slice(&after);
    }

    fn launch(&mut self, functions: &Functions, launch: &Launch) {
        let (base, failures) = (self.memory.as_mut_ptr() as u64, self.failures.as_mut_ptr() as u64);
        let words = launch.words(|place| base + self.start(place) as u64, failures);
        let function = functions.by_kernel[&launch.kernel];
        // SAFETY: the arguments are those of the kernel, and the caller holds the lock.
        unsafe { function(words.as_ptr(), launch.grid[0], launch.grid[1]) }
    }

    fn run_all(&mut self, functions: &Functions, steps: &[Step<NoCall>]) {
        steps.iter().for_each(|step| self.step(functions, step));
    }

    /// Writes the step number.
    fn count_from(&mut self, step: u32) {
        let late = self.plan.pipeline.as_ref().and_then(SoftwarePipeline::late_counter);
        for place in self.plan.counter.into_iter().chain(late) {
            let start = self.start(place);
            self.bytes()[start..start + 4].copy_from_slice(&step.to_ne_bytes());
        }
    }

    /// Runs steps one after the other.
    fn run_sequentially(&mut self, functions: &Functions, steps: Range<u32>, shows: bool) {
        self.count_from(steps.start);
        for number in steps.clone() {
            let whole = shows && number + 1 == steps.end;
            let body = if whole { None } else { self.plan.carry_only.clone() };
            self.run_all(functions, &body.unwrap_or_else(|| self.plan.body.clone()));
        }
    }

    /// Returns the steps of the next window or windows of a pipelined loop in some order that streams allow; `None` if
    /// these iterations run one after the other.
    fn pipelined(&self, count: usize, shows: bool) -> Option<Vec<Step<NoCall>>> {
        let pipeline = self.plan.pipeline.as_ref()?;
        let in_order = |window: Window| {
            let steps = pipeline.unrolled(window, (&self.plan.body, self.plan.carry_only.as_deref()));
            let slots: Vec<&StreamSlot> = steps.iter().map(|step| &step.slot).collect();
            let order = any_order(&slots, count as u64);
            order.into_iter().map(|number| steps[number].step.clone()).collect::<Vec<_>>()
        };
        Some(pipeline.windows(count, shows)?.into_iter().flat_map(in_order).collect())
    }

    /// Runs all steps of the loop, as the executor of a GPU does.
    fn run_loop(&mut self, functions: &Functions, steps: Range<u32>, shows: bool) -> Result<()> {
        let mut next = steps.start;
        while next < steps.end {
            let left = (steps.end - next) as usize;
            let pipeline = self.plan.pipeline.as_ref();
            let count = pipeline.map_or(left, |pipeline| pipeline.length(left));
            let undoes = pipeline.is_some_and(SoftwarePipeline::undoes_failed_windows);
            let (some, shows) = (next..next + count as u32, shows && count == left);
            next = some.end;
            let Some(works) = self.pipelined(count, shows) else {
                self.run_sequentially(functions, some, shows);
                continue;
            };
            self.count_from(some.start);
            self.run_all(functions, &works);
            if let (true, Err(error)) = (undoes, self.failure()) {
                // A failed window changes nothing. Its steps are rerun up to the one that fails.
                self.failures.fill(failure_record::NO_ERROR);
                self.run_sequentially(functions, some, shows);
                return self.failure().and(Err(error));
            }
        }
        self.failure()
    }

    fn run_bound(&mut self, steps: Range<u32>, shows: bool) -> Result<()> {
        let functions = self.functions.clone();
        let mut functions = functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.load(self.kernels())?;
        self.failures.fill(failure_record::NO_ERROR);
        for (range, buffer) in self.inputs.clone().into_iter().zip(self.bindings.inputs().to_vec()) {
            if let Some(buffer) = buffer {
                // SAFETY: the storage is locked by itself, and the region has as many bytes as the buffer.
                unsafe { buffer.storage().read(0, &mut self.bytes()[range])? };
            }
        }
        for steps in [self.plan.prologue.clone(), self.plan.initial_casts.clone()] {
            self.run_all(&functions, &steps);
        }
        let done = self.run_loop(&functions, steps, shows);
        if shows {
            let finish = self.plan.finish.clone();
            self.run_all(&functions, &finish);
        }
        let carried = self.bindings.program().carries.iter().map(|carry| carry.input);
        let mut written: Vec<(Range<usize>, Option<Buffer>)> =
            carried.map(|input| (self.inputs[input].clone(), self.bindings.inputs()[input].clone())).collect();
        if shows && done.is_ok() {
            written.extend(self.outputs.iter().cloned().zip(self.bindings.outputs().iter().cloned()));
        }
        for (range, buffer) in written {
            if let Some(buffer) = buffer {
                // SAFETY: as above.
                unsafe { buffer.storage().write(0, &self.bytes()[range])? };
            }
        }
        done
    }

    fn failure(&self) -> Result<()> {
        let Some(number) = failure_record::operation(self.failures[0]) else { return Ok(()) };
        let check = &self.plan.checks[number];
        let IndexCheck { operation, limit } = check.of;
        let index = i64::from(failure_record::index(self.failures[1 + number]));
        Err(Error::new(ErrorKind::IndexOutOfRange { operation: operation.into(), index, limit }).at(check.location))
    }
}

/// Returns constants as bytes.
fn written(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|&v| (v as f32).to_ne_bytes()).collect(),
        DType::F64 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|&v| (v as i32).to_ne_bytes()).collect(),
    }
}

impl Executor for Host {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        Ok(Box::new(HostRun::new(program, self.functions.clone())?))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        Reference.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}

impl Runnable for HostRun {
    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        Reference.buffer(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        buffer.storage().as_any().is::<HostBytes>()
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        self.run_bound(steps, true)
    }

    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        self.run_bound(steps, false)
    }
}
