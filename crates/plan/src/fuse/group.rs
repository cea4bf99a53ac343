//! Groups: what an executor runs in one go, either a fused loop or one larger operation.
//!
//! A loop runs over n elements in row-major order. Where it contains a reduction over trailing axes, the n elements are
//! rows of l, and its members are of three kinds: `Full` (n values), `Row` (n/l values, one per row: what a row reduction gives,
//! and what is computed from that), and `Sink` (a reduction over other axes, added up in memory and complete only after
//! the loop). So a softmax, a layer norm or a cross entropy, forward or backward, is one pass over memory.

use crate::ir::node::{Elementwise, Kind, Node, Operand};
use crate::ir::view::{Run, View};
use crate::target::Limits;

/// What a member of a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One value for each element of the loop.
    Full,
    /// One value for each row of the loop. A reduction with this role reads full values, row by row; anything else with it
    /// reads row values.
    Row,
    /// A reduction into memory, complete only after the loop.
    Reduction {
        /// It reads full values; else row values.
        full: bool,
    },
}

/// One loop, or one operation of another kind.
#[derive(Clone, Debug)]
pub struct Group {
    /// Numbers of its nodes, each after those it reads.
    pub members: Vec<usize>,
    /// What a loop runs over; `None` for a single operation, the only member.
    pub domain: Option<Domain>,
    /// The matrix product that a loop continues with: its first member, with the role [`Role::Full`]. The others see
    /// each element of its result as it lies in memory, and nobody in the group reads it in another way. An executor
    /// may apply the loop to every part of the result that is complete, or run it after the product.
    pub gemm: Option<usize>,
    /// The matrix product that a loop over rows ends in, where it begins with one ([`gemm`](Self::gemm)): its last member. The rows of
    /// its left operand are those of a [`Role::Full`] member, one after the other. An executor keeps both at hand: neither the first
    /// product nor that member is in memory where nobody outside the group reads it. Only where
    /// [`Target::fuses_gemm_gemm`](crate::Target::fuses_gemm_gemm) says so.
    pub second_gemm: Option<usize>,
    /// The same in every step of the program's loop.
    pub invariant: bool,
}

/// What a loop runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Number of elements.
    pub n: usize,
    /// Elements in a row, where the loop has row values.
    pub row: Option<usize>,
}

/// How a member of a loop gets an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The value the same loop holds for the same element (or row).
    Register,
    /// The row's value, which the same loop holds, repeated along the row.
    Repeat,
    /// From memory, or a constant.
    Memory,
}

/// The groups of a program, and to which of them each node belongs as what.
#[derive(Clone)]
pub(crate) struct Grouping {
    pub groups: Vec<Group>,
    pub group_of: Vec<Option<usize>>,
    pub role: Vec<Option<Role>>,
    pub limits: Limits,
}

impl Grouping {
    /// How node `id`, as a member of `group` with this role, reads an operand; `None` where it would have to wait for the
    /// whole loop.
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
        // What is fetched may be anywhere.
        if nodes[id].gathers_from() == Some(*node) {
            return None;
        }
        // A draw reads its key and counter whole, for its first element already.
        let draws = matches!(nodes[id].kind, Kind::Elementwise(Elementwise::Random(..)));
        if draws && domain.n > self.limits.sequential_max {
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

    /// True where this loop reads the node's memory only element by element, in the order it runs, so that it can write the
    /// element it has just read.
    pub fn reads_in_step(&self, nodes: &[Node], group: usize, node: usize) -> bool {
        let Some(domain) = self.groups[group].domain else { return false };
        let product = self.groups[group].gemm;
        if product.is_some_and(|product| nodes[product].reads().any(|(read, _)| read == node)) {
            return false;
        }
        self.groups[group].members.iter().filter(|&&id| Some(id) != product).all(|&id| {
            // A draw reads its key whole, and what is fetched may be anywhere.
            let draws = matches!(nodes[id].kind, Kind::Elementwise(Elementwise::Random(..)));
            let out_of_order = draws || nodes[id].gathers_from() == Some(node);
            nodes[id].reads().filter(|(read, _)| *read == node).all(|(read, view)| {
                let full = matches!(self.role[id], Some(Role::Full | Role::Reduction { full: true }));
                !out_of_order && full && domain.n == view.count() && nodes[read].is_whole(view)
            })
        })
    }
}

/// True where the view repeats each of `rows` dense values `length` times.
pub fn repeats_rows(view: &View, rows: usize, length: usize) -> bool {
    let (dense, repeat) = (Run { length: rows, stride: 1 }, Run { length, stride: 0 });
    view.offset == 0
        && match view.runs()[..] {
            [first, second] => first == dense && second == repeat,
            [only] => rows == 1 && only == repeat,
            _ => false,
        }
}
