//! Time of one outer iteration of the synthetic 1-D problem, in units of RMD in the same run.
//!
//! Methods take turns, so that what else the machine does falls on all of them, and medians are compared. Only ratios are
//! reported.

use crate::experiment::{Effort, Progress, Report};
use crate::statistics::{mean_sd, median};
use crate::synthetic::{self, STEP};
use crate::{Row, Verdict};
use bilevel::{Cpu, Key, Method, Result, Session};
use std::time::Instant;

const NAME: &str = "wall-clock";
/// The paper's milliseconds for RMD.
const PAPER_RMD: f64 = 52.0;

pub(crate) fn work(effort: Effort, progress: &mut Progress) -> Result<Report> {
    let problem = synthetic::problem(0.1, 0.0)?;
    let session = Session::new(&problem, &Cpu::with_threads(1))?;
    let methods: [(&str, Box<dyn Method>, Option<f64>); 9] = [
        ("RMD", Box::new(synthetic::rmd(100)), Some(PAPER_RMD)),
        ("HPO-SGLD", Box::new(synthetic::hpo_sgld(100, STEP, 1e-6)), Some(179.8)),
        ("IFT-Neumann", Box::new(synthetic::neumann(100, false)), Some(76.7)),
        ("IFT-CG", Box::new(synthetic::cg(100)), Some(90.7)),
        ("FMD", Box::new(synthetic::fmd(100)), Some(164.3)),
        ("RMD-FO", Box::new(synthetic::rmd_fo(100)), None),
        ("AmIGO-SGD", Box::new(synthetic::amigo_sgd()), None),
        ("AmIGO-CG", Box::new(synthetic::amigo_cg()), None),
        ("Langevin adjoint", Box::new(synthetic::adjoint(STEP, 1e-6)), None),
    ];
    let mut running = vec![];
    for (_, method, _) in &methods {
        running.push((method.prepare_in(&session)?, session.state(Key::from_seed(1))?, vec![]));
    }
    let rounds = effort.choose(200, 2000);
    progress(&format!("{rounds} rounds of {} methods", methods.len()));
    for round in 0..rounds + 20 {
        for (estimator, state, times) in &mut running {
            let start = Instant::now();
            estimator.estimate(state, Key::from([round, 1]))?;
            // The first rounds warm up.
            if round >= 20 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    let unit = median(&running[0].2);
    let rows = methods.iter().zip(&running).map(|((name, _, paper), (_, _, times))| {
        // Five medians of a fifth each show how sure the ratio is.
        let fifths: Vec<f64> = times.chunks(times.len().div_ceil(5)).map(|part| median(part) / unit).collect();
        let (ours, paper) = (median(times) / unit, paper.map(|p| p / PAPER_RMD));
        let verdict = match paper {
            Some(paper) if ours < 0.8 * paper => Verdict::Better,
            Some(paper) => Verdict::when(ours < 1.25 * paper, "dearer beside RMD than in the paper"),
            None => Verdict::NotClaimed,
        };
        let row = Row::new(NAME, *name, "time ÷ RMD's", ours).paper(paper);
        row.over(mean_sd(&fifths).1, fifths.len() as u32).verdict(verdict)
    });
    Ok(Report { rows: rows.collect(), figures: vec![] })
}
