//! Scores on several splits as rows.

use super::NAME;
use bilevel_run::statistics::mean_sd;
use bilevel_run::{Row, Verdict};
use bilevel_tasks::digits::Score;

/// A number to take from the scores on the validation and the test digits.
type Metric = (&'static str, fn([Score; 2]) -> f64);

const METRICS: [Metric; 3] = [
    ("validation loss", |[validation, _]| validation.loss),
    ("test loss", |[_, test]| test.loss),
    ("test accuracy", |[_, test]| test.accuracy),
];

/// Rows of the scores on all splits that arrived.
pub(super) fn score_rows(
    method: &str,
    setting: &str,
    scores: &[Option<[Score; 2]>],
    (expected, cost): (Option<f64>, f64),
) -> Vec<Row> {
    let mut rows: Vec<Row> = METRICS
        .into_iter()
        .map(|(metric, pick)| {
            let values: Vec<f64> = scores.iter().copied().flatten().map(pick).collect();
            let (mean, sd) = mean_sd(&values);
            let row = Row::new(NAME, method, metric, mean).setting(setting).cost(cost);
            let row = if values.len() == 1 { row } else { row.over(sd, values.len() as u32) };
            row.reference(expected.filter(|_| metric == "validation loss"))
        })
        .collect();
    let lost = scores.iter().filter(|s| s.is_none()).count();
    if lost > 0 {
        let why = format!("{lost} of {} runs diverged with the settings chosen on another split", scores.len());
        let row = Row::new(NAME, method, "runs diverged", lost as f64).setting(setting);
        rows.push(Row { seeds: scores.len() as u32, ..row.verdict(Verdict::NotReproduced(why)) });
    }
    rows
}
