//! The memory of iterations in flight: each has an arena, and carried values rotate through the arenas and one more
//! buffer.
//!
//! A window is a sequence of iterations. Each runs in its own arena until the first one is free again; the last one
//! uses the addresses of a sequential step. A carried value that is not updated in place has one more buffer than there
//! are arenas, because the iteration that begins with it may still read it while the next ones compute theirs. If a
//! step can fail, a window works on copies of the inputs that are updated in place, so that a failed window changes
//! nothing.

use crate::memory::{MemoryMap, Place, Region};
use crate::schedule::Schedule;

/// A carried input that is not updated in place.
struct RotatingCarry {
    /// The input.
    input: usize,
    /// The arena offset of its next value in a sequential step.
    next: usize,
    bytes: usize,
    /// The offset of its extra buffer outside the arenas.
    separate: usize,
}

impl RotatingCarry {
    /// True if this arena offset is within its next value.
    fn holds(&self, offset: usize) -> bool {
        (self.next..self.next + self.bytes).contains(&offset)
    }
}

/// A carried input that is updated in place, and the offset of the window's copy.
struct CopiedCarry {
    input: usize,
    copy: usize,
}

/// The addresses of the iterations of a window.
pub struct RotatingCopies {
    arenas: usize,
    arena_stride: usize,
    arena_bytes: usize,
    carried: Vec<RotatingCarry>,
    copied: Vec<CopiedCarry>,
}

impl RotatingCopies {
    /// Extends a map by [`Schedule::lay_out_pipelined`] to this many arenas. With `copies_in_place`, windows work on
    /// copies of the inputs that are updated in place. `None` if no carried value rotates, or if one cannot.
    pub fn new(schedule: &Schedule, map: &MemoryMap, arenas: usize, copies_in_place: bool) -> Option<Self> {
        let align = schedule.grouping.target.can.alignment;
        let arena_stride = map.arena_bytes.next_multiple_of(align);
        let mut arena_bytes = arenas * arena_stride;
        let mut take = |bytes: usize| {
            arena_bytes += bytes.next_multiple_of(align);
            arena_bytes - bytes.next_multiple_of(align)
        };
        let (mut carried, mut copied) = (vec![], vec![]);
        for carry in &schedule.carries {
            let input = schedule.inputs.iter().position(|&input| input == carry.input)?;
            let bytes = schedule.nodes[carry.input].bytes();
            if bytes == 0 {
                continue;
            }
            if carry.in_place {
                if copies_in_place {
                    copied.push(CopiedCarry { input, copy: take(bytes) });
                }
                continue;
            }
            let (next, view) = carry.next.at()?;
            let made = &schedule.nodes[next];
            let place = map.nodes[next].filter(|place| place.region == Region::Arena)?;
            if !made.is_whole(view) || made.bytes() != bytes {
                return None;
            }
            // Two inputs may have the same next value.
            let known = carried.iter().find(|of: &&RotatingCarry| of.next == place.offset).map(|of| of.separate);
            let separate = known.unwrap_or_else(|| take(bytes));
            carried.push(RotatingCarry { input, next: place.offset, bytes, separate });
        }
        (!carried.is_empty()).then_some(RotatingCopies { arenas, arena_stride, arena_bytes, carried, copied })
    }

    /// Plants a mistake: no carried value has an extra buffer.
    #[cfg(test)]
    pub(crate) fn without_extra_buffers(mut self) -> Self {
        self.carried.iter_mut().for_each(|of| of.separate = of.next);
        self
    }

    /// Returns the bytes from one arena to the next, which a sequential step needs.
    pub fn arena_stride(&self) -> usize {
        self.arena_stride
    }

    /// Returns the bytes of all arenas, buffers and copies.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Returns the number of carried values that rotate, and of those that windows copy.
    pub fn counts(&self) -> (usize, usize) {
        (self.carried.len(), self.copied.len())
    }

    /// Returns the inputs that windows work on copies of, and where the copies are.
    pub fn copied(&self) -> impl Iterator<Item = (usize, Place)> {
        self.copied.iter().map(|of| (of.input, Place { region: Region::Arena, offset: of.copy }))
    }

    /// True if this address of a sequential step is within the next value of a carried input that is not updated in
    /// place.
    pub fn is_carried(&self, place: Place) -> bool {
        place.region == Region::Arena && self.carried.iter().any(|of| of.holds(place.offset))
    }

    /// Returns the arena of an iteration of a window; the last one has arena 0, as in a sequential step.
    pub fn arena_of(&self, (number, count): (usize, usize)) -> usize {
        (count - 1 - number) % self.arenas
    }

    /// Maps an address of a sequential step to an iteration of a window: its number, and the count of all.
    pub fn place(&self, place: Place, (number, count): (usize, usize)) -> Place {
        let in_arena = |offset: usize| Place { region: Region::Arena, offset };
        // Buffers rotate such that the last iteration leaves its value at the sequential address.
        let carried = |carried: &RotatingCarry, value: usize| match (count - value) % (self.arenas + 1) {
            turn if turn < self.arenas => carried.next + turn * self.arena_stride,
            _ => carried.separate,
        };
        match place.region {
            Region::Arena => match self.carried.iter().find(|of| of.holds(place.offset)) {
                Some(of) => in_arena(carried(of, number + 1) + place.offset - of.next),
                None => in_arena(place.offset + self.arena_of((number, count)) * self.arena_stride),
            },
            Region::Input(input) => {
                let read = self.carried.iter().find(|of| of.input == input && number > 0).map(|of| carried(of, number));
                let copy = || self.copied.iter().find(|of| of.input == input).map(|of| of.copy);
                read.or_else(copy).map_or(place, |offset| in_arena(offset + place.offset))
            }
            Region::Output(_) | Region::Persistent => place,
        }
    }
}
