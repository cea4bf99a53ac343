//! Backends: the libraries of a GPU, for operations without generated kernels.

use crate::codegen::renderer::Dialect;
use crate::codegen::{Context, Launch};
use crate::compile::step::{LibraryCall, Work};
use crate::compile::workspace::Workspace;
use bilevel_graph::Result;
use bilevel_plan::{AffineEpilogue, Group, internal_error};

/// The language and the libraries of a GPU.
pub trait Backend {
    /// A call of one of its libraries.
    type Call: LibraryCall;

    /// Returns the language of its kernels.
    fn dialect(&self) -> Dialect;

    /// Returns the work of a matrix product that is a separate group.
    fn gemm(&self, context: Context, node: usize, space: &mut Workspace) -> Result<Vec<Work<Self::Call>>>;

    /// Returns the work of a product that stores its result after an affine map; `None` if neither a library nor a kernel
    /// can: then the product is computed first, and its epilogue as a loop.
    fn affine_gemm(
        &self,
        _: Context,
        _product: usize,
        _: &AffineEpilogue,
        _: &mut Workspace,
    ) -> Result<Option<Vec<Work<Self::Call>>>> {
        Ok(None)
    }

    /// Returns the work of a convolution.
    fn convolution(&self, context: Context, node: usize, space: &mut Workspace) -> Result<Vec<Work<Self::Call>>>;

    /// Returns the kernel of a loop between two products; `None` if none of its results is wanted. Needed only if the
    /// target fuses such products.
    fn fused_gemms(&self, _: Context, _: &Group) -> Result<Option<Launch>> {
        Err(internal_error("a kernel for two products and the loop between them"))
    }
}
