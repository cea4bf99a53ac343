//! A table as CSV (RFC 4180): a heading, commas, quotes if needed, and floats that read back to the same bits.

use super::{Cell, Metrics};

/// The text of the file. A text that a spreadsheet would take for a formula is kept as it is: quote it there.
pub fn csv(table: &Metrics) -> String {
    let mut text = String::new();
    let heading: Vec<String> = table.columns.iter().map(|(name, _)| field(name)).collect();
    text += &heading.join(",");
    text.push('\n');
    for row in 0..table.rows.len() {
        for column in 0..table.columns.len() {
            if column > 0 {
                text.push(',');
            }
            text += &match table.cell(row, column) {
                Cell::Empty => String::new(),
                Cell::Text(text) => field(&text),
                Cell::Whole(whole) => whole.to_string(),
                Cell::Number(number) => format!("{number:?}"),
            };
        }
        text.push('\n');
    }
    text
}

/// A text as a field.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_and_floats_read_back() {
        let table = Metrics {
            columns: vec![("run".into(), Kind::Text), ("a,b".into(), Kind::Number), ("n".into(), Kind::Whole)],
            rows: vec![
                vec![Cell::Text("say \"x\",\ny".into()), Cell::Number(0.1 + 0.2), Cell::Whole(3)],
                vec![Cell::Empty, Cell::Whole(2)],
            ],
        };
        assert_eq!(csv(&table), "run,\"a,b\",n\n\"say \"\"x\"\",\ny\",0.30000000000000004,3\n,2.0,\n");
    }
}
