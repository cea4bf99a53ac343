//! The contract of executors as test programs. They cover every primitive, every way to carry a value, convolutions,
//! parts of networks, and random programs of these, also with rounded products. They also cover all uses of buffers,
//! and everything that must be refused. The [`Reference`](crate::Reference) defines the right results.
//!
//! The author of an executor runs all of it in one test:
//!
//! ```
//! use bilevel_graph::{Reference, conformance};
//! // Your executor instead of the reference, and more seeds.
//! let failures = conformance::check_all(&Reference, 0..3)?;
//! assert!(failures.is_empty(), "{}", failures[0]);
//! # Ok::<(), bilevel_graph::Error>(())
//! ```
//!
//! A single [`Case`] can be inspected alone: its program prints, its inputs are plain arrays, and random ones follow
//! from the seed in their name. The bits of one executor must not depend on how often a program is run or on how its
//! steps are divided into calls. The `tolerances` limit the distance of each result from the reference.

mod agreement;
mod builder;
mod case;
mod domain;
pub(crate) mod failures;
pub(crate) mod rng;
pub(crate) mod suite;

pub use crate::conformance::rng::Dice;
pub use crate::conformance::suite::buffers::buffers;
pub use crate::conformance::suite::carries::carries;
pub use crate::conformance::suite::convolutions::convolutions;
pub use crate::conformance::suite::differentiable::{Differentiable, Size, random_program};
pub use crate::conformance::suite::long::long_products;
pub use crate::conformance::suite::networks::networks;
pub use crate::conformance::suite::precisions::rounded_products;
pub use crate::conformance::suite::primitives::primitives;
pub use crate::conformance::suite::refusals::refusals;
pub use crate::conformance::suite::varied::varied_program;
pub use agreement::{Failure, Mismatch, agree};
pub(crate) use builder::CaseBuilder;
pub use case::{Case, Inputs, outputs, results, set_all};

use crate::shape::broadcast_shapes;
use crate::{DType, Executor, Graph, Precision, Result, Tensor};
use std::ops::Range;

/// Runs all cases on an executor, with random programs from each of these seeds, and collects its failures. An error
/// means that a program could not be built, which is not the executor's fault.
pub fn check_all(executor: &dyn Executor, seeds: Range<u64>) -> Result<Vec<Failure>> {
    let mut failures = refusals(executor)?;
    failures.extend(buffers(executor)?);
    failures.extend(cases(seeds)?.iter().filter_map(|case| case.check(executor).err()));
    Ok(failures)
}

/// The cases that [`check_all`] compares with the [`Reference`](crate::Reference), random programs from each of these seeds.
///
/// ```
/// let cases = bilevel_graph::conformance::cases(0..1)?;
/// assert!(cases.len() > 250);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn cases(seeds: Range<u64>) -> Result<Vec<Case>> {
    let mut cases = vec![];
    for dtype in [DType::F64, DType::F32] {
        cases.extend(primitives(dtype)?);
        cases.extend(convolutions(dtype)?);
        cases.extend(networks(dtype)?);
        for (rows, columns) in [(2, 3), (5, 13), (40, 70)] {
            cases.extend(carries(rows, columns, dtype)?);
        }
        for seed in seeds.clone() {
            for graph in [Graph::new(), Graph::without_simplification()] {
                cases.push(random_program(seed, &graph, dtype, Size::small)?);
                cases.push(varied_program(seed, &graph, dtype, Size::small)?);
            }
            if seed % 16 == 0 {
                cases.push(random_program(seed, &Graph::new(), dtype, Size::large)?);
            }
        }
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        cases.extend(rounded_products(precision)?);
        for seed in seeds.clone() {
            let size = if seed % 16 == 0 { Size::large } else { Size::small };
            cases.push(random_program(seed, &Graph::new(), DType::F32, size)?.in_precision(precision)?);
            cases.push(varied_program(seed, &Graph::new(), DType::F32, Size::small)?.in_precision(precision)?);
        }
    }
    Ok(cases)
}

/// How far sums in another order and functions of another last bit may be from the reference, after derivatives have amplified
/// them.
fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-12 } else { 2e-5 }
}

/// Returns true if no axis is longer than this.
fn sized(x: Tensor, limit: usize) -> bool {
    x.shape().iter().all(|&n| n <= limit)
}

/// Returns true if two tensors can be combined to fewer than this many elements, without stretching both because one
/// lacks an axis.
fn fits(a: Tensor, b: Tensor, most: usize) -> bool {
    let (p, q) = (a.shape(), b.shape());
    broadcast_shapes(&p, &q)
        .is_some_and(|shape| shape.iter().product::<usize>() < most && (p.len() == q.len() || shape == p || shape == q))
}
