//! Minibatches in epochs and with replacement, and few-shot episodes: exact, even, and the same when a step is run again.

use crate::with::{Usual, With};
use bilevel::checkpoints::Checkpoints;
use bilevel::data::{Classes, Episode, Shots};
use bilevel::graph::{Executor, Graph, Program, Reference, gradient_or_zeros};
use bilevel::methods::{HpoSgld, Rmd, Storage};
use bilevel::programs::{Routine, Trace};
use bilevel::{AnyProblem, Array, Cpu, DType, Driver, InnerLoop, Key, Leaf, Problem, Scope, Session, Tensor, Variable};
use proptest::prelude::*;

/// Runs what a loss draws, as numbers, at any step and key.
struct Drawer {
    routine: Routine,
    session: Session,
}

impl Drawer {
    fn with(
        dtype: DType,
        size: usize,
        classes: Option<Classes>,
        draw: impl Fn(&Scope) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        // The gradient of Σ θ·draw is the draw.
        let mut builder =
            Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([size], 0.0))).dtype(dtype);
        if let Some(classes) = classes {
            builder = builder.classes("all", classes);
        }
        let problem = builder
            .inner(move |s, _, t| (t.0.convert(DType::F64) * draw(s).convert(DType::F64)).sum_all().convert(dtype))
            .outer(|_, l, _| l.0)
            .build()
            .unwrap();
        Drawer::of(&problem, |trace| trace.inner(&trace.theta, trace.graph.step()))
    }

    fn of(problem: &AnyProblem, loss: impl Fn(&Trace) -> bilevel::Result<Tensor>) -> Self {
        Self::on(&Cpu::with_threads(1), problem, loss)
    }

    fn on(executor: &dyn Executor, problem: &AnyProblem, loss: impl Fn(&Trace) -> bilevel::Result<Tensor>) -> Self {
        let session = Session::new(problem, executor).unwrap();
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem).unwrap();
        let slope = gradient_or_zeros(loss(&trace).unwrap(), &trace.theta).unwrap();
        let program = Program::builder(&graph).output("rows.0", slope[0]).build().unwrap();
        Drawer { routine: Routine::new(&program, &session).unwrap(), session }
    }

    fn new(size: usize, draw: impl Fn(&Scope) -> Tensor + Send + Sync + 'static) -> Self {
        Self::with(DType::F64, size, None, draw)
    }

    fn epochs(rows: usize, size: usize) -> Self {
        Self::new(size, move |s| s.epochs(rows, size))
    }

    fn at(&mut self, key: Key, step: u32) -> Vec<usize> {
        let state = self.session.state(key).unwrap();
        self.routine.bind_point(&state.lambda, &state.theta, key).unwrap();
        self.again(key, step)
    }

    /// As `at`, after it was called once.
    fn again(&mut self, key: Key, step: u32) -> Vec<usize> {
        self.routine.set_key(key).unwrap();
        let rows = self.routine.outputs("rows").unwrap();
        self.routine.run(step..step + 1).unwrap();
        rows.numbers().unwrap().into_iter().map(|row| row as usize).collect()
    }
}

fn assert_is_permutation(rows: &[usize], n: usize) {
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..n), "not every one of {n} rows once: {rows:?}");
}

