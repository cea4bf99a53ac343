//! A user's own problem before and after rows are held out and λ is compared: the guide shows their difference.

use bilevel::methods::IftCg;
use bilevel::splits::{Baselines, GuardReport, Part};
use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Result, Tensor, Variable};

/// Thirty rows to train on and thirty to choose λ by.
fn data() -> Result<[Array; 4]> {
    let x = |row: usize| (row as f64 * 0.7).sin();
    let y = |row: usize| 2.0 * x(row) + (40.0 * x(row)).cos();
    let rows = |from: usize, of: &dyn Fn(usize) -> f64| Array::from_f64([30], (from..from + 30).map(of).collect());
    Ok([rows(0, &x)?, rows(0, &y)?, rows(30, &x)?, rows(30, &y)?])
}

#[rustfmt::skip] // As the guide shows it.
fn before() -> Result<f64> {
    let ([train_x, train_y, valid_x, valid_y], inner) = (data()?, InnerLoop::new(0.2, 50));
    // The program begins.
    let loss = |x: Tensor, y: Tensor, t: Tensor| (x * t - y).square();
    let decay = Variable::constant([], -2.0).at_least(-8.0).at_most(2.0);
    let problem = Problem::builder(Leaf(decay), Leaf(Variable::constant([], 0.0)))
        .data("train x", train_x)
        .data("train y", train_y)
        .data("valid x", valid_x)
        .data("valid y", valid_y)
        .inner(move |s, l, t| loss(s.data("train x"), s.data("train y"), t.0).mean_all() + l.0.exp() * t.0.square())
        .outer(move |s, _, t| loss(s.data("valid x"), s.data("valid y"), t.0).mean_all())
        .build()?;
    let outcome = Driver::new(&problem, IftCg::default()).inner(inner).rate(0.5).iterations(100).run()?;
    // The program ends.
    Ok(outcome.lambda.0.item().unwrap())
}

#[rustfmt::skip] // As the guide shows it.
fn after() -> Result<(f64, GuardReport, Baselines)> {
    let ([train_x, train_y, valid_x, valid_y], inner) = (data()?, InnerLoop::new(0.2, 50));
    // The program begins.
    let loss = |x: Tensor, y: Tensor, t: Tensor| (x * t - y).square();
    let decay = Variable::constant([], -2.0).at_least(-8.0).at_most(2.0).log_penalty();
    let problem = Problem::builder(Leaf(decay), Leaf(Variable::constant([], 0.0)))
        .parts("x", [(Part::Train, train_x), (Part::Validation, valid_x)])
        .parts("y", [(Part::Train, train_y), (Part::Validation, valid_y)])
        .inner(move |s, l, t| loss(s.data("x"), s.data("y"), t.0).mean_all() + l.0.exp() * t.0.square())
        .outer_rows(move |s, _, t| loss(s.data("x"), s.data("y"), t.0))
        .build()?
        .holding_out(0.2, 0)?;
    let outcome = Driver::new(&problem, IftCg::default()).inner(inner).rate(0.5).iterations(100).run()?;
    println!("{}", outcome.guard.unwrap()); // the report of the guard
    println!("{}", problem.compare(&outcome.lambda).inner(inner).run()?); // with one tuned value, and with none
    // The program ends.
    let baselines = problem.compare(&outcome.lambda).inner(inner).run()?;
    Ok((outcome.lambda.0.item().unwrap(), outcome.guard.unwrap(), baselines))
}

#[test]
fn with_held_out_rows_a_problem_reports_its_guard_and_its_baselines() {
    let lambda = before().unwrap();
    let (guarded, guard, baselines) = after().unwrap();
    assert!((lambda - guarded).abs() < 1.0, "{lambda} and {guarded}");
    assert_eq!((guard.rows, baselines.part), (6, Part::HeldOut));
    assert!(baselines.rows.iter().any(|row| row.name.starts_with("no λ")), "{baselines}");
}

/// The program of a function in this file, line by line, without its indentation.
fn program(function: &str) -> Vec<&'static str> {
    let text = include_str!("own_problem.rs").split(function).nth(1).unwrap();
    let (_, text) = text.split_once("    // The program begins.\n").unwrap();
    let (text, _) = text.split_once("    // The program ends.\n").unwrap();
    text.lines().map(|line| line.strip_prefix("    ").unwrap()).collect()
}

#[test]
fn the_guide_shows_the_difference_and_it_is_at_most_three_lines_more() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/generalisation.md"));
    let guide = guide.unwrap();
    let shown = guide.split("```diff\n").nth(1).unwrap().split("```").next().unwrap();
    let side = |sign: char| -> Vec<&str> {
        shown.lines().filter(|line| line.starts_with([' ', sign])).map(|line| &line[1..]).collect()
    };
    let [old, new] = [program("fn before()"), program("fn after()")];
    assert_eq!((side('-'), side('+')), (old.clone(), new.clone()));
    assert!(new.len() <= old.len() + 3, "{} lines instead of {}", new.len(), old.len());
}
