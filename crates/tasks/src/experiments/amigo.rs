//! AmIGO beside the other methods, on the synthetic and the noisy synthetic 1-D problem: errors of λ and θ.

use super::noisy_synth1d::runs;
use crate::experiment::{Effort, Progress, Report};
use crate::runs::{Ends, ends};
use crate::statistics::mean_sd;
use crate::synthetic::{self, OUTER, PAPER_OPTIMUM};
use crate::{Row, Verdict};
use bilevel::{Method, Result};

/// Rows of the mean absolute error of λ and of θ, from the optimum as the paper rounds it. A deterministic one is held to
/// the printed digits; of several runs the paper's should be one that could have been among them.
pub(crate) fn error_rows(
    experiment: &'static str,
    (method, setting): (&str, &str),
    ends: &Ends,
    paper: (Option<f64>, Option<f64>),
    expected: (Option<f64>, Option<f64>),
) -> Vec<Row> {
    let errors = |values: &[f64], truth: f64| values.iter().map(|v| (v - truth).abs()).collect::<Vec<_>>();
    let sides = [
        ("|λ − λ*|", errors(&ends.lambda, PAPER_OPTIMUM.0), paper.0, expected.0),
        ("|θ − θ*|", errors(&ends.theta, PAPER_OPTIMUM.1), paper.1, expected.1),
    ];
    let row = |(metric, errors, paper, expected): (_, Vec<f64>, Option<f64>, Option<f64>)| {
        let (mean, sd) = mean_sd(&errors);
        let row = Row::new(experiment, method, metric, mean).setting(setting).paper(paper).expected(expected);
        let row = if errors.len() > 1 { row.over(sd, errors.len() as u32) } else { row };
        let verdict = match paper.or(expected) {
            Some(printed) if errors.len() == 1 => Verdict::to_four_digits(mean, printed, "another error"),
            Some(printed) => {
                Verdict::when((mean - printed).abs() <= 3.0 * sd + 1e-4, "the paper's draw is not among ours")
            }
            None => Verdict::NotClaimed,
        };
        row.verdict(verdict)
    };
    let mut rows: Vec<Row> = sides.map(row).into();
    if ends.diverged > 0 {
        let all = ends.diverged + ends.lambda.len() as u32;
        let why = format!("{} of {all} runs diverged; the paper mentions none", ends.diverged);
        let row = Row::new(experiment, method, "runs diverged", ends.diverged as f64).setting(setting);
        rows.push(Row { seeds: all, ..row.verdict(Verdict::NotReproduced(why)) });
    }
    rows
}

const NAME: &str = "amigo";

/// A method with its errors of λ and θ in the paper, without noise and with.
type Case = (&'static str, Box<dyn Method>, (f64, f64), (f64, f64));

pub(crate) fn work(effort: Effort, progress: &mut Progress) -> Result<Report> {
    let problem = synthetic::problem(0.1, 0.0)?;
    let methods: [Case; 4] = [
        ("IFT-CG", Box::new(synthetic::cg(100)), (0.0001, 0.0001), (0.0057, 0.0311)),
        ("RMD", Box::new(synthetic::rmd(100)), (0.0127, 0.0141), (0.0124, 0.0150)),
        ("AmIGO-SGD", Box::new(synthetic::amigo_sgd()), (0.0001, 0.0001), (0.0008, 0.0233)),
        ("AmIGO-CG", Box::new(synthetic::amigo_cg()), (0.0001, 0.0001), (0.0057, 0.0311)),
    ];
    let some = |pair: (f64, f64)| (Some(pair.0), Some(pair.1));
    let mut rows = vec![];
    for (name, method, paper, noisy) in methods {
        progress(&format!("{name}, without noise"));
        let plain = ends(&problem, &*method, OUTER, 1..2)?;
        rows.extend(error_rows(NAME, (name, ""), &plain, some(paper), some(paper)));
        progress(&format!("{name}, noisy"));
        let found = runs(&*method, 0.1, effort.choose(20, 400))?;
        rows.extend(error_rows(NAME, (name, "noisy"), &found, some(noisy), (None, None)));
    }
    Ok(Report { rows, figures: vec![] })
}
