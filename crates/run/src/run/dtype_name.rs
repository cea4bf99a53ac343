//! A floating-point type as its name, for configurations and files: `#[serde(with = "bilevel_run::run::dtype_name")]`.

use bilevel::DType;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes the name.
pub fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *dtype == DType::F32 { "f32" } else { "f64" })
}

/// Reads the name.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "f32" => Ok(DType::F32),
        "f64" => Ok(DType::F64),
        other => Err(de::Error::custom(format!("'{other}' is not a floating-point type; use f32 or f64"))),
    }
}
