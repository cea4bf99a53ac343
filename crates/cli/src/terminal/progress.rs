//! Progress on standard error: one bar in a terminal, plain lines otherwise.

use super::readable::{duration, escaped, escaped_lines};
use bilevel::observers::{Beginning, Iteration, Observer};
use bilevel::{Outcome, State};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Parts of the whole that a bar can tell apart.
const PARTS: f64 = 10_000.0;

/// Shows the progress of a piece of work, from any thread. If it cannot be written, the work continues.
#[derive(Clone)]
pub struct Progress(Option<Arc<Shown>>);

struct Shown {
    /// The bar, if there is a terminal.
    bar: Option<ProgressBar>,
    /// Without a terminal: the time between two lines as a function of the time worked, and the time of the last one.
    pause: fn(Duration) -> Duration,
    began: Instant,
    last: Mutex<Option<Instant>>,
}

/// The shortest and the longest silence between two lines of a run.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The silence between two lines of a run that has worked for so long: a tenth of that, so that a log of an hour has some hundred lines.
fn pause_of_run(worked: Duration) -> Duration {
    (worked / 10).clamp(PAUSES[0], PAUSES[1])
}

impl Progress {
    /// Progress of long work, with a line every ten seconds if there is no terminal; hidden if quiet.
    pub fn stderr(quiet: bool) -> Self {
        Self::new(quiet, |_| Duration::from_secs(10), Some(Instant::now()))
    }

    /// Progress of one run, with a line every second at first, and fewer later.
    fn of_run() -> Self {
        Self::new(false, pause_of_run, None)
    }

    fn new(quiet: bool, pause: fn(Duration) -> Duration, last: Option<Instant>) -> Self {
        if quiet {
            return Progress(None);
        }
        let bar = || {
            let style = ProgressStyle::with_template("{bar:20} {percent:>3} %  {eta} left  {wide_msg}").ok()?;
            let bar = ProgressBar::with_draw_target(Some(PARTS as u64), ProgressDrawTarget::stderr_with_hz(10));
            Some(bar.with_style(style.progress_chars("██░")))
        };
        let bar = std::io::stderr().is_terminal().then(bar).flatten();
        Progress(Some(Arc::new(Shown { bar, pause, began: Instant::now(), last: Mutex::new(last) })))
    }

    /// Shows the finished part, from 0 to 1, and the present activity.
    pub fn show(&self, done: f64, what: impl FnOnce() -> String) {
        let Some(shown) = &self.0 else { return };
        if let Some(bar) = &shown.bar {
            bar.set_message(escaped(&what()));
            bar.set_position((PARTS * done.clamp(0.0, 1.0)) as u64);
            return;
        }
        let mut last = shown.last.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = (shown.pause)(shown.began.elapsed());
        if last.is_none_or(|last| last.elapsed() >= pause) {
            *last = Some(Instant::now());
            let _ = writeln!(std::io::stderr(), "{}", escaped(&what()));
        }
    }

    /// Whether it is a bar in a terminal.
    fn is_a_bar(&self) -> bool {
        self.0.as_ref().is_some_and(|shown| shown.bar.is_some())
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
    /// Iterations that were done when it began, and when that was.
    done: u32,
    began: Instant,
    /// The last iteration, if it came too soon to be shown.
    held: Option<Iteration>,
    /// Notes shown so far.
    notes: usize,
}

impl RunProgress {
    /// Shows progress on standard error.
    pub fn stderr() -> Self {
        RunProgress { progress: Progress::of_run(), until: 0, done: 0, began: Instant::now(), held: None, notes: 0 }
    }

    fn show_notes(&mut self, notes: &[String]) {
        notes.iter().skip(self.notes).for_each(|note| self.progress.say(&format!("note: {}", escaped(note))));
        self.notes = self.notes.max(notes.len());
    }
}

/// How fast a run goes, and how long it takes to its last iteration:
///
///   rate = done / elapsed,   left = (all − done) / rate
///
/// Nothing is said before two iterations, of which the first may warm up, nor at the end.
fn pace(done: u32, left: u32, elapsed: Duration) -> String {
    if done < 2 || left == 0 || elapsed.is_zero() {
        return String::new();
    }
    let each = elapsed.as_secs_f64() / f64::from(done);
    let rate = if each <= 1.0 { format!("{:.1}/s", 1.0 / each) } else { format!("{} each", duration(each)) };
    format!("  {rate}  about {} left", duration(f64::from(left) * each))
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
        (self.until, self.done, self.began) = (beginning.until, beginning.done, Instant::now());
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
            let left = self.until.saturating_sub(iteration.number);
            let pace = pace(iteration.number.saturating_sub(self.done), left, self.began.elapsed());
            // A terminal shows the time left next to its bar.
            line(iteration, self.until) + if self.progress.is_a_bar() { "" } else { &pace }
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

    #[test]
    fn the_pace_says_the_rate_and_the_time_left() {
        let after = |done, left, seconds| pace(done, left, Duration::from_secs(seconds));
        assert_eq!(after(100, 300, 10), "  10.0/s  about 30.0 s left");
        assert_eq!(after(2, 10, 6), "  3.0 s each  about 30.0 s left");
        assert_eq!(after(100, 60_000, 10), "  10.0/s  about 1.7 h left");
        assert_eq!([after(1, 10, 5), after(10, 0, 5), after(10, 5, 0)], ["", "", ""]);
    }

    #[test]
    fn a_log_has_a_line_a_second_at_first_and_two_a_minute_later() {
        let after = |seconds| pause_of_run(Duration::from_secs(seconds)).as_secs();
        assert_eq!([after(0), after(5), after(60), after(100_000)], [1, 1, 6, 30]);
    }
}