/// How many standard deviations χ² lies above what even counts would give.
fn unevenness(counts: &[usize]) -> f64 {
    let (cells, total) = (counts.len() as f64, counts.iter().sum::<usize>() as f64);
    let each = total / cells;
    let square = counts.iter().map(|&count| (count as f64 - each).powi(2) / each).sum::<f64>();
    (square - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
}

#[test]
fn an_epoch_has_every_row_exactly_once_for_every_number_of_rows() {
    for n in (1..=120).chain([255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 65_537]) {
        let mut order = Drawer::epochs(n, n);
        let (first, second) = (order.at(Key::from_seed(n as u64), 0), order.again(Key::from_seed(n as u64), 1));
        assert_is_permutation(&first, n);
        assert_is_permutation(&second, n);
        assert!(n < 20 || first != second, "two epochs of {n} rows in one order");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn minibatches_that_do_not_divide_the_rows_go_on_in_the_next_epoch(n in 1usize..400, share in 0.0f64..1.0, seed: u64) {
        let size = ((n as f64 * share) as usize).clamp(1, n);
        let (key, mut batches, mut order) = (Key::from_seed(seed), Drawer::epochs(n, size), Drawer::epochs(n, n));
        batches.at(key, 0);
        order.at(key, 0);
        let all: Vec<usize> = (0..(3 * n).div_ceil(size) as u32).flat_map(|step| batches.again(key, step)).collect();
        for (epoch, rows) in all.chunks_exact(n).enumerate() {
            assert_is_permutation(rows, n);
            prop_assert_eq!(rows, order.again(key, epoch as u32));
        }
    }

    #[test]
    fn the_place_of_a_step_is_exact_however_late_it_is(n in 1usize..3000, share in 0.0f64..1.0, step in 0u32..i32::MAX as u32) {
        let size = ((n as f64 * share) as usize).clamp(1, n);
        let key = Key::from_seed(5);
        for step in [step, i32::MAX as u32 - 1] {
            let from = step as u64 * size as u64;
            let (epoch, place) = ((from / n as u64) as u32, (from % n as u64) as usize);
            let mut order = Drawer::epochs(n, n);
            let both = [order.at(key, epoch), order.again(key, epoch + 1)].concat();
            prop_assert_eq!(&Drawer::epochs(n, size).at(key, step)[..], &both[place..place + size]);
        }
    }
}

#[test]
fn pairs_of_rows_meet_pairs_of_places_equally_often() {
    for n in [5, 16, 17, 20, 24, 37] {
        let mut order = Drawer::epochs(n, n);
        order.at(Key::from_seed(0), 0);
        let pairs = [(0, 1), (0, n / 2), (n - 2, n - 1)];
        let mut counts = vec![vec![0; n * n]; pairs.len()];
        for epoch in 0..30_000 {
            let rows = order.again(Key::from_seed(9), epoch);
            for (counts, (a, b)) in counts.iter_mut().zip(pairs) {
                counts[rows[a] * n + rows[b]] += 1;
            }
        }
        for (counts, pair) in counts.iter().zip(pairs) {
            let different: Vec<usize> = (0..n * n).filter(|i| i / n != i % n).map(|i| counts[i]).collect();
            let off = unevenness(&different);
            assert!(off < 4.0, "places {pair:?} of {n}: χ² is {off} standard deviations too large");
        }
    }
}

#[test]
fn all_rows_of_large_data_are_reached_in_single_precision_too() {
    const SIZE: usize = 1 << 16;
    let kinds: [fn(&Scope, usize) -> Tensor; 2] = [|s, rows| s.minibatch(rows, SIZE), |s, rows| s.epochs(rows, SIZE)];
    for rows in [(1 << 24) + 4321, (1 << 26) + 5, i32::MAX as usize] {
        for (number, kind) in kinds.into_iter().enumerate() {
            // A row as its upper and lower half, which single precision can hold.
            let mut halves = Drawer::with(DType::F32, 2 * SIZE, None, move |s| {
                let row = kind(s, rows).convert(DType::F64);
                let upper = (row * 2f64.powi(-16)).floor();
                upper.concat(&[row - upper * 65536.0], 0)
            });
            let mut drawn: Vec<usize> = vec![];
            let key = Key::from_seed(3);
            halves.at(key, 0);
            for step in 0..4 {
                let both = halves.again(key, step);
                drawn.extend(both[..SIZE].iter().zip(&both[SIZE..]).map(|(upper, lower)| upper * 65536 + lower));
            }
            assert!(drawn.iter().all(|&row| row < rows));
            let (mut parts, mut last, mut neighbours) = (vec![0; 64], vec![0; 256], vec![0; 64]);
            for (i, &row) in drawn.iter().enumerate() {
                parts[row * 64 / rows] += 1;
                last[row % 256] += 1;
                let step = (drawn[(i + 1) % drawn.len()] + rows - row) % rows;
                neighbours[step * 64 / rows] += 1;
            }
            for (what, counts) in [("where", &parts), ("the last digits", &last), ("from one to the next", &neighbours)]
            {
                let off = unevenness(counts);
                assert!(off < 5.0, "{what}, {rows} rows, kind {number}: χ² is {off} standard deviations too large");
            }
            if number == 1 {
                drawn.sort_unstable();
                assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "a row came twice in one epoch");
            }
        }
    }
}

#[test]
fn an_episode_scope_draws_rows_once_and_all_different() {
    let mut rows = Drawer::new(30, |s| s.episode().epochs(100, 30));
    let first = rows.at(Key::from_seed(1), 0);
    assert_eq!(rows.again(Key::from_seed(1), 17), first);
    assert_ne!(rows.again(Key::from_seed(2), 0), first);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 30);
}

