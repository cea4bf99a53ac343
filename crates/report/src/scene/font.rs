//! The font of pictures: Noto Sans, in the program, so that no machine needs fonts. Measures, shortens and wraps text.

use std::sync::OnceLock;
use ttf_parser::{Face, GlyphId};

/// A weight of the font.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weight {
    Regular,
    Bold,
}

/// The parsed font; `None` only if the bytes in the program were no font.
pub(crate) fn face(weight: Weight) -> Option<&'static Face<'static>> {
    static FACES: [OnceLock<Option<Face<'static>>>; 2] = [const { OnceLock::new() }; 2];
    let bytes = [notosans::REGULAR_TTF, notosans::BOLD_TTF][weight as usize];
    FACES[weight as usize].get_or_init(|| Face::parse(bytes, 0).ok()).as_ref()
}

/// The glyph of a character, and whether it stands on its head: the font has Δ but no ∇.
pub(crate) fn glyph(face: &Face, c: char) -> (GlyphId, bool) {
    let replaced = match c {
        '∇' => 'Δ',
        '⋅' => '·',
        '⁻' | '\u{2011}' => '-',
        '\u{2009}' | '\u{202f}' | '\n' | '\t' => ' ',
        c => c,
    };
    (face.glyph_index(replaced).unwrap_or(GlyphId(0)), c == '∇')
}

/// How far a character moves the pen, at size 1.
pub(crate) fn advance(face: &Face, c: char) -> f64 {
    let units = face.glyph_hor_advance(glyph(face, c).0).unwrap_or(face.units_per_em() / 2);
    f64::from(units) / f64::from(face.units_per_em())
}

/// Browsers use the reader's own font on a page, which may be wider than ours.
const ROOM: f64 = 1.15;

/// Width of a text, with room for a wider font.
pub(crate) fn width(text: &str, size: f64, weight: Weight) -> f64 {
    let advance = |c| face(weight).map_or(0.6, |face| advance(face, c));
    ROOM * size * text.chars().map(advance).sum::<f64>()
}

/// The text, or as much of its beginning as fits, with an ellipsis.
pub(crate) fn shorten(text: &str, size: f64, weight: Weight, room: f64) -> String {
    // No line of a picture is longer than this, however small its letters.
    let clipped: String = text.chars().take(400).collect();
    if clipped.len() == text.len() && width(text, size, weight) <= room {
        return text.to_string();
    }
    let mut kept = clipped;
    while !kept.is_empty() && width(&kept, size, weight) + width("…", size, weight) > room {
        kept.pop();
    }
    kept.truncate(kept.trim_end().len());
    kept + "…"
}

/// The text in lines that fit, broken between words, at most `most`; the rest is shortened.
pub(crate) fn wrap(text: &str, size: f64, weight: Weight, room: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = lines.len() == most;
        match lines.last_mut() {
            Some(line) if width(line, size, weight) + width(" ", size, weight) + width(word, size, weight) <= room => {
                *line += " ";
                *line += word;
            }
            Some(line) if full => {
                // With one word too many the last line ends in an ellipsis.
                *line += " ";
                *line += word;
                break;
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| shorten(line, size, weight, room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    #[test]
    fn the_font_has_the_letters_of_the_paper() {
        for weight in [Weight::Regular, Weight::Bold] {
            let face = face(weight).unwrap();
            for c in "λθγη∂∇²·−×…–∞√≈≤→±µ‖".chars() {
                assert_ne!(glyph(face, c).0, GlyphId(0), "{c}");
            }
        }
    }

    #[test]
    fn a_long_title_takes_two_lines() {
        let lines = wrap("one two three four five six seven eight nine ten", 16.0, Weight::Bold, 120.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with('…'), "{lines:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(7),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_is_shortened_fits(text: String, room in 20.0..400.0f64) {
            prop_assert!(width(&shorten(&text, 12.0, Weight::Regular, room), 12.0, Weight::Regular) <= room);
        }
    }
}
