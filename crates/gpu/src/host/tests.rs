//! The conformance suite by the toy GPU: generated kernels, compiled for the host, against the reference.

use crate::host::executor::{Host, HostRun, can_compile};
use bilevel_graph::conformance::{Case, cases};
use bilevel_graph::{Array, DType, ErrorKind, Graph, Meta, Program, Runnable, Tensor};
use std::panic::AssertUnwindSafe;
use std::time::Instant;

/// Returns true if kernels can be compiled. If not, says that the test is skipped, or fails if `CI` is `true`: a test
/// that never ran must not look like one that passed.
fn has_compiler() -> bool {
    let found = can_compile();
    if !found {
        let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        let what = "no C++ compiler was found as `cc`; install one";
        assert!(!ci, "{what}, or set CI=false");
        println!("skipped: {what}");
    }
    found
}

/// Threads run one after the other, so cases with more elements take too long.
const MAX_ELEMENTS: usize = 20_000;

/// Steps are checked for accesses that they do not declare while they run.
#[test]
fn generated_kernels_pass_the_conformance_suite_on_the_host() {
    if !has_compiler() {
        return;
    }
    let (start, host) = (Instant::now(), Host::default());
    let elements = |meta: &Meta| meta.shape.iter().product::<usize>();
    let size = |case: &Case| case.program.inputs.iter().map(|port| elements(&port.meta)).sum::<usize>();
    let mut cases = cases(0..1).unwrap();
    cases.retain(|case| size(case) <= MAX_ELEMENTS);
    // All kernels at once, which takes less time than each program by itself.
    let (mut kernels, mut pipelined) = (vec![], [0; 2]);
    for case in &cases {
        let run = HostRun::new(&case.program, host.functions.clone()).unwrap();
        kernels.extend(run.kernels());
        run.plan.pipeline.iter().for_each(|one| pipelined[usize::from(one.undoes_failed_windows())] += 1);
    }
    println!("loops pipelined in stages and by rotation: {pipelined:?}");
    assert!(pipelined.iter().all(|&count| count > 0), "{pipelined:?}");
    let waiting = kernels.iter().filter(|kernel| kernel.waits).count();
    assert!(waiting > 500, "{waiting} kernels whose threads wait for each other");
    host.functions.lock().unwrap().load(kernels).unwrap();
    println!("{} kernels in {:.1} s", host.functions.lock().unwrap().count(), start.elapsed().as_secs_f64());
    let failures: Vec<String> =
        cases.iter().filter_map(|case| case.check(&host).err()).map(|failure| failure.to_string()).collect();
    println!("{} cases in {:.1} s", cases.len(), start.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn a_step_that_accesses_more_than_it_declares_is_found_out() {
    if !has_compiler() {
        return;
    }
    let g = Graph::new();
    let x = g.input("x", [100], DType::F32);
    let program = Program::builder(&g).output("y", x.tanh()).build().unwrap();
    let run = |change: fn(&mut HostRun)| {
        let mut run = HostRun::new(&program, Host::default().functions).unwrap();
        change(&mut run);
        run.set(0, &Array::from_f32([100], vec![1.0; 100]).unwrap()).unwrap();
        run.run(0..1).map(|()| run.output(0).unwrap().to_f64()[7])
    };
    assert!((run(|_| ()).unwrap() - 1f64.tanh()).abs() < 1e-6);
    let unread = run(|run| run.plan.body[0].reads.clear()).unwrap();
    assert!(unread != run(|_| ()).unwrap(), "{unread}");
    let unwritten = std::panic::catch_unwind(AssertUnwindSafe(|| run(|run| run.plan.body[0].writes.clear())));
    assert!(unwritten.is_err());
}

/// The prologue runs once, and the windows of a pipelined loop that fails are run again: its error must not be lost.
#[test]
fn an_index_out_of_range_before_a_pipelined_loop_is_reported() {
    if !has_compiler() {
        return;
    }
    let g = Graph::new();
    let (table, at) = (g.input("table", [8, 6], DType::F32), g.input("at", [4], DType::I32));
    let [w, h] = ["w", "h"].map(|name| g.input(name, [6, 6], DType::F32));
    let rows = table.take(at);
    let net = |w: Tensor| rows.matmul(w).tanh().matmul(w);
    let next = w - rows.t().matmul(net(w)) * 0.1;
    // The old weights are read after the new ones are known.
    let late = net(next).sin().matmul(w).tanh().matmul(next);
    let program = Program::builder(&g).carry(w, next).carry(h, h + late.t().matmul(late)).build().unwrap();
    let run = |last: i32| {
        let mut run = HostRun::new(&program, Host::default().functions).unwrap();
        let pipeline = run.plan.pipeline.as_ref().expect("new weights are known early");
        let prologue = run.plan.prologue.len();
        assert_eq!((pipeline.undoes_failed_windows(), run.plan.checks.len(), prologue > 0), (true, 1, true));
        for (name, shape) in [("table", [8, 6]), ("w", [6, 6]), ("h", [6, 6])] {
            let input = program.input(name).unwrap();
            run.set(input, &Array::full(shape, 0.1, DType::F32)).unwrap();
        }
        run.set(program.input("at").unwrap(), &Array::from_i32([4], vec![0, 1, 2, last]).unwrap()).unwrap();
        run.run(0..5)
    };
    run(7).unwrap();
    let expected = ErrorKind::IndexOutOfRange { operation: "gather".into(), index: 8, limit: 8 };
    assert_eq!(run(8).unwrap_err().kind, expected);
}
