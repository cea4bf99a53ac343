//! The settings of a task, a method or an optimizer: a table with a name in it, as in a configuration file.

use bilevel::methods::{AnyMethod, Output};
use bilevel::{Error, Method, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A name, and the settings that belong to it.
///
/// ```
/// use bilevel::methods::Nystrom;
/// use bilevel_run::Settings;
/// let settings = Settings::of_method(Nystrom { columns: 5, ..Nystrom::default() });
/// assert_eq!((settings.name(), settings.get("columns").unwrap().as_u64()), ("nystrom", Some(5)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(Map<String, Value>);

impl Settings {
    /// These settings under a name; anything but a struct has no settings.
    pub fn new(name: &str, settings: &impl Serialize) -> Self {
        let mut table = Map::new();
        table.insert("name".into(), name.into());
        if let Ok(Value::Object(fields)) = serde_json::to_value(settings) {
            table.extend(fields.into_iter().filter(|(key, _)| key != "name"));
        }
        Settings(table)
    }

    /// Those of a method of the library.
    pub fn of_method(method: impl Into<AnyMethod>) -> Self {
        let method = method.into();
        Self::new(method.name(), &method)
    }

    /// The output of a method with these settings; a hypergradient, if it is not one of the library's.
    ///
    /// ```
    /// use bilevel::methods::{DTfbo, Output};
    /// assert_eq!(bilevel_run::Settings::of_method(DTfbo::default()).output(), Output::Step);
    /// ```
    pub fn output(&self) -> Output {
        let method: std::result::Result<AnyMethod, _> = serde_json::from_value(Value::Object(self.0.clone()));
        method.map_or(Output::Hypergradient, |method| method.output())
    }

    /// A table that has its name in it.
    pub fn from_table(table: Map<String, Value>) -> Self {
        Settings(table)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Replaces the value of an existing key; a missing key stays missing.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(place) = self.0.get_mut(key) {
            *place = value.into();
        }
    }

    /// All of it, the name included.
    pub fn table(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The struct that has these settings.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        let mut fields = self.0.clone();
        fields.shift_remove("name");
        serde_json::from_value(Value::Object(fields)).map_err(|error| Error::other(format!("{}: {error}", self.name())))
    }
}
