//! The line of user code that made an operation: of Rust, or of another language as a front end names it.

use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

/// A line of user code, which errors end with.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F64);
/// g.set_line(Some("model.py:37 (attention)"));
/// let error = x.reshape([2]).check().unwrap_err();
/// assert!(error.to_string().ends_with("(at model.py:37 (attention))"), "{error}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The file, or the whole text of a named line.
    file: &'static str,
    /// From 1 on; 0 for a named line.
    line: u32,
    column: u32,
}

/// Characters of a text that are kept.
const MAX_TEXT: usize = 200;

impl Line {
    /// The line that called, as `Location::caller` gives it.
    #[track_caller]
    pub fn caller() -> Self {
        let place = Location::caller();
        Line { file: place.file(), line: place.line(), column: place.column() }
    }

    /// A line by its text, of which the first 200 characters are kept. Equal texts are kept once, until the process ends.
    pub fn named(text: &str) -> Self {
        static TEXTS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
        let text: String = text.chars().take(MAX_TEXT).collect();
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = texts.get_or_insert_default();
        let file = texts.get(text.as_str()).copied().unwrap_or_else(|| {
            let kept: &'static str = Box::leak(text.into_boxed_str());
            texts.insert(kept);
            kept
        });
        Line { file, line: 0, column: 0 }
    }

    /// The file, or the whole text of a named line.
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// The number of the line in its file; 0 for a named line.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// True if a front end named it.
    pub fn is_named(&self) -> bool {
        self.line == 0
    }

    /// Without the column.
    pub fn short(&self) -> String {
        if self.is_named() { self.file.into() } else { format!("{}:{}", self.file, self.line) }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_named() { f.write_str(self.file) } else { write!(f, "{}:{}:{}", self.file, self.line, self.column) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_rust_is_that_of_the_caller() {
        let line = Line::caller();
        assert_eq!((line.file(), line.line()), (file!(), line!() - 1));
        assert_eq!(line.short(), format!("{}:{}", file!(), line!() - 2));
        assert!(line.to_string().starts_with(&line.short()) && !line.is_named());
    }

    #[test]
    fn equal_texts_are_kept_once_and_long_ones_are_cut() {
        let [a, b] = ["model.py:3 (f)".to_string(), "model.py:3 (f)".to_string()].map(|text| Line::named(&text));
        assert!(a == b && std::ptr::eq(a.file(), b.file()));
        assert_eq!((a.to_string(), a.short(), a.is_named()), ("model.py:3 (f)".into(), "model.py:3 (f)".into(), true));
        assert_eq!(Line::named(&"é".repeat(1000)).file().chars().count(), MAX_TEXT);
    }
}
