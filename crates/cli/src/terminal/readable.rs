//! Numbers as a page shows them, and text as a terminal can bear it.

pub use bilevel_report::number;
use std::path::Path;

/// One that may be missing.
pub fn number_or_dash(value: Option<f64>) -> String {
    value.map_or("–".into(), number)
}

/// Formats a number with commas between thousands.
pub fn count(number: u64) -> String {
    bilevel_report::count(number as f64)
}

/// The number with the word, in the plural unless it is 1.
pub fn counted(number: u64, of: &str) -> String {
    format!("{} {of}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Bytes of memory: in GiB, or as a plain number if they are too few for that.
pub fn bytes(number: u64) -> String {
    match number as f64 / f64::from(1 << 30) {
        gib if gib >= 0.1 => format!("{gib:.1} GiB"),
        _ => counted(number, "byte"),
    }
}

/// A time as a person would say it.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => "–".into(),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 99.95 => format!("{s:.1} s"),
        s if s < 5940.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Capitalises a text, unless it begins with a Greek letter or a name in code.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if first.is_ascii_lowercase() => first.to_ascii_uppercase().to_string() + letters.as_str(),
        _ => text.into(),
    }
}

/// A sentence that quotes user input, made safe for a terminal: control characters are written out, and words longer
/// than any name or path are cut.
pub fn one_line(sentence: &str) -> String {
    let word = |word: &str| match word.chars().count() {
        0..=LONG_WORD => escaped(word),
        _ => word.chars().take(QUOTED).map(|c| escaped(c.encode_utf8(&mut [0; 4]))).collect::<String>() + "…",
    };
    let line = sentence.split(' ').map(word).collect::<Vec<_>>().join(" ");
    match line.chars().count() {
        0..=LONG_LINE => line,
        _ => line.chars().take(LONG_LINE).collect::<String>() + "…",
    }
}

/// Words longer than this are cut.
const LONG_WORD: usize = 300;
/// The maximum length of a quoted word, in characters.
const QUOTED: usize = 80;
/// Lines longer than this are cut to it.
const LONG_LINE: usize = 2000;

/// A path made safe for a terminal.
pub fn escaped_path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Text of several lines made safe for a terminal.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// Text for a terminal: control characters are written out.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Control characters, and those that break a line or change its direction.
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}') {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Text in lines of at most this many letters.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > columns {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_the_terminal_is_wide() {
        let text =
            "Best on validation digits: langevin-adjoint; on test digits all three methods beat one tuned weight.";
        for columns in [40, 80, 100] {
            let lines = wrapped(text, columns);
            assert!(lines.lines().all(|line| line.chars().count() <= columns), "{lines}");
            assert_eq!(lines.replace('\n', " "), text);
        }
    }

    #[test]
    fn numbers_counts_and_times_read_well() {
        assert_eq!([7, 1234, 1234567].map(count), ["7", "1,234", "1,234,567"]);
        assert_eq!([0.012, 2.34, 300.0, 7200.0].map(duration), ["12 ms", "2.3 s", "5 min", "2.0 h"]);
        assert_eq!([1, 1 << 20, 1 << 27, 3 << 30].map(bytes), ["1 byte", "1,048,576 bytes", "0.1 GiB", "3.0 GiB"]);
        assert_eq!((counted(1, "run"), counted(2000, "run")), ("1 run".into(), "2,000 runs".into()));
        assert_eq!((sentence("test loss"), sentence("λ")), ("Test loss".into(), "λ".into()));
    }
}
