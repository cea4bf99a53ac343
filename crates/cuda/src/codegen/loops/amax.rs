//! The largest powers of two of what a loop computes, on the way: each thread knows that of its own elements, and
//! raises a word that all have.
//!
//! A maximum does not depend on the order in which it is made, so the result is the same in every run.

use crate::codegen::body::Members;
use crate::codegen::{Code, Context};
use bilevel_graph::Result;

/// Has a thread remember the largest of what these members read, in every lane of its elements; declared before the
/// first.
pub(crate) fn join(members: &mut Members, largest: &[usize]) -> Result<()> {
    let (context, lanes) = (members.context, members.mapping.lanes());
    for (number, &member) in largest.iter().enumerate() {
        let node = &context.schedule.nodes[member];
        let value = members.operand(member, &node.operands[0], node.dtype)?;
        members.code.head(format!("int most{number} = 0;"));
        // A lane beyond the end of a row stands in for one near its end.
        members.code.lanes(lanes, format!("most{number} = max(most{number}, power_bits({value}));"));
    }
    Ok(())
}

/// After the last element of a thread; all threads of a block of this size must come by.
pub(crate) fn end(code: &mut Code, context: Context, largest: &[usize], block: usize) -> Result<()> {
    for (number, &member) in largest.iter().enumerate() {
        let known = code.raw_pointer(context.place(member)?, 0, "int");
        code.line(format!("most{number} = across<Max, {block}>(most{number});"));
        code.line(format!("if (threadIdx.x == 0) atomic_amax({known}, most{number});"));
    }
    Ok(())
}
