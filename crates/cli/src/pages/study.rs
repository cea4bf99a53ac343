//! The output of a study: tables for a terminal, rows, and a page with figures.

use crate::errors::{CliError, Result};
use crate::pages::plots::{PNG_WIDTH, as_drawing};
use crate::run::folder::{clean, write_whole};
use crate::run::provenance;
use crate::run::study::folder::StudyFolder;
use crate::terminal::readable::{escaped_lines, number_or_dash};
use bilevel_report::{Column, Report, Section, Table, file_stem};
use bilevel_run::{Done, Findings, Finished, Plan, Row, Scale, row_table};
use std::path::Path;

/// Most letters of a measurement as it is stored.
const LONGEST_VALUE: usize = 100;

/// A study that is done, or as much of it as is.
pub struct Found {
    /// Its name.
    pub name: String,
    /// The title of the study.
    pub title: String,
    /// Its findings.
    pub findings: Findings,
}

impl Found {
    /// The output for a terminal of this many columns.
    pub fn text(&self, columns: usize) -> String {
        let Findings { rows, tables, .. } = &self.findings;
        if !tables.is_empty() {
            return escaped_lines(&tables.iter().map(|table| table.text(columns)).collect::<Vec<_>>().join("\n"));
        }
        let (table, reasons) = row_table(rows);
        let mut text = fit(&table, columns);
        reasons.iter().for_each(|reason| text += &format!("{reason}\n"));
        escaped_lines(&text)
    }

    /// The rows as lines of JSON.
    pub fn rows(&self) -> String {
        self.findings.rows.iter().map(|row| row.to_json() + "\n").collect()
    }

    /// Its part of a page.
    fn sections(&self) -> Vec<Section> {
        let Findings { warnings, rows, tables, said, sections } = &self.findings;
        let mut all = vec![];
        if !said.is_empty() {
            all.push(Section::Text { title: "Results".into(), text: said.join("\n\n") });
        }
        all.push(Section::Warnings(warnings.clone()));
        all.extend(tables.iter().cloned().map(Section::Table));
        if tables.is_empty() {
            let (mut table, reasons) = row_table(rows);
            table.caption = format!("{} ({})", self.title, self.name);
            all.push(Section::Table(table));
            if !reasons.is_empty() {
                all.push(Section::Text { title: String::new(), text: reasons.join("\n\n") });
            }
        }
        all.extend(sections.iter().cloned());
        all
    }

    /// Writes rows, figures and page into its folder.
    pub fn write(&self, folder: &StudyFolder, plan: &Plan) -> Result<()> {
        self.write_report(folder, plan)?;
        write_whole(&folder.rows_file(), self.rows().as_bytes())
    }

    /// Writes figures and page into its folder, and no rows, whose file says that a study is done.
    pub fn write_report(&self, folder: &StudyFolder, plan: &Plan) -> Result<()> {
        let plots = folder.plots();
        std::fs::create_dir_all(&plots).map_err(|error| CliError::file("make", &plots, &error))?;
        clean(&plots)?;
        for drawing in self.findings.sections.iter().filter_map(as_drawing) {
            let file = |ending: &str| plots.join(format!("{}.{ending}", file_stem(drawing.title())));
            write_whole(&file("svg"), drawing.svg().as_bytes())?;
            let pixels = drawing.png(PNG_WIDTH).map_err(|error| CliError::Unwritten(error.to_string()))?;
            write_whole(&file("png"), &pixels)?;
        }
        write_page(&folder.report_file(), &self.title, std::slice::from_ref(self), plan)
    }
}

/// The findings of a study with failed items, and a warning that names the missing ones.
pub fn unfinished(
    findings: Option<Findings>,
    done: &Finished,
    (item, error): (&str, &CliError),
    missing: &[String],
) -> Findings {
    let mut said = format!("{item} failed: {error}. Numbers that need it are missing here.");
    match missing {
        [] => {}
        [one] => said += &format!(" {one} was not begun or not finished."),
        [some @ .., last] => said += &format!(" {} and {last} were not begun or not finished.", some.join(", ")),
    }
    partial(findings, done, said)
}

/// The findings of an unfinished study after this warning, or a table of the finished items if it has no findings yet.
pub fn partial(findings: Option<Findings>, done: &Finished, why: String) -> Findings {
    let mut findings = findings.unwrap_or_else(|| {
        let rows = done.iter().map(|(label, done)| vec![label.to_string(), in_words(done)]).collect();
        let columns = vec![Column::text("item"), Column::text("result")];
        let table = Table { columns, rows, caption: "Finished items; the study's own table needs all of them".into() };
        Findings { tables: vec![table], ..Findings::default() }
    });
    findings.warnings.insert(0, why);
    findings
}

