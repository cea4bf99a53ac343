//! Steps of a plan: kernels, library calls and copies, with the memory they read and write.

use crate::codegen::kernel::Param;
use crate::codegen::{Arg, Launch};
use bilevel_graph::Line;
use bilevel_plan::Place;
use std::fmt::Debug;

/// A call of a library of the GPU.
pub trait LibraryCall: Clone + Debug {
    /// Returns the memory it accesses.
    fn accesses(&self) -> Vec<Access>;

    /// Returns the call with its addresses mapped.
    fn moved(&self, to: &dyn Fn(Place) -> Place) -> Self;

    /// Returns the number of multiplications.
    fn multiplications(&self) -> usize;
}

/// The work of a step.
#[derive(Clone, Debug)]
pub enum Work<C> {
    /// A generated kernel.
    Kernel(Launch),
    /// A call of a library.
    Library(C),
    /// A copy of memory.
    Copy {
        /// The source.
        from: Place,
        /// The destination.
        to: Place,
        /// The number of bytes.
        bytes: usize,
    },
}

impl<C: LibraryCall> Work<C> {
    /// Returns true for a kernel that reports indices out of range.
    pub fn can_fail(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.kernel.can_fail)
    }

    /// Returns true for a kernel that is skipped after a check has failed.
    pub fn skips_after_failure(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.kernel.skips_after_failure)
    }

    /// Returns true for a kernel that is tuned to occupy every multiprocessor. If it runs concurrently with others,
    /// many of its blocks must wait for them and then run alone, which doubles its time.
    pub fn occupies_whole_gpu(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.shared > 0)
    }

    /// Returns the addresses of its arguments. It accesses only the arrays that contain them.
    pub fn accesses(&self) -> Vec<Access> {
        match self {
            Work::Kernel(launch) => {
                let of = |(param, at): (&Param, &Arg)| Access { at: *at, reads: param.reads, writes: param.writes };
                launch.bound().map(of).collect()
            }
            Work::Library(call) => call.accesses(),
            Work::Copy { from, to, .. } => {
                vec![Access::input(Arg::Memory(*from, 0)), Access::output(Arg::Memory(*to, 0))]
            }
        }
    }
}

/// An access of memory by some work.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// An address in the array.
    pub at: Arg,
    /// Whether it is read.
    pub reads: bool,
    /// Whether it is written.
    pub writes: bool,
}

impl Access {
    /// Returns that of an array that is only read.
    pub fn input(at: Arg) -> Self {
        Access { at, reads: true, writes: false }
    }

    /// Returns that of an array that is only written.
    pub fn output(at: Arg) -> Self {
        Access { at, reads: false, writes: true }
    }

    /// Returns that of an array that is read and written.
    pub fn in_out(at: Arg) -> Self {
        Access { at, reads: true, writes: true }
    }
}

/// A span of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub place: Place,
    /// Its length.
    pub bytes: usize,
}

impl Span {
    /// Returns true if an address is in the span; an empty span contains its first byte.
    pub fn holds(&self, address: &Arg) -> bool {
        let &Arg::Memory(place, bytes) = address else { return false };
        let (first, at) = (self.place.offset as isize, place.offset as isize + bytes);
        self.place.region == place.region && (first..first + self.bytes.max(1) as isize).contains(&at)
    }

    /// Returns true if both overlap. Bound buffers are distinct.
    pub fn meets(&self, other: &Span) -> bool {
        let (a, b) = (self.place, other.place);
        a.region == b.region && a.offset < b.offset + other.bytes && b.offset < a.offset + self.bytes
    }
}

/// Work with the memory it reads and writes.
#[derive(Clone, Debug)]
pub struct Step<C> {
    /// The work.
    pub work: Work<C>,
    /// The spans it reads.
    pub reads: Vec<Span>,
    /// The spans it writes.
    pub writes: Vec<Span>,
    /// The line of user code.
    pub location: Line,
}

impl<C: LibraryCall> Step<C> {
    /// Returns the step with its addresses mapped.
    pub fn moved(&self, to: impl Fn(Place) -> Place) -> Step<C> {
        let span = |span: &Span| Span { place: to(span.place), ..*span };
        let work = match &self.work {
            Work::Kernel(launch) => {
                Work::Kernel(Launch { args: launch.args.iter().map(|arg| arg.moved(&to)).collect(), ..launch.clone() })
            }
            Work::Library(call) => Work::Library(call.moved(&to)),
            &Work::Copy { from, to: target, bytes } => Work::Copy { from: to(from), to: to(target), bytes },
        };
        let [reads, writes] = [&self.reads, &self.writes].map(|spans| spans.iter().map(span).collect());
        Step { work, reads, writes, location: self.location }
    }
}
