//! The addresses of a plan's steps: a table of regions, and an offset in one of them.

use bilevel_graph::{DType, Result};
use bilevel_plan::{MemoryMap, Place, Region, Schedule, expect};

/// A worker's scratch: values of a tile, registers.
pub(crate) const SCRATCH: u32 = 0;
/// The constants of the plan.
pub(crate) const CONSTANTS: u32 = 1;
/// Values within one run, lent by the executor.
pub(crate) const ARENA: u32 = 2;
/// Values of the program that outlive a run: tables, the number of the step, loop-invariant values.
pub(crate) const KEPT: u32 = 3;
/// The first of the bound buffers: inputs, then outputs.
pub(crate) const BOUND: u32 = 4;

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub region: u32,
    /// Bytes from the start of the region.
    pub offset: usize,
}

impl Address {
    /// The address of a place in a program with this many inputs.
    pub fn new(place: Place, inputs: usize) -> Self {
        let region = match place.region {
            Region::Arena => ARENA,
            Region::Persistent => KEPT,
            Region::Input(input) => BOUND + input as u32,
            Region::Output(output) => BOUND + (inputs + output) as u32,
        };
        Address { region, offset: place.offset }
    }

    /// This many elements further on.
    pub fn advanced(self, elements: isize, dtype: DType) -> Self {
        let offset = self.offset.wrapping_add_signed(elements * dtype.size() as isize);
        Address { offset, ..self }
    }
}

/// The address of every value that is in memory, by node.
pub(crate) struct Places(pub Vec<Option<Address>>);

impl Places {
    pub fn new(schedule: &Schedule, map: &MemoryMap) -> Self {
        let inputs = schedule.inputs.len();
        Places(map.nodes.iter().map(|place| place.map(|place| Address::new(place, inputs))).collect())
    }

    /// The address of a value that must have one.
    pub fn of(&self, schedule: &Schedule, node: usize) -> Result<Address> {
        expect(self.0[node], "the memory of a value that is read or written", schedule.nodes[node].location)
    }
}

/// The regions of a run, as one worker sees them: all have the same but for their scratch.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// The table of the first worker.
    table: *const *mut u8,
    /// Regions in a table.
    regions: usize,
}

// SAFETY: the pointers stand for memory the runner owns or holds; tasks of one step write disjoint parts of it.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    /// One table of `regions` pointers for each worker, one after the other.
    pub fn new(tables: &[*mut u8], regions: usize) -> Self {
        Memory { table: tables.as_ptr(), regions }
    }

    /// As this worker sees it.
    ///
    /// # Safety
    /// There must be a table for the worker.
    pub unsafe fn of_worker(self, worker: usize) -> Self {
        // SAFETY: the caller's promise.
        Memory { table: unsafe { self.table.add(worker * self.regions) }, ..self }
    }

    /// The first byte of a region.
    ///
    /// # Safety
    /// The region must be one of the table's.
    #[inline(always)]
    pub unsafe fn region(self, region: u32) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { *self.table.add(region as usize) }
    }

    /// The byte at an address.
    ///
    /// # Safety
    /// The address must be one of the plan's.
    #[inline(always)]
    pub unsafe fn at(self, address: Address) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.region(address.region).add(address.offset) }
    }
}
