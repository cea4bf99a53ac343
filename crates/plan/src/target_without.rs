//! A target that does not ask for some of the rules of lowering, so that each can be switched off by name.

use crate::fuse::group::Group;
use crate::ir::dot_layout::{DotLayout, DotSize};
use crate::ir::node::{Kind, Node};
use crate::pipeline::Rule;
use crate::target::{Limits, Target};
use bilevel_graph::{ConvDims, Precision};

/// The rules of lowering that targets ask for and that can be switched off.
pub const RULES: [Rule; 5] = [
    Rule { name: "mask-recompute", ensures: "comparisons with constants are computed again for each reader" },
    Rule { name: "bf16-storage", ensures: "operands and results of products in bf16 take two bytes" },
    Rule {
        name: "scaled-fp16",
        ensures: "long products in tf32 read fp16 operands, each array scaled by a power of two",
    },
    Rule { name: "pool-gradient", ensures: "the gradient of a pool with disjoint windows is a select, not a scatter" },
    Rule { name: "pad-sum", ensures: "a sum of paddings is one operation" },
];

/// A target without these rules.
pub(crate) struct TargetWithout<'a> {
    pub target: &'a dyn Target,
    pub off: &'a [&'static str],
}

impl TargetWithout<'_> {
    fn has(&self, rule: &str) -> bool {
        !self.off.contains(&rule)
    }
}

impl Target for TargetWithout<'_> {
    fn limits(&self) -> Limits {
        self.target.limits()
    }

    fn recomputes(&self, node: &Node) -> bool {
        self.has("mask-recompute") && self.target.recomputes(node)
    }

    fn fuses(&self, kind: &Kind) -> bool {
        self.target.fuses(kind)
    }

    fn has_native(&self, precision: Precision) -> bool {
        self.target.has_native(precision)
    }

    fn gemm_reads_bf16(&self) -> bool {
        self.has("bf16-storage") && self.target.gemm_reads_bf16()
    }

    fn conv_reads_bf16(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        self.has("bf16-storage") && self.target.conv_reads_bf16(dims, image, kernel)
    }

    fn scales_to_f16(&self, product: &DotLayout) -> bool {
        self.has("scaled-fp16") && self.target.scales_to_f16(product)
    }

    fn wants_one_stride(&self, product: &DotSize) -> bool {
        self.target.wants_one_stride(product)
    }

    fn pool_grad_as_select(&self) -> bool {
        self.has("pool-gradient") && self.target.pool_grad_as_select()
    }

    fn fuses_pad_sum(&self) -> bool {
        self.has("pad-sum") && self.target.fuses_pad_sum()
    }

    fn fuses_gather(&self) -> bool {
        self.target.fuses_gather()
    }

    fn wants_epilogue(&self, product: &Node, pass: &Group) -> bool {
        self.target.wants_epilogue(product, pass)
    }

    fn fuses_gemm_gemm(&self, nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
        self.target.fuses_gemm_gemm(nodes, product, pass, next)
    }
}
