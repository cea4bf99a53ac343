//! Checkpoints: a resumed run has the bits of an uninterrupted one, and a damaged file is never a surprise.

use crate::with::With;
use bilevel::checkpoints::{Checkpoint, CheckpointError, Checkpoints};
use bilevel::observers::{Iteration, JsonLines, Observer, StopSignal};
use bilevel::optimizers::{Momentum, Optimizer};
use bilevel::prelude::*;
use bilevel::{AnyProblem, Error, State};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bilevel-checkpoint-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, iteration: u32) -> PathBuf {
        self.0.join(format!("checkpoint-{iteration:010}.bilevel"))
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn adjoint() -> With<LangevinAdjoint> {
    With(LangevinAdjoint::default(), InnerLoop::new(0.05, 3).at_temperature(1e-2))
}

fn hpo() -> With<HpoSgld> {
    With(HpoSgld::default(), InnerLoop { burn_in: 1, ..InnerLoop::new(0.05, 3).at_temperature(1e-2) })
}

fn optimizer(kind: usize) -> Box<dyn Optimizer> {
    match kind {
        0 => Box::new(Sgd),
        1 => Box::new(Momentum::default()),
        _ => Box::new(Adam::default()),
    }
}

/// The run most tests use: noise, minibatches, patience that never ends.
fn driver(problem: &AnyProblem, method: impl Method + 'static) -> Driver {
    Driver::new(&Problem::from(problem.clone()), method)
        .executor(Cpu::with_threads(1))
        .optimizer(Adam::default())
        .schedule(Schedule::cosine(0.1, 12, 0.01).warm_up(3))
        .clip_norm(0.5)
        .patience(1000, 1e-3)
        .seed(11)
}

/// Everything in an outcome but the time.
fn essence<L: Tree, T: Tree>(outcome: &Outcome<L, T>) -> impl PartialEq + std::fmt::Debug + use<L, T> {
    let mut last = outcome.last.clone();
    last.iter_mut().for_each(|last: &mut Iteration| last.elapsed = Default::default());
    let reason = outcome.reason.to_string();
    (crate::kill_target::bits(outcome).unwrap(), last, outcome.best_outer_loss, outcome.oracles, reason)
}

/// Interrupts a run at every point, once and then at all points in one run, and compares.
fn check_every_interruption(make: &dyn Fn() -> Driver, iterations: u32) {
    let alone = make().iterations(iterations).run().unwrap();
    assert_eq!(alone.iterations, iterations, "{}", alone.reason);
    for point in 1..iterations {
        let scratch = Scratch::new();
        let settings = Checkpoints::new(&scratch.0).every(3).resume(true);
        make().iterations(point).checkpoints(settings.clone()).run().unwrap();
        let resumed = make().iterations(iterations).checkpoints(settings).run().unwrap();
        assert_eq!(essence(&resumed), essence(&alone), "interrupted after {point}");
    }
    let scratch = Scratch::new();
    let settings = Checkpoints::new(&scratch.0).every(100).resume(true);
    let mut last = None;
    for point in 1..=iterations {
        last = Some(make().iterations(point).checkpoints(settings.clone()).run().unwrap());
    }
    assert_eq!(essence(&last.unwrap()), essence(&alone), "interrupted after every iteration");
}

#[test]
fn a_resumed_run_has_the_bits_of_an_uninterrupted_one_wherever_it_was_interrupted() {
    let problem = crate::kill_target::problem().unwrap();
    for kind in 0..3 {
        for cold in [false, true] {
            check_every_interruption(&|| driver(&problem, adjoint()).optimizer(optimizer(kind)).cold(cold), 12);
            check_every_interruption(&|| driver(&problem, hpo()).optimizer(optimizer(kind)).cold(cold), 12);
        }
    }
}

#[test]
fn so_does_one_in_single_precision_and_one_that_starts_from_lambda() {
    let problem = |dtype, from_lambda: bool| {
        let builder = Problem::builder(Leaf(Variable::normal([5], 0.3)), Leaf(Variable::normal([5], 0.3)))
            .dtype(dtype)
            .inner(|s, l, t| ((t.0 - l.0 * 0.3).square() * (1.0 + s.uniform([5], 0.0, 1.0))).sum_all())
            .outer(|s, _, t| (t.0 - 1.0 + s.normal([5]) * 0.1).square().sum_all());
        if from_lambda { builder.start(|_, l| Leaf(l.0 * 2.0)).build().unwrap() } else { builder.build().unwrap() }
    };
    for dtype in [DType::F32, DType::F64] {
        check_every_interruption(&|| driver(&problem(dtype, true), hpo()), 8);
        check_every_interruption(&|| driver(&problem(dtype, false), adjoint()), 8);
    }
}

#[test]
fn a_run_stopped_by_a_signal_or_an_observer_goes_on_alike() {
    struct StopAt(u32, Option<StopSignal>);
    impl Observer for StopAt {
        fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
            match (&self.1, iteration.number == self.0) {
                (Some(signal), true) => signal.stop(),
                (None, true) => return ControlFlow::Break("enough".into()),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let problem = crate::kill_target::problem().unwrap();
    let alone = driver(&problem, adjoint()).iterations(9).run().unwrap();
    for with_signal in [false, true] {
        let scratch = Scratch::new();
        let make = || {
            let checkpoints = Checkpoints::new(&scratch.0).every(100).resume(true);
            driver(&problem, adjoint()).iterations(9).checkpoints(checkpoints)
        };
        let signal = with_signal.then(StopSignal::new);
        let stopping = make().stop_signal(signal.clone().unwrap_or_default()).observe(StopAt(4, signal));
        assert_eq!(stopping.run().unwrap().iterations, 4);
        assert_eq!(essence(&make().run().unwrap()), essence(&alone));
    }
}

#[test]
fn a_finished_run_that_is_resumed_stops_at_once_for_the_same_reason() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| (t.0 - 1.0).square())
        .build()
        .unwrap();
    let quiet = With(LangevinAdjoint::default(), InnerLoop::default());
    for patience in [false, true] {
        let scratch = Scratch::new();
        let run = || {
            let driver = Driver::new(&problem, quiet).rate(0.1).iterations(10_000);
            let driver = if patience { driver.patience(4, 0.01) } else { driver.tolerance(1e-3) };
            driver.checkpoints(Checkpoints::new(&scratch.0).resume(true)).run().unwrap()
        };
        let (first, second) = (run(), run());
        assert_eq!(first.reason, if patience { StopReason::Patience } else { StopReason::Tolerance });
        assert_eq!(essence(&first), essence(&second));
    }
}

#[test]
fn a_diverging_run_diverges_alike_after_a_resumption_and_leaves_the_last_good_state() {
    // λ is driven up at a steady rate until the inner loop is no longer stable: curvature 2·exp(λ) against step 0.05.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.5)))
        .inner(|_, l, t| l.0.exp() * t.0.square())
        .outer(|_, l, t| t.0 * 0.0 - l.0)
        .build()
        .unwrap();
    let method = With(HpoSgld::default(), InnerLoop::new(0.05, 30).at_temperature(1e-6));
    let make = || Driver::new(&problem, method).rate(0.1).cold(true).iterations(500);
    let alone = make().run().unwrap();
    assert!(matches!(alone.reason, StopReason::Diverged(_)) && alone.iterations > 10, "{}", alone.reason);
    for point in [1, alone.iterations - 3, alone.iterations - 1, alone.iterations, alone.iterations + 1] {
        let scratch = Scratch::new();
        let settings = Checkpoints::new(&scratch.0).every(1).resume(true);
        make().iterations(point).checkpoints(settings.clone()).run().unwrap();
        let resumed = make().checkpoints(settings.clone()).run().unwrap();
        assert_eq!(essence(&resumed), essence(&alone), "interrupted after {point}");
        let newest = settings.newest().unwrap().unwrap();
        let last = alone.state.snapshot().unwrap();
        assert_eq!((newest.checkpoint.iteration(), newest.checkpoint.state()), (alone.iterations, &last));
    }
    // A run that holds no state to fall back on leaves the good one that was saved, too.
    let scratch = Scratch::new();
    let settings = Checkpoints::new(&scratch.0).every(1);
    let without = make().fall_back(false).checkpoints(settings.clone()).run().unwrap();
    assert!(matches!(without.reason, StopReason::Diverged(_)), "{}", without.reason);
    let newest = settings.newest().unwrap().unwrap();
    let last = alone.state.snapshot().unwrap();
    assert_eq!((newest.checkpoint.iteration(), newest.checkpoint.state()), (alone.iterations, &last));
}

#[test]
fn a_checkpoint_that_is_due_in_a_suspect_iteration_is_that_of_the_last_good_one() {
    // λ rises by 1 in every iteration, and in the tenth the outer loss leaps.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.5)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, l, t| {
            let leap = (l.0.greater(8.5) - l.0.greater(9.5)) * 1e9;
            t.0 * 0.0 - l.0 + leap
        })
        .build()
        .unwrap();
    let method = With(HpoSgld::default(), InnerLoop::new(0.1, 3).at_temperature(1e-6));
    let scratch = Scratch::new();
    let settings = Checkpoints::new(&scratch.0).every(10);
    let seen = std::sync::Arc::new(std::sync::Mutex::new(vec![]));
    let watch = Watch { folder: settings.clone(), seen: seen.clone() };
    let outcome = Driver::new(&problem, method).rate(1.0).iterations(12).checkpoints(settings).observe(watch).run();
    assert_eq!(outcome.unwrap().iterations, 12);
    // After iteration 11 there is a checkpoint of iteration 9, though iteration 10 was suspect.
    assert_eq!(seen.lock().unwrap()[10], Some(9));
}

