//! The toy polynomial: many inner optima for each λ, one chosen at random or all averaged.
//!
//! Model λx³ + θ₂x² + θ₁x + θ₀ through both training points (−0.75, −0.375) and (0.75, −0.675), which leaves θ₂ free:
//! θ₁ = −0.2 − 0.5625λ, θ₀ = −0.525 − 0.5625θ₂. Validation at (−0.5, −0.3) and (0.5, −0.5).

use bilevel::graph::random::fill_uniform_f64;
use bilevel::{Key, Result};
use bilevel_run::{
    Findings, Finished, Item, Measure, Place, Plan, Row, Series, Study, Verdict, figure, statistics::mean_sd,
};
use serde::Serialize;

const NAME: &str = "toy-polynomial";
const COLUMNS: usize = 11;
const ROWS: usize = 21;
const ZERO: usize = ROWS / 2;

fn grid(i: usize, count: usize) -> f64 {
    -1.0 + 2.0 * i as f64 / (count - 1) as f64
}

fn polynomial(lambda: f64, theta2: f64, x: f64) -> f64 {
    let (theta1, theta0) = (-0.2 - 0.5625 * lambda, -0.525 - 0.5625 * theta2);
    ((lambda * x + theta2) * x + theta1) * x + theta0
}

fn loss(data: [(f64, f64); 2], lambda: f64, theta2: f64) -> f64 {
    data.map(|(x, y)| (polynomial(lambda, theta2, x) - y).powi(2)).iter().sum()
}

fn validation(row: usize, column: usize) -> f64 {
    loss([(-0.5, -0.3), (0.5, -0.5)], grid(row, ROWS), grid(column, COLUMNS))
}

/// Smaller by more than rounding: equal losses of ±λ are ties.
fn less(a: f64, b: f64) -> bool {
    a < b - 1e-12
}

/// The chance that λ = 0 has the smallest loss of all when every row picks a column at random. A tie counts as not found:
/// the grid has exact ones, such as θ₂ = −0.2 at λ = 0 with θ₂ = −0.4 at λ = ±0.4. If they counted as found, it would
/// be 0.197.
fn probability() -> f64 {
    let chance = |column: usize| -> f64 {
        let own = validation(ZERO, column);
        let share = |row| (0..COLUMNS).filter(|c| less(own, validation(row, *c))).count() as f64 / COLUMNS as f64;
        (0..ROWS).filter(|row| *row != ZERO).map(share).product()
    };
    (0..COLUMNS).map(chance).sum::<f64>() / COLUMNS as f64
}

/// The number of 20 runs with random columns that find λ = 0.
fn twenty_runs(seed: u64) -> f64 {
    let mut draws = vec![0.0; 20 * ROWS];
    fill_uniform_f64(Key::from_seed(seed).words(), 0, 0, 0, &mut draws);
    let found = |run: &[f64]| {
        let pick = |row: usize| validation(row, ((run[row] * COLUMNS as f64) as usize).min(COLUMNS - 1));
        (0..ROWS).filter(|row| *row != ZERO).all(|row| less(pick(ZERO), pick(row)))
    };
    draws.chunks(ROWS).filter(|run| found(run)).count() as f64
}

/// Sets of 20 runs, counted.
#[derive(Serialize)]
struct Sets {
    first: u64,
    sets: u64,
}

impl Measure for Sets {
    type Found = Vec<f64>;

    fn take(&self, _: &Place) -> Result<Vec<f64>> {
        Ok((self.first..self.first + self.sets).map(twenty_runs).collect())
    }
}

const ITEM: &str = "twenty-runs";

/// The study.
pub(super) struct ToyPolynomial;

