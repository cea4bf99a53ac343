//! The answer of the command, and the faults that no answer may have.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Exit codes the command documents, the one of Ctrl-C left out.
pub const CODES: [i32; 3] = [0, 1, 2];
/// The signal of Ctrl-C, and the exit code of a command that answers it.
const INTERRUPT: i32 = 2;
const INTERRUPTED: i32 = 130;
/// The longest complaint, in characters: long enough for a path quoted twice.
const LONGEST: usize = 2200;

/// The answer of a command.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The command line.
    pub line: Vec<OsString>,
    /// How it ended.
    pub status: ExitStatus,
    /// Whether it had to be killed because it did not answer Ctrl-C.
    pub timed_out: bool,
    /// Whether it was asked to stop.
    pub interrupted: bool,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub error: Vec<u8>,
}

impl Answer {
    /// The exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns true if it reports success.
    pub fn done(&self) -> bool {
        self.code() == Some(0)
    }

    /// The command line, in a form that can be read and given again.
    pub fn words(&self) -> String {
        let word = |word: &OsString| {
            let text = format!("{word:?}");
            let plain = word.to_str().is_some_and(|w| !w.is_empty() && w.chars().all(|c| c.is_ascii_graphic()));
            if plain && !text.contains('\\') { word.to_string_lossy().into_owned() } else { text }
        };
        let words: Vec<String> = self.line.iter().map(word).collect();
        format!("'bilevel {}'", words.join(" "))
    }

    /// Its standard output as text.
    pub fn out_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.out)
    }

    /// Its standard error as text.
    pub fn error_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.error)
    }

    /// The last line it complained in.
    pub fn complaint(&self) -> Option<String> {
        self.error_text().lines().rev().find(|line| line.starts_with("bilevel: ")).map(String::from)
    }

    /// All its faults, given the exit codes that it may end with.
    pub fn faults(&self, codes: &[i32]) -> Vec<String> {
        let mut faults = vec![];
        let (out, error) = (self.out_text(), self.error_text());
        if self.timed_out {
            return vec![format!("did not end within {} s of Ctrl-C", super::command::PATIENCE.as_secs())];
        }
        if out.contains("panicked at") || error.contains("panicked at") {
            let line = error.lines().find(|line| line.contains("panicked at")).unwrap_or_default();
            return vec![format!("panicked: {}", line.escape_debug())];
        }
        match (self.code(), self.status.signal()) {
            // As Ctrl-C ends work that has nothing to clean up.
            (None, Some(INTERRUPT)) if self.interrupted => return faults,
            (None, signal) => return vec![format!("was ended by signal {}", signal.unwrap_or(0))],
            (Some(INTERRUPTED), _) if self.interrupted => {}
            (Some(code), _) if !codes.contains(&code) => {
                let said = self.complaint().map_or(String::new(), |said| format!(" ({})", said.escape_debug()));
                faults.push(format!("ended with exit code {code}{said}"));
            }
            _ => {}
        }
        for (what, bytes) in [("output", &self.out), ("complaint", &self.error)] {
            match std::str::from_utf8(bytes) {
                Err(_) => faults.push(format!("its {what} is no text")),
                Ok(text) => {
                    if let Some(c) = text.chars().find(|&c| is_raw(c)) {
                        faults.push(format!("its {what} has the raw control character {}", c.escape_default()));
                    }
                }
            }
        }
        if !self.done() {
            faults.extend(self.wrong_complaint());
        }
        faults
    }

    /// The fault in the error message of a failed command.
    fn wrong_complaint(&self) -> Option<String> {
        let error = self.error_text();
        let last = error.lines().last().unwrap_or_default();
        let Some(sentence) = last.strip_prefix("bilevel: ") else {
            return Some(format!("does not end with a complaint but with '{}'", last.escape_debug()));
        };
        // Ctrl-C is answered at once, and again at the end.
        let complaints = error.lines().filter(|line| line.starts_with("bilevel: ")).count();
        let most = if self.interrupted { 3 } else { 1 };
        if complaints > most {
            return Some(format!("complains {complaints} times"));
        }
        if error.lines().any(|line| line.trim().is_empty()) {
            return Some("complains in several paragraphs".into());
        }
        match sentence.chars().count() {
            0..=7 => Some(format!("says no more than '{}'", sentence.escape_debug())),
            8..=LONGEST => None,
            length => Some(format!("complains in {length} characters")),
        }
    }
}

/// Returns true for characters that move a terminal's cursor, change its colours or the direction of a line.
fn is_raw(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && !matches!(c, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: i32, out: &str, error: &str) -> Answer {
        Answer {
            line: ["run", "a b", "\u{1b}"].map(OsString::from).to_vec(),
            status: ExitStatus::from_raw(code),
            timed_out: false,
            interrupted: false,
            out: out.into(),
            error: error.into(),
        }
    }

    /// As the system packs exit code 2.
    const TWO: i32 = 2 << 8;

    #[test]
    fn a_refusal_in_one_sentence_is_right() {
        assert!(answer(TWO, "", "bilevel: there is no such thing here\n").faults(&CODES).is_empty());
        assert!(answer(0, "done\n", "").faults(&CODES).is_empty());
    }

    #[test]
    fn every_wrong_answer_is_named() {
        for (answer, fault) in [
            (answer(11, "", ""), "was ended by signal 11"),
            (answer(101 << 8, "", "thread 'main' panicked at src/x.rs:1:1:\n"), "panicked: "),
            (answer(3 << 8, "", "bilevel: there is no such thing\n"), "ended with exit code 3"),
            (answer(130 << 8, "", "bilevel: stopped after nothing\n"), "ended with exit code 130"),
            (answer(TWO, "", ""), "does not end with a complaint but with ''"),
            (answer(TWO, "", "bilevel: a\u{1b}[31mb is no such thing\n"), "its complaint has the raw control"),
            (answer(TWO, "", "bilevel: a first thing\nbilevel: a second thing\n"), "complains 2 times"),
            (answer(TWO, "", "a thing\n\nbilevel: a second thing\n"), "complains in several paragraphs"),
            (answer(TWO, "", "bilevel: no\n"), "says no more than 'no'"),
        ] {
            let found = answer.faults(&CODES);
            assert!(found.iter().any(|found| found.starts_with(fault)), "{fault}: {found:?}");
        }
    }

    #[test]
    fn a_command_line_is_shown_so_that_it_can_be_given_again() {
        assert_eq!(answer(0, "", "").words(), r#"'bilevel run "a b" "\u{1b}"'"#);
    }
}
