//! Amax in fused loops: each thread tracks its own maximum, and a block updates one word by an atomic maximum.
//!
//! A maximum does not depend on its order, so the result is deterministic.

use crate::codegen::body::Members;
use crate::codegen::{Code, Context};
use bilevel_graph::Result;

/// Updates a thread's maximum over the operands of these members, for every lane; declared before the loop.
pub(crate) fn join(members: &mut Members, largest: &[usize]) -> Result<()> {
    let (context, lanes) = (members.context, members.mapping.lanes());
    for (number, &member) in largest.iter().enumerate() {
        let node = &context.schedule.nodes[member];
        let value = members.operand(member, &node.operands[0], node.dtype)?;
        members.code.head(format!("int most{number} = 0;"));
        // A lane outside the row repeats an element of the row.
        members.code.lanes(lanes, format!("most{number} = max(most{number}, power_bits({value}));"));
    }
    Ok(())
}

/// Emits the block's update after the loop. Must be reached by every thread (contains `__syncthreads`).
pub(crate) fn end(code: &mut Code, context: Context, largest: &[usize], block: usize) -> Result<()> {
    for (number, &member) in largest.iter().enumerate() {
        let known = code.raw_pointer(context.place(member)?, 0, "int");
        code.line(format!("most{number} = across<Max, {block}>(most{number});"));
        code.line(format!("if (threadIdx.x == 0) atomic_amax({known}, most{number});"));
    }
    Ok(())
}
