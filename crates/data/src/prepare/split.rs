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
        Err(Error::request(format!("the shares {shares:?} must be between 0 and 1 and add up to at most 1")))
    }
}

/// Part k is between the sum of the shares before it and the sum up to it.
fn deal(rows: &[usize], shares: &[f64], parts: &mut [Vec<usize>]) {
    let (mut from, mut sum) = (0, 0.0);
    for (share, part) in shares.iter().zip(parts) {
        sum += share;
        let to = ((sum * rows.len() as f64).round() as usize).clamp(from, rows.len());
        part.extend(&rows[from..to]);
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_part_and_every_class_in_its_proportion() {
        let labels: Vec<i32> = (0..103).map(|row| if row % 10 == 0 { 7 } else { row % 3 }).collect();
        for seed in 0..20 {
            let parts = split_by_class(&labels, &[0.6, 0.3, 0.1], Key::from_seed(seed)).unwrap();
            let mut all = parts.concat();
            all.sort_unstable();
            assert_eq!(all, (0..103).collect::<Vec<_>>());
            for class in [0, 1, 2, 7] {
                let count = |rows: &[usize]| rows.iter().filter(|row| labels[**row] == class).count() as f64;
                let whole = count(&all);
                for (part, share) in parts.iter().zip([0.6, 0.3, 0.1]) {
                    assert!((count(part) - share * whole).abs() < 1.0 + 1e-9, "class {class}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn what_the_shares_leave_over_is_in_no_part_and_another_seed_is_another_split() {
        let parts = |seed| split(100, &[0.5, 0.25], Key::from_seed(seed)).unwrap();
        assert_eq!(parts(0).iter().map(Vec::len).collect::<Vec<_>>(), [50, 25]);
        assert!(parts(0)[0].iter().all(|row| !parts(0)[1].contains(row)));
        assert_ne!(parts(0), parts(1));
        assert!(split(0, &[1.0], Key::from_seed(0)).unwrap()[0].is_empty());
        for wrong in [&[1.5][..], &[-0.1], &[f64::NAN], &[0.9, 0.2]] {
            assert!(split(10, wrong, Key::from_seed(0)).is_err(), "{wrong:?}");
        }
    }
}
