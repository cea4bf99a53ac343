//! The metrics of runs as rows of one table: the identity of the run, then every number of the iteration.

use crate::errors::{CliError, Result};
use crate::runs::Overview;
use bilevel::files::whole_file::open_regular;
use bilevel::observers::LONGEST_LINE;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Read};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Number,
}

/// One value; `Empty` if there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// A word.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
}

/// A table of metrics.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The columns' names and kinds.
    pub columns: Vec<(String, Kind)>,
    /// The rows; one that is shorter than the columns has nothing in the others.
    pub rows: Vec<Vec<Cell>>,
}

/// Columns that identify the run of a row.
const IDENTITY: [(&str, Kind); 6] = [
    ("run", Kind::Text),
    ("name", Kind::Text),
    ("task", Kind::Text),
    ("method", Kind::Text),
    ("seed", Kind::Whole),
    ("iteration", Kind::Whole),
];

impl Metrics {
    /// Reads these runs in their order. A line that is still being written is skipped.
    pub fn read(runs: &[Overview]) -> Result<Self> {
        let columns = IDENTITY.iter().map(|(name, kind)| (name.to_string(), *kind)).collect();
        let mut table = Metrics { columns, rows: vec![] };
        for run in runs {
            table.add(run)?;
        }
        Ok(table)
    }

    fn add(&mut self, run: &Overview) -> Result<()> {
        let path = run.path.join("metrics.jsonl");
        let cannot = |reason: String| CliError::File { action: "read", path: path.clone(), reason };
        let mut lines = match open_regular(&path) {
            Ok(file) => BufReader::new(file),
            // A run that was just begun has none yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(cannot(error.to_string())),
        };
        let mut line = vec![];
        for number in 1.. {
            line.clear();
            let read = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
            if read.map_err(|error| cannot(error.to_string()))? == 0 || !line.ends_with(b"\n") {
                break;
            }
            let Ok(Value::Object(fields)) = serde_json::from_slice(&line) else {
                return Err(cannot(format!(
                    "line {number} is not the metrics of an iteration; remove it to export the rest"
                )));
            };
            self.push(run, fields);
        }
        Ok(())
    }

    fn push(&mut self, run: &Overview, fields: Map<String, Value>) {
        let text = |text: &str| if text.is_empty() { Cell::Empty } else { Cell::Text(text.into()) };
        let seed = run.seed.and_then(|seed| i64::try_from(seed).ok()).map_or(Cell::Empty, Cell::Whole);
        let mut row = vec![text(&run.run), text(&run.name), text(&run.task), text(&run.method), seed, Cell::Empty];
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("run", _) => {}
                // Diagnostics and measures have their own names.
                (_, Value::Object(inside)) => {
                    inside.into_iter().for_each(|(name, value)| self.set(&mut row, &name, &value))
                }
                (_, value) => self.set(&mut row, &name, &value),
            }
        }
        self.rows.push(row);
    }

    fn set(&mut self, row: &mut Vec<Cell>, name: &str, value: &Value) {
        let kind = match value {
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Whole,
            Value::String(_) => Kind::Text,
            _ => return,
        };
        // A measure may have the name of another column.
        let taken = |name: &str| IDENTITY[..5].iter().any(|(own, _)| *own == name);
        let name = if taken(name) { format!("measure {name}") } else { name.to_string() };
        let at = self.columns.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.columns.push((name, kind));
            self.columns.len() - 1
        });
        // A measure may be a whole number in one line and not in another.
        let column = &mut self.columns[at].1;
        *column = match (*column, kind) {
            (known, kind) if known == kind => known,
            (Kind::Whole, Kind::Number) | (Kind::Number, Kind::Whole) => Kind::Number,
            _ => Kind::Text,
        };
        row.resize(row.len().max(at + 1), Cell::Empty);
        row[at] = match value {
            Value::String(text) => Cell::Text(text.clone()),
            value => match (kind, value.as_i64()) {
                (Kind::Whole, Some(whole)) => Cell::Whole(whole),
                _ => value.as_f64().map_or(Cell::Empty, Cell::Number),
            },
        };
    }

    /// The cell of a row in a column, as the column's kind.
    pub fn cell(&self, row: usize, column: usize) -> Cell {
        match (self.rows[row].get(column), self.columns[column].1) {
            (None, _) => Cell::Empty,
            (Some(Cell::Whole(whole)), Kind::Number) => Cell::Number(*whole as f64),
            (Some(Cell::Whole(whole)), Kind::Text) => Cell::Text(whole.to_string()),
            (Some(Cell::Number(number)), Kind::Text) => Cell::Text(number.to_string()),
            (Some(cell), _) => cell.clone(),
        }
    }
}
