//! Every kernel of the conformance suite's programs compiles, for two kinds of GPU, wherever NVRTC is; no GPU is
//! needed.

use crate::common::can_compile;
use bilevel_cuda::{Architecture, Missing, compile_programs, found_libraries, gpu_target, kernel_texts};
use bilevel_graph::conformance::{
    Case, Size, carries, convolutions, long_products, networks, primitives, random_program, rounded_products,
    varied_program,
};
use bilevel_graph::{DType, Graph, Precision, Program, Tensor, nn};
use bilevel_plan::Pipeline;
use std::collections::BTreeSet;

/// Compiles every kernel of these cases once. There must be more than this many, whether or not NVRTC is there to
/// compile them.
fn compile(cases: &[Case], architecture: u32, more_than: usize) {
    let texts: BTreeSet<String> = cases.iter().flat_map(|case| kernel_texts(&case.program).unwrap()).collect();
    assert!(texts.len() > more_than, "{} kernels", texts.len());
    if !can_compile(found_libraries().contains(&(Missing::Nvrtc, true))) {
        return;
    }
    let all = compile_programs(cases.iter().map(|case| &case.program), Architecture(architecture));
    let compiled = all.unwrap_or_else(|error| {
        // One after the other, to name the first that does not compile.
        for case in cases {
            if let Err(error) = compile_programs([&case.program], Architecture(architecture)) {
                panic!("{}: {error}", case.name);
            }
        }
        panic!("{error}")
    });
    assert_eq!(compiled, texts.len());
}

#[test]
fn elementwise_primitives_compile() {
    let of = |dtype| primitives(dtype).unwrap().into_iter().filter(|case| case.name.starts_with("functions of"));
    let cases: Vec<Case> = of(DType::F32).chain(of(DType::F64)).collect();
    assert_eq!(cases.len(), 4);
    compile(&cases, 90, 10);
}

#[test]
fn every_primitive_carry_and_part_of_a_network_compiles_for_sm_80_and_sm_90() {
    let mut cases = vec![];
    for dtype in [DType::F32, DType::F64] {
        cases.extend(primitives(dtype).unwrap());
        cases.extend(carries(5, 13, dtype).unwrap());
        cases.extend(networks(dtype).unwrap());
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        cases.extend(rounded_products(precision).unwrap());
    }
    cases.extend(long_products().unwrap());
    for architecture in [80, 90] {
        compile(&cases, architecture, 1000);
    }
}

#[test]
fn attention_in_bf16_is_one_kernel_if_its_rows_fit_a_block() {
    let fused = |places: usize, width: usize, precision: Precision| {
        let g = Graph::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, [2, 8, places, width], DType::F32));
        let y = nn::scaled_dot_product_attention(q, k, v, None);
        let program = Program::builder(&g).output("y", y).build().unwrap().with_precision(precision);
        kernel_texts(&program).unwrap().iter().filter(|text| text.contains("u32 smem[]")).count()
    };
    assert_eq!(fused(200, 64, Precision::Bf16), 1);
    assert_eq!([Precision::Full, Precision::Tf32].map(|precision| fused(200, 64, precision)), [0, 0]);
    assert_eq!([fused(197, 64, Precision::Bf16), fused(264, 64, Precision::Bf16)], [0, 0], "odd rows, long rows");
    assert_eq!([fused(256, 64, Precision::Bf16), fused(256, 128, Precision::Bf16)], [1, 0], "too much memory");
}

#[test]
fn long_products_in_tf32_are_computed_in_scaled_f16() {
    let scaled = |precision| {
        let cases = long_products().unwrap().into_iter();
        let texts = cases.flat_map(|case| kernel_texts(&case.program.with_precision(precision)).unwrap());
        texts.filter(|text| text.contains("half* ")).count()
    };
    // Three operands each of five cases that have all their rows at multiples of 16 bytes, and those of a network.
    assert!(scaled(Precision::Tf32) >= 15 + 7);
    assert_eq!([Precision::Full, Precision::Bf16].map(scaled), [0, 0]);
}

