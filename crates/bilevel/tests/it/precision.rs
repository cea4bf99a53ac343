//! The precision of products in problems, runs and checkpoints, and what it costs.

use crate::with::With;
use bilevel::checkpoints::{CheckpointError, Checkpoints, Fingerprint};
use bilevel::diagnostics::{Compared, PrecisionReport};
use bilevel::methods::Rmd;
use bilevel::{Array, Cpu, DType, Driver, Error, InnerLoop, Leaf, Precision, Problem, Variable};

type Vectors = Problem<Leaf<Variable>, Leaf<Variable>>;

/// L_T = ½·(x·θ − λ)² for one number x, so that L_T' = x·(x·θ − λ), H = x·x and C = −x, all of them products of x.
fn scalar(x: f32) -> Vectors {
    Problem::builder(Leaf(Variable::constant([1, 1], 2.0)), Leaf(Variable::constant([1, 1], 1.0)))
        .dtype(DType::F32)
        .data("x", Array::from_f32([1, 1], vec![x]).unwrap())
        .inner(|s, l, t| (s.data("x").matmul(t.0) - l.0).square().sum_all() * 0.5)
        .outer(|s, _, t| s.data("x").matmul(t.0).sum_all())
        .build()
        .unwrap()
}

fn compare(problem: &Vectors, precision: Precision) -> PrecisionReport {
    let method = With(Rmd::default(), InnerLoop::new(0.5, 1));
    problem.check().executor(Cpu::with_threads(1)).method(method).compare_precision(precision).unwrap()
}

/// x = 1 + 2⁻⁸ becomes 1 in bf16, of which everything is then made. With θ = 1 and λ = 2 the gradient x·(x − 2) = −(1 −
/// 2⁻¹⁶) becomes −1: in its backward product the residual x − 2 = −(1 − 2⁻⁸) is rounded too, but is −1 already.
#[test]
fn the_errors_of_a_known_product_are_those_computed_by_hand() {
    let x = 1.0f64 + 1.0 / 256.0;
    let report = compare(&scalar(x as f32), Precision::Bf16);
    let error = |quantity: Compared| report.row(&quantity).unwrap().error.unwrap();
    let near = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
    // −1 instead of x·(x − 2).
    let gradient = x * (x - 2.0);
    assert!(near(error(Compared::Gradient), (-1.0 - gradient).abs() / gradient.abs()), "{report}");
    // H·v is x·(x·v): x is rounded to 1 twice, and v on the way in; the result is v rounded to 8 digits.
    let hessian = error(Compared::HessianProduct);
    let from_x = (x * x - 1.0) / (x * x);
    assert!((hessian - from_x).abs() <= Precision::Bf16.unit() && hessian > 0.0, "{report}");
    // vᵀ·C is −(x·v), one product: x is rounded down by 2⁻⁸, v to 8 digits.
    let mixed = error(Compared::MixedProduct);
    assert!((mixed - (x - 1.0) / x).abs() <= Precision::Bf16.unit() && mixed > 0.0, "{report}");
    // One step of reverse mode: df/dλ = x·γ·x = x²/2; in bf16 1/2.
    assert!(near(error(Compared::Hypergradient("rmd".into())), (x * x - 1.0) / (x * x)), "{report}");
    assert!(report.rows.iter().all(|row| row.cosine.unwrap() > 1.0 - 1e-12), "{report}");
    // Nothing is lost where nothing has to be rounded: x has 9 digits, and tf32 has 11.
    let tf32 = compare(&scalar(x as f32), Precision::Tf32);
    assert_eq!(tf32.row(&Compared::Gradient).unwrap().error, Some(0.0), "{tf32}");
    let full = compare(&scalar(x as f32), Precision::Full);
    assert!(full.rows.iter().all(|row| row.error == Some(0.0)), "{full}");
}

