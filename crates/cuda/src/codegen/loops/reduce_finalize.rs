//! The second pass of reductions: the results of their parts become one.
//!
//! y\[k\] = ⊕ₚ x\[p·K + k\],   p < P, k < K
//!
//! What a group leaves is folded by as few kernels as there are numbers of parts and of results: a row of blocks for
//! each reduction.

use crate::codegen::kernel::{Code, Launch, c_type};
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::Place;

/// The results of the parts of one reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    /// What joins two of them.
    pub op: ReduceOp,
    /// Where they are, and their type. Those of one part lie side by side.
    pub from: (Place, DType),
    /// Where the whole result goes, and its type.
    pub to: (Place, DType),
    /// Results of a part.
    pub kept: usize,
    /// Number of parts.
    pub parts: usize,
}

impl Partial {
    /// True if one kernel can fold both.
    fn is_like(&self, other: &Partial) -> bool {
        let key = |partial: &Partial| (partial.op, partial.from.1, partial.to.1, partial.kept, partial.parts);
        key(self) == key(other)
    }
}

/// Threads of a block, where it has one result or each of them has its own.
const BLOCK: usize = 128;
/// Results side by side in a block in which several threads share each; with fewer, each has a block.
const SIDE: usize = 32;
/// Reductions that one kernel folds at most.
const MAX_TERMS: usize = 16;

/// Threads that share a result, where there are many results: so many that none has to wait for many parts in turn.
fn deep(parts: usize) -> usize {
    match parts {
        0..=4 => 1,
        5..=64 => 8,
        _ => 32,
    }
}

/// Folds these, those that are alike together.
pub(crate) fn folds(partials: &[Partial]) -> Vec<Launch> {
    let mut alike: Vec<Vec<Partial>> = vec![];
    for partial in partials {
        match alike.iter_mut().find(|others| others.len() < MAX_TERMS && others[0].is_like(partial)) {
            Some(others) => others.push(*partial),
            None => alike.push(vec![*partial]),
        }
    }
    alike.iter().map(|partials| fold(partials)).collect()
}

/// Folds some that are alike.
fn fold(partials: &[Partial]) -> Launch {
    let Partial { op, from: (_, of), to: (_, dtype), kept, parts } = partials[0];
    let (sum, c) = (c_type(of), c_type(dtype));
    let mut code = Code::default();
    code.reaches(kept.saturating_mul(parts));
    let sources: Vec<String> = partials.iter().map(|partial| code.pointer(partial.from.0, of, 0)).collect();
    let targets: Vec<String> = partials.iter().map(|partial| code.pointer(partial.to.0, dtype, 0)).collect();
    let (results, all) = (code.count(kept as u64), code.count(parts as u64));
    let source = own(&mut code, &format!("{sum}* const from"), &sources);
    let target = own(&mut code, &format!("{c}* const to"), &targets);
    let over_parts = |first: &str, step: usize| {
        format!("for (U p = {first}; p < {all}; p += {step}) s = {op:?}::join(s, {source}[p * {results} + k]);")
    };
    code.line(format!("{sum} s = {op:?}::first<{sum}>();"));
    let (blocks, block) = match (kept, deep(parts)) {
        (0..SIDE, _) => {
            code.line("const U k = blockIdx.x;");
            code.line(over_parts("threadIdx.x", BLOCK));
            code.line(format!("s = across<{op:?}, {BLOCK}>(s);"));
            code.line(format!("if (threadIdx.x == 0) {target}[k] = ({c})s;"));
            (kept, BLOCK)
        }
        (_, 1) => {
            code.line(format!("const U k = (U)blockIdx.x * {BLOCK} + threadIdx.x;"));
            code.line(format!("if (k >= {results}) return;"));
            code.line(over_parts("0", 1));
            code.line(format!("{target}[k] = ({c})s;"));
            (kept.div_ceil(BLOCK), BLOCK)
        }
        (_, deep) => {
            // Threads that are neighbours read neighbours; then those that share a result become neighbours.
            code.line(format!("const U k = (U)blockIdx.x * {SIDE} + threadIdx.x % {SIDE};"));
            code.line(format!("if (k < {results}) {{"));
            code.line("#pragma unroll 4");
            code.line(over_parts(&format!("threadIdx.x / {SIDE}"), deep));
            code.line("}");
            code.line(format!("__shared__ {sum} shared[{deep}][{}];", SIDE + 1));
            code.line(format!("shared[threadIdx.x / {SIDE}][threadIdx.x % {SIDE}] = s;"));
            code.line("__syncthreads();");
            code.line(format!("s = across<{op:?}, {deep}>(shared[threadIdx.x % {deep}][threadIdx.x / {deep}]);"));
            code.line(format!("const U at = (U)blockIdx.x * {SIDE} + threadIdx.x / {deep};"));
            code.line(format!("if (threadIdx.x % {deep} == 0 && at < {results}) {target}[at] = ({c})s;"));
            (kept.div_ceil(SIDE), SIDE * deep)
        }
    };
    code.launch([blocks, partials.len()], block as u32)
}

/// The name of the pointer, of these, that is a block's own, declared so where there are several.
fn own(code: &mut Code, declared: &str, pointers: &[String]) -> String {
    let [others @ .., last] = pointers else { return String::new() };
    if others.is_empty() {
        return last.clone();
    }
    let choice: String =
        others.iter().enumerate().map(|(number, pointer)| format!("blockIdx.y == {number} ? {pointer} : ")).collect();
    code.line(format!("{declared} = {choice}{last};"));
    declared.rsplit(' ').next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_plan::Region;

    fn partial(op: ReduceOp, kept: usize, parts: usize, offset: usize) -> Partial {
        let place = |offset| Place { region: Region::Arena, offset };
        Partial { op, from: (place(offset), DType::F32), to: (place(offset + 1024), DType::F32), kept, parts }
    }

    #[test]
    fn what_is_alike_is_folded_at_once_and_the_text_does_not_depend_on_how_many_parts_there_are() {
        let of = |parts| {
            let sums = [0, 1, 2].map(|number| partial(ReduceOp::Sum, 768, parts, number * 4096));
            let maximum = partial(ReduceOp::Max, 768, parts, 8 * 4096);
            folds(&[sums[0], maximum, sums[1], sums[2]])
        };
        let launches = of(24);
        let grids: Vec<_> = launches.iter().map(|launch| (launch.grid, launch.block)).collect();
        assert_eq!(grids, [([24, 3], 256), ([24, 1], 256)]);
        assert_eq!(of(21)[0].source, launches[0].source);
        assert_eq!(of(400)[0].block, 1024);
    }

    #[test]
    fn more_than_a_kernel_takes_are_folded_by_several() {
        let many: Vec<Partial> = (0..20).map(|number| partial(ReduceOp::Sum, 1, 100, number * 4096)).collect();
        let grids: Vec<_> = folds(&many).iter().map(|launch| launch.grid).collect();
        assert_eq!(grids, [[1, 16], [1, 4]]);
    }
}
