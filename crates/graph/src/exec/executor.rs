//! The contract of executors: memory for tensors, and programs that run in it.

use crate::exec::bindings::Bindings;
use crate::exec::buffer::Buffer;
use crate::exec::communicator::Link;
use crate::ir::infer::Meta;
use crate::ir::program::{Program, unknown};
use crate::{Array, Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

/// Something that owns memory and runs programs in it.
pub trait Executor: Send + Sync {
    /// Plans the program. A program that is not [valid](Program::validate) is refused: its fields are public, and a run
    /// trusts them. Scratch memory is the executor's: programs that run in turn share it.
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>>;

    /// Memory for a tensor, all zeros.
    fn buffer(&self, meta: &Meta) -> Result<Buffer>;

    /// Another handle to this executor.
    fn share(&self) -> Arc<dyn Executor>;

    /// Free bytes, if the executor can tell.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The ranks that compute every program of this executor together, if there are several. All must agree on
    /// decisions by a clock or a signal.
    fn link(&self) -> Option<&Link> {
        None
    }

    /// The executor of this rank alone, whose programs it computes without the others, in the same buffers.
    fn alone(&self) -> Arc<dyn Executor> {
        self.share()
    }

    /// An executor of the same ranks on which every rank has only a part of each tensor of at least this many numbers.
    /// `None` if no other rank could have the rest.
    fn sharding(&self, _from: usize) -> Option<Arc<dyn Executor>> {
        None
    }

    /// A buffer with these elements.
    fn upload(&self, value: &Array) -> Result<Buffer> {
        let buffer = self.buffer(&Meta { dtype: value.dtype(), shape: value.shape().to_vec() })?;
        buffer.write(value)?;
        Ok(buffer)
    }

    /// A buffer with these elements, only to be read: the memory of the array itself, if the executor can work in it, else a copy.
    ///
    /// ```
    /// use bilevel_graph::{Array, Executor, Reference};
    /// let data = Array::from_f64([2], vec![1.0, 2.0])?;
    /// assert_eq!(Reference.adopt(&data)?.to_array()?, data);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    fn adopt(&self, value: &Array) -> Result<Buffer> {
        self.upload(value)
    }

    /// A copy of a buffer, made without the host.
    fn duplicate(&self, buffer: &Buffer) -> Result<Buffer> {
        let copy = self.buffer(buffer.meta())?;
        copy.copy_from(buffer)?;
        Ok(copy)
    }
}

/// A handle is as good as the executor.
impl Executor for Arc<dyn Executor> {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        (**self).compile(program)
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        (**self).buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        (**self).share()
    }

    fn free_bytes(&self) -> Option<u64> {
        (**self).free_bytes()
    }

    fn link(&self) -> Option<&Link> {
        (**self).link()
    }

    fn alone(&self) -> Arc<dyn Executor> {
        (**self).alone()
    }

    fn sharding(&self, from: usize) -> Option<Arc<dyn Executor>> {
        (**self).sharding(from)
    }

    fn upload(&self, value: &Array) -> Result<Buffer> {
        (**self).upload(value)
    }

    fn adopt(&self, value: &Array) -> Result<Buffer> {
        (**self).adopt(value)
    }

    fn duplicate(&self, buffer: &Buffer) -> Result<Buffer> {
        (**self).duplicate(buffer)
    }
}

/// A planned program, bound to buffers. Inputs that are set, and unbound outputs, get separate buffers.
///
/// An executor writes the first five methods; the others are the same everywhere.
pub trait Runnable: Send {
    /// Its program and buffers.
    fn bindings(&self) -> &Bindings;

    /// Its program and buffers, to bind.
    fn bindings_mut(&mut self) -> &mut Bindings;

    /// Memory of its executor, all zeros.
    fn allocate(&self, meta: &Meta) -> Result<Buffer>;

    /// Returns true for a buffer of its executor.
    fn accepts(&self, buffer: &Buffer) -> bool;

    /// Runs these steps, of which there is at least one.
    ///
    /// # Safety
    /// Every input and output must have a buffer (but for the number of the step), and all must be held for this run:
    /// [`run`](Self::run) sees to it.
    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()>;