impl Study for ToyPolynomial {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Toy polynomial: one inner optimum or all of them"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        Ok(vec![Item::measure(ITEM, Sets { first: plan.seed, sets: plan.choose(200, 5000) })])
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let at_tenth: Vec<f64> = (0..COLUMNS).map(|c| validation(11, c)).collect();
        // The paper's good one is not the best of the grid (θ₂ = −0.4, loss 0.0005) but the next.
        let best = at_tenth[2];
        let worst = at_tenth.iter().copied().fold(0.0, f64::max);
        let chance = probability();
        let counts: Vec<f64> = done.measured(ITEM)?;
        let (mean, sd) = mean_sd(&counts);
        let average = |row: usize| (0..COLUMNS).map(|c| validation(row, c)).sum::<f64>() / COLUMNS as f64;
        let chosen = (0..ROWS).min_by(|a, b| average(*a).total_cmp(&average(*b))).map_or(f64::NAN, |r| grid(r, ROWS));

        let row = |method: &str, metric, ours| Row::new(NAME, method, metric, ours);
        let rows = vec![
            row("good θ*(λ)", "validation loss", best)
                .setting("λ = 0.1, θ₂ = −0.6")
                .paper(0.0083)
                .reference(0.0083)
                .verdict(Verdict::when(format!("{best:.4}") == "0.0083", "another grid")),
            row("poor θ*(λ)", "validation loss", worst)
                .setting("λ = 0.1, θ₂ = 1")
                .paper(0.3833)
                .reference(0.3833)
                .verdict(Verdict::when(format!("{worst:.4}") == "0.3833", "another grid")),
            row("random column", "P(λ = 0)", chance).setting("exact").paper(3.0 / 20.0).reference(0.178).verdict(
                Verdict::when((chance - 0.15).abs() < 3.0 * (chance * (1.0 - chance) / 20.0).sqrt(), "too far"),
            ),
            row("random column", "found of 20 runs", mean)
                .setting("simulated")
                .paper(3.0)
                .reference(20.0 * 0.178)
                .over(sd, counts.len() as u32)
                .verdict(Verdict::when((mean - 3.0).abs() < 3.0 * sd, "too far")),
            row("average of all", "λ chosen", chosen)
                .setting("always")
                .paper(0.0)
                .reference(0.0)
                .verdict(Verdict::when(chosen.abs() < 1e-12, "another λ has a smaller average")),
        ];
        let mut series: Vec<Series> = (0..COLUMNS)
            .map(|c| {
                (
                    format!("θ₂ = {:.1}", grid(c, COLUMNS)).replace('-', "−"),
                    (0..ROWS).map(|r| (grid(r, ROWS), validation(r, c))).collect(),
                )
            })
            .collect();
        series.push(("average".into(), (0..ROWS).map(|r| (grid(r, ROWS), average(r))).collect()));
        let fit = |theta2: f64| (0..=40).map(|i| (grid(i, 41), polynomial(0.1, theta2, grid(i, 41)))).collect();
        let theta2_of = |value: f64| grid(at_tenth.iter().position(|v| *v == value).unwrap_or(0), COLUMNS);
        let plots = vec![
            figure("Outer loss of every inner optimum", "λ", "validation loss", series),
            figure(
                "Two inner optima at λ = 0.1",
                "x",
                "f(x)",
                vec![
                    (format!("good, loss {best:.4}"), fit(theta2_of(best))),
                    (format!("poor, loss {worst:.4}"), fit(theta2_of(worst))),
                    ("training data".into(), vec![(-0.75, -0.375), (0.75, -0.675)]),
                    ("validation data".into(), vec![(-0.5, -0.3), (0.5, -0.5)]),
                ],
            ),
        ];
        Ok(Findings::new(rows, plots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_grid_is_an_inner_optimum() {
        for (row, column) in (0..ROWS).flat_map(|r| (0..COLUMNS).map(move |c| (r, c))) {
            let inner = loss([(-0.75, -0.375), (0.75, -0.675)], grid(row, ROWS), grid(column, COLUMNS));
            assert!(inner < 1e-28, "{inner:e}");
        }
    }

    #[test]
    fn the_exact_probability_agrees_with_a_simulation() {
        let (mean, sd) = mean_sd(&(0..2000).map(|seed| twenty_runs(seed) / 20.0).collect::<Vec<_>>());
        assert!((mean - probability()).abs() < 3.0 * sd / 2000f64.sqrt(), "{mean} {}", probability());
        assert_eq!(format!("{:.3}", probability()), "0.178");
    }
}
