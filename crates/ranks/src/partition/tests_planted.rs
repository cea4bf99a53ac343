//! Wrong rules, planted one by one: the results of ranks must give each away.

use crate::Threads;
use crate::partition::analysis::analyse;
use crate::partition::arrange::arrange;
use crate::partition::emit::emit;
use crate::partition::placement::{Owned, Placement};
use crate::partition::rules::Way;
use bilevel_graph::conformance::{Dice, outputs};
use bilevel_graph::{
    Array, BinaryOp, ConvDims, DType, Graph, Op, Port, Program, ReduceOp, Reference, Result, Tensor, UnaryOp,
};

const RANKS: usize = 2;

/// A program of x `[4, 4]`, whose rows are shared out, and w `[4, 4]`.
fn program(build: impl FnOnce(Tensor, Tensor) -> Tensor) -> Program {
    let g = Graph::without_simplification();
    let x = g.input("x", [4, 4], DType::F64).over_ranks(0);
    let w = g.input("w", [4, 4], DType::F64);
    let y = build(x, w);
    Program::builder(&g).output("y", y).keep_input(x).keep_input(w).build().unwrap()
}

fn inputs() -> Vec<(String, Array)> {
    let mut dice = Dice::new(11);
    ["x", "w"].map(|name| (name.to_string(), dice.array(&[4, 4], DType::F64).unwrap())).into()
}

/// What rank 1 finds with the ways of an analysis changed by a plant.
fn found(program: &Program, plant: impl Fn(&Op, &mut Way) + Sync) -> Result<Vec<Array>> {
    let work = |link| -> Result<Vec<Array>> {
        let whole = |ports: &[Port]| vec![Placement::Replicated; ports.len()];
        let owned = Owned { inputs: whole(&program.inputs), outputs: whole(&program.outputs) };
        let mut analysis = analyse(program, RANKS, &owned);
        program.nodes.iter().zip(&mut analysis.ways).for_each(|(node, way)| plant(&node.op, way));
        let local = arrange(emit(program, &analysis, &link, &owned)?);
        local.validate()?;
        outputs(&Reference, &local, &inputs(), 1)
    };
    Threads::run(RANKS, work).swap_remove(1)
}

/// Returns true if the results are those of one rank.
fn is_right(program: &Program, plant: impl Fn(&Op, &mut Way) + Sync) -> bool {
    let expected = outputs(&Reference, program, &inputs(), 1).unwrap();
    let near = |a: &Array, b: &Array| a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-12);
    found(program, plant).is_ok_and(|found| found.iter().zip(&expected).all(|(a, b)| near(a, b)))
}

#[track_caller]
fn gives_away(program: &Program, plant: impl Fn(&Op, &mut Way) + Sync) {
    assert!(is_right(program, |_, _| ()), "wrong without a plant: {}", program.dump(false));
    assert!(!is_right(program, plant), "the plant is not seen: {}", program.dump(false));
}

/// Calls a sum of terms whole.
fn forgets_the_sum(is: fn(&Op) -> bool) -> impl Fn(&Op, &mut Way) + Sync {
    move |op, way| {
        if is(op) && way.result.is_partial() {
            way.result = Placement::Replicated;
        }
    }
}

/// Computes an operation on rows as if it did not mix them.
fn keeps_rows(is: fn(&Op) -> bool) -> impl Fn(&Op, &mut Way) + Sync {
    move |op, way| {
        if is(op) {
            let rows = Placement::sharded(0, &[2, 2].into());
            *way = Way { operands: vec![rows.clone(); way.operands.len()], result: rows, is_maximum: false };
        }
    }
}

/// Rows of x go to rows 0, 2, 0, 2 of the result.
fn scattered(x: Tensor, _: Tensor) -> Tensor {
    let rows = x.sum([1]).iota_like(0);
    let places = (rows - (rows * 0.5).floor() * 2.0) * 2.0;
    x.scatter_add(places.convert(DType::I32), 0, 4)
}

/// Windows of 2 by 2 over one image, whose rows of x are its channels, or its batch.
fn convolved(x: Tensor, w: Tensor, channels: bool) -> Tensor {
    let image = if channels { x.reshape([1, 4, 2, 2]) } else { x.reshape([4, 1, 2, 2]) };
    let kernel = if channels { w.reshape([1, 4, 2, 2]) } else { w.reshape([4, 1, 2, 2]) };
    image.conv(
        kernel,
        ConvDims { stride: [1; 2], padding: [(0, 0); 2], image_dilation: [1; 2], kernel_dilation: [1; 2], groups: 1 },
    )
}

