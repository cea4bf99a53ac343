//! Index checks: the operations that can fail at run time. Planning and executors share this definition.

use crate::ir::node::{Elementwise, Kind, Node};
use bilevel_graph::BlockOp;

/// A check of indices: the run fails if one of them is not in `0..limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexCheck {
    /// The operation, as the error names it.
    pub operation: &'static str,
    /// The exclusive upper bound of the indices.
    pub limit: usize,
}

/// Returns the check that a node makes; `None` if it cannot fail, because it has no indices, because they are in range
/// by construction, or because another node checks them.
pub(crate) fn index_check(nodes: &[Node], id: usize) -> Option<IndexCheck> {
    let node = &nodes[id];
    let (indices, operation, limit) = match &node.kind {
        Kind::Gather { batch } => (1, "gather", node.operands[0].at().map_or(0, |(_, table)| table.shape[*batch])),
        Kind::ScatterAdd { batch } => (0, "scatter_add", node.shape[*batch]),
        Kind::InlineGather { limit, checked: true, .. } => (0, "gather", *limit),
        Kind::CheckIndex { limit, operation } => (0, *operation, *limit),
        // Another gather, or a `CheckIndex`, checks the same indices.
        Kind::InlineGather { checked: false, .. } | Kind::AddRows { .. } => return None,
        Kind::Elementwise(
            Elementwise::Copy
            | Elementwise::Unary(_)
            | Elementwise::Binary(_)
            | Elementwise::Select
            | Elementwise::Convert(_)
            | Elementwise::Round(_)
            | Elementwise::ScaleToF16(_)
            | Elementwise::Unscale(_)
            | Elementwise::Random(..),
        )
        | Kind::Input
        | Kind::CarriedCast(_)
        | Kind::Table(_)
        | Kind::Reduce(..)
        | Kind::AmaxExponent
        | Kind::ArgMax
        | Kind::Dot(..)
        | Kind::Conv(..)
        | Kind::WindowArgMax(_)
        | Kind::CumSum { .. }
        | Kind::Host(_)
        | Kind::Collective(_)
        | Kind::Block(_)
        | Kind::Concat(_)
        | Kind::Pad(_)
        | Kind::PadSum(_) => return None,
    };
    let bound = node.operands[indices].at().and_then(|(source, _)| index_bound(&nodes[source]));
    let in_range = bound.is_some_and(|bound| bound <= limit);
    (!in_range).then_some(IndexCheck { operation, limit })
}

