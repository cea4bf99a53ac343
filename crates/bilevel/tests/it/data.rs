//! Data and variables a problem cannot be made of are refused with where the fault lies.

use bilevel::{Array, Cpu, DType, Key, Leaf, Problem, ProblemBuilder, State, Variable};

type Builder = ProblemBuilder<Leaf<Variable>, Leaf<Variable>>;

fn problem(dtype: DType) -> Builder {
    let zero = || Leaf(Variable::constant([], 0.0));
    Problem::builder(zero(), zero())
        .dtype(dtype)
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| (t.0 - 1.0).square())
}

fn refused(builder: Builder) -> String {
    builder.build().err().expect("must be refused").to_string()
}

#[test]
fn a_number_in_the_data_that_is_none_is_refused_with_its_row_and_position() {
    let mut values = vec![1.0; 12];
    values[7] = f64::NAN;
    let matrix = Array::from_f64([4, 3], values.clone()).unwrap();
    let said = refused(problem(DType::F64).data("images", matrix));
    assert_eq!(said, "data 'images' holds NaN in row 2, at [2, 1] (counted from 0); clean it first");
    values[7] = f64::NEG_INFINITY;
    let list = Array::from_f64([12], values).unwrap();
    let said = refused(problem(DType::F32).data("weights", list));
    assert_eq!(said, "data 'weights' holds -inf in row 7 (counted from 0); clean it first");
    let said = refused(problem(DType::F64).data("scale", Array::scalar(f64::NAN, DType::F64)));
    assert_eq!(said, "data 'scale' holds NaN; clean it first");
}

#[test]
fn a_number_in_the_data_that_the_type_cannot_hold_is_refused_as_that() {
    let large = Array::from_f64([2, 2], vec![0.0, 0.0, 1e300, 0.0]).unwrap();
    problem(DType::F64).data("x", large.clone()).build().unwrap();
    let said = refused(problem(DType::F32).data("x", large));
    assert_eq!(
        said,
        "data 'x' holds 1e300 in row 1, at [1, 0] (counted from 0), more than f32 can hold; scale it first"
    );
}

#[test]
fn a_variable_too_large_for_any_memory_is_an_error() {
    let huge = Variable::constant([1 << 50], 0.0);
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(huge))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all())
        .outer(|_, _, t| t.0.square().sum_all())
        .build()
        .unwrap();
    let error = State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(0)).unwrap_err().to_string();
    assert!(error.contains("bytes of memory are needed"), "{error}");
}
