//! Large tensors of which every rank has only a part: an executor whose buffers are those parts.
//!
//! A buffer has the type and shape of the whole tensor, and memory for this rank's rows of it. So nothing above depends
//! on parts: a program is partitioned when it runs, by the parts among the buffers that it is bound to. A step that works
//! element by element then needs no other rank, and a tensor is gathered only for operations that need all of it.
//!
//! To read such a buffer is a collective, since every rank must send its rows. To write it is not: a rank takes its own
//! rows of what it is given.

use crate::executor::Ranks;
use bilevel_graph::shape::element_count;
use bilevel_graph::{
    Array, Bindings, Buffer, Collective, DType, Executor, Link, Meta, Program, Result, Runnable, Storage, even_parts,
};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are gathered at once: every rank holds a copy of its own among them.
const MAX_PIECE: usize = 1 << 26;

/// The executor of ranks that shard tensors of at least `from` numbers. Shorter ones, and integers, are whole on every rank.
#[derive(Clone)]
pub(crate) struct Sharded {
    ranks: Ranks,
    link: Link,
    from: usize,
}

impl Sharded {
    pub fn new(ranks: Ranks, link: Link, from: usize) -> Self {
        Sharded { ranks, link, from }
    }

    /// The rows of each rank, if a tensor of this type and shape is sharded.
    fn rows(&self, meta: &Meta) -> Option<Vec<usize>> {
        let rows = *meta.shape.first()?;
        let is_large = meta.dtype != DType::I32 && element_count(&meta.shape) >= self.from.max(1);
        (is_large && rows >= self.link.size()).then(|| even_parts(rows, self.link.size()))
    }
}

impl Executor for Sharded {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        program.validate()?;
        let bindings = Bindings::new(program.clone());
        Ok(Box::new(ShardedRun { executor: self.clone(), bindings, local: None }))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        let Some(rows) = self.rows(meta) else {
            let local = self.ranks.inner().buffer(meta)?;
            return Ok(Buffer::new(meta.clone(), Box::new(Part { local, cut: None })));
        };
        let own = Meta { dtype: meta.dtype, shape: [&[rows[self.link.rank()]], &meta.shape[1..]].concat() };
        let row = element_count(&meta.shape[1..]) * meta.dtype.size();
        let cut = Cut { bytes: rows.iter().map(|rows| rows * row).collect(), link: self.link.clone() };
        let local = self.ranks.inner().buffer(&own)?;
        Ok(Buffer::new(meta.clone(), Box::new(Part { local, cut: Some(cut) })))
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.ranks.inner().free_bytes()
    }

    fn link(&self) -> Option<&Link> {
        Some(&self.link)
    }

    /// Data are whole on every rank.
    fn adopt(&self, value: &Array) -> Result<Buffer> {
        let local = self.ranks.inner().adopt(value)?;
        Ok(Buffer::read_only(local.meta().clone(), Box::new(Part { local, cut: None })))
    }
}

/// The memory of a buffer on this rank.
struct Part {
    /// This rank's rows; all of them if the tensor is not cut.
    local: Buffer,
    cut: Option<Cut>,
}

/// The bytes of each rank, one after the other.
#[derive(Clone)]
struct Cut {
    bytes: Vec<usize>,
    link: Link,
}

impl Cut {
    /// The bytes of this rank.
    fn own(&self) -> Range<usize> {
        Collective::own_part(&self.bytes, self.link.rank())
    }