/// Returns the exclusive upper bound of a node's values, if they are indices with a range known at planning time.
fn index_bound(node: &Node) -> Option<usize> {
    let (_, operand) = node.operands.first()?.at()?;
    match node.kind {
        Kind::WindowArgMax(_) => {
            // A window that holds nothing but padding has the index 0, even over an empty plane.
            let plane: usize = operand.shape.iter().rev().take(2).product();
            Some(plane.max(1))
        }
        Kind::Block(BlockOp::ArgSort) => operand.shape.last().copied(),
        // The length of the row stands for no update.
        Kind::Block(BlockOp::ScatterArgMax { .. }) => operand.shape.last().map(|length| length + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::conformance::{Inputs, Size, outputs, random_program, varied_program};
    use bilevel_graph::{
        Array, ConvDims, DType, ErrorKind, Graph, HostCall, HostFunction, Meta, Op, Program, RandomKind, Reference,
        Tensor, WindowDims, gradient_or_zeros, nn,
    };

    /// A target with or without inline gathers.
    fn machine(inline_gather: bool) -> Target {
        Target::PLAIN.with(|target| target.can.inline_gather = inline_gather)
    }

    /// The checks of all nodes that a schedule computes.
    fn checks(program: &Program, inline: bool) -> Vec<IndexCheck> {
        let schedule = Schedule::new(program, &machine(inline)).unwrap();
        let members = schedule.groups().iter().flat_map(|group| &group.members);
        members.filter_map(|&id| schedule.index_check(id)).collect()
    }

    /// Returns true if the reference refuses an index after all integer inputs are set to this value.
    fn fails(program: &Program, inputs: &Inputs, value: i32) -> bool {
        let set = |(name, array): &(String, Array)| match array.dtype() {
            DType::I32 => (name.clone(), Array::full(array.shape(), f64::from(value), DType::I32)),
            DType::F32 | DType::F64 => (name.clone(), array.clone()),
        };
        match outputs(&Reference, program, &inputs.iter().map(set).collect(), 1) {
            Ok(_) => false,
            Err(error) if matches!(error.kind, ErrorKind::IndexOutOfRange { .. }) => true,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_program_with_overlapping_max_pools_has_no_check() {
        let g = Graph::new();
        let x = g.input("x", [2, 3, 9, 9], DType::F32);
        let pool = nn::Pool2d { stride: [2, 2], padding: [1, 1], ..nn::Pool2d::of([3, 3]) };
        let loss = nn::max_pool2d(x, pool).square().sum_all();
        let slope = gradient_or_zeros(loss, &[x]).unwrap()[0];
        let program = Program::builder(&g).output("loss", loss).carry(x, x - slope).build().unwrap();
        let is_indexed = |op: &Op| matches!(op, Op::Gather { .. } | Op::ScatterAdd { .. });
        assert!(program.nodes.iter().filter(|node| is_indexed(&node.op)).count() >= 2);
        assert_eq!(checks(&program, false), []);
        assert_eq!(checks(&program, true), []);
    }

    #[test]
    fn an_index_of_a_window_is_checked_if_the_table_is_smaller_than_the_plane() {
        let program = |rows: usize| {
            let g = Graph::new();
            let (x, table) = (g.input("x", [4, 4], DType::F64), g.input("table", [rows, 9], DType::F64));
            let at = x.window_argmax(WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 0); 2] });
            let program = Program::builder(&g).output("y", table.take(at)).build().unwrap();
            // The largest element of the last window is the last of the plane.
            let x = Array::from_f64([4, 4], (0..16).map(f64::from).collect()).unwrap();
            (program, vec![("x".into(), x), ("table".into(), Array::zeros([rows, 9], DType::F64))])
        };
        for (rows, can_fail) in [(16, false), (15, true)] {
            let (program, inputs) = program(rows);
            assert_eq!(fails(&program, &inputs, 0), can_fail);
            let expected = can_fail.then_some(IndexCheck { operation: "gather", limit: rows });
            assert_eq!(checks(&program, false), Vec::from_iter(expected));
        }
    }

    const PRIMITIVES: usize = 27;

    /// The number of a primitive. A new one needs a program in [`programs`].
    fn number(op: &Op) -> usize {
        match op {
            Op::Input(_) => 0,
            Op::Constant(_) => 1,
            Op::Iota(_) => 2,
            Op::Random(..) => 3,
            Op::Unary(_) => 4,
            Op::Binary(_) => 5,
            Op::Select => 6,
            Op::Convert(_) => 7,
            Op::CheckIndex(_) => 8,
            Op::StopGradient => 9,
            Op::Reshape => 10,
            Op::Transpose(_) => 11,
            Op::Broadcast(_) => 12,
            Op::Slice { .. } => 13,
            Op::Pad { .. } => 14,
            Op::Concat(_) => 15,
            Op::Reverse(_) => 16,
            Op::Reduce(..) => 17,
            Op::ArgMax(_) => 18,
            Op::Dot(..) => 19,
            Op::Conv(..) => 20,
            Op::Gather { .. } => 21,
            Op::ScatterAdd { .. } => 22,
            Op::WindowArgMax(_) => 23,
            Op::CumSum { .. } => 24,
            Op::Block(_) => 25,
            Op::Host(_) => 26,
            Op::Custom(_) => unreachable!("a program has its value in its place"),
            Op::Collective(_) => unreachable!("there is one rank"),
        }
    }

    /// x·i, computed by the host.
    struct Products;

    impl HostFunction for Products {
        fn name(&self) -> &str {
            "products"
        }

        fn result(&self, operands: &[&Meta]) -> std::result::Result<Meta, String> {
            Ok(operands[0].clone())
        }

        fn evaluate(&self, operands: &[&[f64]], result: &mut [f64]) -> std::result::Result<(), String> {
            let products = operands[0].iter().zip(operands[1]).map(|(x, i)| x * i);
            result.iter_mut().zip(products).for_each(|(result, product)| *result = product);
            Ok(())
        }

        fn pullback(&self, _: &[Tensor], _: Tensor, _: usize) -> std::result::Result<Option<Tensor>, String> {
            Ok(None)
        }
    }

    /// Programs that use each primitive, with every integer operand a program input if its type allows it.
    fn programs() -> Vec<(Program, Inputs)> {
        type Make = fn(&Graph, Tensor, Tensor) -> Tensor;
        // From a graph, floats `[3, 4]` and integers `[3, 4]`.
        let makes: [Make; 29] = [
            |g, x, _| x + g.constant(2.0, [3, 4], DType::F64),
            |g, _, i| i + g.iota([3, 4], 1, DType::I32),
            |_, _, i| {
                i.slice(0, 0, 1).slice(1, 0, 2).reshape([2]).random(
                    i.index(0, 0).index(0, 0),
                    RandomKind::Normal,
                    0,
                    [5],
                    DType::F64,
                )
            },
            |_, x, _| x.exp(),
            |_, x, i| x + i.convert(DType::F64),
            |_, x, i| i.select(x, x.exp()),
            |_, _, i| i.convert(DType::F64),
            |_, _, i| i.check_index(3),
            |_, x, _| x.stop_gradient(),
            |_, _, i| i.reshape([12]),
            |_, _, i| i.t(),
            |_, _, i| i.broadcast([1, 2], [2, 3, 4]),
            |_, _, i| i.slice(1, 1, 3),
            |_, _, i| i.pad(0, 1, 2),
            |_, _, i| i.concat(&[i], 0),
            |_, _, i| i.reverse([1]),
            |_, _, i| i.sum([1]),
            |_, _, i| i.max([0]),
            |_, _, i| i.argmax(1),
            |_, x, _| x.matmul(x.t()),
            |g, x, _| {
                let dims = ConvDims::default();
                x.reshape([1, 1, 3, 4]).conv(g.constant(1.0, [1, 1, 2, 2], DType::F64), dims)
            },
            |_, x, i| x.gather(i, 1),
            |_, x, i| x.take(i.index(0, 0)).sum([1]),
            |_, x, i| x.scatter_add(i, 1, 5),
            |_, _, i| i.window_argmax(WindowDims { size: [2, 2], stride: [1, 1], padding: [(0, 0); 2] }),
            |_, _, i| i.cumsum(1),
            |_, x, _| x.matmul(x.t()).cholesky(),
            |_, x, i| HostCall::new(Products).of(&[x, i]),
            |_, x, i| x + x.slice(0, 0, 1).scatter_add(i.slice(0, 0, 1).slice(1, 0, 1).reshape([1]), 0, 3),
        ];
        let programs = makes.into_iter().map(|make| {
            let g = Graph::without_simplification();
            let (x, i) = (g.input("x", [3, 4], DType::F64), g.input("i", [3, 4], DType::I32));
            let y = make(&g, x, i);
            // As the next value of a carried input, a sum with a scatter becomes rows added in place.
            let builder = Program::builder(&g).output("y", y);
            let builder = if y.shape() == x.shape() && y.dtype() == x.dtype() { builder.carry(x, y) } else { builder };
            let inputs: Inputs = vec![
                ("x".into(), Array::full([3, 4], 0.5, DType::F64)),
                ("i".into(), Array::zeros([3, 4], DType::I32)),
            ];
            (builder.build().unwrap(), inputs)
        });
        programs.collect()
    }

    #[test]
    fn a_primitive_has_a_check_if_and_only_if_the_reference_fails_on_an_index_out_of_range() {
        let mut seen = [false; PRIMITIVES];
        let mut failing = vec![];
        for (program, inputs) in programs() {
            program.nodes.iter().for_each(|node| seen[number(&node.op)] = true);
            assert!(!fails(&program, &inputs, 0), "{program}");
            for wrong in [-1, 1000] {
                let expected = fails(&program, &inputs, wrong);
                assert_eq!(!checks(&program, false).is_empty(), expected, "{program}");
                assert_eq!(!checks(&program, true).is_empty(), expected, "{program}");
                failing.extend(expected.then(|| program.nodes.last().map(|node| number(&node.op))));
            }
        }
        assert_eq!(seen, [true; PRIMITIVES]);
        assert_eq!(failing.len(), 2 * 5, "index check, two gathers, two scatters: {failing:?}");
    }

    #[test]
    fn a_random_program_that_fails_on_an_index_has_a_check() {
        let mut failing = 0;
        for seed in 0..40 {
            let g = Graph::new();
            let case = match seed % 2 {
                0 => random_program(seed, &g, DType::F64, Size::small),
                _ => varied_program(seed, &g, DType::F64, Size::small),
            };
            let case = case.unwrap();
            let fails = [-1, 1000].into_iter().any(|wrong| fails(&case.program, &case.inputs, wrong));
            if fails {
                failing += 1;
                assert!(!checks(&case.program, false).is_empty(), "{}", case.name);
                assert!(!checks(&case.program, true).is_empty(), "{}", case.name);
            }
        }
        assert!(failing > 3, "{failing}");
    }
}
