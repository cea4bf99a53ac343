//! The step of a collective: the bytes of its operand and of its result, handed to the communicator.

use crate::compile::host::HostArray;
use crate::runtime::memory::Memory;
use bilevel_graph::{Collective, Line, Result};

/// A collective with its operand and its result.
pub(crate) struct CollectiveStep {
    pub collective: Collective,
    pub operand: HostArray,
    pub result: HostArray,
}

impl CollectiveStep {
    /// Returns when the result is complete.
    ///
    /// # Safety
    /// `memory` must be laid out as the plan says and belong to this run alone.
    pub unsafe fn run(&self, memory: Memory, location: Line) -> Result<()> {
        let bytes = |array: &HostArray| array.count * array.dtype.size();
        // SAFETY: the plan placed both arrays here, apart from each other, and no other step runs meanwhile.
        let (operand, result) = unsafe {
            (
                std::slice::from_raw_parts(memory.at(self.operand.at).cast_const(), bytes(&self.operand)),
                std::slice::from_raw_parts_mut(memory.at(self.result.at), bytes(&self.result)),
            )
        };
        self.collective.run(operand, self.result.dtype, result).map_err(|error| error.at(location))
    }

    /// The step in a line.
    pub fn describe(&self) -> String {
        format!("{} of {} elements", self.collective.name(), self.operand.count)
    }
}
