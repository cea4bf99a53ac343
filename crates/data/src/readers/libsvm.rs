//! libsvm's text: a line per row, `target index:value index:value …` with increasing indices; missing entries are 0.

use crate::error::Result;
use crate::input::Input;
use crate::table::Table;
use std::io::BufRead;

/// The longest line accepted, in bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// The index of the first column. Most files begin with 1; some, such as tick's copy of a9a, with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstIndex {
    /// Columns are 0, 1, 2, …
    Zero,
    /// Columns are 1, 2, 3, …
    One,
}

/// Rows of which only the nonzero entries are stored.
///
/// ```
/// use bilevel_data::{Input, readers::libsvm};
/// let rows = libsvm::read(Input::from_bytes("rows", "1 0:2 2:3\n-1 # nothing\n"), libsvm::FirstIndex::Zero)?;
/// let table = rows.to_table(None)?;
/// assert_eq!((table.targets, table.values), (vec![1.0, -1.0], vec![2.0, 0.0, 3.0, 0.0, 0.0, 0.0]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sparse {
    input: Input,
    columns: usize,
    targets: Vec<f64>,
    /// The end of each row in the entries.
    ends: Vec<usize>,
    /// Column and value of each stored entry, row by row.
    entries: Vec<(u32, f64)>,
}

impl Sparse {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.targets.len()
    }

    /// One more than the highest column index.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The target of each row.
    pub fn targets(&self) -> &[f64] {
        &self.targets
    }

    /// The stored entries of a row: column and value.
    pub fn row(&self, row: usize) -> &[(u32, f64)] {
        let from = row.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        from.zip(self.ends.get(row)).map_or(&[], |(from, to)| &self.entries[from..*to])
    }

    /// All numbers, zeros included. Give the number of columns if a test set uses fewer than the training set.
    pub fn to_table(&self, columns: Option<usize>) -> Result<Table> {
        let columns = columns.unwrap_or(self.columns);
        if columns < self.columns {
            let reason = format!("uses column {} of {columns}; set at least {} columns", self.columns, self.columns);
            return Err(self.input.damaged(reason));
        }
        let count = self.input.limits().elements(self.input.name(), &[self.rows(), columns], size_of::<f64>())?;
        let mut values = vec![0.0; count];
        for row in 0..self.rows() {
            self.row(row).iter().for_each(|(column, value)| values[row * columns + *column as usize] = *value);
        }
        Ok(Table { names: vec![], columns, values, targets: self.targets.clone(), classes: vec![] })
    }
}

/// Reads a file.
///
/// ```
/// use bilevel_data::{Input, readers::libsvm};
/// let found = libsvm::read(Input::from_bytes("heart", "1 1:0.5 1:2"), libsvm::FirstIndex::One);
/// assert_eq!(found.unwrap_err().to_string(), "heart has, in line 1, index 1 after index 1: they must increase");
/// ```
pub fn read(input: impl Into<Input>, first: FirstIndex) -> Result<Sparse> {
    let input = input.into();
    let mut found = Sparse { input: input.clone(), columns: 0, targets: vec![], ends: vec![], entries: vec![] };
    let (mut stream, mut line) = (input.stream()?, vec![]);
    for number in 1.. {
        line.clear();
        let read = std::io::Read::take(&mut stream, LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| input.decoding(error))?;
        if read == 0 {
            break;
        }
        if read as u64 == LONGEST_LINE {
            return Err(input.damaged(format!("has more than {LONGEST_LINE} bytes in line {number}")));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|_| input.damaged(format!("has bytes that are not text in line {number}")))?;
        let text = text.split('#').next().unwrap_or_default();
        parse(&mut found, text, first).map_err(|reason| input.damaged(format!("has, in line {number}, {reason}")))?;
        input.limits().count(input.name(), "rows", found.rows())?;
        input.limits().elements(input.name(), &[found.entries.len()], size_of::<(u32, f64)>())?;
    }
    drop(stream);
    Ok(found)
}

/// Adds a row; empty lines are skipped.
fn parse(found: &mut Sparse, line: &str, first: FirstIndex) -> std::result::Result<(), String> {
    let mut words = line.split_ascii_whitespace();
    let Some(target) = words.next() else { return Ok(()) };
    found.targets.push(number(target)?);
    let mut before: Option<u32> = None;
    for word in words {
        let (index, value) = word.split_once(':').ok_or_else(|| format!("'{}' without a colon", start(word)))?;
        let index: u32 = index.parse().map_err(|_| format!("'{}', which is not a column index", start(index)))?;
        if let Some(before) = before.filter(|before| *before >= index) {
            return Err(format!("index {index} after index {before}: they must increase"));
        }
        before = Some(index);
        let column = match first {
            FirstIndex::Zero => index,
            FirstIndex::One => index.checked_sub(1).ok_or("index 0: read it with FirstIndex::Zero")?,
        };
        found.columns = found.columns.max((column as usize).saturating_add(1));
        found.entries.push((column, number(value)?));
    }
    found.ends.push(found.entries.len());
    Ok(())
}

fn number(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("'{}', which is not a finite number", start(text)))
}

/// As much of a word as an error message needs.
fn start(word: &str) -> String {
    word.chars().take(40).collect()
}
