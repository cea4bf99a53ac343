//! Errors above the engine.

mod setting_value;
mod shared;

pub use setting_value::SettingValue;
pub use shared::{IoError, OtherError};

use bilevel_graph::{DType, Precision, TreeError};
use std::fmt;

/// The reason why a problem, a method or a run was refused, or why it stopped.
///
/// Variants have typed fields if a caller can act on them; each prints as a sentence with the remedy.
///
/// ```
/// use bilevel::{Error, Leaf, Problem, Variable};
/// let zero = || Leaf(Variable::constant([], 0.0));
/// let refused = Problem::builder(zero(), zero()).inner(|_, l, t| (t.0 - l.0).square()).build().err();
/// assert_eq!(refused, Some(Error::MissingLoss { level: "outer" }));
/// assert_eq!(refused.unwrap().to_string(), "the problem has no outer loss; add one with .outer(…)");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An error of the engine: a shape, a type, an index, a missing input.
    Graph(bilevel_graph::Error),
    /// A setting outside its range.
    Setting {
        /// Name of the setting, as written in code.
        name: &'static str,
        /// The value given.
        value: SettingValue,
        /// The condition that it must meet.
        must: &'static str,
    },
    /// Options that exclude each other.
    Conflict {
        /// The settings, and which of them to leave out.
        reason: String,
    },
    /// A setting of the inner loop that a method cannot use.
    InnerLoop {
        /// Name of the method.
        method: &'static str,
        /// Name of the setting.
        setting: &'static str,
        /// The reason and the remedy.
        reason: &'static str,
    },
    /// A method that cannot work on this problem.
    NotApplicable {
        /// Name of the method.
        method: &'static str,
        /// The reason, and the method to use instead.
        reason: String,
    },
    /// Nothing of this kind has this name.
    Unknown {
        /// The kind: `method`, `measure`, `data set`, …
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A problem without one of its losses.
    MissingLoss {
        /// `inner` or `outer`.
        level: &'static str,
    },
    /// Data that are not there.
    MissingData {
        /// The data, and the loss that uses them.
        reason: String,
        /// How to get them, or the setting that gives their place.
        remedy: String,
    },
    /// Data that cannot be used.
    Data {
        /// Their kind: a data set, a stream, a class.
        what: String,
        /// The mistake in them, and its correction.
        reason: String,
    },
    /// Two parts of a problem with the same name.
    NamedTwice {
        /// The kind of the items.
        what: String,
    },
    /// A type that a problem cannot have.
    Type {
        /// The type given.
        dtype: DType,
    },
    /// A precision that a problem of this type cannot have.
    Precision {
        /// The precision given.
        precision: Precision,
        /// The problem's type.
        dtype: DType,
    },
    /// A variable that is declared in a way that cannot be.
    Variable {
        /// The leaf, such as `λ.weight`.
        leaf: String,
        /// The mistake in it, and its correction.
        reason: String,
    },
    /// A loss, a start or a measure with an operation that it may not have.
    Loss {
        /// The operation, and its replacement.
        reason: String,
    },
    /// An array or tensor of the wrong shape.
    Shape {
        /// The kind of the value.
        what: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it must have; none is that of a single number.
        expected: Vec<usize>,
    },
    /// A tree without the structure that is expected of it.
    Structure {
        /// The tree: `λ` or `θ`.
        what: &'static str,
        /// The difference.
        error: TreeError,
    },
    /// A list of leaves of the wrong length.
    LeafCount {
        /// The tree or group that they are for.
        what: String,
        /// How many were given.
        found: usize,
        /// How many it has.
        expected: usize,
    },
    /// A number that is not finite, or not in the problem's type.
    NotFinite {
        /// The array that contains it.
        what: String,
        /// The number.
        value: f64,
        /// Its index by axis.
        index: Vec<usize>,
        /// The type it was to have.
        dtype: DType,
    },
    /// An inner loss without a finite second derivative at this θ.
    UndefinedCurvature,
    /// More parts than there are random numbers for.
    TooMany {
        /// The parts.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there can be.
        most: usize,
    },
    /// A state that another method or number of chains left.
    ForeignState {
        /// The mismatch, and the right starting point.
        reason: String,
    },
    /// A user's method or optimizer that breaks the contract of its trait.
    Contract {
        /// Its behaviour, and the required one.
        reason: String,
    },
    /// A compiled program that is used in a way it cannot be.
    Program {
        /// The mistake, and its correction.
        reason: String,
    },
    /// A check without a reference to compare with.
    NoReference {
        /// The reason why there is none.
        reason: String,
    },
    /// A number stopped being finite, or grew beyond reason.
    Diverged {
        /// The observation and its place.
        seen: String,
        /// The likely cause, with its remedy.
        cause: crate::diagnostics::Cause,
    },
    /// A stream that did not give the batch of a step.
    Stream {
        /// Name of the stream.
        name: String,
        /// The step whose batch it is.
        step: u32,
        /// The reason.
        reason: String,
    },
    /// A checkpoint that cannot be read or written.
    Checkpoint(crate::checkpoints::CheckpointError),
    /// A λ or θ that cannot be saved or loaded.
    TreeFile(crate::files::TreeFileError),
    /// Any other error, of a user's own code or of another library: see [`Error::other`].
    Other(OtherError),
}

