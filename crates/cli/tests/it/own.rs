//! Methods and optimizers that are registered elsewhere.

use bilevel::methods::{MethodInfo, Rmd};
use bilevel::optimizers::{LeafStep, Optimizer};
use bilevel::{Estimator, Hypergradient, InnerLoop, Key, Method, Result, Session, State, Tensor};
use bilevel_cli::config::entries::{parse, parse_set};
use bilevel_cli::config::{resolve, schema, text};
use bilevel_graph::ErrorKind;
use bilevel_run::{Findings, Finished, Item, Measure, Place, Plan, Registry, Row, Settings, Study};
use bilevel_tasks::Synth1d;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reverse mode under another name, with a setting that no other method has.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Scaled {
    /// how many times the inner step is taken
    times: f64,
}

impl Default for Scaled {
    fn default() -> Self {
        Scaled { times: 1.0 }
    }
}

impl Method for Scaled {
    fn name(&self) -> &'static str {
        "scaled"
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(Longer(Rmd::default().compile(session, inner)?, self.times)))
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

/// Another estimator, with longer steps.
struct Longer(Box<dyn Estimator>, f64);

impl Estimator for Longer {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.0.estimate(state, key, gamma * self.1)
    }
}

/// Only the sign of each number counts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Sign {}

impl Optimizer for Sign {
    fn kind(&self) -> &'static str {
        "sign"
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &[]
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        (leaf.gradient.sign(), vec![])
    }
}

fn registry() -> Registry {
    let mut info = MethodInfo::new("scaled", "chains of scaled", "reverse mode with a scaled step");
    (info.cost, info.memory, info.when) = ("as rmd", "as rmd", "to show how a method is registered");
    Registry::new().task::<Synth1d>().method::<Scaled>(info).optimizer::<Sign>()
}

#[test]
fn a_method_and_an_optimizer_of_ones_own_are_configured_like_the_librarys() {
    let registry = registry();
    let mut entries = parse(b"task.name = \"synth1d\"", "my.toml".as_ref()).unwrap();
    for set in ["method.name=scaled", "method.times=2", "outer.optimizer.name=sign"] {
        entries.extend(parse_set(set).unwrap());
    }
    let config = resolve(&registry, &entries).unwrap();
    // What every method has is fitted to the task.
    assert_eq!((config.inner.step, config.method.get("times").unwrap()), (0.005, &2.0.into()));
    let text = text::to_toml(&registry, &config);
    assert!(text.contains("times = 2.0      # how many times the inner step is taken"), "{text}");
    assert_eq!(resolve(&registry, &parse(text.as_bytes(), "my.toml".as_ref()).unwrap()).unwrap(), config);
    let schema = schema::schema(&registry).unwrap().to_string();
    assert!(schema.contains("reverse mode with a scaled step") && schema.contains("\"sign\""), "{schema}");
    entries.extend(parse_set("method.tims=2").unwrap());
    let error = resolve(&registry, &entries).unwrap_err().to_string();
    assert_eq!(error, "--set method.tims=2: there is no key 'method.tims'; did you mean method.times?");
}

#[test]
fn a_method_and_an_optimizer_of_ones_own_run_in_the_command() {
    let folder = std::env::temp_dir().join(format!("bilevel-own-{}", std::process::id()));
    let out = folder.to_string_lossy().into_owned();
    let line = ["bilevel", "run", "synth1d", "--method", "scaled", "--outer", "5", "--quiet", "--out", &out];
    let more = ["--set", "outer.optimizer.name=sign"];
    let arguments = line.iter().chain(&more).map(|word| word.into());
    assert_eq!(bilevel_cli::run_with(&registry(), arguments), 0);
    let result: bilevel_run::run::RunResult =
        serde_json::from_slice(&std::fs::read(folder.join("result.json")).unwrap()).unwrap();
    // Five steps of 0.005, whatever the size of the hypergradient.
    assert_eq!(result.method, "scaled");
    let lambda = result.lambda[0].values.as_ref().unwrap()[0];
    assert!((lambda - 0.125).abs() < 1e-12, "{lambda}");
    std::fs::remove_dir_all(folder).unwrap();
    // A name that is taken gives way to the newer one.
    let again = registry().optimizer::<Sign>();
    assert_eq!(again.optimizers().iter().filter(|known| known.name == "sign").count(), 1);
    assert_eq!(again.known_optimizer("sign").unwrap().usual(), &Settings::new("sign", &Sign {}));
}

