//! The division of a run's rows by `[split]`, in place of the task's.

use bilevel::Problem;
use bilevel::splits::{Part, Share};
use bilevel_run::{AnyTask, Config, Division, Registry};
use bilevel_tasks::{DigitsL2, FewRows, HyperCleaning, Synth1d};

/// Sixty labelled digits and a hundred to test with.
fn task() -> FewRows {
    FewRows { rows: 60, test: 100, ..FewRows::default() }
}

fn config(task: &dyn AnyTask, split: Division) -> (Registry, Config) {
    let registry = bilevel_tasks::register(Registry::new());
    let config = Config { split, ..registry.config(task).unwrap() };
    (registry, config)
}

fn divided(task: &dyn AnyTask, split: Division) -> bilevel::Result<Problem> {
    let (registry, config) = config(task, split);
    config.problem(&registry)
}

fn refused(task: &dyn AnyTask, split: Division) -> String {
    divided(task, split).err().map(|error| error.to_string()).unwrap_or_default()
}

fn counts(problem: &Problem) -> [usize; 4] {
    [Part::Train, Part::Validation, Part::HeldOut, Part::Test].map(|part| problem.rows_of(part))
}

/// A file in a folder, and its path.
fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

fn shares(train: impl Into<Share>, validation: impl Into<Share>, held_out: impl Into<Share>) -> Division {
    let (train, validation, held_out) = (train.into(), validation.into(), held_out.into());
    Division { train, validation, held_out, ..Division::default() }
}

#[test]
fn fractions_and_counts_divide_the_rows_with_labels_and_leave_the_test_rows() {
    let own = divided(&task(), Division::default()).unwrap();
    assert_eq!(counts(&own), [30, 24, 6, 100]);
    let labelled = |problem: &Problem| {
        let mut rows = problem.rows().all_for_training().of(Part::Train).to_vec();
        rows.sort_unstable();
        rows
    };
    for (split, expected) in [
        (shares(0.7, 0.2, 0.1), [42, 12, 6, 100]),
        // The rest is for validation, and a fifth of it is held out.
        (shares(0.75, 0, 0), [45, 12, 3, 100]),
        (shares(40, 0, 0.1), [40, 14, 6, 100]),
        (shares(10, 20, 5), [10, 20, 5, 100]),
    ] {
        for stratified in [false, true] {
            let problem = divided(&task(), Division { stratified, ..split.clone() }).unwrap();
            assert_eq!(counts(&problem), expected, "{split:?}");
            assert_eq!(problem.rows().of(Part::Test), own.rows().of(Part::Test));
            assert!(labelled(&problem).iter().all(|row| labelled(&own).contains(row)));
        }
    }
}

#[test]
fn labels_and_groups_are_kept_together_as_asked() {
    let problem = divided(&task(), Division { stratified: true, ..shares(0.5, 0.5, 0) }).unwrap();
    let (rows, labels) = (problem.rows(), problem.labels().unwrap());
    for label in 0..10 {
        let count = |part: Part| rows.of(part).iter().filter(|row| labels[**row] == label).count() as i64;
        let (train, others) = (count(Part::Train), count(Part::Validation) + count(Part::HeldOut));
        assert!((train - others).abs() <= 2, "{label}: {train} and {others}");
    }
    let folder = tempfile::tempdir().unwrap();
    // Groups of seven neighbours.
    let lines: String = (0..problem.table_rows()).map(|row| format!("patient {}\n", row / 7)).collect();
    let groups = file(&folder, "groups.txt", &lines);
    let problem = divided(&task(), Division { groups, ..shares(0.5, 0.3, 0.2) }).unwrap();
    let rows = problem.rows();
    let of = |part: Part| rows.of(part).iter().map(|row| row / 7).collect::<std::collections::BTreeSet<_>>();
    let parts = [Part::Train, Part::Validation, Part::HeldOut].map(of);
    assert!(parts.iter().all(|part| !part.is_empty()));
    assert!(parts[0].is_disjoint(&parts[1]) && parts[0].is_disjoint(&parts[2]) && parts[1].is_disjoint(&parts[2]));
}

