//! The second pass of reductions: combines partial results.
//!
//! y\[k\] = ⊕ₚ x\[p·K + k\],   p < P, k < K
//!
//! Reductions with equal numbers of parts and results share a kernel, with a row of blocks each.

use crate::codegen::kernel::{Code, Launch, c_type};
use crate::codegen::limits::WARP;
use crate::codegen::renderer::Dialect;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::Place;

/// The partial results of one reduction.
#[derive(Clone, Copy, Debug)]
pub struct Partial {
    /// The operator.
    pub op: ReduceOp,
    /// Their address and type. Those of one part are contiguous.
    pub from: (Place, DType),
    /// The address and type of the result.
    pub to: (Place, DType),
    /// Results per part.
    pub kept: usize,
    /// Number of parts.
    pub parts: usize,
}

impl Partial {
    /// Returns true if one kernel can combine both.
    fn is_like(&self, other: &Partial) -> bool {
        let key = |partial: &Partial| (partial.op, partial.from.1, partial.to.1, partial.kept, partial.parts);
        key(self) == key(other)
    }
}

/// Threads per block, if a block has one result or each thread has its own.
const BLOCK: usize = 128;
/// Results per block if several threads share each; with fewer results, each has a block.
const SIDE: usize = 32;
/// The maximum number of reductions per kernel.
const MAX_TERMS: usize = 16;

/// Returns the number of threads that share a result if there are many, so that none combines many parts in sequence.
fn deep(parts: usize) -> usize {
    match parts {
        0..=4 => 1,
        5..=64 => 8,
        _ => WARP,
    }
}

/// Returns the kernels that combine these, equal ones together.
pub fn folds(dialect: Dialect, partials: &[Partial]) -> Vec<Launch> {
    let mut alike: Vec<Vec<Partial>> = vec![];
    for partial in partials {
        match alike.iter_mut().find(|others| others.len() < MAX_TERMS && others[0].is_like(partial)) {
            Some(others) => others.push(*partial),
            None => alike.push(vec![*partial]),
        }
    }
    alike.iter().map(|partials| fold(dialect, partials)).collect()
}

/// Returns the kernel for reductions of equal size.
fn fold(dialect: Dialect, partials: &[Partial]) -> Launch {
    let Partial { op, from: (_, of), to: (_, dtype), kept, parts } = partials[0];
    let (sum, c) = (c_type(of), c_type(dtype));
    let mut code = Code::new(dialect);
    code.reaches(kept.saturating_mul(parts));
    let sources: Vec<String> = partials.iter().map(|partial| code.input(partial.from.0, of, 0)).collect();
    let targets: Vec<String> = partials.iter().map(|partial| code.output(partial.to.0, dtype, 0)).collect();
    let (results, all) = (code.count(kept as u64), code.count(parts as u64));
    let source = own(&mut code, sum, "from", &sources);
    let target = own(&mut code, c, "to", &targets);
    let join = code.join(op, "s", format!("{source}[p * {results} + k]"));
    let over_parts = |first: &str, step: usize| format!("for (U p = {first}; p < {all}; p += {step}) s = {join};");
    let (first, thread, block) = (code.first(op, sum), code.thread(), code.block());
    code.line(format!("{sum} s = {first};"));
    let (blocks, block) = match (kept, deep(parts)) {
        (0..SIDE, _) => {
            code.line(format!("const U k = {block};"));
            code.line(over_parts(thread, BLOCK));
            let all = code.across(op, BLOCK, "s");
            code.line(format!("s = {all};"));
            code.line(format!("if ({thread} == 0) {target}[k] = ({c})s;"));
            (kept, BLOCK)
        }
        (_, 1) => {
            code.line(format!("const U k = (U){block} * {BLOCK} + {thread};"));
            code.line(format!("if (k >= {results}) return;"));
            code.line(over_parts("0", 1));
            code.line(format!("{target}[k] = ({c})s;"));
            (kept.div_ceil(BLOCK), BLOCK)
        }
        (_, deep) => {
            // Adjacent threads read adjacent elements; afterwards the threads of a result become adjacent.
            code.line(format!("const U k = (U){block} * {SIDE} + {thread} % {SIDE};"));
            code.line(format!("if (k < {results}) {{"));
            code.line("#pragma unroll 4");
            code.line(over_parts(&format!("{thread} / {SIDE}"), deep));
            code.line("}");
            code.shared(format!("{sum} shared[{deep}][{}]", SIDE + 1));
            code.line(format!("shared[{thread} / {SIDE}][{thread} % {SIDE}] = s;"));
            code.barrier();
            let all = code.across(op, deep, format!("shared[{thread} % {deep}][{thread} / {deep}]"));
            code.line(format!("s = {all};"));
            code.line(format!("const U at = (U){block} * {SIDE} + {thread} / {deep};"));
            code.line(format!("if ({thread} % {deep} == 0 && at < {results}) {target}[at] = ({c})s;"));
            (kept.div_ceil(SIDE), SIDE * deep)
        }
    };
    code.launch([blocks, partials.len()], block as u32)
}

/// Returns the pointer of a block's reduction, selected if there are several.
fn own(code: &mut Code, c: &str, name: &str, pointers: &[String]) -> String {
    let [others @ .., last] = pointers else { return String::new() };
    if others.is_empty() {
        return last.clone();
    }
    let row = code.block_row();
    let choice: String =
        others.iter().enumerate().map(|(number, pointer)| format!("{row} == {number} ? {pointer} : ")).collect();
    code.line(format!("{c}* const {name} = {choice}{last};"));
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostCpp;
    use bilevel_plan::Region;

    fn partial(op: ReduceOp, kept: usize, parts: usize, offset: usize) -> Partial {
        let place = |offset| Place { region: Region::Arena, offset };
        Partial { op, from: (place(offset), DType::F32), to: (place(offset + 1024), DType::F32), kept, parts }
    }

    #[test]
    fn equal_reductions_share_a_second_pass_whose_text_does_not_depend_on_the_number_of_parts() {
        let of = |parts| {
            let sums = [0, 1, 2].map(|number| partial(ReduceOp::Sum, 768, parts, number * 4096));
            let maximum = partial(ReduceOp::Max, 768, parts, 8 * 4096);
            folds(&HostCpp, &[sums[0], maximum, sums[1], sums[2]])
        };
        let launches = of(24);
        let grids: Vec<_> = launches.iter().map(|launch| (launch.grid, launch.kernel.block)).collect();
        assert_eq!(grids, [([24, 3], 256), ([24, 1], 256)]);
        assert_eq!(of(21)[0].kernel, launches[0].kernel);
        assert_eq!(of(400)[0].kernel.block, 1024);
    }

    #[test]
    fn more_than_a_kernel_takes_are_folded_by_several() {
        let many: Vec<Partial> = (0..20).map(|number| partial(ReduceOp::Sum, 1, 100, number * 4096)).collect();
        let grids: Vec<_> = folds(&HostCpp, &many).iter().map(|launch| launch.grid).collect();
        assert_eq!(grids, [[1, 16], [1, 4]]);
    }
}
