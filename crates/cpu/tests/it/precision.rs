//! Products of rounded operands on the CPU: the bits that are multiplied are those the reference multiplies.

use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{
    Case, Dice, Size, agree, long_products, outputs, random_program, rounded_products, varied_program,
};
use bilevel_graph::{Array, DType, Graph, Op, Precision, Program};

const ROUNDED: [Precision; 2] = [Precision::Tf32, Precision::Bf16];

#[test]
fn products_of_inputs_have_the_bits_of_the_reference_in_bf16_and_are_near_it_in_tf32() {
    for case in ROUNDED.into_iter().flat_map(|precision| rounded_products(precision).unwrap()) {
        case.check(&Cpu::with_threads(2)).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn long_products_are_near_those_of_the_reference_whatever_numbers_they_are_of() {
    for case in long_products().unwrap() {
        case.check(&Cpu::with_threads(2)).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Operands that are repeated, cut out, constant, counted, computed, or one number.
#[test]
fn operands_of_every_kind_are_rounded() {
    let g = Graph::without_simplification();
    let (a, b, s) = (g.input("a", [6, 5], DType::F32), g.input("b", [5], DType::F32), g.input("s", [1, 1], DType::F32));
    let results = [
        a.matmul(b.broadcast([0], [5, 7])),
        a.slice(0, 1, 4).matmul(a.slice_step(0, 0, 6, 2).t()),
        a.matmul(g.constant(1.0 / 3.0, [5, 2], DType::F32)),
        a.matmul((g.iota([5, 3], 1, DType::F32) + 0.3).sin()),
        a.reverse([1]).matmul(a.t()),
        s.matmul(s) + s.sin().matmul(s),
        a.sum([0]).reshape([1, 5]).matmul(b.reshape([5, 1])),
    ];
    let builder = Program::builder(&g).outputs("", results);
    let mut dice = Dice::new(3);
    let mut value = |name: &str, shape: &[usize]| (name.to_string(), dice.array(shape, DType::F32).unwrap());
    let case = Case {
        name: "operands of every kind".into(),
        program: builder.build().unwrap(),
        inputs: vec![value("a", &[6, 5]), value("b", &[5]), value("s", &[1, 1])],
        steps: 2,
        tolerances: vec![1e-6; results.len()],
    };
    for precision in Precision::ALL {
        // Where results are rounded, sums in another order may become neighbours.
        let near = if precision.rounds_results() { precision.unit() } else { 1e-6 };
        let program = case.program.clone().with_precision(precision);
        let case = Case { program, tolerances: vec![near; results.len()], ..case.clone() };
        case.check(&Cpu::with_threads(2)).unwrap_or_else(|failure| panic!("{precision}: {failure}"));
    }
}

#[test]
fn random_programs_in_every_precision_agree_with_the_reference() {
    let cpu = Cpu::with_threads(2);
    for precision in ROUNDED {
        let check = |case: Case| {
            case.in_precision(precision).unwrap().check(&cpu).unwrap_or_else(|failure| panic!("{failure}"));
        };
        for seed in 0..150 {
            check(random_program(seed, &Graph::new(), DType::F32, Size::small).unwrap());
            check(varied_program(seed, &Graph::new(), DType::F32, Size::small).unwrap());
        }
        for seed in 0..5 {
            check(random_program(seed, &Graph::new(), DType::F32, Size::large).unwrap());
        }
    }
}

/// One product in full precision and one that rounds, of the same operands: written by hand, since a rewrite gives all
/// products one precision.
#[test]
fn products_of_the_same_operands_in_different_precisions_are_different() {
    let g = Graph::new();
    let (a, b) = (g.input("a", [3, 4], DType::F32), g.input("b", [4, 2], DType::F32));
    let (first, second) = (a.matmul(b), b.t().matmul(a.t()));
    let mut program = Program::builder(&g).output("first", first).output("second", second).build().unwrap();
    let last = program.nodes.iter_mut().rev().find_map(|node| match &mut node.op {
        Op::Dot(_, precision) => Some(precision),
        _ => None,
    });
    *last.unwrap() = Precision::Bf16;
    let thirds = |count: usize| (0..count).map(|i| i as f32 / 3.0 + 0.1).collect::<Vec<f32>>();
    let inputs = vec![
        ("a".to_string(), Array::from_f32([3, 4], thirds(12)).unwrap()),
        ("b".to_string(), Array::from_f32([4, 2], thirds(8)).unwrap()),
    ];
    let found = outputs(&Cpu::with_threads(1), &program, &inputs, 1).unwrap();
    let expected = outputs(&bilevel_graph::Reference, &program, &inputs, 1).unwrap();
    agree(&found, &expected, &[1e-6, 1e-6]).unwrap();
    let transposed = |array: &Array| {
        let numbers = array.to_f64();
        (0..3).flat_map(|i| [numbers[i], numbers[3 + i]]).collect::<Vec<f64>>()
    };
    assert_ne!(found[0].to_f64(), transposed(&found[1]));
}

#[test]
fn an_operand_is_rounded_once_for_all_products_that_read_it() {
    let g = Graph::new();
    let (x, w) = (g.input("x", [64, 64], DType::F32), g.input("w", [64, 64], DType::F32));
    // Three products of two inputs, one of them transposed.
    let y = x.matmul(w) + w.matmul(x) + x.t().matmul(w);
    let program = Program::builder(&g).output("y", y).build().unwrap();
    let cpu = Cpu::with_threads(1);
    let passes = |precision| {
        let plan = cpu.plan(&program.clone().with_precision(precision)).unwrap().describe();
        plan.lines().filter(|line| line.contains("loop over")).count()
    };
    assert!(passes(Precision::Bf16) <= passes(Precision::Full) + 2);
}
