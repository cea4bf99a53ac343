//! What a comparison consists of, and whether its folder can hold it.
//!
//!   compare.toml    what was asked for
//!   METHOD-sSEED/   the folder of every run
//!   compare.json    all numbers
//!   report.html     the same for people

use crate::arguments::{Compare, Which};
use crate::commands::run::resolve;
use crate::config::Config;
use crate::config_entries::parse_set;
use crate::config_text::keys;
use crate::device::Device;
use crate::errors::{CliError, Result};
use crate::folder::{RunFolder, clean, read_settings, refuse_foreign, write_whole};
use crate::side_by_side::cores;
use bilevel::AnyMethod;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use toml_edit::Document;

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its configuration.
    pub config: Config,
    /// Where it is kept.
    pub folder: RunFolder,
}

/// A comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its folder.
    pub folder: PathBuf,
    /// The experiment.
    pub experiment: String,
    /// The methods, in the order given, and after them those that the folder has runs of already.
    pub methods: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// What the folder says it is for.
    mark: Mark,
    /// All runs, method by method.
    pub runs: Vec<Planned>,
    /// Runs that go side by side.
    pub at_a_time: usize,
}

impl Plan {
    /// What the command line asks for. Nothing is written yet.
    pub fn new(arguments: &Compare, quiet: bool) -> Result<Self> {
        check(arguments)?;
        let resolved = |method: &String, seed: Option<u64>| {
            resolve(&Which {
                what: arguments.what.clone(),
                method: Some(method.clone()),
                seed,
                outer: arguments.outer,
                device: arguments.device.clone(),
                precision: arguments.precision.clone(),
                set: arguments.set.clone(),
                data: arguments.data.clone(),
            })
        };
        let Some(first) = arguments.methods.first() else {
            return Err(CliError::Usage("--methods names no method".into()));
        };
        let first = resolved(first, None)?;
        let device = first.device.settled(quiet)?;
        let resolved = |method: &String, seed| Ok::<_, CliError>(Config { device, ..resolved(method, Some(seed))? });
        if first.seed > i64::MAX as u64 - u64::from(arguments.seeds - 1) {
            let sentence = format!("seed + seeds is too large: seed is {}, seeds is {}", first.seed, arguments.seeds);
            return Err(CliError::Usage(sentence));
        }
        let seeds: Vec<u64> = (0..u64::from(arguments.seeds)).map(|n| first.seed + n).collect();
        let folder = folder(arguments.out.as_deref(), &first.experiment)?;
        let count = arguments.methods.len() * seeds.len();
        // Runs that may use all cores share them: one run beside the other scales better than threads within one. A GPU is
        // used in full by one run, and has the memory for one.
        let at_a_time = if first.threads == 0 && device == Device::Cpu { cores().min(count) } else { 1 };
        let mut runs = vec![];
        for method in &arguments.methods {
            for &seed in &seeds {
                let mut config = resolved(method, seed)?;
                if config.threads == 0 {
                    config.threads = (cores() / at_a_time).max(1);
                }
                let planned = Planned { folder: RunFolder::at(&folder.join(format!("{method}-s{seed}"))), config };
                planned.check_unchanged()?;
                runs.push(planned);
            }
        }
        // What was compared there before stays in the comparison, as far as it is done.
        let before = Mark::read(&folder);
        let (mut methods, mut all_seeds) = (arguments.methods.clone(), seeds);
        for method in &before.methods {
            for &seed in &before.seeds {
                let kept = RunFolder::at(&folder.join(format!("{method}-s{seed}")));
                let asked = runs.iter().any(|run| run.folder == kept);
                if asked || AnyMethod::named(method).is_err() || !kept.result_file().is_file() {
                    continue;
                }
                let planned = Planned { folder: kept, config: resolved(method, seed)? };
                planned.check_unchanged()?;
                runs.push(planned);
                add(&mut methods, method);
                add(&mut all_seeds, &seed);
            }
        }
        all_seeds.sort_unstable();
        let mut mark = Mark { methods: methods.clone(), seeds: all_seeds.clone(), text: mark_settings(arguments) };
        before.methods.iter().for_each(|method| add(&mut mark.methods, method));
        before.seeds.iter().for_each(|seed| add(&mut mark.seeds, seed));
        mark.seeds.sort_unstable();
        Ok(Plan { folder, experiment: first.experiment, methods, seeds: all_seeds, mark, runs, at_a_time })
    }

    /// Makes the folder and says in it what it is for.
    pub fn begin(&self) -> Result<()> {
        let Mark { methods, seeds, text } = &self.mark;
        let list = |words: Vec<String>| words.join(", ");
        let text = format!(
            "# What 'bilevel compare' was asked for; the runs are in the folders beside this file.\n\
             experiment = {}\nmethods = [{}]\nseeds = [{}]\n{text}",
            quoted(&self.experiment),
            list(methods.iter().map(|method| quoted(method)).collect()),
            list(seeds.iter().map(u64::to_string).collect()),
        );
        std::fs::create_dir_all(&self.folder).map_err(|error| CliError::file("make", &self.folder, &error))?;
        clean(&self.folder)?;
        write_whole(&self.folder.join(MARK), text.as_bytes())
    }

