//! Functions of the host as primitives: user code computes them, and their derivatives are such functions again.

use crate::ir::graph::make;
use crate::ir::op::Op;
use crate::{Error, ErrorKind, Line, Meta, Tensor};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pure function of tensors that user code computes: the same operands give the same result, to the bit.
///
/// ```
/// use bilevel_graph::{DType, Executor, Graph, HostCall, HostFunction, Meta, Program, Reference, Tensor, gradient};
/// /// The sum of cubes, written by hand.
/// struct Cubes;
/// impl HostFunction for Cubes {
///     fn name(&self) -> &str {
///         "cubes"
///     }
///     fn result(&self, operands: &[&Meta]) -> Result<Meta, String> {
///         Ok(Meta { dtype: operands[0].dtype, shape: vec![] })
///     }
///     fn evaluate(&self, operands: &[&[f64]], result: &mut [f64]) -> Result<(), String> {
///         result[0] = operands[0].iter().map(|x| x.powi(3)).sum();
///         Ok(())
///     }
///     fn pullback(&self, operands: &[Tensor], cotangent: Tensor, _which: usize) -> Result<Option<Tensor>, String> {
///         Ok(Some(cotangent * 3.0 * operands[0].square()))
///     }
/// }
/// let g = Graph::new();
/// let x = g.input("x", [2], DType::F64);
/// let y = HostCall::new(Cubes).of(&[x]);
/// let slope = gradient(y, &[x])?[0].unwrap();
/// let found = Reference::evaluate(&g, &[(x, bilevel_graph::Array::from_f64([2], vec![1.0, 2.0])?)], &[y, slope])?;
/// assert_eq!((found[0].to_f64(), found[1].to_f64()), (vec![9.0], vec![3.0, 12.0]));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub trait HostFunction: Send + Sync {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// The type and shape of the result, or the reason why the operands do not fit.
    fn result(&self, operands: &[&Meta]) -> Result<Meta, String>;

    /// Computes the result from the row-major elements of the operands. An error ends the run.
    fn evaluate(&self, operands: &[&[f64]], result: &mut [f64]) -> Result<(), String>;

    /// The cotangent of operand `which`, given that of the result; `None` if the result does not depend on it. The
    /// error explains the missing derivative.
    fn pullback(&self, operands: &[Tensor], cotangent: Tensor, which: usize) -> Result<Option<Tensor>, String>;
}

/// A [`HostFunction`] that can be called in any number of graphs. Two are equal if one is a clone of the other.
///
/// The executors of the CPU call it between two operations, on the thread that runs the program; those of GPUs refuse it.
#[derive(Clone)]
pub struct HostCall {
    /// Counts the functions, so that their order is that of their creation.
    number: u64,
    function: Arc<dyn HostFunction>,
}

impl HostCall {
    /// A call of this function.
    pub fn new(function: impl HostFunction + 'static) -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        HostCall { number: CREATED.fetch_add(1, Ordering::Relaxed), function: Arc::new(function) }
    }

    /// The function.
    pub fn function(&self) -> &dyn HostFunction {
        &*self.function
    }

    /// Computes it for an executor. The line of user code is for errors.
    pub fn evaluate(&self, operands: &[&[f64]], result: &mut [f64], location: Line) -> crate::Result<()> {
        self.function.evaluate(operands, result).map_err(|reason| {
            let name = self.function.name().to_string();
            Error::new(ErrorKind::HostFunction { name, reason }).at(location)
        })
    }

    /// Its value of these operands, at least one. All must belong to one graph.
    #[track_caller]
    pub fn of(&self, operands: &[Tensor]) -> Tensor {
        make(operands[0].graph_id(), self.function.name(), Op::Host(self.clone()), operands, None)
    }
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostCall({})", self.function.name())
    }
}

/// Compares and hashes values by their `number`.
macro_rules! by_number {
    ($t:ident) => {
        impl PartialEq for $t {
            fn eq(&self, other: &Self) -> bool {
                self.number == other.number
            }
        }

        impl Eq for $t {}

        impl std::hash::Hash for $t {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.number.hash(state);
            }
        }

        impl PartialOrd for $t {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $t {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.number.cmp(&other.number)
            }
        }
    };
}
pub(crate) use by_number;

by_number!(HostCall);
