//! Splits of rows, tables, and the guard of a run.

use bilevel::checkpoints::Checkpoints;
use bilevel::methods::{IftCg, LangevinAdjoint};
use bilevel::splits::{Guard, Paired, Part, RowLosses, Rows, Share, Split};
use bilevel::{Array, Driver, InnerLoop, Key, Leaf, Outcome, Problem, Session, StopReason, Tree, Variable};
use proptest::prelude::*;

const PARTS: [Part; 4] = [Part::Train, Part::Validation, Part::HeldOut, Part::Test];

fn all_of(rows: &Rows) -> Vec<usize> {
    let mut all: Vec<usize> = PARTS.iter().flat_map(|part| rows.of(*part).to_vec()).collect();
    all.sort_unstable();
    all
}

fn share() -> impl Strategy<Value = f64> {
    0.0..0.25f64
}

proptest! {
    #[test]
    fn parts_are_disjoint_and_have_the_sizes_that_were_asked_for(
        count in 8usize..400, (a, b, c) in (share(), share(), share()), fixed in 1usize..4, seed: u64,
    ) {
        let split = Split { train: 0.25.into(), validation: a.into(), held_out: b.into(), test: c.into(), seed };
        let labels: Vec<u8> = (0..count).map(|row| (row * row % 5) as u8).collect();
        for rows in [split.rows(count).unwrap(), split.stratified(&labels).unwrap()] {
            prop_assert!(rows.check(count).is_ok());
            for (part, share) in PARTS.into_iter().zip([0.25, a, b, c]) {
                prop_assert!((rows.of(part).len() as f64 - share * count as f64).abs() <= 1.0 + 1e-6);
            }
        }
        // Counts are met exactly, whatever fractions take beside them.
        let counted = Split { train: fixed.into(), ..split }.rows(count).unwrap();
        prop_assert_eq!(counted.of(Part::Train).len(), fixed);
        prop_assert!(counted.check(count).is_ok());
    }

    #[test]
    fn every_label_is_in_every_part_as_often_as_among_all_rows(count in 40usize..400, seed: u64) {
        let labels: Vec<u8> = (0..count).map(|row| (row % 7 / 3) as u8).collect();
        let rows = Split { seed, ..Split::default() }.stratified(&labels).unwrap();
        for part in [Part::Train, Part::Validation, Part::HeldOut] {
            for label in 0..3 {
                let here = rows.of(part).iter().filter(|row| labels[**row] == label).count() as f64;
                let all = labels.iter().filter(|l| **l == label).count() as f64;
                let expected = all * rows.of(part).len() as f64 / count as f64;
                prop_assert!((here - expected).abs() <= 3.0, "{part} {label}: {here}, not {expected}");
            }
        }
    }

    #[test]
    fn a_group_is_in_one_part(count in 20usize..300, size in 1usize..7, seed: u64) {
        let groups: Vec<usize> = (0..count).map(|row| row / size).collect();
        let rows = Split { seed, ..Split::default() }.grouped(&groups).unwrap();
        prop_assert!(rows.check(count).is_ok());
        let part_of = |row: usize| PARTS.into_iter().find(|part| rows.of(*part).contains(&row));
        for row in 1..count {
            if groups[row] == groups[row - 1] {
                prop_assert_eq!(part_of(row), part_of(row - 1));
            }
        }
    }

    #[test]
    fn holding_out_and_folds_lose_no_row(count in 10usize..200, share in 0.0..0.9f64, folds in 2usize..8, seed: u64) {
        let rows = Rows::given(0..count / 2, count / 2..count);
        let held = rows.holding_out(share, seed).unwrap();
        prop_assert_eq!(all_of(&held), (0..count).collect::<Vec<_>>());
        prop_assert!(!held.of(Part::Validation).is_empty());
        let folds = held.folds(folds, seed).unwrap();
        let mut judged: Vec<usize> = folds.iter().flat_map(|fold| fold.of(Part::Validation).to_vec()).collect();
        judged.sort_unstable();
        prop_assert_eq!(judged, (0..count).collect::<Vec<_>>());
        prop_assert!(folds.iter().all(|fold| fold.check(count).is_ok() && all_of(fold).len() == count));
    }
}

