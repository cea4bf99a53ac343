//! The outer loop: steps, bounds, stopping, observers, divergence.

use crate::with::With;
use bilevel::diagnostics::Cause;
use bilevel::methods::Oracles;
use bilevel::observers::{Beginning, Iteration, JsonLines, Observer, ProgressLine, Recorder, StopSignal};
use bilevel::optimizers::{Momentum, Optimizer};
use bilevel::prelude::*;
use bilevel::programs::Leaves;
use bilevel::{AnyProblem, Error, Estimator, Hypergradient, Result, Session, State};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// λ and θ of one number each.
fn scalar_problem(lambda: Variable) -> Problem {
    Problem::builder(Leaf(lambda), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| (t.0 - 1.0).square())
        .build()
        .unwrap()
        .erase()
}

/// The θ and the key a method was called with.
type Call = (f64, Key);

/// A method whose answers are known beforehand: hypergradient, inner loss and outer loss as functions of the call, from 1.
#[derive(Clone)]
struct Scripted {
    answer: Arc<dyn Fn(u32) -> (f64, f64, f64) + Send + Sync>,
    seen: Arc<Mutex<Vec<Call>>>,
}

impl Scripted {
    fn new(answer: impl Fn(u32) -> (f64, f64, f64) + Send + Sync + 'static) -> Self {
        Scripted { answer: Arc::new(answer), seen: Arc::default() }
    }

    fn gradients(gradients: &'static [f64]) -> Self {
        Self::new(|k| (gradients[(k as usize - 1) % gradients.len()], 1.0, 1.0))
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Method for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn compile(&self, session: &Session, _: &InnerLoop) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(Prepared { script: self.clone(), session: session.clone() }))
    }
}

struct Prepared {
    script: Scripted,
    session: Session,
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, _: f64) -> Result<Hypergradient> {
        let mut seen = self.script.seen.lock().unwrap();
        seen.push((state.theta[0].item().unwrap(), key));
        let (value, inner_loss, outer_loss) = (self.script.answer)(seen.len() as u32);
        state.theta[0].set_item(seen.len() as f64)?;
        let value: Vec<Array> = state.lambda.iter().map(|l| Array::full(l.shape(), value, l.dtype())).collect();
        let value = Leaves::upload(self.session.executor(), &value)?;
        let oracles = Oracles { inner_gradients: 3, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles).with_inner_loss(inner_loss).with_outer_loss(outer_loss))
    }
}

fn lambda<L: Tree, T: Tree>(outcome: &Outcome<L, T>) -> f64 {
    outcome.state.lambda[0].item().unwrap()
}

/// λ after each of the first iterations, from 0 with rate 0.1.
fn path(optimizer: impl Optimizer + Copy + 'static, gradients: &'static [f64]) -> Vec<f64> {
    let run = |n| {
        let driver = Driver::new(&scalar_problem(Variable::constant([], 0.0)), Scripted::gradients(gradients));
        lambda(&driver.optimizer(optimizer).rate(0.1).iterations(n).run().unwrap())
    };
    (1..=gradients.len() as u32).map(run).collect()
}

fn assert_close(found: &[f64], want: &[f64]) {
    assert_eq!(found.len(), want.len());
    for (f, w) in found.iter().zip(want) {
        // A few roundings of numbers of size 1.
        assert!((f - w).abs() < 1e-15, "{found:?} is not {want:?}");
    }
}

#[test]
fn optimizers_take_the_steps_computed_by_hand() {
    let gradients = &[1.0, -2.0, 3.0];
    assert_close(&path(Sgd, gradients), &[-0.1, 0.1, -0.2]);
    // v = 1, −1.1, 2.01
    assert_close(&path(Momentum::default(), gradients), &[-0.1, 0.01, -0.191]);
    // g + 0.9·v = 1.9, −2.99, 4.809
    assert_close(&path(Momentum { nesterov: true, ..Momentum::default() }, gradients), &[-0.19, 0.109, -0.3719]);
    // By exact fractions.
    assert_close(&path(Adam::default(), gradients), &[-0.1, -0.06338964729641544, -0.0977137553256048]);
}

