//! Text made safe for where it is put: HTML and SVG, JSON in a script, data URIs.

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

/// An SVG as a data URI to be put into a quoted attribute. Only what must be is percent-encoded, so it stays short.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(html("a<b & \"c\" 'd'\0"), "a&lt;b &amp; &quot;c&quot; &#39;d&#39;\u{fffd}");
        assert_eq!(json("</script>\"\\\n"), "\"\\u003c/script\\u003e\\\"\\\\\\u000a\"");
        assert_eq!(data_uri("<a b=\"#1\"/>"), "data:image/svg+xml;charset=utf-8,%3Ca b=%22%231%22/%3E");
    }
}
