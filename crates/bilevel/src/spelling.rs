//! Which known word was probably meant: letters changed, added, left out, or swapped with their neighbour.

/// Bytes of the shortest beginning of a word that is understood.
const SHORTEST_BEGINNING: usize = 3;

/// The word nearest to one that is not known, if it is near enough to be a slip of the finger, or the only one that begins with it.
///
/// ```
/// assert_eq!(bilevel::errors::nearest("stpe", ["step", "steps", "samples"]), Some("step"));
/// assert_eq!(bilevel::errors::nearest("gauss", ["hessian", "gauss-newton"]), Some("gauss-newton"));
/// assert_eq!(bilevel::errors::nearest("colour", ["step"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let measured = known.iter().map(|candidate| (osa_distance(word, candidate), *candidate));
    let (changes, candidate) = measured.min_by_key(|(changes, _)| *changes)?;
    let length = word.chars().count().max(candidate.chars().count());
    if changes * 5 <= length * 2 + 2 {
        return Some(candidate);
    }
    let mut begun =
        known.into_iter().filter(|candidate| word.len() >= SHORTEST_BEGINNING && candidate.starts_with(word));
    begun.next().filter(|_| begun.next().is_none())
}

/// Known words, the nearest to another first.
///
/// ```
/// assert_eq!(bilevel::errors::by_nearness("stpe", ["samples", "steps", "step"])[0], "step");
/// ```
pub fn by_nearness<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut measured: Vec<_> = known.into_iter().map(|candidate| (osa_distance(word, candidate), candidate)).collect();
    measured.sort();
    measured.into_iter().map(|(_, candidate)| candidate).collect()
}

/// The number of single letters to change, add, leave out or swap with their neighbour to turn one word into the other
/// (optimal string alignment):
///
/// D(i, j) = min(D(i − 1, j) + 1, D(i, j − 1) + 1, D(i − 1, j − 1) + [aᵢ ≠ bⱼ]), and also D(i − 2, j − 2) + 1 if the
/// last two letters are swapped.
fn osa_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::osa_distance;

    #[test]
    fn every_slip_of_the_finger_counts_once() {
        for (a, b, distance) in [
            ("", "", 0),
            ("", "step", 4),
            ("step", "step", 0),
            ("stpe", "step", 1),
            ("stp", "step", 1),
            ("stepp", "step", 1),
            ("stap", "step", 1),
            ("ca", "abc", 3),
            ("θλ", "λθ", 1),
        ] {
            assert_eq!((osa_distance(a, b), osa_distance(b, a)), (distance, distance), "{a} and {b}");
        }
    }
}
