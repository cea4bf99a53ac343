//! The interpreter: runs a schedule, memory map included, in the most obvious way.
//!
//! All memory of a program is one array of bytes, laid out by [`Schedule::lay_out`]: kept values, the arena, then its
//! inputs and outputs. Values that share a place, updates in place, storage in two bytes and products at hand are
//! computed as the schedule says. Unwritten memory is NaN. So every feature of a [`Target`] can be tested without the
//! machine: the interpreter is an [`Executor`]. With [`Interpreter::overlapping`] it runs loops in the memory of a
//! software pipeline.

mod loops;
mod ops;
pub(crate) mod overlap;

use crate::internal_error::internal_error;
use crate::ir::interpret::ops::amax_exponent;
use crate::ir::interpret::overlap::{Overlap, OverlappedLoop, wholes};
use crate::ir::node::{CastForm, Elementwise, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::view::View;
use crate::lower::scaled_fp16::scale::Pow2Scale;
use crate::memory::{MemoryMap, Place, Region};
use crate::schedule::Schedule;
use crate::target::Target;
use bilevel_graph::{Bindings, Buffer, DType, Executor, HostBytes, Meta, Program, Reference, Result, Runnable};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How a program becomes a schedule.
type Planner = dyn Fn(&Program) -> Result<Schedule> + Send + Sync;

/// Runs programs as they are planned for some target, slowly and on any machine.
///
/// ```
/// use bilevel_graph::{Array, DType, Executor, Graph, Program};
/// use bilevel_plan::{Interpreter, Target};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F32);
/// let program = Program::builder(&g).output("y", (x * x).sum_all()).carry(x, x + 1.0).build()?;
/// let mut run = Interpreter::new(Target::PLAIN).compile(&program)?;
/// run.set(0, &Array::from_f32([3], vec![1.0, 2.0, 3.0])?)?;
/// run.run(0..2)?;
/// assert_eq!(run.output(0)?.item(), Some(29.0));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct Interpreter {
    planner: Arc<Planner>,
    overlap: Option<Overlap>,
    overlapped: Arc<AtomicUsize>,
}

impl Interpreter {
    /// For programs planned for this target.
    pub fn new(target: Target) -> Self {
        Self::of(move |program| Schedule::new(program, &target))
    }

    /// For programs planned in this way: with passes switched off, or rewritten before they are planned.
    pub fn of(planner: impl Fn(&Program) -> Result<Schedule> + Send + Sync + 'static) -> Self {
        Interpreter { planner: Arc::new(planner), overlap: None, overlapped: Arc::default() }
    }

    /// The same with loops whose iterations overlap so, if their schedules allow it.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Executor, Graph, Program};
    /// use bilevel_plan::{Interpreter, Overlap, Target};
    /// let g = Graph::new();
    /// let (x, sum) = (g.input("x", [2], DType::F32), g.input("sum", [2], DType::F32));
    /// // Each step reads the old x after the new one is known, so the next step begins in another arena.
    /// let next = x.cumsum(0) * 0.5;
    /// let program = Program::builder(&g).carry(x, next).carry(sum, sum + (next.cumsum(0) - x)).build()?;
    /// let interpreter = Interpreter::new(Target::PLAIN).overlapping(Overlap::Iterations);
    /// let mut run = interpreter.compile(&program)?;
    /// assert_eq!(interpreter.overlapped(), 1);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn overlapping(self, overlap: Overlap) -> Self {
        Interpreter { overlap: Some(overlap), ..self }
    }

    /// Returns how many of the programs compiled so far have a loop whose iterations overlap.
    pub fn overlapped(&self) -> usize {
        self.overlapped.load(Relaxed)
    }
}

impl Executor for Interpreter {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        program.validate()?;
        let run = InterpreterRun::new(program, (self.planner)(program)?, self.overlap)?;
        self.overlapped.fetch_add(usize::from(run.overlap.is_some()), Relaxed);
        Ok(Box::new(run))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        Reference.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}

/// Bytes of workspace of each group, so that a layout that places them in used memory is detected.
pub(crate) const WORKSPACE: usize = 64;

/// The byte of unwritten memory: NaN in every float type.
const UNWRITTEN: u8 = 0xff;

