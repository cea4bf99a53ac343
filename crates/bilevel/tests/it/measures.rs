//! Measures inside a run: when they are taken, what follows them, and that nothing else changes.

use crate::with::With;
use bilevel::checkpoints::Checkpoints;
use bilevel::observers::{Aim, Iteration, JsonLines, Measures, Recorder};
use bilevel::prelude::*;
use bilevel::{Error, Session};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// λ is pulled to 1 along a noisy way, and passes 0.5.
fn problem() -> Problem {
    Problem::builder(Leaf(Variable::constant([2], 0.0)), Leaf(Variable::normal([2], 0.3)))
        .inner(|s, l, t| ((t.0 - l.0).square() * (1.0 + s.uniform([2], 0.0, 0.5))).sum_all())
        .outer(|s, _, t| (t.0 - 1.0 + s.normal([2]) * 0.1).square().sum_all())
        .measure("distance from 0.5", |_, l, _| (l.0 - 0.5).abs().sum_all())
        .measure("noisy", |s, _, t| (t.0 + s.normal([2])).sum_all())
        .measure("not a number", |_, l, _| (l.0.square() * -1.0 - 1.0).sum_all().sqrt())
        .build()
        .unwrap()
        .erase()
}

fn driver(problem: &Problem) -> Driver {
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 3).at_temperature(1e-3));
    Driver::new(problem, method).executor(Cpu::with_threads(1)).optimizer(Adam::default()).rate(0.05).seed(3)
}

/// A folder of its own.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bilevel-measures-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// An iteration without its time, and its measures as text, in which NaN equals NaN.
fn timeless(iteration: &Iteration) -> (Iteration, String) {
    let measures = format!("{:?}", iteration.measures);
    let mut timeless = iteration.clone();
    (timeless.elapsed, timeless.measures) = (Default::default(), Measures::default());
    (timeless, measures)
}

fn essence(outcome: &Outcome) -> impl PartialEq + std::fmt::Debug + use<> {
    let best = outcome.best.as_ref().map(|best| (best.iteration, best.value, best.state.snapshot().unwrap()));
    let (state, measures) = (outcome.state.snapshot().unwrap(), format!("{:?}", outcome.measures));
    (state, measures, best, outcome.last.as_ref().map(timeless), outcome.reason.to_string())
}

#[test]
fn every_third_iteration_is_measured_and_the_run_is_the_same_as_without() {
    let problem = problem();
    let (with, without) = (Recorder::new(), Recorder::new());
    let measured = driver(&problem).iterations(10).measure_every(3).observe(with.clone()).run().unwrap();
    let plain = driver(&problem).iterations(10).observe(without.clone()).run().unwrap();
    assert_eq!(measured.state.snapshot().unwrap(), plain.state.snapshot().unwrap());
    assert!(plain.measures.is_empty());
    for (with, without) in with.iterations().iter().zip(without.iterations()) {
        assert_eq!(with.measures.is_empty(), !with.number.is_multiple_of(3), "{with:?}");
        assert_eq!(timeless(with).0, timeless(&without).0);
    }
    // Iteration 10 is not measured, its state is.
    assert!(measured.last.unwrap().measures.is_empty());
    let lambda: f64 = measured.state.lambda.numbers().unwrap().iter().map(|l| (l - 0.5).abs()).sum();
    assert_eq!(measured.measures.get("distance from 0.5"), Some(lambda));
}

#[test]
fn all_measurements_share_their_draws() {
    let problem = problem();
    let recorder = Recorder::new();
    let outcome = driver(&problem).iterations(4).measure_every(2).observe(recorder.clone()).run().unwrap();
    let noise =
        |iteration: &Iteration, theta: &[f64]| iteration.measures.get("noisy").unwrap() - theta.iter().sum::<f64>();
    let last = outcome.last.as_ref().unwrap();
    let at_end = noise(last, &outcome.state.theta.numbers().unwrap());
    let before = driver(&problem).iterations(2).measure_every(2).run().unwrap();
    let at_two = noise(before.last.as_ref().unwrap(), &before.state.theta.numbers().unwrap());
    assert!((at_end - at_two).abs() < 1e-12, "{at_end} and {at_two}");
    assert_eq!(timeless(&recorder.iterations()[1]).1, timeless(before.last.as_ref().unwrap()).1);
}

