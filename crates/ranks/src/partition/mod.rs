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

use crate::partition::placement::{Owned, Placement};
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
    let [inputs, outputs] = [program.inputs.len(), program.outputs.len()].map(|ports| vec![false; ports]);
    partition_with_parts(program, link, &inputs, &outputs)
}

/// As [`partition`], for a program whose inputs and outputs are too large for one rank. Of each that is marked, every
/// rank has the part of the first axis given by [`even_parts`]. If such an input is carried, its next value is also a
/// part. A value is gathered only for operations that need all of it.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program};
/// use bilevel_ranks::{Threads, partition_with_parts};
/// let g = Graph::new();
/// let w = g.input("w", [6], DType::F64);
/// let program = Program::builder(&g).output("twice", w * 2.0).output("norm", w.square().sum_all()).build()?;
/// let local = partition_with_parts(&program, &Threads::links(3)[0], &[true], &[true, false])?;
/// assert_eq!((&local.inputs[0].meta.shape[..], &local.outputs[0].meta.shape[..]), (&[2][..], &[2][..]));
/// assert!(!local.dump(false).contains("gather_ranks"));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn partition_with_parts(program: &Program, link: &Link, inputs: &[bool], outputs: &[bool]) -> Result<Program> {
    program.validate()?;
    let place = |(port, &is_part): (&Port, &bool)| -> Result<Placement> {
        match port.meta.shape.first() {
            _ if !is_part || link.size() == 1 => Ok(Placement::Replicated),
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
    let places = |ports: &[Port], parts: &[bool]| ports.iter().zip(parts).map(place).collect::<Result<Vec<_>>>();
    let owned = Owned { inputs: places(&program.inputs, inputs)?, outputs: places(&program.outputs, outputs)? };
    if link.size() == 1 || (program.shards.is_empty() && owned.is_whole()) {
        return Ok(Program { shards: vec![], ..program.clone() });
    }
    let local = emit::emit(program, &analysis::analyse(program, link.size(), &owned), link, &owned)?;
    Ok(arrange::arrange(local))
}