/// A schedule with its memory.
pub(crate) struct InterpreterRun {
    bindings: Bindings,
    pub(crate) schedule: Schedule,
    pub(crate) map: MemoryMap,
    pub(crate) memory: Memory,
    /// By node: the carried nodes that it is written over.
    pub(crate) written_over: Vec<Vec<usize>>,
    /// By node: the concatenations that it is computed in.
    wholes: Vec<Vec<usize>>,
    /// How iterations overlap, if they do.
    pub(crate) overlap: Option<Arc<OverlappedLoop>>,
    /// The iteration of a window that is at work, and how many the window has.
    turn: Option<(usize, usize)>,
    /// The buffers, and their versions, that the prologue has run on.
    prologue_of: Option<Vec<(u64, u64)>>,
}

/// All bytes of a program, and the start of each region.
pub(crate) struct Memory {
    pub bytes: Vec<u8>,
    arena: Range<usize>,
    inputs: Vec<Range<usize>>,
    outputs: Vec<Range<usize>>,
}

impl Memory {
    fn new(program: &Program, map: &MemoryMap) -> Self {
        let mut end = map.persistent_bytes;
        let mut region = |bytes: usize| {
            let start = end;
            end += bytes;
            start..end
        };
        let arena = region(map.arena_bytes);
        let bytes = |meta: &Meta| meta.shape.iter().product::<usize>() * meta.dtype.size();
        let inputs = program.inputs.iter().map(|port| region(bytes(&port.meta))).collect();
        let outputs = program.outputs.iter().map(|port| region(bytes(&port.meta))).collect();
        Memory { bytes: vec![UNWRITTEN; end], arena, inputs, outputs }
    }

    /// The byte at which a place begins.
    pub fn start(&self, place: Place) -> usize {
        place.offset
            + match place.region {
                Region::Persistent => 0,
                Region::Arena => self.arena.start,
                Region::Input(number) => self.inputs[number].start,
                Region::Output(number) => self.outputs[number].start,
            }
    }
}

impl InterpreterRun {
    fn new(program: &Program, schedule: Schedule, overlap: Option<Overlap>) -> Result<Self> {
        let workspaces = vec![WORKSPACE; schedule.groups().len()];
        let overlapped = overlap.map(|overlap| OverlappedLoop::lay_out(overlap, &schedule, &workspaces)).transpose()?;
        let (map, overlap) = match overlapped.flatten() {
            Some((map, looped)) => (map, Some(Arc::new(looped))),
            None => (schedule.lay_out(&workspaces)?, None),
        };
        Ok(InterpreterRun { overlap, ..Self::with(program, schedule, map) })
    }

    /// A run of this schedule in this memory.
    pub(crate) fn with(program: &Program, schedule: Schedule, map: MemoryMap) -> Self {
        let mut memory = Memory::new(program, &map);
        for (place, dtype, values) in map.tables(&schedule) {
            let (start, storage) = (memory.start(place), StorageType::from(dtype));
            for (i, &value) in values.iter().enumerate() {
                let at = start + i * storage.size();
                storage.write(value, &mut memory.bytes[at..at + storage.size()]);
            }
        }
        let mut written_over = vec![vec![]; schedule.nodes.len()];
        for carry in schedule.carries.iter().filter(|carry| carry.in_place) {
            carry.next.at().into_iter().for_each(|(node, _)| written_over[node].push(carry.input));
        }
        let bindings = Bindings::new(program.clone());
        let (wholes, overlap, turn) = (wholes(&schedule, &map), None, None);
        InterpreterRun { bindings, schedule, map, memory, written_over, wholes, overlap, turn, prologue_of: None }
    }

    /// The byte at which a place begins in the iteration that is at work.
    fn address(&self, place: Place) -> usize {
        match (self.overlap.as_deref(), self.turn) {
            (Some(OverlappedLoop::Iterations(copies)), Some(turn)) => self.memory.start(copies.place(place, turn)),
            _ => self.memory.start(place),
        }
    }

    /// The start of a node, and its storage type.
    pub(crate) fn place(&self, node: usize) -> Result<(usize, StorageType)> {
        let place = self.map.nodes[node].ok_or_else(|| internal_error("the memory of a value that is read"))?;
        Ok((self.address(place), self.schedule.nodes[node].storage))
    }