#[test]
fn convolutions_with_channels_last_compile() {
    let mut cases = vec![];
    for precision in [Precision::Tf32, Precision::Bf16] {
        for mut case in convolutions(DType::F32).unwrap() {
            let program = case.program.with_precision(precision);
            case.program = Pipeline::new().rewrite(&program, &gpu_target(true, true)).unwrap();
            cases.push(case);
        }
    }
    compile(&cases, 90, 300);
}

#[test]
fn random_programs_compile() {
    let mut cases = vec![random_program(0, &Graph::new(), DType::F32, Size::large).unwrap()];
    for seed in 0..4 {
        for dtype in [DType::F32, DType::F64] {
            cases.push(random_program(seed, &Graph::new(), dtype, Size::small).unwrap());
            cases.push(varied_program(seed, &Graph::new(), dtype, Size::small).unwrap());
        }
    }
    compile(&cases, 90, 300);
}

/// `p[inside ? place : 0]` is wrong code with NVRTC 13.0 on sm_90 now and then: the element's number has to be bounded
/// instead.
#[test]
fn no_place_in_memory_is_chosen_by_a_condition() {
    let (mut texts, mut bounded) = (0, 0);
    for seed in [0, 1, 2, 50] {
        let case = varied_program(seed, &Graph::new(), DType::F32, Size::small).unwrap();
        for text in kernel_texts(&case.program).unwrap() {
            let single = text.lines().filter_map(|line| line.split_once(" = p").map(|(_, load)| load));
            let several = text.lines().filter_map(|line| line.split_once("load").map(|(_, load)| load));
            let loads = single.chain(several);
            for load in loads {
                assert!(!load.contains(" ? "), "{load}");
                bounded += usize::from(load.contains("min("));
            }
            texts += 1;
        }
    }
    assert!(texts > 100 && bounded > 10, "{texts} kernels, {bounded} loads of rows with an end");
}

/// What warps leave each other for a sum is written over when a block comes by with its next row.
#[test]
fn a_block_that_repeats_its_only_sum_synchronises_before_it() {
    let barriers = |sums: usize| {
        let g = Graph::new();
        let shape = [1600, 768];
        let mut x = g.input("x", shape, DType::F32);
        for _ in 0..sums {
            x = x - x.square().sum([1]).broadcast([0], shape);
        }
        let program = Program::builder(&g).output("x", x).output("columns", x.sum([0])).build().unwrap();
        let texts = kernel_texts(&program).unwrap();
        let text = texts.iter().find(|text| text.contains("turn += gridDim.x")).unwrap();
        assert_eq!(text.matches(" = across<Sum, 128, ").count(), sums);
        text.matches("__syncthreads();").count()
    };
    assert_eq!([1, 2, 3].map(barriers), [1, 0, 0]);
}

#[test]
fn the_erf_of_a_gelu_is_one_with_the_sum_it_is_in_and_any_other_is_an_erf() {
    let functions = |make: &dyn Fn(Tensor) -> Tensor, dtype: DType| {
        let g = Graph::new();
        let program = Program::builder(&g).output("y", make(g.input("x", [4096], dtype))).build().unwrap();
        let texts = kernel_texts(&program).unwrap().join("");
        ["one_plus_erf(", "op_erf("].map(|name| texts.matches(name).count())
    };
    assert_eq!(functions(&nn::gelu, DType::F32), [1, 0]);
    assert_eq!(functions(&|x| x.erf() + 1.0, DType::F32), [1, 0]);
    assert_eq!(functions(&|x| x.erf() + 2.0, DType::F32), [0, 1]);
    assert_eq!(functions(&|x| (x.erf() + 1.0) * x.erf(), DType::F32), [1, 1]);
    assert_eq!(functions(&nn::gelu, DType::F64), [0, 1], "all its digits are wanted");
}