#[test]
fn a_report_is_read_back_as_it_was_and_prints_a_row_for_each_derivative() {
    let report = compare(&scalar(0.3), Precision::Bf16);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<PrecisionReport>(&text).unwrap(), report);
    assert!(text.starts_with(r#"{"precision":"bf16","rows":[{"quantity":"gradient","norm":"#), "{text}");
    let printed = report.to_string();
    for row in ["gradient ", "Hessian product ", "mixed product ", "hypergradient by rmd "] {
        assert_eq!(printed.matches(&format!("\n  {row}")).count(), 1, "{printed}");
    }
}

#[test]
fn a_method_that_fails_has_a_row_that_says_why() {
    let problem = scalar(0.3);
    let method = With(Rmd::default(), InnerLoop::new(-1.0, 100));
    let report =
        problem.check().executor(Cpu::with_threads(1)).method(method).compare_precision(Precision::Bf16).unwrap();
    let row = report.row(&Compared::Hypergradient("rmd".into())).unwrap();
    assert_eq!((row.norm, row.error, row.cosine), (None, None, None));
    assert!(row.failure.as_ref().is_some_and(|why| why.contains("step")), "{report}");
}

#[test]
fn a_problem_in_64_bits_is_refused_another_precision_than_the_full_one() {
    let double = scalar(0.3).in_dtype(DType::F64).unwrap();
    let error = double.in_precision(Precision::Bf16).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("this problem uses f64; choose f32 or full precision"), "{error}");
    double.in_precision(Precision::Full).unwrap();
    let rounded = scalar(0.3).in_precision(Precision::Tf32).unwrap();
    assert_eq!(rounded.precision(), Precision::Tf32);
    assert_eq!(rounded.in_dtype(DType::F64).unwrap().precision(), Precision::Full);
}

#[test]
fn the_precision_is_part_of_what_a_problem_is() {
    let problem = scalar(0.3);
    let rounded = problem.in_precision(Precision::Bf16).unwrap();
    let difference = Fingerprint::of(&problem).difference(&Fingerprint::of(&rounded));
    assert_eq!(difference.unwrap(), "the precision of products is full there and bf16 here");
}

#[test]
fn a_fingerprint_that_says_nothing_of_precision_is_one_of_full_precision() {
    let fingerprint = Fingerprint::of(&scalar(0.3));
    let mut value = serde_json::to_value(&fingerprint).unwrap();
    assert_eq!(value.as_object_mut().unwrap().remove("precision"), Some("full".into()));
    assert_eq!(serde_json::from_value::<Fingerprint>(value).unwrap(), fingerprint);
}

#[test]
fn a_run_rounds_and_is_not_resumed_in_another_precision() {
    let folder = std::env::temp_dir().join(format!("bilevel-precision-{}", std::process::id()));
    let problem = scalar(0.3);
    let run = |precision: Precision, iterations: u32| {
        let driver =
            Driver::new(&problem.in_precision(precision).unwrap(), With(Rmd::default(), InnerLoop::new(0.5, 3)));
        driver.executor(Cpu::with_threads(1)).rate(0.1).iterations(iterations)
    };
    let lambda = |precision| run(precision, 5).run().unwrap().lambda.0.to_f64();
    assert_ne!(lambda(Precision::Full), lambda(Precision::Bf16));

    let saved = || Checkpoints::new(&folder).every(2).resume(true);
    run(Precision::Bf16, 3).checkpoints(saved()).run().unwrap();
    let Err(error) = run(Precision::Full, 5).checkpoints(saved()).run() else { panic!("it went on") };
    assert!(matches!(error, Error::Checkpoint(CheckpointError::Foreign { .. })), "{error:?}");
    assert!(error.to_string().contains("the precision of products is bf16 there and full here"), "{error}");
    let resumed = run(Precision::Bf16, 5).checkpoints(saved()).run().unwrap();
    assert_eq!(resumed.lambda.0.to_f64(), lambda(Precision::Bf16));
    std::fs::remove_dir_all(folder).unwrap();
}
