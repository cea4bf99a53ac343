//! The settings of a method or an optimizer as JSON: how a checkpoint tells one run from another.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;

/// The settings of a method, an optimizer or a schedule in their serde form, by the names that configuration files use.
///
/// A checkpoint holds all of them. They are read by the run's own type before the comparison: a setting that the
/// checkpoint lacks has its default, and a renamed one is found by its alias. So a setting added by a later version
/// refuses no earlier checkpoint, while a changed default does.
///
/// ```
/// use bilevel::methods::SettingsRecord;
/// use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct Before { step: f64 }
/// #[derive(Default, Serialize, Deserialize)]
/// #[serde(default)]
/// struct Now { step: f64, damping: f64 }
/// let before = SettingsRecord::of("newton", &Before { step: 0.1 });
/// assert_eq!(before.difference(&SettingsRecord::of("newton", &Now { step: 0.1, damping: 0.0 })), None);
/// let damped = SettingsRecord::of("newton", &Now { step: 0.1, damping: 0.5 });
/// assert_eq!(before.difference(&damped).unwrap(), "newton has damping = 0.0 there and 0.5 here");
/// ```
#[derive(Clone)]
pub struct SettingsRecord {
    value: Value,
    /// Keys that do not belong to the method itself.
    around: Vec<&'static str>,
    /// Settings from a file as today's type would write them; `None` if it cannot read them.
    read: fn(&Value) -> Option<Value>,
}

impl SettingsRecord {
    /// These settings under a name.
    pub fn of<T: Serialize + DeserializeOwned>(name: &str, settings: &T) -> Self {
        SettingsRecord { value: written(name, settings), around: vec![], read: read_as::<T> }
    }

    /// The `Debug` text of something whose settings have no serde form: any change of it, or of its type, is another run.
    pub fn text(name: &str, settings: &(impl fmt::Debug + ?Sized)) -> Self {
        let table = [("name", Value::from(name)), ("settings", Value::from(format!("{settings:?}")))];
        let table: Map<String, Value> = table.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        SettingsRecord { value: Value::Object(table), around: vec![], read: |value| Some(value.clone()) }
    }

    /// Adds a setting of a wrapper around the method.
    pub(crate) fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.value[key] = value.into();
        self.around.push(key);
        self
    }

    /// The settings of a checkpoint, as the type of these would write them.
    fn completed(&self, there: &Value) -> Option<Value> {
        let (around, own): (Map<_, _>, Map<_, _>) =
            there.as_object()?.clone().into_iter().partition(|(key, _)| self.around.contains(&key.as_str()));
        let mut completed = (self.read)(&Value::Object(own))?;
        completed.as_object_mut()?.extend(around);
        Some(completed)
    }

    /// The name.
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// assert_eq!(Rmd::default().settings().name(), "rmd");
    /// ```
    pub fn name(&self) -> &str {
        self.value["name"].as_str().unwrap_or_default()
    }

    /// One of the settings.
    ///
    /// ```
    /// use bilevel::Method;
    /// use bilevel::methods::Nystrom;
    /// assert_eq!(Nystrom { columns: 7, ..Nystrom::default() }.settings().get("columns").unwrap(), 7);
    /// ```
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key)
    }

    /// How the settings here differ from these, in words; `None` if they are the same.
    pub fn difference(&self, here: &SettingsRecord) -> Option<String> {
        let there = here.completed(&self.value);
        let there = there.as_ref().unwrap_or(&self.value);
        if *there == here.value {
            return None;
        }
        let (Value::Object(there), Value::Object(now)) = (there, &here.value) else {
            return Some(format!("{self} there and {here} here"));
        };
        if there.get("name") != now.get("name") {
            return Some(format!("{} there and {} here", self.name(), here.name()));
        }
        let differs = there.keys().chain(now.keys()).find(|key| there.get(*key) != now.get(*key))?;
        let shown = |table: &Map<String, Value>| table.get(differs).map_or("nothing".into(), Value::to_string);
        let name = if here.name().is_empty() { "it" } else { here.name() };
        Some(format!("{name} has {differs} = {} there and {} here", shown(there), shown(now)))
    }
}

/// A name and the fields of a struct in one table; anything but a struct has no settings.
fn written(name: &str, settings: &impl Serialize) -> Value {
    let mut table = Map::new();
    table.insert("name".into(), name.into());
    if let Ok(Value::Object(fields)) = serde_json::to_value(settings) {
        table.extend(fields.into_iter().filter(|(key, _)| key != "name"));
    }
    Value::Object(table)
}

/// A table as `T` would write it after reading it. An enum is told apart by the name; a struct does not have one.
fn read_as<T: Serialize + DeserializeOwned>(value: &Value) -> Option<Value> {
    let mut fields = value.as_object()?.clone();
    let name = fields.get("name")?.as_str()?.to_string();
    let named = serde_json::from_value::<T>(Value::Object(fields.clone()));
    let settings = named.or_else(|_| {
        fields.retain(|key, _| key != "name");
        // A struct without fields is written as nothing.
        let bare = if fields.is_empty() { serde_json::from_value::<T>(Value::Null).ok() } else { None };
        bare.map_or_else(|| serde_json::from_value::<T>(Value::Object(fields)), Ok)
    });
    Some(written(&name, &settings.ok()?))
}

impl PartialEq for SettingsRecord {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for SettingsRecord {}

impl fmt::Debug for SettingsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl fmt::Display for SettingsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl Serialize for SettingsRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(to)
    }
}

