//! Every kernel of the conformance suite's programs compiles, for two kinds of GPU, wherever NVRTC is; no GPU is needed.

use bilevel_cuda::{Architecture, Missing, compile_program, found_libraries};
use bilevel_graph::conformance::{Case, Size, carries, primitives, random_program, rounded_products, varied_program};
use bilevel_graph::{DType, Graph, Precision};

/// True where NVRTC is there; says so where it is not.
fn can_compile() -> bool {
    let found = found_libraries().contains(&(Missing::Nvrtc, true));
    if !found {
        println!("skipped: {}", Missing::Nvrtc.sentence());
    }
    found
}

fn compiles(case: &Case, architecture: u32) -> usize {
    compile_program(&case.program, Architecture(architecture)).unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

#[test]
fn every_primitive_and_carry_compiles_for_sm_80_and_sm_90() {
    if !can_compile() {
        return;
    }
    let mut kernels = 0;
    for dtype in [DType::F32, DType::F64] {
        for case in primitives(dtype).unwrap().iter().chain(&carries(5, 13, dtype).unwrap()) {
            kernels += compiles(case, 90);
        }
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        rounded_products(precision).unwrap().iter().for_each(|case| kernels += compiles(case, 80));
    }
    assert!(kernels > 100, "{kernels}");
}

#[test]
fn random_programs_compile() {
    if !can_compile() {
        return;
    }
    for seed in 0..4 {
        for dtype in [DType::F32, DType::F64] {
            compiles(&random_program(seed, &Graph::new(), dtype, Size::small).unwrap(), 90);
            compiles(&varied_program(seed, &Graph::new(), dtype, Size::small).unwrap(), 80);
        }
    }
    compiles(&random_program(0, &Graph::new(), DType::F32, Size::large).unwrap(), 90);
}
