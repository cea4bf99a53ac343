//! The GPU executor: whether it is right, and how fast it is beside JAX.

pub mod check;
pub mod deep;
pub mod profile;
pub mod time;

use crate::error::Result;
use bilevel_cuda::Cuda;

/// The first GPU, and a line that says which it is.
pub fn open() -> Result<Cuda> {
    let cuda = Cuda::new(0)?;
    let info = cuda.info();
    eprintln!("on {} (sm_{}, {:.0} GiB)", info.name, info.architecture, info.total_bytes as f64 / f64::from(1 << 30));
    Ok(cuda)
}
