//! What planning must know of the machine a program is planned for.

use crate::fuse::group::Group;
use crate::ir::dot_layout::{DotLayout, DotSize};
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use bilevel_graph::{ConvDims, Precision};

/// A machine as planning sees it. The defaults of the methods suit any machine.
pub trait Target {
    /// The sizes it can work with.
    fn limits(&self) -> Limits;

    /// True where an operation is computed again for each of its readers, because that costs less than keeping its result in
    /// memory. Asked for elementwise operations only. By default those are comparisons with a constant: the mask of a
    /// rectifier would otherwise be kept from the forward pass to the backward one.
    fn recomputes(&self, node: &Node) -> bool {
        let comparison = matches!(node.kind, Kind::Elementwise(Elementwise::Binary(op)) if op.is_comparison());
        comparison && node.operands.iter().any(|operand| matches!(operand, Operand::Constant(_)))
    }

    /// True where an operation can be part of a fused loop; one that cannot is a group of its own. By default elementwise
    /// operations, reductions and what is fetched can.
    fn fuses(&self, kind: &Kind) -> bool {
        matches!(kind, Kind::Elementwise(_) | Kind::Reduce(..) | Kind::Largest | Kind::ArgMax | Kind::Fetch { .. })
    }

    /// True where products and convolutions of this precision, other than `Full`, are the machine's own: it rounds
    /// their operands itself, as it reads them or in copies that it makes. By default none are: planning has the
    /// operands rounded in loops ([`Elementwise::Round`]), once for all products that read them, and the products are
    /// of full precision.
    fn multiplies(&self, precision: Precision) -> bool {
        let _ = precision;
        false
    }

    /// True where matrix products in `Bf16` read operands of two bytes: planning has them written so ([`Node::narrow`]), once for
    /// all products that read them, in the loops that compute them. The results of such products have two bytes then, too. By
    /// default they do not.
    fn narrows(&self) -> bool {
        false
    }

    /// The same for a convolution in `Bf16` of an image and a kernel of these shapes. By default none does.
    fn narrows_convolution(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        let _ = (dims, image, kernel);
        false
    }

    /// True where a product in `Tf32`, of operands that lie so, is faster of operands in halves: numbers of 16 bits with as many digits, of
    /// which planning has each array brought into their range by a power of two of its own ([`Elementwise::Halve`]). By default none is.
    fn halves(&self, product: &DotLayout) -> bool {
        let _ = product;
        false
    }

    /// True where products of this size want all matrices of a batch at one distance from each other. Planning has operands that do
    /// not lie so copied into order, once for all products that read them so. By default they do not.
    fn wants_one_stride(&self, product: &DotSize) -> bool {
        let _ = product;
        false
    }

    /// True where the derivative of a pool whose windows do not overlap is a choice for each place of the image, computed in whatever
    /// loop reads it, and not a scatter. By default it is not.
    fn chooses(&self) -> bool {
        false
    }

    /// True where a sum of paddings is one operation ([`Kind::Overlay`]). By default it is not, and each is written among zeros.
    fn overlays(&self) -> bool {
        false
    }

    /// True where loops fetch the short rows that they read of a gather ([`Kind::Fetch`]). By default they do not, and the gather writes
    /// them.
    fn fetches(&self) -> bool {
        false
    }

    /// True where a loop that reads this matrix product should be one group with it ([`Group::product`]). By default none
    /// should.
    fn continues(&self, product: &Node, pass: &Group) -> bool {
        let _ = (product, pass);
        false
    }

    /// True where a matrix product, a loop over its rows and the product `next` of the rows of that loop should be one group
    /// ([`Group::next`]); the products by their number among the nodes. By default they should not.
    fn strips(&self, nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
        let _ = (nodes, product, pass, next);
        false
    }
}

/// Sizes a machine can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest row that a loop can hold while it reduces it and goes over it once more: what a first cache, or a block of
    /// threads, has room for.
    pub row: usize,
    /// Most operations merged into one loop.
    pub members: usize,
    /// Loops over at most this many elements are merged even when unrelated, because starting one is what they cost.
    pub together: usize,
    /// Loops over at most this many elements, and as many, are merged in the end where nothing must happen between them: the update of every
    /// bias of a network, for instance. At least [`together`](Self::together).
    pub gathered: usize,
    /// In loops over at most this many elements, every member is complete before the next begins, so that a draw can
    /// read a key computed in the same loop. 0 where members advance element by element.
    pub in_turn: usize,
    /// Most axes of a view, neighbours that one stride serves counted as one.
    pub axes: usize,
    /// Places in memory are multiples of this many bytes.
    pub alignment: usize,
    /// For this many groups after its last reader, the place of a value is not given to another one: groups that do not
    /// depend on each other can then run side by side. Where the most memory is needed, it may be fewer. 0 where groups run in turn.
    pub slack: usize,
    /// What has at most this many bytes shares its place with nothing else, so that nobody ever waits for it to be free. 0 where groups run in
    /// turn.
    pub apart: usize,
    /// The parts of a concatenation are computed where they belong in it, where that is possible: there is nothing left to do for it then,
    /// which an executor has to see for itself.
    pub joins: bool,
    /// Loops compute again, from fewer values, results of at least this many bytes that an earlier loop would have to leave for them
    /// in memory. `None` where a loop is limited by what it computes: keeping results is faster then.
    pub again: Option<usize>,
}

/// A machine that asks for nothing beyond the defaults: what examples, tests and the interpreter plan for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainTarget;

impl Target for PlainTarget {
    fn limits(&self) -> Limits {
        LIMITS
    }
}

/// Those of [`PlainTarget`].
pub(crate) const LIMITS: Limits = Limits {
    row: 1024,
    members: 96,
    together: 0,
    gathered: 0,
    in_turn: 0,
    axes: 8,
    alignment: 64,
    slack: 0,
    apart: 0,
    joins: false,
    again: None,
};
