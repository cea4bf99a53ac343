//! One line of text with the progress of a run.

use crate::compiled::state::State;
use crate::outer::observer::{Beginning, Iteration, Observer};
use crate::outer::stopping::Outcome;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Writes progress as text: on a terminal one line that is written over, elsewhere plain lines, not too many of them.
///
/// ```
/// use bilevel::State;
/// use bilevel::observers::{Iteration, Observer, ProgressLine};
/// let mut line = ProgressLine::new(Vec::new(), false);
/// let state = State::default(); // without a single leaf
/// let mut iteration = Iteration::default();
/// (iteration.number, iteration.outer_loss) = (1, 0.25);
/// let _ = line.on_iteration(&iteration, &state);
/// let text = String::from_utf8(line.into_inner()).unwrap();
/// assert!(text.starts_with("iteration 1") && text.contains("outer 2.5000e-1") && text.ends_with('\n'));
/// ```
pub struct ProgressLine<W> {
    to: W,
    terminal: bool,
    pause: Duration,
    until: u32,
    written: Option<Instant>,
    /// The last line that was passed over because it came too soon.
    held: Option<String>,
    width: usize,
}

impl ProgressLine<std::io::Stderr> {
    /// Writes to standard error, in a form that suits a terminal or a file.
    ///
    /// ```
    /// use bilevel::observers::{Observer, ProgressLine};
    /// let observer: Box<dyn Observer> = Box::new(ProgressLine::stderr());
    /// # let _ = observer;
    /// ```
    pub fn stderr() -> Self {
        let stderr = std::io::stderr();
        let terminal = stderr.is_terminal();
        Self::new(stderr, terminal)
    }
}

impl<W: Write + Send> ProgressLine<W> {
    /// Writes to any writer, at most ten lines a second on a terminal, otherwise one.
    ///
    /// ```
    /// let line = bilevel::observers::ProgressLine::new(Vec::new(), true);
    /// assert!(line.into_inner().is_empty());
    /// ```
    pub fn new(to: W, terminal: bool) -> Self {
        let pause = Duration::from_millis(if terminal { 100 } else { 1000 });
        ProgressLine { to, terminal, pause, until: 0, written: None, held: None, width: 0 }
    }

    /// Sets the least time between two lines.
    ///
    /// ```
    /// use std::time::Duration;
    /// let line = bilevel::observers::ProgressLine::stderr().pause(Duration::from_secs(10));
    /// # let _ = line;
    /// ```
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The writer.
    ///
    /// ```
    /// assert!(bilevel::observers::ProgressLine::new(Vec::new(), false).into_inner().is_empty());
    /// ```
    pub fn into_inner(self) -> W {
        self.to
    }

    fn show(&mut self, line: &str) {
        // If the progress cannot be written, the run continues.
        let _ = if self.terminal {
            let width = line.chars().count();
            let blanks = self.width.saturating_sub(width);
            self.width = width;
            write!(self.to, "\r{line}{:blanks$}", "")
        } else {
            writeln!(self.to, "{line}")
        };
        let _ = self.to.flush();
    }
}

impl<W: Write + Send> Observer for ProgressLine<W> {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        self.until = beginning.until;
        for note in &beginning.notes {
            let _ = writeln!(self.to, "note: {note}");
        }
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, i: &Iteration, _: &State) -> ControlFlow<String> {
        let of = if self.until > 0 { format!("/{}", self.until) } else { String::new() };
        let line = format!(
            "iteration {}{of}  outer {:.4e}  inner {:.4e}  ‖h‖ {:.3e}  step {:.3e}  rate {:.3e}  {:.1} s",
            i.number,
            i.outer_loss,
            i.inner_loss,
            i.hypergradient_norm,
            i.step_norm,
            i.rate,
            i.elapsed.as_secs_f64()
        );
        if self.written.is_some_and(|at| at.elapsed() < self.pause) {
            self.held = Some(line);
        } else {
            self.held = None;
            self.written = Some(Instant::now());
            self.show(&line);
        }
        ControlFlow::Continue(())
    }

    fn on_end(&mut self, outcome: &Outcome) {
        if let Some(line) = self.held.take() {
            self.show(&line);
        }
        let newline = if self.terminal && self.width > 0 { "\n" } else { "" };
        let _ = writeln!(self.to, "{newline}after {} iterations: {}", outcome.iterations, outcome.reason);
    }
}
