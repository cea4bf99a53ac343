//! The native module of the Python package: tensors to trace with, problems from traced functions, and runs without the GIL.
//!
//! Only the parts that Python cannot do are here; names, trees, frameworks and checks are in `python/bilevel`.

mod array;
mod catalogue;
#[cfg(feature = "command")]
mod command;
#[cfg(not(feature = "command"))]
#[path = "no_command.rs"]
mod command;
mod error;
mod estimate;
mod function;
mod generalisation;
mod interrupt;
mod problem;
mod run;
mod stream;
mod tracer;

use pyo3::prelude::*;

#[pymodule]
fn _bilevel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<tracer::Tracer>()?;
    module.add_class::<tracer::Tensor>()?;
    module.add_class::<function::Function>()?;
    module.add_class::<problem::Problem>()?;
    module.add_class::<estimate::Estimator>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<generalisation::Shrunk>()?;
    module.add_function(wrap_pyfunction!(catalogue::methods, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::optimizers, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::check_method, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::inner_loop, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::plot, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::pictures, module)?)?;
    module.add_function(wrap_pyfunction!(command::digits, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::split_rows, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::rows, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::row_losses, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::baselines, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::folded, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::on_all_rows, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::shrunk, module)?)?;
    module.add_function(wrap_pyfunction!(generalisation::starts, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(command::join_ranks, module)?)?;
    module.add_function(wrap_pyfunction!(command::leave_ranks, module)?)?;
    Ok(())
}
