//! The paper's synthetic 1-D problem, its optimum, and every method with the settings of its tables.
//!
//!   f = (λ−θ)² + (θ−½)²,   L_T = (1/3+ε₁)θ³ − (1−λ²+ε₂)θ,   ε uniform up to `noise`, fresh at every step

use crate::runs::Outer;
use bilevel::{
    AmigoCg, AmigoSgd, Es, Fmd, HpoSgld, IftCg, IftNeumann, LangevinAdjoint, Leaf, Method, Problem, Result, Rmd, RmdFo,
    Variable,
};

/// λ and θ at the optimum, by line search on θ = √(1−λ²).
pub const OPTIMUM: (f64, f64) = (0.74894, 0.66264);
/// The same as the paper rounds it; the paper's errors are distances from here.
pub const PAPER_OPTIMUM: (f64, f64) = (0.7487, 0.6629);
/// Inner step γ.
pub const STEP: f64 = 0.005;
/// The paper's outer loop.
pub const OUTER: Outer = Outer { rate: 0.005, iterations: 200 };

/// The problem with λ = θ = `start` and ε uniform between ±`noise`.
pub fn problem(start: f64, noise: f64) -> Result<Problem> {
    problem_with(Variable::constant([], start), start, noise)
}

/// The problem with a λ of one's own, θ = `start` and ε uniform between ±`noise`.
pub fn problem_with(lambda: Variable, start: f64, noise: f64) -> Result<Problem> {
    let theta = Variable::constant([], start);
    let problem = Problem::new(Leaf(lambda), Leaf(theta)).outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square());
    let problem = if noise > 0.0 {
        problem.inner(move |scope, l, t| {
            let (one, two) = (scope.uniform([], -noise, noise), scope.uniform([], -noise, noise));
            (one + 1.0 / 3.0) * t.0 * t.0 * t.0 - (1.0 - l.0 * l.0 + two) * t.0
        })
    } else {
        problem.inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
    };
    problem.build().map(Problem::erase)
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

/// IFT-Neumann with α = .99 and i = 10; the paper's numbers come without the final factor α.
pub fn neumann(steps: usize, final_alpha: bool) -> IftNeumann {
    IftNeumann { step: STEP, steps, alpha: 0.99, terms: 10, final_alpha, ..IftNeumann::default() }
}

/// IFT-CG with regulariser .01 and 10 iterations.
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

/// AmIGO with 10 gradient steps of .005.
pub fn amigo_sgd() -> AmigoSgd {
    AmigoSgd { step: STEP, beta: STEP, iterations: 10, ..AmigoSgd::default() }
}

/// AmIGO with 10 iterations of conjugate gradients and IFT-CG's regulariser.
pub fn amigo_cg() -> AmigoCg {
    AmigoCg { step: STEP, iterations: 10, regularisation: 0.01, ..AmigoCg::default() }
}

/// Evolutionary search as in the paper: σ = .001 and 100 samples.
pub fn es(antithetic: bool) -> Es {
    Es { sigma: 0.001, samples: 100, antithetic, step: STEP, ..Es::default() }
}

/// The Langevin adjoint with T = 100 steps, all kept.
pub fn adjoint(step: f64, temperature: f64) -> LangevinAdjoint {
    LangevinAdjoint { step, temperature, ..LangevinAdjoint::default() }
}

/// The methods compared over numbers of inner iterations.
pub fn sweep(steps: usize) -> [(&'static str, Box<dyn Method>); 6] {
    [
        ("HPO-SGLD", Box::new(hpo_sgld(steps, STEP, 1e-6))),
        ("IFT-Neumann", Box::new(neumann(steps, false))),
        ("IFT-CG", Box::new(cg(steps))),
        ("RMD", Box::new(rmd(steps))),
        ("RMD-FO", Box::new(rmd_fo(steps))),
        ("FMD", Box::new(fmd(steps))),
    ]
}
