//! How several runs together go, on standard error: one bar in a terminal, plain lines anywhere else.

use crate::terminal::readable::escaped_lines;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Characters of the bar.
const BAR: usize = 20;

/// Shows how far a piece of work is, from any thread.
pub struct Board<W = std::io::Stderr>(Option<Arc<Mutex<Inner<W>>>>);

impl<W> Clone for Board<W> {
    fn clone(&self) -> Self {
        Board(self.0.clone())
    }
}

struct Inner<W> {
    to: W,
    /// Columns of the terminal; `None` where it is none.
    columns: Option<usize>,
    began: Instant,
    shown: Option<Instant>,
}

impl Board {
    /// On standard error, as fits what it is connected to; nowhere if quiet.
    pub fn stderr(quiet: bool) -> Self {
        let stderr = std::io::stderr();
        let columns = stderr
            .is_terminal()
            .then(|| terminal_size::terminal_size_of(&stderr).map_or(80, |(width, _)| width.0 as usize));
        if quiet { Board(None) } else { Board::new(stderr, columns) }
    }
}

impl<W: Write> Board<W> {
    /// To any writer; a terminal has columns.
    pub fn new(to: W, columns: Option<usize>) -> Self {
        Board(Some(Arc::new(Mutex::new(Inner { to, columns, began: Instant::now(), shown: None }))))
    }

    fn with(&self, act: impl FnOnce(&mut Inner<W>) -> std::io::Result<()>) {
        if let Some(inner) = &self.0 {
            // Progress is a courtesy: where it cannot be written, the work goes on.
            let _ = act(&mut inner.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// How much is done, from 0 to 1, and what is going on. In a terminal ten times a second at most, elsewhere every ten
    /// seconds.
    pub fn show(&self, done: f64, what: impl FnOnce() -> String) {
        self.with(|inner| {
            let pause = Duration::from_millis(if inner.columns.is_some() { 100 } else { 10_000 });
            if inner.shown.unwrap_or(inner.began).elapsed() < pause {
                return Ok(());
            }
            inner.shown = Some(Instant::now());
            let done = done.clamp(0.0, 1.0);
            // Before anything to speak of is done nobody can say how long it takes.
            let left = match inner.began.elapsed().as_secs_f64() * (1.0 - done) / done.max(1e-9) {
                _ if done < 0.005 => String::new(),
                left => {
                    format!("{}:{:02} left  ", left.min(3e5).round() as u64 / 60, left.min(3e5).round() as u64 % 60)
                }
            };
            match inner.columns {
                Some(columns) => {
                    let filled = (done * BAR as f64) as usize;
                    let bar = "█".repeat(filled) + &"░".repeat(BAR - filled);
                    let line = format!("{bar} {:3.0} %  {left}{}", 100.0 * done, what());
                    // Cut, so that the line does not wrap and can be written over.
                    let line: String = line.chars().take(columns.saturating_sub(1)).collect();
                    write!(inner.to, "\r{line}\x1b[K")?;
                }
                None => writeln!(inner.to, "{:.0} %  {left}{}", 100.0 * done, what())?,
            }
            inner.to.flush()
        });
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        self.with(|inner| {
            let clear = if inner.columns.is_some() { "\r\x1b[K" } else { "" };
            writeln!(inner.to, "{clear}{}", escaped_lines(line))
        });
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.with(|inner| {
            if inner.columns.is_some() {
                write!(inner.to, "\r\x1b[K")?;
            }
            inner.to.flush()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(board: Board<Vec<u8>>) -> String {
        String::from_utf8(board.0.unwrap().lock().unwrap().to.clone()).unwrap()
    }

    #[test]
    fn a_pipe_gets_the_lines_that_stay_and_no_codes() {
        let board = Board::new(vec![], None);
        board.show(0.5, || "half".into());
        board.say("rmd, seed 1");
        board.end();
        assert_eq!(text(board), "rmd, seed 1\n");
    }

    #[test]
    fn a_terminal_gets_one_line_that_fits_and_is_taken_away() {
        let board = Board::new(vec![], Some(40));
        std::thread::sleep(Duration::from_millis(110));
        board.show(0.5, || "what is going on, at length".into());
        board.end();
        let text = text(board);
        assert!(text.starts_with("\r██████████░░░░░░░░░░  50 %  0:0"), "{text:?}");
        assert!(text.ends_with("\x1b[K\r\x1b[K"), "{text:?}");
        assert_eq!(text.split("\x1b[K").next().unwrap().chars().count(), 40, "{text:?}");
    }
}
