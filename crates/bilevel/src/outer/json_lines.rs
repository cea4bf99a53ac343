//! Metrics as JSON, one line per iteration.

use crate::checkpoint::whole_file::{open_regular, remove_unfinished_of, write_whole};
use crate::compiled::state::State;
use crate::outer::observer::{Beginning, Iteration, Observer};
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Writes one JSON object per iteration, flushed at once, so that a plotting program can follow.
///
/// A resumed run continues in the same file. Lines of iterations that will be repeated, and a line torn by a crash, are
/// removed first, so each iteration appears once. A file with other contents ends the run, and stays unchanged.
///
/// ```
/// use bilevel::observers::JsonLines;
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .build()?;
/// let path = std::env::temp_dir().join(format!("bilevel-doc-{}.jsonl", std::process::id()));
/// Driver::new(&problem, HpoSgld::default()).iterations(3).observe(JsonLines::new(&path)).run()?;
/// let text = std::fs::read_to_string(&path).unwrap();
/// assert_eq!(text.lines().count(), 3);
/// assert!(text.starts_with("{\"iteration\":1,\"inner_loss\":"), "{text}");
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct JsonLines {
    path: PathBuf,
    tag: Option<(String, Value)>,
    file: Option<File>,
}

/// All data of an iteration as one flat object, with its number as `iteration`, its time as `seconds`, and the oracle
/// counts. Fields that only some methods have may be absent.
///
/// ```
/// let mut iteration = bilevel::observers::Iteration::default();
/// iteration.number = 3;
/// let fields = bilevel::observers::iteration_fields(&iteration);
/// assert_eq!((&fields["iteration"], &fields["inner_gradients"]), (&3.into(), &0.into()));
/// ```
pub fn iteration_fields(iteration: &Iteration) -> Map<String, Value> {
    let mut flat = Map::new();
    flat.insert("iteration".into(), iteration.number.into());
    let Ok(Value::Object(fields)) = serde_json::to_value(iteration) else { return flat };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("number", _) | (_, Value::Null) => {}
            ("elapsed", _) => _ = flat.insert("seconds".into(), iteration.elapsed.as_secs_f64().into()),
            ("oracles", Value::Object(counts)) => flat.extend(counts),
            (_, value) => _ = flat.insert(name, value),
        }
    }
    flat
}

impl JsonLines {
    /// Writes to this file, which is created when the run begins.
    ///
    /// ```
    /// let observer = bilevel::observers::JsonLines::new("metrics.jsonl");
    /// # let _ = observer;
    /// ```
    pub fn new(path: impl AsRef<Path>) -> Self {
        JsonLines { path: path.as_ref().to_path_buf(), tag: None, file: None }
    }

    /// Adds a field to every line, such as the name of the run.
    pub fn tagged(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.tag = Some((name.into(), value.into()));
        self
    }

    /// Opens the file with the lines of the first `done` iterations, and no others, in it. Returns the number of lines
    /// found: lost lines are not rewritten.
    pub fn begin(&mut self, done: u32) -> io::Result<usize> {
        let mut kept = Vec::new();
        match open_regular(&self.path) {
            Ok(file) if done > 0 => {
                let mut reader = BufReader::new(file);
                let mut line = Vec::new();
                for at in 1.. {
                    line.clear();
                    if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                        break;
                    }
                    if line.len() as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
                        return Err(foreign(at));
                    }
                    match number(&line) {
                        Some(iteration) if iteration <= done => kept.extend_from_slice(&line),
                        Some(_) => {}
                        // Torn by a crash.
                        None if !line.ends_with(b"\n") => {}
                        None => return Err(foreign(at)),
                    }
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // A crash here loses nothing.
        remove_unfinished_of(&self.path)?;
        write_whole(&self.path, &kept)?;
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        Ok(kept.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Writes the line of an iteration; nothing before the file is open.
    pub fn write(&mut self, iteration: &Iteration) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut line = iteration_fields(iteration);
        line.extend(self.tag.clone());
        file.write_all(format!("{}\n", Value::Object(line)).as_bytes())?;
        file.flush()
    }

    fn answer(&self, done: io::Result<()>) -> ControlFlow<String> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(format!("metrics cannot be written to {}: {error}", self.path.display())),
        }
    }
}

/// No line of metrics is longer, in bytes; a device that never ends a line is.
pub const LONGEST_LINE: u64 = 1 << 20;

/// The error for lines that no run wrote, which are never removed.
fn foreign(line: usize) -> io::Error {
    io::Error::other(format!(
        "line {line} is not the metrics of an iteration; put the right file back, or move this one away"
    ))
}

/// The iteration of a whole line.
fn number(line: &[u8]) -> Option<u32> {
    let value: Value = serde_json::from_slice(line.strip_suffix(b"\n")?).ok()?;
    u32::try_from(value.get("iteration")?.as_u64()?).ok()
}

impl Observer for JsonLines {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        let begun = self.begin(beginning.done).map(|_| ());
        self.answer(begun)
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        let written = self.write(iteration);
        self.answer(written)
    }
}
