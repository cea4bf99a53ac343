//! How a run goes, on standard error: a bar in a terminal, plain lines anywhere else.

use crate::terminal::readable::escaped;
use bilevel::{Beginning, Iteration, Observer, Outcome, State};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Characters of the bar where there is room for all of it, and what is too short to be one.
const LONGEST_BAR: usize = 30;
const SHORTEST_BAR: usize = 5;

/// Shows progress: not more often than a person can read.
pub struct Display<W> {
    to: W,
    /// Columns of the terminal; `None` where it is none.
    columns: Option<usize>,
    pause: Duration,
    began: Instant,
    shown: Option<Instant>,
    /// The last iteration that was passed over because it came too soon.
    held: Option<Iteration>,
    done_before: u32,
    until: u32,
    /// Notes shown so far.
    notes: usize,
}

impl Display<std::io::Stderr> {
    /// On standard error, as fits what it is connected to.
    pub fn stderr() -> Self {
        let stderr = std::io::stderr();
        let columns = stderr.is_terminal().then(|| {
            let size = terminal_size::terminal_size_of(&stderr);
            size.map_or(80, |(width, _)| width.0 as usize)
        });
        Self::new(stderr, columns)
    }
}

impl<W: Write> Display<W> {
    /// To any writer; a terminal has columns. Ten times a second on a terminal, elsewhere once.
    pub fn new(to: W, columns: Option<usize>) -> Self {
        Display {
            to,
            columns,
            pause: Duration::from_millis(if columns.is_some() { 100 } else { 1000 }),
            began: Instant::now(),
            shown: None,
            held: None,
            done_before: 0,
            until: 0,
            notes: 0,
        }
    }

    /// Shows those that were not shown yet.
    fn show_notes(&mut self, notes: &[String]) {
        for note in notes.iter().skip(self.notes) {
            let _ = writeln!(self.to, "note: {}", escaped(note));
        }
        self.notes = self.notes.max(notes.len());
    }

    fn show(&mut self, iteration: &Iteration) {
        let seconds = self.began.elapsed().as_secs_f64();
        let speed = (iteration.number.saturating_sub(self.done_before)) as f64 / seconds.max(1e-9);
        let left = self.until.saturating_sub(iteration.number) as f64 / speed.max(1e-9);
        let error = iteration.standard_error.map_or(String::new(), |error| format!(" ± {error:.0e}"));
        let norm = iteration.hypergradient_norm;
        let (number, until) = (iteration.number, self.until);
        let (outer, inner) = (iteration.outer_loss, iteration.inner_loss);
        let (speed, left) = (rate(speed), clock(left));
        // Progress is a courtesy: where it cannot be written, the run goes on.
        let _ = match self.columns {
            Some(columns) => {
                let at = format!("{number}/{until}  {left} left");
                let norm = format!("|h| {norm:.2e}{error}");
                // What is said less and less of, until there is room for a bar as well.
                let said = [
                    format!("{at}  outer {outer:.3e}  inner {inner:.3e}  {norm}  {speed}/s"),
                    format!("{at}  outer {outer:.2e}  inner {inner:.2e}  {norm}  {speed}/s"),
                    format!("{at}  outer {outer:.2e}  inner {inner:.2e}  {norm}"),
                    format!("{at}  outer {outer:.2e}  {norm}"),
                    format!("{at}  outer {outer:.2e}"),
                    at,
                ];
                let fits = |numbers: &&String| numbers.chars().count() + 2 + SHORTEST_BAR <= columns;
                let numbers = said.iter().find(fits).unwrap_or(&said[said.len() - 1]);
                // The bar takes the room that is left; a line that wraps could not be written over.
                let room = columns.saturating_sub(numbers.chars().count() + 2).min(LONGEST_BAR);
                let filled = (number as usize * room).checked_div(until as usize).unwrap_or(0).min(room);
                let bar = if room < SHORTEST_BAR {
                    String::new()
                } else {
                    "█".repeat(filled) + &"░".repeat(room - filled) + " "
                };
                let line: String = format!("{bar}{numbers}").chars().take(columns.saturating_sub(1)).collect();
                write!(self.to, "\r{line}\x1b[K")
            }
            None => writeln!(
                self.to,
                "iteration {number}/{until}  outer {outer:.4e}  inner {inner:.4e}  |h| {norm:.2e}{error}  {speed}/s  {left} left"
            ),
        };
        let _ = self.to.flush();
    }
}

