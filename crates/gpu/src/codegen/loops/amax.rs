//! Amax in fused loops: each thread tracks its own maximum, and a block updates one word by an atomic maximum.
//!
//! A maximum does not depend on its order, so the result is deterministic.

use crate::codegen::body::Members;
use crate::codegen::parts::Part;
use crate::codegen::{Code, Context};
use bilevel_graph::{DType, ReduceOp, Result};

/// Updates a thread's maximum over the operands of these members, for every lane; declared before the loop.
pub fn join(members: &mut Members, largest: &[usize]) -> Result<()> {
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
pub fn end(code: &mut Code, context: Context, largest: &[usize], block: usize) -> Result<()> {
    for (number, &member) in largest.iter().enumerate() {
        code.uses(Part::ScaledF16);
        let known = code.in_out(context.place(member)?, DType::I32, 0);
        let most = code.across(ReduceOp::Max, block, format!("most{number}"));
        code.line(format!("most{number} = {most};"));
        code.line(format!("if ({} == 0) atomic_amax({known}, most{number});", code.thread()));
    }
    Ok(())
}
