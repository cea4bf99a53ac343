//! A user's settings as a flat list: key, value and place of each, from files and `--set` alike.

use crate::config::errors::{ConfigError, Place, Wrong};
use std::path::Path;
use toml_edit::{Document, Item, TableLike, Value};

/// A value as given, before the type of its key is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A string.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number with a point or exponent.
    Number(f64),
    /// True or false.
    Truth(bool),
    /// A whole number beyond all that are understood, as written.
    TooLarge(String),
    /// The head of a table; its keys are separate entries.
    Table,
    /// A table in braces with nothing in them.
    EmptyTable,
    /// An array, element by element.
    Array(Vec<Given>),
    /// Something that no key accepts, in words.
    Other(&'static str),
}

impl Given {
    /// Its description in an error.
    pub fn describe(&self) -> String {
        match self {
            Given::Text(text) => format!("the string {text:?}"),
            Given::Whole(number) => format!("the whole number {number}"),
            Given::Number(number) => format!("the number {number}"),
            Given::Truth(truth) => format!("{truth}"),
            Given::TooLarge(number) => format!("the whole number {number}"),
            Given::Table => "a table".into(),
            Given::EmptyTable => "an empty one".into(),
            Given::Array(_) => "an array".into(),
            Given::Other(what) => (*what).into(),
        }
    }
}

impl Given {
    /// The value as JSON; nothing for a table or for a value that no key accepts.
    pub fn json(&self) -> Option<serde_json::Value> {
        Some(match self {
            Given::Text(text) => text.as_str().into(),
            Given::Whole(number) => (*number).into(),
            Given::Number(number) => (*number).into(),
            Given::Truth(truth) => (*truth).into(),
            Given::Array(elements) => elements.iter().map(Given::json).collect::<Option<Vec<_>>>()?.into(),
            Given::TooLarge(_) | Given::Table | Given::EmptyTable | Given::Other(_) => return None,
        })
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its key, part by part.
    pub key: Vec<String>,
    /// Its value.
    pub value: Given,
    /// Its place.
    pub place: Place,
}

impl Entry {
    /// A setting given by a separate argument, such as `--seed`.
    pub fn argument(key: &[&str], value: Given, text: String) -> Self {
        Entry { key: key.iter().map(|part| part.to_string()).collect(), value, place: Place::Argument(text) }
    }

    /// The key as it is written.
    pub fn dotted(&self) -> String {
        self.key.join(".")
    }
}

/// The settings in the text of a file.
///
/// ```
/// use bilevel_run::config::entries::{Given, parse};
/// let entries = parse("seed = 3\n[outer]\nrate = 0.1\n".as_ref(), "my.toml".as_ref())?;
/// assert_eq!((entries[0].dotted(), &entries[0].value), ("seed".into(), &Given::Whole(3)));
/// assert_eq!(entries[2].place.to_string(), "my.toml, line 3");
/// # Ok::<(), bilevel_run::config::errors::ConfigError>(())
/// ```
pub fn parse(text: &[u8], path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let place = |line| Place::File(path.to_path_buf(), line);
    let text = std::str::from_utf8(text).map_err(|error| {
        let line = 1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        ConfigError::at(&place(line), Wrong::Syntax("it is not UTF-8 text".into()))
    })?;
    let document = Document::parse(text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        ConfigError::at(&place(error.span().map_or(1, |span| line_of(text, span.start))), Wrong::Syntax(message))
    })?;
    let mut entries = vec![];
    let line = |start: usize| place(line_of(text, start));
    flatten(document.as_table(), &mut vec![], &line, 1, &mut entries);
    Ok(entries)
}

/// The settings of a `--set key=value`: one, or those of a table. A value that is no TOML is taken as a string, so words need
/// no quotes.
///
/// ```
/// use bilevel_run::config::entries::{Given, parse_set};
/// assert_eq!(parse_set("inner.step=0.1")?[0].value, Given::Number(0.1));
/// assert_eq!(parse_set("method.name=rmd")?[0].value, Given::Text("rmd".into()));
/// assert_eq!(parse_set("outer={rate=1}")?[1].dotted(), "outer.rate");
/// assert_eq!(parse_set("task.ranges=[-1, 1]")?[0].value, Given::Array(vec![Given::Whole(-1), Given::Whole(1)]));
/// # Ok::<(), bilevel_run::config::errors::ConfigError>(())
/// ```
pub fn parse_set(text: &str) -> Result<Vec<Entry>, ConfigError> {
    let place = Place::Argument(format!("--set {text}"));
    let Some((key, value)) = text.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        return Err(ConfigError::at(&place, Wrong::NotAnAssignment));
    };
    let mut key: Vec<String> = key.trim().split('.').map(|part| part.trim().to_string()).collect();
    let (word, mut inside) = (value.trim(), vec![]);
    let value = match word.parse::<Value>() {
        Ok(value) => {
            if let Some(table) = value.as_inline_table() {
                flatten(table, &mut key, &|_| place.clone(), 1, &mut inside);
            }
            given(&value)
        }
        Err(_) if is_whole(word) => Given::TooLarge(word.into()),
        Err(_) => Given::Text(word.into()),
    };
    inside.insert(0, Entry { key, value, place });
    Ok(inside)
}

fn is_whole(word: &str) -> bool {
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn given(value: &Value) -> Given {
    match value {
        Value::String(text) => Given::Text(text.value().clone()),
        Value::Integer(number) => Given::Whole(*number.value()),
        Value::Float(number) => Given::Number(*number.value()),
        Value::Boolean(truth) => Given::Truth(*truth.value()),
        Value::InlineTable(table) if table.is_empty() => Given::EmptyTable,
        Value::InlineTable(_) => Given::Table,
        Value::Array(array) => Given::Array(array.iter().map(given).collect()),
        Value::Datetime(_) => Given::Other("a date"),
    }
}

pub(crate) fn flatten(
    table: &dyn TableLike,
    prefix: &mut Vec<String>,
    place: &dyn Fn(usize) -> Place,
    above: usize,
    entries: &mut Vec<Entry>,
) {
    for (name, item) in table.iter() {
        // A table that only dotted keys or deeper headers mention has the place of its parent.
        let start = table.key(name).and_then(|key| key.span()).or(item.span()).map_or(above, |span| span.start);
        prefix.push(name.to_string());
        let value = match item {
            Item::Value(value) => given(value),
            Item::Table(_) => Given::Table,
            Item::ArrayOfTables(_) => Given::Other("an array of tables"),
            Item::None => Given::Other("nothing"),
        };
        entries.push(Entry { key: prefix.clone(), value, place: place(start) });
        if let Some(inside) = item.as_table_like() {
            flatten(inside, prefix, place, start, entries);
        }
        prefix.pop();
    }
}

/// The line, from 1, of a place in the text.
pub(crate) fn line_of(text: &str, start: usize) -> usize {
    1 + text.as_bytes()[..start.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}
