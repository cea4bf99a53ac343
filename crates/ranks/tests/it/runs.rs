//! Runs on several ranks: their bits, their refusals and their failures.

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, Collective, CollectiveKind, DType, ErrorKind, Executor, Graph, Program, Result, gradient};
use bilevel_ranks::{Ranks, Threads, partition};

/// Gradient descent on a least-squares loss of rows that are shared out.
fn descent(rows: usize) -> Result<Program> {
    let g = Graph::new();
    let x = g.input("x", [rows, 3], DType::F32).over_ranks(0);
    let w = g.input("w", [3, 1], DType::F32);
    let loss = (x.matmul(w).sin() - 0.3).square().mean_all();
    let dw = gradient(loss, &[w])?[0].expect("the loss depends on w");
    Program::builder(&g).output("loss", loss).carry(w, w - dw * 0.1).build()
}

fn run(program: &Program, executor: &dyn Executor) -> Result<Vec<Array>> {
    let mut run = executor.compile(program)?;
    let rows = program.inputs[program.input("x")?].meta.shape[0];
    let values = (0..3 * rows).map(|i| ((i * 7919) % 101) as f32 / 50.0 - 1.0).collect();
    run.set(program.input("x")?, &Array::from_f32([rows, 3], values)?)?;
    run.set(program.input("w")?, &Array::from_f32([3, 1], vec![0.1, -0.2, 0.3])?)?;
    run.run(0..20)?;
    Ok(vec![run.output(0)?, run.input(program.input("w")?)?])
}

#[test]
fn all_ranks_end_with_the_same_bits_and_a_run_repeats_them() {
    // Rows that divide evenly, and rows that do not.
    for (rows, ranks) in [(64, 2), (64, 4), (67, 2), (67, 4)] {
        let program = descent(rows).unwrap();
        let once = || Threads::run(ranks, |link| run(&program, &Ranks::new(&Cpu::with_threads(1), link)).unwrap());
        let found = once();
        assert!(found.iter().all(|other| *other == found[0]), "{rows} rows on {ranks} ranks");
        assert_eq!(once(), found);
        let alone = run(&program, &Cpu::with_threads(1)).unwrap();
        for (a, b) in found[0].iter().zip(&alone) {
            let off = a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            // Sums of 64 terms near 1 in f32, through twenty steps that contract.
            assert!(off < 1e-6, "{off}");
        }
    }
}

#[test]
fn a_step_has_one_sum_for_the_loss_and_the_gradient_together() {
    let program = descent(64).unwrap();
    let local = partition(&program, &Threads::links(4)[2]).unwrap();
    let text = local.dump(false);
    assert_eq!(text.matches("sum_ranks").count(), 1, "{text}");
    assert!(text.contains("slice[32..48, 0..3]") && !text.contains("gather_ranks"), "{text}");
}

