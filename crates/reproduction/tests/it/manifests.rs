//! Manifests: grids, judges, shared runs, differences, rows that are not run, and what is refused.

use bilevel::Cpu;
use bilevel_run::manifest::{Manifest, Taken};
use bilevel_run::run::read_lambda;
use bilevel_run::{Config, Findings, Finished, Measure, Place, Plan, Registry, Row, Scale, Verdict, in_memory};
use serde::Serialize;
use serde_json::{Map, Value};

/// The distance of a learned λ from where it is told to be.
#[derive(Serialize)]
struct Distance {
    file: String,
    from: f64,
}

impl Distance {
    fn of(config: &Config, with: &Map<String, Value>) -> bilevel::Result<Self> {
        Ok(Distance { file: config.start.lambda.clone(), from: with["from"].as_f64().unwrap() })
    }
}

impl Measure for Distance {
    type Found = Taken;

    fn take(&self, _: &Place) -> bilevel::Result<Taken> {
        let leaf = read_lambda(self.file.as_ref(), &[""])?.remove(0).unwrap();
        Ok(Taken {
            numbers: [("distance".to_string(), vec![(leaf.values[0] - self.from).abs()])].into(),
            way: [("line".to_string(), vec![(0.0, 1.0), (2.0, 3.0)])].into(),
            ..Taken::default()
        })
    }
}

fn registry() -> Registry {
    bilevel_reproduction::register(bilevel_tasks::register(Registry::new())).measure("distance", Distance::of)
}

fn found(text: &str) -> Findings {
    let registry = registry();
    let study = Manifest::parse("mine", "mine.toml".as_ref(), text);
    in_memory(&study, &Plan::new(&registry), &Place::new(&registry, Cpu::with_threads(1))).unwrap()
}

/// What a file is refused with.
fn refused(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    let error = Manifest::read(&registry(), &path).err().unwrap().to_string();
    error.replace(&*path.to_string_lossy(), "mine.toml")
}

fn row<'a>(found: &'a Findings, method: &str, setting: &str, metric: &str) -> &'a Row {
    let is = |row: &&Row| row.method == method && row.setting == setting && row.metric == metric;
    found.rows.iter().find(is).unwrap_or_else(|| panic!("{method}, {setting}, {metric}: {:#?}", found.rows))
}

const HEAD: &str =
    "title = \"Mine\"\nsettings = { task.name = \"synth1d\", outer.iterations = 20, method.name = \"rmd\" }\n";

#[test]
fn a_grid_is_run_point_by_point_and_its_row_has_the_best_and_says_which() {
    let found = found(&format!(
        "{HEAD}{}",
        r#"
        metric = [{ name = "loss", of = "outer loss", better = "lower" }]
        [[row]]
        method = "RMD"
        setting = "tuned"
        grid = { outer.rate = [1e-6, 0.005], inner.step = [0.005] }
        [[row]]
        method = "RMD"
        settings = { outer.rate = 0.005, inner.step = 0.005 }
        "#
    ));
    let best = row(&found, "RMD", "tuned, best of a grid of 2: outer.rate = 0.005, inner.step = 0.005", "loss");
    assert_eq!(best.ours, row(&found, "RMD", "", "loss").ours);
    assert_eq!(found.rows.len(), 2);
}