#[test]
fn adam_in_single_precision_takes_the_steps_of_double_precision_to_rounding() {
    let path = |dtype| {
        let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
            .dtype(dtype)
            .inner(|_, l, t| (t.0 - l.0).square())
            .outer(|_, _, t| (t.0 - 1.0).square())
            .build()
            .unwrap();
        [1, 2, 3, 40].map(|iterations| {
            let driver = Driver::new(&problem, Scripted::gradients(&[1.0, 2.0, 0.5]));
            lambda(&driver.optimizer(Adam::default()).rate(0.1).iterations(iterations).run().unwrap())
        })
    };
    for (single, double) in path(DType::F32).into_iter().zip(path(DType::F64)) {
        // 1 − 0.999 alone would be off by 1e-5 if it were taken in single precision.
        assert!((single / double - 1.0).abs() < 1e-6, "{single} and {double}");
    }
}

#[test]
fn settings_outside_their_range_are_refused_with_their_name() {
    let problem = scalar_problem(Variable::constant([], 0.0));
    let driver = || Driver::new(&problem, Scripted::gradients(&[1.0]));
    let cases: [(Driver, &str); 14] = [
        (driver().rate(0.0), "rate"),
        (driver().rate(f64::NAN), "rate"),
        (driver().schedule(Schedule::step_decay(0.1, 0, 0.5)), "every"),
        (driver().schedule(Schedule::step_decay(0.1, 1, 1.5)), "factor"),
        (driver().schedule(Schedule::cosine(0.1, 0, 0.0)), "over"),
        (driver().schedule(Schedule::cosine(0.1, 5, 0.2)), "last"),
        (driver().optimizer(Momentum { decay: 1.0, nesterov: false }), "decay"),
        (driver().optimizer(Adam { beta1: -0.1, ..Adam::default() }), "beta1"),
        (driver().optimizer(Adam { beta2: 1.0, ..Adam::default() }), "beta2"),
        (driver().optimizer(Adam { epsilon: 0.0, ..Adam::default() }), "epsilon"),
        (driver().clip_norm(0.0), "clip_norm"),
        (driver().iterations(0), "iterations"),
        (driver().tolerance(-1.0), "tolerance"),
        (driver().patience(0, 0.0), "patience"),
    ];
    for (driver, setting) in cases {
        match driver.run() {
            Err(Error::Setting { name, .. }) => assert_eq!(name, setting),
            other => panic!("{setting}: {other:?}"),
        }
    }
}

#[test]
fn lambda_stays_within_its_bounds() {
    for dtype in [DType::F32, DType::F64] {
        let variable = Variable::constant([2], 0.2).at_least(-0.1).at_most(0.3);
        let problem = Problem::builder(Leaf(variable), Leaf(Variable::constant([], 0.0)))
            .dtype(dtype)
            .inner(|_, l, t| (t.0 - l.0.sum_all()).square())
            .outer(|_, _, t| t.0.square())
            .build()
            .unwrap();
        for (gradient, bound) in [(100.0, -0.1f64), (-100.0, 0.3)] {
            let method = Scripted::new(move |_| (gradient, 1.0, 1.0));
            let outcome = Driver::new(&problem, method).iterations(3).run().unwrap();
            for value in outcome.state.lambda.array(0).unwrap().to_f64() {
                assert!((-0.1..=0.3).contains(&value) && (value - bound).abs() < 1e-7, "{value}");
            }
        }
    }
}

