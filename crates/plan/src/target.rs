//! A machine for planning: its capabilities and costs.

use crate::cost_model::CostModel;
use crate::fuse::group::Group;
use crate::ir::dot_layout::DotSize;
use crate::ir::node::Node;
use crate::pipeline::Rule;
use bilevel_graph::ConvDims;

/// A machine: its capabilities and its costs.
///
/// ```
/// use bilevel_plan::Target;
/// let target = Target::PLAIN.with(|target| target.can.inline_gather = true);
/// assert!(target.can.inline_gather && target.costs == Target::PLAIN.costs);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its capabilities.
    pub can: Capabilities,
    /// Its costs.
    pub costs: CostModel,
}

/// True if a loop that reads this matrix product should become its epilogue ([`Group::gemm`]).
pub type EpilogueRule = fn(product: &Node, pass: &Group) -> bool;

/// True if a matrix product, a loop over its rows and the product `next` of those rows can be one kernel
/// ([`Group::second_gemm`]). The products are given by their node numbers.
pub type GemmGemmRule = fn(nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool;

/// The forms and sizes that a machine's kernels and libraries accept, whatever they cost.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// The longest row that a loop can reduce and then read again without going through memory: the capacity of the
    /// first-level cache, or of the registers of a thread block.
    pub row: usize,
    /// The maximum number of operations in one loop.
    pub members: usize,
    /// In loops over at most this many elements, each member is complete before the next begins, so a random draw can
    /// read a key of the same loop. 0 if members advance element by element.
    pub sequential_max: usize,
    /// The maximum rank of a view after merging axes that share a stride.
    pub axes: usize,
    /// The alignment of every buffer, in bytes.
    pub alignment: usize,
    /// Whether products and convolutions in reduced precision round their operands natively. Otherwise planning inserts
    /// casts ([`Elementwise::Round`](crate::Elementwise::Round)), shared by all products that read a value, and the
    /// products are of full precision.
    pub rounds_operands: bool,
    /// Whether matrix products in `Bf16` read and write two bytes per element. Planning then has their operands stored so
    /// ([`Node::storage`]), once for all readers, by the loops that compute them. Such a machine also rounds natively:
    /// [`rounds_operands`](Self::rounds_operands) holds.
    pub gemm_reads_bf16: bool,
    /// Whether convolutions in `Tf32` and `Bf16` are fastest on images with channels last, `[n, h, w, c]`.
    pub channels_last: bool,
    /// Ungrouped convolutions in `Bf16` read and write two bytes per element if their channels are multiples of this. Only
    /// if [`rounds_operands`](Self::rounds_operands) holds; on a machine with [`channels_last`](Self::channels_last), only
    /// in programs whose images have that layout.
    pub conv_bf16_channels: Option<usize>,
    /// Whether the gradient of a max pool with disjoint windows is an elementwise select in the loop that reads it
    /// instead of a scatter.
    pub pool_grad_as_select: bool,
    /// Whether a sum of padded values is one operation ([`Kind::PadSum`](crate::Kind::PadSum)).
    pub pad_sum: bool,
    /// Whether loops gather short rows themselves ([`Kind::InlineGather`](crate::Kind::InlineGather)).
    pub inline_gather: bool,
    /// Whether the parts of a concatenation are computed directly in its buffer if possible. Executors skip such a
    /// concatenation.
    pub concat_in_place: bool,
    /// For which sizes products need a single stride from matrix to matrix of a batch. Planning then copies other
    /// operands into that layout, once for all readers.
    pub one_batch_stride: Option<fn(&DotSize) -> bool>,
    /// Which loops become epilogues.
    pub epilogue: Option<EpilogueRule>,
    /// Which products a library, or a kernel, stores after an affine map ([`Group::affine`]).
    pub affine_epilogue: Option<fn(product: &Node) -> bool>,
    /// Which products become one kernel with the loop between them.
    pub gemm_gemm: Option<GemmGemmRule>,
}

impl Target {
    /// A machine without special capabilities, the target of examples, tests and the interpreter.
    pub const PLAIN: Target = Target {
        can: Capabilities {
            row: 1024,
            members: 96,
            sequential_max: 0,
            axes: 8,
            alignment: 64,
            rounds_operands: false,
            gemm_reads_bf16: false,
            channels_last: false,
            conv_bf16_channels: None,
            pool_grad_as_select: false,
            pad_sum: false,
            inline_gather: false,
            concat_in_place: false,
            one_batch_stride: None,
            epilogue: None,
            affine_epilogue: None,
            gemm_gemm: None,
        },
        costs: CostModel::PLAIN,
    };

    /// Returns the same machine with a change.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Returns the same machine without the rules of these names.
    pub(crate) fn without(self, off: &[&str]) -> Self {
        self.with(|target| {
            RULES.iter().filter(|rule| off.contains(&rule.name)).for_each(|rule| (rule.switch_off)(target))
        })
    }
}

impl Capabilities {
    /// Returns true if a convolution in `Bf16` of these shapes reads and writes two bytes per element: its result has
    /// whole vectors of channels, and its image has whole vectors of channels or, as in wgrad and in the first layer of
    /// a network, of images.
    pub(crate) fn conv_reads_bf16(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        let Some(lanes) = self.conv_bf16_channels.filter(|_| dims.groups == 1) else { return false };
        let whole = |channels: usize| channels.is_multiple_of(lanes);
        whole(kernel[0]) && (whole(kernel[1]) || whole(image[0]))
    }
}

/// The rules of lowering and of memory that targets ask for and that can be switched off.
pub const RULES: [Rule; 6] = [
    Rule {
        name: "mask-recompute",
        ensures: "comparisons with constants are computed again for each reader",
        switch_off: |target| target.costs.recomputes_masks = false,
    },
    Rule {
        name: "bf16-storage",
        ensures: "operands and results of products in bf16 take two bytes",
        switch_off: |target| (target.can.gemm_reads_bf16, target.can.conv_bf16_channels) = (false, None),
    },
    Rule {
        name: "scaled-fp16",
        ensures: "long products in tf32 read fp16 operands, each array scaled by a power of two",
        switch_off: |target| target.costs.min_scaled_side = None,
    },
    Rule {
        name: "pad-sum",
        ensures: "a sum of paddings is one operation",
        switch_off: |target| target.can.pad_sum = false,
    },
    Rule {
        name: "concat-in-place",
        ensures: "in memory, the parts of a concatenation are computed directly in its buffer",
        switch_off: |target| target.can.concat_in_place = false,
    },
    Rule {
        name: "reuse-distance",
        ensures: "in memory, a place is not reused by the next groups, and small values keep theirs",
        switch_off: |target| (target.costs.reuse_distance, target.costs.no_alias_bytes) = (0, 0),
    },
];
