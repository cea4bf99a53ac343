//! The whole conformance suite by the interpreter, on schedules as they are planned for the CPU.

use bilevel_cpu::cpu_target;
use bilevel_graph::conformance::{cases, check_all};
use bilevel_plan::Interpreter;
use std::time::Instant;

#[test]
fn schedules_for_the_cpu_pass_the_whole_conformance_suite_by_the_interpreter() {
    for (again, seeds) in [(None, 0..4), (Some(1), 4..6)] {
        let (start, count) = (Instant::now(), cases(seeds.clone()).unwrap().len());
        let failures = check_all(&Interpreter::new(cpu_target(again)), seeds).unwrap();
        println!("{count} cases for the CPU in {:.1} s", start.elapsed().as_secs_f64());
        assert!(failures.is_empty(), "{}", failures.iter().map(|f| format!("{f}\n")).collect::<String>());
    }
}
