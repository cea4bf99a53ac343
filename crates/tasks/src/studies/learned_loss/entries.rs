//! The methods of the table with their settings, and what the paper and the reference have for each.

use crate::Settings;
use crate::studies::deep::{STEPS, Seeds, adjoint, cg, neumann, rmd, safe_cg, sgd};
use crate::tasks::LearnedLoss;
use crate::tasks::learned_loss::FirstLoss;
use bilevel::{Adam, AnyMethod, Fmd, HpoSgld, InnerOptimizer};

/// Both rates of the paper.
const RATE: f64 = 0.01;
/// The outer rate where λ is learned on trainings that start from scratch, of which there are few.
const COLD_RATE: f64 = 0.1;
/// Inner steps of these.
pub(super) const COLD_STEPS: usize = 100;

/// The paper's test errors: cross entropy, TaylorGLO, and RMD-FO, whose λ stays where it starts.
pub(super) const CROSS_ENTROPY: f64 = 23.62;
pub(super) const TAYLOR_GLO: f64 = 20.99;
pub(super) const RMD_FO: f64 = 22.74;

/// A row: a method with its settings.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub method: &'static str,
    pub setting: String,
    pub task: LearnedLoss,
    pub by: Settings,
    pub optimizer: Settings,
    pub rate: f64,
    pub cold: bool,
    pub seeds: Seeds,
    /// Whether to retrain with the λ found.
    pub retrain: bool,
    pub paper: Option<f64>,
    pub reference: Option<f64>,
}

fn adam() -> Settings {
    Settings::new("adam", &InnerOptimizer::Adam(Adam::default()))
}

fn hpo_sgld(step: f64, temperature: f64) -> AnyMethod {
    HpoSgld { burn_in: 8, samples: 2, step, temperature, noise_scale: 1e-6 }.into()
}

/// α and i with the paper's test error.
const NEUMANN: [(f64, usize, f64); 6] =
    [(0.99, 1, 17.63), (0.99, 2, 17.73), (0.99, 10, 18.15), (0.9, 1, 17.65), (0.9, 2, 17.58), (0.9, 10, 18.21)];
/// γ and i.
const CG: [(f64, usize, f64); 6] =
    [(0.01, 1, 17.60), (0.01, 2, 17.39), (0.01, 10, 18.04), (0.001, 1, 17.78), (0.001, 2, 17.34), (0.001, 10, 18.96)];
/// τ.
const HPO_SGLD: [(f64, f64); 3] = [(0.1, 17.49), (0.01, 16.76), (0.001, 17.01)];

/// All rows whose λ is learned by a method.
pub(super) fn entries(task: &LearnedLoss) -> Vec<Entry> {
    let step = task.step;
    let entry = |method: &'static str, setting: String, by: AnyMethod, paper: Option<f64>| Entry {
        method,
        setting,
        task: task.clone(),
        by: Settings::of_method(by),
        optimizer: sgd(),
        rate: RATE,
        cold: false,
        seeds: Seeds::One,
        retrain: false,
        paper,
        reference: None,
    };
    let argued = |entry: Entry| Entry { seeds: Seeds::All, retrain: true, ..entry };
    let mut all = vec![];
    for (alpha, i, error) in NEUMANN {
        all.push(entry("IFT-Neumann", format!("({alpha}, {i})"), neumann(step, alpha, i), Some(error)));
    }
    for (gamma, i, error) in CG {
        let row = entry("IFT-CG", format!("({gamma}, {i})"), cg(step, gamma, i), Some(error));
        all.push(if (gamma, i) == (0.01, 2) { argued(row) } else { row });
    }
    all.push(entry("RMD", "10 steps".into(), rmd(step, STEPS), Some(19.79)));
    all.push(entry("FMD", "10 steps".into(), Fmd { step, steps: STEPS, ..Fmd::default() }.into(), Some(20.14)));
    for (tau, error) in HPO_SGLD {
        let row = entry("HPO-SGLD", format!("τ = {tau}"), hpo_sgld(step, tau), Some(error));
        all.push(if tau == 0.01 { Entry { reference: Some(49.7), ..argued(row) } } else { row });
    }
    all.push(argued(entry("Langevin adjoint", "10 steps".into(), adjoint(step, 0.01).into(), None)));
    all.push(argued(entry("IFT-CG", "(0.01, 2), Gauss-Newton".into(), safe_cg(step, 0.01, 2), None)));
    let by_adam = [
        ("HPO-SGLD", hpo_sgld(step, 0.01), Some(46.5)),
        ("RMD", rmd(step, STEPS), Some(41.1)),
        ("IFT-CG", cg(step, 0.01, 2), Some(29.3)),
        ("IFT-CG, Gauss-Newton", safe_cg(step, 0.01, 2), None),
        ("Langevin adjoint", adjoint(step, 0.01).into(), None),
    ];
    for (method, by, reference) in by_adam {
        let row = entry(method, "λ moved by Adam".into(), by, None);
        all.push(Entry { optimizer: adam(), reference, retrain: true, ..row });
    }
    let brier = LearnedLoss { first: FirstLoss::Brier, ..task.clone() };
    let row = entry("HPO-SGLD", "from Brier's loss".into(), hpo_sgld(step, 0.01), None);
    all.push(Entry { task: brier, ..row });
    let row = entry("RMD", format!("{COLD_STEPS} steps from the start, always"), rmd(step, COLD_STEPS), None);
    all.push(Entry { optimizer: adam(), rate: COLD_RATE, cold: true, retrain: true, ..row });
    all
}
