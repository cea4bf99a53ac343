//! One step of a planned program: a fused loop or a single larger operation.

use crate::compile::collective::CollectiveStep;
use crate::compile::host::HostStep;
use crate::conv::ConvPlan;
use crate::data::block_ops::run_blocks;
use crate::data::indexing::{check_index, cumsum, gather, scatter_add, window_argmax, with_number};
use crate::data::moves::Move;
use crate::gemm::{GemmPlan, Piece, Then};
use crate::runtime::memory::{Address, Memory};
use crate::runtime::thread_pool::Team;
use crate::vm::scalar_vm::Scalars;
use crate::vm::tile::TileProgram;
use bilevel_graph::block_ops::Blocks;
use bilevel_graph::{BlockOp, DType, Line, Result, WindowDims};
use bilevel_plan::IndexDims;

/// A plan for 32-bit or for 64-bit floats.
pub(crate) enum Typed<A, B> {
    F32(A),
    F64(B),
}

/// A step, in which turns it runs, and the line of user code it comes from.
pub(crate) struct Step {
    pub kind: StepKind,
    pub turns: Turns,
    pub location: Line,
}

/// In which turns of a run's loop a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    All,
    /// It computes values that only outputs need.
    Last,
    /// As the loop of the last step, without the values that only outputs need.
    ButLast,
}

impl Turns {
    /// Returns true for a step that runs in the last turn, or in the others.
    pub fn include(self, last: bool) -> bool {
        match self {
            Turns::All => true,
            Turns::Last => last,
            Turns::ButLast => !last,
        }
    }
}

/// The operation of a step.
pub(crate) enum StepKind {
    Loop(TileProgram),
    /// A loop over one element.
    Scalars(Scalars),
    Gemm {
        plan: Typed<GemmPlan<f32>, GemmPlan<f64>>,
        a: Address,
        b: Address,
        c: Address,
        workspace: Address,
        /// The loop that continues with every piece of the result.
        then: Option<Box<TileProgram>>,
    },
    Conv {
        plan: Typed<ConvPlan<f32>, ConvPlan<f64>>,
        image: Address,
        kernel: Address,
        out: Address,
        workspace: Address,
    },
    Gather {
        rows: IndexDims,
        dtype: DType,
        x: Address,
        indices: Address,
        result: Address,
    },
    ScatterAdd {
        rows: IndexDims,
        dtype: DType,
        /// The table to which rows are added: zeros if there is none; if it is the result, no other row is touched.
        onto: Option<Address>,
        indices: Address,
        updates: Address,
        result: Address,
    },
    WindowArgMax {
        dims: WindowDims,
        sizes: (usize, usize, usize, usize, usize),
        dtype: DType,
        x: Address,
        result: Address,
    },
    CumSum {
        sizes: (usize, usize, usize),
        reverse: bool,
        dtype: DType,
        x: Address,
        result: Address,
    },
    /// The first and the last operand, which are one if there is only one, and the type of the last.
    Block {
        op: BlockOp,
        blocks: Blocks,
        dtype: DType,
        operands: [Address; 2],
        result: Address,
    },
    CheckIndex {
        limit: usize,
        operation: &'static str,
        count: usize,
        indices: Address,
    },
    Host(HostStep),
    Collective(CollectiveStep),
    /// Strided copies, into zeros if a place and its bytes are given.
    Moves {
        zero: Option<(Address, usize)>,
        moves: Vec<Move>,
    },
}

