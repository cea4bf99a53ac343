//! Property: programs that compute values again instead of keeping them give what the reference gives.

use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{self, Case, Size, random_program, varied_program};
use bilevel_graph::{DType, Graph, Program, gradient, hessian_vector, nn};

/// One that keeps as little as it can, of whatever size.
fn frugal() -> Cpu {
    Cpu::with_threads(2).rematerialize(1)
}

#[test]
fn random_programs_that_compute_values_again_agree_with_the_reference() {
    let (cpu, usual) = (frugal(), Cpu::with_threads(2));
    let mut others = 0;
    let mut check = |case: Case| {
        case.check(&cpu).unwrap_or_else(|failure| panic!("{failure}"));
        let [again, kept] = [&cpu, &usual].map(|cpu| cpu.plan(&case.program).unwrap().describe());
        others += (again != kept) as usize;
    };
    for seed in 0..300 {
        check(random_program(seed, &Graph::new(), DType::F64, Size::small).unwrap());
        check(varied_program(seed, &Graph::new(), DType::F64, Size::small).unwrap());
    }
    for seed in 0..20 {
        check(random_program(seed, &Graph::new(), DType::F32, Size::large).unwrap());
        check(varied_program(seed, &Graph::new(), DType::F32, Size::large).unwrap());
    }
    assert!(others >= 200, "only {others} programs were planned in another way");
}

#[test]
fn an_executor_that_computes_values_again_passes_the_whole_conformance_suite() {
    let failures = conformance::check_all(&frugal(), 0..10).unwrap();
    assert!(failures.is_empty(), "{}", failures.iter().map(|f| format!("{f}\n")).collect::<String>());
}

#[test]
fn the_way_back_through_activations_and_normalisations_keeps_one_value_of_each() {
    let g = Graph::new();
    let [x, w] = ["x", "w"].map(|name| g.input(name, [128, 128], DType::F32));
    let ones = g.input("ones", [128], DType::F32);
    let mut out = x;
    for _ in 0..6 {
        out = nn::gelu(nn::layer_norm(out, ones, ones, 1e-5).matmul(w)).matmul(w);
    }
    let loss = out.square().mean_all();
    let dw = gradient(loss, &[w]).unwrap()[0].unwrap();
    let curved = hessian_vector(loss, &[w], &[x]).unwrap()[0].unwrap();
    let memory = |output, cpu: Cpu| {
        let program = Program::builder(&g).output("d", output).build().unwrap();
        cpu.plan(&program).unwrap().memory_bytes() as f64
    };
    for output in [dw, curved] {
        let (again, kept) = (memory(output, frugal()), memory(output, Cpu::with_threads(2)));
        assert!(again < 0.8 * kept, "{again} bytes beside {kept}");
    }
}
