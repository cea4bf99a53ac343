//! The executor of a rank: partitions every program, and runs its part with the other ranks.
//!
//! The host decides by the values that it reads, and ranks with different decisions would wait for each other for ever.
//! So before a run the ranks compare their programs, and after it the bits of its results. Sums have the same bits on
//! all ranks. But if parts have different lengths, two ranks may round a replicated value differently; then all take
//! that of rank 0.

use crate::digest::Digest;
use crate::partition::partition_with_parts;
use crate::sharded::Sharded;
use bilevel_graph::{Array, Bindings, Buffer, Executor, Link, Meta, Op, Program, Result, Runnable, rank_error};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An executor whose programs are computed by all ranks of a link together, each on its own executor.
///
/// ```
/// use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};
/// use bilevel_ranks::{Ranks, Threads};
/// let found = Threads::run(2, |link| {
///     let g = Graph::new();
///     let x = g.input("x", [4], DType::F64).over_ranks(0);
///     let program = Program::builder(&g).output("mean", x.mean_all()).build()?;
///     let mut run = Ranks::new(&Reference, link).compile(&program)?;
///     run.set(0, &Array::from_f64([4], vec![1.0, 2.0, 3.0, 6.0])?)?;
///     run.run(0..1)?;
///     run.output(0)
/// });
/// for mean in found {
///     assert_eq!(mean?.item(), Some(3.0));
/// }
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct Ranks {
    inner: Arc<dyn Executor>,
    link: Link,
    corrected: Arc<AtomicU64>,
}

impl Ranks {
    /// This rank's part of every program runs on `inner`.
    pub fn new(inner: &dyn Executor, link: Link) -> Self {
        Ranks { inner: inner.share(), link, corrected: Arc::default() }
    }

    /// How many runs ended with other bits on some rank than on rank 0, and were corrected.
    pub fn corrected(&self) -> u64 {
        self.corrected.load(Ordering::Relaxed)
    }
}

impl Ranks {
    pub(crate) fn inner(&self) -> &dyn Executor {
        &*self.inner
    }

    /// Compiles this rank's part of a program. Of the marked inputs and outputs it has, and binds, a part.
    pub(crate) fn compile_with_parts(
        &self,
        program: &Program,
        inputs: &[bool],
        outputs: &[bool],
    ) -> Result<Box<dyn Runnable>> {
        let local = partition_with_parts(program, &self.link, inputs, outputs)?;
        let communicates = local.nodes.iter().any(|node| matches!(node.op, Op::Collective(_)));
        let mut digest = Digest::default();
        digest.add(env!("CARGO_PKG_VERSION").as_bytes());
        digest.add(program.dump(false).as_bytes());
        [inputs, outputs]
            .iter()
            .for_each(|parts| digest.add(&parts.iter().map(|&part| part.into()).collect::<Vec<u8>>()));
        let inner = self.inner.compile(&local)?;
        let parts = [inputs.to_vec(), outputs.to_vec()];
        let (link, corrected) = (self.link.clone(), self.corrected.clone());
        Ok(Box::new(RanksRun { inner, link, communicates, parts, program: digest.value(), corrected }))
    }
}

impl Executor for Ranks {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        self.compile_with_parts(program, &vec![false; program.inputs.len()], &vec![false; program.outputs.len()])
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        self.inner.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn link(&self) -> Option<&Link> {
        (self.link.size() > 1).then_some(&self.link)
    }

    fn alone(&self) -> Arc<dyn Executor> {
        self.inner.clone()
    }

    fn sharding(&self, from: usize) -> Option<Arc<dyn Executor>> {
        (self.link.size() > 1).then(|| Arc::new(Sharded::new(self.clone(), self.link.clone(), from)) as _)
    }

    fn adopt(&self, value: &Array) -> Result<Buffer> {
        self.inner.adopt(value)
    }
}

/// A rank's part of a program.
struct RanksRun {
    inner: Box<dyn Runnable>,
    link: Link,
    /// Ranks wait for each other within a run.
    communicates: bool,
    /// By input and by output: this rank has a part of it.
    parts: [Vec<bool>; 2],
    /// The digest of the whole program.
    program: u64,
    corrected: Arc<AtomicU64>,
}

