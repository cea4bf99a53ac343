//! Whether the methods have the same order as found before.

use bilevel_run::Verdict;
use bilevel_run::statistics::mean_sd;

/// A method's validation loss found before, and on each split now.
pub(super) struct Entry {
    pub method: String,
    pub expected: Option<f64>,
    pub losses: Vec<Option<f64>>,
}

/// a − b over the splits, and its standard error.
fn difference(a: &Entry, b: &Entry) -> (f64, f64) {
    let pairs = a.losses.iter().zip(&b.losses).filter_map(|(a, b)| Some((*a)? - (*b)?));
    let differences: Vec<f64> = pairs.collect();
    let (mean, sd) = mean_sd(&differences);
    (mean, sd / (differences.len() as f64).sqrt())
}

/// `Reproduced` unless another method has changed sides with this one by more than two standard errors of the
/// difference over the same splits. A single split decides nothing.
pub(super) fn verdict(entry: &Entry, all: &[Entry]) -> Verdict {
    let Some(expected) = entry.expected else { return Verdict::NotClaimed };
    if entry.losses.len() < 2 {
        return Verdict::NotClaimed;
    }
    let (mut passed, mut fell) = (vec![], vec![]);
    for other in all {
        let Some(theirs) = other.expected.filter(|theirs| *theirs != expected) else { continue };
        let (mean, error) = difference(entry, other);
        if expected > theirs && mean < -2.0 * error {
            passed.push(other.method.as_str());
        } else if expected < theirs && mean > 2.0 * error {
            fell.push(other.method.as_str());
        }
    }
    let part = |word: &str, names: Vec<&str>| (!names.is_empty()).then(|| format!("now {word} {}", names.join(", ")));
    let parts: Vec<String> = [part("ahead of", passed), part("behind", fell)].into_iter().flatten().collect();
    Verdict::when(parts.is_empty(), format!("another order: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(method: &str, expected: f64, losses: &[f64]) -> Entry {
        let losses = losses.iter().map(|l| Some(*l)).collect();
        Entry { method: method.into(), expected: Some(expected), losses }
    }

    #[test]
    fn only_a_clear_change_of_order_counts() {
        let all = [
            entry("a", 0.1, &[0.30, 0.31, 0.32]),
            entry("b", 0.2, &[0.20, 0.21, 0.22]),
            entry("c", 0.3, &[0.19, 0.23, 0.20]),
        ];
        let Verdict::NotReproduced(why) = verdict(&all[0], &all) else { panic!() };
        assert_eq!(why, "another order: now behind b, c");
        let Verdict::NotReproduced(why) = verdict(&all[1], &all) else { panic!() };
        assert_eq!(why, "another order: now ahead of a");
        assert_eq!(verdict(&all[1], &all[1..]), Verdict::Reproduced);
    }

    #[test]
    fn one_split_decides_nothing() {
        let all = [entry("a", 0.1, &[0.3]), entry("b", 0.2, &[0.2])];
        assert_eq!(verdict(&all[0], &all), Verdict::NotClaimed);
    }
}
