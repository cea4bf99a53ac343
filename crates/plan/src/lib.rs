//! Planning: from a program to what an executor runs. This crate decides everything that executors share, and knows no
//! machine beyond a small [`Target`]:
//!
//! 1. *Lowering* turns operations that only move elements into [`View`]s, gives every operand as a view of some node's memory,
//!    and brings matrix products into one form, [`DotLayout`].
//! 2. *Fusion* puts elementwise operations and their reductions into [`Group`]s, each one loop; anything else is a group of its
//!    own. A [`Role`] says what a member is to its loop, an [`Access`] how it gets an operand. A loop can continue with
//!    the result of a product in one group with it ([`Group::product`]), and end in another ([`Group::next`]).
//! 3. *Order*: the groups are numbered as they run, those that are the same in every step of the program's loop first, and
//!    carried inputs are updated in place where everybody who reads the old value can run before. That is a [`Schedule`].
//!    The passes that make it are listed in order, with their contracts, in [`PASSES`]; a [`LoweredProgram`] can be printed and
//!    verified after each of them.
//! 4. *Memory*: an executor says how many bytes of workspace each group needs, and [`Schedule::lay_out`] gives everything its
//!    place, a [`MemoryMap`].
//!
//! An [`Interpreter`] runs a schedule with its memory map for any target, slowly and on any machine: the conformance suite by it tests
//! whatever only a GPU asks for.
//!
//! ```
//! use bilevel_graph::{DType, Graph, Program};
//! use bilevel_plan::{Kind, PlainTarget, Schedule};
//!
//! let g = Graph::new();
//! let (x, w) = (g.input("x", [32, 100], DType::F32), g.input("w", [100, 10], DType::F32));
//! let loss = x.matmul(w).tanh().square().sum_all();
//! let program = Program::builder(&g).output("loss", loss).build().unwrap();
//!
//! let schedule = Schedule::new(&program, &PlainTarget).unwrap();
//! let [product, pass] = schedule.groups() else { panic!("a product, and one loop for all the rest") };
//! assert!(matches!(schedule.nodes[product.members[0]].kind, Kind::Dot(..)));
//! assert_eq!(pass.domain.unwrap().n, 320);
//!
//! // Neither group asks for a workspace. Only the product is in the arena: the loop keeps what it makes of it to itself.
//! let map = schedule.lay_out(&[0, 0]).unwrap();
//! assert_eq!(map.arena_bytes, 320 * 4);
//! ```

mod fuse;
mod internal_error;
mod ir;
mod lower;
mod memory;
mod pipeline;
mod program;
mod schedule;
mod target;
mod target_without;

pub use crate::fuse::group::{Access, Domain, Group, Role, repeats_rows};
pub use crate::internal_error::{known, lacks};
pub use crate::ir::dot_layout::{DotLayout, DotSize};
pub use crate::ir::index_dims::Rows;
pub use crate::ir::interpret::Interpreter;
pub use crate::ir::lowered::LoweredProgram;
pub use crate::ir::node::{Elementwise, Form, Frame, Kind, Node, Operand};
pub use crate::ir::view::{Run, View};
pub use crate::lower::carried_casts::Seed;
pub use crate::lower::scaled_fp16::scale::{Power, PowerTerm};
pub use crate::pipeline::{PASSES, Pass, Pipeline, Rule};
pub use crate::program::channels_last::channels_last;
pub use crate::schedule::in_place::Carry;
pub use crate::schedule::index_checks::IndexCheck;
pub use memory::{MemoryMap, Place, Region};
pub use schedule::Schedule;
pub use target::{Limits, PlainTarget, Target};
pub use target_without::RULES;
