//! What can go wrong above the engine.

use std::fmt;

/// Why a problem, a method or a run was refused, or why it stopped.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// From the engine: a shape, a type, an index, a missing input.
    Graph(bilevel_graph::Error),
    /// A setting outside its range.
    Setting {
        /// Name of the setting, as written in code.
        name: &'static str,
        /// The value given.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// A method that cannot work on this problem.
    NotApplicable {
        /// Name of the method.
        method: &'static str,
        /// Why, and what to use instead.
        reason: String,
    },
    /// No method has this name.
    UnknownMethod {
        /// The name given.
        name: String,
    },
    /// No measure of the problem has this name.
    UnknownMeasure {
        /// The name given.
        name: String,
        /// Those there are, the losses among them.
        known: Vec<String>,
    },
    /// A problem described in a way that cannot be.
    Problem {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A number stopped being finite, or grew beyond reason.
    Diverged {
        /// What was seen, and where.
        seen: String,
        /// The likely cause, which knows what to change.
        cause: crate::Cause,
    },
    /// A stream that did not give the batch of a step.
    Stream {
        /// Name of the stream.
        name: String,
        /// The step whose batch it is.
        step: u32,
        /// What went wrong.
        reason: String,
    },
    /// A checkpoint that cannot be read or written.
    Checkpoint(crate::CheckpointError),
    /// A λ or θ that cannot be saved or loaded.
    TreeFile(crate::TreeFileError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Graph(error) => error.fmt(f),
            Error::Setting { name, value, must } => write!(f, "{name} is {value} but must be {must}"),
            Error::NotApplicable { method, reason } => write!(f, "{method} does not apply: {reason}"),
            Error::UnknownMethod { name } => {
                let known = || crate::methods().iter().map(|m| m.name);
                match crate::nearest(name, known()) {
                    Some(near) => write!(f, "there is no method '{name}'; did you mean {near}?"),
                    None => {
                        let all = known().collect::<Vec<_>>().join(", ");
                        write!(f, "there is no method '{name}'; the methods are {all}")
                    }
                }
            }
            Error::UnknownMeasure { name, known } => match crate::nearest(name, known.iter().map(String::as_str)) {
                Some(near) => write!(f, "the problem has no measure '{name}'; did you mean '{near}'?"),
                None => {
                    let known = known.join("', '");
                    write!(
                        f,
                        "the problem has no measure '{name}'; a run can follow '{known}', or one added with .measure(…)"
                    )
                }
            },
            Error::Problem { reason } => f.write_str(reason),
            Error::Diverged { seen, cause } => write!(f, "diverged: {seen}; {}", cause.advice()),
            Error::Stream { name, step, reason } => {
                write!(f, "the stream '{name}' did not provide the batch of step {step}: {reason}")
            }
            Error::Checkpoint(error) => error.fmt(f),
            Error::TreeFile(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Graph(error) => Some(error),
            Error::Checkpoint(error) => Some(error),
            Error::TreeFile(error) => Some(error),
            _ => None,
        }
    }
}

impl From<bilevel_graph::Error> for Error {
    fn from(error: bilevel_graph::Error) -> Self {
        Error::Graph(error)
    }
}

impl From<crate::CheckpointError> for Error {
    fn from(error: crate::CheckpointError) -> Self {
        Error::Checkpoint(error)
    }
}

impl From<crate::TreeFileError> for Error {
    fn from(error: crate::TreeFileError) -> Self {
        Error::TreeFile(error)
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// `Ok` where `holds`, else an error that names the setting.
pub(crate) fn require(holds: bool, name: &'static str, value: f64, must: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Setting { name, value, must }) }
}
