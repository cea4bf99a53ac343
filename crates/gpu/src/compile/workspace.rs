//! The workspace of one group: a stack allocator used while its steps are built.

use bilevel_plan::{Place, Region};

/// The alignment of buffers in bytes: a multiple of the widest loads, as libraries prefer.
pub const ALIGN: usize = 256;

/// Bytes allocated from an address on.
pub struct Workspace {
    start: Place,
    used: usize,
    most: usize,
}

impl Workspace {
    /// Allocates from this address on; `None` for a dry run or an unused workspace.
    pub fn new(start: Option<Place>) -> Self {
        Workspace { start: start.unwrap_or(Place { region: Region::Arena, offset: 0 }), used: 0, most: 0 }
    }

    /// Allocates this many bytes.
    pub fn take(&mut self, bytes: usize) -> Place {
        let place = Place { offset: self.start.offset + self.used, ..self.start };
        self.used += bytes.next_multiple_of(ALIGN);
        self.most = self.most.max(self.used);
        place
    }

    /// Returns the current top of the stack.
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Frees everything above a mark.
    pub fn back_to(&mut self, mark: usize) {
        self.used = mark;
    }

    /// Returns the peak of allocated bytes.
    pub fn bytes(&self) -> usize {
        self.most
    }
}