/// How many settings a task has.
#[derive(Serialize)]
struct Count {
    task: String,
}

impl Measure for Count {
    type Found = usize;

    fn take(&self, place: &Place) -> Result<usize> {
        Ok(place.registry.known_task(&self.task)?.usual().settings().table().len() - 1)
    }
}

/// A measurement, and then a run whose length follows from it.
struct Small;

impl Study for Small {
    fn name(&self) -> &str {
        "small"
    }

    fn title(&self) -> &str {
        "A study of one's own"
    }

    fn items(&self, _: &Plan) -> Result<Vec<Item>> {
        Ok(vec![Item::measure("count", Count { task: "synth1d".into() })])
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        if done.get("run").is_some() {
            return Ok(vec![]);
        }
        let mut config = plan.run(&Synth1d::default())?.by((Rmd::default(), InnerLoop::new(0.005, 10)));
        config.outer.iterations = done.measured::<u32>("count")?;
        Ok(vec![Item::run("run", config)])
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let run = done.run("run")?;
        let row = Row::new("small", "rmd", "iterations", f64::from(run.result.iterations));
        Ok(Findings::new(vec![row.cost(run.price).took(run.seconds)], []))
    }
}

#[test]
fn a_study_of_ones_own_is_conducted_in_stages_kept_and_not_done_twice() {
    let folder = std::env::temp_dir().join(format!("bilevel-own-study-{}", std::process::id()));
    let out = folder.to_string_lossy().into_owned();
    let registry = registry().study(Small);
    let reproduce = || {
        let line = ["bilevel", "reproduce", "small", "--quiet", "--out", &out];
        assert_eq!(bilevel_cli::run_with(&registry, line.iter().map(|word| word.into())), 0);
        std::fs::read_to_string(folder.join("rows.jsonl")).unwrap()
    };
    let rows = reproduce();
    assert!(rows.contains(r#""metric":"iterations","paper":null,"reference":null,"ours":3.0"#), "{rows}");
    // What is there is taken as it is: a record that says otherwise changes what comes after.
    let record = folder.join("count/measurement.json");
    let text = std::fs::read_to_string(&record).unwrap().replace("\"value\":3", "\"value\":5");
    std::fs::write(&record, text).unwrap();
    std::fs::remove_dir_all(folder.join("run")).unwrap();
    assert!(reproduce().contains(r#""ours":5.0"#));
    assert!(folder.join("report.html").exists() && folder.join("run/config.toml").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

/// A measurement that finds no memory the first time, as one that needs more than others leave it.
#[derive(Serialize)]
struct Large {
    number: usize,
    #[serde(skip)]
    refused: Arc<AtomicBool>,
}

impl Measure for Large {
    type Found = usize;

    fn take(&self, _: &Place) -> Result<usize> {
        if self.number == 1 && !self.refused.swap(true, Ordering::SeqCst) {
            return Err(bilevel_graph::Error::new(ErrorKind::OutOfMemory { needed: 1 << 40, free: Some(1) }).into());
        }
        Ok(self.number)
    }
}

/// Three of them.
struct Crowded(Arc<AtomicBool>);

impl Study for Crowded {
    fn name(&self) -> &str {
        "crowded"
    }

    fn title(&self) -> &str {
        "A study whose items do not fit beside each other"
    }

    fn items(&self, _: &Plan) -> Result<Vec<Item>> {
        let item = |number| Item::measure(format!("large-{number}"), Large { number, refused: self.0.clone() });
        Ok((0..3).map(item).collect())
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let found: Result<Vec<usize>> = (0..3).map(|number| done.measured(&format!("large-{number}"))).collect();
        let sum: usize = found?.into_iter().sum();
        Ok(Findings::new(vec![Row::new("crowded", "all", "sum", sum as f64)], []))
    }
}

#[test]
fn an_item_that_finds_no_memory_beside_others_is_done_again_alone() {
    let folder = std::env::temp_dir().join(format!("bilevel-crowded-{}", std::process::id()));
    let out = folder.to_string_lossy().into_owned();
    let reproduce = |jobs: &str| {
        let registry = registry().study(Crowded(Arc::default()));
        let line = ["bilevel", "reproduce", "crowded", "--quiet", "--jobs", jobs, "--out", &out];
        bilevel_cli::run_with(&registry, line.iter().map(|word| word.into()))
    };
    // What does not fit alone does not fit.
    assert_ne!(reproduce("1"), 0);
    assert!(!folder.join("rows.jsonl").exists());
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(reproduce("2"), 0);
    assert!(std::fs::read_to_string(folder.join("rows.jsonl")).unwrap().contains(r#""ours":3.0"#));
    std::fs::remove_dir_all(folder).unwrap();
}

/// A number, or an error as long as something is broken.
#[derive(Serialize)]
struct Fragile {
    number: usize,
    #[serde(skip)]
    broken: Arc<AtomicBool>,
}

impl Measure for Fragile {
    type Found = usize;

    fn take(&self, _: &Place) -> Result<usize> {
        if self.number == 2 && self.broken.load(Ordering::SeqCst) {
            return Err(bilevel::Error::other("the instrument is broken"));
        }
        Ok(100 + self.number)
    }
}

/// Three of them, of which all are needed or not.
struct Instruments {
    broken: Arc<AtomicBool>,
    all: bool,
}

impl Study for Instruments {
    fn name(&self) -> &str {
        "instruments"
    }

    fn title(&self) -> &str {
        "A study with a broken instrument"
    }

    fn items(&self, _: &Plan) -> Result<Vec<Item>> {
        let item = |number| Item::measure(format!("reading-{number}"), Fragile { number, broken: self.broken.clone() });
        Ok((0..4).map(item).collect())
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let mut rows = vec![];
        for number in 0..4 {
            let found: Result<usize> = done.measured(&format!("reading-{number}"));
            match found {
                Ok(found) => rows.push(Row::new("instruments", format!("number {number}"), "reading", found as f64)),
                Err(error) if self.all => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Findings::new(rows, []))
    }
}

#[test]
fn a_study_of_which_an_item_fails_reports_the_items_that_are_done_and_why_the_others_are_missing() {
    for all in [false, true] {
        let folder = std::env::temp_dir().join(format!("bilevel-instruments-{all}-{}", std::process::id()));
        let out = folder.to_string_lossy().into_owned();
        let broken = Arc::new(AtomicBool::new(true));
        let registry = registry().study(Instruments { broken: broken.clone(), all });
        let reproduce = || {
            let line = ["bilevel", "reproduce", "instruments", "--quiet", "--jobs", "1", "--out", &out];
            bilevel_cli::run_with(&registry, line.iter().map(|word| word.into()))
        };
        assert_eq!(reproduce(), 2);
        let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
        assert!(page.contains("100") && page.contains("101"), "what is done is there");
        assert!(page.contains("reading-2 failed: the instrument is broken"), "{page}");
        assert!(page.contains("reading-3 was not begun or not finished"), "{page}");
        // Rows are those of a study that is done; the same command continues this one.
        assert!(!folder.join("rows.jsonl").exists());
        broken.store(false, Ordering::SeqCst);
        assert_eq!(reproduce(), 0);
        assert_eq!(std::fs::read_to_string(folder.join("rows.jsonl")).unwrap().lines().count(), 4);
        assert!(!std::fs::read_to_string(folder.join("report.html")).unwrap().contains("reading-2 failed"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn all_studies_go_into_one_folder_and_continue_after_a_failure() {
    let folder = std::env::temp_dir().join(format!("bilevel-all-studies-{}", std::process::id()));
    let out = folder.to_string_lossy().into_owned();
    let broken = Arc::new(AtomicBool::new(true));
    let fits = Crowded(Arc::new(AtomicBool::new(true)));
    let registry = registry().study(fits).study(Instruments { broken: broken.clone(), all: true });
    let reproduce = || {
        let line = ["bilevel", "reproduce", "all", "--quiet", "--jobs", "2", "--out", &out];
        bilevel_cli::run_with(&registry, line.iter().map(|word| word.into()))
    };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(reproduce(), 2);
    let first = read("crowded/rows.jsonl");
    assert!(first.contains(r#""ours":3.0"#) && read("report.html").contains("reading-2 failed"), "{first}");
    assert!(!folder.join("rows.jsonl").exists() && !folder.join("instruments/rows.jsonl").exists());
    broken.store(false, Ordering::SeqCst);
    assert_eq!(reproduce(), 0);
    let second = read("instruments/rows.jsonl");
    assert_eq!(second.lines().count(), 4);
    assert_eq!(read("rows.jsonl"), first + &second);
    let page = read("report.html");
    assert!(page.contains("A study whose items do not fit beside each other") && page.contains("a broken instrument"));
    std::fs::remove_dir_all(folder).unwrap();
}
