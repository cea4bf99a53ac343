//! One task with several values for some keys, as a study: a run for each combination, a table, the best, and a page.

mod groups;
mod page;

use bilevel::Result;
use bilevel_report::Section;
use bilevel_run::{AnyTask, Config, Findings, Finished, Item, Plan, Study};
use groups::Groups;

/// The longest label of a run: its folder's name.
const LONGEST_LABEL: usize = 100;

/// One combination of values.
#[derive(Clone)]
pub struct Variant {
    /// The values as they were written, in the order of the keys.
    pub words: Vec<String>,
    /// The run.
    pub config: Config,
}

/// A sweep.
pub struct Sweep {
    task: Box<dyn AnyTask>,
    /// The keys that have several values.
    keys: Vec<String>,
    variants: Vec<Variant>,
    /// The names of the runs' folders.
    labels: Vec<String>,
    title: String,
}

impl Sweep {
    /// A sweep of these variants of a task.
    pub fn new(task: Box<dyn AnyTask>, keys: Vec<String>, variants: Vec<Variant>) -> Self {
        let short = short(&keys);
        let mut labels: Vec<String> = vec![];
        for variant in &variants {
            let parts: Vec<String> =
                short.iter().zip(&variant.words).map(|(key, word)| format!("{key}={word}")).collect();
            let name = folder_name(&parts.join("_"));
            let mut label = name.clone();
            for number in 2.. {
                if !labels.contains(&label) {
                    break;
                }
                label = format!("{name}-{number}");
            }
            labels.push(label);
        }
        let title = format!("{}: a sweep over {}", task.name(), keys.join(", "));
        Sweep { task, keys, variants, labels, title }
    }
}

/// The keys without their tables, if they stay distinct.
fn short(keys: &[String]) -> Vec<String> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
    let alone = |key: &str| keys.iter().filter(|other| last(other) == last(key)).count() == 1 && last(key) != "name";
    keys.iter().map(|key| if alone(key) { last(key) } else { key.clone() }).collect()
}

/// A text as every file system takes it for a name.
fn folder_name(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "._=+-".contains(c) { c } else { '-' };
    let name: String = text.chars().map(keep).take(LONGEST_LABEL).collect();
    name.trim_matches(['.', '-']).to_string()
}

impl Study for Sweep {
    fn name(&self) -> &str {
        "sweep"
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn items(&self, _: &Plan) -> Result<Vec<Item>> {
        let runs = self.labels.iter().zip(&self.variants);
        Ok(runs.map(|(label, variant)| Item::run(label, variant.config.clone())).collect())
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let groups = Groups::new(self, done);
        let mut sections = vec![Section::Text { title: String::new(), text: page::introduction(self, &groups) }];
        sections.extend(page::figures(self, &groups, plan));
        sections.extend(page::settings(&groups, plan));
        Ok(Findings {
            warnings: groups.warnings(done, &self.labels),
            rows: groups.rows(self),
            tables: vec![groups.table(self)],
            said: groups.best_sentence().into_iter().collect(),
            sections,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shortened_where_they_stay_apart_and_names_are_plain() {
        let short = |keys: &[&str]| super::short(&keys.iter().map(|key| key.to_string()).collect::<Vec<_>>());
        assert_eq!(short(&["outer.rate", "seed"]), ["rate", "seed"]);
        assert_eq!(
            short(&["outer.optimizer.decay", "inner.optimizer.decay"]),
            ["outer.optimizer.decay", "inner.optimizer.decay"]
        );
        assert_eq!(short(&["method.name"]), ["method.name"]);
        assert_eq!(folder_name("rate=0.01_start=../λ x/y"), "rate=0.01_start=..---x-y");
        assert_eq!(folder_name(&"x".repeat(300)).len(), 100);
    }

    #[test]
    fn every_run_has_a_folder_of_its_own() {
        let registry = crate::everything();
        let config = registry.usual("synth1d").unwrap();
        let variant = |word: &str| Variant { words: vec![word.into()], config: config.clone() };
        let task = registry.read_task(&config.task).unwrap();
        let sweep = Sweep::new(task, vec!["data".into()], vec![variant("a/b"), variant("a b")]);
        assert_eq!(sweep.labels, ["data=a-b", "data=a-b-2"]);
    }
}