#[test]
fn a_long_hypergradient_is_clipped_and_a_short_one_is_not() {
    let problem = Problem::builder(Leaf(Variable::constant([4], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0.sum_all()).square())
        .outer(|_, _, t| t.0.square())
        .build()
        .unwrap();
    // Four numbers of 3 have norm 6.
    let run = |clip| {
        let recorder = Recorder::new();
        let driver = Driver::new(&problem, Scripted::gradients(&[3.0])).rate(1.0).clip_norm(clip);
        driver.iterations(1).observe(recorder.clone()).run().unwrap();
        recorder.iterations()[0].clone()
    };
    let clipped = run(1.5);
    assert!((clipped.step_norm - 1.5).abs() < 1e-15 && clipped.hypergradient_norm == 6.0);
    assert_eq!(run(6.0).step_norm, 6.0);
}

#[test]
fn the_rate_follows_the_schedule() {
    let recorder = Recorder::new();
    let schedule = Schedule::step_decay(1.0, 2, 0.5).warm_up(2);
    Driver::new(&scalar_problem(Variable::constant([], 0.0)), Scripted::gradients(&[1.0]))
        .schedule(schedule)
        .iterations(7)
        .observe(recorder.clone())
        .run()
        .unwrap();
    let rates: Vec<f64> = recorder.iterations().iter().map(|i| i.rate).collect();
    assert_eq!(rates, [0.5, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25]);
}

#[test]
fn iteration_k_draws_from_key_k_and_from_nothing_else() {
    let method = Scripted::gradients(&[1.0]);
    Driver::new(&scalar_problem(Variable::constant([], 0.0)), method.clone()).seed(5).iterations(3).run().unwrap();
    let keys: Vec<_> = method.seen.lock().unwrap().iter().map(|(_, key)| *key).collect();
    assert_eq!(keys, [1, 2, 3].map(|k| Key::from_seed(5).fold_in(k)));
}

#[test]
fn theta_is_kept_warm_or_started_anew() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::normal([], 1.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| t.0.square())
        .build()
        .unwrap();
    let thetas = |cold| {
        let method = Scripted::gradients(&[1.0]);
        Driver::new(&problem, method.clone()).cold(cold).iterations(4).run().unwrap();
        let seen = method.seen.lock().unwrap();
        seen.iter().map(|(theta, _)| *theta).collect::<Vec<_>>()
    };
    assert_eq!(thetas(false)[1..], [1.0, 2.0, 3.0]);
    let cold = thetas(true);
    let first = |k| State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(0).fold_in(k)).unwrap();
    let want: Vec<f64> = (1..=4).map(|k| first(k).theta[0].item().unwrap()).collect();
    assert_eq!(cold, want);
    assert!(cold[0] != cold[1] && cold[1] != cold[2]);
}

#[test]
fn theta_that_starts_from_lambda_follows_it() {
    let problem = |double: bool| {
        Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
            .start(move |_, l| Leaf(if double { l.0 * 2.0 } else { l.0 }))
            .inner(|_, _, t| (t.0 - 1.0).square())
            .outer(|_, _, t| t.0.square())
            .build()
            .unwrap()
    };
    for (double, factor) in [(false, 1.0), (true, 2.0)] {
        let method = Scripted::gradients(&[1.0]);
        Driver::new(&problem(double), method.clone()).rate(0.125).iterations(3).run().unwrap();
        let seen: Vec<f64> = method.seen.lock().unwrap().iter().map(|(theta, _)| *theta).collect();
        assert_eq!(seen, [0.5, 0.375, 0.25].map(|l| l * factor));
    }
    // With a true method: f(θ⁰ = λ) after the inner steps is least where θ ends at 0.
    let method = With(HpoSgld::default(), InnerLoop::new(0.01, 1));
    let outcome = Driver::new(&problem(false), method).rate(0.1).iterations(200).run().unwrap();
    assert!(outcome.state.theta[0].item().unwrap().abs() < 0.05, "{outcome:?}");
}

#[test]
fn a_run_stops_for_each_of_its_reasons() {
    let problem = scalar_problem(Variable::constant([], 0.0));
    let falling = || Scripted::new(|k| (1.0 / k as f64, 1.0, 1.0 / k as f64));
    let driver = || Driver::new(&problem, falling()).iterations(50);

    let outcome = driver().run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Iterations, 50));
    assert_eq!((outcome.oracles.inner_gradients, outcome.best_outer_loss), (150, Some(1.0 / 50.0)));

    let outcome = driver().tolerance(0.1).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Tolerance, 10));

    let stuck = Scripted::new(|k| (1.0, 1.0, if k < 5 { 1.0 / k as f64 } else { 0.5 }));
    let outcome = Driver::new(&problem, stuck).iterations(50).patience(6, 0.0).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Patience, 10));
    // Of 1, 1/2, 1/3, 1/4, 1/5, … only 1/2 and 1/4 are better than the last mark by more than 0.2.
    let outcome = driver().patience(3, 0.2).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Patience, 7));

    let outcome = driver().time_limit(Duration::ZERO).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Time, 0));

    let signal = StopSignal::new();
    signal.stop();
    let outcome = driver().stop_signal(signal).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Signal, 0));

    struct StopAt(u32, StopSignal);
    impl Observer for StopAt {
        fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
            if iteration.number == 4 {
                self.1.stop();
            }
            if iteration.number == self.0 { ControlFlow::Break("enough".into()) } else { ControlFlow::Continue(()) }
        }
    }
    let outcome = driver().observe(StopAt(3, StopSignal::new())).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Observer("enough".into()), 3));
    let signal = StopSignal::new();
    let outcome = driver().observe(StopAt(9, signal.clone())).stop_signal(signal).run().unwrap();
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Signal, 4));
}