/// Iterations a second, in three digits.
fn rate(speed: f64) -> String {
    match speed {
        s if s >= 99.5 => format!("{s:.0}"),
        s if s >= 9.95 => format!("{s:.1}"),
        s => format!("{s:.2}"),
    }
}

/// Minutes and seconds, or hours before them.
fn clock(seconds: f64) -> String {
    let whole = seconds.min(359_999.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

impl<W: Write + Send> Observer for Display<W> {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        (self.began, self.done_before, self.until) = (Instant::now(), beginning.done, beginning.until);
        self.show_notes(&beginning.notes);
        if beginning.done > 0 {
            let _ = writeln!(self.to, "going on after iteration {} of {}", beginning.done, beginning.until);
        }
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        if self.shown.is_some_and(|at| at.elapsed() < self.pause) {
            self.held = Some(iteration.clone());
        } else {
            self.held = None;
            self.show(iteration);
            self.shown = Some(Instant::now());
        }
        ControlFlow::Continue(())
    }

    fn on_end(&mut self, outcome: &Outcome) {
        if let Some(iteration) = self.held.take() {
            self.show(&iteration);
        }
        if self.columns.is_some() && self.shown.is_some() {
            let _ = writeln!(self.to);
        }
        self.show_notes(&outcome.notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::Leaves;

    fn shown(columns: Option<usize>) -> String {
        let mut display = Display::new(vec![], columns);
        let beginning =
            Beginning { method: "rmd", optimizer: "sgd", done: 0, until: 40, notes: vec!["mind λ".into()] };
        let state = State { lambda: Leaves::default(), theta: Leaves::default(), memory: Leaves::default() };
        let _ = display.on_start(&beginning);
        for number in [1, 20] {
            let _ = display.on_iteration(&Iteration { number, outer_loss: 0.25, ..Iteration::default() }, &state);
        }
        if let Some(held) = display.held.take() {
            display.show(&held);
        }
        String::from_utf8(display.to).unwrap()
    }

    #[test]
    fn a_pipe_gets_plain_lines_with_losses_speed_and_time_left() {
        let text = shown(None);
        assert!(
            text.starts_with("note: mind λ\niteration 1/40  outer 2.5000e-1  inner 0.0000e0  |h| 0.00e0  "),
            "{text}"
        );
        assert!(text.contains("/s  ") && text.ends_with(" left\n") && !text.contains('\x1b'), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_terminal_gets_a_bar_on_one_line_that_fits() {
        let text = shown(Some(200));
        let bar = "█".repeat(15) + &"░".repeat(15);
        assert!(text.contains(&format!("\r{bar} 20/40  ")), "{text:?}");
        for columns in [200, 90, 80, 60, 20, 1] {
            let text = shown(Some(columns));
            let widest = text.split('\r').skip(1).map(|line| line.trim_end_matches("\x1b[K").chars().count()).max();
            assert!(widest.is_some_and(|widest| widest < columns), "{columns}: {text:?}");
            assert_eq!(text.contains("/s"), columns >= 80, "{columns}: {text:?}");
        }
    }

    #[test]
    fn in_80_columns_there_is_a_bar_and_nothing_is_cut() {
        for (until, error) in [(40, None), (40, Some(0.000123456)), (200_000, Some(0.123456789))] {
            let mut display = Display::new(vec![], Some(80));
            display.until = until;
            let iteration = Iteration {
                number: until,
                outer_loss: -1.23456789e-12,
                inner_loss: 1.23456789e-12,
                hypergradient_norm: 0.0041527839561237,
                standard_error: error,
                ..Iteration::default()
            };
            display.show(&iteration);
            let text = String::from_utf8(display.to).unwrap();
            let line = text.trim_start_matches('\r').trim_end_matches("\x1b[K");
            assert!(line.starts_with("█████") && line.chars().count() < 80, "{line:?}");
            let end = error.map_or("|h| 4.15e-3".to_string(), |error| format!("|h| 4.15e-3 ± {error:.0e}"));
            assert!(line.contains(&end), "{line:?}");
        }
    }

    #[test]
    fn time_left_is_read_as_a_clock() {
        assert_eq!([clock(5.4), clock(65.0), clock(3661.0)], ["0:05", "1:05", "1:01:01"]);
    }
}
