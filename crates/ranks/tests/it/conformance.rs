//! The conformance suite of executors, shared out over ranks at random axes of random values.

use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{Case, Dice, agree, cases, primitives};
use bilevel_graph::{Array, BlockOp, DType, Executor, Op, Precision, Reference, Shard};
use bilevel_ranks::{Ranks, Threads, partition};
use std::collections::BTreeMap;

/// The cases with hints: the first axis of every input, or random axes of random values.
fn hinted(cases: Vec<Case>, mut dice: Option<Dice>) -> Vec<Case> {
    let with_hints = |mut case: Case| {
        let nodes = case.program.nodes.iter().enumerate().filter(|(_, node)| !node.meta.shape.is_empty());
        let hint = |(node, of): (usize, &bilevel_graph::ProgramNode)| match &mut dice {
            None => matches!(of.op, Op::Input(_)).then_some(Shard { node, axis: 0 }),
            Some(dice) => (dice.below(3) == 0).then(|| Shard { node, axis: dice.below(of.meta.shape.len()) }),
        };
        case.program.shards = nodes.filter_map(hint).collect();
        // Each rank's terms of a product are rounded, where one rank rounds their sum.
        if rounds_results(&case) {
            let errors = rounding_errors(&case);
            case.tolerances.iter_mut().zip(errors).for_each(|(t, error)| *t = t.max(4.0 * error));
        }
        case
    };
    cases.into_iter().filter(|case| !(rounds_results(case) && chooses(case))).map(with_hints).collect()
}

fn rounds_results(case: &Case) -> bool {
    let of_product = |op: &Op| match op {
        Op::Dot(_, precision) | Op::Conv(_, _, precision) => precision.rounds_results(),
        _ => false,
    };
    case.program.nodes.iter().any(|node| of_product(&node.op))
}

/// True if a result may be the number of the largest element: which of two near ones it is, another rounding decides.
fn chooses(case: &Case) -> bool {
    case.program
        .nodes
        .iter()
        .any(|node| matches!(node.op, Op::ArgMax(_) | Op::WindowArgMax(_) | Op::Block(BlockOp::ArgSort)))
}

/// How far the results of one rank are from those without rounded products, relative to the largest, and at least one unit.
fn rounding_errors(case: &Case) -> Vec<f64> {
    let mut full = case.clone();
    for node in &mut full.program.nodes {
        if let Op::Dot(_, precision) | Op::Conv(_, _, precision) = &mut node.op {
            *precision = Precision::Full;
        }
    }
    let error = |(rounded, full): (&Array, &Array)| {
        let (rounded, full) = (rounded.to_f64(), full.to_f64());
        let apart = rounded.iter().zip(&full).map(|(a, b)| (a - b).abs()).filter(|off| off.is_finite());
        let largest = rounded.iter().filter(|x| x.is_finite()).fold(1.0f64, |most, x| most.max(x.abs()));
        (apart.fold(0.0, f64::max) / largest).max(Precision::Bf16.unit())
    };
    case.expected().unwrap().iter().zip(&full.expected().unwrap()).map(error).collect()
}

/// Runs every case on so many ranks, and compares each rank's results with those of the reference on one.
fn check(cases: &[Case], ranks: usize, executor: &(dyn Executor + Sync)) {
    for case in cases {
        let expected = case.expected().unwrap();
        let found = Threads::run(ranks, |link| case.run(&Ranks::new(executor, link)));
        for (rank, found) in found.into_iter().enumerate() {
            let agrees = found
                .and_then(|found| agree(&found, &expected, &case.tolerances).map_err(|mismatch| case.failed(mismatch)));
            if let Err(failure) = agrees {
                panic!("rank {rank} of {ranks}: {failure}\n{}", case.program.dump(false));
            }
        }
    }
}

#[test]
fn inputs_shared_out_by_rows_give_what_one_rank_computes() {
    let cases = hinted(cases(0..1).unwrap(), None);
    for ranks in [1, 2, 4] {
        check(&cases, ranks, &Cpu::with_threads(1));
    }
}

#[test]
fn values_shared_out_at_random_axes_give_what_one_rank_computes() {
    for (seed, ranks) in [(1, 2), (2, 3), (3, 4)] {
        check(&hinted(cases(seed..seed + 1).unwrap(), Some(Dice::new(seed))), ranks, &Cpu::with_threads(1));
    }
}

#[test]
fn the_reference_simulates_ranks() {
    for (seed, ranks) in [(5, 2), (6, 4)] {
        check(&hinted(primitives(DType::F64).unwrap(), Some(Dice::new(seed))), ranks, &Reference);
    }
}

/// The rules are worth nothing if every value is brought together before it is used.
#[test]
fn every_primitive_that_has_a_rule_is_computed_in_parts() {
    let link = &Threads::links(2)[0];
    let mut in_parts: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..12 {
        for case in hinted(cases(seed..seed + 1).unwrap(), Some(Dice::new(seed))) {
            let local = partition(&case.program, link).unwrap();
            local.validate().unwrap();
            for node in &local.nodes {
                let name = format!("{:?}", node.op);
                let name = name.split(['(', ' ', '{']).next().unwrap_or_default().to_string();
                // A value of the program has been cut where no value of that shape was there before.
                let whole = case.program.nodes.iter().any(|old| old.op == node.op && old.meta == node.meta);
                *in_parts.entry(name).or_default() += usize::from(!whole);
            }
        }
    }
    let never: Vec<&String> = in_parts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
    // What has no operands is computed whole, and cut.
    assert_eq!(never, ["Input", "Random"], "{in_parts:?}");
}
