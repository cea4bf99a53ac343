//! The value of a refused setting, with the type it was given in.

use std::fmt;

/// The value of a setting: a number, a count, a truth or a word. It is displayed as it was given.
///
/// ```
/// use bilevel::errors::SettingValue;
/// assert_eq!(SettingValue::from(0.5).to_string(), "0.5");
/// assert_eq!(SettingValue::from(3_usize), SettingValue::Count(3));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SettingValue {
    /// A floating-point number.
    Number(f64),
    /// A whole number, at least 0.
    Count(u64),
    /// True or false.
    Truth(bool),
    /// A word.
    Word(String),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Number(number) => number.fmt(f),
            SettingValue::Count(count) => count.fmt(f),
            SettingValue::Truth(truth) => truth.fmt(f),
            SettingValue::Word(word) => word.fmt(f),
        }
    }
}

impl From<f64> for SettingValue {
    fn from(number: f64) -> Self {
        SettingValue::Number(number)
    }
}

impl From<u32> for SettingValue {
    fn from(count: u32) -> Self {
        SettingValue::Count(count.into())
    }
}

impl From<u64> for SettingValue {
    fn from(count: u64) -> Self {
        SettingValue::Count(count)
    }
}

impl From<usize> for SettingValue {
    fn from(count: usize) -> Self {
        SettingValue::Count(count as u64)
    }
}

impl From<bool> for SettingValue {
    fn from(truth: bool) -> Self {
        SettingValue::Truth(truth)
    }
}

impl From<&str> for SettingValue {
    fn from(word: &str) -> Self {
        SettingValue::Word(word.into())
    }
}
