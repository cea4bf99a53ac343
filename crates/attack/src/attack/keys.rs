//! The keys of configurations with their types, as the command itself prints them.

use super::command::Bilevel;
use super::place::Place;
use super::words;
use crate::error::{AttackError, Result};
use bilevel_graph::conformance::Dice;

/// The values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Truth,
    Whole,
    Float,
    Word,
}

/// A key of a configuration.
#[derive(Clone, Debug)]
pub struct Key {
    /// With points between its parts.
    pub name: String,
    takes: Takes,
    default: String,
}

/// Names and keys of the command.
#[derive(Clone, Debug)]
pub struct Known {
    /// Tasks.
    pub tasks: Vec<String>,
    /// Methods.
    pub methods: Vec<String>,
    /// Items to reproduce.
    pub items: Vec<String>,
    /// The keys of each method.
    pub keys: Vec<Vec<Key>>,
}

impl Known {
    /// Reads them from the command.
    pub fn ask(bilevel: &Bilevel, place: &Place) -> Result<Self> {
        let list: serde_json::Value = serde_json::from_str(&bilevel.prepare(place, &["list", "--json"])?)
            .map_err(|error| AttackError::Command(format!("'bilevel list --json' is no JSON: {error}")))?;
        let names = |what: &str| -> Vec<String> {
            let all = list[what].as_array().into_iter().flatten();
            all.filter_map(|entry| entry["name"].as_str().map(String::from)).collect()
        };
        let (tasks, methods) = (names("tasks"), names("methods"));
        // Two columns after a head line; the last item is all of them.
        let items = bilevel.prepare(place, &["reproduce"])?;
        let items: Vec<String> = items
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next().map(String::from))
            .filter(|item| item != "all")
            .collect();
        if tasks.is_empty() || methods.is_empty() || items.is_empty() {
            return Err(AttackError::Command("'bilevel list' and 'bilevel reproduce' name nothing to attack".into()));
        }
        let keys = methods
            .iter()
            .map(|method| Ok(parse(&bilevel.prepare(place, &["run", &tasks[0], "-m", method, "--dry-run"])?)))
            .collect::<Result<_>>()?;
        Ok(Known { tasks, methods, items, keys })
    }

    /// A setting `KEY=VALUE` of one of these methods; if it is wild, one in three is wrong in some way.
    pub fn setting(&self, dice: &mut Dice, method: usize, wild: bool) -> String {
        let keys = &self.keys[method];
        let key = &keys[dice.below(keys.len())];
        match dice.below(12) {
            _ if !wild => format!("{}={}", key.name, key.good(dice)),
            0 => format!("{}={}", key.name, words::number(dice)),
            1 => format!("{}={}", words::slip(dice, &key.name), key.good(dice)),
            2 => {
                dice.pick(&["=", "a", "a=", "=1", "a==b", "method={}", "method=1", "outer.schedule={}", "[x]=1"]).into()
            }
            3 => format!("{}={}", key.name, words::word(dice, &self.methods)),
            _ => format!("{}={}", key.name, key.good(dice)),
        }
    }
}

impl Known {
    /// A configuration file; if it is wild, keys may be given twice, misspelt or of another type.
    pub fn file(&self, dice: &mut Dice, wild: bool) -> String {
        let method = dice.below(self.methods.len());
        let task = dice.below(self.tasks.len());
        let mut lines = vec![format!("task.name = \"{}\"", self.tasks[task])];
        // The settings of a task that are known are those of the first.
        let fits = |key: &&Key| key.name != "task.name" && (task == 0 || !key.name.starts_with("task."));
        for key in self.keys[method].iter().filter(fits) {
            match if wild { dice.below(40) } else { 4 + dice.below(36) } {
                0 => lines.push(format!("{} = {}", key.name, words::number(dice))),
                1 => lines.push(format!("{} = {}", words::slip(dice, &key.name), key.default)),
                2 => lines.push(words::word(dice, &self.methods)),
                3 => lines.push(format!("{} = {}\n{} = {}", key.name, key.default, key.name, key.good(dice))),
                4..=9 => lines.push(format!("{} = {}", key.name, key.good(dice))),
                10..=14 => {}
                _ => lines.push(format!("{} = {}", key.name, key.default)),
            }
        }
        if wild && dice.one_in(4) {
            let (a, b) = (dice.below(lines.len()), dice.below(lines.len()));
            lines.swap(a, b);
        }
        lines.join(dice.pick(&["\n", "\n", "\n", "\r\n", "\n\n"]))
    }
}

impl Key {
    /// A value that may be given, small enough for a run to end soon.
    fn good(&self, dice: &mut Dice) -> String {
        let last = self.name.rsplit('.').next().unwrap_or_default();
        match self.takes {
            Takes::Truth => dice.pick(&["true", "false"]).into(),
            // Any size of these costs nothing.
            Takes::Whole if ["seed", "every", "diagnose", "patience", "warm_up"].contains(&last) => {
                dice.pick(&["0", "1", "3", "1000", "4294967295"]).into()
            }
            Takes::Whole if last == "threads" => dice.pick(&["0", "1", "2", "3"]).into(),
            Takes::Whole => words::count(dice),
            Takes::Float => words::float(dice),
            Takes::Word => match self.name.as_str() {
                "dtype" => dice.pick(&["\"f32\"", "\"f64\""]).into(),
                "outer.optimizer.name" | "inner.optimizer.name" => {
                    dice.pick(&["\"sgd\"", "\"momentum\"", "\"rmsprop\"", "\"adam\"", "\"adamw\""]).into()
                }
                "outer.schedule.shape" | "inner.schedule.shape" => {
                    dice.pick(&["\"constant\"", "\"step\"", "\"cosine\""]).into()
                }
                "method.storage" => dice.pick(&["\"all\"", "\"checkpoints\"", "{ truncated = 3 }"]).into(),
                _ => self.default.clone(),
            },
        }
    }
}

/// The keys of a configuration as `--dry-run` prints it.
fn parse(text: &str) -> Vec<Key> {
    let mut keys = vec![];
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((name, rest)) = line.split_once(" = ") {
            let value = rest.split("  #").next().unwrap_or_default().trim();
            let takes = match value {
                "true" | "false" => Takes::Truth,
                _ if value.parse::<i64>().is_ok() => Takes::Whole,
                _ if value.parse::<f64>().is_ok() => Takes::Float,
                _ => Takes::Word,
            };
            keys.push(Key { name: format!("{table}{name}"), takes, default: value.into() });
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_with_their_tables_and_types() {
        let text = "seed = 0  # a number\n\n[method]\nname = \"rmd\"  # it\n\n[inner]\nstep = 0.5\n\n[outer.schedule]\nx = true\n";
        let keys = parse(text);
        let found: Vec<(&str, Takes)> = keys.iter().map(|key| (key.name.as_str(), key.takes)).collect();
        let expected = [
            ("seed", Takes::Whole),
            ("method.name", Takes::Word),
            ("inner.step", Takes::Float),
            ("outer.schedule.x", Takes::Truth),
        ];
        assert_eq!(found, expected);
        assert_eq!(keys[1].default, "\"rmd\"");
    }
}
