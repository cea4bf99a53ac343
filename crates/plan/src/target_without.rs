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

    fn multiplies(&self, precision: Precision) -> bool {
        self.target.multiplies(precision)
    }

    fn narrows(&self) -> bool {
        self.has("bf16-storage") && self.target.narrows()
    }

    fn narrows_convolution(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        self.has("bf16-storage") && self.target.narrows_convolution(dims, image, kernel)
    }

    fn halves(&self, product: &DotLayout) -> bool {
        self.has("scaled-fp16") && self.target.halves(product)
    }

    fn wants_one_stride(&self, product: &DotSize) -> bool {
        self.target.wants_one_stride(product)
    }

    fn chooses(&self) -> bool {
        self.has("pool-gradient") && self.target.chooses()
    }

    fn overlays(&self) -> bool {
        self.has("pad-sum") && self.target.overlays()
    }

    fn fetches(&self) -> bool {
        self.target.fetches()
    }

    fn continues(&self, product: &Node, pass: &Group) -> bool {
        self.target.continues(product, pass)
    }

    fn strips(&self, nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
        self.target.strips(nodes, product, pass, next)
    }
}
