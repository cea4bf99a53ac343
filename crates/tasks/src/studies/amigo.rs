//! AmIGO beside the other methods, on the synthetic and the noisy synthetic 1-D problem: errors of λ and θ.

use super::synthetic::{self, NOISE, PAPER_OPTIMUM};
use crate::runs::{Ends, over_seeds};
use crate::statistics::mean_sd;
use crate::{Findings, Finished, Item, Plan, Row, Study, Verdict, label};
use bilevel::{AnyMethod, Result};

/// Rows of the mean absolute error of λ and of θ, from the optimum as the paper rounds it. A deterministic one is held to
/// the printed digits; of several runs the paper's should be one that could have been among them.
pub(crate) fn error_rows(
    study: &str,
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
        let row = Row::new(study, method, metric, mean).setting(setting).paper(paper).reference(expected);
        let row = row.cost(ends.cost);
        let row = if errors.len() > 1 { row.over(sd, errors.len() as u32) } else { row };
        let verdict = match paper.or(expected) {
            Some(printed) if errors.len() == 1 => Verdict::to_four_digits(mean, printed, "another error"),
            Some(printed) => Verdict::when(
                (mean - printed).abs() <= 3.0 * sd + 1e-4,
                "the paper's result is outside the range of \
                 our draws",
            ),
            None => Verdict::NotClaimed,
        };
        row.verdict(verdict)
    };
    let mut rows: Vec<Row> = sides.map(row).into();
    if ends.diverged > 0 {
        let all = ends.diverged + ends.lambda.len() as u32;
        let why = format!("{} of {all} runs diverged; the paper mentions none", ends.diverged);
        let row = Row::new(study, method, "runs diverged", ends.diverged as f64).setting(setting);
        rows.push(Row { seeds: all, ..row.verdict(Verdict::NotReproduced(why)) });
    }
    rows
}

const NAME: &str = "amigo";

/// A method with its errors of λ and θ in the paper, without noise and with.
type Case = (&'static str, AnyMethod, (f64, f64), (f64, f64));

fn cases() -> [Case; 4] {
    [
        ("IFT-CG", synthetic::cg(100).into(), (0.0001, 0.0001), (0.0057, 0.0311)),
        ("RMD", synthetic::rmd(100).into(), (0.0127, 0.0141), (0.0124, 0.0150)),
        ("AmIGO-SGD", synthetic::amigo_sgd().into(), (0.0001, 0.0001), (0.0008, 0.0233)),
        ("AmIGO-CG", synthetic::amigo_cg().into(), (0.0001, 0.0001), (0.0057, 0.0311)),
    ]
}

fn labels(method: &str) -> [String; 2] {
    [label(method), label(&format!("{method} noisy"))]
}

/// The study.
pub(super) struct Amigo;

impl Study for Amigo {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "AmIGO on synthetic 1-D"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let (plain, noisy) = (synthetic::run(plan, 0.0)?, synthetic::run(plan, NOISE)?);
        let items = cases().into_iter().flat_map(|(name, method, ..)| {
            let [alone, with_noise] = labels(name);
            let (first, seeds) = (plan.seed, plan.choose(20, 400));
            [
                over_seeds(alone, plain.clone().by(method.clone()), first + 1..first + 2),
                over_seeds(with_noise, noisy.clone().by(method), first..first + seeds),
            ]
        });
        Ok(items.collect())
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let some = |pair: (f64, f64)| (Some(pair.0), Some(pair.1));
        let mut rows = vec![];
        for (name, _, paper, noisy) in cases() {
            let [alone, with_noise] = labels(name);
            rows.extend(error_rows(NAME, (name, ""), &done.measured(&alone)?, some(paper), some(paper)));
            rows.extend(error_rows(NAME, (name, "noisy"), &done.measured(&with_noise)?, some(noisy), (None, None)));
        }
        Ok(Findings::new(rows, []))
    }
}