    /// The runs of a method.
    pub fn runs_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Planned> {
        self.runs.iter().filter(move |run| run.method() == method)
    }
}

impl Planned {
    /// The name of its method.
    pub fn method(&self) -> &'static str {
        bilevel::Method::name(&self.config.method)
    }

    /// Refuses a folder that holds a run with other settings.
    fn check_unchanged(&self) -> Result<()> {
        if !self.folder.config_file().is_file() {
            return Ok(());
        }
        let there = Config::resolve(&self.folder.entries()?)?;
        if there.hash() == self.config.hash() {
            return self.folder.check_unchanged(&there);
        }
        let (old, new) = (there.settings(), self.config.settings());
        let differs = keys(&new).into_iter().chain(keys(&old)).find_map(|key| {
            let (old, new) = (at(&old, &key), at(&new, &key));
            let leaf = |value: Option<&Value>| value.is_none_or(|value| !value.is_object());
            let left_out = ["threads", "data"].contains(&key.as_str())
                || key.starts_with("checkpoint")
                || key.starts_with("metrics");
            (old != new && leaf(old) && leaf(new) && !left_out).then(|| {
                let word = |value: Option<&Value>| value.map_or("not there".to_string(), Value::to_string);
                format!("{key} is {} there and {} here", word(old), word(new))
            })
        });
        Err(CliError::Usage(format!(
            "{} holds a run with other settings ({}); choose another folder with --out",
            self.folder.path().display(),
            differs.unwrap_or_default()
        )))
    }
}

const MARK: &str = "compare.toml";

/// What stands in the file that tells a folder is a comparison.
#[derive(Clone, Debug, Default)]
struct Mark {
    methods: Vec<String>,
    seeds: Vec<u64>,
    /// The settings, as lines.
    text: String,
}

impl Mark {
    /// Methods and seeds of a comparison that is there; nothing where it cannot be read.
    fn read(folder: &Path) -> Self {
        let text = read_settings(&folder.join(MARK)).unwrap_or_default();
        let text = String::from_utf8(text).unwrap_or_default();
        let Ok(document) = Document::parse(text.as_str()) else { return Mark::default() };
        let list = |key: &str| document.get(key).and_then(|item| item.as_array()).into_iter().flatten();
        Mark {
            methods: list("methods").filter_map(|method| method.as_str().map(String::from)).collect(),
            seeds: list("seeds").filter_map(|seed| u64::try_from(seed.as_integer()?).ok()).collect(),
            text: String::new(),
        }
    }
}

/// What else was asked for, as lines of a file.
fn mark_settings(arguments: &Compare) -> String {
    let mut lines = String::new();
    if arguments.what.ends_with(".toml") {
        lines += &format!("config = {}\n", quoted(&arguments.what));
    }
    if let Some(outer) = arguments.outer {
        lines += &format!("outer = {outer}\n");
    }
    if let Some(device) = &arguments.device {
        lines += &format!("device = {}\n", quoted(device));
    }
    if let Some(precision) = &arguments.precision {
        lines += &format!("precision = {}\n", quoted(precision));
    }
    if !arguments.set.is_empty() {
        let set: Vec<String> = arguments.set.iter().map(|text| quoted(text)).collect();
        lines += &format!("set = [{}]\n", set.join(", "));
    }
    if let Some(data) = &arguments.data {
        lines += &format!("data = {}\n", quoted(data));
    }
    lines
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn add<T: Clone + PartialEq>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

fn at<'a>(settings: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = settings.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

fn check(arguments: &Compare) -> Result<()> {
    for (number, method) in arguments.methods.iter().enumerate() {
        AnyMethod::named(method)?;
        if arguments.methods[..number].contains(method) {
            return Err(CliError::Usage(format!("--methods names {method} twice")));
        }
    }
    for text in &arguments.set {
        for key in parse_set(text)?.iter().map(|entry| entry.dotted()) {
            let instead = match key.as_str() {
                "method.name" => "--methods",
                "seed" => "--seeds",
                _ => continue,
            };
            return Err(CliError::Usage(format!("--set {text}: a comparison takes {key} from {instead}")));
        }
    }
    Ok(())
}

/// Where the user says, or `runs/compare-EXPERIMENT` with a number where that is taken.
fn folder(out: Option<&Path>, experiment: &str) -> Result<PathBuf> {
    let Some(path) = out else {
        let name = |n: u32| if n == 1 { String::new() } else { format!("-{n}") };
        let mut free = (1..).map(|n| Path::new("runs").join(format!("compare-{experiment}{}", name(n))));
        return free.find(|path| !path.exists()).ok_or_else(|| CliError::Occupied("runs".into()));
    };
    refuse_foreign(path, "comparison", path.join(MARK).is_file())?;
    Ok(path.to_path_buf())
}