    /// As [`execute`](Self::execute), without outputs: an executor may skip operations that only they need.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.execute(steps) }
    }

    /// The program.
    fn program(&self) -> &Program {
        self.bindings().program()
    }

    /// Lets an input live in this buffer. A carried input is updated there, in place.
    fn bind_input(&mut self, input: usize, buffer: &Buffer) -> Result<()> {
        if !self.accepts(buffer) {
            let ports = &self.program().inputs;
            let name = ports.get(input).map_or_else(|| format!("input {input}"), |port| port.name.clone());
            return Err(Error::new(ErrorKind::ForeignBuffer { name }));
        }
        self.bindings_mut().bind_input(input, buffer)
    }

    /// Lets go of an input's buffer; the input must be bound or set again before the next run.
    fn unbind_input(&mut self, input: usize) {
        self.bindings_mut().unbind_input(input);
    }

    /// Lets an output of the last step of a run be written to this buffer.
    fn bind_output(&mut self, output: usize, buffer: &Buffer) -> Result<()> {
        if !self.accepts(buffer) {
            let ports = &self.program().outputs;
            let name = ports.get(output).map_or_else(|| format!("output {output}"), |port| port.name.clone());
            return Err(Error::new(ErrorKind::ForeignBuffer { name }));
        }
        self.bindings_mut().bind_output(output, buffer)
    }

    /// The buffer of an output, made if it has none.
    fn output_buffer(&mut self, output: usize) -> Result<Buffer> {
        let ports = &self.program().outputs;
        let port = ports.get(output).ok_or_else(|| unknown(ports, &format!("output {output}")))?;
        if let Some(buffer) = &self.bindings().outputs()[output] {
            return Ok(buffer.clone());
        }
        let buffer = self.allocate(&port.meta)?;
        self.bindings_mut().bind_output(output, &buffer)?;
        Ok(buffer)
    }

    /// Runs the loop for these step numbers; `0..1` evaluates once. After a run that fails its outputs cannot be read.
    fn run(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: all buffers are there and held.
        held(self, steps, true, |run, steps| unsafe { run.execute(steps) })
    }

    /// As [`run`](Self::run), for steps that others will follow: carried values are the same to the bit, and the
    /// outputs are undefined and cannot be read.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};
    /// let g = Graph::new();
    /// let x = g.input("x", [], DType::F64);
    /// let program = Program::builder(&g).output("square", x.square()).carry(x, x + 1.0).build()?;
    /// let mut run = Reference.compile(&program)?;
    /// run.set(0, &Array::scalar(0.0, DType::F64))?;
    /// run.advance(0..3)?;
    /// assert!(run.output(0).is_err());
    /// run.run(3..4)?;
    /// assert_eq!(run.output(0)?.item(), Some(9.0));
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    fn advance(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: all buffers are there and held.
        held(self, steps, false, |run, steps| unsafe { run.execute_for_carries(steps) })
    }

    /// Writes an input's value to its buffer. A carried input keeps the value of the last step until it is set again.
    fn set(&mut self, input: usize, value: &Array) -> Result<()> {
        self.program().check_input(input, value)?;
        if self.bindings_mut().write(input, value)? || self.program().step == Some(input) {
            return Ok(());
        }
        let buffer = self.allocate(&self.program().inputs[input].meta)?;
        buffer.write(value)?;
        self.bindings_mut().bind_input(input, &buffer)
    }

    /// Copies an output of the last step into an array of its type and shape.
    fn read(&self, output: usize, into: &mut Array) -> Result<()> {
        self.program().check_output(output, into)?;
        match &self.bindings().outputs()[output] {
            Some(buffer) if self.bindings().has_run() => buffer.read_fitting(into),
            _ => Err(Error::new(ErrorKind::NotRun { name: self.program().outputs[output].name.clone() })),
        }
    }

    /// Copies an input's present value (for a carried one, that of the last step) into an array.
    fn read_input(&self, input: usize, into: &mut Array) -> Result<()> {
        self.program().check_input(input, into)?;
        match &self.bindings().inputs()[input] {
            Some(buffer) => buffer.read_fitting(into),
            None => Err(Error::new(ErrorKind::MissingInput { name: self.program().inputs[input].name.clone() })),
        }
    }

    /// An output of the last step.
    fn output(&self, output: usize) -> Result<Array> {
        let ports = &self.program().outputs;
        let port = ports.get(output).ok_or_else(|| unknown(ports, &format!("output {output}")))?;
        let mut array = Array::zeros(&port.meta.shape, port.meta.dtype);
        self.read(output, &mut array)?;
        Ok(array)
    }

    /// An input's present value.
    fn input(&self, input: usize) -> Result<Array> {
        let ports = &self.program().inputs;
        let port = ports.get(input).ok_or_else(|| unknown(ports, &format!("input {input}")))?;
        let mut array = Array::zeros(&port.meta.shape, port.meta.dtype);
        self.read_input(input, &mut array)?;
        Ok(array)
    }
}

/// Does this work for these steps, if there are any, with every buffer there and held; `shows` says whether it fills the outputs.
fn held<R: Runnable + ?Sized>(
    run: &mut R,
    steps: Range<u32>,
    shows: bool,
    work: impl FnOnce(&mut R, Range<u32>) -> Result<()>,
) -> Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    run.program().check_steps(&steps)?;
    for output in 0..run.bindings().outputs().len() {
        if run.bindings().outputs()[output].is_none() {
            run.output_buffer(output)?;
        }
    }
    run.bindings_mut().acquire()?;
    let done = work(run, steps);
    // SAFETY: acquired above, and the run has ended.
    unsafe { run.bindings_mut().release(done.is_ok(), shows) };
    done
}