fn diverged<L: Tree, T: Tree>(outcome: &Outcome<L, T>) -> &bilevel::diagnostics::Diagnosis {
    match &outcome.reason {
        StopReason::Diverged(diagnosis) => diagnosis,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_inner_step_that_is_too_large_is_diagnosed_and_the_last_good_state_kept() {
    let problem = crate::kill_target::problem().unwrap();
    // Curvature of the inner loss is about 2, so steps above 1 diverge.
    let hpo =
        |step| With(HpoSgld::default(), InnerLoop { burn_in: 500, ..InnerLoop::new(step, 1000).at_temperature(1e-6) });
    let adjoint = |step| With(LangevinAdjoint::default(), InnerLoop::new(step, 1000).at_temperature(1e-6));
    let methods: [Box<dyn Method>; 2] = [Box::new(hpo(3.0)), Box::new(adjoint(3.0))];
    for method in methods {
        let outcome = Driver::new(&problem, method).executor(Cpu::with_threads(1)).seed(3).run().unwrap();
        let diagnosis = diverged(&outcome);
        assert_eq!((diagnosis.cause, diagnosis.iteration, outcome.iterations), (Cause::InnerStepTooLarge, 1, 0));
        assert!(outcome.reason.to_string().contains("take a smaller inner step"), "{}", outcome.reason);
        let first = State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(3)).unwrap();
        assert_eq!(outcome.state.snapshot().unwrap(), first.snapshot().unwrap());
    }
}

#[test]
fn an_outer_step_that_is_too_large_is_diagnosed_and_the_last_good_state_kept() {
    // Weight decay that may become negative: then there is no minimum, and θ runs away.
    let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - 2.0).square() + l.0 * t.0.square())
        .outer(|_, _, t| (t.0 - 3.0).square())
        .build()
        .unwrap();
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 2000));
    let outcome = Driver::new(&problem, method).rate(100.0).run().unwrap();
    assert_eq!(diverged(&outcome).cause, Cause::OuterStepTooLarge);
    assert!(outcome.iterations >= 1 && outcome.last.unwrap().number == outcome.iterations);
    assert!(outcome.state.lambda[0].item().unwrap().is_finite() && outcome.state.theta[0].item().unwrap().is_finite());
}

#[test]
fn growth_is_noticed_and_the_state_from_before_it_kept() {
    let problem = scalar_problem(Variable::constant([], 0.0));
    let method = Scripted::new(|k| (if k > 10 { 1e9 } else { 1.0 }, 1.0, 1.0));
    let outcome = Driver::new(&problem, method).rate(0.5).run().unwrap();
    let diagnosis = diverged(&outcome);
    assert_eq!((diagnosis.iteration, diagnosis.cause), (13, Cause::AdjointGrowing));
    assert_eq!((outcome.iterations, lambda(&outcome)), (10, -5.0));
    assert_eq!(outcome.oracles.inner_gradients, 30);

    let loss = Scripted::new(|k| (1.0, 1.0, if k > 10 { 1e9 } else { 1.0 }));
    assert_eq!(diverged(&Driver::new(&problem, loss).run().unwrap()).cause, Cause::OuterStepTooLarge);
    let inner = Scripted::new(|k| (1.0, if k > 10 { -1e9 } else { 1.0 }, 1.0));
    assert_eq!(diverged(&Driver::new(&problem, inner).run().unwrap()).cause, Cause::InnerStepTooLarge);
    // A loss of NaN is one that the method has not evaluated.
    let infinite = Scripted::new(|k| (1.0, 1.0, if k > 4 { f64::INFINITY } else { 1.0 }));
    assert_eq!(Driver::new(&problem, infinite).run().unwrap().iterations, 4);
    let huge = Scripted::new(|_| (1e308, 1.0, 1.0));
    let outcome = Driver::new(&problem, huge).rate(1e10).run().unwrap();
    assert_eq!((diverged(&outcome).cause, outcome.iterations, lambda(&outcome)), (Cause::OuterStepTooLarge, 0, 0.0));
}