    /// The element at this position of a node's memory.
    pub(crate) fn load(&self, node: usize, position: isize) -> Result<f64> {
        Ok(self.elements(node, [position])?[0])
    }

    /// The elements at these positions of a node's memory.
    pub(crate) fn elements(&self, node: usize, positions: impl IntoIterator<Item = isize>) -> Result<Vec<f64>> {
        let (start, storage) = self.place(node)?;
        let count = self.schedule.nodes[node].count();
        let load = |position: isize| {
            let position = usize::try_from(position).ok().filter(|&position| position < count);
            let position = position.ok_or_else(|| internal_error("a value inside the memory of its node"))?;
            let at = start + position * storage.size();
            Ok(storage.read(&self.memory.bytes[at..at + storage.size()]))
        };
        positions.into_iter().map(load).collect()
    }

    /// The elements that a view shows, in row-major order.
    pub(crate) fn view(&self, node: usize, view: &View) -> Result<Vec<f64>> {
        self.elements(node, (0..view.count()).map(|element| position(view, element)))
    }

    /// Writes an element of a node at this position of its memory, and over every carried node it is the next value of.
    pub(crate) fn store(&mut self, node: usize, position: usize, value: f64) {
        for like in std::iter::once(node).chain(self.written_over[node].iter().copied()) {
            let Some(place) = self.map.nodes[like] else { continue };
            let storage = self.schedule.nodes[like].storage;
            let at = self.address(place) + position * storage.size();
            storage.write(value, &mut self.memory.bytes[at..at + storage.size()]);
        }
    }

    /// Copies an operand, dense, to a place.
    fn copy(&mut self, operand: &Operand, to: Place) -> Result<()> {
        let (node, view) = operand.at().ok_or_else(|| internal_error("the memory of a value to be copied"))?;
        let storage = self.schedule.nodes[node].storage;
        let (start, values) = (self.address(to), self.view(node, view)?);
        for (i, value) in values.into_iter().enumerate() {
            let at = start + i * storage.size();
            storage.write(value, &mut self.memory.bytes[at..at + storage.size()]);
        }
        Ok(())
    }

    /// Runs a group; nodes that only outputs need are left out unless this is the last step.
    fn run_group(&mut self, g: usize, last: bool) -> Result<()> {
        if let Some(place) = self.map.workspaces[g] {
            let start = self.address(place);
            self.memory.bytes[start..start + WORKSPACE].fill(UNWRITTEN);
        }
        if let Some(domain) = self.schedule.groups()[g].domain {
            return self.run_loop(g, domain, last);
        }
        let id = self.schedule.groups()[g].members[0];
        if last || self.schedule.in_every_step(id) { self.run_operation(id) } else { Ok(()) }
    }

    /// Makes the carried casts of a run from its inputs.
    fn make_states(&mut self) -> Result<()> {
        for initial_cast in self.schedule.initial_casts.clone() {
            let node = &self.schedule.nodes[initial_cast.cast];
            let form = match node.kind {
                crate::Kind::CarriedCast(form) => form,
                _ => return Err(internal_error("the form of a carried cast")),
            };
            let (input, shape) = (&self.schedule.nodes[initial_cast.input], node.shape.clone());
            let values = self.view(initial_cast.input, &View::contiguous(&input.shape))?;
            let values = match form {
                CastForm::Bf16 => values,
                CastForm::AmaxExponent => vec![amax_exponent(values)],
                CastForm::ScaledF16 => {
                    let amax = initial_cast.amax.ok_or_else(|| internal_error("the amax exponent of a scaled cast"))?;
                    let amax = self.load(amax, 0)?;
                    let halve = Elementwise::ScaleToF16(Pow2Scale::AMAX);
                    values.into_iter().map(|x| halve.value(&[x, amax], DType::F32)).collect()
                }
            };
            if values.len() != shape.iter().product::<usize>() {
                return Err(internal_error("all elements of a carried cast"));
            }
            values.into_iter().enumerate().for_each(|(i, value)| self.store(initial_cast.cast, i, value));
        }
        Ok(())
    }