#[test]
fn the_reference_executor_draws_the_same_rows() {
    for (n, size) in [(11, 4), (1000, 64), (i32::MAX as usize, 64)] {
        let fast = &mut Drawer::epochs(n, size);
        let inner = |trace: &Trace| trace.inner(&trace.theta, trace.graph.step());
        let exact = &mut Drawer::on(&Reference, fast.session.problem(), inner);
        for step in [0, 1, 2, 1_000_003] {
            assert_eq!(fast.at(Key::from_seed(1), step), exact.at(Key::from_seed(1), step), "{n} rows, step {step}");
        }
    }
}

#[test]
fn more_rows_than_a_32_bit_integer_can_number_are_refused() {
    let refused = |draw: fn(&Scope, usize) -> Tensor, rows: usize| {
        Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
            .inner(move |s, _, t| t.0 * draw(s, rows).convert(DType::F64).sum_all())
            .outer(|_, _, t| t.0)
            .build()
            .map(drop)
    };
    let draws: [fn(&Scope, usize) -> Tensor; 2] = [|s, rows| s.minibatch(rows, 4), |s, rows| s.epochs(rows, 4)];
    for draw in draws {
        refused(draw, i32::MAX as usize).unwrap();
        let said = refused(draw, i32::MAX as usize + 1).unwrap_err().to_string();
        assert!(said.contains("row numbers are 32-bit integers; draw from at most 2147483647"), "{said}");
        assert!(refused(draw, 3).unwrap_err().to_string().contains("larger than the 3 rows"));
    }
}

fn regression() -> Problem {
    let x: Vec<f64> = (0..50).map(|i| ((i * 37 % 101) as f64 - 50.0) / 50.0).collect();
    Problem::builder(Leaf(Variable::constant([3], 0.1)), Leaf(Variable::normal([3], 0.5)))
        .data("x", Array::from_f64([50], x).unwrap())
        .inner(|s, l, t| {
            let mean = s.data("x").take(s.epochs(50, 7)).mean_all();
            ((t.0 - mean).square() * l.0.exp()).sum_all() + t.0.square().sum_all()
        })
        .outer(|s, _, t| (t.0 - s.data("x").take(s.epochs(50, 11)).mean_all()).square().sum_all())
        .build()
        .unwrap()
        .erase()
}

#[test]
fn reverse_mode_from_checkpoints_sees_the_epochs_of_the_walk_forward() {
    let problem = regression();
    let estimate = |storage| {
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let method = With(Rmd { storage }, InnerLoop::new(0.01, 30));
        let mut estimator = method.prepared(&session).unwrap();
        let mut state = session.state(Key::from_seed(4)).unwrap();
        estimator.estimate(&mut state, Key::from_seed(5)).unwrap().value.numbers().unwrap()
    };
    assert_eq!(estimate(Storage::All), estimate(Storage::Checkpoints));
}

#[test]
fn a_resumed_run_goes_on_with_the_epochs_of_an_uninterrupted_one() {
    let problem = regression();
    let run = |iterations| {
        let method =
            With(HpoSgld::default(), InnerLoop { burn_in: 5, ..InnerLoop::new(0.01, 15).at_temperature(1e-6) });
        Driver::new(&problem, method).executor(Cpu::with_threads(1)).rate(0.05).iterations(iterations).seed(8)
    };
    let alone = run(6).run().unwrap().state.snapshot().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let settings = Checkpoints::new(folder.path()).every(1).resume(true);
    run(2).checkpoints(settings.clone()).run().unwrap();
    assert_eq!(run(6).checkpoints(settings).run().unwrap().state.snapshot().unwrap(), alone);
}

/// Eleven classes of 6 to 9 rows, strewn over 100.
fn classes() -> Classes {
    Classes::new(
        (0..11).map(|class| (format!("class {class}"), (0..6 + class % 4).map(|i| (class + 11 * i) % 100).collect())),
    )
    .unwrap()
}

const SHOTS: Shots = Shots { ways: 5, support: 2, query: 4 };

fn flat(episode: Episode) -> Tensor {
    let Episode { support, support_labels, query, query_labels, classes } = episode;
    support.concat(&[support_labels, query, query_labels, classes], 0)
}