#[test]
fn a_run_that_holds_no_state_to_fall_back_on_computes_the_same_and_says_so_where_it_would_need_one() {
    let problem = crate::kill_target::problem().unwrap();
    let adjoint = With(LangevinAdjoint::default(), InnerLoop::new(0.01, 20).at_temperature(1e-6));
    let run = |fall_back| Driver::new(&problem, adjoint).iterations(5).seed(3).fall_back(fall_back).run().unwrap();
    let (with, without) = (run(true), run(false));
    assert_eq!(with.state.snapshot().unwrap(), without.state.snapshot().unwrap());
    assert_eq!((with.reason, with.notes), (without.reason, without.notes));

    let problem = scalar_problem(Variable::constant([], 0.0));
    let method = || Scripted::new(|k| (if k > 10 { 1e9 } else { 1.0 }, 1.0, 1.0));
    let outcome = Driver::new(&problem, method()).rate(0.5).fall_back(false).run().unwrap();
    let diagnosis = diverged(&outcome);
    assert_eq!((diagnosis.iteration, diagnosis.cause), (13, Cause::AdjointGrowing));
    // Where the steps of the suspect iterations have taken it.
    assert!(lambda(&outcome) < -1e9, "{}", lambda(&outcome));
    assert!(outcome.notes.iter().any(|note| note.contains("kept no last good state")), "{:?}", outcome.notes);
}

#[test]
fn one_bad_iteration_does_not_end_a_run() {
    let method = Scripted::new(|k| (if k % 10 == 0 { 1e9 } else { 1.0 }, 1.0, 1.0));
    let outcome = Driver::new(&scalar_problem(Variable::constant([], 0.0)), method).run().unwrap();
    assert_eq!(outcome.reason, StopReason::Iterations);
}

/// A writer to look into.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn progress_is_plain_lines_unless_it_goes_to_a_terminal() {
    let text = |terminal| {
        let shared = Shared::default();
        let line = ProgressLine::new(shared.clone(), terminal).pause(Duration::ZERO);
        Driver::new(&scalar_problem(Variable::constant([], 0.0)), Scripted::gradients(&[1.0]))
            .iterations(3)
            .observe(line)
            .run()
            .unwrap();
        let bytes = shared.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    };
    let plain = text(false);
    let lines: Vec<&str> = plain.lines().collect();
    assert_eq!(lines.len(), 4, "{plain}");
    assert!(lines[2].starts_with("iteration 3/3  outer 1.0000e0") && !plain.contains('\r'), "{plain}");
    assert_eq!(lines[3], "after 3 iterations: all iterations are done");
    let terminal = text(true);
    assert_eq!(terminal.matches('\r').count(), 3);
    assert!(terminal.ends_with("\nafter 3 iterations: all iterations are done\n"), "{terminal}");
}

#[test]
fn the_last_line_is_shown_even_if_it_comes_too_soon() {
    let shared = Shared::default();
    Driver::new(&scalar_problem(Variable::constant([], 0.0)), Scripted::gradients(&[1.0]))
        .iterations(30)
        .observe(ProgressLine::new(shared.clone(), false).pause(Duration::from_secs(1000)))
        .run()
        .unwrap();
    let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
    let firsts: Vec<&str> = text.lines().map(|l| l.split("  ").next().unwrap()).collect();
    assert_eq!(firsts, ["iteration 1/30", "iteration 30/30", "after 30 iterations: all iterations are done"]);
}

#[test]
fn metrics_are_json_that_reads_back_exactly() {
    let path = std::env::temp_dir().join(format!("bilevel-metrics-{}.jsonl", std::process::id()));
    let recorder = Recorder::new();
    let method = Scripted::new(|k| (1e-300 / k as f64, 1e17 + k as f64, -1.0 / 3.0 / k as f64));
    Driver::new(&scalar_problem(Variable::constant([], 0.0)), method)
        .iterations(5)
        .observe(recorder.clone())
        .observe(JsonLines::new(&path))
        .run()
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text.lines().count(), 5);
    for (line, iteration) in text.lines().zip(recorder.iterations()) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["iteration"], iteration.number);
        assert_eq!(value["hypergradient_norm"].as_f64().unwrap(), iteration.hypergradient_norm);
        assert_eq!(value["inner_loss"].as_f64().unwrap(), iteration.inner_loss);
        assert_eq!(value["outer_loss"].as_f64().unwrap(), iteration.outer_loss);
        assert_eq!(value["inner_gradients"], iteration.oracles.inner_gradients);
    }
}

