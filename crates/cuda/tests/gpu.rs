//! The conformance suite on a GPU, where there is one.

use bilevel_cuda::Cuda;
use bilevel_graph::conformance;

#[test]
fn a_gpu_does_what_every_executor_must() {
    let cuda = match Cuda::new(0) {
        Ok(cuda) => cuda,
        Err(error) => return println!("skipped: no CUDA device: {error}"),
    };
    let failures = conformance::check_all(&cuda, 0..2).unwrap();
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
}
