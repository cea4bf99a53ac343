//! Synthetic 1-D at outer convergence over γT: what the paper's recursion and RMD miss, and what the adjoint does not.

use super::synthetic::{self, line_search};
use crate::runs::{Ends, over_seeds};
use crate::{Findings, Finished, Item, Plan, Row, Series, Study, Verdict, figure, label};
use bilevel::{AnyMethod, HpoSgld, Result, Rmd};

const NAME: &str = "chain-length";
const STEPS: usize = 100;
/// γT with the signed error in λ of HPO-SGLD and of RMD.
const KNOWN: [(f64, f64, f64); 7] = [
    (0.1, -0.0323, -0.0304),
    (0.25, -0.0221, -0.0203),
    (0.5, -0.0112, -0.0118),
    (1.0, 0.0, -0.0049),
    (2.0, 0.0091, -0.0011),
    (5.0, 0.0166, 0.0),
    (10.0, 0.0196, 0.0),
];

/// Every third of them in a quick study.
fn lengths(plan: &Plan) -> Vec<(f64, f64, f64)> {
    KNOWN.into_iter().enumerate().filter(|(n, _)| !plan.quick || n % 3 == 0).map(|(_, known)| known).collect()
}

fn methods(length: f64) -> [(&'static str, AnyMethod); 3] {
    let step = length / STEPS as f64;
    [
        ("HPO-SGLD", HpoSgld { temperature: 0.0, ..synthetic::hpo_sgld(STEPS, step, 0.0) }.into()),
        ("RMD", Rmd { step, steps: STEPS, ..Rmd::default() }.into()),
        ("Langevin adjoint", synthetic::adjoint(step, 0.0).into()),
    ]
}

fn item_label(method: &str, length: f64) -> String {
    label(&format!("{method} {length}"))
}

/// The study.
pub(super) struct ChainLength;

impl Study for ChainLength {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: synthetic 1-D at outer convergence, errors over γT"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let mut run = synthetic::run(plan, 0.0)?;
        run.outer.iterations = 3000;
        let first = plan.seed + 1;
        let items = lengths(plan).into_iter().flat_map(|(length, ..)| {
            let item = |(name, method)| over_seeds(item_label(name, length), run.clone().by(method), first..first + 1);
            methods(length).map(item)
        });
        Ok(items.collect())
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let truth = line_search().0;
        let mut rows = vec![];
        let mut series: Vec<Series> = ["HPO-SGLD", "RMD", "Langevin adjoint"].map(|name| (name.into(), vec![])).into();
        for (length, recursion, unrolled) in lengths(plan) {
            for (known, (name, curve)) in [recursion, unrolled, 0.0].into_iter().zip(&mut series) {
                let ends: Ends = done.measured(&item_label(name, length))?;
                let error = ends.lambda.first().map_or(f64::NAN, |lambda| lambda - truth);
                let verdict = match name.as_str() {
                    "Langevin adjoint" if error.abs() <= 3e-5 => Verdict::Better,
                    "Langevin adjoint" => Verdict::NotReproduced("off the optimum".into()),
                    _ => Verdict::to_four_digits(error, known, "differs from the measured bias"),
                };
                curve.push((length, error));
                let row = Row::new(NAME, name.clone(), "λ − λ*", error).setting(format!("γT = {length}"));
                rows.push(row.reference(known).cost(ends.cost).verdict(verdict));
            }
        }
        Ok(Findings::new(rows, [figure("Synthetic 1-D at outer convergence", "γT", "λ − λ*", series)]))
    }
}
