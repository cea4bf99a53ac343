//! Reads tables of a TOML file key by key. Every error has file, line and key, and an unknown key is refused with the
//! nearest known one.

use crate::config::entries::{Entry, flatten, given, line_of};
use crate::config::errors::{ConfigError, Instead, Place, Wrong};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use toml_edit::{Document, Item, TableLike, Value};

pub(super) type Result<T> = std::result::Result<T, ConfigError>;

/// A file.
pub(super) struct TomlFile {
    path: PathBuf,
    document: Document<String>,
}

impl TomlFile {
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let document = Document::parse(text.to_string()).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            ConfigError::at(&Place::File(path.to_path_buf(), line), Wrong::Syntax(message))
        })?;
        Ok(TomlFile { path: path.to_path_buf(), document })
    }

    /// The whole file as a table.
    pub fn root(&self) -> Reader<'_> {
        Reader { source: self, table: self.document.as_table(), key: vec![], line: 1, known: RefCell::default() }
    }

    fn line(&self, start: usize) -> usize {
        line_of(self.document.raw(), start)
    }
}

/// A table of a file, of which keys are asked for one by one.
pub(super) struct Reader<'a> {
    source: &'a TomlFile,
    table: &'a dyn TableLike,
    key: Vec<String>,
    line: usize,
    known: RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    /// Its place in the file.
    pub fn place(&self) -> Place {
        Place::File(self.source.path.clone(), self.line)
    }

    /// An error about the table as a whole.
    pub fn wrong(&self, sentence: impl Into<String>) -> ConfigError {
        ConfigError::at(&self.place(), Wrong::Other(sentence.into()))
    }

    fn line_of(&self, name: &str) -> usize {
        let item = self.table.get(name).and_then(Item::span);
        let span = self.table.key(name).and_then(|key| key.span()).or(item);
        span.map_or(self.line, |span| self.source.line(span.start))
    }

    /// The place of a key.
    pub fn place_of(&self, name: &str) -> Place {
        Place::File(self.source.path.clone(), self.line_of(name))
    }

    fn dotted(&self, name: &str) -> String {
        self.key.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(".")
    }

    /// The error for a value of another type.
    pub fn wrong_type(&self, name: &str, takes: &'static str) -> ConfigError {
        let given = match self.table.get(name) {
            Some(Item::Value(value)) => given(value).describe(),
            Some(Item::Table(_)) => "a table".into(),
            _ => "an array of tables".into(),
        };
        ConfigError::at(&self.place_of(name), Wrong::WrongType { key: self.dotted(name), takes, given })
    }

    /// The error for a word that is not one of those known.
    pub fn unknown_word<'w>(
        &self,
        name: &str,
        given: &str,
        known: impl Iterator<Item = &'w str> + Clone,
    ) -> ConfigError {
        let instead = match bilevel::errors::nearest(given, known.clone()) {
            Some(near) => Instead::Near(near.into()),
            None => Instead::Known(known.map(String::from).collect()),
        };
        let wrong = Wrong::UnknownWord { key: self.dotted(name), given: given.into(), instead };
        ConfigError::at(&self.place_of(name), wrong)
    }

    /// Returns true if it has a key.
    pub fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    fn item(&self, name: &str) -> Option<&'a Item> {
        self.known.borrow_mut().push(name.to_string());
        self.table.get(name)
    }

    fn value<T>(
        &self,
        name: &str,
        takes: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.item(name) {
            None => Ok(None),
            Some(item) => {
                let read = item.as_value().and_then(read);
                read.map(Some).ok_or_else(|| self.wrong_type(name, takes))
            }
        }
    }

    /// A string.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        self.value(name, "a string", |value| value.as_str().map(String::from))
    }

    /// A string that has to be there.
    pub fn required(&self, name: &str) -> Result<String> {
        let found = self.text(name)?.filter(|text| !text.is_empty());
        found.ok_or_else(|| self.wrong(format!("{} is missing", self.dotted(name))))
    }

    /// A boolean; false if it is missing.
    pub fn truth(&self, name: &str) -> Result<bool> {
        Ok(self.value(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.value(name, "a number", number)
    }

    /// A whole number of at least 0.
    pub fn whole(&self, name: &str) -> Result<Option<u32>> {
        self.value(name, "a whole number, at least 0", |value| value.as_integer().and_then(|n| u32::try_from(n).ok()))
    }

    /// Strings.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        let strings = |value: &Value| value.as_array()?.iter().map(|one| one.as_str().map(String::from)).collect();
        self.value(name, "an array of strings", strings)
    }

    /// One of a few words.
    pub fn word<T: Copy>(&self, name: &str, known: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = known.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.map(Some).ok_or_else(|| self.unknown_word(name, &text, known.iter().map(|(word, _)| *word)))
    }

    /// A number, or numbers by name.
    pub fn numbers(&self, name: &str) -> Result<Vec<(Option<String>, f64)>> {
        let Some(item) = self.item(name) else { return Ok(vec![]) };
        if let Some(number) = item.as_value().and_then(number) {
            return Ok(vec![(None, number)]);
        }
        let wrong = || self.wrong_type(name, "a number, or a table of numbers by group");
        let table = item.as_table_like().ok_or_else(wrong)?;
        let one = |(group, item): (&str, &Item)| {
            let number = item.as_value().and_then(number).ok_or_else(wrong)?;
            Ok((Some(group.to_string()), number))
        };
        table.iter().map(one).collect()
    }

    /// A table.
    pub fn table(&self, name: &str) -> Result<Option<Reader<'a>>> {
        let Some(item) = self.item(name) else { return Ok(None) };
        let table = item.as_table_like().ok_or_else(|| self.wrong_type(name, "a table"))?;
        Ok(Some(self.inside(name, table, self.line_of(name))))
    }

    fn inside(&self, name: &str, table: &'a dyn TableLike, line: usize) -> Reader<'a> {
        let key = self.key.iter().cloned().chain([name.to_string()]).collect();
        Reader { source: self.source, table, key, line, known: RefCell::default() }
    }

    /// Tables in a row: `[[name]]`, or an array of tables in braces.
    pub fn tables(&self, name: &str) -> Result<Vec<Reader<'a>>> {
        let wrong = || self.wrong_type(name, "an array of tables");
        let line = |span: Option<std::ops::Range<usize>>| {
            span.map_or_else(|| self.line_of(name), |span| self.source.line(span.start))
        };
        match self.item(name) {
            None => Ok(vec![]),
            Some(Item::ArrayOfTables(tables)) => {
                Ok(tables.iter().map(|table| self.inside(name, table, line(table.span()))).collect())
            }
            Some(Item::Value(Value::Array(values))) => {
                let one = |value: &'a Value| {
                    let table = value.as_inline_table().ok_or_else(wrong)?;
                    Ok(self.inside(name, table, line(table.span())))
                };
                values.iter().map(one).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// The settings in a table, with their places.
    pub fn settings(&self, name: &str) -> Result<Vec<Entry>> {
        let mut entries = vec![];
        if let Some(inside) = self.table(name)? {
            let place = |start: usize| Place::File(self.source.path.clone(), self.source.line(start));
            let start = self.table.get(name).and_then(Item::span).map_or(0, |span| span.start);
            flatten(inside.table, &mut vec![], &place, start, &mut entries);
        }
        Ok(entries)
    }

    /// Refuses unknown keys.
    pub fn finish(&self) -> Result<()> {
        let known = self.known.borrow();
        let unknown = self.table.iter().map(|(name, _)| name).find(|name| !known.iter().any(|known| known == name));
        let Some(name) = unknown else { return Ok(()) };
        let instead = match bilevel::errors::nearest(name, known.iter().map(String::as_str)) {
            Some(near) => Instead::Near(self.dotted(near)),
            None => Instead::Known(known.iter().map(|known| self.dotted(known)).collect()),
        };
        Err(ConfigError::at(&self.place_of(name), Wrong::UnknownKey { key: self.dotted(name), instead }))
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).filter(|number| number.is_finite())
}
