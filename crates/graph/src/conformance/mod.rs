//! What an executor must do, as programs it can be run on: every primitive, every way to carry a value, convolutions, parts of networks, random
//! programs of all of them, the same with products that round their operands, everything that is done with buffers, and everything it must
//! refuse. The [`Reference`](crate::Reference) says what is right.
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
//! A single [`Case`] can be looked at by itself: its program prints, its inputs are plain arrays, and random ones are made
//! again from the seed in their name. The bits of one executor must not depend on how often a program is run or on how its
//! steps are cut into calls; beyond that, `tolerances` says how near to the reference each result must be.

mod agreement;
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
pub use case::{Case, Inputs, outputs, results, set_all};

use crate::shape::broadcast_shapes;
use crate::{DType, Executor, Graph, Precision, Result, Tensor};
use std::ops::Range;

/// Runs everything there is on an executor, random programs from each of these seeds, and gathers what it does wrong. The
/// error is that of a program that could not be built, which is not the executor's fault.
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

/// True where no axis is longer than this.
fn sized(x: Tensor, limit: usize) -> bool {
    x.shape().iter().all(|&n| n <= limit)
}

/// True where two tensors can be combined to fewer than this many elements, and not by stretching both because one
/// lacks an axis.
fn fits(a: Tensor, b: Tensor, most: usize) -> bool {
    let (p, q) = (a.shape(), b.shape());
    broadcast_shapes(&p, &q)
        .is_some_and(|shape| shape.iter().product::<usize>() < most && (p.len() == q.len() || shape == p || shape == q))
}
