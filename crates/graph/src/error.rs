//! Errors of the engine, each with a remedy.

use crate::DType;
use crate::Line;
use std::fmt;

/// Why an operation, a program or a run was refused. It names the operation, the shapes or types it met, and the line
/// of user code that made the operation, if any.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// let g = Graph::new();
/// let a = g.input("a", [2, 3], DType::F32);
/// let b = g.input("b", [4, 5], DType::F32);
/// let error = a.matmul(b).check().unwrap_err().to_string();
/// assert!(error.starts_with("matmul: "), "{error}");
/// assert!(error.contains("[2, 3]") && error.contains("[4, 5]"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The line of user code that made the operation, if there is one.
    pub location: Option<Line>,
}

/// The kinds of [`Error`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Operands whose shapes or types do not fit the operation, or an argument it cannot take.
    Operation {
        /// Name of the operation, as the user wrote it.
        operation: String,
        /// Type and shape of each operand.
        operands: Vec<(DType, Vec<usize>)>,
        /// The mistake, and its correction.
        reason: String,
    },
    /// Tensors of two different graphs met, or a tensor outlived its graph.
    ForeignTensor {
        /// Name of the operation.
        operation: String,
    },
    /// A program has no input, output or carry of this name.
    UnknownName {
        /// The requested name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Two inputs or two outputs were given one name.
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A run was started before this input was set.
    MissingInput {
        /// Its name.
        name: String,
    },
    /// An output was read before any step was run.
    NotRun {
        /// Name of the output.
        name: String,
    },
    /// A value does not have the shape or type its input or output was declared with.
    WrongValue {
        /// Name of the input or output.
        name: String,
        /// Declared type and shape.
        expected: (DType, Vec<usize>),
        /// Given type and shape.
        found: (DType, Vec<usize>),
    },
    /// The number of elements does not fill the shape.
    WrongLength {
        /// The requested shape.
        shape: Vec<usize>,
        /// Elements given.
        found: usize,
    },
    /// A stretch of bytes that goes beyond the end of a buffer.
    BeyondBuffer {
        /// The first requested byte.
        first: usize,
        /// The byte after the last requested one.
        end: usize,
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// There is no memory for an array.
    NoMemory {
        /// Its shape.
        shape: Vec<usize>,
        /// The type of its elements.
        dtype: DType,
    },
    /// A step number that the step input, an i32, cannot hold.
    StepTooLarge {
        /// The largest requested step number.
        step: u32,
    },
    /// An index outside its axis met at run time.
    IndexOutOfRange {
        /// The operation.
        operation: String,
        /// The index.
        index: i64,
        /// Valid indices are 0..limit.
        limit: usize,
    },
    /// A label that is not a whole number of the classes.
    NotALabel {
        /// Position in the array.
        position: usize,
        /// The value found.
        value: f64,
        /// Number of classes.
        classes: usize,
    },
    /// A buffer of another executor was given.
    ForeignBuffer {
        /// The input or output that it was given for.
        name: String,
    },
    /// A buffer that a program writes was bound to a second input or output.
    BoundTwice {
        /// The name that it was to be bound to.
        name: String,
        /// The name that it is bound to already.
        other: String,
    },
    /// A buffer was accessed while a run was using it.
    BufferBusy,
    /// A buffer was to be written whose memory belongs to somebody else.
    ReadOnlyBuffer,
    /// A buffer was read that a failed run should have filled.
    RunFailed,
    /// Memory that is not there.
    OutOfMemory {
        /// The requested bytes.
        needed: u64,
        /// Free bytes, if known.
        free: Option<u64>,
    },
    /// A program whose parts do not fit together, met before it is planned.
    InvalidProgram {
        /// The first part that does not fit.
        reason: String,
    },
    /// An executor could not plan a valid program: a mistake of the executor, met before anything ran.
    Planning {
        /// The part that it could not plan.
        reason: String,
    },
    /// An executor has no kernel for this.
    Unsupported {
        /// The unsupported operation.
        what: String,
    },
    /// A device, or a library that goes with it, is missing or failed.
    Device {
        /// The missing or failed part, and the remedy.
        what: String,
    },
    /// Ranks that compute one program cannot go on together.
    Ranks {
        /// The failure, its rank, and the remedy.
        what: String,
    },
    /// A function of the host failed.
    HostFunction {
        /// Its name.
        name: String,
        /// Its message.
        reason: String,
    },
    /// An array that another library's array type cannot represent.
    NotConvertible {
        /// Its type and shape.
        found: (DType, Vec<usize>),
        /// The other type.
        wanted: String,
    },
    /// The run was stopped before its loop was done.
    Stopped,
}

impl Error {
    /// An error without a line of user code.
    pub fn new(kind: ErrorKind) -> Self {
        Error { kind, location: None }
    }

    /// Adds the line of user code.
    pub fn at(mut self, location: Line) -> Self {
        self.location = Some(location);
        self
    }
}

/// The operands of an operation, as its error lists them.
fn described(operands: &[(DType, Vec<usize>)]) -> String {
    let listed: Vec<String> = operands.iter().map(|(dtype, shape)| format!("{dtype}{shape:?}")).collect();
    if listed.is_empty() { String::new() } else { format!("; the operands are {}", listed.join(" and ")) }
}

/// The sentence of an error, without the line of user code.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation { operation, operands, reason } => {
                write!(f, "{operation}: {reason}{}", described(operands))
            }
            Self::ForeignTensor { operation } => write!(
                f,
                "{operation}: a tensor belongs to another graph, or to one that was dropped; build all tensors of one \
                 loss from one Graph and keep it alive until the program is built"
            ),
            Self::UnknownName { name, known } => {
                write!(f, "there is nothing named '{name}'; the names are: {}", known.join(", "))
            }
            Self::DuplicateName { name } => write!(f, "the name '{name}' is taken; give each its own"),
            Self::MissingInput { name } => write!(f, "input '{name}' was never set; set it before the run"),
            Self::NotRun { name } => write!(f, "output '{name}' has no value before the first run"),
            Self::WrongValue { name, expected, found } => {
                write!(f, "'{name}' is declared {}{:?} but was given {}{:?}", expected.0, expected.1, found.0, found.1)
            }
            Self::WrongLength { shape, found } => write!(
                f,
                "shape {shape:?} holds {} elements but {found} were given",
                crate::shape::element_count(shape)
            ),
            Self::BeyondBuffer { first, end, bytes } => {
                write!(f, "bytes {first} to {end} were asked for of a buffer that has {bytes}")
            }
            Self::Device { what } | Self::Ranks { what } => f.write_str(what),
            Self::HostFunction { name, reason } => write!(f, "{name} failed: {reason}"),
            Self::NotConvertible { found, wanted } => write!(f, "{}{:?} is not a {wanted}", found.0, found.1),
            Self::NoMemory { shape, dtype } => {
                write!(f, "there is no memory for {dtype}{shape:?}; check the shape, or work on smaller parts")
            }
            Self::StepTooLarge { step } => write!(
                f,
                "the program reads its step number, which is an i32 and cannot be {step}; run steps below 2147483648, \
                 or start counting from 0 again"
            ),
            Self::IndexOutOfRange { operation, index, limit } => {
                write!(f, "{operation}: index {index} is not in 0..{limit}; check the labels or indices given")
            }
            Self::NotALabel { position, value, classes } => write!(
                f,
                "label {value} at position {position} is not one of the whole numbers 0..{classes}; clean the labels first"
            ),
            Self::ForeignBuffer { name } => write!(
                f,
                "the buffer for '{name}' belongs to another executor; make it with the executor that compiled the program"
            ),
            Self::BoundTwice { name, other } => write!(
                f,
                "the buffer for '{name}' is bound to '{other}' already, and the program writes one of them; give each its own"
            ),
            Self::BufferBusy => {
                f.write_str("a buffer is in use by another run; wait for that run, or give each run its own buffers")
            }
            Self::ReadOnlyBuffer => f.write_str(
                "the memory of this buffer belongs to somebody else and is only read; write a duplicate of it",
            ),
            Self::RunFailed => f.write_str("the run that should have filled this buffer failed; run it again first"),
            Self::OutOfMemory { needed, free } => out_of_memory(f, *needed, *free),
            Self::InvalidProgram { reason } => {
                write!(f, "the program does not fit together: {reason}; Program::builder makes programs that do")
            }
            Self::Planning { reason } => write!(
                f,
                "the program could not be planned: {reason}; this is a bug in the executor; please report it with the \
                 program's text form"
            ),
            Self::Unsupported { what } => write!(f, "not supported: {what}"),
            Self::Stopped => f.write_str("stopped from outside before the loop was done"),
        }
    }
}

fn out_of_memory(f: &mut fmt::Formatter<'_>, needed: u64, free: Option<u64>) -> fmt::Result {
    write!(f, "{needed} bytes of memory are needed")?;
    match free {
        Some(free) => write!(f, " and {free} are free; use smaller batches or fewer parameters"),
        None => f.write_str(", more than there are in total; use smaller batches or fewer parameters"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)?;
        match self.location {
            Some(line) => write!(f, " (at {line})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
