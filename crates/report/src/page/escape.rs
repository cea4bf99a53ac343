//! Escaping of text: for HTML and SVG, JSON in a script, data URIs.

use std::fmt::Write;

/// For HTML and SVG, in content and in quoted attributes. Characters that XML forbids become the replacement character.
pub(crate) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A JSON string, quotes included, that is also safe inside a `script` element.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => _ = write!(out, "\\u{:04x}", c as u32),
            c if c.is_control() => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An SVG as a data URI to be put into a quoted attribute. Only the necessary characters are percent-encoded, so it
/// stays short.
pub(crate) fn data_uri(svg: &str) -> String {
    let mut out = String::from("data:image/svg+xml;charset=utf-8,");
    for c in svg.chars() {
        match c {
            '%' | '#' | '"' | '<' | '>' | '&' | '\'' | '\n' | '\r' | '\t' => _ = write!(out, "%{:02X}", c as u32),
            c => out.push(c),
        }
    }
    out
}

/// Bytes in base64, as RFC 4648 has it.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().enumerate().fold(0, |word, (place, byte)| word | u32::from(*byte) << (16 - 8 * place));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= three.len() { letter as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(html("a<b & \"c\" 'd'\0"), "a&lt;b &amp; &quot;c&quot; &#39;d&#39;\u{fffd}");
        assert_eq!(json("</script>\"\\\n"), "\"\\u003c/script\\u003e\\\"\\\\\\u000a\"");
        assert_eq!(data_uri("<a b=\"#1\"/>"), "data:image/svg+xml;charset=utf-8,%3Ca b=%22%231%22/%3E");
    }
}
