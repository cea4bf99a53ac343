//! Operations on whole rows or matrices: the reference's loops, on the team's threads.

use crate::runtime::thread_pool::Team;
use bilevel_graph::BlockOp;
use bilevel_graph::block_ops::{Blocks, Number, argsort, cholesky, scatter_argmax, triangular_solve};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Operations worth a separate task.
const TASK_OPERATIONS: usize = 1 << 15;

/// An address that threads share, each for its own blocks.
#[derive(Clone, Copy)]
struct SharedBytes(*mut u8);
// SAFETY: tasks write different blocks of the result, and operands are only read.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// The elements of a block.
    ///
    /// # Safety
    /// They are inside the array, and nothing writes them meanwhile.
    unsafe fn block<'a, T>(self, number: usize, length: usize) -> &'a [T] {
        if length == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { from_raw_parts(self.0.cast::<T>().add(number * length), length) }
    }

    /// The elements of a block of the result.
    ///
    /// # Safety
    /// They are inside the array, and nothing else uses them meanwhile.
    unsafe fn block_mut<'a, T>(self, number: usize, length: usize) -> &'a mut [T] {
        if length == 0 {
            return &mut [];
        }
        // SAFETY: the caller's promise.
        unsafe { from_raw_parts_mut(self.0.cast::<T>().add(number * length), length) }
    }
}

/// The operation on every block, with T the type of the last operand.
///
/// # Safety
/// Each address has the elements of all blocks of its operand, the first and the last, or of the result, aligned to their type; the
/// result overlaps no operand.
pub(crate) unsafe fn run_blocks<T: Number>(
    team: &Team,
    op: BlockOp,
    blocks: Blocks,
    [a, b]: [*mut u8; 2],
    to: *mut u8,
) {
    let (a, b, to) = (SharedBytes(a), SharedBytes(b), SharedBytes(to));
    let [of_a, of_b] = blocks.operands;
    let work = blocks.count * blocks.result.max(of_a) * blocks.n.max(1);
    let tasks = (work / TASK_OPERATIONS).clamp(1, blocks.count.max(1));
    let chunk = blocks.count.div_ceil(tasks);
    team.run(tasks, &|task| {
        for i in task * chunk..((task + 1) * chunk).min(blocks.count) {
            // SAFETY: the caller's promise; tasks have different blocks.
            unsafe {
                match op {
                    BlockOp::ArgSort => argsort::<T, i32>(a.block(i, of_a), to.block_mut(i, blocks.result)),
                    BlockOp::ScatterArgMax { .. } => {
                        scatter_argmax::<T, i32>(a.block(i, of_a), b.block(i, of_b), to.block_mut(i, blocks.result))
                    }
                    BlockOp::Cholesky => cholesky::<T>(a.block(i, of_a), blocks.n, to.block_mut(i, blocks.result)),
                    BlockOp::TriangularSolve { lower, transposed } => {
                        let (a, b, x) = (a.block(i, of_a), b.block(i, of_b), to.block_mut(i, blocks.result));
                        triangular_solve::<T>(a, b, blocks.n, [lower, transposed], x)
                    }
                }
            }
        }
    });
}
