//! Groups: the units that an executor runs, each a fused loop or a single operation.
//!
//! A loop runs over n elements in row-major order. If it contains a reduction over trailing axes, the n elements are
//! rows of length l, and its members have one of three roles: `Full` (n values), `Row` (n/l values, one per row) and
//! `Reduction` (over other axes, accumulated in memory and complete only after the loop). So a softmax, a layer norm or
//! a cross entropy, forward or backward, is one pass over memory.

use crate::fuse::affine_epilogue::AffineEpilogue;
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use crate::ir::view::{Run, View};
use crate::target::Target;

/// The role of a member of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One value per element of the loop.
    Full,
    /// One value per row of the loop. A reduction with this role reads full values; any other operation with it reads
    /// row values.
    Row,
    /// A reduction into memory, complete only after the loop.
    Reduction {
        /// Whether it reads full values; otherwise row values.
        full: bool,
    },
}

/// A fused loop or a single operation.
#[derive(Clone, Debug)]
pub struct Group {
    /// The nodes, each after its operands.
    pub members: Vec<usize>,
    /// The iteration space of a loop; `None` for a single operation.
    pub domain: Option<Domain>,
    /// The matrix product whose epilogue the loop is: the first member, with the role [`Role::Full`]. The other members
    /// read each element of its result as it is in memory, and in no other way. An executor may apply the loop to every
    /// finished tile, or run it after the product.
    pub gemm: Option<usize>,
    /// The loop after that product as an affine map of its result, if it is one and the target requests it. Then the
    /// product is not in memory unless another group reads it.
    pub affine: Option<AffineEpilogue>,
    /// The second matrix product of a GEMM–loop–GEMM group, its last member. The rows of its left operand are a
    /// [`Role::Full`] member. Neither the first product nor that member is in memory unless another group reads it.
    /// Only if [`Capabilities::gemm_gemm`](crate::Capabilities::gemm_gemm) says so.
    pub second_gemm: Option<usize>,
    /// Whether the group is loop-invariant.
    pub invariant: bool,
}

/// The iteration space of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Number of elements.
    pub n: usize,
    /// The length of a row, if the loop has row values.
    pub row: Option<usize>,
}

/// How a member of a loop reads an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From a register: the value of the same element (or row).
    Register,
    /// From a register: the value of the row, broadcast along it.
    Repeat,
    /// From memory, or a constant.
    Memory,
}

/// The groups of a program, with the group and role of each node.
#[derive(Clone)]
pub(crate) struct Grouping {
    pub groups: Vec<Group>,
    pub group_of: Vec<Option<usize>>,
    pub role: Vec<Option<Role>>,
    pub target: Target,
}

impl Grouping {
    /// Returns how node `id`, as a member of `group` with this role, reads an operand; `None` if it would have to wait
    /// for the whole loop.
    pub fn access(
        &self,
        nodes: &[Node],
        (group, domain): (usize, Domain),
        (id, role): (usize, Role),
        operand: &Operand,
    ) -> Option<Access> {
        let Operand::At { node, view } = operand else { return Some(Access::Memory) };
        if self.group_of[*node] != Some(group) {
            return Some(Access::Memory);
        }
        // A gather may read any element.
        if nodes[id].gathers_from() == Some(*node) {
            return None;
        }
        // A random draw reads its whole key and counter for its first element.
        let draws = matches!(nodes[id].kind, Kind::Elementwise(Elementwise::Random(..)));
        if draws && domain.n > self.target.can.sequential_max {
            return None;
        }
        // A row reduction gives a row value but reads full ones.
        let reduction = matches!(nodes[id].kind, Kind::Reduce(..) | Kind::ArgMax);
        let wants_full =
            matches!(role, Role::Full | Role::Reduction { full: true }) || (reduction && role == Role::Row);
        match self.role[*node]? {
            Role::Reduction { .. } => None,
            Role::Full => (wants_full && nodes[*node].is_whole(view)).then_some(Access::Register),
            Role::Row if wants_full => {
                let row = domain.row?;
                repeats_rows(view, domain.n / row, row).then_some(Access::Repeat)
            }
            Role::Row => nodes[*node].is_whole(view).then_some(Access::Register),
        }
    }

    /// Returns true if this loop reads the node's memory only element by element, in loop order, so that it can
    /// overwrite each element after reading it.
    pub fn reads_in_step(&self, nodes: &[Node], group: usize, node: usize) -> bool {
        let Some(domain) = self.groups[group].domain else { return false };
        let product = self.groups[group].gemm;
        if product.is_some_and(|product| nodes[product].reads().any(|(read, _)| read == node)) {
            return false;
        }
        self.groups[group].members.iter().filter(|&&id| Some(id) != product).all(|&id| {
            // A random draw reads its whole key, and a gather may read any element.
            let draws = matches!(nodes[id].kind, Kind::Elementwise(Elementwise::Random(..)));
            let out_of_order = draws || nodes[id].gathers_from() == Some(node);
            nodes[id].reads().filter(|(read, _)| *read == node).all(|(read, view)| {
                let full = matches!(self.role[id], Some(Role::Full | Role::Reduction { full: true }));
                !out_of_order && full && domain.n == view.count() && nodes[read].is_whole(view)
            })
        })
    }
}

/// Returns true if the view repeats each of `rows` dense values `length` times.
pub fn repeats_rows(view: &View, rows: usize, length: usize) -> bool {
    let (dense, repeat) = (Run { length: rows, stride: 1 }, Run { length, stride: 0 });
    view.offset == 0
        && match view.runs()[..] {
            [first, second] => first == dense && second == repeat,
            [only] => rows == 1 && only == repeat,
            _ => false,
        }
}
