//! The hyperparameters on pages: as images if the task defines them, written out if they are few, otherwise sorted.

use crate::pages::plots::{Drawing, Figure};
use crate::run::record::RunRecord;
use crate::terminal::readable::number;
use bilevel_report::{Axis, Column, Curve, Panel, Pictures, Plot, Table, file_stem};
use bilevel_run::LambdaLeaf;

/// A leaf with at most this many numbers is written out.
const FEW: usize = 16;

/// A run with its name.
pub type Named<'a> = (&'a str, &'a RunRecord);

/// λ as images with one scale of colours, the runs one after the other.
fn images(runs: &[Named]) -> Option<Figure> {
    let mut panels = vec![];
    let mut title = String::new();
    for (name, run) in runs {
        let Some((picture, leaf)) = run.picture() else { continue };
        title = format!("The learned {}", leaf.title());
        for i in 0..picture.panels {
            let panel = if name.is_empty() { i.to_string() } else { format!("{i} · {name}") };
            let values = picture.panel(&leaf.values, i);
            panels.push(Panel { title: panel, rows: picture.rows, columns: picture.columns, values });
        }
    }
    let drawing = Drawing::Pictures(Pictures { title, panels });
    Some(Figure { stem: "lambda".into(), drawing }).filter(|figure| match &figure.drawing {
        Drawing::Pictures(pictures) => !pictures.panels.is_empty(),
        Drawing::Plot(_) => true,
    })
}

/// Numbers in rising order over the part of them that is smaller, so that leaves of any size can be compared.
fn sorted(leaf: &LambdaLeaf) -> Vec<(f64, f64)> {
    let mut values: Vec<f64> = leaf.values.iter().copied().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let last = (values.len().max(2) - 1) as f64;
    values.into_iter().enumerate().map(|(i, value)| (100.0 * i as f64 / last, value)).collect()
}

fn sorted_plot(title: String, curves: Vec<Curve>) -> Plot {
    Plot { title, x: Axis::linear("percent of the numbers"), y: Axis::linear(""), curves }
}

/// Returns true if there are few enough numbers to write out.
fn are_few(lambda: &[LambdaLeaf]) -> bool {
    lambda.iter().all(|leaf| leaf.values.len() <= FEW)
}

fn is_written_out(run: &RunRecord) -> bool {
    are_few(&run.lambda)
}

/// These leaves, sorted, in one figure.
fn sorted_figure(leaves: &[&LambdaLeaf]) -> Option<Figure> {
    let alone = leaves.len() == 1;
    let curve = |leaf: &&LambdaLeaf| Curve::new(if alone { String::new() } else { leaf.title() }, sorted(leaf));
    let title = match leaves {
        [] => return None,
        [leaf] => format!("The learned {}, sorted", leaf.title()),
        _ => "The learned λ, sorted".into(),
    };
    Some(Figure::plot("lambda-sorted", sorted_plot(title, leaves.iter().map(curve).collect())))
}

/// The leaves of one run, sorted, if they have too many numbers to write out.
pub fn drawn_sorted(lambda: &[LambdaLeaf]) -> Option<Figure> {
    if are_few(lambda) { None } else { sorted_figure(&lambda.iter().collect::<Vec<_>>()) }
}

/// The figures of λ.
pub fn figures(runs: &[Named]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = images(runs).into_iter().collect();
    let shown = |run: &RunRecord, leaf: &LambdaLeaf| run.picture().is_some_and(|(_, image)| image == leaf);
    let many = |run: &RunRecord, leaf: &LambdaLeaf| !is_written_out(run) && !shown(run, leaf);
    if let [(_, run)] = runs {
        let leaves: Vec<&LambdaLeaf> = run.lambda.iter().filter(|leaf| many(run, leaf)).collect();
        figures.extend(sorted_figure(&leaves));
        return figures;
    }
    let mut titles: Vec<String> = vec![];
    for (_, run) in runs {
        for leaf in run.lambda.iter().filter(|leaf| many(run, leaf)) {
            if !titles.contains(&leaf.title()) {
                titles.push(leaf.title());
            }
        }
    }
    for title in titles {
        let curve = |(name, run): &Named| {
            let leaf = run.lambda.iter().find(|leaf| leaf.title() == title && many(run, leaf))?;
            Some(Curve::new(*name, sorted(leaf)))
        };
        let plot = sorted_plot(format!("The learned {title}, sorted"), runs.iter().filter_map(curve).collect());
        figures.push(Figure::plot(format!("{}-sorted", file_stem(&title)), plot));
    }
    figures
}

/// The leaves of runs with few enough numbers to write out; `None` if there are none.
pub fn table(runs: &[Named]) -> Option<Table> {
    written(runs.iter().filter(|(_, run)| is_written_out(run)).map(|(name, run)| (*name, &run.lambda[..])))
}

/// The leaves of one run, if they have few numbers.
pub fn written_out(lambda: &[LambdaLeaf]) -> Option<Table> {
    if are_few(lambda) { written([("", lambda)].into_iter()) } else { None }
}

fn written<'a>(runs: impl Iterator<Item = (&'a str, &'a [LambdaLeaf])>) -> Option<Table> {
    let mut rows = vec![];
    for (name, lambda) in runs {
        for leaf in lambda {
            let title = if name.is_empty() { leaf.title() } else { format!("{} · {name}", leaf.title()) };
            let values: Vec<String> = leaf.values.iter().copied().map(number).collect();
            rows.push(vec![title, values.join("  ")]);
        }
    }
    let columns = vec![Column::text("hyperparameter"), Column::text("learned")];
    (!rows.is_empty()).then(|| Table { columns, rows, caption: "The learned λ".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_over_percents_and_odd_ones_left_out() {
        let leaf =
            |values: &[f64]| LambdaLeaf { name: String::new(), shape: vec![values.len()], values: values.to_vec() };
        assert_eq!(sorted(&leaf(&[3.0, f64::NAN, 1.0, 2.0])), [(0.0, 1.0), (50.0, 2.0), (100.0, 3.0)]);
        assert_eq!(sorted(&leaf(&[7.0])), [(0.0, 7.0)]);
        assert_eq!(sorted(&leaf(&[])), []);
    }
}
