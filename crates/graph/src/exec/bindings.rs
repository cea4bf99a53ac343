//! Which buffer each input and output of a program lives in: the part of a runnable program that is the same on every
//! executor.

use crate::exec::buffer::{Access, Buffer};
use crate::ir::infer::Meta;
use crate::ir::program::{Port, Program, unknown};
use crate::{Array, Error, ErrorKind, Result};

/// The buffers of a program's inputs and outputs.
pub struct Bindings {
    program: Program,
    inputs: Vec<Option<Buffer>>,
    outputs: Vec<Option<Buffer>>,
    /// By input: the program writes it.
    carried: Vec<bool>,
    ran: bool,
    generation: u64,
}

impl Bindings {
    /// No buffer yet for this program.
    pub fn new(program: Program) -> Self {
        let (inputs, outputs) = (vec![None; program.inputs.len()], vec![None; program.outputs.len()]);
        let mut carried = vec![false; inputs.len()];
        program.carries.iter().for_each(|carry| carried[carry.input] = true);
        Bindings { program, inputs, outputs, carried, ran: false, generation: 0 }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The buffer of each input; none for the number of the loop's step.
    pub fn inputs(&self) -> &[Option<Buffer>] {
        &self.inputs
    }

    /// The buffer of each output.
    pub fn outputs(&self) -> &[Option<Buffer>] {
        &self.outputs
    }

    /// Changes whenever a buffer is bound.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if the last run filled the outputs.
    pub fn has_run(&self) -> bool {
        self.ran
    }

    /// Binds an input. A buffer that the program writes can be bound only once.
    pub(crate) fn bind_input(&mut self, input: usize, buffer: &Buffer) -> Result<()> {
        let port =
            self.program.inputs.get(input).ok_or_else(|| unknown(&self.program.inputs, &number("input", input)))?;
        if self.inputs[input].as_ref().is_some_and(|bound| bound.is_same(buffer)) {
            return Ok(());
        }
        check(port, buffer.meta())?;
        if self.program.step == Some(input) {
            return Err(Error::new(ErrorKind::BoundTwice { name: port.name.clone(), other: "the loop's step".into() }));
        }
        let shared = |i: usize| i != input && (self.carried[input] || self.carried[i]);
        let twin = same(&self.inputs, buffer, shared).map(|i| &self.program.inputs[i]);
        refuse_twin(port, twin.or(same(&self.outputs, buffer, |_| true).map(|o| &self.program.outputs[o])))?;
        self.inputs[input] = Some(buffer.clone());
        self.generation += 1;
        Ok(())
    }

    /// Lets go of the buffer of an input.
    pub fn unbind_input(&mut self, input: usize) {
        if let Some(bound) = self.inputs.get_mut(input) {
            *bound = None;
            self.generation += 1;
        }
    }

    /// Binds an output.
    pub(crate) fn bind_output(&mut self, output: usize, buffer: &Buffer) -> Result<()> {
        let ports = &self.program.outputs;
        let port = ports.get(output).ok_or_else(|| unknown(ports, &number("output", output)))?;
        if self.outputs[output].as_ref().is_some_and(|bound| bound.is_same(buffer)) {
            return Ok(());
        }
        check(port, buffer.meta())?;
        let twin = same(&self.inputs, buffer, |_| true).map(|i| &self.program.inputs[i]);
        refuse_twin(port, twin.or(same(&self.outputs, buffer, |o| o != output).map(|o| &ports[o])))?;
        self.outputs[output] = Some(buffer.clone());
        self.generation += 1;
        self.ran = false;
        Ok(())
    }

    /// Lets go of all buffers.
    pub fn clear(&mut self) {
        self.inputs.fill(None);
        self.outputs.fill(None);
        self.generation += 1;
        self.ran = false;
    }

    /// Acquires every buffer, or none if one is missing or taken.
    pub(crate) fn acquire(&mut self) -> Result<()> {
        for (input, buffer) in self.inputs.iter().enumerate() {
            if buffer.is_none() && self.program.step != Some(input) {
                let name = self.program.inputs[input].name.clone();
                return Err(Error::new(ErrorKind::MissingInput { name }));
            }
        }
        // Values left by a failed run are not outputs.
        self.ran = false;
        let mut held = 0;
        let refused = self.uses().try_for_each(|(buffer, access)| {
            buffer.acquire_mut(access)?;
            held += 1;
            Ok(())
        });
        if refused.is_err() {
            // SAFETY: these were acquired above.
            self.uses().take(held).for_each(|(buffer, access)| unsafe { buffer.release_mut(access, true) });
        }
        refused
    }

    /// Releases what [`acquire`](Self::acquire) acquired; outputs can be read if the run shows them. A step that fails
    /// leaves the carried inputs as they were.
    ///
    /// # Safety
    /// Once after each `acquire` that succeeded, when the run has ended.
    pub(crate) unsafe fn release(&mut self, good: bool, shows: bool) {
        let inputs = self.inputs.iter().flatten().count();
        for (number, (buffer, access)) in self.uses().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { buffer.release_mut(access, good || number < inputs) };
        }
        self.ran = good && shows;
    }

    fn uses(&mut self) -> impl Iterator<Item = (&mut Buffer, Access)> {
        let access = |carried: &bool| if *carried { Access::Write } else { Access::Read };
        let inputs = self.inputs.iter_mut().zip(&self.carried).filter_map(move |(b, c)| Some((b.as_mut()?, access(c))));
        inputs.chain(self.outputs.iter_mut().flatten().map(|buffer| (buffer, Access::Write)))
    }

    /// Writes a value of an input's type and shape to its buffer; false if it has none.
    pub(crate) fn write(&mut self, input: usize, value: &Array) -> Result<bool> {
        match &mut self.inputs[input] {
            Some(buffer) => buffer.write_fitting(value).map(|()| true),
            None => Ok(false),
        }
    }
}

fn number(what: &str, number: usize) -> String {
    format!("{what} {number}")
}

fn check(port: &Port, found: &Meta) -> Result<()> {
    if port.meta == *found {
        return Ok(());
    }
    Err(Error::new(ErrorKind::WrongValue {
        name: port.name.clone(),
        expected: (port.meta.dtype, port.meta.shape.clone()),
        found: (found.dtype, found.shape.clone()),
    }))
}

fn same(bound: &[Option<Buffer>], buffer: &Buffer, counts: impl Fn(usize) -> bool) -> Option<usize> {
    (0..bound.len()).find(|&i| counts(i) && bound[i].as_ref().is_some_and(|b| b.is_same(buffer)))
}

fn refuse_twin(port: &Port, twin: Option<&Port>) -> Result<()> {
    let Some(twin) = twin else { return Ok(()) };
    Err(Error::new(ErrorKind::BoundTwice { name: port.name.clone(), other: twin.name.clone() }))
}