/// Notes after every iteration which checkpoint is the newest.
struct Watch {
    folder: Checkpoints,
    seen: std::sync::Arc<std::sync::Mutex<Vec<Option<u32>>>>,
}

impl bilevel::observers::Observer for Watch {
    fn on_iteration(&mut self, _: &bilevel::observers::Iteration, _: &bilevel::State) -> std::ops::ControlFlow<String> {
        let newest = self.folder.newest().unwrap().map(|newest| newest.checkpoint.iteration());
        self.seen.lock().unwrap().push(newest);
        std::ops::ControlFlow::Continue(())
    }
}

/// A folder with the checkpoints of iterations 5 and 6, and the outcome of the whole run of 10.
fn prepared() -> (Scratch, Problem, Outcome) {
    let problem = crate::kill_target::problem().unwrap();
    let scratch = Scratch::new();
    driver(&problem, adjoint()).iterations(6).checkpoints(Checkpoints::new(&scratch.0).every(1)).run().unwrap();
    let alone = driver(&problem, adjoint()).iterations(10).run().unwrap();
    (scratch, problem, alone)
}

fn resume(scratch: &Scratch, problem: &AnyProblem) -> bilevel::Result<Outcome> {
    let settings = Checkpoints::new(&scratch.0).every(1).resume(true);
    driver(problem, adjoint()).iterations(10).checkpoints(settings).run()
}