#[test]
fn patience_on_a_measure_and_the_best_by_it_survive_every_interruption_to_the_bit() {
    let problem = problem();
    let aim = || Aim::lowest("distance from 0.5");
    let make = || driver(&problem).measure_every(2).patience_on(aim(), 4, 1e-3).keep_best(aim());
    let alone = make().iterations(100).run().unwrap();
    assert_eq!(alone.reason, StopReason::MeasurePatience("distance from 0.5".into()));
    let best = alone.best.as_ref().unwrap();
    assert_eq!((best.iteration + 8, best.aim.measure()), (alone.iterations, "distance from 0.5"));
    let lambda: f64 = best.state.lambda.numbers().unwrap().iter().map(|l| (l - 0.5).abs()).sum();
    assert_eq!(best.value, lambda);
    for point in 1..alone.iterations {
        let folder = scratch("interrupted");
        let settings = Checkpoints::new(&folder).every(100).resume(true);
        make().iterations(point).checkpoints(settings.clone()).run().unwrap();
        let resumed = make().iterations(100).checkpoints(settings.clone()).run().unwrap();
        assert_eq!(essence(&resumed), essence(&alone), "interrupted after {point}");
        // One that has ended ends at once, for the same reason.
        let again = make().iterations(100).checkpoints(settings).run().unwrap();
        assert_eq!(essence(&again), essence(&alone));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_resumed_run_with_another_aim_begins_to_follow_it_anew() {
    let problem = problem();
    let folder = scratch("other-aim");
    let settings = Checkpoints::new(&folder).resume(true);
    let make = |aim: Aim| driver(&problem).measure_every(1).keep_best(aim).checkpoints(settings.clone());
    let first = make(Aim::lowest("distance from 0.5")).iterations(5).run().unwrap();
    assert_eq!(first.best.unwrap().iteration, 5);
    let other = make(Aim::highest("distance from 0.5")).iterations(8).run().unwrap();
    assert_eq!(other.best.unwrap().iteration, 6, "λ comes nearer with every iteration");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_measure_that_is_not_finite_is_never_the_best_and_counts_against_patience() {
    let problem = problem();
    let aim = Aim::highest("not a number");
    let outcome = driver(&problem).measure_every(1).patience_on(aim.clone(), 3, 0.0).keep_best(aim).run().unwrap();
    assert_eq!((outcome.iterations, outcome.best.is_none()), (3, true));
    assert!(outcome.measures.get("not a number").unwrap().is_nan());
}

#[test]
fn measures_are_in_the_lines_of_metrics_with_null_for_what_is_not_finite() {
    let folder = scratch("lines");
    let path = folder.join("metrics.jsonl");
    driver(&problem()).iterations(2).measure_every(2).observe(JsonLines::new(&path)).run().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0].get("measures").is_none());
    assert!(lines[1]["measures"]["distance from 0.5"].as_f64().unwrap() > 0.0);
    assert!(lines[1]["measures"]["not a number"].is_null());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn measures_are_read_back_in_their_order() {
    let measures: Measures = [("z", 1.5), ("a", f64::NAN)].into_iter().collect();
    let text = serde_json::to_string(&measures).unwrap();
    assert_eq!(text, "{\"z\":1.5,\"a\":null}");
    let read: Measures = serde_json::from_str(&text).unwrap();
    assert_eq!(read.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["z", "a"]);
    assert!(read.get("a").unwrap().is_nan());
}

#[test]
fn an_aim_at_a_measure_there_is_not_is_an_error_that_names_the_nearest() {
    let problem = problem();
    let error = driver(&problem).measure_every(1).keep_best(Aim::lowest("noisi")).run().unwrap_err();
    assert!(matches!(&error, Error::Unknown { kind: "measure", name, .. } if name == "noisi"));
    assert_eq!(error.to_string(), "there is no measure 'noisi'; did you mean noisy?");
    let error = driver(&problem).keep_best(Aim::lowest("noisy")).run().unwrap_err();
    assert!(matches!(error, Error::Setting { name: "measure_every", .. }), "{error}");
    let error = driver(&problem).measure_every(1).patience_on(Aim::lowest("noisy"), 0, 0.0).run().unwrap_err();
    assert!(matches!(error, Error::Setting { name: "patience", .. }), "{error}");
}

#[test]
fn closures_are_told_of_every_iteration_and_may_end_the_run() {
    let problem = problem();
    let seen = Arc::new(Mutex::new(vec![]));
    let to = seen.clone();
    let outcome = driver(&problem)
        .measure_every(2)
        .on_iteration(move |iteration, state| {
            to.lock().unwrap().push((iteration.number, iteration.measures.is_empty(), state.lambda.len()));
        })
        .on_iteration(|iteration, _| match iteration.number {
            3 => ControlFlow::Break(format!("{} are enough", iteration.number)),
            _ => ControlFlow::Continue(()),
        })
        .run()
        .unwrap();
    assert_eq!(outcome.reason, StopReason::Observer("3 are enough".into()));
    assert_eq!(*seen.lock().unwrap(), [(1, true, 1), (2, false, 1), (3, true, 1)]);
}

#[test]
fn a_problem_without_measures_may_be_measured() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| (t.0 - 1.0).square())
        .build()
        .unwrap()
        .erase();
    assert!(Session::new(&problem, &Cpu::with_threads(1)).is_ok());
    let outcome = driver(&problem).iterations(2).measure_every(1).run().unwrap();
    assert!(outcome.measures.is_empty() && outcome.best.is_none());
}

