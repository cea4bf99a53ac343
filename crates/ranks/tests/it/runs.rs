//! Runs on several ranks: their bits, their refusals and their failures.

use bilevel_cpu::Cpu;
use bilevel_graph::{
    Array, Collective, CollectiveKind, DType, ErrorKind, Executor, Graph, Link, Program, Result, gradient,
};
use bilevel_ranks::{Ranks, Threads, partition, partition_with_parts};

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
    let start = Array::from_f64([10], (0..10).map(|i| f64::from(i) / 10.0).collect()).unwrap();
    let go = |executor: &dyn Executor| {
        let mut run = executor.compile(&program).unwrap();
        let state = ["lambda", "theta"].map(|_| executor.upload(&start).unwrap());
        for (name, buffer) in ["lambda", "theta"].into_iter().zip(&state) {
            run.bind_input(program.input(name).unwrap(), buffer).unwrap();
        }
        run.run(0..5).unwrap();
        let found = state.map(|buffer| buffer.to_array().unwrap());
        (found, run.output(0).unwrap().item().unwrap())
    };
    let alone = go(&Cpu::with_threads(1));
    let found = Threads::run(3, |link| go(&*of_rank(link).sharding(10).unwrap()));
    for (state, outer) in found {
        assert_eq!(state, alone.0);
        assert!((outer - alone.1).abs() < 1e-15);
    }
    let [inputs, outputs] = [vec![true; 2], vec![false; 1]];
    let local = partition_with_parts(&program, &Threads::links(3)[1], &inputs, &outputs).unwrap().dump(false);
    assert!(!local.contains("gather_ranks") && local.matches("sum_ranks").count() == 1, "{local}");
}

fn of_rank(link: Link) -> Ranks {
    Ranks::new(&Cpu::with_threads(1), link)
}

#[test]
fn a_buffer_of_parts_is_read_written_and_copied_as_a_whole() {
    // 7 rows of 2 on 3 ranks: 3, 2 and 2.
    let all: Vec<f64> = (0..14).map(f64::from).collect();
    let array = Array::from_f64([7, 2], all.clone()).unwrap();
    Threads::run(3, |link| {
        let executor = of_rank(link.clone()).sharding(14).unwrap();
        let buffer = executor.upload(&array).unwrap();
        assert_eq!(buffer.to_array().unwrap(), array);
        // Stretches within a rank, across ranks, and of nothing.
        for stretch in [0..8, 40..56, 16..96, 56..56] {
            let mut bytes = vec![0; stretch.len()];
            buffer.read_part(stretch.start, &mut bytes).unwrap();
            assert_eq!(bytes, array.bytes()[stretch]);
        }
        buffer.write_part(40, &[(-1.0f64).to_ne_bytes(), (-2.0f64).to_ne_bytes()].concat()).unwrap();
        let copy = executor.duplicate(&buffer).unwrap();
        buffer.zero().unwrap();
        let mut changed = all.clone();
        (changed[5], changed[6]) = (-1.0, -2.0);
        assert_eq!(copy.to_array().unwrap().to_f64(), changed);
        assert!(buffer.to_array().unwrap().to_f64().iter().all(|x| *x == 0.0));
        // Data stay whole, and can be copied into parts.
        let data = executor.adopt(&array).unwrap();
        buffer.copy_from(&data).unwrap();
        assert_eq!(buffer.to_array().unwrap(), array);
        // Alone it can write its own part, and read nothing.
        let refused = link.on_one_rank(|| buffer.to_array()).unwrap_err().to_string();
        assert!(refused.contains("one rank alone"), "{refused}");
        assert_eq!(link.on_one_rank(|| data.to_array()).unwrap(), array);
    });
}

#[test]
fn a_program_keeps_up_with_parts_that_others_write_and_with_buffers_that_change_places() {
    let g = Graph::new();
    let [a, b] = ["a", "b"].map(|name| g.input(name, [4], DType::F64));
    // The sum over b does not change from step to step, so an executor may compute it once.
    let program = Program::builder(&g).carry(a, a + b.square().sum_all()).output("double", b * 2.0).build().unwrap();
    Threads::run(2, |link| {
        let executor = of_rank(link).sharding(4).unwrap();
        let upload = |values: Vec<f64>| executor.upload(&Array::from_f64([4], values).unwrap()).unwrap();
        let (first, second) = (upload(vec![0.0; 4]), upload(vec![1.0; 4]));
        let mut run = executor.compile(&program).unwrap();
        run.bind_input(0, &first).unwrap();
        run.bind_input(1, &second).unwrap();
        run.run(0..2).unwrap();
        assert_eq!(first.to_array().unwrap().to_f64(), [8.0; 4]);
        assert_eq!(run.output(0).unwrap().to_f64(), [2.0; 4]);
        second.write(&Array::from_f64([4], vec![2.0, 0.0, 0.0, 0.0]).unwrap()).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(first.to_array().unwrap().to_f64(), [12.0; 4]);
        run.unbind_input(0);
        run.bind_input(1, &first).unwrap();
        run.bind_input(0, &second).unwrap();
        run.run(0..1).unwrap();
        assert_eq!(second.to_array().unwrap().to_f64(), [578.0, 576.0, 576.0, 576.0]);
        // A buffer of another executor is refused.
        let foreign = Cpu::with_threads(1).buffer(second.meta()).unwrap();
        assert!(matches!(run.bind_input(0, &foreign).unwrap_err().kind, ErrorKind::ForeignBuffer { .. }));
    });
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
