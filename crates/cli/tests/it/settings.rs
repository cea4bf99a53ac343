//! Configurations: nothing a person writes makes the parser panic, and every key there is has a meaning and survives.

use bilevel::splits::Share;
use bilevel_cli::config::entries::{Entry, parse, parse_set};
use bilevel_cli::config::errors::ConfigError;
use bilevel_cli::config::{Choices, resolve, schema, text};
use bilevel_run::{Config, Registry};
use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;

static REGISTRY: LazyLock<Registry> = LazyLock::new(bilevel_cli::everything);

fn toml(config: &Config) -> String {
    text::to_toml(&REGISTRY, config)
}

fn read(text: &[u8]) -> Result<Config, ConfigError> {
    resolve(&REGISTRY, &parse(text, Path::new("my.toml"))?)
}

fn refused(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

/// Every configuration that differs from another in its keys.
fn all() -> Vec<Config> {
    let mut configs = vec![];
    for task in REGISTRY.tasks().iter().map(|known| known.usual()) {
        let task = &*task;
        for method in bilevel::methods::all() {
            let chosen = Choices::of(&REGISTRY, task).with("method.name", method.name);
            configs.push(chosen.defaults().unwrap());
        }
        for optimizer in ["sgd", "momentum", "rmsprop", "adam", "adamw"] {
            for schedule in ["constant", "step", "cosine"] {
                let chosen = Choices::of(&REGISTRY, task)
                    .with("method.name", "rmd")
                    .with("inner.optimizer.name", optimizer)
                    .with("outer.optimizer.name", optimizer)
                    .with("outer.schedule.shape", schedule)
                    .with("inner.schedule.shape", schedule);
                configs.push(chosen.defaults().unwrap());
            }
        }
    }
    configs
}

#[test]
fn every_default_survives_being_written_and_read_and_every_key_says_what_it_means() {
    for config in all() {
        let text = toml(&config);
        assert_eq!(read(text.as_bytes()).unwrap(), config, "{text}");
        for line in text.lines().filter(|line| line.contains(" = ")) {
            let meaning = line.split_once('#').map_or("", |(_, meaning)| meaning.trim());
            assert!(!meaning.is_empty(), "{line}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_what_would_be_right() {
    for (text, said) in [
        ("task.name = \"synht1d\"", "my.toml, line 1: there is no task 'synht1d'; did you mean synth1d?"),
        ("seed = 1", "my.toml, line 1: it does not say which task to run; add a line such as: task.name = \"synth1d\""),
        ("task.name = \"synth1d\"\nsed = 1", "my.toml, line 2: there is no key 'sed'; did you mean seed?"),
        ("task.name = \"synth1d\"\nrate = 1", "my.toml, line 2: there is no key 'rate'; did you mean outer.rate?"),
        ("task.name = \"synth1d\"\nseed = \"x\"", "my.toml, line 2: seed takes a whole number, not the string \"x\""),
        ("task.name = \"synth1d\"\nseed = 1.5", "my.toml, line 2: seed takes a whole number, not the number 1.5"),
        ("task.name = \"synth1d\"\nseed = -1", "my.toml, line 2: seed is -1 but must be at least 0"),
        ("task.name = \"synth1d\"\n\n[outer]\nrate = -1", "my.toml, line 4: outer.rate is -1 but must be above 0"),
        ("task.name = \"synth1d\"\nouter = 1", "my.toml, line 2: outer takes a table, not the whole number 1"),
        ("task.name = \"synth1d\"\nouter.rate = nan", "my.toml, line 2: outer.rate is NaN but must be finite"),
        (
            "task.name = \"synth1d\"\nouter.cold = 1",
            "my.toml, line 2: outer.cold takes true or false, not the whole number 1",
        ),
        ("task.name = \"synth1d\"\ndtype = \"f16\"", "my.toml, line 2: dtype cannot be 'f16'; it can be f32, f64"),
        (
            "task.name = \"digits-l2\"\ndevice = \"gpu\"",
            "my.toml, line 2: 'gpu' is not a device; use cpu, cuda, cuda:N for GPU number N, or auto",
        ),
        ("task.name = \"digits-l2\"\ndevice = 0", "my.toml, line 2: device takes a string, not the whole number 0"),
        (
            "task.name = \"digits-l2\"\nprecision = \"bf17\"",
            "my.toml, line 2: precision cannot be 'bf17'; did you mean bf16?",
        ),
        (
            "task.name = \"digits-l2\"\nprecision = \"bf16\"\ndtype = \"f64\"",
            "my.toml, line 2: precision is bf16 but must be full if dtype is f64; choose dtype f32 for other \
             precisions",
        ),
        ("task.name = \"synth1d\"\nchains = 0", "my.toml, line 2: chains is 0 but must be from 1 to 4096"),
        ("task.name = \"synth1d\"\nchains = [1]", "my.toml, line 2: chains takes a whole number, not an array"),
        (
            "[task]\nname = \"invariance\"\nranges = [0, 0, 1.5]",
            "my.toml, line 3: task.ranges has 3 elements but must have 6",
        ),
        (
            "task.name = \"invariance\"\n\ntask.ranges = [0, 0, \"wide\", 0, 0, 0]",
            "my.toml, line 3: task.ranges[2] takes a number, not the string \"wide\"",
        ),
        (
            "task.name = \"invariance\"\ntask.ranges = \"0 0 1 0 0 0\"",
            "my.toml, line 2: task.ranges takes an array of numbers, not the string \"0 0 1 0 0 0\"",
        ),
        ("task.name = \"synth1d\"\n[methd]", "my.toml, line 2: there is no key 'methd'; did you mean method?"),
        (
            "task.name = \"synth1d\"\n[method]\nname = \"rmd\"\nburn_in = 3",
            "my.toml, line 4: there is no key 'method.burn_in'; burn_in belongs to [inner]: use inner.burn_in",
        ),
        (
            "task.name = \"synth1d\"\n[inner]\nburn_in = 3\n[method]\nname = \"rmd\"",
            "my.toml, line 3: rmd cannot use the burn_in of the inner loop: it does not average over samples; set it to 0",
        ),
        (
            "task.name = \"synth1d\"\n[inner]\nsteps = 0\n[method]\nname = \"rmd\"",
            "my.toml, line 3: inner.steps is 0 but must be at least 1 and below 2³¹ − 1",
        ),
        (
            "task.name = \"synth1d\"\nouter.schedule.shape = \"linear\"",
            "my.toml, line 2: outer.schedule.shape cannot be 'linear'; it can be constant, step, cosine",
        ),
        (
            "task.name = \"synth1d\"\nouter.optimizer = { name = \"adam\", beta1 = 1.5 }",
            "my.toml, line 2: outer.optimizer.beta1 is 1.5 but must be at least 0 and below 1",
        ),
        (
            "task.name = \"synth1d\"\n[inner]\nsteps = 3\nstep = -1",
            "my.toml, line 4: inner.step is -1 but must be above 0",
        ),
        (
            "task.name = \"synth1d\"\n[method]\nname = \"ma-soba\"\n\nweight = 2",
            "my.toml, line 5: method.weight is 2 but must be above 0 and at most 1",
        ),
        (
            "task.name = \"synth1d\"\n[inner]\nsteps = 3\noptimizer = { name = \"adam\", beta1 = 1.5 }",
            "my.toml, line 4: inner.optimizer.beta1 is 1.5 but must be at least 0 and below 1",
        ),
        (
            "task.name = \"synth1d\"\n[method]\nname = \"ift-cg\"\ncurvature = \"gauss\"",
            "my.toml, line 4: method.curvature cannot be 'gauss'; did you mean gauss-newton?",
        ),
        (
            "task.name = \"synth1d\"\nmethod = { name = \"hoag\", fall = \"linear\" }",
            "my.toml, line 2: method.fall cannot be 'linear'; it can be quadratic, cubic, exponential",
        ),
        (
            "task.name = \"synth1d\"\nouter.iterations = 5000000000",
            "my.toml, line 2: outer.iterations is 5000000000 but must be at most 4294967295",
        ),
    ] {
        assert_eq!(refused(text), said, "{text}");
    }
    assert!(refused("experiment = ").starts_with("my.toml, line 1: this is not TOML: "));
    assert!(refused("a = 1\na = 2").starts_with("my.toml, line 2: this is not TOML: "));
    assert_eq!(parse_set("step").unwrap_err().to_string(), "--set step: it must have the form key=value");
}

#[test]
fn a_word_that_a_method_does_not_know_is_refused_at_its_place_and_those_it_knows_are_taken() {
    let registry = &*REGISTRY;
    let mut settings = vec![];
    for method in registry.methods() {
        for key in method.usual().table().keys().filter(|key| !method.words(key).is_empty() && *key != "storage") {
            let name = method.info.name;
            let set = |word: &str| {
                let mut entries = parse(b"task.name = \"synth1d\"\n", "my.toml".as_ref()).unwrap();
                entries.extend(parse_set(&format!("method.name={name}")).unwrap());
                entries.extend(parse_set(&format!("method.{key}={word}")).unwrap());
                resolve(registry, &entries)
            };
            for word in method.words(key) {
                assert_eq!(set(word).unwrap().method.get(key).unwrap().as_str(), Some(*word), "{name}.{key}");
            }
            let known = method.words(key).join(", ");
            let said = format!("--set method.{key}=xyzxyzxyz: method.{key} cannot be 'xyzxyzxyz'; it can be {known}");
            assert_eq!(set("xyzxyzxyz").unwrap_err().to_string(), said, "{name}");
            settings.push((name, key.clone()));
        }
    }
    for (name, key) in [("ift-cg", "curvature"), ("hoag", "fall"), ("fg2u", "draw")] {
        assert!(settings.contains(&(name, key.into())), "{settings:?}");
    }
}

#[test]
fn a_whole_number_is_taken_where_a_number_is_and_reverse_mode_says_what_it_keeps() {
    let config = read(b"task.name = \"synth1d\"\nouter.rate = 1").unwrap();
    assert_eq!(config.outer.rate, 1.0);
    for storage in ["\"all\"", "\"checkpoints\"", "{ truncated = 5 }"] {
        let text = format!("task.name = \"synth1d\"\n[method]\nname = \"rmd\"\nstorage = {storage}");
        let config = read(text.as_bytes()).unwrap();
        assert_eq!(read(toml(&config).as_bytes()).unwrap(), config);
        assert!(toml(&config).contains(&format!("storage = {storage}")), "{}", toml(&config));
    }
    let wrong = refused("task.name = \"synth1d\"\n[method]\nname = \"rmd\"\nstorage = { truncated = 0 }");
    assert!(wrong.contains("method.storage.truncated takes a whole number, at least 1"), "{wrong}");
}

/// The configuration of a task with these settings on top.
fn set(task: &str, sets: &[&str]) -> Result<Config, ConfigError> {
    let mut entries = parse(format!("task.name = \"{task}\"").as_bytes(), Path::new("my.toml"))?;
    for text in sets {
        entries.extend(parse_set(text)?);
    }
    resolve(&REGISTRY, &entries)
}

#[test]
fn a_table_in_braces_sets_every_key_in_it() {
    let toml = |sets: &[&str]| toml(&set("synth1d", sets).unwrap());
    let cut = toml(&["method={name=\"rmd\"}", "method.storage={truncated=5}"]);
    assert!(cut.contains("name = \"rmd\"") && cut.contains("storage = { truncated = 5 }"), "{cut}");
    assert_eq!(set("synth1d", &["outer={iterations=7, optimizer={name=\"sgd\"}}"]).unwrap().outer.iterations, 7);
    for (sets, said) in [
        (&["outer={}"][..], "--set outer={}: outer takes a table with settings in it, not an empty one"),
        (
            &["outer={itertions=7}"],
            "--set outer={itertions=7}: there is no key 'outer.itertions'; did you mean outer.iterations?",
        ),
        (
            &["colour={a=1}"],
            "--set colour={a=1}: there is no key 'colour'; there are seed, chains, threads, shard_from, device, dtype, precision, data, task, start, method, inner, outer, split, held_out, checkpoint, metrics, about",
        ),
        (
            &["method.name=rmd", "method.storage={}"],
            "--set method.storage={}: method.storage takes \"all\", \"checkpoints\" or { truncated = STEPS }, not an empty one",
        ),
        (&["held_out.fold=5"], "--set held_out.fold=5: there is no key 'held_out.fold'; did you mean held_out.folds?"),
        (&["held_out={folds=1}"], "--set held_out={folds=1}: held_out.folds is 1 but must be 0, or from 2 to 100"),
        (
            &["held_out.shrinkage=-0.5"],
            "--set held_out.shrinkage=-0.5: held_out.shrinkage is -0.5 but must be 0 or more",
        ),
        (&["held_out.share=1"], "--set held_out.share=1: held_out.share is 1 but must be from 0 to below 1"),
        (&["seed={a=1}"], "--set seed={a=1}: seed takes a whole number, not a table"),
        (
            &["seed=99999999999999999999"],
            "--set seed=99999999999999999999: seed is 99999999999999999999 but must be at most 9223372036854775807",
        ),
        (&["chains=-1"], "--set chains=-1: chains is -1 but must be from 1 to 4096"),
        (&["outer.iterations=-1"], "--set outer.iterations=-1: outer.iterations is -1 but must be at least 1"),
    ] {
        assert_eq!(set("synth1d", sets).unwrap_err().to_string(), said);
    }
    let file = refused("task.name = \"synth1d\"\n[method]\nname = \"rmd\"\n[method.storage]\n");
    assert!(file.starts_with("my.toml, line 4: method.storage takes \"all\""), "{file}");
}

#[test]
fn a_split_is_of_fractions_or_of_whole_numbers_of_rows_and_contradictions_are_refused_with_their_place() {
    let given = set("few-rows", &["split={train=0.6, validation=30, stratified=true}"]).unwrap();
    let text = toml(&given);
    assert!(text.contains("[split]\ntrain = 0.6 ") && text.contains("\nvalidation = 30 "), "{text}");
    assert_eq!(read(text.as_bytes()).unwrap(), given);
    let whole = |value: &str| set("few-rows", &[&format!("split.train={value}")]).unwrap().split.train;
    assert_eq!((whole("1"), whole("1.0")), (Share::Rows(1), Share::Fraction(1.0)));
    for (sets, said) in [
        (&["split.trian=0.5"][..], "--set split.trian=0.5: there is no key 'split.trian'; did you mean split.train?"),
        (
            &["task.split.train=0.5"],
            "--set task.split.train=0.5: there is no key 'task.split.train'; did you mean split.train?",
        ),
        (
            &["split.train=0.7", "split.validation=0.5"],
            "--set split.validation=0.5: split.validation is 0.5 but must be at most 0.3, since fractions add up to at most 1",
        ),
        (
            &["split={train=1.0, held_out=0.2}"],
            "--set split={train=1.0, held_out=0.2}: split.held_out is 0.2 but must be 0, since the other fractions add up to 1",
        ),
        (
            &["split.train=1.5"],
            "--set split.train=1.5: split.train is 1.5 but must be a fraction from 0 to 1, or a whole number of rows",
        ),
        (
            &["split.train=-3"],
            "--set split.train=-3: split.train is -3 but must be a fraction from 0 to 1, or a whole number of rows",
        ),
        (&["split.train=half"], "--set split.train=half: split.train takes a number, not the string \"half\""),
        (&["split.stratified=true"], "split.train is 0 but must be above 0 if another key of [split] is given"),
        (
            &["split.train=0.5", "split.stratified=true", "split.groups=groups.txt"],
            "--set split.stratified=true: split.stratified is true but must be false if split.groups is given",
        ),
        (
            &["split.rows=rows.json", "split.train=0.5"],
            "--set split.train=0.5: split.train is 0.5 but must be left out if split.rows is given",
        ),
    ] {
        assert_eq!(set("few-rows", sets).unwrap_err().to_string(), said);
    }
    let file = refused("task.name = \"few-rows\"\n[split]\ntrain = 0.7\nheld_out = 0.4\n");
    assert!(file.starts_with("my.toml, line 4: split.held_out is 0.4 but must be at most 0.3"), "{file}");
}

#[test]
fn an_array_is_a_value_of_a_file_and_of_set_and_survives_being_written_and_read() {
    let given = set("invariance", &["task.views=given", "task.ranges=[0, -1, 1.5, 0, 0, 1e-30]"]).unwrap();
    assert_eq!(given.task.get("ranges").unwrap(), &serde_json::json!([0.0, -1.0, 1.5, 0.0, 0.0, 1e-30]));
    let text = toml(&given);
    assert!(text.contains("\nranges = [0.0, -1.0, 1.5, 0.0, 0.0, 1e-30]  # ranges of given views"), "{text}");
    assert_eq!(read(text.as_bytes()).unwrap(), given);
    let lines =
        "[task]\nname = \"invariance\"\nviews = \"given\"\nranges = [\n  0, -1, 1.5, # a turn\n  0, 0, 1e-30,\n]";
    assert_eq!(read(lines.as_bytes()).unwrap(), given);
    let refused = |given: &str| set("invariance", &[given]).unwrap_err().to_string();
    assert_eq!(refused("task.ranges=[1, 2]"), "--set task.ranges=[1, 2]: task.ranges has 2 elements but must have 6");
    assert_eq!(
        refused("task.ranges=[0, 0, 0, 0, 0, true]"),
        "--set task.ranges=[0, 0, 0, 0, 0, true]: task.ranges[5] takes a number, not true"
    );
}

#[test]
fn every_optimizer_moves_hyperparameters_and_trains_in_the_methods_that_have_one() {
    for (name, line) in [
        ("sgd", ""),
        ("momentum", "nesterov = true"),
        ("rmsprop", "decay = 0.9"),
        ("adam", "beta1 = 0.8"),
        ("adamw", "weight_decay = 0.1"),
    ] {
        for table in ["outer.optimizer", "inner.optimizer"] {
            let text = format!("task.name = \"synth1d\"\nmethod.name = \"rmd\"\n[{table}]\nname = \"{name}\"\n{line}");
            let config = read(text.as_bytes()).unwrap();
            assert!(toml(&config).contains(line), "{text}");
            assert_eq!(read(toml(&config).as_bytes()).unwrap(), config, "{text}");
        }
    }
    for (sets, said) in [
        (
            &["method.name=rmd", "inner.optimizer.name=adamm"][..],
            "--set inner.optimizer.name=adamm: inner.optimizer.name cannot be 'adamm'; did you mean adam?",
        ),
        (
            &["method.name=rmd", "inner.optimizer.name=adam", "inner.optimizer.bata1=0.8"],
            "--set inner.optimizer.bata1=0.8: there is no key 'inner.optimizer.bata1'; did you mean \
             inner.optimizer.beta1?",
        ),
        (
            &["method.name=rmd", "inner.optimizer={name=\"rmsprop\", decay=2}"],
            "--set inner.optimizer={name=\"rmsprop\", decay=2}: inner.optimizer.decay is 2 but must be at least 0 and below \
             1",
        ),
        (
            &["outer.optimizer={name=\"adamw\", weight_decay=-1}"],
            "--set outer.optimizer={name=\"adamw\", weight_decay=-1}: outer.optimizer.weight_decay is -1 but must be at least 0",
        ),
        (
            &["method.name=hpo-sgld", "inner.optimizer.name=adam"],
            "--set inner.optimizer.name=adam: hpo-sgld cannot use the optimizer of the inner loop: its steps are those of \
             plain descent; use sgd",
        ),
    ] {
        assert_eq!(set("synth1d", sets).unwrap_err().to_string(), said);
    }
}

#[test]
fn the_length_of_the_inner_loop_may_be_given_as_samples() {
    let inner = |sets: &[&str]| set("synth1d", sets).unwrap().inner;
    let given = inner(&["method.name=hpo-sgld", "inner.burn_in=7", "inner.samples=5"]);
    assert_eq!((given.burn_in, given.steps), (7, 12));
    assert_eq!(inner(&["method.name=hpo-sgld", "inner.samples=5", "inner.burn_in=7", "inner.steps=9"]).steps, 9);
}

#[test]
fn a_schedule_goes_over_the_iterations_asked_for() {
    for (sets, over) in [
        (&["outer.schedule.shape=cosine", "outer.iterations=100"][..], "over = 100 "),
        (&["inner.schedule.shape=cosine", "outer.iterations=100"], "over = 100 "),
        (&["outer.schedule.shape=step", "outer.iterations=90"], "every = 30 "),
        (&["outer.schedule={shape=\"cosine\", over=50}", "outer.iterations=100"], "over = 50 "),
    ] {
        let text = toml(&set("synth1d", sets).unwrap());
        assert!(text.contains(over), "{text}");
    }
}

#[test]
fn a_task_has_settings_of_its_own_which_decide_what_else_is_usual() {
    let noisy = set("synth1d", &["task.noise=0.3"]).unwrap();
    assert_eq!(noisy.task.get("noise").unwrap(), 0.3);
    assert_eq!((noisy.inner.temperature, noisy.task.name()), (1e-5, "synth1d"));
    assert_ne!(noisy.hash(), set("synth1d", &[]).unwrap().hash());
    let text = toml(&noisy);
    assert!(text.contains("\n[task]\nname = \"synth1d\"  # see 'bilevel list'\nnoise = 0.3"), "{text}");
    for (sets, said) in [
        (&["task.nosie=1"][..], "--set task.nosie=1: there is no key 'task.nosie'; did you mean task.noise?"),
        (&["noise=1"], "--set noise=1: there is no key 'noise'; did you mean task.noise?"),
        (&["task.noise=much"], "--set task.noise=much: task.noise takes a number, not the string \"much\""),
        (&["task.bounded=1"], "--set task.bounded=1: task.bounded takes true or false, not the whole number 1"),
        (&["task=3"], "--set task=3: task takes a table, not the whole number 3"),
    ] {
        assert_eq!(set("synth1d", sets).unwrap_err().to_string(), said);
    }
}

#[test]
fn the_hash_tells_results_apart_and_nothing_else() {
    let hash = |extra: &str| read(format!("task.name = \"synth1d\"\n{extra}").as_bytes()).unwrap().hash();
    assert_eq!(hash("threads = 1"), hash("threads = 2\ncheckpoint.every = 7\nmetrics.every = 3"));
    assert_ne!(hash("seed = 1"), hash("seed = 2"));
    assert_ne!(hash(""), hash("inner.step = 0.006"));
}

#[test]
fn the_schema_in_the_repository_is_the_one_the_command_prints() {
    let schema = format!("{:#}\n", schema::schema(&REGISTRY).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), schema, "run the tests with UPDATE_GOLDEN=1");
}

/// A few of the rules of JSON schema, those that ours uses.
fn fits(schema: &serde_json::Value, value: &serde_json::Value) -> bool {
    let variants = schema.get("anyOf").or(schema.get("oneOf")).and_then(|v| v.as_array());
    if variants.is_some_and(|variants| !variants.iter().any(|variant| fits(variant, value))) {
        return false;
    }
    if schema.get("const").is_some_and(|word| word != value) {
        return false;
    }
    if schema.get("enum").and_then(|v| v.as_array()).is_some_and(|words| !words.contains(value)) {
        return false;
    }
    let properties = schema.get("properties").and_then(|p| p.as_object());
    match schema.get("type").and_then(|t| t.as_str()) {
        Some("array") => value.as_array().is_some_and(|elements| {
            let limit = |key: &str| schema.get(key).and_then(|limit| limit.as_u64());
            limit("minItems").is_none_or(|least| elements.len() as u64 >= least)
                && limit("maxItems").is_none_or(|most| elements.len() as u64 <= most)
                && elements.iter().all(|element| fits(&schema["items"], element))
        }),
        Some("object") => value.as_object().is_some_and(|object| {
            object.iter().all(|(name, value)| properties.and_then(|p| p.get(name)).is_some_and(|p| fits(p, value)))
        }),
        Some("number") => value.is_number(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        _ => true,
    }
}

#[test]
fn every_default_fits_the_schema_and_a_wrong_key_does_not() {
    let schema = schema::schema(&REGISTRY).unwrap();
    for config in all() {
        let mut value = serde_json::Value::Object(config.settings());
        assert!(fits(&schema, &value), "{value:#}");
        value["method"]["stpe"] = 1.into();
        assert!(!fits(&schema, &value));
    }
}

/// Lines that look like a configuration.
fn lines() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        "[a-z_.\"]{0,8}",
        Just("task.name".to_string()),
        Just("method.name".to_string()),
        Just("method.storage.truncated".to_string()),
        Just("outer.optimizer".to_string()),
        Just("outer.schedule.shape".to_string()),
    ];
    let value = prop_oneof![
        "-?[0-9]{1,20}",
        "-?[0-9.e]{1,9}",
        "\"[a-z0-9-]{0,9}\"",
        Just("\"synth1d\"".to_string()),
        Just("\"rmd\"".to_string()),
        Just("{ name = \"adam\" }".to_string()),
        Just("[[1], {}]".to_string()),
        Just("inf".to_string()),
        Just("1979-05-27".to_string()),
        "\\PC{0,6}",
    ];
    let line = prop_oneof![
        4 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => "\\[{1,2}[a-z.]{0,9}\\]{1,2}",
        1 => "\\PC{0,20}",
    ];
    proptest::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_files_are_read_or_refused_in_one_line(text in lines(), first in any::<bool>()) {
        let text = if first { format!("task.name = \"synth1d\"\n{text}") } else { text };
        if let Err(error) = read(text.as_bytes()) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn a_damaged_configuration_is_read_or_refused(
        number in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let configs = all();
        let mut bytes = toml(&configs[number.index(configs.len())]).into_bytes();
        for (place, byte, kind) in changes {
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.truncate(place.max(1)),
                _ => bytes.insert(place, byte),
            }
        }
        if let Ok(config) = read(&bytes) {
            prop_assert_eq!(read(toml(&config).as_bytes()).unwrap(), config);
        }
    }

    #[test]
    fn any_set_is_taken_or_refused(text in "\\PC{0,30}", key in "(task|method|outer|seed|x)(\\.[a-z]{1,6}){0,2}") {
        let named = parse(b"task.name = \"synth1d\"", Path::new("my.toml")).unwrap();
        for set in [text.clone(), format!("{key}={text}")] {
            if let Ok(given) = parse_set(&set) {
                let entries: Vec<Entry> = named.iter().cloned().chain(given).collect();
                let _ = resolve(&REGISTRY, &entries);
            }
        }
    }
}
