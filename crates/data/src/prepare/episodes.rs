//! Fixed few-shot episodes, as tables of rows, to compare methods on the same ones. For training, in which every
//! hypergradient draws a new episode, see [`bilevel::Scope::shots`].

use super::draws::Draws;
use crate::error::{Error, Result};
use bilevel::Array;
use bilevel::data::{Classes, Shots};

/// N-way K-shot episodes, one per row. Rows and labels are `i32` and go class by class, as in [`bilevel::data::Episode`].
#[derive(Clone, Debug, PartialEq)]
pub struct Episodes {
    /// Rows to train on, `[episodes, N·K]`.
    pub support: Array,
    /// Rows to be judged on, `[episodes, N·Q]`.
    pub query: Array,
    /// The classes of each episode, `[episodes, N]`.
    pub classes: Array,
    /// The labels of the support rows in 0 … N − 1, `[N·K]`, the same in all episodes.
    pub support_labels: Array,
    /// The labels of the query rows in 0 … N − 1, `[N·Q]`, the same in all episodes.
    pub query_labels: Array,
}

/// Draws `count` episodes: N different classes each, and K + Q different rows of each class.
///
/// ```
/// use bilevel::Key;
/// use bilevel::data::{Classes, Shots};
/// use bilevel_data::prepare::episodes;
/// let labels: Vec<i32> = (0..20).map(|row| row % 4).collect();
/// let shots = Shots { ways: 2, support: 1, query: 3 };
/// let table = episodes(&Classes::from_labels(&labels)?, shots, 600, Key::from_seed(0))?;
/// assert_eq!((table.support.shape(), table.query.shape()), (&[600, 2][..], &[600, 6][..]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn episodes(classes: &Classes, shots: Shots, count: usize, key: bilevel::Key) -> Result<Episodes> {
    let Shots { ways, support, query } = shots;
    let there = classes.names().len();
    if ways == 0 || ways > there {
        return Err(Error::request(format!("episodes of {ways} ways need as many classes, but there are {there}")));
    }
    let each = support.saturating_add(query);
    if let Some(few) = (0..there).find(|class| classes.rows(*class).len() < each) {
        let (name, rows) = (&classes.names()[few], classes.rows(few).len());
        let reason = format!("class '{name}' has {rows} rows, but an episode needs {support} + {query} of each class");
        return Err(Error::request(reason));
    }
    let (mut supports, mut queries, mut chosen) = (vec![], vec![], vec![]);
    let mut draws = Draws::new(key, 2);
    for _ in 0..count {
        for class in first_of(&mut draws, there, ways) {
            let rows = classes.rows(class);
            let drawn: Vec<i32> = first_of(&mut draws, rows.len(), each).into_iter().map(|row| rows[row]).collect();
            supports.extend(&drawn[..support]);
            queries.extend(&drawn[support..]);
            chosen.push(class as i32);
        }
    }
    let labels = |each: usize| {
        Array::from_i32([ways * each], (0..ways).flat_map(|way| std::iter::repeat_n(way as i32, each)).collect())
    };
    Ok(Episodes {
        support: Array::from_i32([count, ways * support], supports)?,
        query: Array::from_i32([count, ways * query], queries)?,
        classes: Array::from_i32([count, ways], chosen)?,
        support_labels: labels(support)?,
        query_labels: labels(query)?,
    })
}

/// The first k of n numbers in a random order.
fn first_of(draws: &mut Draws, n: usize, k: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..n).collect();
    for place in 0..k {
        let other = place + draws.below(n - place);
        numbers.swap(place, other);
    }
    numbers.truncate(k);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_an_episode_are_different_and_of_its_classes() {
        let labels: Vec<i32> = (0..60).map(|row| row % 6).collect();
        let classes = Classes::from_labels(&labels).unwrap();
        let shots = Shots { ways: 3, support: 2, query: 4 };
        let found = episodes(&classes, shots, 50, bilevel::Key::from_seed(3)).unwrap();
        let whole = |array: &Array| array.to_f64().into_iter().map(|value| value as usize).collect::<Vec<_>>();
        let (support, query, chosen) = (whole(&found.support), whole(&found.query), whole(&found.classes));
        for episode in 0..50 {
            let (support, query) = (&support[episode * 6..][..6], &query[episode * 12..][..12]);
            let mut rows = [support, query].concat();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), 18);
            for (place, row) in support.iter().enumerate() {
                assert_eq!(labels[*row] as usize, chosen[episode * 3 + place / 2]);
            }
            for (place, row) in query.iter().enumerate() {
                assert_eq!(labels[*row] as usize, chosen[episode * 3 + place / 4]);
            }
        }
    }
}