#[test]
fn a_judge_gives_its_numbers_to_the_row_and_a_shared_run_is_judged_in_both_groups() {
    let found = found(&format!(
        "{HEAD}{}",
        r#"
        effort = "{outer.iterations} iterations"
        group = [{ name = "one", with.from = 0.0 }, { name = "two", with.from = 1.0 }]
        metric = [
            { name = "distance", setting = "of λ", of = "distance", better = "lower" },
            { name = "λ", lambda = 0, rows = ["RMD again"] },
            { name = "y", of = "line", over = "x" },
        ]
        follow = [{ name = "judged", measure = "distance", judges = true }]
        [[row]]
        method = "RMD"
        setting = "{outer.iterations} iterations"
        groups = ["one"]
        follow = ["judged"]
        [[row]]
        method = "RMD"
        setting = "{outer.iterations} iterations"
        groups = ["two"]
        shared = "one"
        follow = ["judged"]
        [[row]]
        method = "RMD"
        setting = "again"
        groups = ["two"]
        settings.outer.iterations = 10
        follow = ["judged"]
        rule.beats = "RMD {outer.iterations} iterations"
        [[row]]
        method = "FMD"
        not_run = "it costs too much"
        "#
    ));
    let of = |group: &str| row(&found, "RMD", &format!("{group}, of λ, 20 iterations"), "distance").ours.unwrap();
    assert!((of("one") + of("two") - 1.0).abs() < 1e-12, "the same λ, from both sides");
    let again = row(&found, "RMD", "two, of λ, again", "distance");
    assert!((again.ours.unwrap() + row(&found, "RMD", "two, again", "λ").ours.unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(again.reference, Some(of("two")), "the number to beat");
    assert_eq!(row(&found, "FMD", "one", "distance").verdict, Verdict::NotRun("it costs too much".into()));
    let unequal = found.said.iter().find(|said| said.contains("equal cost")).unwrap();
    assert!(unequal.starts_with("two: RMD again and RMD 20 iterations are not"), "{unequal}");
    assert!(unequal.contains("10 iterations, ") && unequal.contains("against 20 iterations, "), "{unequal}");
    let curves = found.sections.iter().filter_map(|section| match section {
        bilevel_report::Section::Plot(plot) => Some((plot.x.label.as_str(), plot.curves.len())),
        _ => None,
    });
    assert_eq!(curves.collect::<Vec<_>>(), [("x", 1), ("x", 2)]);
}

#[test]
fn a_difference_has_its_standard_error_and_runs_that_diverge_are_counted() {
    let found = found(&format!(
        "{HEAD}{}",
        r#"
        metric = [{ name = "λ", of = "λ" }, { name = "runs diverged", diverged = true }]
        [[difference]]
        name = "λ: noisy minus still"
        method = "RMD"
        metric = "λ"
        of = "RMD noisy"
        minus = "RMD still"
        paper = 1.0
        why = "as it starts below"
        [[row]]
        method = "RMD"
        setting = "still"
        measure = "seed-runs"
        [[row]]
        method = "RMD"
        setting = "noisy"
        measure = "seed-runs"
        settings.task.noise = 0.3
        with.seeds = 4
        [[row]]
        method = "RMD"
        setting = "wild"
        measure = "seed-runs"
        settings.inner.step = 3.0
        with.seeds = 2
        reference = 0.5
        rule.within = 1
        number = [{ metric = "runs diverged", why = "of so large a step" }]
        "#
    ));
    let number = |setting: &str| row(&found, "RMD", setting, "λ").ours.unwrap();
    let difference = row(&found, "RMD", "", "λ: noisy minus still");
    assert!((difference.ours.unwrap() - (number("noisy") - number("still"))).abs() < 1e-12);
    let lost = row(&found, "RMD", "wild", "runs diverged");
    assert_eq!((lost.ours, lost.seeds), (Some(2.0), 2));
    assert_eq!(lost.verdict.why(), "2 of 2 runs diverged: of so large a step");
    assert_eq!(row(&found, "RMD", "wild", "λ").verdict.why(), "2 of 2 runs diverged");
    assert!(found.rows.iter().all(|row| row.metric != "runs diverged" || row.setting == "wild"));
}

#[test]
fn what_a_manifest_gets_wrong_is_named_with_its_line() {
    let with = |text: &str| refused(&format!("{HEAD}metric = [{{ name = \"λ\", lambda = 0 }}]\n{text}"));
    let groups = "group = [{ name = \"one\" }, { name = \"two\" }]\n";
    let rows = |one: &str, two: &str| {
        with(&format!(
            "{groups}[[row]]\nmethod = \"RMD\"\ngroups = [\"{one}\"]\n[[row]]\nmethod = \"RMD\"\ngroups = [\"{two}\"]\n"
        ))
    };
    let twice = "mine.toml, line 8: there are two rows 'RMD'; give one of them another setting or other groups";
    assert_eq!(rows("one", "one"), twice);
    let shared = with(&format!("{groups}[[row]]\nmethod = \"RMD\"\nshared = \"tow\"\n"));
    assert_eq!(shared, "mine.toml, line 7: row.shared cannot be 'tow'; did you mean two?");
    let grid = with("[[row]]\nmethod = \"RMD\"\ngrid.outer.rate = 0.1\n");
    assert_eq!(grid, "mine.toml, line 6: grid.outer.rate is an array");
    let both = with(
        "follow = [{ name = \"again\" }]\n[[row]]\nmethod = \"RMD\"\ngrid.outer.rate = [0.1]\nfollow = [\"again\"]\n",
    );
    assert_eq!(both, "mine.toml, line 5: a row with a grid is a run, and nothing follows it");
    let unknown = with(
        "[[difference]]\nname = \"d\"\nmethod = \"RMD\"\nmetric = \"λ\"\nof = \"RDM\"\nminus = \"RMD\"\n[[row]]\nmethod = \"RMD\"\n",
    );
    assert!(unknown.starts_with("mine.toml, line 8: ") && unknown.ends_with("did you mean RMD?"), "{unknown}");
    let none = with("[[row]]\nmethod = \"RMD\"\nrule = {}\n");
    assert!(none.contains("a rule is one of within, percent, deviations and standard_errors"), "{none}");
}

#[test]
fn photographs_that_are_not_there_are_not_run_and_the_rows_say_how_to_get_them() {
    let registry = registry();
    let study = registry.known_study("few-shot").unwrap();
    let plan = Plan::new(&registry);
    let items = study.items(&plan).unwrap();
    assert_eq!(items.len(), 23, "all trainings on characters: ten, nine and twice two");
    let not_run = |plan: &Plan, group: &str, how: &str| {
        let found = study.findings(plan, &Finished::default()).unwrap();
        let rows = found.rows.iter().filter(|row| row.setting.starts_with(group));
        let why: Vec<&Verdict> = rows.map(|row| &row.verdict).collect();
        assert!(!why.is_empty() && why.iter().all(|why| matches!(why, Verdict::NotRun(why) if why.contains(how))));
    };
    not_run(&plan, "tiny ImageNet", "give its folder with --data DIR; 'bilevel data fetch tiny-imagenet' downloads it");
    not_run(&plan, "tieredImageNet", "'bilevel data fetch tiered-imagenet'");
    let elsewhere = Plan { data: Some("no/such/folder".into()), ..plan };
    not_run(&elsewhere, "miniImageNet", "mini-imagenet is not among the data");
}

#[test]
fn every_first_item_of_every_study_has_a_name_of_its_own_at_every_scale() {
    let registry = registry();
    let data = tempfile::tempdir().unwrap();
    for folder in ["mnist", "cifar10", "oxford-pets", "dtd10", "flowers102", "tiny-imagenet", "mini-imagenet"] {
        std::fs::create_dir(data.path().join(folder)).unwrap();
    }
    for scale in Scale::ALL {
        let plan = Plan { scale, data: Some(data.path().into()), ..Plan::new(&registry) };
        for study in registry.studies() {
            let items = study.items(&plan).unwrap();
            let names: std::collections::HashSet<&str> = items.iter().map(|item| item.label.as_str()).collect();
            assert_eq!(names.len(), items.len(), "{} at scale {scale}", study.name());
        }
    }
}
