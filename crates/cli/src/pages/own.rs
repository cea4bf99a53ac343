//! The report of a run that was driven by the library, without the command and without a folder.

use crate::errors::Result;
use crate::pages::plots::{self, Figure};
use crate::pages::run::named;
use crate::terminal::readable::{count, duration, number, number_or_dash, sentence};
use bilevel::observers::Iteration;
use bilevel::{AnyProblem, Outcome, Tree};
use bilevel_report::{Column, Report, Section, Table};
use bilevel_run::LambdaLeaf;
use bilevel_run::run::History;

/// A page on a run: its results, the curves of its losses and measures, the learned λ, the hypergradient, the diagnosis
/// and the cost. `iterations` are those of a [`Recorder`](bilevel::observers::Recorder).
///
/// ```
/// use bilevel::observers::Recorder;
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.1)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - 2.0).square() + l.0 * t.0.square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .measure("distance of λ from 1", |_, l, _| (l.0 - 1.0).abs())
///     .build()?;
/// let recorder = Recorder::new();
/// let driver = Driver::new(&problem, LangevinAdjoint::default());
/// let outcome = driver.measure_every(5).observe(recorder.clone()).run()?;
/// let page = bilevel_cli::report_of("Which weight decay?", &problem, &recorder.iterations(), &outcome)?.html();
/// assert!(page.contains("Which weight decay?") && page.contains("distance of λ from 1") && page.contains("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn report_of<L: Tree, T: Tree>(
    title: &str,
    problem: &AnyProblem,
    iterations: &[Iteration],
    outcome: &Outcome<L, T>,
) -> Result<Report> {
    let history = History::of(iterations);
    let leaves = problem.lambda_names().into_iter().zip(outcome.lambda.leaves());
    let lambda: Vec<LambdaLeaf> = leaves.map(|(name, array)| LambdaLeaf::new(name, array)).collect();

    let mut sections = vec![Section::Warnings(outcome.notes.iter().map(|note| sentence(note) + ".").collect())];
    sections.push(Section::Table(found(outcome)));
    sections.extend(crate::pages::lambda::written_out(&lambda).map(Section::Table));
    let runs = [("", &history)];
    let mut figures = plots::losses_and_measures(&runs);
    figures.extend(crate::pages::lambda::drawn_sorted(&lambda));
    figures.extend(plots::hypergradient(&runs, &outcome.output.to_string()));
    figures.extend(plots::diagnostics(&runs));
    sections.extend(figures.into_iter().map(Figure::section));
    sections.push(Section::Table(cost(outcome, &history)));
    let footer = format!("bilevel {}", crate::run::provenance::VERSION);
    Ok(Report { title: title.into(), subtitle: outcome.reason.to_string(), sections, footer })
}

/// A table of names and their values.
fn table(caption: &str, of: &str, rows: Vec<(String, String)>) -> Table {
    let rows = rows.into_iter().map(|(name, value)| vec![name, value]).collect();
    Table { columns: vec![Column::text("quantity"), Column::numeric(of)], rows, caption: caption.into() }
}

fn found<L: Tree, T: Tree>(outcome: &Outcome<L, T>) -> Table {
    let last = outcome.last.as_ref();
    let mut rows = vec![
        ("outer loss".into(), number_or_dash(last.map(|last| last.outer_loss))),
        ("lowest outer loss".into(), number_or_dash(outcome.best_outer_loss)),
        ("inner loss".into(), number_or_dash(last.map(|last| last.inner_loss))),
    ];
    rows.extend(outcome.measures.iter().map(|(name, value)| (name.to_string(), number(value))));
    if let Some(best) = &outcome.best {
        let name = format!("best {}, after iteration {}", best.aim.measure(), best.iteration);
        rows.push((name, number(best.value)));
    }
    rows.push((format!("norm of the {}", outcome.output), number_or_dash(last.map(|last| last.hypergradient_norm))));
    table("Results", "at the end", rows)
}

fn cost<L: Tree, T: Tree>(outcome: &Outcome<L, T>, history: &History) -> Table {
    let mut rows = vec![
        ("outer iterations".to_string(), count(outcome.iterations.into())),
        ("time".into(), duration(outcome.elapsed.as_secs_f64())),
    ];
    let counts = history.last().map(|row| named(&row.oracles)).into_iter().flatten();
    rows.extend(counts.filter(|(_, times)| *times > 0).map(|(name, times)| (name.to_string(), count(times))));
    table("Cost", "in all", rows)
}
