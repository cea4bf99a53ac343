//! How good the first-order approximation of HPO-SGLD is, along one chain of the synthetic 1-D problem at its optimum.
//!
//! Two different errors, which the paper's text does not keep apart:
//!   one step:  f_θ(θᵐ)·s ≈ f_θ(θᵐ⁻¹)·s with the *true* s = dθᵐ⁻¹/dλ: what the approximation drops at each step;
//!   recursion: gₘ, which is built on its own last value, against f_θ(θᵐ)·dθᵐ/dλ: what the estimator really uses.
//! The truth is forward mode through the same chain with the same noise.

use crate::experiment::{Effort, Progress, Report};
use crate::statistics::mean_sd;
use crate::synthetic::{self, STEP};
use crate::{Figure, Row, Verdict};
use bilevel::{Cpu, Fmd, HpoSgld, Key, Method, Result, Session};

const NAME: &str = "first-order";
const LENGTH: usize = 100;
const BURN_IN: usize = 50;
const TEMPERATURE: f64 = 1e-6;

/// f_λ + (indirect term) after m steps, and θᵐ.
fn after(method: &dyn Method, session: &Session, seeds: u64) -> Result<Vec<(f64, f64)>> {
    let mut estimator = method.prepare_in(session)?;
    let (lambda, theta) = synthetic::line_search();
    (0..seeds)
        .map(|seed| {
            let key = Key::from_seed(seed);
            let mut state = session.state(key)?;
            state.lambda[0].set_item(lambda)?;
            state.theta[0].set_item(theta)?;
            let h = estimator.estimate(&mut state, key)?;
            Ok((h.value[0].item()?, state.theta[0].item()?))
        })
        .collect()
}

pub(crate) fn work(effort: Effort, progress: &mut Progress) -> Result<Report> {
    let problem = synthetic::problem(0.1, 0.0)?;
    let session = Session::new(&problem, &Cpu::with_threads(1))?;
    let (lambda, start) = synthetic::line_search();
    let seeds = effort.choose(20, 100);
    let f_theta = |theta: f64| 4.0 * theta - 2.0 * lambda - 1.0;
    let f_lambda = |theta: f64| 2.0 * (lambda - theta);
    let (mut one_step, mut recursion) = (vec![], vec![]);
    let mut last = vec![start; seeds as usize];
    let mut kept = vec![(0.0, 0.0); seeds as usize];
    let mut cumulative = vec![];
    for m in 1..=LENGTH {
        if m % 25 == 0 {
            progress(&format!("step {m} of {LENGTH}"));
        }
        let printed = HpoSgld { burn_in: m - 1, samples: 1, step: STEP, temperature: TEMPERATURE, noise_scale: 1.0 };
        let truth = Fmd { step: STEP, steps: m, temperature: TEMPERATURE, ..Fmd::default() };
        let (estimates, truths) = (after(&printed, &session, seeds)?, after(&truth, &session, seeds)?);
        let (mut steps, mut products, mut averages) = (vec![], vec![], vec![]);
        for i in 0..seeds as usize {
            let ((estimate, theta), (exact, _)) = (estimates[i], truths[i]);
            steps.push((f_theta(theta) - f_theta(last[i])).abs() / f_theta(theta).abs());
            let (product, g) = (exact - f_lambda(theta), estimate - f_lambda(theta));
            products.push((g - product).abs() / product.abs());
            last[i] = theta;
            if m > BURN_IN {
                kept[i] = (kept[i].0 + estimate, kept[i].1 + exact);
                averages.push((kept[i].0 - kept[i].1).abs() / kept[i].1.abs());
            }
        }
        one_step.push(mean_sd(&steps));
        recursion.push(mean_sd(&products));
        if m > BURN_IN {
            cumulative.push((m as f64, mean_sd(&averages)));
        }
    }
    let (steps, deviation) = mean_sd(&one_step.iter().map(|s| s.0).collect::<Vec<_>>());
    let claim = "the paper says the approximation quality is very good, which is so for one step; the recursion adds the \
                 steps up without contraction, and its error grows with m";
    let row = |method: &str, setting: &str, ours: (f64, f64), expected: f64, verdict| {
        let row = Row::new(NAME, method, "relative error", ours.0).setting(setting).expected(expected);
        row.over(ours.1, seeds as u32).verdict(verdict)
    };
    let lost = || Verdict::NotReproduced(claim.into());
    let average = cumulative[cumulative.len() - 1].1;
    let small = Verdict::when(steps < 0.01, "not small");
    let rows = vec![
        row("one step", "mean of m = 1 … 100", (steps, deviation), 0.002, small),
        row("recursion", "m = 50", recursion[49], 0.17, lost()),
        row("recursion", "m = 100", recursion[99], 0.37, lost()),
        row("kept average", "m = 51 … 100", average, 0.18, lost()),
    ];
    let curve = |name: &str, values: &[(f64, f64)]| {
        (name.to_string(), values.iter().enumerate().map(|(i, v)| (i as f64 + 1.0, v.0)).collect())
    };
    let figures = vec![
        Figure {
            title: "First-order approximation: one step with the true dθ/dλ, and the recursion as it is used".into(),
            x: "step m",
            y: "relative error",
            series: vec![curve("one step", &one_step), curve("recursion", &recursion)],
        },
        Figure {
            title: "Hypergradient averaged over the kept steps, against forward mode".into(),
            x: "step m",
            y: "relative error",
            series: vec![("kept average".into(), cumulative.iter().map(|(m, v)| (*m, v.0)).collect())],
        },
    ];
    Ok(Report { rows, figures })
}