#[test]
fn a_mean_of_integers_has_the_type_of_the_problem() {
    for dtype in [DType::F32, DType::F64] {
        let labels = bilevel::Array::labels(&[0.0, 1.0, 2.0, 1.0], 3).unwrap();
        let problem = Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
            .dtype(dtype)
            .data("labels", labels)
            .inner(|_, l, t| (t.0 - l.0).square())
            .outer(|_, _, t| t.0.square())
            .measure("share", |s, l, _| s.data("labels").equal(1.0).mean_all() + l.0)
            .build()
            .unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let state = session.state(Key::from_seed(0)).unwrap();
        let found = session.evaluator().unwrap().at(&state, Key::from_seed(0)).unwrap();
        assert_eq!(found[2], 1.0, "in {dtype}");
    }
}

#[test]
fn a_run_can_aim_at_its_losses_by_the_names_that_the_evaluator_lists() {
    let problem = problem();
    for loss in ["inner", "outer"] {
        let outcome = driver(&problem).iterations(12).measure_every(3).keep_best(Aim::lowest(loss)).run().unwrap();
        let best = outcome.best.unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let mut evaluator = session.evaluator().unwrap();
        let place = evaluator.names().iter().position(|name| name == loss).unwrap();
        // The draws of measurements: no other key gives the same number.
        let key = bilevel::Key::from_seed(3).fold_in(u32::MAX);
        assert_eq!(evaluator.at(&best.state, key).unwrap()[place], best.value, "{loss}");
        assert_eq!(outcome.measures.get(loss), None, "the losses are no measures of the problem's own");
    }
    let patient = driver(&problem).iterations(500).measure_every(1).patience_on(Aim::lowest("outer"), 5, 0.0).run();
    assert_eq!(patient.unwrap().reason, StopReason::MeasurePatience("outer".into()));
}

#[test]
fn a_slip_in_the_name_of_a_loss_is_answered_with_the_name() {
    let problem = problem();
    let error = |name: &str| driver(&problem).measure_every(1).keep_best(Aim::lowest(name)).run().unwrap_err();
    assert_eq!(error("otuer").to_string(), "there is no measure 'otuer'; did you mean outer?");
    assert_eq!(
        error("accuracy").to_string(),
        "there is no measure 'accuracy'; a run can follow 'inner', 'outer', 'distance from 0.5', 'noisy', 'not a \
         number', or one added with .measure(…)"
    );
}

#[test]
fn a_measure_cannot_have_the_name_of_a_loss() {
    let one = || Leaf(Variable::constant([], 1.0));
    let problem = Problem::builder(one(), one()).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.square());
    let error = problem.measure("outer", |_, l, _| l.0).build().err().unwrap();
    assert_eq!(error.to_string(), "a metric is named 'outer', which is the name of a loss; give each its own name");
}
