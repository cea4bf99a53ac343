//! The paper's synthetic 1-D problem with the settings of its tables: the outer loop, and every method.

use crate::tasks::Synth1d;
use crate::{AnyTask, Config, Plan};
use bilevel::{AmigoCg, AmigoSgd, AnyMethod, Es, Fmd, HpoSgld, IftCg, IftNeumann, LangevinAdjoint, Result, Rmd, RmdFo};

/// The optimum as the paper rounds it; the paper's errors are distances from here.
pub const PAPER_OPTIMUM: (f64, f64) = (0.7487, 0.6629);
/// Inner step γ.
pub const STEP: f64 = 0.005;
/// Largest ε of the noisy form.
pub const NOISE: f64 = 0.3;

/// The paper's outer loop, 200 iterations at 0.005, on the problem with this much noise.
pub fn run(plan: &Plan, noise: f64) -> Result<Config> {
    run_of(plan, &Synth1d { noise, ..Synth1d::default() })
}

/// The same on a problem with settings of one's own.
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
pub fn hpo_sgld(steps: usize, step: f64, temperature: f64) -> HpoSgld {
    HpoSgld { burn_in: steps / 2, samples: steps - steps / 2, step, temperature, noise_scale: 1.0 }
}

/// IFT-Neumann with α = 0.99 and i = 10; the paper's numbers come without the final factor α.
pub fn neumann(steps: usize, final_alpha: bool) -> IftNeumann {
    IftNeumann { step: STEP, steps, alpha: 0.99, terms: 10, final_alpha, ..IftNeumann::default() }
}

/// IFT-CG with regulariser 0.01 and 10 iterations.
pub fn cg(steps: usize) -> IftCg {
    IftCg { step: STEP, steps, regularisation: 0.01, iterations: 10, ..IftCg::default() }
}

/// RMD.
pub fn rmd(steps: usize) -> Rmd {
    Rmd { step: STEP, steps, ..Rmd::default() }
}

/// RMD with every second-order term dropped.
pub fn rmd_fo(steps: usize) -> RmdFo {
    RmdFo { step: STEP, steps, ..RmdFo::default() }
}

/// FMD.
pub fn fmd(steps: usize) -> Fmd {
    Fmd { step: STEP, steps, ..Fmd::default() }
}

/// AmIGO with 10 gradient steps of 0.005.
pub fn amigo_sgd() -> AmigoSgd {
    AmigoSgd { step: STEP, beta: STEP, iterations: 10, ..AmigoSgd::default() }
}

/// AmIGO with 10 iterations of conjugate gradients and IFT-CG's regulariser.
pub fn amigo_cg() -> AmigoCg {
    AmigoCg { step: STEP, iterations: 10, regularisation: 0.01, ..AmigoCg::default() }
}

/// Evolutionary search as in the paper: σ = 0.001 and 100 samples.
pub fn es(antithetic: bool) -> Es {
    Es { sigma: 0.001, samples: 100, antithetic, step: STEP, ..Es::default() }
}

/// The Langevin adjoint with T = 100 steps, all kept.
pub fn adjoint(step: f64, temperature: f64) -> LangevinAdjoint {
    LangevinAdjoint { step, temperature, ..LangevinAdjoint::default() }
}

/// The methods compared over numbers of inner iterations.
pub fn sweep(steps: usize) -> [(&'static str, AnyMethod); 6] {
    [
        ("HPO-SGLD", hpo_sgld(steps, STEP, 1e-6).into()),
        ("IFT-Neumann", neumann(steps, false).into()),
        ("IFT-CG", cg(steps).into()),
        ("RMD", rmd(steps).into()),
        ("RMD-FO", rmd_fo(steps).into()),
        ("FMD", fmd(steps).into()),
    ]
}
