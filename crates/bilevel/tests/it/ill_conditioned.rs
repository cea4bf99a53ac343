//! Every method on a quadratic with 60 unknowns and condition 1000, against the closed form of what it computes there.
//!
//! With four unknowns conjugate gradients end before anything can go wrong with them, and no inner loop is slow in any direction. Here
//! the slowest direction takes a thousand times as long as the fastest, and a solve takes more iterations than a method looks at once.

use crate::large::*;
use crate::with::With;
use bilevel::methods::{
    AmigoCg, AmigoSgd, Bome, Chains, Covariance, DTfbo, Directions, Es, F2sa, Fg2u, Fmd, GPbgd, Hoag, HpoSgld, IftCg,
    IftNeumann, Imaml, LangevinAdjoint, MaSoba, Meha, Nystrom, Pes, Reptile, Rmd, RmdFo, Saba, Sama, Soba, Srba,
    StocBio, VPbgd,
};
use bilevel::{InnerLoop, Method, methods};

/// Steps after which the slowest direction has forgotten its start: e^−30, 1e-13.
const ARRIVED: usize = 30_000;
/// Steps after which most directions have not: training stops in the middle.
const EARLY: usize = 200;
/// Inner step: 1 over the largest curvature.
const STEP: f64 = 1.0;

/// The error of a hypergradient beside its closed form, in units of the closed form's length.
fn off(found: &[f64], expected: &[f64]) -> f64 {
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    distance(found, expected) / distance(expected, &vec![0.0; expected.len()])
}

struct Case {
    method: Box<dyn Method>,
    large: Large,
    /// Hypergradients taken, of which the last is compared.
    calls: usize,
    expected: Vec<f64>,
    /// The largest relative error that the method's mathematics leaves.
    within: f64,
}

fn case(method: impl Method + 'static, large: Large, expected: Vec<f64>, within: f64) -> Case {
    Case { method: Box::new(method), large, calls: 1, expected, within }
}

/// Methods that are right at the minimum. An error of ‖r‖ in the linear system is at most ‖r‖/(smallest curvature) in q.
fn at_the_minimum() -> Vec<Case> {
    let large = Large::default;
    let (step, steps, alpha, beta) = (STEP, ARRIVED, 1.0, 1.0);
    let exact = large().hypergradient();
    // 60 directions are at most 60 iterations in exact arithmetic; rounding makes it a few more.
    let iterations = 200;
    // Rounding of 30 000 steps, or of a solve, times the condition.
    let rounding = 1e-9;
    vec![
        case(
            With(IftCg { iterations, ..IftCg::default() }, InnerLoop::new(step, steps)),
            large(),
            exact.clone(),
            rounding,
        ),
        case(
            With(AmigoCg { iterations, ..AmigoCg::default() }, InnerLoop::new(step, steps)),
            large(),
            exact.clone(),
            rounding,
        ),
        case(
            With(AmigoSgd { iterations: ARRIVED, beta, ..AmigoSgd::default() }, InnerLoop::new(step, steps)),
            large(),
            exact.clone(),
            rounding,
        ),
        case(
            With(IftNeumann { terms: ARRIVED, alpha, ..IftNeumann::default() }, InnerLoop::new(step, steps)),
            large(),
            exact.clone(),
            rounding,
        ),
        case(With(StocBio { terms: ARRIVED, alpha }, InnerLoop::new(step, steps)), large(), exact.clone(), rounding),
        case(
            With(Hoag { iterations, tolerance: 1e-12, ..Hoag::default() }, InnerLoop::new(step, steps)),
            large(),
            exact.clone(),
            rounding,
        ),
        // θ and v settle together, v after θ: twice the time.
        Case { calls: 2, ..case(With(Soba::default(), InnerLoop::new(step, steps)), large(), exact.clone(), rounding) },
        Case { calls: 2, ..case(With(Saba::default(), InnerLoop::new(step, steps)), large(), exact.clone(), rounding) },
        Case { calls: 2, ..case(With(Srba::default(), InnerLoop::new(step, steps)), large(), exact.clone(), rounding) },
        // The average begins at 0 and keeps (1 − w)ᵏ of that.
        Case {
            calls: 40,
            ..case(
                With(MaSoba { weight: 0.5 }, InnerLoop::new(step, ARRIVED / 10)),
                large(),
                exact.clone(),
                0.5f64.powi(25),
            )
        },
        // z follows f_θ while θ settles; by the second half of the second call both have.
        Case {
            calls: 2,
            ..case(
                With(LangevinAdjoint::default(), InnerLoop { burn_in: ARRIVED, ..InnerLoop::new(step, ARRIVED + 100) }),
                large(),
                exact.clone(),
                rounding,
            )
        },
        // All columns: (H + ρI)⁻¹ exactly, up to the rounding of a cancellation of size curvature/ρ.
        case(
            With(Nystrom { columns: N, regularisation: 0.01 }, InnerLoop::new(step, steps)),
            large(),
            large().implicit(|d| 1.0 / (d + 0.01)),
            1e-8,
        ),
        case(
            With(Imaml { rho: 0.1, iterations, ..Imaml::default() }, InnerLoop::new(0.9, 3000)),
            Large { copy: true, ..large() },
            large().proximal(0.1),
            rounding,
        ),
    ]
}

