//! Metrics as JSON, one line an iteration.

use crate::observer::{Beginning, Iteration, Observer};
use crate::state::State;
use crate::whole_file::{open_regular, remove_unfinished_of, write_whole};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Writes one JSON object an iteration, flushed at once, so that a plotting program can follow.
///
/// A resumed run goes on in the same file: lines of iterations that will be done again, and one torn by a crash, are removed
/// first, so each iteration is there once. A file with anything else in it ends the run, and is left as it is.
///
/// ```
/// use bilevel::{Driver, HpoSgld, JsonLines, Leaf, Problem, Variable};
/// let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
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
    file: Option<File>,
}

impl JsonLines {
    /// To this file, which is made when the run begins.
    ///
    /// ```
    /// let observer = bilevel::JsonLines::new("metrics.jsonl");
    /// # let _ = observer;
    /// ```
    pub fn new(path: impl AsRef<Path>) -> Self {
        JsonLines { path: path.as_ref().to_path_buf(), file: None }
    }

    /// Opens the file with the lines of the first `done` iterations, and no others, in it.
    fn open(&self, done: u32) -> io::Result<File> {
        if done == 0 {
            return File::create(&self.path);
        }
        let mut kept = Vec::new();
        match open_regular(&self.path) {
            Ok(file) => {
                let mut reader = BufReader::new(file);
                let mut line = Vec::new();
                for at in 1.. {
                    line.clear();
                    if reader.read_until(b'\n', &mut line)? == 0 {
                        break;
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // A crash here loses nothing.
        remove_unfinished_of(&self.path)?;
        write_whole(&self.path, &kept)?;
        OpenOptions::new().append(true).open(&self.path)
    }

    fn fail(&self, error: io::Error) -> ControlFlow<String> {
        ControlFlow::Break(format!("metrics cannot be written to {}: {error}", self.path.display()))
    }
}

/// What is not of a run is not removed.
fn foreign(line: usize) -> io::Error {
    io::Error::other(format!(
        "line {line} is not the metrics of an iteration; put the right file back, or move this one away"
    ))
}

/// The iteration of a whole line.
fn number(line: &[u8]) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_slice(line.strip_suffix(b"\n")?).ok()?;
    u32::try_from(value.get("iteration")?.as_u64()?).ok()
}

impl Observer for JsonLines {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        match self.open(beginning.done) {
            Ok(file) => self.file = Some(file),
            Err(error) => return self.fail(error),
        }
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, i: &Iteration, _: &State) -> ControlFlow<String> {
        let Some(file) = &mut self.file else { return ControlFlow::Continue(()) };
        let o = &i.oracles;
        let error = i.standard_error.map_or(String::new(), |error| format!("\"standard_error\":{error:?},"));
        let measures = match serde_json::to_string(&i.measures) {
            Ok(measures) if !i.measures.is_empty() => format!("\"measures\":{measures},"),
            _ => String::new(),
        };
        let diagnostics = serde_json::to_string(&i.diagnostics).unwrap_or_else(|_| "{}".into());
        // A number of a finished iteration, but for a measure, is finite, and Rust prints it so that it is read back exactly.
        let line = format!(
            "{{\"iteration\":{},\"inner_loss\":{:?},\"outer_loss\":{:?},\"hypergradient_norm\":{:?},{error}\"step_norm\":{:?},\
             \"rate\":{:?},\"seconds\":{:?},\"inner_gradients\":{},\"outer_gradients\":{},\"hessian_products\":{},\
             \"mixed_products\":{},\"losses\":{},{measures}\"diagnostics\":{diagnostics}}}\n",
            i.number,
            i.inner_loss,
            i.outer_loss,
            i.hypergradient_norm,
            i.step_norm,
            i.rate,
            i.elapsed.as_secs_f64(),
            o.inner_gradients,
            o.outer_gradients,
            o.hessian_products,
            o.mixed_products,
            o.losses
        );
        match file.write_all(line.as_bytes()).and_then(|()| file.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.fail(error),
        }
    }
}
