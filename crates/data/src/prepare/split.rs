//! Which rows are for training, validation and testing.

use super::draws::Draws;
use crate::error::{Error, Result};
use bilevel::Key;

/// The rows 0 … count − 1 in a random order.
///
/// ```
/// use bilevel::Key;
/// use bilevel_data::prepare::shuffled;
/// let order = shuffled(5, Key::from_seed(0));
/// assert_eq!(order, shuffled(5, Key::from_seed(0)));
/// let mut sorted = order;
/// sorted.sort();
/// assert_eq!(sorted, [0, 1, 2, 3, 4]);
/// ```
pub fn shuffled(count: usize, key: Key) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..count).collect();
    Draws::new(key, 0).shuffle(&mut rows);
    rows
}

/// Splits the rows at random into parts with these shares, which add up to at most 1. Each part is sorted, and its size
/// differs from its share by less than one row.
///
/// ```
/// use bilevel::Key;
/// use bilevel_data::prepare::split;
/// let parts = split(10, &[0.8, 0.2], Key::from_seed(0))?;
/// assert_eq!((parts[0].len(), parts[1].len()), (8, 2));
/// assert!(split(10, &[0.8, 0.3], Key::from_seed(0)).is_err());
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn split(count: usize, shares: &[f64], key: Key) -> Result<Vec<Vec<usize>>> {
    check(shares)?;
    let mut parts = vec![vec![]; shares.len()];
    deal(&shuffled(count, key), shares, &mut parts);
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

/// Splits each class separately, so that every part has the classes in the same proportions.
///
/// ```
/// use bilevel::Key;
/// use bilevel_data::prepare::split_by_class;
/// let labels = [0, 0, 0, 0, 1, 1];
/// let parts = split_by_class(&labels, &[0.5, 0.5], Key::from_seed(0))?;
/// assert!(parts.iter().all(|part| part.iter().filter(|row| labels[**row] == 1).count() == 1));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn split_by_class(labels: &[i32], shares: &[f64], key: Key) -> Result<Vec<Vec<usize>>> {
    check(shares)?;
    // Sorted by label, and at random within it.
    let mut rows = shuffled(labels.len(), key);
    rows.sort_by_key(|row| labels[*row]);
    let mut parts = vec![vec![]; shares.len()];
    rows.chunk_by(|a, b| labels[*a] == labels[*b]).for_each(|class| deal(class, shares, &mut parts));
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

fn check(shares: &[f64]) -> Result<()> {
    let fine = shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares.iter().sum::<f64>() <= 1.0 + 1e-9;
    if fine {
        Ok(())
    } else {
        Err(Error::request(format!("the shares {shares:?} must lie in 0 … 1 and add up to at most 1")))
    }
}

/// Part k is what lies between the shares before it and those up to it.
fn deal(rows: &[usize], shares: &[f64], parts: &mut [Vec<usize>]) {
    let (mut from, mut sum) = (0, 0.0);
    for (share, part) in shares.iter().zip(parts) {
        sum += share;
        let to = ((sum * rows.len() as f64).round() as usize).clamp(from, rows.len());
        part.extend(&rows[from..to]);
        from = to;
    }
}