/// Methods that follow training, stopped long before it has converged: exact for the steps that were made.
fn in_training() -> Vec<Case> {
    let large = Large::default;
    let start = || Large { start: true, ..large() };
    let (step, steps) = (STEP, EARLY);
    let exact = |large: &Large| large.training(STEP, EARLY);
    let rounding = 1e-11;
    let hpo = With(HpoSgld::default(), InnerLoop { burn_in: 150, ..InnerLoop::new(step, 200) });
    vec![
        case(With(Rmd::default(), InnerLoop::new(step, steps)), large(), exact(&large()), rounding),
        case(With(Rmd::default(), InnerLoop::new(step, steps)), start(), exact(&start()), rounding),
        case(With(Fmd::default(), InnerLoop::new(step, steps)), large(), exact(&large()), rounding),
        case(
            With(Fg2u { directions: LAMBDA.len(), draw: Directions::Coordinates }, InnerLoop::new(step, steps)),
            large(),
            exact(&large()),
            rounding,
        ),
        case(With(RmdFo::default(), InnerLoop::new(step, steps)), start(), start().first_order(STEP, EARLY), rounding),
        case(
            With(Reptile::default(), InnerLoop::new(step, steps)),
            Large { copy: true, ..large() },
            large().displacement(STEP, EARLY),
            rounding,
        ),
        case(With(Sama::default(), InnerLoop::new(step, steps)), large(), large().one_more_step(STEP, EARLY), 1e-9),
        case(hpo, large(), large().printed_recursion(STEP, 150, 50), rounding),
    ]
}

/// Methods with a penalty: the exact derivative of the penalised problem, which is O(1/σ) away from the hypergradient.
fn with_a_penalty() -> Vec<Case> {
    let large = Large::default;
    let (step, steps, penalty) = (STEP, ARRIVED, 100.0);
    // σ multiplies the rounding of a difference.
    let rounding = 1e-9 * penalty;
    let value = large().penalised(penalty);
    vec![
        // The outer loss adds 1/σ to every curvature, which makes the largest step a little smaller.
        case(With(F2sa { penalty, growth: 0.0 }, InnerLoop::new(0.9, 40_000)), large(), value.clone(), rounding),
        // y moves once in a hypergradient.
        Case { calls: 4000, ..case(With(VPbgd { penalty }, InnerLoop::new(0.9, 10)), large(), value, rounding) },
        // The curvature of ‖∇L‖² is 2d², so the slowest direction needs a million times as long as the fastest: stopped before.
        case(
            With(GPbgd { penalty }, InnerLoop::new(0.2, steps)),
            large(),
            large().slope_penalty(0.2, ARRIVED, penalty),
            rounding,
        ),
        Case {
            calls: 3,
            ..case(
                With(Meha { rho: 0.5, penalty, power: 0.0 }, InnerLoop::new(0.5, 40_000)),
                large(),
                large().moreau(0.5, penalty),
                rounding,
            )
        },
        case(
            With(Bome { barrier: 0.5 }, InnerLoop::new(step, steps)),
            large(),
            large().barrier(STEP, ARRIVED, 0.5),
            rounding,
        ),
    ]
}

#[test]
fn every_deterministic_method_gives_its_closed_form_with_60_unknowns_and_condition_1000() {
    for Case { method, large, calls, expected, within } in
        [at_the_minimum(), in_training(), with_a_penalty()].into_iter().flatten()
    {
        let found = large.hypergradients(&*method, calls);
        let off = off(&found.value, &expected);
        println!("{:17} {off:.1e}", method.name());
        assert!(off < within, "{}: {off:.1e}, {:?} {expected:?}", method.name(), found.value);
    }
}