#[test]
fn metrics_that_cannot_be_written_stop_the_run_and_say_so() {
    let outcome = Driver::new(&scalar_problem(Variable::constant([], 0.0)), Scripted::gradients(&[1.0]))
        .observe(JsonLines::new("no/such/folder/metrics.jsonl"))
        .run()
        .unwrap();
    match &outcome.reason {
        StopReason::Observer(reason) => assert!(reason.contains("no/such/folder/metrics.jsonl"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn observers_hear_of_the_beginning_every_iteration_and_the_end() {
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);
    impl Observer for Heard {
        fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
            self.0.lock().unwrap().push(format!("{} {}", beginning.method, beginning.optimizer));
            ControlFlow::Continue(())
        }
        fn on_iteration(&mut self, iteration: &Iteration, state: &State) -> ControlFlow<String> {
            self.0.lock().unwrap().push(format!("{} {:?}", iteration.number, state.lambda[0].item().unwrap()));
            ControlFlow::Continue(())
        }
        fn on_end(&mut self, outcome: &Outcome) {
            self.0.lock().unwrap().push(outcome.reason.to_string());
        }
    }
    let heard = Heard::default();
    Driver::new(&scalar_problem(Variable::constant([], 1.0)), Scripted::gradients(&[1.0]))
        .rate(0.25)
        .iterations(2)
        .observe(heard.clone())
        .run()
        .unwrap();
    assert_eq!(*heard.0.lock().unwrap(), ["scripted sgd", "1 0.75", "2 0.5", "all iterations are done"]);
}

#[test]
fn the_loop_finds_the_optimum_of_the_synthetic_problem() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.1)), Leaf(Variable::constant([], 0.1)))
        .inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
        .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
        .build()
        .unwrap();
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.05, 100));
    let outcome = Driver::new(&problem, method).rate(0.005).iterations(3000).run().unwrap();
    // The design's measured optimum and error.
    assert!((lambda(&outcome) - 0.74894).abs() < 3e-5, "{}", lambda(&outcome));
}

#[test]
fn a_run_is_a_function_of_its_seed_whatever_the_number_of_threads() {
    let problem = crate::kill_target::problem().unwrap();
    let run = |seed, threads| {
        let method = With(LangevinAdjoint::default(), InnerLoop::new(0.01, 5).at_temperature(1e-2));
        let driver = Driver::new(&problem, method).seed(seed).executor(Cpu::with_threads(threads));
        crate::kill_target::bits(&driver.optimizer(Adam::default()).iterations(20).run().unwrap()).unwrap()
    };
    assert_eq!(run(1, 1), run(1, 2));
    assert_ne!(run(1, 1), run(2, 1));
}

#[test]
fn a_run_goes_on_only_with_the_losses_bounds_and_schedules_it_began_with() {
    let folder = std::env::temp_dir().join(format!("bilevel-identity-{}", std::process::id()));
    let problem = |power: f64, high: f64| {
        Problem::builder(Leaf(Variable::constant([], 0.5).at_most(high)), Leaf(Variable::constant([], 0.0)))
            .inner(move |_, l, t| (t.0 - l.0).square() * power)
            .outer(|_, _, t| (t.0 - 1.0).square())
            .build()
            .unwrap()
    };
    let method = With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::default() });
    let go_on = |problem: &AnyProblem, change: &dyn Fn(Driver) -> Driver| {
        let driver = Driver::new(&Problem::from(problem.clone()), method).rate(0.1).iterations(4);
        change(driver).checkpoints(bilevel::checkpoints::Checkpoints::new(&folder).every(2).resume(true)).run()
    };
    go_on(&problem(1.0, 3.0), &|driver| driver.iterations(2)).unwrap();
    type Change = (f64, f64, &'static dyn Fn(Driver) -> Driver, &'static str);
    let changes: [Change; 5] = [
        (2.0, 3.0, &|d| d, "the losses differ"),
        (1.0, 2.0, &|d| d, "different bounds"),
        (1.0, 3.0, &|d| d.rate(0.2), "the schedule differs: it has rate = 0.1 there and 0.2 here"),
        (
            1.0,
            3.0,
            &|d| d.inner(InnerLoop::new(0.02, 100)),
            "the inner loop differs: it has step = 0.01 there and 0.02 here",
        ),
        (1.0, 3.0, &|d| d.clip_norm(1.0), "the clip is"),
    ];
    for (power, high, change, said) in changes {
        let error = go_on(&problem(power, high), change).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(go_on(&problem(1.0, 3.0), &|driver| driver).unwrap().iterations, 4);
    std::fs::remove_dir_all(folder).unwrap();
}
