//! Comma-separated values: a line per row, one column of which may be the target.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::table::Table;
use std::collections::BTreeSet;
use std::io::BufRead;

/// The lines before the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Nothing: the first line is a row.
    None,
    /// The names of the columns.
    Names,
    /// This many lines to skip.
    Skip(usize),
}

/// The column to predict from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// None.
    None,
    /// The first.
    First,
    /// The last.
    Last,
    /// The one of this name in the header.
    Named(String),
}

/// How a file is written.
///
/// ```
/// use bilevel_data::{Input, readers::csv};
/// let format = csv::Format { separator: b';', target: csv::Target::None, ..csv::Format::default() };
/// let table = csv::read(Input::from_bytes("four", "1;2\n3;4\n"), &format)?;
/// assert_eq!((table.rows(), table.values), (2, vec![1.0, 2.0, 3.0, 4.0]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The separator between columns: a comma by default.
    pub separator: u8,
    /// The lines before the rows: none by default.
    pub header: Header,
    /// The column to predict: the last by default.
    pub target: Target,
}

impl Default for Format {
    fn default() -> Self {
        Format { separator: b',', header: Header::None, target: Target::Last }
    }
}

/// Reads a table of numbers. Targets may be words, which are then numbered alphabetically.
///
/// ```
/// use bilevel_data::{Input, readers::csv};
/// let error = csv::read(Input::from_bytes("iris.csv", "5.1,a,0\n"), &csv::Format::default()).unwrap_err().to_string();
/// assert_eq!(error, "iris.csv has, in line 1, 'a', which is not a finite number");
/// ```
pub fn read(input: impl Into<Input>, format: &Format) -> Result<Table> {
    let input = input.into();
    let mut stream = input.stream()?;
    if let Header::Skip(lines) = format.header {
        skip_lines(&mut stream, lines).map_err(|error| input.decoding(error))?;
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(format.separator)
        .has_headers(format.header == Header::Names)
        .trim(csv::Trim::All)
        .from_reader(stream);
    let mut names: Vec<String> = match format.header {
        Header::Names => reader.headers().map_err(|error| refuse(&input, error))?.iter().map(String::from).collect(),
        _ => vec![],
    };
    let (mut record, mut values, mut targets, mut width) = (csv::StringRecord::new(), vec![], vec![], names.len());
    while reader.read_record(&mut record).map_err(|error| refuse(&input, error))? {
        if width == 0 {
            width = record.len();
        }
        input.limits().count(input.name(), "columns", width)?;
        let target = target_column(&input, &format.target, &names, width)?;
        let line = record.position().map_or(0, csv::Position::line);
        for (column, cell) in record.iter().enumerate() {
            if Some(column) == target {
                targets.push(cell.to_string());
                continue;
            }
            let number = cell.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| {
                let cell: String = cell.chars().take(40).collect();
                input.damaged(format!("has, in line {line}, '{cell}', which is not a finite number"))
            })?;
            values.push(number);
        }
        input.limits().elements(input.name(), &[values.len() + targets.len()], size_of::<f64>())?;
        input.limits().count(input.name(), "rows", targets.len())?;
    }
    drop(reader);
    let target = target_column(&input, &format.target, &names, width)?;
    if let Some(column) = target.filter(|column| *column < names.len()) {
        names.remove(column);
    }
    let (targets, classes) = numbered(targets);
    Ok(Table { names, columns: width - usize::from(target.is_some()), values, targets, classes })
}

fn refuse(input: &Input, error: csv::Error) -> Error {
    let said = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => input.decoding(error),
        _ => input.damaged(format!("is not a table: {said}")),
    }
}

fn skip_lines(stream: &mut impl BufRead, lines: usize) -> std::io::Result<()> {
    for _ in 0..lines {
        stream.skip_until(b'\n')?;
    }
    Ok(())
}

/// The number of the target's column, if the rows have one.
fn target_column(input: &Input, target: &Target, names: &[String], width: usize) -> Result<Option<usize>> {
    match target {
        _ if width == 0 => Ok(None),
        Target::None => Ok(None),
        Target::First => Ok(Some(0)),
        Target::Last => Ok(Some(width - 1)),
        Target::Named(name) => match names.iter().position(|other| other == name) {
            Some(column) => Ok(Some(column)),
            None => Err(input.damaged(format!("has no column '{name}' in its header"))),
        },
    }
}

/// Targets as numbers, and the names of the classes if they are words.
fn numbered(targets: Vec<String>) -> (Vec<f64>, Vec<String>) {
    let finite = |target: &String| target.parse().ok().filter(|number: &f64| number.is_finite());
    if let Some(numbers) = targets.iter().map(finite).collect() {
        return (numbers, vec![]);
    }
    let classes: Vec<String> = targets.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let number = |target: &String| classes.binary_search(target).unwrap_or_default() as f64;
    (targets.iter().map(number).collect(), classes)
}
