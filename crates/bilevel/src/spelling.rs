//! Which known word was probably meant.

/// The word nearest to one that is not known, if it is near enough to be a slip of the finger.
///
/// ```
/// assert_eq!(bilevel::nearest("stpe", ["step", "steps", "samples"]), Some("step"));
/// assert_eq!(bilevel::nearest("colour", ["step"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let measured = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (changes, candidate) = measured.min_by_key(|(changes, _)| *changes)?;
    let length = word.chars().count().max(candidate.chars().count());
    (changes * 5 <= length * 2 + 2).then_some(candidate)
}

/// Known words, the nearest to another first.
///
/// ```
/// assert_eq!(bilevel::by_nearness("stpe", ["samples", "steps", "step"])[0], "step");
/// ```
pub fn by_nearness<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut measured: Vec<_> = known.into_iter().map(|candidate| (distance(word, candidate), candidate)).collect();
    measured.sort();
    measured.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Letters to change, add, leave out, or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]) as usize;
                let plain = change.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { plain.min(table[i - 2][j - 2] + 1) } else { plain }
            };
        }
    }
    table[a.len()][b.len()]
}
