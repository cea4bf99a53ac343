//! Loops that carry values: every order in which old and new values can be read.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{DType, Graph, Result, Tensor, nn};

/// Outputs and carries of a program on a, b, c of one shape.
struct Loop {
    outputs: Vec<Tensor>,
    carries: Vec<(Tensor, Tensor)>,
}

type Build = fn(&Graph, Tensor, Tensor, Tensor) -> Loop;

/// A number of a row for each row, of which several may be the same.
fn places(x: Tensor) -> Tensor {
    (x.index(1, 0) * 3.0).convert(DType::I32).maximum(0.0).minimum((x.dim(0) - 1) as f64)
}

fn loops() -> Vec<(&'static str, Build)> {
    [elementwise(), reduced(), indexed()].concat()
}

/// Elements of old and new values.
fn elementwise() -> Vec<(&'static str, Build)> {
    vec![
        ("two values change places", |_, a, b, _| Loop { outputs: vec![a - b], carries: vec![(a, b), (b, a)] }),
        ("three values go round", |_, a, b, c| Loop { outputs: vec![], carries: vec![(a, b), (b, c), (c, a)] }),
        ("each reads the other backwards", |_, a, b, _| Loop {
            outputs: vec![a, b.reverse([0])],
            carries: vec![(a, a * 0.5 + b.reverse([0, 1])), (b, b * 0.5 - a.reverse([0, 1]))],
        }),
        ("old and new are both read elsewhere", |_, a, b, _| {
            let next = a * 0.5 + b;
            Loop {
                outputs: vec![a.sum([0]), next.reverse([1]).sin(), next.sum([1]), a.max([1]), a.transpose([1, 0])],
                carries: vec![(a, next)],
            }
        }),
        ("a delay line", |_, a, b, c| Loop { outputs: vec![c * 2.0], carries: vec![(a, a.cos()), (b, a), (c, b)] }),
        ("momentum", |_, a, b, c| {
            let slope = (a * c).cos() * c;
            let speed = b * 0.9 + slope;
            Loop { outputs: vec![slope], carries: vec![(b, speed), (a, a - speed * 0.1)] }
        }),
        ("momentum, the other way round", |_, a, b, c| {
            let speed = b * 0.9 + (a * c).cos();
            Loop { outputs: vec![], carries: vec![(a, a - speed * 0.1), (b, speed)] }
        }),
        ("the old value alone feeds the other", |_, a, b, _| Loop {
            outputs: vec![],
            carries: vec![(a, a * 0.5 + 1.0), (b, b + a.sum_all() * 1e-3)],
        }),
        ("the new value feeds the other", |_, a, b, _| {
            let next = a * 0.5 + 1.0;
            Loop {
                outputs: vec![],
                carries: vec![(a, next), (b, b * 0.5 + next.mean([0]) - a.mean([1]).unsqueeze([1]))],
            }
        }),
    ]
}

/// Rows, columns, products and running sums of old and new values.
fn reduced() -> Vec<(&'static str, Build)> {
    vec![
        ("rows are made of the old value", |_, a, b, _| Loop {
            outputs: vec![a.sum([1])],
            carries: vec![(a, nn::softmax(a + b, 1)), (b, b - b.mean([1]).unsqueeze([1]))],
        }),
        ("columns are made of the old value", |_, a, b, _| Loop {
            outputs: vec![],
            carries: vec![(a, a - a.mean([0])), (b, nn::softmax(b, 0))],
        }),
        ("a shift register", |_, a, b, _| {
            let rows = a.dim(0);
            let shifted = a.slice(0, 1, rows).concat(&[b.slice(0, 0, 1)], 0);
            Loop { outputs: vec![shifted], carries: vec![(a, shifted), (b, b.slice(0, 1, rows).pad(0, 0, 1))] }
        }),
        ("one next value for two", |_, a, b, c| {
            let next = a * b + c;
            Loop { outputs: vec![next], carries: vec![(a, next), (b, next)] }
        }),
        ("next values that nothing computes", |_, a, b, c| Loop {
            outputs: vec![a, b, c],
            carries: vec![(a, a.constant_like(0.5, a.shape())), (b, a.iota_like(1)), (c, c)],
        }),
        ("an input that stays", |_, a, b, c| Loop { outputs: vec![a], carries: vec![(a, c), (b, c.reverse([0]))] }),
        ("a value of the prologue", |_, a, b, c| {
            let once = c.sin() + c.sum([0]);
            Loop { outputs: vec![once], carries: vec![(a, once), (b, b + once.reverse([1]))] }
        }),
        ("products of old and new", |_, a, b, _| {
            let next = a.matmul(a.t()).matmul(b) * 1e-3;
            let back = b.matmul(next.t()).matmul(a) * 1e-3;
            Loop { outputs: vec![], carries: vec![(a, next + a * 0.1), (b, back - b.reverse([0]))] }
        }),
        ("running sums of the old value", |_, a, b, _| Loop {
            outputs: vec![a.cumsum(0) * 1e-2],
            carries: vec![(a, a.cumsum(1) * 1e-2), (b, a + b.cumsum(0) * 1e-2)],
        }),
        ("the new value is known early and the old one read late", |_, a, b, c| {
            let next = a * 0.5 + b.sin();
            let late = ((next.cumsum(0) * 1e-2).cumsum(1) * a).cumsum(0) * 1e-2;
            Loop { outputs: vec![late], carries: vec![(a, next), (c, c * 0.9 + late.cumsum(1) * 1e-2)] }
        }),
        ("what is only added up is known late", |g, a, b, c| {
            // Both halves of a step ask for its number.
            let number = || g.step().convert(a.dtype()).broadcast([], a.shape());
            let sign = a.sign();
            let next = a * 0.5 + sign * 0.1 + (a + b).cumsum(0) * 1e-2 + number() * 0.01;
            let late = (next.cumsum(0) * 1e-2).cumsum(1) * sign + number().sin();
            Loop { outputs: vec![late.sum([1])], carries: vec![(a, next), (c, c * 0.9 + late.cumsum(1) * 1e-2)] }
        }),
    ]
}