#[test]
fn d_tfbo_gives_the_hypergradient_over_the_root_of_1_and_all_squares_so_far() {
    // Its steps shrink by what they have met, which the slowest direction keeps large: what is left falls from call to call, since
    // θ and v are kept and the steps begin again.
    let large = Large::default();
    let method = With(DTfbo { iterations: 20_000, tolerance: 1e-9 }, InnerLoop::new(STEP, 20_000));
    let all: Vec<Vec<f64>> = (1..=12).map(|calls| large.hypergradients(&method, calls).value).collect();
    // h = D/α and α² grows by ‖D‖², so ‖D‖² = ‖h‖²·α²/(1 − ‖h‖²) with α of before.
    let mut square = 1.0;
    let mut d = vec![];
    for h in &all {
        let length: f64 = h.iter().map(|x| x * x).sum();
        square += length * square / (1.0 - length);
        d = h.iter().map(|x| x * f64::sqrt(square)).collect();
    }
    let off = off(&d, &large.hypergradient());
    assert!(off < 1e-4, "{off:.1e}");
}

#[test]
fn searches_are_within_four_of_their_standard_errors() {
    let large = Large::default();
    let (step, steps, samples) = (STEP, EARLY, 400);
    // On a quadratic the difference of an antithetic pair is exact, so that the mean over directions is the derivative.
    let methods: [(&dyn Method, Vec<f64>); 3] = [
        (&With(Es { directions: samples, ..Es::default() }, InnerLoop::new(step, steps)), large.training(STEP, EARLY)),
        (
            &With(Fg2u { directions: samples, ..Fg2u::default() }, InnerLoop::new(step, steps)),
            large.training(STEP, EARLY),
        ),
        // The second window of two: f after both.
        (
            &With(Pes { windows: 2, directions: samples, ..Pes::default() }, InnerLoop::new(step, EARLY / 2)),
            large.training(STEP, EARLY),
        ),
    ];
    for (method, expected) in methods {
        let calls = if method.name() == "pes" { 2 } else { 1 };
        let found = large.hypergradients(method, calls);
        let error = found.error.unwrap().iter().map(|e| e * e).sum::<f64>().sqrt();
        let size = expected.iter().map(|e| e * e).sum::<f64>().sqrt();
        let off = off(&found.value, &expected) * size;
        assert!(error < 0.25 * size, "{}: so large an error says nothing: {error} of {size}", method.name());
        assert!(off < 4.0 * error, "{}: {off} with a standard error of {error}", method.name());
    }
}

#[test]
fn the_covariance_is_that_of_the_discretised_chain_within_four_standard_errors() {
    // Cov(f, ∂λL) of a chain of step γ has the variance τ/(d·(1 − γd/2)) in the direction of curvature d.
    let large = Large::default();
    let step = 0.5;
    let method =
        With(Covariance::default(), InnerLoop { burn_in: 20_000, ..InnerLoop::new(step, 120000).at_temperature(1e-4) });
    let expected = large.implicit(|d| 1.0 / (d * (1.0 - step * d / 2.0)));
    let found = large.hypergradients(&Chains::new(method, 6), 1);
    let error = found.error.unwrap().iter().map(|e| e * e).sum::<f64>().sqrt();
    let size = expected.iter().map(|e| e * e).sum::<f64>().sqrt();
    let off = off(&found.value, &expected) * size;
    assert!(error < 0.25 * size, "so large an error says nothing: {error} of {size}");
    assert!(off < 4.0 * error, "{off} with a standard error of {error}");
}

#[test]
fn hoag_solves_as_ift_cg_does_after_as_many_iterations() {
    let large = Large::default();
    for iterations in [25, 100, 200] {
        let (step, steps) = (STEP, 1000);
        let hoag = With(Hoag { iterations, tolerance: 1e-200, ..Hoag::default() }, InnerLoop::new(step, steps));
        let residual = |method: &dyn Method| large.hypergradients(method, 1).residual.unwrap();
        let (hoag, cg) =
            (residual(&hoag), residual(&With(IftCg { iterations, ..IftCg::default() }, InnerLoop::new(step, steps))));
        // Below rounding both only wander.
        assert!(hoag <= 1.01 * cg + 1e-14, "{iterations} iterations: {hoag:.1e} and {cg:.1e}");
    }
}

#[test]
fn no_method_is_left_out() {
    let mut names: Vec<&str> = [at_the_minimum(), in_training(), with_a_penalty()]
        .iter()
        .flatten()
        .map(|case| case.method.name())
        .chain(["d-tfbo", "es", "pes", "covariance", "evidence"])
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut all: Vec<&str> = methods::all().iter().map(|info| info.name).collect();
    all.sort_unstable();
    assert_eq!(names, all);
}
