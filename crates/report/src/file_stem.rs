//! Titles as names of files, in letters that every file system, shell and server takes.

/// Letters of a name at most.
const LONGEST: usize = 60;

/// The Greek alphabet from α to ω, with the two forms of σ.
const GREEK: [&str; 25] = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
];

/// A title as the name of a file: ASCII letters and digits in lower case, with hyphens between words. Greek letters are spelt out;
/// the name is empty if nothing is left.
///
/// ```
/// use bilevel_report::file_stem;
/// assert_eq!(file_stem("Distance of λ from the optimum!"), "distance-of-lambda-from-the-optimum");
/// assert_eq!(file_stem("Δθ², τ = 1e-6"), "delta-theta-tau-1e-6");
/// assert_eq!(file_stem("…"), "");
/// ```
pub fn file_stem(title: &str) -> String {
    let mut name = String::new();
    for letter in title.chars().flat_map(char::to_lowercase) {
        match letter {
            'α'..='ω' => {
                let spelt = GREEK[letter as usize - 'α' as usize];
                // A letter becomes a separate word.
                name += &format!("-{spelt}-");
            }
            _ if letter.is_ascii_alphanumeric() => name.push(letter),
            _ => name.push('-'),
        }
    }
    let words: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
    let joined = words.join("-");
    joined[..joined.len().min(LONGEST)].trim_end_matches('-').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_short_and_ascii() {
        for title in ["λ by amigo-cg, mean of 2 seeds", "Ω", "ς and σ", "naïve café", "日本", &"λ".repeat(100)]
        {
            let stem = file_stem(title);
            assert!(stem.len() <= LONGEST && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{stem}");
            assert!(!stem.starts_with('-') && !stem.ends_with('-') && !stem.contains("--"), "{stem}");
        }
        assert_eq!(file_stem("λ by amigo-cg, mean of 2 seeds"), "lambda-by-amigo-cg-mean-of-2-seeds");
        assert_eq!(file_stem("Ω"), "omega");
        assert_eq!(file_stem("ς and σ"), "sigma-and-sigma");
    }
}
