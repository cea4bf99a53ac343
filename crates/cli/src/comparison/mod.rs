//! Several methods on several seeds of one task, as a study.

pub(crate) mod curves;
mod summary;

use crate::config::Meanings;
use crate::config::text::{settings_to_toml, to_toml};
use bilevel::Result;
use bilevel_report::{Panel, Pictures, Section};
use bilevel_run::{AnyTask, Config, Findings, Finished, FinishedRun, Item, Plan, Study};
use curves::{Over, curve, plot};
use summary::Summary;

/// A comparison.
pub struct Comparison {
    /// The task.
    pub task: Box<dyn AnyTask>,
    /// The methods, in the order they were given.
    pub methods: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// All runs, method by method.
    pub runs: Vec<Config>,
    /// The heading of its page.
    title: String,
}

/// The name of the run of a method and a seed.
fn label(method: &str, seed: u64) -> String {
    format!("{method}-s{seed}")
}

impl Comparison {
    /// Compares these methods on a task.
    pub fn new(task: Box<dyn AnyTask>, methods: Vec<String>, seeds: Vec<u64>, runs: Vec<Config>) -> Self {
        let title = format!("{}: methods side by side", task.name());
        Comparison { task, methods, seeds, runs, title }
    }

    /// The runs of a method that finished without diverging.
    fn arrived<'a>(&'a self, done: &'a Finished, method: &'a str) -> impl Iterator<Item = &'a FinishedRun> {
        let run = move |seed: &u64| done.run(&label(method, *seed)).ok();
        self.seeds.iter().filter_map(run).filter(|run| run.arrived())
    }

    /// λ as the task draws it, averaged over seeds.
    fn pictures(&self, done: &Finished, method: &str) -> Option<Pictures> {
        let picture = self.task.picture()?;
        let leaf = |run: &'_ FinishedRun| run.lambda.iter().find(|leaf| leaf.name == picture.leaf).cloned();
        let leaves: Vec<_> = self.arrived(done, method).filter_map(leaf).collect();
        let length = leaves.iter().map(|leaf| leaf.values.len()).min()?;
        let mean = |i: usize| leaves.iter().map(|leaf| leaf.values[i]).sum::<f64>() / leaves.len() as f64;
        let mean: Vec<f64> = (0..length).map(mean).collect();
        let panel = |number: usize| Panel {
            title: number.to_string(),
            rows: picture.rows,
            columns: picture.columns,
            values: picture.panel(&mean, number),
        };
        let over = if leaves.len() > 1 { format!(", mean of {} seeds", leaves.len()) } else { String::new() };
        Some(Pictures { title: format!("λ by {method}{over}"), panels: (0..picture.panels).map(panel).collect() })
    }

    /// The settings of the first method, and those in which the others differ.
    fn settings(&self, plan: &Plan) -> String {
        let mut text = String::new();
        for (number, method) in self.methods.iter().enumerate() {
            let Some(run) = self.runs.iter().find(|run| run.method.name() == method) else { continue };
            if number == 0 {
                text += &to_toml(plan.registry, run);
            } else {
                let mut settings = run.settings();
                settings.retain(|key, _| key == "method");
                text += &settings_to_toml(&settings, &Meanings::of(plan.registry, "", method));
            }
        }
        text.trim_start().to_string()
    }

    fn introduction(&self) -> String {
        let seeds = match self.seeds.as_slice() {
            [seed] => format!("seed {seed}"),
            [first, .., last] => format!("seeds {first} to {last}"),
            [] => "no seed".into(),
        };
        format!(
            "The task: {}.\n\n{} with {seeds}. Curves are means over seeds; bands are one standard deviation. The cost \
             is counted in gradients of the inner or outer loss: a Hessian or mixed product counts as two, and a \
            reverse pass that gives both counts once. Times are of runs side by side on one machine.",
            self.task.summary(),
            self.methods.join(", ")
        )
    }
}

impl Study for Comparison {
    fn name(&self) -> &str {
        "compare"
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn items(&self, _: &Plan) -> Result<Vec<Item>> {
        Ok(self.runs.iter().map(|run| Item::run(label(run.method.name(), run.seed), run.clone())).collect())
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let summary = Summary::new(self, done);
        let mut sections = vec![Section::Text { title: String::new(), text: self.introduction() }];
        for measure in std::iter::once(None).chain(summary.measures().iter().map(|name| Some(name.as_str()))) {
            for over in [Over::Iterations, Over::Cost] {
                let of = |method: &String| {
                    let passes = plan.registry.known_method(method).ok()?.passes;
                    let runs: Vec<&FinishedRun> = self.arrived(done, method).collect();
                    let curve = curve(method, &runs, measure, over, passes);
                    (!curve.points.is_empty()).then_some(curve)
                };
                let curves: Vec<_> = self.methods.iter().filter_map(of).collect();
                if !curves.is_empty() {
                    sections.push(plot(measure, over, self.seeds.len(), curves));
                }
            }
        }
        sections.extend(self.methods.iter().filter_map(|method| self.pictures(done, method)).map(Section::Pictures));
        sections.push(Section::Code { title: "Settings".into(), text: self.settings(plan) });
        Ok(Findings {
            warnings: summary.warnings(),
            rows: summary.rows(),
            tables: vec![summary.table()],
            said: vec![],
            sections,
        })
    }
}
