//! Every method of the library with the settings it may choose from.
//!
//! All have the same choice: T inner steps, and i steps of the linear solve if there is one.

use bilevel::InnerLoop;
use bilevel::methods::{
    AmigoCg, AmigoSgd, Covariance, Es, Fmd, HpoSgld, IftCg, IftNeumann, Imaml, LangevinAdjoint, Reptile, Rmd, RmdFo,
};
use bilevel_run::Recipe;
use bilevel_run::price::Passes;
use serde::Serialize;

/// Temperature of the chains that take one, as in the paper's synthetic experiments.
const TEMPERATURE: f64 = 1e-6;
/// The covariance is divided by its temperature, so it needs a higher one.
const COVARIANCE_TEMPERATURE: f64 = 1e-4;
/// Samples of the covariance for each inner step of the others.
const COVARIANCE_SAMPLES: usize = 10;
/// Directions of evolutionary search, each looked along both ways.
const DIRECTIONS: usize = 10;

/// A method with one choice of its settings.
pub(super) struct Variant {
    pub setting: String,
    pub method: Recipe,
}

/// A method with all its choices.
pub(super) struct Candidate {
    pub name: &'static str,
    pub passes: Passes,
    /// Validation loss of an earlier experiment with other settings and another split: only the order is compared with
    /// it.
    pub expected: Option<f64>,
    pub variants: Vec<Variant>,
}

/// The settings that methods may choose from.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Choices {
    /// Inner steps T.
    pub steps: &'static [usize],
    /// Iterations i of a linear solve.
    pub solve: &'static [usize],
}

fn over<M: Into<Recipe>>(steps: &[usize], make: impl Fn(usize) -> M) -> Vec<Variant> {
    let variant = |&t: &usize| Variant { setting: format!("T = {t}"), method: make(t).into() };
    steps.iter().map(variant).collect()
}

fn over_both<M: Into<Recipe>>(choices: &Choices, make: impl Fn(usize, usize) -> M) -> Vec<Variant> {
    let variant = |t: usize, i: usize| Variant { setting: format!("T = {t}, i = {i}"), method: make(t, i).into() };
    choices.steps.iter().flat_map(|&t| choices.solve.iter().map(move |&i| variant(t, i))).collect()
}

/// All methods with inner step γ = `step`, which is also the step of the linear solves that take one.
pub(super) fn candidates(step: f64, choices: &Choices) -> Vec<Candidate> {
    let (shared, separate) = (Passes::Shared, Passes::Separate);
    let candidate = |name, passes, expected, variants| Candidate { name, passes, expected, variants };
    let temperature = TEMPERATURE;
    let adjoint = |samples, outer_every_step| {
        (
            LangevinAdjoint { outer_every_step, ..LangevinAdjoint::default() },
            InnerLoop::new(step, samples).at_temperature(temperature),
        )
    };
    let hpo_sgld = |t: usize| {
        (HpoSgld::default(), InnerLoop { burn_in: t / 2, ..InnerLoop::new(step, t).at_temperature(temperature) })
    };
    let amigo_cg = |steps, iterations| (AmigoCg { iterations, ..AmigoCg::default() }, InnerLoop::new(step, steps));
    let amigo_sgd =
        |steps, iterations| (AmigoSgd { beta: step, iterations, ..AmigoSgd::default() }, InnerLoop::new(step, steps));
    let ift_cg = |steps, iterations| {
        (IftCg { regularisation: 0.0, iterations, ..IftCg::default() }, InnerLoop::new(step, steps))
    };
    let neumann =
        |steps, terms| (IftNeumann { alpha: step, terms, ..IftNeumann::default() }, InnerLoop::new(step, steps));
    let es = |steps| (Es { directions: DIRECTIONS, ..Es::default() }, InnerLoop::new(step, steps));
    let covariance =
        |samples| (Covariance::default(), InnerLoop::new(step, samples).at_temperature(COVARIANCE_TEMPERATURE));
    // No choices if the method does not apply, or if none would be affordable.
    let (t, ten) = (choices.steps, &[10]);
    let samples: Vec<usize> = t.iter().map(|t| COVARIANCE_SAMPLES * t).collect();
    vec![
        candidate("hpo-sgld", separate, Some(0.1303), over(t, hpo_sgld)),
        candidate("langevin-adjoint", shared, Some(0.0725), over(t, |t| adjoint(t, true))),
        candidate("langevin-adjoint, f_θ once", shared, Some(0.0652), over(t, |t| adjoint(t, false))),
        candidate("amigo-cg", separate, Some(0.0613), over_both(choices, amigo_cg)),
        candidate("amigo-sgd", separate, Some(0.0712), over_both(choices, amigo_sgd)),
        candidate("ift-cg", separate, Some(0.0774), over_both(choices, ift_cg)),
        candidate("ift-neumann", separate, Some(0.1077), over_both(choices, neumann)),
        candidate("rmd", shared, Some(0.1146), over(t, |steps| (Rmd::default(), InnerLoop::new(step, steps)))),
        candidate("rmd-fo", shared, None, over(ten, |steps| (RmdFo::default(), InnerLoop::new(step, steps)))),
        candidate("fmd", shared, None, over(ten, |steps| (Fmd::default(), InnerLoop::new(step, steps)))),
        candidate("es", separate, None, over(t, es)),
        candidate("covariance", separate, None, over(&samples, covariance)),
        candidate("imaml", separate, None, over(ten, |steps| (Imaml::default(), InnerLoop::new(step, steps)))),
        candidate("reptile", separate, None, over(ten, |steps| (Reptile::default(), InnerLoop::new(step, steps)))),
    ]
}