#[test]
fn the_last_two_checkpoints_are_kept() {
    let (scratch, ..) = prepared();
    assert_eq!(scratch.names(), ["checkpoint-0000000005.bilevel", "checkpoint-0000000006.bilevel", "lock"]);
}

#[test]
fn a_checkpoint_encodes_to_the_bytes_it_was_read_from() {
    let (scratch, ..) = prepared();
    let bytes = std::fs::read(scratch.file(6)).unwrap();
    let checkpoint = Checkpoint::decode(&bytes).unwrap();
    assert_eq!(checkpoint.encode().unwrap(), bytes);
    assert_eq!((checkpoint.iteration(), checkpoint.seed()), (6, 11));
    assert_eq!((checkpoint.method().name(), checkpoint.optimizer().name()), ("langevin-adjoint", "adam"));
    assert!(checkpoint.method().get("horizon").is_some() && checkpoint.optimizer().get("beta1").is_some());
}

#[test]
fn a_file_cut_short_at_any_length_is_refused() {
    let (scratch, ..) = prepared();
    let bytes = std::fs::read(scratch.file(6)).unwrap();
    for length in 0..bytes.len() {
        let error = Checkpoint::decode(&bytes[..length]).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{length}: {error}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(Checkpoint::decode(&longer), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn a_flip_of_any_one_bit_is_noticed() {
    let (scratch, ..) = prepared();
    let mut bytes = std::fs::read(scratch.file(6)).unwrap();
    for i in 0..bytes.len() * 8 {
        bytes[i / 8] ^= 1 << (i % 8);
        assert!(Checkpoint::decode(&bytes).is_err(), "bit {i}");
        bytes[i / 8] ^= 1 << (i % 8);
    }
    assert!(Checkpoint::decode(&bytes).is_ok());
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n.max(1) as u64) as usize
    }
}

/// Something a bad disk, a bad transfer or a bad editor may do.
fn corrupt(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let (i, j) = (random.below(out.len()), random.below(out.len()));
        let (low, high) = (i.min(j), i.max(j));
        match random.below(8) {
            0 => out.truncate(i),
            1 => {
                out.get_mut(i).into_iter().for_each(|b| *b = b.wrapping_add(1 + (j % 255) as u8));
            }
            2 => out[low..high].fill(0),
            3 => out[low..high].iter_mut().for_each(|b| *b = random.below(256) as u8),
            4 => drop(out.drain(low..high)),
            5 => {
                let part = out[low..high].to_vec();
                out.splice(i..i, part);
            }
            6 => out[low..high].reverse(),
            _ => {
                // Digits of the header: numbers become others, or absurd.
                let digits: Vec<usize> = (0..out.len()).filter(|&k| out[k].is_ascii_digit()).collect();
                if let Some(&k) = digits.get(random.below(digits.len())) {
                    out[k] = b'0' + random.below(10) as u8;
                }
            }
        }
    }
    out
}