impl<'de> Deserialize<'de> for SettingsRecord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(SettingsRecord { value: Value::deserialize(from)?, around: vec![], read: |value| Some(value.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;
    use crate::hypergradient::registry;
    use crate::methods::{AnyMethod, Chains, Hoag, Rmd};
    use crate::optimizers::{Adam, InnerOptimizer, Optimizer, Sgd};

    /// As in a checkpoint: written and read again.
    fn stored(record: &SettingsRecord) -> SettingsRecord {
        serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap()
    }

    #[derive(Default, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Old {
        step: f64,
        steps: usize,
    }

    #[test]
    fn a_new_setting_with_a_default_keeps_the_identity_and_one_that_is_changed_does_not() {
        #[derive(Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct New {
            step: f64,
            steps: usize,
            damping: f64,
        }
        let old = stored(&SettingsRecord::of("own", &Old { step: 0.1, steps: 5 }));
        let new = |damping| SettingsRecord::of("own", &New { step: 0.1, steps: 5, damping });
        assert_eq!(old.difference(&new(0.0)), None);
        assert_eq!(old.difference(&new(0.5)).unwrap(), "own has damping = 0.0 there and 0.5 here");
    }

    #[test]
    fn a_default_that_has_changed_is_noticed() {
        #[derive(Serialize, Deserialize)]
        #[serde(default)]
        struct New {
            step: f64,
            steps: usize,
        }
        impl Default for New {
            fn default() -> Self {
                New { step: 0.0, steps: 100 }
            }
        }
        let old = stored(&SettingsRecord::of("own", &Old::default()));
        let difference = old.difference(&SettingsRecord::of("own", &New::default()));
        assert_eq!(difference.unwrap(), "own has steps = 0 there and 100 here");
    }

    #[test]
    fn a_field_that_is_renamed_in_code_alone_keeps_the_identity() {
        #[derive(Serialize, Deserialize)]
        struct Renamed {
            #[serde(rename = "step")]
            learning_rate: f64,
            #[serde(rename = "steps")]
            inner_steps: usize,
        }
        let old = stored(&SettingsRecord::of("own", &Old { step: 0.1, steps: 5 }));
        let renamed = SettingsRecord::of("own", &Renamed { learning_rate: 0.1, inner_steps: 5 });
        assert_eq!(old.difference(&renamed), None);
    }

    #[test]
    fn a_setting_that_is_gone_is_noticed() {
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Less {
            step: f64,
        }
        let old = stored(&SettingsRecord::of("own", &Old { step: 0.1, steps: 5 }));
        let less = SettingsRecord::of("own", &Less { step: 0.1 });
        assert_eq!(old.difference(&less).unwrap(), "own has steps = 5 there and nothing here");
    }

    #[test]
    fn changing_any_setting_of_any_method_changes_its_identity() {
        let mut all = 0;
        for info in registry::all() {
            let usual = AnyMethod::named(info.name).unwrap();
            let record = stored(&usual.settings());
            assert_eq!(record.difference(&usual.settings()), None, "{}", info.name);
            let Value::Object(table) = serde_json::to_value(&usual).unwrap() else { panic!("{}", info.name) };
            let mut changes = 0;
            for (key, value) in &table {
                let changed = match value {
                    Value::Bool(truth) => Value::from(!truth),
                    Value::Number(number) if number.is_f64() => Value::from(number.as_f64().unwrap() + 0.25),
                    Value::Number(number) => Value::from(number.as_u64().unwrap() + 1),
                    _ => continue,
                };
                let mut other = table.clone();
                other.insert(key.clone(), changed);
                let other: AnyMethod = serde_json::from_value(Value::Object(other)).unwrap();
                let difference = record.difference(&other.settings()).unwrap_or_default();
                assert!(difference.starts_with(&format!("{} has {key} = ", info.name)), "{key}: {difference}");
                changes += 1;
            }
            all += changes;
        }
        assert!(all >= 40, "the methods have hardly any settings");
    }

    #[test]
    fn a_method_is_the_same_however_it_is_held() {
        let method = Hoag { tolerance: 0.3, ..Hoag::default() };
        let boxed: Box<dyn Method> = Box::new(method);
        assert_eq!(method.settings(), AnyMethod::from(method).settings());
        assert_eq!(method.settings(), Method::settings(&boxed));
        let adam = Adam { beta1: 0.5, ..Adam::default() };
        assert_eq!(adam.settings(), InnerOptimizer::Adam(adam).settings());
        assert_eq!(stored(&Sgd.settings()).difference(&InnerOptimizer::Sgd.settings()), None);
    }

    #[test]
    fn the_number_of_chains_is_part_of_the_identity() {
        let chains = |count| Chains::new(Rmd::default(), count).settings();
        assert_eq!(stored(&chains(2)).difference(&chains(2)), None);
        assert_eq!(stored(&chains(2)).difference(&chains(3)).unwrap(), "rmd has chains = 2 there and 3 here");
        let alone = Rmd::default().settings();
        assert_eq!(stored(&chains(2)).difference(&alone).unwrap(), "rmd has chains = 2 there and nothing here");
        assert_eq!(stored(&alone).difference(&chains(2)).unwrap(), "rmd has chains = nothing there and 2 here");
        // A checkpoint from before the method had one of its settings.
        let mut before = stored(&chains(2));
        before.value.as_object_mut().unwrap().retain(|key, _| key != "storage");
        assert_eq!(before.difference(&chains(2)), None);
    }

    #[test]
    fn a_method_without_a_serde_form_is_identified_by_its_debug_text() {
        #[derive(Debug)]
        #[allow(dead_code)] // Read by its Debug text.
        struct Own(f64);
        let record = |step| SettingsRecord::text("own", &Own(step));
        assert_eq!(stored(&record(0.1)).difference(&record(0.1)), None);
        assert!(stored(&record(0.1)).difference(&record(0.2)).unwrap().contains("Own(0.2)"));
    }
}
