//! The comparisons as a table: each row as soon as it is known, and a sentence at the end.

use crate::differences::Differences;
use bilevel_graph::DType;

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case, and which of its losses.
    pub case: String,
    /// Its description.
    pub about: String,
    /// How many numbers derivatives are taken by.
    pub parameters: usize,
    /// The type.
    pub dtype: DType,
    /// How far the two sides are apart.
    pub apart: Differences,
    /// Sentences on a difference above the goal, and whether they explain it.
    pub explained: Option<(bool, Vec<String>)>,
}

/// The largest difference allowed in a type.
pub fn goal(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-10 } else { 2e-5 }
}

impl Row {
    /// The largest of the three differences.
    pub fn largest(&self) -> f64 {
        self.apart.named().iter().fold(0.0, |most, (_, difference)| difference.max(most))
    }

    /// Whether all differences are within the goal, or explained.
    pub fn met(&self) -> bool {
        self.largest() <= goal(self.dtype) || self.explained.as_ref().is_some_and(|(met, _)| *met)
    }

    /// As a line of the table, with further lines for explanations.
    pub fn line(&self) -> String {
        let Differences { loss, gradient, product } = self.apart;
        let met = match (&self.explained, self.met()) {
            (_, false) => "NO",
            (Some(_), true) => "explained",
            (None, true) => "yes",
        };
        let dtype = self.dtype.to_string();
        let mut text = format!(
            "{:<27}{:>11}{dtype:>5}{loss:>10.1e}{gradient:>10.1e}{product:>10.1e}{:>10.1e}{met:>11}  {}",
            self.case,
            self.parameters,
            self.largest(),
            self.about
        );
        for sentence in self.explained.iter().flat_map(|(_, sentences)| sentences) {
            text += &format!("\n    {sentence}");
        }
        text
    }
}

/// The line above all rows.
pub fn header() -> String {
    format!(
        "{:<27}{:>11}{:>5}{:>10}{:>10}{:>10}{:>10}{:>11}  what it is",
        "loss of", "parameters", "type", "loss", "gradient", "product", "largest", "within"
    )
}

/// The summary of all rows.
pub fn sentence(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "Nothing was compared: models of real size and tasks are compared only in f64.".into();
    }
    let met = rows.iter().filter(|row| row.met()).count();
    let worst = |dtype: DType| {
        let of = rows.iter().filter(|row| row.dtype == dtype);
        let row = of.max_by(|a, b| a.largest().total_cmp(&b.largest()))?;
        Some(format!(
            "the largest difference in {dtype} is {:.1e} ({}), the goal {:e}",
            row.largest(),
            row.case,
            goal(dtype)
        ))
    };
    let worst: Vec<String> = [DType::F64, DType::F32].into_iter().filter_map(worst).collect();
    format!("{met} of {} rows are within their goal; {}.", rows.len(), worst.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, dtype: DType, product: f64) -> Row {
        let apart = Differences { loss: 1e-16, gradient: 2e-14, product };
        Row { case: case.into(), about: "as it is".into(), parameters: 7850, dtype, apart, explained: None }
    }

    #[test]
    fn a_row_above_the_goal_of_its_type_fails() {
        assert!(row("a", DType::F64, 9e-11).met());
        assert!(!row("a", DType::F64, 2e-10).met());
        assert!(row("a", DType::F32, 2e-10).met());
        assert!(!row("a", DType::F64, f64::INFINITY).met());
        let explained = |met| Row { explained: Some((met, vec!["a near tie".into()])), ..row("a", DType::F32, 1e-3) };
        assert!(explained(true).met() && !explained(false).met());
        assert!(explained(false).line().ends_with("\n    a near tie"));
    }

    #[test]
    fn columns_stand_below_their_names() {
        let line = row("logistic", DType::F64, 3e-13).line();
        assert_eq!(
            line,
            "logistic                          7850  f64   1.0e-16   2.0e-14   3.0e-13   3.0e-13        yes  as it is"
        );
        let at = |text: &str, word: &str| text.find(word).map(|from| from + word.len());
        assert_eq!(at(&header(), "product"), at(&line, "3.0e-13"));
        assert_eq!(at(&header(), "within"), at(&line, "yes"));
    }

    #[test]
    fn the_end_names_the_worst_row_of_each_type() {
        let rows = [row("a", DType::F64, 1e-12), row("b", DType::F64, 3e-10), row("c", DType::F32, 1e-6)];
        let said = sentence(&rows);
        assert!(said.starts_with("2 of 3 rows are within their goal"), "{said}");
        assert!(said.contains("in f64 is 3.0e-10 (b), the goal 1e-10"), "{said}");
        assert!(said.contains("in f32 is 1.0e-6 (c), the goal 2e-5"), "{said}");
        assert!(sentence(&[]).starts_with("Nothing was compared"));
    }
}