/// Makes length and checksum right, so that the rest of the reader is put to the test.
fn forge(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 28 {
        let length = bytes.len();
        bytes[12..20].copy_from_slice(&(length as u64).to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..length - 4]);
        bytes[length - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

#[test]
fn random_corruptions_are_answered_with_an_error_and_never_with_a_panic() {
    let (scratch, ..) = prepared();
    let bytes = std::fs::read(scratch.file(6)).unwrap();
    let mut random = Random(1);
    let (mut tried, mut forged_errors) = (0, 0);
    while tried < 20_000 {
        let bad = corrupt(&bytes, &mut random);
        if bad == bytes {
            continue;
        }
        tried += 1;
        assert!(Checkpoint::decode(&bad).is_err(), "corruption {tried}");
        // With a forged checksum a change may go unnoticed, but whatever is read must be whole.
        match Checkpoint::decode(&forge(bad)) {
            Ok(checkpoint) => assert!(checkpoint.encode().is_ok()),
            Err(_) => forged_errors += 1,
        }
    }
    println!("{tried} corruptions refused; with a forged checksum {forged_errors} refused, none a panic");
}

#[test]
fn a_run_falls_back_on_the_checkpoint_before_a_damaged_one_and_says_so() {
    let (scratch, problem, alone) = prepared();
    let (older, newer) = (std::fs::read(scratch.file(5)).unwrap(), std::fs::read(scratch.file(6)).unwrap());
    let mut random = Random(2);
    let mut cases: Vec<Vec<u8>> = vec![vec![], b"something else".to_vec(), newer[..newer.len() / 2].to_vec()];
    let mut future = newer.clone();
    future[8] = bilevel::checkpoints::FORMAT_VERSION as u8 + 1;
    cases.push(future);
    cases.extend((0..60).map(|_| corrupt(&newer, &mut random)).filter(|bad| *bad != newer));
    for bad in cases {
        let scratch = Scratch::new();
        std::fs::write(scratch.file(5), &older).unwrap();
        std::fs::write(scratch.file(6), &bad).unwrap();
        let outcome = resume(&scratch, &problem).unwrap();
        assert_eq!(essence(&outcome), essence(&alone));
        assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
        assert!(outcome.notes[0].contains("checkpoint-0000000006") && outcome.notes[0].contains("the previous one"));
        // The refused file is still there under another name.
        let aside = scratch.0.join("checkpoint-0000000006.bilevel.refused");
        assert_eq!(std::fs::read(aside).unwrap(), bad);
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_under_a_right_checksum_too() {
    let (scratch, problem, alone) = prepared();
    let newer = std::fs::read(scratch.file(6)).unwrap();
    // The last number of the last tensor: all before it has been read by then.
    let mut bad = newer.clone();
    let last = bad.len() - 12;
    bad[last..last + 8].copy_from_slice(&f64::NAN.to_le_bytes());
    let bad = forge(bad);
    let error = Checkpoint::decode(&bad).unwrap_err().to_string();
    assert!(error.contains("holds numbers that are not finite"), "{error}");
    std::fs::write(scratch.file(6), &bad).unwrap();
    let outcome = resume(&scratch, &problem).unwrap();
    assert_eq!((essence(&outcome), outcome.notes.len()), (essence(&alone), 1));
    assert!(outcome.notes[0].contains("not finite"), "{:?}", outcome.notes);
}

#[test]
fn where_all_are_damaged_the_run_is_refused_and_nothing_is_touched() {
    let (scratch, problem, _) = prepared();
    for iteration in [5, 6] {
        std::fs::write(scratch.file(iteration), b"BILEVEL\0 and then nothing").unwrap();
    }
    let before = scratch.names();
    assert!(matches!(resume(&scratch, &problem), Err(Error::Checkpoint(CheckpointError::NewerVersion { .. }))));
    std::fs::write(scratch.file(6), b"").unwrap();
    assert!(matches!(resume(&scratch, &problem), Err(Error::Checkpoint(CheckpointError::Damaged { .. }))));
    assert_eq!(scratch.names(), before);
}

#[test]
fn a_folder_in_the_place_of_a_checkpoint_is_passed_over() {
    let (scratch, problem, alone) = prepared();
    std::fs::create_dir(scratch.file(7)).unwrap();
    assert!(matches!(Checkpoint::read(scratch.file(7)), Err(CheckpointError::NotACheckpoint { .. })));
    let outcome = resume(&scratch, &problem).unwrap();
    assert_eq!((essence(&outcome), outcome.notes.len()), (essence(&alone), 1));
}

#[test]
fn a_checkpoint_under_the_name_of_another_iteration_is_passed_over() {
    let (scratch, problem, alone) = prepared();
    std::fs::copy(scratch.file(5), scratch.file(8)).unwrap();
    let outcome = resume(&scratch, &problem).unwrap();
    assert_eq!((essence(&outcome), outcome.notes.len()), (essence(&alone), 1));
}

#[test]
fn a_checkpoint_of_another_run_is_refused_and_the_difference_named() {
    let (scratch, problem, _) = prepared();
    let settings = || Checkpoints::new(&scratch.0).resume(true);
    let other = |rows: f64, dtype| {
        let x: Vec<f64> = (0..32).map(|i| i as f64 * rows).collect();
        Problem::builder(Leaf(Variable::constant([2], 0.0)), Leaf(Variable::constant([2], 0.0)))
            .dtype(dtype)
            .data("x", Array::from_f64([32], x).unwrap())
            .inner(|_, l, t| (t.0 - l.0).square().sum_all())
            .outer(|s, _, t| t.0.square().sum_all() + s.data("x").mean_all())
            .build()
            .unwrap()
    };
    let cases = [
        (driver(&problem, hpo()), "method"),
        (driver(&problem, adjoint()).optimizer(Sgd), "optimizer"),
        (driver(&problem, adjoint()).seed(12), "seed"),
        (driver(&problem, adjoint()).cold(true), "cold"),
        (driver(&other(1.0, DType::F64), adjoint()), "λ has the leaves"),
        (driver(&other(1.0, DType::F32), adjoint()), "it uses"),
    ];
    for (driver, word) in cases {
        match driver.iterations(10).checkpoints(settings()).run() {
            Err(Error::Checkpoint(CheckpointError::Foreign { difference, .. })) => {
                assert!(difference.contains(word), "{difference}")
            }
            other => panic!("{word}: {other:?}"),
        }
    }
    let scratch = Scratch::new();
    let run = |rows| {
        let settings = Checkpoints::new(&scratch.0).resume(true);
        driver(&other(rows, DType::F64), adjoint()).iterations(3).checkpoints(settings).run()
    };
    run(1.0).unwrap();
    match run(2.0) {
        Err(Error::Checkpoint(error @ CheckpointError::Foreign { .. })) => {
            assert!(error.to_string().contains("different contents"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_that_does_not_resume_leaves_the_checkpoints_of_another_alone() {
    let (scratch, problem, _) = prepared();
    let fresh = driver(&problem, adjoint()).checkpoints(Checkpoints::new(&scratch.0)).run();
    assert!(matches!(fresh, Err(Error::Checkpoint(CheckpointError::Occupied { .. }))));
    assert!(scratch.file(6).exists());
}

#[test]
fn two_runs_cannot_write_to_one_folder() {
    struct Intruder(PathBuf, Problem);
    impl Observer for Intruder {
        fn on_iteration(&mut self, _: &Iteration, _: &State) -> ControlFlow<String> {
            let second = driver(&self.1, adjoint()).checkpoints(Checkpoints::new(&self.0).resume(true)).run();
            ControlFlow::Break(second.unwrap_err().to_string())
        }
    }
    let (scratch, problem, _) = prepared();
    let settings = Checkpoints::new(&scratch.0).resume(true);
    let first = driver(&problem, adjoint()).checkpoints(settings).observe(Intruder(scratch.0.clone(), problem.clone()));
    match first.run().unwrap().reason {
        StopReason::Observer(reason) => assert!(reason.starts_with("another run writes checkpoints to"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_half_written_file_of_a_killed_run_is_cleared_away() {
    let (scratch, problem, alone) = prepared();
    let unfinished = scratch.0.join(".checkpoint-0000000007.bilevel.aB3dE6gH9jK2.unfinished");
    std::fs::write(&unfinished, b"BILEV").unwrap();
    std::fs::write(scratch.0.join("notes.txt"), b"mine").unwrap();
    let outcome = resume(&scratch, &problem).unwrap();
    assert_eq!((essence(&outcome), outcome.notes.len()), (essence(&alone), 0));
    assert!(!unfinished.exists() && scratch.0.join("notes.txt").exists());
}

fn refuses_to_write(folder: &Path) {
    let problem = crate::kill_target::problem().unwrap();
    for again in [false, true] {
        let settings = Checkpoints::new(folder).resume(again);
        match driver(&problem, adjoint()).iterations(2).checkpoints(settings).run() {
            Err(Error::Checkpoint(CheckpointError::Io { path, source, .. })) => {
                assert!(path.starts_with(folder) && !source.to_string().is_empty())
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused_before_the_run_begins() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    std::fs::write(&file, b"not a folder").unwrap();
    refuses_to_write(&file);
    refuses_to_write(&file.join("below"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let locked = scratch.0.join("locked");
        std::fs::create_dir(&locked).unwrap();
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
        // The administrator may write everywhere.
        if std::fs::write(locked.join("probe"), b"").is_err() {
            refuses_to_write(&locked);
        }
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    #[cfg(target_os = "linux")]
    refuses_to_write(Path::new("/proc/bilevel-checkpoints"));
}

#[test]
fn a_folder_lost_on_the_way_stops_the_run_with_its_state_in_hand() {
    struct Remove(PathBuf);
    impl Observer for Remove {
        fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
            if iteration.number == 3 {
                std::fs::remove_dir_all(&self.0).unwrap();
            }
            ControlFlow::Continue(())
        }
    }
    let problem = crate::kill_target::problem().unwrap();
    for every in [1, 100] {
        let scratch = Scratch::new();
        let settings = Checkpoints::new(&scratch.0).every(every);
        let run = driver(&problem, adjoint()).iterations(5).checkpoints(settings).observe(Remove(scratch.0.clone()));
        let outcome = run.run().unwrap();
        assert!(matches!(outcome.reason, StopReason::Unsaved(CheckpointError::Io { .. })), "{}", outcome.reason);
        let done = if every == 1 { 3 } else { 5 };
        let alone = driver(&problem, adjoint()).iterations(done).run().unwrap();
        assert_eq!(outcome.iterations, done);
        assert_eq!(outcome.state.snapshot().unwrap(), alone.state.snapshot().unwrap());
    }
}

#[test]
fn checkpoints_every_zero_iterations_are_refused() {
    let problem = crate::kill_target::problem().unwrap();
    let settings = Checkpoints::new(std::env::temp_dir()).every(0);
    let refused = driver(&problem, adjoint()).checkpoints(settings).run();
    assert!(matches!(refused, Err(Error::Setting { name: "every", .. })));
}

#[test]
fn the_metrics_of_a_resumed_run_hold_each_iteration_once() {
    let problem = crate::kill_target::problem().unwrap();
    let scratch = Scratch::new();
    let metrics = scratch.0.join("metrics.jsonl");
    let run = |iterations| {
        let settings = Checkpoints::new(scratch.0.join("checkpoints")).every(4).resume(true);
        let driver = driver(&problem, adjoint()).iterations(iterations).checkpoints(settings);
        driver.observe(JsonLines::new(&metrics)).run().unwrap()
    };
    run(6);
    // As if it had been killed in iteration 8, with the checkpoint of 6 the last and a line half written.
    let mut text = std::fs::read_to_string(&metrics).unwrap();
    text.push_str("{\"iteration\":7,\"inner_loss\":1.0}\n{\"iteration\":8,\"inner");
    std::fs::write(&metrics, text).unwrap();
    run(10);
    let text = std::fs::read_to_string(&metrics).unwrap();
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["iteration"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
}

#[test]
fn metrics_that_go_on_replace_no_foreign_lines_and_follow_no_link() {
    let problem = crate::kill_target::problem().unwrap();
    let scratch = Scratch::new();
    let (metrics, precious) = (scratch.0.join("metrics.jsonl"), scratch.0.join("precious"));
    let run = |iterations| {
        let settings = Checkpoints::new(scratch.0.join("checkpoints")).every(4).resume(true);
        let driver = driver(&problem, adjoint()).iterations(iterations).checkpoints(settings);
        driver.observe(JsonLines::new(&metrics)).run().unwrap()
    };
    run(6);
    std::fs::write(&precious, "mine").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&precious, scratch.0.join("metrics.jsonl.tmp")).unwrap();
    let left = scratch.0.join(".metrics.jsonl.aB3dE6gH9jK2.unfinished");
    std::fs::write(&left, "half").unwrap();
    run(10);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
    assert!(!left.exists());
    std::fs::write(&metrics, "Dear diary,\nnothing was learned today.\n").unwrap();
    match run(12).reason {
        StopReason::Observer(reason) => assert!(
            reason
                .ends_with("line 1 is not the metrics of an iteration; put the right file back, or move this one away"),
            "{reason}"
        ),
        other => panic!("{other:?}"),
    }
    assert!(std::fs::read_to_string(&metrics).unwrap().starts_with("Dear diary"));
}
