//! The tests of this crate as one program, so that they are linked once.

mod approximations;
mod batches;
mod buffers;
mod chains;
mod check;
mod checkpoint;
mod combinations;
mod curvature_products;
mod data;
mod diagnostics;
mod driver;
mod evidence;
mod growth;
mod held_out;
mod ill_conditioned;
mod implicit;
mod inner_optimizers;
mod large;
mod measures;
mod oracle;
mod own_problem;
mod penalties;
mod precision;
mod quadratic;
mod reported_losses;
mod routine;
mod silence;
mod single_loop;
mod stopping;
mod streams;
mod synthetic;
mod temperature;
mod traced;
mod training;
mod tree_files;
mod typed;
mod unrolled;
mod windows;
mod with;

#[path = "../../examples/kill_target.rs"]
mod kill_target;
