//! Products and convolutions: planned before memory is laid out, because their plans determine the workspace.

use crate::compile::step::Typed;
use crate::conv::{ConvPlan, ConvSpec};
use crate::gemm::{BatchAxis, GemmPlan, GemmSpec, Pieces, Strides};
use bilevel_graph::{ConvDims, DType, Precision, Result};
use bilevel_plan::{DotLayout, Kind, Node, expect, internal_error};

/// A planned product or convolution.
pub(crate) enum Heavy {
    Gemm(Typed<GemmPlan<f32>, GemmPlan<f64>>),
    Conv(Typed<ConvPlan<f32>, ConvPlan<f64>>),
}

impl Heavy {
    /// The plan of a product or convolution; `None` for anything else.
    pub fn new(node: &Node) -> Result<Option<Self>> {
        let no_kernel = || internal_error("the kernel of a product of integers").at(node.location);
        Ok(match &node.kind {
            Kind::Dot(layout, Precision::Full) => {
                let spec = gemm_spec(layout);
                Some(Heavy::Gemm(match node.dtype {
                    DType::F64 => Typed::F64(GemmPlan::new(&spec)),
                    DType::F32 => Typed::F32(GemmPlan::new(&spec)),
                    DType::I32 => return Err(no_kernel()),
                }))
            }
            Kind::Conv(dims, _, Precision::Full) => {
                let spec = expect(conv_spec(node, dims), "the four axes of a convolution", node.location)?;
                Some(Heavy::Conv(match node.dtype {
                    DType::F64 => Typed::F64(ConvPlan::new(&spec)),
                    DType::F32 => Typed::F32(ConvPlan::new(&spec)),
                    DType::I32 => return Err(no_kernel()),
                }))
            }
            // Operands are rounded before, since the CPU has no products that round.
            Kind::Dot(..) | Kind::Conv(..) => {
                return Err(internal_error("operands that are rounded already").at(node.location));
            }
            _ => None,
        })
    }

    /// The pieces of a product that a loop can continue with, as [`GemmPlan::pieces`].
    pub fn pieces(&self) -> Option<Pieces> {
        match self {
            Heavy::Gemm(Typed::F32(plan)) => plan.pieces(),
            Heavy::Gemm(Typed::F64(plan)) => plan.pieces(),
            Heavy::Conv(_) => None,
        }
    }

    /// Bytes of workspace with a team of this size.
    pub fn workspace_bytes(&self, threads: usize) -> usize {
        match self {
            Heavy::Gemm(Typed::F32(plan)) => plan.workspace_bytes(threads),
            Heavy::Gemm(Typed::F64(plan)) => plan.workspace_bytes(threads),
            Heavy::Conv(Typed::F32(plan)) => plan.workspace_bytes(threads),
            Heavy::Conv(Typed::F64(plan)) => plan.workspace_bytes(threads),
        }
    }
}

fn gemm_spec(layout: &DotLayout) -> GemmSpec {
    let strides = |(row, col): (isize, isize)| Strides { row, col };
    GemmSpec {
        m: layout.m,
        n: layout.n,
        k: layout.k,
        a: strides(layout.a),
        b: strides(layout.b),
        c: strides(layout.c),
        batch: layout.batch.iter().map(|&(len, [a, b, c])| BatchAxis { len, a, b, c }).collect(),
        accumulate: false,
    }
}

fn conv_spec(node: &Node, dims: &ConvDims) -> Option<ConvSpec> {
    let (image, kernel) = (node.operands[0].at()?.1, node.operands[1].at()?.1);
    Some(ConvSpec {
        dims: dims.clone(),
        image: image.shape.clone().try_into().ok()?,
        kernel: kernel.shape.clone().try_into().ok()?,
        out: node.shape.clone().try_into().ok()?,
        image_strides: image.strides.clone().try_into().ok()?,
        kernel_strides: kernel.strides.clone().try_into().ok()?,
        out_strides: node.layout.strides.clone().try_into().ok()?,
    })
}
