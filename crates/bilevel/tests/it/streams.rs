//! Streams: data read step by step, the same when a step is run again, and nobody disturbed by somebody else's step.

use crate::with::{Usual, With};
use bilevel::checkpoints::{Checkpoints, Fingerprint};
use bilevel::data::{Stream, StreamResult};
use bilevel::graph::random::fill_normal_f64;
use bilevel::graph::{Graph, Program, gradient_or_zeros};
use bilevel::methods::{AnyMethod, Chains, Storage};
use bilevel::observers::StopSignal;
use bilevel::prelude::*;
use bilevel::programs::{Routine, Trace};
use bilevel::{AnyProblem, Error, ProblemBuilder, Session, methods};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Builder = ProblemBuilder<Leaf<Variable>, Leaf<Variable>>;

/// Four normal numbers for every key and step, those that a program draws from this random stream; and what was asked for.
#[derive(Clone, Default)]
struct Noise {
    random_stream: u32,
    asked: Arc<Mutex<Vec<(Key, u32)>>>,
}

impl Noise {
    fn of(random_stream: u32) -> Self {
        Noise { random_stream, asked: Arc::default() }
    }
}

impl Stream for Noise {
    fn batch(&self, key: Key, step: u32) -> StreamResult {
        self.asked.lock().unwrap().push((key, step));
        let mut batch = vec![0.0; 4];
        fill_normal_f64(key.words(), step, self.random_stream, 0, &mut batch);
        Ok(Array::from_f64([4], batch)?)
    }

    fn identity(&self) -> String {
        format!("random stream {}", self.random_stream)
    }
}

fn blank() -> Builder {
    Problem::builder(Leaf(Variable::constant([4], 0.2)), Leaf(Variable::normal([4], 0.5)))
}

/// A problem without a closed form, in which both losses see four numbers.
fn losses(
    builder: Builder,
    inner: impl Fn(&Scope) -> Tensor + Send + Sync + 'static,
    outer: impl Fn(&Scope) -> Tensor + Send + Sync + 'static,
) -> Problem {
    let built = builder
        .inner(move |s, l, t| ((t.0 - inner(s)).square() * l.0.exp()).sum_all() + (t.0 * l.0).tanh().sum_all())
        .outer(move |s, _, t| (t.0 - 0.3 * outer(s)).square().sum_all());
    built.build().unwrap().erase()
}

/// The random streams of the first draws of the two losses.
const INNER: u32 = 1 << 28;
const OUTER: u32 = 2 << 28;

fn streamed(dtype: DType) -> Problem {
    let builder = blank().dtype(dtype).stream("x", [4], DType::F64, Noise::of(INNER));
    losses(builder.stream("y", [4], DType::F64, Noise::of(OUTER)), |s| s.data("x"), |s| s.data("y"))
}

fn estimate(problem: &AnyProblem, method: &dyn Method) -> [Vec<f64>; 2] {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let mut estimator = method.prepared(&session).unwrap();
    let mut state = session.state(Key::from_seed(4)).unwrap();
    let mut all = vec![];
    for iteration in 0..2 {
        let found = estimator.estimate(&mut state, Key::from_seed(5).fold_in(iteration)).unwrap();
        all.extend([found.value.numbers().unwrap(), vec![found.inner_loss, found.outer_loss]].concat());
    }
    [all, state.theta.numbers().unwrap()]
}

#[test]
fn every_method_finds_on_a_stream_what_it_finds_where_the_program_draws_the_same_numbers() {
    let drawn = losses(blank(), |s| s.normal([4]), |s| s.normal([4]));
    let mut tried = 0;
    for info in methods::all() {
        let method = AnyMethod::named(info.name).unwrap();
        if method.applies(&drawn).is_ok() {
            assert_eq!(estimate(&streamed(DType::F64), &method), estimate(&drawn, &method), "{}", info.name);
            tried += 1;
        }
    }
    assert!(tried > 8, "only {tried} methods apply");
    let chains = Chains::new(With(LangevinAdjoint::default(), InnerLoop::new(0.01, 20).at_temperature(1e-6)), 5);
    assert_eq!(estimate(&streamed(DType::F64), &chains), estimate(&drawn, &chains));
}

#[test]
fn reverse_mode_from_checkpoints_equals_reverse_mode_that_keeps_everything_to_the_bit() {
    for dtype in [DType::F32, DType::F64] {
        let problem = streamed(dtype);
        let method = |storage| With(Rmd { storage }, InnerLoop::new(0.05, 30).at_temperature(0.01));
        assert_eq!(estimate(&problem, &method(Storage::All)), estimate(&problem, &method(Storage::Checkpoints)));
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let problem = streamed(DType::F64);
    let run = |iterations| {
        let method = With(LangevinAdjoint::default(), InnerLoop::new(0.05, 15).at_temperature(1e-6));
        Driver::new(&problem, method).executor(Cpu::with_threads(1)).rate(0.05).iterations(iterations).seed(8)
    };
    let alone = run(6).run().unwrap().state.snapshot().unwrap();
    for point in [1, 4] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Checkpoints::new(folder.path()).every(1).resume(true);
        run(point).checkpoints(settings.clone()).run().unwrap();
        let resumed = run(6).checkpoints(settings).run().unwrap();
        assert_eq!(resumed.state.snapshot().unwrap(), alone);
    }
}