#[test]
fn impossible_splits_are_refused_in_words() {
    let said = |split: Split| split.rows(10).unwrap_err().to_string();
    let all = Split { train: 8.into(), validation: 5.into(), ..Split::default() };
    assert!(said(all).contains("needs 14 of 10 rows"), "{}", said(all));
    let below = Split { validation: Share::Fraction(-0.1), ..Split::default() };
    assert!(said(below).contains("validation") && said(below).contains("fraction from 0 to 1"), "{}", said(below));
    let none = Split { train: 0.into(), ..Split::default() };
    assert!(said(none).contains("no rows to train on"), "{}", said(none));
    let twice = Rows::given([0, 1], [1]).check(3).unwrap_err().to_string();
    assert!(twice.contains("row 1") && twice.contains("is a training row and a validation row"), "{twice}");
    let table = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .table("y", Array::from_f64([2], vec![1.0, 2.0]).unwrap(), &Rows::given([0], [2]))
        .inner(|s, l, t| (s.data("y") - t.0 - l.0).square().mean_all())
        .outer(|s, _, t| (s.data("y") - t.0).square().mean_all());
    let error = table.build().err().unwrap().to_string();
    assert!(error.contains("the table 'y'") && error.contains("has 2 rows"), "{error}");
    let nothing = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .table("y", Array::from_f64([2], vec![1.0, 2.0]).unwrap(), &Rows::given([0], [1]))
        .inner(|s, l, t| (s.part(Part::Test).data("y") - t.0 - l.0).square().mean_all())
        .outer(|_, _, t| t.0);
    let error = nothing.build().err().unwrap().to_string();
    assert!(error.contains("has no test rows"), "{error}");
}

