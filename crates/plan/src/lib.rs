//! Plans a program for an executor: lowering, fusion, scheduling and memory, for any machine that a small [`Target`]
//! describes.
//!
//! 1. *Lowering* turns data movement into [`View`]s, gives every operand as a view of a node's memory, and brings
//!    matrix products into one form, [`DotLayout`].
//! 2. *Fusion* puts elementwise operations and reductions into [`Group`]s, each one loop; any other operation is a
//!    separate group. A [`Role`] is the part of a member in its loop, an [`Access`] how it reads an operand. A loop can
//!    be the epilogue of a matrix product ([`Group::gemm`]) and be followed by a second one ([`Group::second_gemm`]).
//! 3. *Scheduling* orders the groups, loop-invariant ones first, and decides which carried inputs are updated in
//!    place. The result is a [`Schedule`]. [`PASSES`] lists the passes in order, with their contracts; the result of
//!    each, a [`Snapshot`], can be printed and is verified.
//! 4. *Memory*: given the workspace of each group, [`Schedule::lay_out`] assigns an address to every value, a
//!    [`MemoryMap`].
//!
//! An [`Interpreter`] runs a schedule with its memory map, for any target and on any machine. The conformance suite
//! runs by it, so that rules which only a GPU enables are tested without one.
//!
//! ```
//! use bilevel_graph::{DType, Graph, Program};
//! use bilevel_plan::{Kind, Schedule, Target};
//!
//! let g = Graph::new();
//! let (x, w) = (g.input("x", [32, 100], DType::F32), g.input("w", [100, 10], DType::F32));
//! let loss = x.matmul(w).tanh().square().sum_all();
//! let program = Program::builder(&g).output("loss", loss).build().unwrap();
//!
//! let schedule = Schedule::new(&program, &Target::PLAIN).unwrap();
//! let [product, pass] = schedule.groups() else { panic!("a product and one loop") };
//! assert!(matches!(schedule.nodes[product.members[0]].kind, Kind::Dot(..)));
//! assert_eq!(pass.domain.unwrap().n, 320);
//!
//! // Neither group needs a workspace. Only the product is in the arena: the values of the loop stay in registers.
//! let map = schedule.lay_out(&[0, 0]).unwrap();
//! assert_eq!(map.arena_bytes, 320 * 4);
//! ```

#![warn(clippy::too_many_lines)]

mod cost_model;
mod fuse;
mod internal_error;
mod ir;
mod lower;
mod memory;
mod pipeline;
mod program;
mod schedule;
mod target;

pub use crate::cost_model::CostModel;
pub use crate::fuse::affine_epilogue::AffineEpilogue;
pub use crate::fuse::group::{Access, Domain, Group, Role, repeats_rows};
pub use crate::internal_error::{expect, internal_error};
pub use crate::ir::dot_layout::{DotLayout, DotSize};
pub use crate::ir::index_dims::IndexDims;
pub use crate::ir::interpret::Interpreter;
pub use crate::ir::interpret::overlap::Overlap;
pub use crate::ir::lowered::LoweredProgram;
pub use crate::ir::node::{CastForm, Elementwise, Kind, Node, Operand, Padding};
pub use crate::ir::snapshot::Snapshot;
pub use crate::ir::storage_type::StorageType;
pub use crate::ir::view::{Run, View};
pub use crate::lower::carried_casts::InitialCast;
pub use crate::lower::scaled_fp16::scale::{Pow2Scale, ScaleTerm};
pub use crate::pipeline::{PASSES, Pass, Pipeline, Rule};
pub use crate::schedule::in_place::Carry;
pub use crate::schedule::index_checks::IndexCheck;
pub use memory::rotating_copies::RotatingCopies;
pub use memory::{MemoryMap, Place, Region};
pub use schedule::Schedule;
pub use target::{Capabilities, EpilogueRule, GemmGemmRule, RULES, Target};