    fn run_prologue(&mut self) -> Result<()> {
        let reads = self.schedule.prologue_inputs();
        let reads = reads.iter().filter_map(|&input| self.bindings.inputs()[input].as_ref());
        let reads: Vec<(u64, u64)> = reads.map(|buffer| (buffer.id(), buffer.version())).collect();
        if self.prologue_of.as_ref() != Some(&reads) {
            self.prologue_of = None;
            self.zero_powers(true);
            (0..self.schedule.prologue).try_for_each(|group| self.run_group(group, true))?;
            self.prologue_of = Some(reads);
        }
        Ok(())
    }

    /// Sets the amax exponents that groups of the prologue, or of a step, will raise to 0.
    fn zero_powers(&mut self, of_prologue: bool) {
        if let Some((place, bytes)) = self.map.amax_words[usize::from(!of_prologue)] {
            let start = self.memory.start(place);
            self.memory.bytes[start..start + bytes].fill(0);
        }
    }

    /// Writes the number of the step.
    fn count(&mut self, step: u32) {
        if let Some(place) = self.map.counter {
            let start = self.memory.start(place);
            self.memory.bytes[start..start + 4].copy_from_slice(&step.to_ne_bytes());
        }
    }

    /// Copies the next values that are not updated in place.
    fn copy_carries(&mut self) -> Result<()> {
        for carry in self.schedule.carries.clone().iter().filter(|carry| !carry.in_place) {
            let to = self.map.nodes[carry.input].ok_or_else(|| internal_error("the memory of a carried input"))?;
            self.copy(&carry.next, to)?;
        }
        Ok(())
    }

    /// Runs steps one after the other.
    fn run_in_order(&mut self, steps: Range<u32>, shows: bool) -> Result<()> {
        let (groups, last) = (self.schedule.groups().len(), steps.end - 1);
        for step in steps {
            self.count(step);
            self.zero_powers(false);
            (self.schedule.prologue..groups).try_for_each(|group| self.run_group(group, shows && step == last))?;
            self.copy_carries()?;
        }
        Ok(())
    }

    fn run_steps(&mut self, steps: Range<u32>, shows: bool) -> Result<()> {
        self.run_prologue()?;
        self.make_states()?;
        match self.overlap.clone() {
            Some(looped) => self.run_overlapped(&looped, steps, shows)?,
            None => self.run_in_order(steps, shows)?,
        }
        if shows {
            for number in self.map.outputs_to_copy.clone() {
                let operand = self.schedule.outputs[number].clone();
                self.copy(&operand, Place { region: Region::Output(number), offset: 0 })?;
            }
        }
        Ok(())
    }

    /// Runs steps on the bytes of the bound buffers.
    fn run_bound(&mut self, steps: Range<u32>, shows: bool) -> Result<()> {
        let (arena, inputs, outputs) =
            (self.memory.arena.clone(), self.memory.inputs.clone(), self.memory.outputs.clone());
        self.memory.bytes[arena].fill(UNWRITTEN);
        outputs.iter().for_each(|range| self.memory.bytes[range.clone()].fill(UNWRITTEN));
        for (range, buffer) in inputs.iter().zip(self.bindings.inputs()) {
            if let Some(buffer) = buffer {
                // SAFETY: the storage is locked by itself, and the region has as many bytes as the buffer.
                unsafe { buffer.storage().read(0, &mut self.memory.bytes[range.clone()])? };
            }
        }
        let done = self.run_steps(steps, shows);
        let program = self.bindings.program();
        let carried = program.carries.iter().map(|carry| carry.input);
        let mut written: Vec<(&Range<usize>, &Option<Buffer>)> =
            carried.map(|input| (&inputs[input], &self.bindings.inputs()[input])).collect();
        if shows && done.is_ok() {
            written.extend(outputs.iter().zip(self.bindings.outputs()));
        }
        for (range, buffer) in written {
            if let Some(buffer) = buffer {
                // SAFETY: the storage is locked by itself, and the region has as many bytes as the buffer.
                unsafe { buffer.storage().write(0, &self.memory.bytes[range.clone()])? };
            }
        }
        done
    }
}

/// The position in memory of an element of a view, counted in row-major order.
pub(crate) fn position(view: &View, mut element: usize) -> isize {
    let mut position = view.offset;
    for (&length, &stride) in view.shape.iter().zip(&view.strides).rev() {
        position += (element % length) as isize * stride;
        element /= length;
    }
    position
}

impl Runnable for InterpreterRun {
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