#[test]
fn state_that_is_shared_out_is_that_of_one_rank_part_by_part() {
    // λ and θ of an L1 weight for each parameter: elementwise losses, whose mixed product needs no other rank.
    let program = || -> Result<Program> {
        let g = Graph::new();
        let [lambda, theta] = ["lambda", "theta"].map(|name| g.input(name, [10], DType::F64));
        let inner = (theta - 1.0).square().sum_all() * 0.5 + (lambda.exp() * theta.square()).sum_all();
        let outer = (theta - 0.8).square().sum_all();
        let slope = gradient(inner, &[theta])?[0].expect("the loss depends on θ");
        let f = gradient(outer, &[theta])?[0].expect("the loss depends on θ");
        let h =
            bilevel_graph::mixed_vector(inner, &[theta], &[f.stop_gradient()], &[lambda])?[0].expect("it depends on λ");
        let step = Program::builder(&g).output("outer", outer);
        step.carry(theta, theta - slope * 0.1).carry(lambda, lambda + h * 0.1).build()
    };
    let program = program().unwrap();
    let start =
        |part: std::ops::Range<usize>| Array::from_f64([part.len()], part.map(|i| i as f64 / 10.0).collect()).unwrap();
    let go = |executor: &dyn Executor, part: std::ops::Range<usize>| {
        let mut run = executor.compile(&program).unwrap();
        for name in ["lambda", "theta"] {
            run.set(program.input(name).unwrap(), &start(part.clone())).unwrap();
        }
        run.run(0..5).unwrap();
        let state = |name: &str| run.input(program.input(name).unwrap()).unwrap().to_f64();
        (state("lambda"), state("theta"), run.output(0).unwrap().item().unwrap())
    };
    let alone = go(&Cpu::with_threads(1), 0..10);
    let found = Threads::run(3, |link| {
        let part = [0..4, 4..7, 7..10][link.rank()].clone();
        go(&Ranks::new(&Cpu::with_threads(1), link).with_shared_inputs(["lambda", "theta"]), part)
    });
    let [mut lambda, mut theta] = [vec![], vec![]];
    for rank in &found {
        lambda.extend(&rank.0);
        theta.extend(&rank.1);
    }
    assert_eq!((lambda, theta), (alone.0, alone.1));
    assert!(found.iter().all(|f| (f.2 - alone.2).abs() < 1e-15));
    let local = bilevel_ranks::partition_with_state(&program, &Threads::links(3)[1], |_| true).unwrap().dump(false);
    assert!(!local.contains("gather_ranks") && local.matches("sum_ranks").count() == 1, "{local}");
}

#[test]
fn one_rank_and_a_program_without_hints_are_left_as_they_are() {
    let program = descent(64).unwrap();
    let alone = partition(&program, &Threads::links(1)[0]).unwrap();
    assert_eq!(alone.dump(false), program.dump(false));
    let plain = Program { shards: vec![], ..program };
    assert_eq!(partition(&plain, &Threads::links(2)[0]).unwrap().dump(false), plain.dump(false));
}

#[test]
fn ranks_with_different_programs_refuse_to_start() {
    let found = Threads::run(3, |link| {
        let rows = if link.rank() == 2 { 12 } else { 64 };
        run(&descent(rows).unwrap(), &Ranks::new(&Cpu::with_threads(1), link)).unwrap_err()
    });
    for error in found {
        assert!(error.to_string().contains("rank 2 is about to run another program than rank 0"), "{error}");
    }
}

#[test]
fn a_failure_on_one_rank_ends_all_with_its_sentence() {
    let found = Threads::run(2, |link| {
        let g = Graph::new();
        let indices = g.input("i", [4], DType::I32).over_ranks(0);
        let x = g.input("x", [3], DType::F64);
        let program = Program::builder(&g).output("sum", x.take(indices).sum_all()).build().unwrap();
        let mut run = Ranks::new(&Cpu::with_threads(1), link).compile(&program).unwrap();
        run.set(program.input("x").unwrap(), &Array::from_f64([3], vec![1.0; 3]).unwrap()).unwrap();
        run.set(program.input("i").unwrap(), &Array::from_i32([4], vec![0, 1, 2, 3]).unwrap()).unwrap();
        run.run(0..1).unwrap_err()
    });
    assert!(matches!(found[1].kind, ErrorKind::IndexOutOfRange { index: 3, .. }), "{}", found[1]);
    assert!(found[0].to_string().starts_with("rank 1 failed: gather: index 3"), "{}", found[0]);
}

#[test]
fn a_collective_has_no_derivative_and_says_when_to_take_it() {
    let link = Threads::links(2).remove(0);
    let g = Graph::new();
    let x = g.input("x", [2], DType::F64);
    let sum = Collective { kind: CollectiveKind::SumRanks, link: link.clone() }.of(x);
    let error = gradient(sum.sum_all(), &[x]).unwrap_err().to_string();
    assert!(error.contains("take derivatives of the whole program, then partition it"), "{error}");
    let wrong = Collective { kind: CollectiveKind::GatherRanks(vec![1, 1]), link }.of(x);
    assert!(wrong.check().unwrap_err().to_string().contains("must have parts [1, 1]"));
}
