//! Words, numbers and paths that people, scripts and accidents put on a command line.

use bilevel_graph::conformance::Dice;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Words that are none of the command's.
const ODD: [&str; 24] = [
    "",
    " ",
    "-",
    "--",
    ".",
    "λ",
    "синтез",
    "ＡＢＣ",
    "a b",
    "'",
    "\"",
    "\\",
    "%s%n",
    "$(x)",
    "null",
    "NaN",
    "[",
    "{}",
    "a=b",
    "\u{1b}[31mred\u{1b}[0m",
    "\u{7}\u{8}",
    "two\nlines",
    "\u{202e}right to left",
    "\u{9b}31m",
];

/// A word: an odd one, a slip in one of these, or a very long one.
pub fn word(dice: &mut Dice, like: &[String]) -> String {
    match dice.below(8) {
        0..=2 => dice.pick(&ODD).to_string(),
        3 => dice.pick(&["x", "é", "0"]).repeat(dice.pick(&[64, 300, 5000])),
        _ if like.is_empty() => dice.pick(&ODD).to_string(),
        _ => slip(dice, &like[dice.clone().below(like.len())]),
    }
}

/// A word with a letter changed, lost, doubled or two in another order.
pub fn slip(dice: &mut Dice, word: &str) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    if letters.is_empty() {
        return "x".into();
    }
    let at = dice.below(letters.len());
    match dice.below(5) {
        0 => letters[at] = dice.pick(&['x', '-', 'é', '.', '0', '\u{1b}']),
        1 => drop(letters.remove(at)),
        2 => letters.insert(at, letters[at]),
        3 => letters.swap(at, (at + 1) % word.chars().count()),
        _ => letters.truncate(at),
    }
    letters.into_iter().collect()
}

/// A number that is a whole one, a float, out of every range, or none.
pub fn number(dice: &mut Dice) -> String {
    dice.pick(&[
        "0",
        "1",
        "2",
        "3",
        "-1",
        "-0",
        "+1",
        "0.5",
        "-0.5",
        "1e-3",
        "1e300",
        "-1e300",
        "1e-300",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "0x10",
        "1_0",
        "1e1",
        "4294967296",
        "9223372036854775808",
        "99999999999999999999999",
        "1.",
        ".5",
        "١",
        "1 2",
        "true",
        "\"1\"",
        "",
    ])
    .into()
}

/// A small count that a run can do.
pub fn count(dice: &mut Dice) -> String {
    (1 + dice.below(12)).to_string()
}

/// A number that is a good value of a float.
pub fn float(dice: &mut Dice) -> String {
    dice.pick(&["0.0", "0.001", "0.01", "0.1", "0.5", "1.0", "3.0", "100.0", "1e-12", "1e10"]).into()
}

/// A path inside the folder the command sees, or one that nothing can be written to.
pub fn path(dice: &mut Dice) -> OsString {
    match dice.below(14) {
        0..=5 => format!("new-{}", dice.below(100)).into(),
        6 => "deep/er/folder".into(),
        7 => "finished".into(),
        8 => "plain-file".into(),
        9 => dice.pick(&["/dev/null/x", "/proc/none", "plain-file/x", "dangling", "loop", "unwritable/x"]).into(),
        10 => "x".repeat(300).into(),
        11 => OsString::from_vec(b"bytes-\xff\xfe".to_vec()),
        12 => "red-\u{1b}[31m".into(),
        _ => dice.pick(&["", ".", " ", "two\nlines", "λ", "-q", "a\u{202e}b"]).into(),
    }
}
