//! The words that a setting can be, from serde's own list of the variants of its type.

use serde::de::value::MapDeserializer;
use serde::de::{Deserialize, Error};
use std::fmt;

/// No variant has this name.
const NO_WORD: &str = "?";

/// Serde's answer to [`NO_WORD`]: the known variants, or nothing if any string would do.
#[derive(Debug)]
struct Expected(&'static [&'static str]);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Expected {}

impl Error for Expected {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Expected(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Expected(expected)
    }
}

/// The words that this setting of `T` can be; none if it is not an enum. A `T` that is told apart by its name is given it.
///
/// ```
/// use bilevel_run::words_of_setting;
/// assert_eq!(words_of_setting::<bilevel::methods::Hoag>(None, "fall"), ["quadratic", "cubic", "exponential"]);
/// assert!(words_of_setting::<bilevel::methods::Hoag>(None, "step").is_empty());
/// ```
pub fn words_of_setting<'de, T: Deserialize<'de>>(name: Option<&'de str>, key: &'de str) -> &'static [&'static str] {
    let table = name.map(|name| ("name", name)).into_iter().chain([(key, NO_WORD)]);
    match T::deserialize(MapDeserializer::new(table)) {
        Err(Expected(words)) => words,
        Ok(_) => &[],
    }
}
