//! Errors of a configuration, with their place and a suggestion.

use std::fmt;
use std::path::PathBuf;

/// The place of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file, on this line.
    File(PathBuf, usize),
    /// On the command line, as written there.
    Argument(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path, line) => write!(f, "{}, line {line}", path.display()),
            Place::Argument(text) => f.write_str(text),
        }
    }
}

/// A suggestion.
#[derive(Clone, Debug, PartialEq)]
pub enum Instead {
    /// Probably this.
    Near(String),
    /// One of these.
    Known(Vec<String>),
    /// The key of another table that it has become.
    Moved(String),
}

/// The error without its place.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// The file is no TOML.
    Syntax(String),
    /// `--set` without a key and a value.
    NotAnAssignment,
    /// No such key.
    UnknownKey {
        /// As given.
        key: String,
        /// A suggestion.
        instead: Instead,
    },
    /// A value of another type.
    WrongType {
        /// The key.
        key: String,
        /// The values that it takes.
        takes: &'static str,
        /// The given value.
        given: String,
    },
    /// A value outside its range.
    OutOfRange {
        /// The key.
        key: String,
        /// The given value.
        given: String,
        /// The condition that it must meet.
        must: String,
    },
    /// An array with too few or too many elements.
    Length {
        /// The key.
        key: String,
        /// The number of elements given.
        given: usize,
        /// The number it must have.
        must: String,
    },
    /// A word that is not among those a key can take.
    UnknownWord {
        /// The key.
        key: String,
        /// As given.
        given: String,
        /// A suggestion.
        instead: Instead,
    },
    /// The file names no task.
    NoTask,
    /// Anything else, in words.
    Other(String),
}

/// An error with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError {
    /// The place, if there is a single one.
    pub place: Option<Place>,
    /// The error itself.
    pub wrong: Wrong,
}

impl ConfigError {
    /// An error at a place.
    pub fn at(place: &Place, wrong: Wrong) -> Self {
        ConfigError { place: Some(place.clone()), wrong }
    }

    /// A value outside its range.
    pub fn range(key: &str, given: impl fmt::Display, must: &str) -> Self {
        let wrong = Wrong::OutOfRange { key: key.into(), given: given.to_string(), must: must.into() };
        ConfigError { place: None, wrong }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        let suggest = |f: &mut fmt::Formatter<'_>, instead: &Instead, what: &str| match instead {
            Instead::Near(near) => write!(f, "; did you mean {near}?"),
            Instead::Known(known) => write!(f, "; {what} {}", known.join(", ")),
            Instead::Moved(key) => {
                let (table, name) = key.split_once('.').unwrap_or(("", key));
                let name = name.split('.').next().unwrap_or(name);
                write!(f, "; {name} belongs to [{table}]: use {key}")
            }
        };
        match &self.wrong {
            Wrong::Syntax(message) => write!(f, "this is not TOML: {message}"),
            Wrong::NotAnAssignment => f.write_str("it must have the form key=value"),
            Wrong::UnknownKey { key, instead } => {
                write!(f, "there is no key '{key}'")?;
                suggest(f, instead, "there are")
            }
            Wrong::WrongType { key, takes, given } => write!(f, "{key} takes {takes}, not {given}"),
            Wrong::OutOfRange { key, given, must } => write!(f, "{key} is {given} but must be {must}"),
            Wrong::Length { key, given: 1, must } => write!(f, "{key} has 1 element but must have {must}"),
            Wrong::Length { key, given, must } => write!(f, "{key} has {given} elements but must have {must}"),
            Wrong::UnknownWord { key, given, instead } => {
                write!(f, "{key} cannot be '{given}'")?;
                suggest(f, instead, "it can be")
            }
            Wrong::NoTask => {
                f.write_str("it does not say which task to run; add a line such as: task.name = \"synth1d\"")
            }
            Wrong::Other(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for ConfigError {}