/// Rows of tables, and choices.
fn indexed() -> Vec<(&'static str, Build)> {
    vec![
        ("a row of a table gives way to another", |_, a, b, c| {
            let at = places(b).index(0, 0);
            let (old, mean) = (a.take(at), a.mean([0]));
            let new = c.index(0, 0) + mean.sin();
            let next = a + (new - old).scatter_add(at, 0, a.dim(0));
            Loop { outputs: vec![new - old + mean], carries: vec![(a, next), (b, b.reverse([0]) * 0.9)] }
        }),
        ("rows are added to two tables by the same numbers", |_, a, b, c| {
            let (at, rows) = (places(b), a.dim(0));
            let (first, second) = (b.cos().scatter_add(at, 0, rows), (a + c).sin().scatter_add(at, 0, rows));
            Loop { outputs: vec![], carries: vec![(a, a + first), (c, second + c), (b, b * 0.9)] }
        }),
        ("a table with rows added is read with what it was", |_, a, b, c| {
            let next = a + c.scatter_add(places(b), 0, a.dim(0));
            Loop { outputs: vec![(a * next.reverse([0])).sum([1])], carries: vec![(a, next), (b, b * 0.9)] }
        }),
        ("a table with rows added is an output and what another becomes", |_, a, b, c| {
            let next = c.scatter_add(places(b), 0, a.dim(0)) + a;
            let outputs = vec![next, next.reverse([1]), next.sum([0]), a];
            Loop { outputs, carries: vec![(b, next), (a, next)] }
        }),
        ("rows of a table are added to the table", |_, a, b, _| Loop {
            outputs: vec![],
            carries: vec![(a, a + a.scatter_add(places(b), 0, a.dim(0))), (b, b * 0.9)],
        }),
        ("numbers are added within rows", |_, a, b, c| {
            let at = (b * 3.0).convert(DType::I32).maximum(0.0).minimum((b.dim(1) - 1) as f64);
            Loop { outputs: vec![a], carries: vec![(a, a + c.scatter_add(at, 1, a.dim(1))), (b, b * 0.9)] }
        }),
        ("a choice by the old value", |_, a, b, _| {
            let mask = a.less(b);
            Loop { outputs: vec![mask], carries: vec![(a, mask.select(b, a * 0.5)), (b, mask.select(a, b * 0.5))] }
        }),
        ("masks made again for each reader", |_, a, b, _| {
            let mask = a.greater(0.1);
            let next = mask.select(a * 0.5, a + 0.3);
            Loop {
                outputs: vec![mask.sum([0]), mask.transpose([1, 0])],
                carries: vec![(a, next), (b, b * mask + next)],
            }
        }),
    ]
}

/// A program for every way to carry, of values of shape `[rows, columns]`, in four steps.
///
/// ```
/// use bilevel_graph::{DType, Reference, conformance};
/// for case in conformance::carries(2, 3, DType::F64)? {
///     case.check(&Reference)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn carries(rows: usize, columns: usize, dtype: DType) -> Result<Vec<Case>> {
    let mut cases = vec![];
    for (name, build) in loops() {
        let mut case = CaseBuilder::new(rows as u64);
        let mut input = |name| case.input(name, [rows, columns], dtype);
        let (a, b, c) = (input("a")?, input("b")?, input("c")?);
        let made = build(&case.g, a, b, c);
        let near = tolerance(dtype).min(1e-5);
        case.outputs(made.outputs, near);
        made.carries.into_iter().for_each(|(input, next)| case.carry(input, next, near));
        cases.push(case.build(format!("{name}, [{rows}, {columns}] of {dtype}"), 4)?);
    }
    Ok(cases)
}
