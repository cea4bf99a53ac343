//! The paper's synthetic 1-D problem with the settings of its tables: the outer loop, and every method.

use bilevel::methods::{AmigoCg, AmigoSgd, Fmd, HpoSgld, IftCg, IftNeumann, LangevinAdjoint, Rmd, RmdFo};
use bilevel::{InnerLoop, Result};
use bilevel_run::manifest::Taken;
use bilevel_run::{AnyTask, Config, Measure, Place, Plan};
use bilevel_tasks::Synth1d;
use serde::Serialize;
use serde_json::{Map, Value};

/// Inner step γ.
pub const STEP: f64 = 0.005;
/// Largest ε of the noisy form.
pub const NOISE: f64 = 0.3;

/// The paper's outer loop, 200 iterations at 0.005, on the problem with this much noise.
pub fn run(plan: &Plan, noise: f64) -> Result<Config> {
    run_of(plan, &Synth1d { noise, ..Synth1d::default() })
}

/// The same on a problem with other settings.
pub fn run_of(plan: &Plan, task: &dyn AnyTask) -> Result<Config> {
    let mut config = plan.run(task)?;
    config.outer.iterations = 200;
    config.metrics.diagnose = 0;
    Ok(config)
}

/// The optimum found again: the λ with f_λ + f_θ·dθ/dλ = 0 on θ = √(1−λ²), by bisection.
pub fn line_search() -> (f64, f64) {
    let slope = |l: f64| {
        let t = (1.0 - l * l).sqrt();
        2.0 * (l - t) + (4.0 * t - 2.0 * l - 1.0) * (-l / t)
    };
    let (mut low, mut high) = (0.5, 0.9);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if slope(middle) < 0.0 { low = middle } else { high = middle }
    }
    (low, (1.0 - low * low).sqrt())
}

/// HPO-SGLD with B = M = T/2 and κ = 1.
pub fn hpo_sgld(steps: usize, step: f64, temperature: f64) -> (HpoSgld, InnerLoop) {
    (HpoSgld::default(), InnerLoop { burn_in: steps / 2, ..InnerLoop::new(step, steps).at_temperature(temperature) })
}

/// IFT-Neumann with α = 0.99 and i = 10; the paper's numbers come without the final factor α.
pub fn neumann(steps: usize, final_alpha: bool) -> (IftNeumann, InnerLoop) {
    (IftNeumann { alpha: 0.99, terms: 10, final_alpha, ..IftNeumann::default() }, InnerLoop::new(STEP, steps))
}

/// IFT-CG with regulariser 0.01 and 10 iterations.
pub fn cg(steps: usize) -> (IftCg, InnerLoop) {
    (IftCg { regularisation: 0.01, iterations: 10, ..IftCg::default() }, InnerLoop::new(STEP, steps))
}

/// RMD.
pub fn rmd(steps: usize) -> (Rmd, InnerLoop) {
    (Rmd::default(), InnerLoop::new(STEP, steps))
}

/// RMD with every second-order term dropped.
pub fn rmd_fo(steps: usize) -> (RmdFo, InnerLoop) {
    (RmdFo::default(), InnerLoop::new(STEP, steps))
}

/// FMD.
pub fn fmd(steps: usize) -> (Fmd, InnerLoop) {
    (Fmd::default(), InnerLoop::new(STEP, steps))
}

/// AmIGO with 10 gradient steps of 0.005.
pub fn amigo_sgd() -> (AmigoSgd, InnerLoop) {
    (AmigoSgd { beta: STEP, iterations: 10, ..AmigoSgd::default() }, InnerLoop::new(STEP, 100))
}

/// AmIGO with 10 iterations of conjugate gradients and IFT-CG's regulariser.
pub fn amigo_cg() -> (AmigoCg, InnerLoop) {
    (AmigoCg { iterations: 10, regularisation: 0.01, ..AmigoCg::default() }, InnerLoop::new(STEP, 100))
}

/// The Langevin adjoint with T = 100 steps, all kept.
pub fn adjoint(step: f64, temperature: f64) -> (LangevinAdjoint, InnerLoop) {
    (LangevinAdjoint::default(), InnerLoop::new(step, 100).at_temperature(temperature))
}

/// [`line_search`] as a measure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LineSearch {}

impl LineSearch {
    /// It depends on nothing.
    pub fn of(_: &Config, _: &Map<String, Value>) -> Result<Self> {
        Ok(LineSearch {})
    }
}

impl Measure for LineSearch {
    type Found = Taken;

    fn take(&self, _: &Place) -> Result<Taken> {
        let (lambda, theta) = line_search();
        Ok(Taken { numbers: [("λ".into(), vec![lambda]), ("θ".into(), vec![theta])].into(), ..Taken::default() })
    }
}
