//! The backend of NVIDIA GPUs: kernels in CUDA C++, cuBLASLt and cuDNN.

use crate::codegen::cuda_cpp::CudaCpp;
use crate::codegen::gemm::fused_attention::fused_attention;
use crate::compile::step::{Call, GemmMath, Work};
use crate::conv::cudnn::Dnn;
use crate::conv::lower::conv;
use crate::gemm::lower::{affine_dot, dot};
use bilevel_gpu::codegen::naive_gemm::{AffineStore, Start};
use bilevel_gpu::codegen::renderer::Dialect;
use bilevel_gpu::codegen::{Context, Launch};
use bilevel_gpu::compile::backend::Backend;
use bilevel_gpu::compile::lower_group::operand;
use bilevel_gpu::compile::workspace::Workspace;
use bilevel_graph::{DType, Precision, Result};
use bilevel_plan::{AffineEpilogue, DotLayout, Group, Kind, Operand, StorageType, internal_error};

/// Matrix products by cuBLASLt, and convolutions by cuDNN if given.
pub(crate) struct CudaBackend<'a> {
    /// cuDNN.
    pub dnn: Option<&'a Dnn>,
}

/// Returns the element type in which the operands of a product are multiplied.
fn math(context: &Context, node: usize, precision: Precision) -> GemmMath {
    let node = &context.schedule.nodes[node];
    let stored = |operand: &Operand| operand.at().map(|(read, _)| context.schedule.nodes[read].storage);
    match (node.dtype, precision) {
        _ if node.operands.iter().all(|operand| stored(operand) == Some(StorageType::F16)) => GemmMath::F16,
        (DType::F64, _) => GemmMath::F64,
        (_, Precision::Full) => GemmMath::F32,
        (_, Precision::Tf32) => GemmMath::TF32,
        (_, Precision::Bf16) => GemmMath::BF16,
    }
}

/// Returns the strides of a product, the type of its factors, and its operands and result.
fn gemm<'a>(context: &Context<'a>, id: usize) -> Result<(&'a DotLayout, GemmMath, (Start, Start, Start))> {
    let node = &context.schedule.nodes[id];
    let Kind::Dot(layout, precision) = &node.kind else { return Err(internal_error("a matrix product")) };
    let ((a, a_storage), (b, b_storage)) = (operand(context, id, 0)?, operand(context, id, 1)?);
    let starts = (
        (a.place, a.view.offset, a_storage),
        (b.place, b.view.offset, b_storage),
        (context.place(id)?, 0, context.storage(id)),
    );
    Ok((layout, math(context, id, *precision), starts))
}

impl Backend for CudaBackend<'_> {
    type Call = Call;

    fn dialect(&self) -> Dialect {
        &CudaCpp
    }

    fn gemm(&self, context: Context, id: usize, space: &mut Workspace) -> Result<Vec<Work>> {
        let (layout, math, starts) = gemm(&context, id)?;
        Ok(dot(layout, context.schedule.nodes[id].dtype, math, starts, space))
    }

    fn affine_gemm(
        &self,
        context: Context,
        id: usize,
        form: &AffineEpilogue,
        space: &mut Workspace,
    ) -> Result<Option<Vec<Work>>> {
        let ((layout, math, starts), affine) = (gemm(&context, id)?, AffineStore::new(&context, form)?);
        let mark = space.mark();
        let works = affine_dot(layout, context.schedule.nodes[id].dtype, math, starts, affine, space);
        if works.is_none() {
            space.back_to(mark);
        }
        Ok(works)
    }

    fn convolution(&self, context: Context, id: usize, space: &mut Workspace) -> Result<Vec<Work>> {
        let node = &context.schedule.nodes[id];
        let Kind::Conv(dims, role, precision) = &node.kind else { return Err(internal_error("a convolution")) };
        let to = (&node.layout, context.place(id)?, context.storage(id));
        let operands = [operand(&context, id, 0)?, operand(&context, id, 1)?];
        Ok(conv((dims, *role), operands, (node.dtype, math(&context, id, *precision)), to, self.dnn, space))
    }

    fn fused_gemms(&self, context: Context, group: &Group) -> Result<Option<Launch>> {
        fused_attention(context, group)
    }
}
