//! A [`Precision`] as its name, for configurations and files: `#[serde(with = "bilevel::diagnostics::precision_name")]`.

use bilevel_graph::Precision;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes the name.
pub fn serialize<S: Serializer>(precision: &Precision, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(precision.name())
}

/// Reads the name.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}
