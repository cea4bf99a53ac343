//! Ranks that `mpirun` starts: this test program is each of them.

use crate::communicators::check;
use bilevel_graph::DType;
use bilevel_ranks::mpirun::mpirun_for_test;
use bilevel_ranks::{Launch, Transport};

/// Runs one of the tests below as every rank, and returns what they printed.
fn as_ranks(ranks: usize, test: &str) -> Option<String> {
    let mut command = mpirun_for_test(ranks, std::env::current_exe().unwrap())?;
    let output = command.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    Some(text)
}

#[test]
fn mpi_sums_in_the_order_of_ranks_gathers_and_scatters() {
    for ranks in [2, 4] {
        let Some(text) = as_ranks(ranks, "mpi::one_of_several_ranks") else { return };
        assert_eq!(text.matches("all of it is right").count(), ranks, "{text}");
    }
}

#[test]
#[ignore = "is a rank of mpi_sums_in_the_order_of_ranks_gathers_and_scatters"]
fn one_of_several_ranks() {
    let launch = Launch::detect().unwrap().expect("mpirun started this");
    assert!(matches!(launch.transport, Transport::Mpi(_)));
    let link = launch.join().unwrap();
    check(&link).unwrap();
    // More than a message of MPI can have at once, for 32-bit counts, is cut; here a sum that is cut once.
    let mut bytes = vec![1.0f32.to_ne_bytes(); 20_000_000].concat();
    link.sum(&mut bytes, DType::F32).unwrap();
    let all = bytes.as_chunks::<4>().0.iter().all(|x| f32::from_ne_bytes(*x) == link.size() as f32);
    assert!(all);
    println!("all of it is right on rank {}", link.rank());
    link.finish();
}