#[test]
fn an_episode_has_different_classes_and_different_rows_of_each_with_labels_from_0() {
    let classes = classes();
    let mut episode =
        Drawer::with(DType::F64, 2 * 10 + 2 * 20 + 5, Some(classes.clone()), |s| flat(s.shots("all", SHOTS)));
    episode.at(Key::from_seed(0), 0);
    let (mut by_class, mut by_row) = (vec![0; 11], vec![0; classes.rows(3).len()]);
    for seed in 0..4000 {
        let all = episode.again(Key::from_seed(seed), 0);
        let (rows, chosen) = ([&all[..10], &all[20..40]].concat(), &all[60..]);
        let labels = [&all[10..20], &all[40..60]].concat();
        assert_eq!(labels[..10], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        for (row, label) in rows.iter().zip(labels) {
            assert!(
                classes.rows(chosen[label]).contains(&(*row as i32)),
                "row {row} is not of class {}",
                chosen[label]
            );
        }
        for different in [&rows[..], chosen] {
            let mut sorted = different.to_vec();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]), "{different:?}");
        }
        chosen.iter().for_each(|&class| by_class[class] += 1);
        if let Some(place) = chosen.iter().position(|&class| class == 3) {
            // Every row of the class is as likely to be its first in the support.
            by_row[classes.rows(3).iter().position(|&row| row as usize == rows[2 * place]).unwrap()] += 1;
        }
    }
    assert!(unevenness(&by_class) < 4.0 && unevenness(&by_row) < 4.0, "{by_class:?} {by_row:?}");
}

#[test]
fn episodes_side_by_side_are_drawn_one_by_one_with_equal_chances() {
    let classes = classes();
    let rows = |s: &Scope| {
        let Episode { support, support_labels, query, query_labels, classes } = s.shots_of("all", SHOTS, 3);
        support.concat(&[support_labels, query, query_labels, classes], 1).reshape([3 * 65])
    };
    let mut episodes = Drawer::with(DType::F64, 3 * 65, Some(classes.clone()), rows);
    episodes.at(Key::from_seed(0), 0);
    let mut by_class = [0; 11];
    for seed in 0..1500 {
        let all = episodes.again(Key::from_seed(seed), 0);
        for one in all.chunks(65) {
            let (rows, labels, chosen) =
                ([&one[..10], &one[20..40]].concat(), [&one[10..20], &one[40..60]].concat(), &one[60..]);
            assert_eq!(labels[..10], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
            let belongs = |(row, label): (&usize, usize)| classes.rows(chosen[label]).contains(&(*row as i32));
            assert!(rows.iter().zip(labels).all(belongs), "{one:?}");
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]), "{rows:?}");
            chosen.iter().for_each(|&class| by_class[class] += 1);
        }
        assert!(all[..65] != all[65..130] && all[65..130] != all[130..], "each has a draw of its own");
    }
    assert!(unevenness(&by_class) < 4.0, "{by_class:?}");
}

#[test]
fn inner_loss_outer_loss_and_every_step_see_one_episode() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([65], 0.0)))
        .classes("all", classes())
        // Whatever else is drawn, and however often.
        .inner(|s, _, t| {
            let _ = (s.episode().normal([3]), s.shots("all", SHOTS), s.uniform([2], 0.0, 1.0));
            (t.0 * flat(s.shots("all", SHOTS)).convert(DType::F64)).sum_all()
        })
        .outer(|s, _, t| (t.0 * flat(s.shots("all", SHOTS)).convert(DType::F64)).sum_all())
        .build()
        .unwrap();
    let mut inner = Drawer::of(&problem, |trace| trace.inner(&trace.theta, trace.graph.step()));
    let mut outer = Drawer::of(&problem, |trace| trace.outer(&trace.theta, trace.graph.step()));
    let seen = inner.at(Key::from_seed(6), 0);
    assert_eq!(inner.again(Key::from_seed(6), 9), seen);
    assert_eq!(outer.at(Key::from_seed(6), 10), seen);
    assert_ne!(outer.again(Key::from_seed(7), 10), seen);
}

#[test]
fn episodes_that_cannot_be_drawn_are_refused_with_the_name_of_the_class() {
    let refused = |name: &'static str, shots: Shots| {
        let built = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
            .classes("all", classes())
            .inner(move |s, _, t| t.0 * s.shots(name, shots).support.convert(DType::F64).sum_all())
            .outer(|_, _, t| t.0)
            .build();
        built.err().unwrap().to_string()
    };
    let said = refused("all", Shots { query: 5, ..SHOTS });
    assert!(
        said.starts_with("class 'class 0' of 'all' has 6 rows, but an episode needs 2 + 5 different rows"),
        "{said}"
    );
    assert!(
        refused("all", Shots { ways: 12, ..SHOTS })
            .contains("an episode of 12 ways needs as many classes, but 'all' has 11")
    );
    assert!(refused("all", Shots { support: 0, ..SHOTS }).contains("at least one way"));
    assert!(refused("al", SHOTS).contains("did you mean all?"));
    let said = Classes::new([("a", vec![1, 2]), ("b", vec![2])]).unwrap_err().to_string();
    assert!(said.contains("row 2 is listed twice"), "{said}");
    assert!(Classes::new([("a", vec![1 << 31])]).unwrap_err().to_string().contains("below 2³¹"));
}