impl Step {
    /// Runs the step.
    ///
    /// # Safety
    /// `memory` must be laid out as the plan says and belong to this run alone.
    pub unsafe fn run(&self, team: &Team, memory: Memory) -> Result<()> {
        // SAFETY: every address is one of the plan's.
        let at = |address: Address| unsafe { memory.at(address) };
        // SAFETY: every place was planned inside the memory for as many elements as the operation touches.
        unsafe {
            match &self.kind {
                StepKind::Scalars(scalars) => scalars.run(memory),
                StepKind::Loop(tile) if tile.tasks == 1 => tile.run_task(memory, 0, 0),
                StepKind::Loop(tile) => {
                    team.run_with(tile.tasks, &|task, worker| tile.run_task(memory, task, worker));
                    tile.combine(memory);
                }
                StepKind::Gemm { plan, a, b, c, workspace, then } => {
                    let (a, b, c, work) = (at(*a), at(*b), at(*c), at(*workspace));
                    let continued = then
                        .as_ref()
                        .map(|tile| move |piece: &Piece, worker: usize| tile.run_piece(memory, piece, worker));
                    let on: Option<Then> = continued.as_ref().map(|f| f as Then);
                    match plan {
                        Typed::F32(plan) => plan.run_then(team, a.cast(), b.cast(), c.cast(), work, on),
                        Typed::F64(plan) => plan.run_then(team, a.cast(), b.cast(), c.cast(), work, on),
                    }
                    if let Some(tile) = then {
                        tile.combine(memory);
                    }
                }
                StepKind::Conv { plan, image, kernel, out, workspace } => {
                    let (x, w, y, work) = (at(*image), at(*kernel), at(*out), at(*workspace));
                    match plan {
                        Typed::F32(plan) => plan.run(team, x.cast(), w.cast(), y.cast(), work),
                        Typed::F64(plan) => plan.run(team, x.cast(), w.cast(), y.cast(), work),
                    }
                }
                StepKind::Gather { rows, dtype, x, indices, result } => with_number!(*dtype, T => {
                    gather::<T>(rows, team, at(*x).cast(), at(*indices).cast(), at(*result).cast(), self.location)
                })?,
                StepKind::ScatterAdd { rows, dtype, onto, indices, updates, result } => with_number!(*dtype, T => {
                    let onto = onto.map(|onto| at(onto).cast_const().cast::<T>());
                    let (indices, updates) = (at(*indices).cast(), at(*updates).cast());
                    scatter_add::<T>(rows, team, onto, indices, updates, at(*result).cast(), self.location)
                })?,
                StepKind::WindowArgMax { dims, sizes, dtype, x, result } => with_number!(*dtype, T => {
                    window_argmax::<T>(team, dims, *sizes, at(*x).cast(), at(*result).cast())
                }),
                StepKind::CumSum { sizes, reverse, dtype, x, result } => with_number!(*dtype, T => {
                    cumsum::<T>(team, *sizes, *reverse, at(*x).cast(), at(*result).cast())
                }),
                StepKind::Block { op, blocks, dtype, operands: [a, b], result } => with_number!(*dtype, T => {
                    run_blocks::<T>(team, *op, *blocks, [at(*a), at(*b)], at(*result))
                }),
                StepKind::CheckIndex { limit, operation, count, indices } => {
                    check_index(at(*indices).cast(), *count, *limit, operation, self.location)?
                }
                StepKind::Host(host) => host.run(memory, self.location)?,
                StepKind::Collective(step) => step.run(memory, self.location)?,
                StepKind::Moves { zero, moves } => {
                    if let Some((start, bytes)) = zero {
                        at(*start).write_bytes(0, *bytes);
                    }
                    moves.iter().for_each(|movement| movement.run(team, memory));
                }
            }
        }
        Ok(())
    }
}

impl Step {
    /// The step in a line.
    pub fn describe(&self) -> String {
        let what = match &self.kind {
            StepKind::Scalars(scalars) => format!("{} scalar operations", scalars.len()),
            StepKind::Loop(tile) => format!(
                "loop over {} in rows of {}, {} tasks, tiles of {} rows, {} instructions, {} loads, {} sinks",
                tile.n,
                tile.row,
                tile.tasks,
                tile.rows_per_tile,
                tile.instructions.len(),
                tile.loads.len(),
                tile.sinks.len()
            ),
            StepKind::Gemm { then: None, .. } => "matrix product".into(),
            StepKind::Gemm { then: Some(tile), .. } => format!(
                "matrix product and, on each of {} pieces, {} instructions, {} loads, {} sinks",
                tile.tasks,
                tile.instructions.len(),
                tile.loads.len(),
                tile.sinks.len()
            ),
            StepKind::Conv { .. } => "convolution".into(),
            StepKind::Gather { rows, .. } => format!("gather {rows:?}"),
            StepKind::ScatterAdd { rows, onto, result, .. } if *onto == Some(*result) => {
                format!("scatter-add {rows:?}, in place")
            }
            StepKind::ScatterAdd { rows, .. } => format!("scatter-add {rows:?}"),
            StepKind::WindowArgMax { sizes, .. } => format!("window argmax {sizes:?}"),
            StepKind::CumSum { sizes, .. } => format!("running sum {sizes:?}"),
            StepKind::Host(host) => host.describe(),
            StepKind::Collective(step) => step.describe(),
            StepKind::Block { op, blocks, .. } => format!("{} of {} blocks", op.name(), blocks.count),
            StepKind::CheckIndex { count, .. } => format!("index check of {count}"),
            StepKind::Moves { moves, .. } => format!("{} strided copies", moves.len()),
        };
        format!("{what} ({})", self.location.short())
    }
}