#[test]
fn a_file_gives_the_rows_of_each_part_and_a_changed_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = divided(&task(), Division::default()).unwrap();
    let free: Vec<usize> = (0..own.table_rows()).filter(|row| !own.rows().of(Part::Test).contains(row)).collect();
    let text =
        |train: &[usize], validation: &[usize]| format!("{{\"train\": {train:?}, \"validation\": {validation:?}}}");
    let rows = file(&folder, "rows.json", &text(&free[..20], &free[20..35]));
    let split = Division { rows: rows.clone(), ..Division::default() };
    let (registry, config) = config(&task(), split);
    let problem = config.problem(&registry).unwrap();
    assert_eq!((problem.rows().of(Part::Train), counts(&problem)), (&free[..20], [20, 12, 3, 100]));
    // The contents of the file count, and not its name.
    let sealed = config.clone().sealed().unwrap();
    let same = file(&folder, "same.json", &text(&free[..20], &free[20..35]));
    let other = file(&folder, "other.json", &text(&free[..20], &free[20..36]));
    let named = |rows: String| {
        Config { split: Division { rows, ..Division::default() }, ..config.clone() }.sealed().unwrap().hash()
    };
    assert_eq!(named(same), sealed.hash());
    assert_ne!(named(other), sealed.hash());
    std::fs::write(rows, text(&free[..19], &free[20..35])).unwrap();
    let error = sealed.problem(&registry).err().unwrap().to_string();
    assert!(
        error.ends_with("changed after the run was begun; put the right file back, or begin another run"),
        "{error}"
    );
}

#[test]
fn a_run_without_a_split_has_the_hash_it_had_before_there_were_any() {
    let hash = |split: Division| {
        let (_, mut config) = config(&task(), split);
        config.outer.iterations = 1;
        config.hash()
    };
    assert_eq!(hash(Division::default()), "68822f3b5b49c345");
    assert_ne!(hash(shares(0.5, 0, 0)), hash(Division::default()));
    assert_ne!(hash(shares(0.5, 0, 0)), hash(shares(30, 0, 0)));
}

#[test]
fn the_evidence_trains_on_all_rows_however_they_are_divided() {
    let (registry, config) = config(&task(), shares(0.5, 0.3, 0.2));
    let evidence = registry.suited(&task(), "evidence").unwrap();
    let problem = config.by(evidence).problem(&registry).unwrap();
    assert_eq!(counts(&problem), [60, 0, 0, 100]);
}

#[test]
fn divisions_that_do_not_fit_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |name: &str, text: &str| Division { rows: file(&folder, name, text), ..Division::default() };
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (split, said) in [
        (shares(50, 20, 0), "the split needs 70 of 60 rows; make a part smaller".to_string()),
        (shares(60, 0, 0), "the split leaves no validation rows; make another part smaller".into()),
        (shares(0.5, 0, 0.5), "the split leaves no validation rows; make another part smaller".into()),
        (
            rows("1.json", "{\"train\": [0, 1], \"validation\": [1797]}"),
            "row 1797 of a split does not exist: the table has 1797 rows, counted from 0".into(),
        ),
        (
            rows("2.json", "{\"train\": [0, 1, 0], \"validation\": [2]}"),
            "row 0 of a split is a training row twice".into(),
        ),
        (
            rows("3.json", "{\"train\": [0, 1], \"validation\": [1], \"test\": [3]}"),
            "row 1 of a split is a training row and a validation row".into(),
        ),
        (
            rows("4.json", "{\"train\": [0, 1], \"test\": [3]}"),
            "the split leaves no validation rows; make another part smaller".into(),
        ),
        (
            rows("5.json", "{\"train\": [0, 1], \"valdation\": [2]}"),
            format!("{} has an unknown part 'valdation'; did you mean validation?", path("5.json")),
        ),
        (rows("6.json", "[0, 1]"), format!("{} must be an object with a list of rows for each part", path("6.json"))),
    ] {
        assert_eq!(refused(&task(), split), said);
    }
    let negative = refused(&task(), rows("7.json", "{\"train\": [-1], \"validation\": [2]}"));
    assert!(
        negative.starts_with(&format!("{} must have lists of row numbers, counted from 0: ", path("7.json"))),
        "{negative}"
    );
    let broken = refused(&task(), rows("8.json", "{\"train\": [0, 1"));
    assert!(broken.starts_with(&format!("{} is not JSON: ", path("8.json"))), "{broken}");
    let groups = file(&folder, "groups.txt", "a\nb\n");
    let said = refused(&task(), Division { groups, ..shares(0.5, 0, 0) });
    let expected = "groups.txt has 2 groups, but there must be one line for each of the 1797 rows";
    assert!(said.ends_with(expected), "{said}");
    let missing = refused(&task(), Division { rows: "no/such/file".into(), ..Division::default() });
    assert!(missing.starts_with("cannot read the split in no/such/file: "), "{missing}");
    let none = refused(&Synth1d::default(), shares(0.5, 0, 0));
    assert_eq!(none, "[split] divides the rows of a task, but this task has none to divide; leave it out");
    // A weight for each training row fits no other number of them.
    let weights = refused(&HyperCleaning::default(), shares(0.5, 0, 0));
    assert!(weights.starts_with("[split] has ") && weights.contains("do not fit the task's losses"), "{weights}");
    let digits = divided(&DigitsL2::default(), Division { stratified: true, ..shares(0.8, 0, 0) }).unwrap();
    assert_eq!(counts(&digits)[0], 958);
}