impl RanksRun {
    /// Runs these steps on all ranks, with the same `shown` values on all of them afterwards.
    ///
    /// # Safety
    /// As for [`Runnable::execute`].
    unsafe fn together(&mut self, steps: Range<u32>, shown: bool) -> Result<()> {
        self.agree(&steps)?;
        // SAFETY: the caller's promise.
        let done = unsafe {
            match shown {
                true => self.inner.execute(steps),
                false => self.inner.execute_for_carries(steps),
            }
        };
        if let (Err(error), true) = (&done, self.communicates) {
            self.link.abort(&error.to_string());
            return done;
        }
        let digest = match &done {
            Ok(()) => self.digest(shown)?,
            Err(_) => 0,
        };
        let all = self.link.numbers(digest)?;
        done?;
        // A rank that failed while none waits for another.
        if let Some(failed) = all.iter().position(|&other| other == 0) {
            return Err(rank_error(format!("rank {failed} failed; its own message says why")));
        }
        if all.iter().any(|&other| other != all[0]) {
            self.corrected.fetch_add(1, Ordering::Relaxed);
            self.take_those_of_rank_0(shown)?;
        }
        Ok(())
    }

    /// Refuses to run another program, or other steps, than the other ranks.
    fn agree(&self, steps: &Range<u32>) -> Result<()> {
        let mut digest = Digest::default();
        [self.program, steps.start.into(), steps.end.into()].iter().for_each(|n| digest.add(&n.to_ne_bytes()));
        let all = self.link.numbers(digest.value())?;
        let Some(other) = all.iter().position(|&other| other != all[0]) else { return Ok(()) };
        Err(rank_error(format!(
            "rank {other} is about to run another program than rank 0; start every rank with the same command, configuration, data and \
             version"
        )))
    }

    /// The results of the run that every rank has: carried inputs, and outputs if they are shown.
    fn written(&self, shown: bool) -> impl Iterator<Item = &Buffer> {
        let bindings = self.inner.bindings();
        let [inputs, outputs] = &self.parts;
        let whole = bindings.program().carries.iter().filter(|carry| !inputs[carry.input]);
        let carried = whole.filter_map(|carry| bindings.inputs()[carry.input].as_ref());
        let shown = if shown { bindings.outputs() } else { &[] };
        carried.chain(
            shown.iter().zip(outputs).filter(|(_, is_part)| !**is_part).filter_map(|(output, _)| output.as_ref()),
        )
    }

    /// A digest of the bits that the run wrote; never 0.
    fn digest(&self, shown: bool) -> Result<u64> {
        let mut digest = Digest::default();
        let mut bytes = vec![];
        for buffer in self.written(shown) {
            bytes.resize(buffer.byte_count(), 0);
            // SAFETY: the run holds the buffer and has ended, and there is room for all its bytes.
            unsafe { buffer.storage().read(0, &mut bytes)? };
            digest.add(&bytes);
        }
        Ok(digest.value().max(1))
    }

    fn take_those_of_rank_0(&self, shown: bool) -> Result<()> {
        let mut bytes = vec![];
        for buffer in self.written(shown) {
            bytes.resize(buffer.byte_count(), 0);
            // SAFETY: the run holds the buffer and has ended, and there is room for all its bytes.
            unsafe { buffer.storage().read(0, &mut bytes)? };
            self.link.broadcast(&mut bytes, 0)?;
            // SAFETY: the run holds the buffer to write to it, and these are all its bytes.
            unsafe { buffer.storage().write(0, &bytes)? };
        }
        Ok(())
    }
}

impl Runnable for RanksRun {
    fn bindings(&self) -> &Bindings {
        self.inner.bindings()
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        self.inner.bindings_mut()
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        self.inner.allocate(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        self.inner.accepts(buffer)
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.together(steps, true) }
    }

    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.together(steps, false) }
    }
}
