//! The study as tables: losses, accuracies, and what each row cost.

use super::Study;
use crate::spread::{Spread, thousands};
use bilevel_report::{Column, Table};
use bilevel_tasks::digits::Score;
use bilevel_tasks::digits::study::Scores;

type Part = (&'static str, fn(&Scores) -> Score);

/// The three parts of the digits.
const PARTS: [Part; 3] = [("training", |s| s.train), ("validation", |s| s.validation), ("test", |s| s.test)];

fn over(study: &Study) -> String {
    match study.plan.splits.len() {
        1 => "one split".into(),
        n => format!("mean ± sd of {n} splits"),
    }
}

/// Losses.
pub fn losses(study: &Study) -> Table {
    let cell = |name: &str, part: &Part| study.spread(name, |scores| part.1(scores).loss).fixed(3);
    table(study, format!("Loss, {}", over(study)), &cell)
}

/// Accuracies, with cost and time.
pub fn accuracies(study: &Study) -> Table {
    let cell = |name: &str, part: &Part| study.spread(name, |scores| 100.0 * part.1(scores).accuracy).fixed(1);
    let mut table = table(study, format!("Accuracy in %, {}", over(study)), &cell);
    table.columns.extend([Column::numeric("gradients"), Column::numeric("seconds")]);
    for (row, name) in table.rows.iter_mut().zip(study.names()) {
        let mean = |pick: fn(&super::Trial) -> f64| Spread::of(&study.trials(name).map(pick).collect::<Vec<_>>()).mean;
        row.extend([thousands(mean(|trial| trial.cost)), format!("{:.1}", mean(|trial| trial.seconds))]);
    }
    table
}

fn table(study: &Study, caption: String, cell: &dyn Fn(&str, &Part) -> String) -> Table {
    let row = |name: &'static str| {
        std::iter::once(name.to_string()).chain(PARTS.iter().map(|part| cell(name, part))).collect()
    };
    Table {
        columns: std::iter::once(Column::text("weights")).chain(PARTS.map(|part| Column::numeric(part.0))).collect(),
        rows: study.names().into_iter().map(row).collect(),
        caption,
    }
}

/// Both tables for a terminal.
pub fn text(study: &Study) -> String {
    format!("{}\n{}", losses(study).text(100), accuracies(study).text(100))
}