/// The outcome of an item in a few words.
fn in_words(done: &Done) -> String {
    match done {
        Done::NotApplicable(why) => format!("does not apply: {why}"),
        Done::Measured { value, .. } => {
            let text = value.to_string();
            let short: String = text.chars().take(LONGEST_VALUE).collect();
            if short == text { text } else { format!("{short}…") }
        }
        Done::Run(run) => {
            let measures = run.result.measures.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
            let measures = measures.map(|(name, value)| format!(", {name} {value:.4}")).collect::<String>();
            format!("outer loss {}{measures}", number_or_dash(run.result.outer_loss))
        }
    }
}

/// Writes a page of studies.
pub fn write_page(path: &Path, title: &str, found: &[Found], plan: &Plan) -> Result<()> {
    let mut sections = vec![];
    let held = |row: &Row| row.paper.is_some() || row.reference.is_some();
    if found.iter().any(|one| one.findings.rows.iter().any(held)) {
        let text = "Every number is shown next to the paper's and a reference. If a number is not reproduced, the \
            reason is below the table. `bilevel reproduce STUDY` computes a table again.";
        sections.push(Section::Text { title: String::new(), text: text.into() });
    }
    sections.extend(found.iter().flat_map(Found::sections));
    let effort = match plan.scale {
        Scale::Quick => "few seeds and low limits (--quick)",
        Scale::Full => "full run",
        Scale::Paper => "the paper's protocol (--scale paper)",
    };
    let subtitle = format!("{effort} · from seed {} · on {}", plan.seed, plan.device);
    let footer = path.parent().map_or_else(String::new, provenance::footer);
    write_whole(path, Report { title: title.into(), subtitle, sections, footer }.html().as_bytes())
}

/// The table for a terminal of this many columns. If it is too narrow, columns other than the number itself are left
/// out, the least important first.
fn fit(table: &Table, columns: usize) -> String {
    let mut table = table.clone();
    for name in ["seconds", "spread (seeds)", "cost", "reference"] {
        let whole = table.text(usize::MAX);
        if whole.lines().all(|line| line.chars().count() <= columns) {
            return whole;
        }
        if let Some(at) = table.columns.iter().position(|column| column.name == name) {
            table.columns.remove(at);
            table.rows.iter_mut().for_each(|row| _ = row.remove(at));
        }
    }
    // Words give way before verdicts.
    if let Some(verdict) = table.columns.last_mut() {
        verdict.numeric = true;
    }
    table.text(columns)
}

/// How many rows have which verdict.
pub fn count<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut counts: Vec<(&str, usize)> = vec![];
    for row in rows {
        match counts.iter_mut().find(|(word, _)| *word == row.word()) {
            Some((_, n)) => *n += 1,
            None => counts.push((row.word(), 1)),
        }
    }
    counts.iter().map(|(word, n)| format!("{n} {word}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_run::Verdict;

    #[test]
    fn rows_with_the_same_reason_share_its_number() {
        let row =
            |why: &str| Row::new("synth1d", "RMD", "λ", 1.0).paper(2.0).verdict(Verdict::NotReproduced(why.into()));
        let (table, reasons) = row_table(&[row("biased"), row("noisy"), row("biased")]);
        let verdicts: Vec<&str> = table.rows.iter().filter_map(|cells| cells.last()).map(String::as_str).collect();
        assert_eq!(verdicts, ["not reproduced [1]", "not reproduced [2]", "not reproduced [1]"]);
        assert_eq!(reasons, ["[1] biased", "[2] noisy"]);
    }

    #[test]
    fn a_narrow_terminal_loses_the_spread_before_the_verdict() {
        let row =
            Row::new("synth1d", "Evolutionary search", "λ", 1.0).setting("as printed, λ kept in [0, 1]").over(0.1, 8);
        let (table, _) = row_table(&[row.paper(2.0).verdict(Verdict::NotReproduced("noisy".into()))]);
        assert_eq!(fit(&table, 200), table.text(usize::MAX));
        let narrow = fit(&table, 70);
        assert!(narrow.lines().all(|line| line.chars().count() <= 70), "{narrow}");
        assert!(narrow.contains("not reproduced [1]") && !narrow.contains("seeds"), "{narrow}");
    }
}
