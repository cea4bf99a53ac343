//! Whether a method keeps its promise on a problem that its claims cover.

use super::TruthProblem;
use super::fitted::fitted_with;
use super::measure::{Effort, Row, Verdict, measure};
use bilevel::methods::AnyMethod;
use bilevel::methods::claims::Promise;
use bilevel::{Method, Result};
use bilevel_graph::Executor;

/// The penalty, in units of 1/(smallest curvature), at which a bias of O(1/σ) is about a hundredth.
const PENALTY: f64 = 100.0;
/// By how much the penalty is multiplied to see the bias fall.
const TIMES: f64 = 4.0;
/// By how much the bias has to fall then: the terms beyond 1/σ leave a quarter of room.
const FALL: f64 = 3.0;
/// A bias below this has no 1/σ left to see.
const SETTLED: f64 = 1e-5;
/// A larger bias is not the O(1/σ) of a large penalty.
const MAX_BIAS: f64 = 0.1;
/// The sine of the angle that a tolerance leaves between a direction and the truth.
const ANGLE: f64 = 1e-4;

/// Measures a method with suitable settings, and checks its claim. Methods that promise a bias of O(1/σ) are measured
/// at a large penalty, which is their claim; the row is that of their default penalty.
pub(super) fn judged(
    method: &AnyMethod,
    problem: &TruthProblem,
    effort: Effort,
    executor: &dyn Executor,
) -> Result<Row> {
    let (here, inner) = fitted_with(method, problem, None)?;
    let mut row = measure((&here, &inner), problem, effort, executor)?;
    if !row.claimed || matches!(row.verdict, Verdict::NoTruth | Verdict::NotApplicable(_)) {
        return Ok(row);
    }
    if matches!(row.verdict, Verdict::Failed(_)) {
        row.kept = Some(false);
        return Ok(row);
    }
    let error =
        row.standard_error.zip(row.size.zip(row.truth)).map_or(0.0, |(error, (size, truth))| error / (size * truth));
    let sine = row.cosine.map_or(1.0, |cosine| (1.0 - cosine * cosine).max(0.0).sqrt());
    let ahead = row.cosine.is_some_and(|cosine| cosine > 0.0);
    row.kept = Some(match method.claims().promise {
        Promise::Exact => matches!(row.verdict, Verdict::Right | Verdict::Noisy),
        Promise::Direction => ahead && sine <= 3.0 * error + ANGLE,
        Promise::Descent => ahead && row.cosine.is_some_and(|cosine| cosine > 3.0 * error),
        Promise::InversePenalty => {
            let bias = |penalty: f64| -> Result<f64> {
                let penalty = penalty / problem.facts.smallest_curvature;
                let (method, inner) = fitted_with(method, problem, Some(penalty))?;
                Ok(measure((&method, &inner), problem, effort, executor)?.relative_bias().unwrap_or(f64::INFINITY))
            };
            let (near, far) = (bias(PENALTY)?, bias(TIMES * PENALTY)?);
            near <= MAX_BIAS && far <= near / FALL + SETTLED
        }
    });
    Ok(row)
}