/// A routine whose output is the batch its program reads: at the loop's step, or at a fixed one.
fn batch_reader(session: &Session, fixed: Option<u32>) -> Routine {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem()).unwrap();
    let step = fixed.map_or(graph.step(), |step| graph.scalar(step as f64, DType::I32));
    let slope = gradient_or_zeros(trace.outer(&trace.theta, step).unwrap(), &trace.theta).unwrap();
    Routine::new(&Program::builder(&graph).output("batch.0", slope[0]).build().unwrap(), session).unwrap()
}

fn linear(stream: impl Stream + 'static) -> Builder {
    blank().stream("x", [4], DType::F64, stream).inner(|_, l, t| (t.0 - l.0).square().sum_all()).outer(|s, _, t| {
        // Its derivative is the batch.
        (t.0 * s.data("x")).sum_all()
    })
}

#[test]
fn routines_of_one_session_at_different_steps_do_not_disturb_each_other() {
    let noise = Noise::of(3);
    let session = Session::new(&linear(noise.clone()).build().unwrap(), &Cpu::with_threads(1)).unwrap();
    let mut readers = [batch_reader(&session, None), batch_reader(&session, None), batch_reader(&session, Some(9))];
    let (a, b) = (Key::from_seed(1), Key::from_seed(2));
    // Forwards, backwards, in leaps, with other keys, and by turns.
    for (number, (key, step)) in
        [(a, 0), (a, 1), (b, 7), (a, 2), (b, 6), (a, 9), (b, 5), (b, 4), (a, 4), (a, 4), (b, 0)].into_iter().enumerate()
    {
        let reader = number % 3;
        let routine = &mut readers[reader];
        routine.set_key(key).unwrap();
        let batch = routine.outputs("batch").unwrap();
        routine.run(step..step + 2).unwrap();
        let read = if reader == 2 { 9 } else { step + 1 };
        assert_eq!(batch.array(0).unwrap(), Noise::of(3).batch(key, read).unwrap(), "reader {reader}, step {step}");
    }
}

#[test]
fn a_batch_is_read_once_for_a_loop_over_it_and_never_beyond_the_loop() {
    let noise = Noise::of(3);
    let session = Session::new(&linear(noise.clone()).build().unwrap(), &Cpu::with_threads(1)).unwrap();
    let key = Key::from_seed(1);
    let mut fixed = batch_reader(&session, Some(5));
    fixed.set_key(key).unwrap();
    fixed.run(0..40).unwrap();
    fixed.run(3..4).unwrap();
    assert_eq!(std::mem::take(&mut *noise.asked.lock().unwrap()), [(key, 5)]);
    let mut each = batch_reader(&session, None);
    each.set_key(key).unwrap();
    each.run(0..20).unwrap();
    let mut asked = std::mem::take(&mut *noise.asked.lock().unwrap());
    asked.sort_by_key(|(_, step)| *step);
    // Step 5 is still there for the other.
    assert!(asked.iter().map(|(_, step)| *step).eq((0..20).filter(|step| *step != 5)), "{asked:?}");
}

#[test]
fn integers_and_other_floats_are_taken_in_their_types_and_an_episode_is_one_batch() {
    let rows = |key: Key, step: u32| Ok(Array::from_i32([2], vec![(key.words()[0] % 3) as i32, (step % 3) as i32])?);
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([2], 0.0)))
        .dtype(DType::F32)
        .data("table", Array::from_f64([3], vec![1.0, 2.0, 4.0]).unwrap())
        .stream("rows", [2], DType::I32, rows)
        .stream("single", [2], DType::F64, |_, step| Ok(Array::from_f64([2], vec![0.5, step as f64])?))
        .inner(|s, l, t| (t.0 - l.0).square().sum_all() + s.data("single").sum_all() * t.0.sum_all())
        .outer(|s, _, t| (t.0 * s.data("table").take(s.episode().data("rows"))).sum_all())
        .build()
        .unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut reader = batch_reader(&session, None);
    let key = Key::from([4, 0]);
    reader.set_key(key).unwrap();
    let batch = reader.outputs("batch").unwrap();
    for step in 0..3 {
        reader.run(step..step + 1).unwrap();
        // 2³¹ − 1 is 1 mod 3.
        assert_eq!(batch.numbers().unwrap(), [2.0, 2.0]);
    }
    With(Rmd::default(), InnerLoop::new(0.01, 3)).prepared(&session).unwrap();
    let losses = problem.losses(&Graph::new(), &session.state(key).unwrap().snapshot().unwrap(), key);
    assert_eq!(losses.unwrap().point.len(), 2 + 1 + 2 + 1);
}

