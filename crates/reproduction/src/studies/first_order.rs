//! How good the first-order approximation of HPO-SGLD is, along one chain of the synthetic 1-D problem at its optimum.
//!
//! Two different errors, which the paper's text does not distinguish:
//!   one step:  f_θ(θᵐ)·s ≈ f_θ(θᵐ⁻¹)·s with the *true* s = dθᵐ⁻¹/dλ: the part dropped at each step;
//!   recursion: gₘ, which is built on its own last value, against f_θ(θᵐ)·dθᵐ/dλ: the actual estimator.
//! The truth is forward mode through the same chain with the same noise.

use super::synthetic::{self, STEP, line_search};
use bilevel::methods::{Fmd, HpoSgld};
use bilevel::{InnerLoop, Key, Method, Result, Session};
use bilevel_run::statistics::mean_sd;
use bilevel_run::{Config, Findings, Finished, Item, Measure, Place, Plan, Row, Study, Verdict, figure};
use serde::{Deserialize, Serialize};

const NAME: &str = "first-order";
const LENGTH: usize = 100;
const BURN_IN: usize = 50;
const TEMPERATURE: f64 = 1e-6;

/// f_λ + (indirect term) after m steps, and θᵐ.
fn after(
    (method, inner): (&dyn Method, InnerLoop),
    session: &Session,
    (first, seeds): (u64, u64),
) -> Result<Vec<(f64, f64)>> {
    let mut estimator = method.prepare_in(session, &inner)?;
    let (lambda, theta) = line_search();
    (first..first + seeds)
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

/// Mean and standard deviation over the chains, step by step.
#[derive(Serialize, Deserialize)]
struct Errors {
    one_step: Vec<(f64, f64)>,
    recursion: Vec<(f64, f64)>,
    /// With the step's number.
    cumulative: Vec<(f64, (f64, f64))>,
}

/// This many chains.
#[derive(Serialize)]
struct Chains {
    config: Config,
    seeds: u64,
}

impl Measure for Chains {
    type Found = Errors;

    fn take(&self, place: &Place) -> Result<Errors> {
        let problem = self.config.problem(place.registry)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let (lambda, start) = line_search();
        let seeds = self.seeds;
        let all = (self.config.seed, seeds);
        let f_theta = |theta: f64| 4.0 * theta - 2.0 * lambda - 1.0;
        let f_lambda = |theta: f64| 2.0 * (lambda - theta);
        let (mut one_step, mut recursion) = (vec![], vec![]);
        let mut last = vec![start; seeds as usize];
        let mut kept = vec![(0.0, 0.0); seeds as usize];
        let mut cumulative = vec![];
        for m in 1..=LENGTH {
            (place.progress)(m as f64 / LENGTH as f64);
            let inner = InnerLoop::new(STEP, m).at_temperature(TEMPERATURE);
            let printed = InnerLoop { burn_in: m - 1, ..inner };
            let estimates = after((&HpoSgld::default(), printed), &session, all)?;
            let truths = after((&Fmd::default(), inner), &session, all)?;
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
        Ok(Errors { one_step, recursion, cumulative })
    }
}

const ITEM: &str = "chains";

/// The study.
pub(super) struct FirstOrder;

impl Study for FirstOrder {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Quality of the first-order approximation"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        Ok(vec![Item::measure(ITEM, Chains { config: synthetic::run(plan, 0.0)?, seeds: plan.choose(20, 100) })])
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let Errors { one_step, recursion, cumulative } = done.measured(ITEM)?;
        let seeds = plan.choose(20, 100);
        let (steps, deviation) = mean_sd(&one_step.iter().map(|s| s.0).collect::<Vec<_>>());
        let claim = "the paper calls the approximation very good, which is true for one step; the recursion adds up \
                     the steps without contraction, so its error grows with m";
        let row = |method: &str, setting: &str, ours: (f64, f64), expected: f64, verdict| {
            let row = Row::new(NAME, method, "relative error", ours.0).setting(setting).reference(expected);
            row.over(ours.1, seeds).verdict(verdict)
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
        let plots = [
            figure(
                "First-order approximation: one step with the true dθ/dλ, and the recursion as it is used",
                "step m",
                "relative error",
                vec![curve("one step", &one_step), curve("recursion", &recursion)],
            ),
            figure(
                "Hypergradient averaged over the kept steps, against forward mode",
                "step m",
                "relative error",
                vec![("kept average".into(), cumulative.iter().map(|(m, v)| (*m, v.0)).collect())],
            ),
        ];
        Ok(Findings::new(rows, plots))
    }
}
