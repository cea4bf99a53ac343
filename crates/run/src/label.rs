//! Names of items as folders can have them.

/// Words as one name: letters and digits of ASCII in lower case, with hyphens between them.
///
/// ```
/// assert_eq!(bilevel_run::label("HPO-SGLD τ = 1e-2"), "hpo-sgld-tau-1e-2");
/// ```
pub fn label(words: &str) -> String {
    let greek = [("τ", "tau"), ("γ", "gamma"), ("θ", "theta"), ("λ", "lambda"), ("κ", "kappa"), ("α", "alpha")];
    let plain = greek.iter().fold(words.to_lowercase(), |words, (letter, name)| words.replace(letter, name));
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '.');
    plain.split(part).map(|part| part.trim_matches('.')).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
