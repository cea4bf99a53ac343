//! From one program, derivatives included, to the program of each rank.
//!
//! Every value has a placement: replicated, sharded along an axis, or the terms of a sum over ranks. Placements follow from the hints of
//! the program ([`Tensor::over_ranks`](bilevel_graph::Tensor::over_ranks)), operation by operation. Because derivatives were taken before,
//! no rule of differentiation knows of ranks, and a program of any order is partitioned by the same rules.

mod analysis;
mod arrange;
mod emit;
mod placement;
mod reshaped;
mod rules;

use bilevel_graph::{Link, Program, Result};

/// Returns the program of this rank of the link. Inputs, outputs and carries are those of the program, whole on every rank.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program};
/// use bilevel_ranks::{Threads, partition};
/// let g = Graph::new();
/// let x = g.input("x", [8, 3], DType::F64).over_ranks(0);
/// let program = Program::builder(&g).output("sum", x.square().sum_all()).build()?;
/// let local = partition(&program, &Threads::links(2)[1])?.dump(false);
/// assert!(local.contains("slice[4..8, 0..3]") && local.contains("sum_ranks"), "{local}");
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn partition(program: &Program, link: &Link) -> Result<Program> {
    program.validate()?;
    if link.size() == 1 || program.shards.is_empty() {
        return Ok(Program { shards: vec![], ..program.clone() });
    }
    let local = emit::emit(program, &analysis::analyse(program, link.size()), link)?;
    Ok(arrange::arrange(local))
}
