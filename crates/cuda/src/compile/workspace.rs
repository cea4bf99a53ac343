//! The workspace of one group while its steps are made.

use crate::target::ALIGN;
use bilevel_plan::{Place, Region};

/// Bytes given out from the start of a place, one after the other.
pub(crate) struct Workspace {
    start: Place,
    used: usize,
    most: usize,
}

impl Workspace {
    /// From this place on; a group that turns out to need none gets none.
    pub fn new(start: Option<Place>) -> Self {
        Workspace { start: start.unwrap_or(Place { region: Region::Arena, offset: 0 }), used: 0, most: 0 }
    }

    /// This many bytes.
    pub fn take(&mut self, bytes: usize) -> Place {
        let place = Place { offset: self.start.offset + self.used, ..self.start };
        self.used += bytes.next_multiple_of(ALIGN);
        self.most = self.most.max(self.used);
        place
    }

    /// What is in use now, to go back to.
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Takes back what was given out since.
    pub fn back_to(&mut self, mark: usize) {
        self.used = mark;
    }

    /// The most bytes that were in use at once.
    pub fn bytes(&self) -> usize {
        self.most
    }
}
