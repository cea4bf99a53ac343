//! Which known word was probably meant: letters changed, added, left out, or swapped with their neighbour.

use strsim::osa_distance;

/// Bytes of the shortest beginning of a word that is understood.
const SHORTEST_BEGINNING: usize = 3;

/// The word nearest to one that is not known, if it is near enough to be a slip of the finger, or the only one that begins with it.
///
/// ```
/// assert_eq!(bilevel::nearest("stpe", ["step", "steps", "samples"]), Some("step"));
/// assert_eq!(bilevel::nearest("gauss", ["hessian", "gauss-newton"]), Some("gauss-newton"));
/// assert_eq!(bilevel::nearest("colour", ["step"]), None);
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
/// assert_eq!(bilevel::by_nearness("stpe", ["samples", "steps", "step"])[0], "step");
/// ```
pub fn by_nearness<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut measured: Vec<_> = known.into_iter().map(|candidate| (osa_distance(word, candidate), candidate)).collect();
    measured.sort();
    measured.into_iter().map(|(_, candidate)| candidate).collect()
}