impl Error {
    /// Wraps any error, or a message. [`source`](std::error::Error::source) gives it back.
    ///
    /// ```
    /// use bilevel::Error;
    /// use std::error::Error as _;
    /// let error = Error::other("42x".parse::<u32>().unwrap_err());
    /// assert_eq!(error.to_string(), "invalid digit found in string");
    /// assert!(error.source().unwrap().is::<std::num::ParseIntError>());
    /// assert_eq!(Error::other("the simulator stopped").to_string(), "the simulator stopped");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(OtherError::new(error))
    }

    /// The error for a name that nothing of this kind has.
    ///
    /// ```
    /// let error = bilevel::Error::unknown("task", "digit-l2", ["digits-l2", "synth1d"]);
    /// assert_eq!(error.to_string(), "there is no task 'digit-l2'; did you mean digits-l2?");
    /// ```
    pub fn unknown<'a>(kind: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Error::Unknown { kind, name: name.into(), known: known.into_iter().map(String::from).collect() }
    }

    /// The error for a setting outside its range.
    pub fn setting(name: &'static str, value: impl Into<SettingValue>, must: &'static str) -> Self {
        Error::Setting { name, value: value.into(), must }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Graph(error) => error.fmt(f),
            Error::Setting { name, value, must } => write!(f, "{name} is {value} but must be {must}"),
            Error::InnerLoop { method, setting, reason } => {
                write!(f, "{method} cannot use the {setting} of the inner loop: {reason}")
            }
            Error::NotApplicable { method, reason } => write!(f, "{method} does not apply: {reason}"),
            Error::Unknown { kind, name, known } => write_unknown(f, kind, name, known),
            Error::MissingLoss { level } => write!(f, "the problem has no {level} loss; add one with .{level}(…)"),
            Error::MissingData { reason, remedy } => write!(f, "{reason}; {remedy}"),
            Error::Data { what, reason } => write!(f, "{what} {reason}"),
            Error::NamedTwice { what } => write!(f, "{what}; give each its own name"),
            Error::Type { dtype } => write!(f, "a problem must use f32 or f64, not {dtype}"),
            Error::Precision { precision, dtype } => write!(
                f,
                "operands of products can be rounded to {precision} only in f32, but this problem uses {dtype}; choose \
                 f32 or full precision"
            ),
            Error::Variable { leaf, reason } => write!(f, "{leaf} {reason}"),
            Error::Shape { what, found, expected } if expected.is_empty() => {
                write!(f, "{what} must be one number, but has the shape {found:?}")
            }
            Error::Shape { what, found, expected } => {
                write!(f, "{what} has the shape {found:?} and must have {expected:?}")
            }
            Error::Structure { what, error } => write!(f, "this {what} does not match the problem's: {error}"),
            Error::LeafCount { what, found, expected } => {
                write!(f, "{found} leaves were given for {what}, which has {expected}")
            }
            Error::NotFinite { what, value, index, dtype } => {
                write!(f, "{what} holds ")?;
                match value.is_finite() {
                    true => write!(f, "{value:e}{}, more than {dtype} can hold; scale it first", ElementIndex(index)),
                    false => write!(f, "{value}{}; clean it first", ElementIndex(index)),
                }
            }
            Error::UndefinedCurvature => f.write_str(
                "the inner loss has no finite second derivative here; look for a root, logarithm or division at 0",
            ),
            Error::TooMany { what, found, most } => {
                write!(f, "the problem has {found} {what}; random numbers are available for at most {most}")
            }
            Error::Conflict { reason }
            | Error::Loss { reason }
            | Error::ForeignState { reason }
            | Error::Contract { reason }
            | Error::Program { reason }
            | Error::NoReference { reason } => f.write_str(reason),
            Error::Diverged { seen, cause } => write!(f, "diverged: {seen}; {}", cause.advice()),
            Error::Stream { name, step, reason } => {
                write!(f, "the stream '{name}' did not provide the batch of step {step}: {reason}")
            }
            Error::Checkpoint(error) => error.fmt(f),
            Error::TreeFile(error) => error.fmt(f),
            Error::Other(error) => error.fmt(f),
        }
    }
}

/// The position of an element: its row, and the whole index if there are more axes.
struct ElementIndex<'a>(&'a [usize]);

impl fmt::Display for ElementIndex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [row] => write!(f, " in row {row} (counted from 0)"),
            [row, ..] => write!(f, " in row {row}, at {:?} (counted from 0)", self.0),
        }
    }
}

fn write_unknown(f: &mut fmt::Formatter<'_>, kind: &str, name: &str, known: &[String]) -> fmt::Result {
    write!(f, "there is no {kind} '{name}'; ")?;
    if let Some(near) = crate::errors::nearest(name, known.iter().map(String::as_str)) {
        return write!(f, "did you mean {near}?");
    }
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    match (kind, known) {
        ("data set", []) => write!(f, "add it with .data(\"{name}\", array)"),
        ("class set", []) => write!(f, "add it with .classes(\"{name}\", …)"),
        (_, []) => write!(f, "there are no {plural}"),
        ("measure", known) => {
            write!(f, "a run can follow '{}', or one added with .measure(…)", known.join("', '"))
        }
        (_, known) => write!(f, "the {plural} are {}", known.join(", ")),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Graph(error) => Some(error),
            Error::Structure { error, .. } => Some(error),
            Error::Checkpoint(error) => Some(error),
            Error::TreeFile(error) => Some(error),
            Error::Other(error) => Some(error.get()),
            _ => None,
        }
    }
}

impl From<bilevel_graph::Error> for Error {
    fn from(error: bilevel_graph::Error) -> Self {
        Error::Graph(error)
    }
}

impl From<crate::checkpoints::CheckpointError> for Error {
    fn from(error: crate::checkpoints::CheckpointError) -> Self {
        Error::Checkpoint(error)
    }
}

impl From<crate::files::TreeFileError> for Error {
    fn from(error: crate::files::TreeFileError) -> Self {
        Error::TreeFile(error)
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns `Ok` if `holds`, otherwise an error that names the setting.
pub(crate) fn require(
    holds: bool,
    name: &'static str,
    value: impl Into<SettingValue>,
    must: &'static str,
) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::setting(name, value, must)) }
}