#[test]
fn a_sum_that_is_forgotten() {
    gives_away(&program(|x, _| x.sum([0])), forgets_the_sum(|op| matches!(op, Op::Reduce(..))));
    gives_away(&program(|x, w| x.t().matmul(w)), forgets_the_sum(|op| matches!(op, Op::Dot(..))));
    gives_away(&program(scattered), forgets_the_sum(|op| matches!(op, Op::ScatterAdd { .. })));
    gives_away(&program(|x, w| convolved(x, w, true)), forgets_the_sum(|op| matches!(op, Op::Conv(..))));
}

#[test]
fn a_maximum_of_one_rank() {
    gives_away(&program(|x, _| x.max([0])), |_, way| way.is_maximum = false);
    gives_away(&program(|x, _| x.max([0])), |op, way| {
        if matches!(op, Op::Reduce(ReduceOp::Max, _)) {
            (way.is_maximum, way.result) = (false, Placement::Partial);
        }
    });
}

#[test]
fn an_operation_that_mixes_rows_and_is_computed_as_if_it_did_not() {
    type Selects = fn(&Op) -> bool;
    let cases: [(Program, Selects); 8] = [
        (program(|x, _| x.reverse([0])), |op| matches!(op, Op::Reverse(_))),
        (program(|x, _| x.cumsum(0)), |op| matches!(op, Op::CumSum { .. })),
        (program(|x, _| x.argsort(0)), |op| matches!(op, Op::Block(_) | Op::Transpose(_))),
        (program(|x, _| x.t()), |op| matches!(op, Op::Transpose(_))),
        (program(|x, _| x.take(x.sum([1]).iota_like(0).convert(DType::I32).reverse([0]))), |op| {
            matches!(op, Op::Gather { .. })
        }),
        (program(|x, w| x.matmul(w)), |op| matches!(op, Op::Dot(..))),
        (program(|x, w| x.concat(&[w], 0).slice(0, 2, 6)), |op| matches!(op, Op::Concat(_) | Op::Slice { .. })),
        (program(|x, _| x.pad(0, 1, 0).slice(0, 0, 4)), |op| matches!(op, Op::Pad { .. } | Op::Slice { .. })),
    ];
    for (program, is) in &cases {
        gives_away(program, keeps_rows(*is));
    }
}

#[test]
fn terms_of_a_sum_that_pass_through_what_is_not_linear() {
    let keeps_terms = |is: fn(&Op) -> bool| {
        move |op: &Op, way: &mut Way| {
            if is(op) {
                *way = Way {
                    operands: vec![Placement::Partial; way.operands.len()],
                    result: Placement::Partial,
                    is_maximum: false,
                };
            }
        }
    };
    let is_exp = |op: &Op| matches!(op, Op::Unary(UnaryOp::Exp));
    gives_away(&program(|x, _| x.sum([0]).exp()), keeps_terms(is_exp));
    // The product of two sums is no sum of products.
    let is_product = |op: &Op| matches!(op, Op::Binary(BinaryOp::Mul));
    gives_away(&program(|x, w| x.sum([0]) * (x * w).sum([0])), keeps_terms(is_product));
    // A whole value would be added once for every rank.
    gives_away(&program(|x, w| x.sum([0]) + w.sum([0])), |op, way| {
        if matches!(op, Op::Binary(BinaryOp::Add)) {
            way.operands = vec![Placement::Partial, Placement::Replicated];
            way.result = Placement::Partial;
        }
    });
}

#[test]
fn parts_along_another_axis_than_the_rule_says() {
    let other_axis = |is: fn(&Op) -> bool| {
        move |op: &Op, way: &mut Way| {
            if let (true, Some(at)) = (is(op), way.result.sharding().cloned()) {
                way.result = at.on(1 - at.axis).place();
            }
        }
    };
    gives_away(&program(|x, _| x.t()), other_axis(|op| matches!(op, Op::Transpose(_))));
    gives_away(&program(|x, w| x.matmul(w)), other_axis(|op| matches!(op, Op::Dot(..))));
    gives_away(&program(|x, _| x.reshape([4, 2, 2]).sum([2])), other_axis(|op| matches!(op, Op::Reduce(..))));
    gives_away(&program(|x, w| convolved(x, w, false).reshape([4, 4])), other_axis(|op| matches!(op, Op::Reshape)));
    let spread = |x: Tensor, _: Tensor| x.sum([1]).broadcast([0], [4, 4]);
    gives_away(&program(spread), other_axis(|op| matches!(op, Op::Broadcast(_))));
}
