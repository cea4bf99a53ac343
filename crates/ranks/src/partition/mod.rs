//! From one program, derivatives included, to the program of each rank.
//!
//! Every value has a placement: replicated, sharded along an axis, or the terms of a sum over ranks. Placements follow from the hints of
//! the program ([`Tensor::over_ranks`](bilevel_graph::Tensor::over_ranks)), operation by operation. Because derivatives
//! were taken before, no rule of differentiation depends on ranks, and a program of any order is partitioned by the
//! same rules.

mod analysis;
mod arrange;
mod emit;
mod placement;
mod reshaped;
mod rules;
#[cfg(test)]
mod tests_planted;

use crate::partition::placement::Placement;
use bilevel_graph::{Error, ErrorKind, Link, Port, Program, Result, even_parts};

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
    partition_with_state(program, link, |_| false)
}

/// As [`partition`], for a program with inputs that are too large for one rank. If `is_shared` holds for an input's
/// name, every rank has the part of its first axis given by [`even_parts`]. If such an input is carried, its next value
/// is also a part. It is gathered only for operations that need all of it.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program};
/// use bilevel_ranks::{Threads, partition_with_state};
/// let g = Graph::new();
/// let w = g.input("w", [6], DType::F64);
/// let program = Program::builder(&g).output("norm", w.square().sum_all()).carry(w, w * 0.5).build()?;
/// let local = partition_with_state(&program, &Threads::links(3)[0], |name| name == "w")?;
/// assert_eq!(local.inputs[0].meta.shape, [2]);
/// assert!(!local.dump(false).contains("gather_ranks"));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn partition_with_state(program: &Program, link: &Link, is_shared: impl Fn(&str) -> bool) -> Result<Program> {
    program.validate()?;
    let place = |port: &Port| -> Result<Placement> {
        match port.meta.shape.first() {
            _ if !is_shared(&port.name) || link.size() == 1 => Ok(Placement::Replicated),
            Some(&length) if length >= link.size() => {
                Ok(Placement::sharded(0, &even_parts(length, link.size()).into()))
            }
            _ => {
                let what =
                    format!("'{}' has no first axis of at least {} parts, one for each rank", port.name, link.size());
                Err(Error::new(ErrorKind::Unsupported { what }))
            }
        }
    };
    let owned: Vec<Placement> = program.inputs.iter().map(place).collect::<Result<_>>()?;
    let whole = owned.iter().all(Placement::is_replicated);
    if link.size() == 1 || (program.shards.is_empty() && whole) {
        return Ok(Program { shards: vec![], ..program.clone() });
    }
    let local = emit::emit(program, &analysis::analyse(program, link.size(), &owned), link, &owned)?;
    Ok(arrange::arrange(local))
}
