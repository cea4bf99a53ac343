//! Several values for one key: `outer.rate=0.01,0.03,0.1` is a sweep, and `task.ranges=[0, 1]` is one array.
//!
//! A comma separates values if it stands outside brackets, braces and quotes.

use super::entries::{Entry, parse_set};
use super::errors::{ConfigError, Place, Wrong};

/// One key with the values it is to have, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The key.
    pub key: String,
    /// Its values: each as it was written, and as settings.
    pub values: Vec<(String, Vec<Entry>)>,
}

impl Axis {
    /// Parses the text of a `--set`.
    ///
    /// ```
    /// use bilevel_run::config::sweep::Axis;
    /// let axis = Axis::parse("outer.rate=0.01, 0.1")?;
    /// assert_eq!(axis.values.iter().map(|(word, _)| &word[..]).collect::<Vec<_>>(), ["0.01", "0.1"]);
    /// assert!(!Axis::parse("task.ranges=[0, 1]")?.is_sweep());
    /// # Ok::<(), bilevel_run::config::errors::ConfigError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong =
            |sentence: String| ConfigError::at(&Place::Argument(format!("--set {text}")), Wrong::Other(sentence));
        let Some((key, given)) = text.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
            // It reports the error.
            parse_set(text)?;
            return Err(wrong("it must have the form key=value".into()));
        };
        let key = key.split('.').map(str::trim).collect::<Vec<_>>().join(".");
        let words = words(given);
        let [_, _, ..] = words[..] else {
            return Ok(Axis { key, values: vec![(given.trim().to_string(), parse_set(text)?)] });
        };
        let mut values: Vec<(String, Vec<Entry>)> = vec![];
        for word in words {
            if word.is_empty() {
                return Err(wrong("a value is missing next to a comma; put a text with a comma in quotes".into()));
            }
            let entries = parse_set(&format!("{key}={word}"))?;
            if values.iter().any(|(_, known)| known[0].value == entries[0].value) {
                return Err(wrong(format!("{word} is given twice")));
            }
            values.push((word.to_string(), entries));
        }
        Ok(Axis { key, values })
    }

    /// Whether there are several values.
    pub fn is_sweep(&self) -> bool {
        self.values.len() > 1
    }
}

/// The parts between commas that stand outside brackets, braces and quotes.
fn words(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut quote, mut start, mut escaped) = (vec![], 0_usize, None, 0, false);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// All combinations of the values of these axes, the last axis fastest: of each the value's number on every axis.
///
/// ```
/// assert_eq!(bilevel_run::config::sweep::combinations(&[2, 1, 2]), [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]);
/// ```
pub fn combinations(lengths: &[usize]) -> Vec<Vec<usize>> {
    lengths.iter().fold(vec![vec![]], |all, &length| {
        let longer = |one: &Vec<usize>| (0..length).map(|n| [&one[..], &[n]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(longer).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_brackets_braces_and_quotes_separate_nothing() {
        for (text, parts) in [
            ("1", vec!["1"]),
            ("1, 2", vec!["1", "2"]),
            ("[1, 2], [3]", vec!["[1, 2]", "[3]"]),
            ("[[1, 2], [3]]", vec!["[[1, 2], [3]]"]),
            ("{ a = 1, b = 2 }", vec!["{ a = 1, b = 2 }"]),
            ("\"a,b\",c", vec!["\"a,b\"", "c"]),
            ("'a,b'", vec!["'a,b'"]),
            ("\"a\\\",b\"", vec!["\"a\\\",b\""]),
            ("1,", vec!["1", ""]),
            ("", vec![""]),
        ] {
            assert_eq!(words(text), parts, "{text}");
        }
    }

    #[test]
    fn missing_and_repeated_values_are_refused() {
        let said = |text: &str| Axis::parse(text).unwrap_err().to_string();
        let missing = "a value is missing next to a comma; put a text with a comma in quotes";
        assert_eq!(said("outer.rate=1,,2"), format!("--set outer.rate=1,,2: {missing}"));
        assert_eq!(said("outer.rate=1,"), format!("--set outer.rate=1,: {missing}"));
        assert_eq!(said("seed=1,2,1"), "--set seed=1,2,1: 1 is given twice");
        assert_eq!(said("=1,2"), "--set =1,2: it must have the form key=value");
        assert_eq!(said("rate"), "--set rate: it must have the form key=value");
    }
}
