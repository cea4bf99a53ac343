//! Synthetic 1-D at outer convergence over γT: what the paper's recursion and RMD miss, and what the adjoint does not.

use crate::experiment::{Effort, Progress, Report};
use crate::runs::{Outer, ends};
use crate::synthetic::{self, OUTER};
use crate::{Figure, Row, Series, Verdict};
use bilevel::{HpoSgld, Method, Result, Rmd};

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

pub(crate) fn work(effort: Effort, progress: &mut Progress) -> Result<Report> {
    let problem = synthetic::problem(0.1, 0.0)?;
    let truth = synthetic::line_search().0;
    let outer = Outer { iterations: 3000, ..OUTER };
    let mut rows = vec![];
    let mut series: Vec<Series> = ["HPO-SGLD", "RMD", "Langevin adjoint"].map(|name| (name.into(), vec![])).into();
    for (index, (length, recursion, unrolled)) in KNOWN.into_iter().enumerate() {
        if effort == Effort::Quick && index % 3 != 0 {
            continue;
        }
        progress(&format!("γT = {length}"));
        let step = length / STEPS as f64;
        let recursion_method = HpoSgld { temperature: 0.0, ..synthetic::hpo_sgld(STEPS, step, 0.0) };
        let methods: [(&dyn Method, f64); 3] = [
            (&recursion_method, recursion),
            (&Rmd { step, steps: STEPS, ..Rmd::default() }, unrolled),
            (&synthetic::adjoint(step, 0.0), 0.0),
        ];
        for ((method, known), (name, curve)) in methods.into_iter().zip(&mut series) {
            let error = ends(&problem, method, outer, 1..2)?.lambda[0] - truth;
            let verdict = match name.as_str() {
                "Langevin adjoint" if error.abs() <= 3e-5 => Verdict::Better,
                "Langevin adjoint" => Verdict::NotReproduced("off the optimum".into()),
                _ => Verdict::to_four_digits(error, known, "differs from the measured bias"),
            };
            curve.push((length, error));
            let row = Row::new(NAME, name.clone(), "λ − λ*", error).setting(format!("γT = {length}"));
            rows.push(row.expected(known).verdict(verdict));
        }
    }
    let title = "Synthetic 1-D at outer convergence".into();
    Ok(Report { rows, figures: vec![Figure { title, x: "γT", y: "λ − λ*", series }] })
}
