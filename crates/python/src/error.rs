//! Errors of the library as exceptions: the sentence is the same, and the class gives the kind.

use bilevel::graph::ErrorKind;
use pyo3::prelude::*;

/// The name of the class in `bilevel.errors`.
fn class(error: &bilevel::Error) -> &'static str {
    use bilevel::Error;
    match error {
        Error::Graph(error) => graph_class(&error.kind),
        Error::Setting { .. } | Error::Conflict { .. } | Error::InnerLoop { .. } | Error::Unknown { .. } => {
            "SettingError"
        }
        Error::NotApplicable { .. } => "NotApplicableError",
        Error::Precision { .. } => "SettingError",
        Error::Shape { .. } | Error::Structure { .. } | Error::LeafCount { .. } | Error::Type { .. } => "ShapeError",
        Error::Data { .. } | Error::MissingData { .. } | Error::NotFinite { .. } => "DataError",
        Error::Stream { .. } => "StreamError",
        Error::Variable { .. }
        | Error::Loss { .. }
        | Error::NamedTwice { .. }
        | Error::MissingLoss { .. }
        | Error::TooMany { .. } => "ProblemError",
        Error::Diverged { .. } => "DivergenceError",
        Error::Checkpoint(_) | Error::TreeFile(_) | Error::ForeignState { .. } => "CheckpointError",
        _ => "Error",
    }
}

fn graph_class(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Operation { .. } | ErrorKind::WrongValue { .. } | ErrorKind::WrongLength { .. } => "ShapeError",
        ErrorKind::NoMemory { .. } | ErrorKind::OutOfMemory { .. } => "OutOfMemoryError",
        ErrorKind::IndexOutOfRange { .. } | ErrorKind::NotALabel { .. } => "DataError",
        ErrorKind::Unsupported { .. } => "UnsupportedError",
        ErrorKind::Device { .. } => "DeviceError",
        _ => "Error",
    }
}

/// An exception of `bilevel.errors`.
fn raised(class: &str, sentence: String) -> PyErr {
    Python::attach(|py| {
        let made = py.import("bilevel.errors").and_then(|errors| errors.getattr(class)?.call1((&sentence,)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// The exception for an error of the library.
pub fn of(error: bilevel::Error) -> PyErr {
    raised(class(&error), error.to_string())
}

/// The exception for an error of the engine.
pub fn of_graph(error: bilevel::graph::Error) -> PyErr {
    raised(graph_class(&error.kind), error.to_string())
}

/// A `SettingError` with this sentence.
pub fn setting(sentence: impl std::fmt::Display) -> PyErr {
    raised("SettingError", sentence.to_string())
}

/// An `Error` with this sentence.
pub fn other(sentence: impl std::fmt::Display) -> PyErr {
    raised("Error", sentence.to_string())
}
