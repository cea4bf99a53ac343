//! Estimates the memory of a program on a GPU without one.

use crate::compile::plan::plan;
use bilevel_gpu::compile::plan::PlannedBytes;
use bilevel_graph::{Program, Result};

/// The memory a program would be planned to take on a GPU, with convolutions by kernels of our own. No GPU is needed.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program};
/// let g = Graph::new();
/// let x = g.input("x", [1000], DType::F32);
/// let program = Program::builder(&g).output("y", x.tanh()).build()?;
/// let planned = bilevel_cuda::planned_bytes(&program)?;
/// assert_eq!((planned.bound, planned.kept, planned.arena), (2 * 4096, 0, 0));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn planned_bytes(program: &Program) -> Result<PlannedBytes> {
    program.validate()?;
    Ok(plan(program, None, true)?.bytes())
}