#[test]
fn errors_panics_and_what_was_not_declared_become_errors_that_name_stream_and_step() {
    let said = |stream: fn(Key, u32) -> StreamResult| {
        let session = Session::new(&linear(stream).build().unwrap(), &Cpu::with_threads(1)).unwrap();
        let mut reader = batch_reader(&session, None);
        reader.set_key(Key::from_seed(1)).unwrap();
        match reader.run(0..5).unwrap_err() {
            Error::Stream { name, step: 2, reason } if name == "x" => reason,
            other => panic!("{other:?}"),
        }
    };
    fn zeros(step: u32, odd: impl FnOnce() -> StreamResult) -> StreamResult {
        if step == 2 { odd() } else { Ok(Array::zeros([4], DType::F64)) }
    }
    assert_eq!(said(|_, step| zeros(step, || Err("the file is gone".into()))), "the file is gone");
    assert_eq!(said(|_, step| zeros(step, || panic!("no row {step}"))), "it panicked: no row 2");
    assert_eq!(
        said(|_, step| zeros(step, || Ok(Array::zeros([3], DType::F64)))),
        "it returned f64[3] but was declared as f64[4]"
    );
    assert_eq!(
        said(|_, step| zeros(step, || Ok(Array::zeros([4], DType::I32)))),
        "it returned i32[4] but was declared as f64[4]"
    );
    let said = said(|_, step| zeros(step, || Ok(Array::full([4], f64::NAN, DType::F64))));
    assert!(said.contains("holds NaN in row 0"), "{said}");
    let error = Error::Stream { name: "x".into(), step: 2, reason: "gone".into() };
    assert_eq!(error.to_string(), "the stream 'x' did not provide the batch of step 2: gone");
}

#[test]
fn what_failed_is_tried_again_when_it_is_asked_for_again() {
    let tries = AtomicUsize::new(0);
    let flaky = move |_: Key, _: u32| match tries.fetch_add(1, SeqCst) {
        0 => Err("busy".into()),
        _ => Ok(Array::full([4], 1.0, DType::F64)),
    };
    let session = Session::new(&linear(flaky).build().unwrap(), &Cpu::with_threads(1)).unwrap();
    let mut reader = batch_reader(&session, None);
    reader.set_key(Key::from_seed(1)).unwrap();
    assert!(reader.run(0..1).is_err());
    reader.run(0..1).unwrap();
}

#[test]
fn the_thread_ends_with_the_session_and_what_was_compiled_in_it() {
    let noise = Arc::new(Noise::of(1));
    let shared = noise.clone();
    let problem = linear(move |key, step| shared.batch(key, step)).build().unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut reader = batch_reader(&session, None);
    let another = session.clone();
    drop((problem, session));
    reader.set_key(Key::from_seed(1)).unwrap();
    reader.run(0..3).unwrap();
    drop(another);
    reader.run(3..5).unwrap();
    assert_eq!(Arc::strong_count(&noise), 2);
    // The thread held the last handle to the stream, and is joined.
    drop(reader);
    assert_eq!(Arc::strong_count(&noise), 1);
}

#[test]
fn a_run_that_waits_for_a_batch_can_be_stopped() {
    let signal = StopSignal::new();
    let setter = signal.clone();
    let slow = move |_: Key, step: u32| {
        if step == 3 {
            setter.stop();
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(Array::zeros([4], DType::F64))
    };
    let problem = losses(blank().stream("x", [4], DType::F64, slow), |s| s.data("x"), |s| s.data("x"));
    let outcome = Driver::new(&problem, Rmd::default()).stop_signal(signal).rate(0.1).iterations(5).run().unwrap();
    assert_eq!(outcome.reason, StopReason::Signal);
}

#[test]
fn a_program_that_reads_a_stream_needs_a_key() {
    let session = Session::new(&linear(Noise::of(1)).build().unwrap(), &Cpu::with_threads(1)).unwrap();
    let said = batch_reader(&session, None).run(0..1).unwrap_err().to_string();
    assert!(said.contains("set a key with set_key"), "{said}");
}

#[test]
fn the_fingerprint_names_the_streams() {
    let of = |stream: Noise| Fingerprint::of(&linear(stream).build().unwrap());
    assert_eq!(of(Noise::of(1)).difference(&of(Noise::of(1))), None);
    assert_eq!(
        of(Noise::of(1)).difference(&of(Noise::of(2))).unwrap(),
        "the streams are 'x' (f64[4] of random stream 1) there and 'x' (f64[4] of random stream 2) here"
    );
}

#[test]
fn streams_without_a_name_of_their_own_or_without_elements_are_refused() {
    let refused = |builder: Builder| builder.build().err().unwrap().to_string();
    let twice = linear(Noise::of(1)).data("x", Array::zeros([4], DType::F64));
    assert!(refused(twice).starts_with("two data sets are named 'x'"));
    let empty = linear(Noise::of(1)).stream("nothing", [4, 0], DType::F64, Noise::of(2));
    assert_eq!(refused(empty), "the stream 'nothing' has batches without elements");
    let unknown =
        blank().stream("numbers", [4], DType::F64, Noise::of(1)).inner(|s, _, t| (t.0 * s.data("numbrs")).sum_all());
    assert_eq!(refused(unknown.outer(|_, _, t| t.0.sum_all())), "there is no data set 'numbrs'; did you mean numbers?");
}