/// The error of a problem on the mean of four numbers, divided so.
fn refused(y: [f64; 4], rows: &Rows) -> String {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .table("y", Array::from_f64([4], y.to_vec()).unwrap(), rows)
        .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
        .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
        .build();
    problem.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn divisions_that_do_not_fit_the_rows_are_refused_with_the_row_or_the_number() {
    let y = [1.0, 2.0, 3.0, 4.0];
    let fractions = Split { train: 0.7.into(), validation: 0.5.into(), held_out: 0.into(), ..Split::default() };
    assert_eq!(fractions.rows(10).unwrap_err().to_string(), "the split needs 12 of 10 rows; make a part smaller");
    for (rows, said) in [
        (
            Rows::given([0, 1], [4]),
            "the table 'y': row 4 of a split does not exist: the table has 4 rows, counted from 0",
        ),
        (Rows::given([0, 0], [1]), "the table 'y': row 0 of a split is a training row twice"),
        (Rows::given([0, 1], [1]), "the table 'y': row 1 of a split is a training row and a validation row"),
        (Rows::given([], [1]), "the table 'y': the split has no rows to train on"),
        (
            Split::default().grouped(&["a", "a", "b", "b", "c", "c"]).unwrap(),
            "the table 'y': the split divides 6 rows, but there are 4; divide as many rows as the table has",
        ),
        (
            Split::default().stratified(&[0, 1]).unwrap(),
            "the table 'y': the split divides 2 rows, but there are 4; divide as many rows as the table has",
        ),
    ] {
        assert_eq!(refused(y, &rows), said);
    }
    let rows = Rows::given(0..2, 2..4);
    for share in [1.0, -0.1, f64::NAN] {
        let error = rows.holding_out(share, 0).unwrap_err().to_string();
        assert_eq!(error, format!("held_out.share is {share} but must be from 0 to below 1"));
    }
    for folds in [0, 1, 5] {
        let error = rows.folds(folds, 0).unwrap_err().to_string();
        assert_eq!(error, format!("folds is {folds} but must be at least 2, and at most the number of rows"));
    }
    assert_eq!(rows.holding_out(0.0, 0).unwrap(), rows);
}

#[test]
fn a_row_with_a_nan_is_refused_unless_it_belongs_to_no_part() {
    let y = [1.0, 2.0, f64::NAN, 4.0];
    let said = refused(y, &Rows::given([0, 1], [2, 3]));
    let expected = "the table 'y': row 2, a validation row, has a NaN; replace it, or leave the row out of every part";
    assert_eq!(said, expected);
    assert_eq!(refused(y, &Rows::given([0, 1], [3])), "");
}

/// A penalty for each of ten weights, with few noisy rows: λ overfits the validation rows.
fn ridge(rows: &Rows, row_by_row: bool) -> Problem {
    let (count, width) = (120, 10);
    let noise = |i: usize| ((i * i * 7 + 3 * i) as f64 * 0.37).sin();
    let x: Vec<f64> = (0..count * width).map(noise).collect();
    let y: Vec<f64> =
        (0..count).map(|row| x[row * width] + 0.5 * x[row * width + 1] + 1.5 * noise(100_000 + 17 * row)).collect();
    let start = Variable::constant([width, 1], -1.0).at_least(-8.0).at_most(1.5);
    let builder = Problem::builder(Leaf(start), Leaf(Variable::constant([width, 1], 0.0)))
        .table("x", Array::from_f64([count, width], x).unwrap(), rows)
        .table("y", Array::from_f64([count, 1], y).unwrap(), rows)
        .inner(|s, l, t| {
            (s.data("x").matmul(t.0) - s.data("y")).square().mean_all() + (l.0.exp() * t.0.square()).sum_all()
        });
    let problem = match row_by_row {
        true => builder.outer_rows(|s, _, t| (s.data("x").matmul(t.0) - s.data("y")).square()).build(),
        false => builder.outer(|s, _, t| (s.data("x").matmul(t.0) - s.data("y")).square().mean_all()).build(),
    };
    problem.unwrap().erase()
}

fn rows() -> Rows {
    Split { train: 25.into(), validation: 20.into(), held_out: 25.into(), test: 50.into(), seed: 3 }.rows(120).unwrap()
}

/// Eight rows to choose ten λ by, and sixty to see that they are too few.
fn few_rows() -> Rows {
    Split { train: 25.into(), validation: 8.into(), held_out: 60.into(), test: 0.into(), seed: 3 }.rows(120).unwrap()
}

fn driver(problem: &Problem) -> Driver {
    Driver::new(problem, IftCg::default()).inner(InnerLoop::new(0.1, 60)).rate(0.5)
}

#[test]
fn blocks_of_rows_have_the_mean_of_rows() {
    for (row_by_row, count) in [(true, 25), (false, 16)] {
        let problem = ridge(&rows(), row_by_row);
        let session = Session::new(&problem, &bilevel::Cpu::with_threads(1)).unwrap();
        let state = session.state(Key::from_seed(0)).unwrap();
        state.theta.write(&[Array::from_f64([10, 1], (0..10).map(|i| 0.1 * i as f64).collect()).unwrap()]).unwrap();
        let losses = RowLosses::new(&session, Part::HeldOut).unwrap().at(&state, Key::from_seed(0)).unwrap();
        assert_eq!(losses.len(), count);
        if row_by_row {
            let blocks = ridge(&rows(), false);
            let session = Session::new(&blocks, &bilevel::Cpu::with_threads(1)).unwrap();
            let means = RowLosses::new(&session, Part::HeldOut).unwrap().at(&state, Key::from_seed(0)).unwrap();
            for (block, mean) in means.into_iter().enumerate() {
                let part = &losses[block * 25 / 16..(block + 1) * 25 / 16];
                assert!((part.iter().sum::<f64>() / part.len() as f64 - mean).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn a_guard_returns_the_lambda_of_the_least_held_out_loss_and_says_so() {
    let problem = ridge(&few_rows(), true);
    let outcome = driver(&problem).guard(Guard { every: 1, patience: 0 }).iterations(200).run().unwrap();
    let report = outcome.guard.unwrap();
    assert!(report.kept_best && report.iteration < 200, "{report}");
    assert!(report.rise.mean > report.rise.standard_error && report.rise.standard_error > 0.0, "{report}");
    assert!(outcome.notes.iter().any(|note| *note == report.to_string()), "{:?}", outcome.notes);
    // What is returned is what a run of as many iterations ends with.
    let shorter = driver(&problem).iterations(report.iteration).guard(Guard { every: 0, patience: 0 }).run().unwrap();
    assert_eq!(outcome.lambda.leaves()[0], shorter.lambda.leaves()[0]);
    assert_eq!(outcome.theta.leaves()[0], shorter.theta.leaves()[0]);
    assert!(shorter.guard.is_none());
    // The run itself is the same with and without.
    let without = driver(&problem).iterations(200).guard(Guard { every: 0, patience: 0 }).run().unwrap();
    assert_eq!(without.state.lambda.arrays().unwrap(), outcome.state.lambda.arrays().unwrap());
}

#[test]
fn a_patient_guard_stops_after_as_many_evaluations() {
    let problem = ridge(&few_rows(), false);
    let outcome = driver(&problem).guard(Guard { every: 2, patience: 4 }).iterations(3000).run().unwrap();
    assert_eq!(outcome.reason, StopReason::Guard);
    assert!(outcome.iterations < 3000 && outcome.iterations > outcome.guard.unwrap().iteration + 7);
}

#[test]
fn a_guarded_run_that_is_resumed_has_the_same_bits() {
    let problem = ridge(&rows(), true);
    let inner = InnerLoop::new(0.1, 5).at_temperature(1e-3);
    let go = |until: u32, folder: Option<&std::path::Path>| {
        let driver = Driver::new(&problem, LangevinAdjoint::default()).inner(inner).rate(0.5);
        let driver = driver.guard(Guard { every: 2, patience: 0 }).iterations(until);
        match folder {
            Some(folder) => driver.checkpoints(Checkpoints::new(folder).every(3).resume(true)).run().unwrap(),
            None => driver.run().unwrap(),
        }
    };
    let bits = |outcome: &Outcome| {
        let of = |array: &Array| array.to_f64().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        (of(outcome.lambda.leaves()[0]), of(outcome.theta.leaves()[0]), outcome.guard)
    };
    let whole = go(120, None);
    assert!(whole.guard.unwrap().kept_best && whole.guard.unwrap().iteration < 50, "{}", whole.guard.unwrap());
    let folder = tempfile::tempdir().unwrap();
    for until in [7, 55, 120] {
        go(until, Some(folder.path()));
    }
    assert_eq!(bits(&go(120, Some(folder.path()))), bits(&whole));
}

#[test]
fn paired_differences_have_the_standard_error_of_their_mean() {
    let mut noise = vec![0.0; 40_000];
    bilevel::graph::random::fill_normal_f64([3, 4], 1, 0, 0, &mut noise);
    // Common to both: it must not count.
    let first: Vec<f64> = noise.iter().enumerate().map(|(i, n)| 100.0 * (i as f64).sin() + 0.5 * n + 0.02).collect();
    let second: Vec<f64> = (0..40_000).map(|i| 100.0 * (i as f64).sin()).collect();
    let Paired { mean, standard_error } = Paired::of(&first, &second);
    assert!((standard_error - 0.5 / 200.0).abs() < 5e-5, "{standard_error}");
    assert!((mean - 0.02).abs() < 3.0 * standard_error, "{mean}");
    assert_eq!(Paired::of(&[1.0], &[0.0]).standard_error, f64::INFINITY);
}

fn hypergradient(problem: &Problem) -> Vec<f64> {
    let session = Session::new(problem, &bilevel::Cpu::with_threads(1)).unwrap();
    let inner = InnerLoop::new(0.1, 400);
    let mut estimator =
        bilevel::Method::prepare_in(&IftCg { iterations: 60, ..IftCg::default() }, &session, &inner).unwrap();
    let mut state = session.state(Key::from_seed(0)).unwrap();
    estimator.estimate(&mut state, Key::from_seed(0)).unwrap().value.numbers().unwrap()
}

#[test]
fn folds_side_by_side_have_the_mean_of_the_hypergradients_of_each() {
    for row_by_row in [true, false] {
        let problem = ridge(&rows(), row_by_row);
        let apart: Vec<Vec<f64>> = problem.folds(3, 5).unwrap().iter().map(hypergradient).collect();
        let together = hypergradient(&problem.folded(3, 0.0, 5).unwrap());
        for (j, found) in together.iter().enumerate() {
            let mean = apart.iter().map(|fold| fold[j]).sum::<f64>() / 3.0;
            assert!((found - mean).abs() < 1e-9, "{j}: {found}, not {mean}");
        }
    }
}

#[test]
fn a_fold_holds_out_a_part_of_its_own_rows() {
    let folded = ridge(&rows(), true).folded(5, 0.2, 1).unwrap();
    // 70 rows with labels, 14 in each fold, of which 3 are held out; each is a training row of the other four.
    let count = |part| folded.rows_of(part);
    assert_eq!((count(Part::Train), count(Part::Validation), count(Part::HeldOut)), (280, 55, 15));
    assert_eq!((count(Part::Test), folded.sizes()), (50, (10, 50)));
    let outcome = driver(&folded).iterations(10).run().unwrap();
    assert_eq!(outcome.guard.unwrap().rows, 15);
    let again = folded.folded(2, 0.0, 0).err().unwrap().to_string();
    assert!(again.contains("folds divide the rows"), "{again}");
}

#[test]
fn a_broad_prior_changes_no_hypergradient_and_a_narrow_one_leaves_one_value() {
    let problem = ridge(&rows(), true);
    let plain = hypergradient(&problem);
    let broad = hypergradient(problem.shrunk(1e6).unwrap().problem());
    // The mean of each group first: its derivative is the sum over the group.
    assert!((broad[0] - plain.iter().sum::<f64>()).abs() < 1e-9);
    for (j, found) in broad[1..].iter().enumerate() {
        assert!((found - plain[j]).abs() < 1e-9, "{j}: {found}, not {}", plain[j]);
    }
    let narrow = problem.shrunk(1e-3).unwrap();
    let outcome = driver(narrow.problem()).rate(1e-5).iterations(5).run().unwrap();
    let lambda = narrow.lambda(&outcome.lambda).unwrap().leaves()[0].to_f64();
    assert!(lambda.iter().all(|l| (l - lambda[0]).abs() < 1e-3), "{lambda:?}");
}

#[test]
fn baselines_are_judged_on_test_rows_and_name_a_lambda_that_does_not_win() {
    let problem = ridge(&rows(), true);
    let inner = InnerLoop::new(0.1, 300);
    let good = problem.compare(&driver(&problem).iterations(20).run().unwrap().lambda).inner(inner).run().unwrap();
    assert_eq!((good.part, good.rows.len()), (Part::Test, 4), "{good}");
    assert_eq!(good.rows[0].rows, 25);
    assert_eq!(good.rows[2].rows, 70);
    // The differences are those of the losses, and that of one tuned value is 0.
    let tuned = good.rows[1].loss;
    assert!(good.rows.iter().all(|row| (row.loss - tuned - row.difference.mean).abs() < 1e-12), "{good}");
    // Penalties so large that nothing is learned.
    let none = Array::full([10, 1], 2.0, bilevel::DType::F64);
    let bad = problem.compare(&[(String::new(), none)].into_iter().collect()).inner(inner).run().unwrap();
    assert!(!bad.wins() && bad.sentence().starts_with("the learned λ does not win"), "{bad}");
}

#[test]
fn a_lambda_by_the_evidence_is_compared_with_one_tuned_by_folds_on_test_rows() {
    let (count, width) = (90, 6);
    let noise = |i: usize| ((i * i * 7 + 3 * i) as f64 * 0.37).sin();
    let x: Vec<f64> = (0..count * width).map(noise).collect();
    let y: Vec<f64> = (0..count).map(|row| x[row * width] + 0.7 * noise(50_000 + 17 * row)).collect();
    let rows = Rows::given(0..20, 20..40).with_test(40..90);
    let losses = |s: &bilevel::Scope, t: bilevel::Tensor| (s.data("x").matmul(t) - s.data("y")).square();
    let start = Variable::constant([width, 1], 0.0).at_least(-5.0).at_most(5.0);
    let problem = Problem::builder(Leaf(start), Leaf(Variable::constant([width, 1], 0.0)))
        .table("x", Array::from_f64([count, width], x).unwrap(), &rows)
        .table("y", Array::from_f64([count, 1], y).unwrap(), &rows)
        .inner(move |s, l, t| losses(s, t.0).mean_all() + bilevel::graph::nn::gaussian_prior(t.0, l.0.exp()) / 40.0)
        .outer_rows(move |s, _, t| losses(s, t.0))
        .evidence()
        .build()
        .unwrap();
    let large = Leaf(Array::full([width, 1], 5.0, bilevel::DType::F64));
    let found = problem.compare(&large).inner(InnerLoop::new(0.1, 300)).run().unwrap();
    assert_eq!((found.part, found.rows[0].rows), (Part::Test, 40), "{found}");
    // The largest penalty there is against one that folds have chosen.
    assert!(!found.wins() && found.learned().difference.mean > 0.0 && found.tuned[0].1 < 5.0, "{found}");
}

#[test]
fn a_lambda_wins_only_if_it_does_so_on_all_rows_too() {
    let paired = |mean| Paired { mean, standard_error: 0.01 };
    let problem = ridge(&rows(), true);
    let lambda = driver(&problem).iterations(20).run().unwrap().lambda;
    let mut found = problem.compare(&lambda).inner(InnerLoop::new(0.1, 300)).run().unwrap();
    found.rows[0].difference = paired(-0.1);
    found.on_all_rows = Some(paired(-0.1));
    assert!(found.wins());
    found.on_all_rows = Some(paired(0.1));
    assert!(!found.wins() && found.sentence().contains("if both train on all rows"), "{}", found.sentence());
}
