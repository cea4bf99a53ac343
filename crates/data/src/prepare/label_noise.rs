//! Deliberately wrong labels. Independently for each row, with probability `rate`, a label becomes
//!
//!   any of the C classes, all equally likely (`uniform_labels`): it is wrong with probability rate·(C − 1)/C
//!   any of the C − 1 other classes (`flipped_labels`): it is wrong with probability rate

use super::draws::Draws;
use crate::error::{Error, Result};
use bilevel::Key;

/// Labels, some of them wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noisy {
    /// The labels.
    pub labels: Vec<i32>,
    /// Marks the labels that differ from the true ones.
    pub wrong: Vec<bool>,
}

/// Replaces each label, with this probability, by one drawn from all classes, including the true one.
///
/// ```
/// use bilevel::Key;
/// use bilevel_data::prepare::uniform_labels;
/// let noisy = uniform_labels(&[0; 1000], 10, 0.5, Key::from_seed(0))?;
/// let share = noisy.wrong.iter().filter(|wrong| **wrong).count() as f64 / 1000.0;
/// assert!((share - 0.45).abs() < 0.06);
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn uniform_labels(labels: &[i32], classes: usize, rate: f64, key: Key) -> Result<Noisy> {
    noisy(labels, classes, rate, key, |draws, _| draws.below(classes))
}

/// Replaces each label, with this probability, by that of another class.
///
/// ```
/// use bilevel::Key;
/// use bilevel_data::prepare::flipped_labels;
/// let noisy = flipped_labels(&[0, 1, 1], 2, 1.0, Key::from_seed(0))?;
/// assert_eq!((noisy.labels, noisy.wrong), (vec![1, 0, 0], vec![true; 3]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn flipped_labels(labels: &[i32], classes: usize, rate: f64, key: Key) -> Result<Noisy> {
    if classes < 2 {
        return Err(Error::request("labels can be flipped only if there are at least two classes"));
    }
    // Numbers from the true one on are moved by one, past it.
    noisy(labels, classes, rate, key, |draws, label| {
        let other = draws.below(classes - 1);
        other + usize::from(other >= label)
    })
}

fn noisy(
    labels: &[i32],
    classes: usize,
    rate: f64,
    key: Key,
    mut other: impl FnMut(&mut Draws, usize) -> usize,
) -> Result<Noisy> {
    if !(0.0..=1.0).contains(&rate) {
        return Err(Error::request(format!("a noise of {rate} is not a probability")));
    }
    if let Some(label) = labels.iter().find(|label| !(0..classes as i64).contains(&i64::from(**label))) {
        return Err(Error::request(format!("there is a label {label}, but there are {classes} classes")));
    }
    let mut draws = Draws::new(key, 1);
    let replaced = labels.iter().map(|label| {
        // Both are drawn for every row, so that the rows replaced at a low rate are among those replaced at a higher
        // one.
        let (chosen, other) = (draws.uniform() < rate, other(&mut draws, *label as usize));
        if chosen { other as i32 } else { *label }
    });
    let replaced: Vec<i32> = replaced.collect();
    let wrong = replaced.iter().zip(labels).map(|(new, old)| new != old).collect();
    Ok(Noisy { labels: replaced, wrong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_noise_is_added_to_less() {
        let (labels, key) = ((0..5000).map(|row| row % 10).collect::<Vec<i32>>(), Key::from_seed(2));
        for noise in [uniform_labels, flipped_labels] {
            let [none, less, more] = [0.0, 0.2, 0.4].map(|rate| noise(&labels, 10, rate, key).unwrap());
            assert_eq!(none.labels, labels);
            let rows = less.wrong.iter().zip(&more.wrong).zip(less.labels.iter().zip(&more.labels));
            assert!(rows.into_iter().all(|((less, more), (a, b))| !less || (*more && a == b)));
        }
    }

    #[test]
    fn flips_reach_every_other_class_equally_often() {
        let noisy = flipped_labels(&[3; 9000], 10, 1.0, Key::from_seed(4)).unwrap();
        let mut counts = [0; 10];
        noisy.labels.iter().for_each(|label| counts[*label as usize] += 1);
        // 1000 each, with a standard deviation of 30.
        let even = |class: &usize| (870..1130).contains(&counts[*class]);
        assert!(counts[3] == 0 && (0..10).filter(|class| *class != 3).all(|class| even(&class)), "{counts:?}");
    }

    #[test]
    fn rates_and_labels_that_cannot_be_are_refused() {
        let key = Key::from_seed(0);
        assert!(uniform_labels(&[0], 2, 1.1, key).is_err() && uniform_labels(&[0], 2, f64::NAN, key).is_err());
        assert!(uniform_labels(&[2], 2, 0.5, key).is_err() && uniform_labels(&[-1], 2, 0.5, key).is_err());
        assert!(flipped_labels(&[0], 1, 0.5, key).is_err());
    }
}
