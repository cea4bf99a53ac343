//! How far the work is, on standard error: one bar in a terminal, plain lines anywhere else.

use super::readable::{escaped, escaped_lines};
use bilevel::observers::{Beginning, Iteration, Observer};
use bilevel::{Outcome, State};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Parts of the whole that a bar can tell apart.
const PARTS: f64 = 10_000.0;

/// Shows how far a piece of work is, from any thread. Progress is a courtesy: where it cannot be written, the work
/// continues.
#[derive(Clone)]
pub struct Progress(Option<Arc<Shown>>);

struct Shown {
    /// Where there is a terminal.
    bar: Option<ProgressBar>,
    /// Elsewhere: how long it is silent between two lines, and when it said the last.
    pause: Duration,
    last: Mutex<Option<Instant>>,
}

impl Progress {
    /// Of work that may take long, which says a line every ten seconds where there is no terminal; nowhere if quiet.
    pub fn stderr(quiet: bool) -> Self {
        Self::new(quiet, Duration::from_secs(10), Some(Instant::now()))
    }

    /// Of one run, which says a line every second.
    fn of_run() -> Self {
        Self::new(false, Duration::from_secs(1), None)
    }

    fn new(quiet: bool, pause: Duration, last: Option<Instant>) -> Self {
        if quiet {
            return Progress(None);
        }
        let bar = || {
            let style = ProgressStyle::with_template("{bar:20} {percent:>3} %  {eta} left  {wide_msg}").ok()?;
            let bar = ProgressBar::with_draw_target(Some(PARTS as u64), ProgressDrawTarget::stderr_with_hz(10));
            Some(bar.with_style(style.progress_chars("██░")))
        };
        let bar = std::io::stderr().is_terminal().then(bar).flatten();
        Progress(Some(Arc::new(Shown { bar, pause, last: Mutex::new(last) })))
    }

    /// How much is done, from 0 to 1, and what is going on.
    pub fn show(&self, done: f64, what: impl FnOnce() -> String) {
        let Some(shown) = &self.0 else { return };
        if let Some(bar) = &shown.bar {
            bar.set_message(escaped(&what()));
            bar.set_position((PARTS * done.clamp(0.0, 1.0)) as u64);
            return;
        }
        let mut last = shown.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= shown.pause) {
            *last = Some(Instant::now());
            let _ = writeln!(std::io::stderr(), "{}", escaped(&what()));
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        let Some(shown) = &self.0 else { return };
        let write = || _ = writeln!(std::io::stderr(), "{}", escaped_lines(line));
        match &shown.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = self.0.as_ref().and_then(|shown| shown.bar.as_ref()) {
            bar.finish_and_clear();
        }
    }
}

/// Shows how one run goes.
pub struct RunProgress {
    progress: Progress,
    until: u32,
    /// The last iteration, where it came too soon to be shown.
    held: Option<Iteration>,
    /// Notes shown so far.
    notes: usize,
}

impl RunProgress {
    /// On standard error.
    pub fn stderr() -> Self {
        RunProgress { progress: Progress::of_run(), until: 0, held: None, notes: 0 }
    }

    fn show_notes(&mut self, notes: &[String]) {
        notes.iter().skip(self.notes).for_each(|note| self.progress.say(&format!("note: {}", escaped(note))));
        self.notes = self.notes.max(notes.len());
    }
}

/// An iteration in a line.
fn line(iteration: &Iteration, until: u32) -> String {
    let Iteration { number, outer_loss, inner_loss, hypergradient_norm, .. } = iteration;
    let error = iteration.standard_error.map_or(String::new(), |error| format!(" ± {error:.0e}"));
    format!(
        "iteration {number}/{until}  outer {outer_loss:.4e}  inner {inner_loss:.4e}  |h| {hypergradient_norm:.2e}{error}"
    )
}

impl Observer for RunProgress {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        self.until = beginning.until;
        self.show_notes(&beginning.notes);
        if beginning.done > 0 {
            self.progress.say(&format!("continuing after iteration {} of {}", beginning.done, beginning.until));
        }
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        let mut shown = false;
        self.progress.show(f64::from(iteration.number) / f64::from(self.until.max(1)), || {
            shown = true;
            line(iteration, self.until)
        });
        self.held = (!shown).then(|| iteration.clone());
        ControlFlow::Continue(())
    }

    fn on_end(&mut self, outcome: &Outcome) {
        self.progress.end();
        if let Some(iteration) = self.held.take() {
            self.progress.say(&line(&iteration, self.until));
        }
        self.show_notes(&outcome.notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_is_one_line_with_losses_and_the_hypergradient() {
        let mut iteration = Iteration::default();
        (iteration.number, iteration.outer_loss, iteration.standard_error) = (20, 0.25, Some(1e-3));
        let said = "iteration 20/40  outer 2.5000e-1  inner 0.0000e0  |h| 0.00e0 ± 1e-3";
        assert_eq!(line(&iteration, 40), said);
    }
}
