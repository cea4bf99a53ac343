//! How fast the sensitivities of an inner loop grow, and so whether there is a hypergradient at all.
//!
//! A derivative through training is a sum of products of A = ∂θᵗ⁺¹/∂θᵗ, which is I − γH for plain descent. Along a
//! vector x that is carried by them, the largest Lyapunov exponent is the mean of
//!
//!   ln(‖A·x‖/‖x‖) = ½·ln(1 − 2·xᵀd/xᵀx + dᵀd/xᵀx),   d = x − A·x
//!
//! Below 0 training contracts, and a hypergradient exists; above 0 every derivative through long training grows without
//! end, even the exact one. With plain descent d is proportional to γ, so the same three sums also give the mean for
//! smaller steps, from which the advised step follows.
//!
//! If the optimizer has state, x is the part of the vector that belongs to θ. The logarithms still add up to that of
//! its final over its initial length. The rest has different units and does not count.
//!
//! Leaves of θ may have different rates. A is then symmetric in the norm Σ xᵢ²/rateᵢ, so this norm is used.

use crate::Result;
use crate::compiled::routine::Routine;
use crate::compiled::trace::Trace;
use crate::health::diagnostics::Diagnostics;
use crate::problem::variable::{Role, Variable};
use bilevel_graph::{DType, ProgramBuilder, Tensor};

/// Shares of the inner step whose growth is followed.
const SHARES: [f64; 3] = [1.0, 0.5, 0.25];
/// Name of the numbers carried: how many steps were counted, and for each share the sum of
/// logarithms of squares.
const GROUP: &str = "growth";
const NUMBERS: usize = SHARES.len() + 1;

/// xᵀx, xᵀd and dᵀd in the norm of the inner loop, as 64-bit scalars.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub xx: Tensor,
    pub xd: Tensor,
    pub dd: Tensor,
}

/// 1/rate of each leaf of θ; 0 for one that no step moves.
fn weights(trace: &Trace) -> Vec<f64> {
    let one = |(_, variable): &(String, Variable)| match variable.role == Role::Statistic || variable.rate == 0.0 {
        true => 0.0,
        false => 1.0 / variable.rate,
    };
    trace.problem.theta.iter().map(one).collect()
}

/// Σ aᵢ·bᵢ/rateᵢ over leaves of θ, as a 64-bit scalar.
pub(crate) fn product(trace: &Trace, a: &[Tensor], b: &[Tensor]) -> Tensor {
    let wide = |t: &Tensor| t.convert(DType::F64);
    let mut sum = trace.graph.scalar(0.0, DType::F64);
    for ((a, b), weight) in a.iter().zip(b).zip(weights(trace)) {
        let part = (wide(a) * wide(b)).sum_all();
        sum = sum + if weight == 1.0 { part } else { part * weight };
    }
    sum
}

/// The three sums of a vector and of its decrease in a step.
pub(crate) fn stretch(trace: &Trace, x: &[Tensor], d: &[Tensor]) -> Stretch {
    Stretch { xx: product(trace, x, x), xd: product(trace, x, d), dd: product(trace, d, d) }
}

/// The three sums of a vector and its value after a step.
pub(crate) fn stretch_to(trace: &Trace, x: &[Tensor], next: &[Tensor]) -> Stretch {
    stretch(trace, x, &x.iter().zip(next).map(|(x, next)| *x - *next).collect::<Vec<_>>())
}

/// Carries the sums of logarithms in a program. A step counts if x is neither 0 nor out of range, and if `counts` is 1.
pub(crate) fn carry<'g>(
    builder: ProgramBuilder<'g>,
    trace: &Trace,
    along: Stretch,
    counts: Tensor,
) -> ProgramBuilder<'g> {
    let input = |i: usize| trace.graph.input(format!("{GROUP}.{i}"), [], DType::F64);
    let Stretch { xx, xd, dd } = along;
    let sound = xx.greater(0.0) * dd.less(f64::MAX) * counts;
    let share_of = |part: Tensor| sound.select(part / xx, 0.0);
    let (first, second) = (share_of(xd), share_of(dd));
    let count = input(0);
    let mut builder = builder.carry(count, count + sound);
    for (i, share) in SHARES.iter().enumerate() {
        let sum = input(i + 1);
        let squared = 1.0 - first * (2.0 * share) + second * (share * share);
        // A vector that a step takes to 0 has no finite logarithm; rounding is as small as it can become.
        builder = builder.carry(sum, sum + squared.maximum(f64::EPSILON * f64::EPSILON).log());
    }
    builder
}

/// Resets the sums.
pub(crate) fn begin(routine: &mut Routine) -> Result<()> {
    routine.set_numbers(GROUP, [0.0; NUMBERS])
}

/// Adds the measurements to the diagnostics. `step` is the inner step of plain descent; without it no smaller step is
/// advised.
pub(crate) fn read(routine: &Routine, step: Option<f64>, into: &mut Diagnostics) -> Result<()> {
    let [count, sums @ ..]: [f64; NUMBERS] = routine.carried_numbers(GROUP)?;
    let rate = |sum: &f64| Some(0.5 * sum / count).filter(|rate| count > 0.0 && rate.is_finite());
    into.growth_rate = rate(&sums[0]);
    into.growth_steps = into.growth_rate.map(|_| count);
    let calm = sums.iter().zip(SHARES).find(|(sum, _)| rate(sum).is_some_and(|rate| rate <= 0.0));
    into.calm_step = calm.zip(step).map(|((_, share), step)| step * share);
    Ok(())
}