    /// Gathers these bytes of the tensor from all ranks.
    fn gather(&self, local: &Buffer, first: usize, into: &mut [u8]) -> Result<()> {
        for (number, piece) in into.chunks_mut(MAX_PIECE).enumerate() {
            let stretch = first + number * MAX_PIECE..first + number * MAX_PIECE + piece.len();
            let of = |rank: usize| overlap(&Collective::own_part(&self.bytes, rank), &stretch);
            let own = of(self.link.rank());
            let mut bytes = vec![0; own.len()];
            if !own.is_empty() {
                local.read_part(own.start - self.own().start, &mut bytes)?;
            }
            let lengths: Vec<usize> = (0..self.link.size()).map(|rank| of(rank).len()).collect();
            self.link.gather(&bytes, &lengths, piece)?;
        }
        Ok(())
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

impl Part {
    fn of(buffer: &Buffer) -> Option<&Part> {
        buffer.storage().as_any().downcast_ref()
    }

    /// The bytes of the tensor that are here.
    fn own(&self) -> Range<usize> {
        self.cut.as_ref().map_or(0..self.local.byte_count(), Cut::own)
    }
}

impl Storage for Part {
    unsafe fn write(&self, first: usize, bytes: &[u8]) -> Result<()> {
        let own = self.own();
        let here = overlap(&own, &(first..first + bytes.len()));
        match here.is_empty() {
            true => Ok(()),
            false => self.local.write_part(here.start - own.start, &bytes[here.start - first..here.end - first]),
        }
    }

    unsafe fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        match &self.cut {
            Some(cut) => cut.gather(&self.local, first, bytes),
            None => self.local.read_part(first, bytes),
        }
    }

    unsafe fn copy_from(&self, other: &dyn Storage, stretch: Range<usize>) -> Result<bool> {
        let Some(other) = other.as_any().downcast_ref::<Part>() else { return Ok(false) };
        let own = self.own();
        if own != other.own() && other.cut.is_some() {
            return Ok(false);
        }
        let here = overlap(&own, &stretch);
        if here.is_empty() {
            return Ok(true);
        }
        let local = here.start - own.start..here.end - own.start;
        if own == other.own() {
            self.local.copy_part_from(&other.local, local)?;
        } else {
            let mut bytes = vec![0; here.len()];
            other.local.read_part(here.start, &mut bytes)?;
            self.local.write_part(local.start, &bytes)?;
        }
        Ok(true)
    }

    unsafe fn zero(&self) -> Result<()> {
        self.local.zero()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The inputs and the outputs of a program that are parts.
type PartPorts = [Vec<bool>; 2];

/// A program that is bound to parts.
struct ShardedRun {
    executor: Sharded,
    bindings: Bindings,
    /// This rank's program, for the inputs and outputs that were parts when it was compiled.
    local: Option<(PartPorts, Box<dyn Runnable>)>,
}

impl ShardedRun {
    /// This rank's program, bound to its own rows.
    fn local(&mut self) -> Result<&mut dyn Runnable> {
        let is_part =
            |buffer: &Option<Buffer>| buffer.as_ref().and_then(Part::of).is_some_and(|part| part.cut.is_some());
        let ports = [self.bindings.inputs(), self.bindings.outputs()];
        let parts = ports.map(|buffers| buffers.iter().map(is_part).collect::<Vec<bool>>());
        let known = self.local.take().filter(|(known, _)| *known == parts);
        let run = match known {
            Some((_, run)) => run,
            None => {
                let [inputs, outputs] = &parts;
                self.executor.ranks.compile_with_parts(self.bindings.program(), inputs, outputs)?
            }
        };
        let (_, run) = self.local.insert((parts, run));
        let here = |buffers: &[Option<Buffer>]| -> Vec<Option<Buffer>> {
            let local = |buffer: &Option<Buffer>| Some(Part::of(buffer.as_ref()?)?.local.clone());
            buffers.iter().map(local).collect()
        };
        let (inputs, outputs) = (here(self.bindings.inputs()), here(self.bindings.outputs()));
        let is_same = |bound: &[Option<Buffer>], wanted: &[Option<Buffer>]| {
            bound.iter().zip(wanted).all(|pair| match pair {
                (Some(bound), Some(wanted)) => bound.is_same(wanted),
                (None, None) => true,
                _ => false,
            })
        };
        if is_same(run.bindings().inputs(), &inputs) && is_same(run.bindings().outputs(), &outputs) {
            return Ok(&mut **run);
        }
        // Buffers may have changed places.
        run.bindings_mut().clear();
        for (number, buffer) in inputs.iter().enumerate() {
            buffer.iter().try_for_each(|buffer| run.bind_input(number, buffer))?;
        }
        for (number, buffer) in outputs.iter().enumerate() {
            buffer.iter().try_for_each(|buffer| run.bind_output(number, buffer))?;
        }
        Ok(&mut **run)
    }
}

impl Runnable for ShardedRun {
    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        self.executor.buffer(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        Part::of(buffer).is_some()
    }

    fn unbind_input(&mut self, input: usize) {
        self.bindings.unbind_input(input);
        if let Some((_, run)) = &mut self.local {
            run.unbind_input(input);
        }
    }

    // The buffers in which this rank's rows lie are held by the run itself, which no other has.
    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        self.local()?.run(steps)
    }

    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        self.local()?.advance(steps)
    }
}
