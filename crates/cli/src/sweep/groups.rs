//! Results of a sweep: one line per combination, averaged over seeds, and the best of them.

use super::{Sweep, short};
use bilevel_report::{Column, Table, count, number};
use bilevel_run::run::RunResult;
use bilevel_run::spread::Spread;
use bilevel_run::{Done, Finished, FinishedRun, Row, Verdict};

/// The criterion of the best, in words: the measure of `keep_best`, the loss on held-out rows, or the outer loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    /// Its name, in words.
    pub name: String,
    /// Whether more is better.
    higher: bool,
}

/// One combination of values, with a run for each seed.
pub struct Group<'a> {
    /// Its values, without the seed, as `rate=0.1`.
    pub name: String,
    /// The values, in the order of the keys without the seed.
    pub words: Vec<String>,
    /// Its finished runs, with the names of their folders.
    pub runs: Vec<(&'a str, &'a FinishedRun)>,
    /// Runs that diverged, that do not apply, and that it has in all.
    diverged: usize,
    not_applicable: usize,
    all: usize,
}

impl Group<'_> {
    /// Mean and deviation over its runs.
    pub fn spread(&self, pick: impl Fn(&FinishedRun) -> Option<f64>) -> Spread {
        Spread::of(&self.runs.iter().filter_map(|(_, run)| pick(run)).collect::<Vec<_>>())
    }

    /// A short note if some of its runs failed.
    fn note(&self) -> String {
        match (self.not_applicable, self.diverged, self.all - self.runs.len()) {
            (_, _, 0) => String::new(),
            (n, _, _) if n > 0 => "does not apply".into(),
            (_, n, _) if n == self.all => "diverged".into(),
            (_, n, _) if n > 0 => format!("{n} of {} diverged", self.all),
            (_, _, missing) => format!("{missing} of {} not done", self.all),
        }
    }
}

/// The results of a sweep.
pub struct Groups<'a> {
    /// One for each combination.
    pub all: Vec<Group<'a>>,
    /// The names of the keys without the seed, shortened.
    pub keys: Vec<String>,
    /// The criterion of the best.
    pub criterion: Criterion,
    /// The number of the best, if there is one.
    pub best: Option<usize>,
}

/// The value of the criterion in one run.
fn value(result: &RunResult, criterion: &Criterion) -> Option<f64> {
    let found = match criterion.name.as_str() {
        "outer loss" => result.outer_loss,
        "held-out loss" => result.guard.map(|guard| guard.held_out_loss),
        _ => result.best.as_ref().map(|best| best.value),
    };
    found.filter(|value| value.is_finite())
}

impl<'a> Groups<'a> {
    /// Groups the finished runs.
    pub fn new(sweep: &'a Sweep, done: &'a Finished) -> Self {
        let names = short(&sweep.keys);
        let own: Vec<usize> = (0..names.len()).filter(|&n| sweep.keys[n] != "seed").collect();
        let mut all: Vec<Group> = vec![];
        for (variant, label) in sweep.variants.iter().zip(&sweep.labels) {
            let words: Vec<String> = own.iter().map(|&n| variant.words[n].clone()).collect();
            let at = all.iter().position(|group| group.words == words).unwrap_or_else(|| {
                let parts: Vec<String> = own.iter().map(|&n| format!("{}={}", names[n], variant.words[n])).collect();
                let name = if parts.is_empty() { "all seeds".into() } else { parts.join(", ") };
                all.push(Group { name, words, runs: vec![], diverged: 0, not_applicable: 0, all: 0 });
                all.len() - 1
            });
            let group = &mut all[at];
            group.all += 1;
            match done.get(label) {
                Some(Done::Run(run)) if run.arrived() => group.runs.push((label, run)),
                Some(Done::Run(_)) => group.diverged += 1,
                Some(Done::NotApplicable(_)) => group.not_applicable += 1,
                _ => {}
            }
        }
        let criterion = criterion(sweep, &all);
        let mut groups =
            Groups { all, keys: own.into_iter().map(|n| names[n].clone()).collect(), criterion, best: None };
        groups.best = groups.choose();
        groups
    }

    /// The mean of the criterion in a group.
    pub fn judged(&self, group: &Group) -> Spread {
        group.spread(|run| value(&run.result, &self.criterion))
    }

    /// The best of the groups of which most runs went well.
    fn choose(&self) -> Option<usize> {
        let most = self.all.iter().map(|group| group.runs.len()).max().filter(|most| *most > 0)?;
        let candidates = self.all.iter().enumerate().filter(|(_, group)| group.runs.len() == most);
        let judged = candidates.map(|(n, group)| (n, self.judged(group))).filter(|(_, found)| found.count > 0);
        let sign = if self.criterion.higher { -1.0 } else { 1.0 };
        judged.min_by(|(_, a), (_, b)| (sign * a.mean).total_cmp(&(sign * b.mean))).map(|(n, _)| n)
    }

    /// The numbers of the groups that have a result, the best first.
    pub fn ranked(&self) -> Vec<usize> {
        let sign = if self.criterion.higher { -1.0 } else { 1.0 };
        let mut ranked: Vec<(usize, f64)> =
            self.all.iter().enumerate().map(|(n, group)| (n, sign * self.judged(group).mean)).collect();
        ranked.retain(|(n, _)| !self.all[*n].runs.is_empty());
        ranked.sort_by(|(a, one), (b, other)| one.total_cmp(other).then(a.cmp(b)));
        ranked.into_iter().map(|(n, _)| n).collect()
    }

    /// Names of the task's own measures.
    pub fn measures(&self) -> Vec<String> {
        let first = self.all.iter().flat_map(|group| &group.runs).next();
        first.map_or(vec![], |(_, run)| run.result.measures.keys().cloned().collect())
    }

    /// A sentence on the best group and its folders.
    pub fn best_sentence(&self) -> Option<String> {
        let group = &self.all[self.best?];
        let found = self.judged(group);
        let value = match found.count {
            1 => number(found.mean),
            seeds => format!("{}, mean of {seeds} seeds", found.text()),
        };
        let folders: Vec<&str> = group.runs.iter().map(|(label, _)| *label).collect();
        let folders = match &folders[..] {
            [one] => format!("folder {one}"),
            [first, .., last] => format!("folders {first} to {last}"),
            [] => return None,
        };
        Some(format!("The best is {}: {} {value} ({folders}).", group.name, self.criterion.name))
    }

    /// One row per combination.
    pub fn table(&self, sweep: &Sweep) -> Table {
        let measures = self.measures();
        let held_out = self.criterion.name != "outer loss";
        let mut columns: Vec<Column> = self.keys.iter().map(Column::text).collect();
        if columns.is_empty() {
            columns.push(Column::text("runs"));
        }
        columns.push(Column::numeric("outer loss"));
        columns
            .extend(held_out.then(|| {
                Column::numeric(format!("best {}", self.criterion.name).replace("best held-out", "held-out"))
            }));
        columns.extend(measures.iter().map(Column::numeric));
        columns.extend([Column::numeric("gradients"), Column::numeric("seconds"), Column::text("")]);
        let row = |(n, group): (usize, &Group)| {
            let mut cells = if group.words.is_empty() { vec![group.name.clone()] } else { group.words.clone() };
            cells.push(group.spread(|run| run.result.outer_loss).text());
            cells.extend(held_out.then(|| self.judged(group).text()));
            cells.extend(measures.iter().map(|name| group.spread(|run| run.measure(name)).text()));
            let (cost, seconds) = (group.spread(|run| Some(run.price)), group.spread(|run| Some(run.seconds)));
            cells.push(if cost.count == 0 { "–".into() } else { count(cost.mean) });
            cells.push(if seconds.mean.is_finite() { format!("{:.2}", seconds.mean) } else { "–".into() });
            cells.push(if self.best == Some(n) { "best".into() } else { group.note() });
            cells
        };
        let rows = self.all.iter().enumerate().map(row).collect();
        let seeds = self.all.iter().map(|group| group.all).max().unwrap_or(1);
        let over = if seeds > 1 { format!(", mean ± sd of {seeds} seeds") } else { String::new() };
        Table { columns, rows, caption: format!("{} by {}{over}", sweep.task.name(), sweep.methods()) }
    }

    /// One row per combination and number.
    pub fn rows(&self, sweep: &Sweep) -> Vec<Row> {
        let mut rows = vec![];
        for group in &self.all {
            let (cost, seconds) =
                (group.spread(|run| Some(run.price)).mean, group.spread(|run| Some(run.seconds)).mean);
            let verdict = match group.runs.is_empty() {
                true => Verdict::NotRun(group.note()),
                false => Verdict::NotClaimed,
            };
            let mut add = |metric: &str, found: Spread| {
                let row = Row::new("sweep", &group.name, metric, found.mean).setting(sweep.task.name());
                let sd = if found.count > 1 { found.sd } else { f64::NAN };
                rows.push(row.over(sd, found.count as u32).cost(cost).took(seconds).verdict(verdict.clone()));
            };
            add("outer loss", group.spread(|run| run.result.outer_loss));
            if self.criterion.name != "outer loss" {
                add(&format!("best {}", self.criterion.name), self.judged(group));
            }
            for name in self.measures() {
                add(&name, group.spread(|run| run.measure(&name)));
            }
        }
        rows
    }

    /// Warnings about failed runs.
    pub fn warnings(&self, done: &Finished, labels: &[String]) -> Vec<String> {
        let mut said: Vec<String> = vec![];
        for label in labels {
            let sentence = match done.get(label) {
                Some(Done::Run(run)) if !run.arrived() => format!("{label} {}.", run.result.because),
                Some(Done::NotApplicable(reason)) => format!("{label}: {reason}."),
                _ => continue,
            };
            said.push(sentence);
        }
        let most = 8;
        if said.len() > most {
            let more = said.len() - most;
            said.truncate(most);
            said.push(format!("{more} more runs have no result."));
        }
        said
    }
}

/// The criterion of the best.
fn criterion(sweep: &Sweep, groups: &[Group]) -> Criterion {
    let runs = || groups.iter().flat_map(|group| &group.runs).map(|(_, run)| &run.result);
    let kept = &sweep.variants[0].config.outer.keep_best;
    let same = sweep.variants.iter().all(|variant| variant.config.outer.keep_best == *kept);
    let measure = kept.split_once(' ').filter(|_| same && runs().all(|result| result.best.is_some()));
    if let Some((side, name)) = measure {
        // The loss of the last iteration has the same name.
        let name = if name == "outer loss" { "measured outer loss" } else { name };
        return Criterion { name: name.into(), higher: side == "highest" };
    }
    let name = if runs().next().is_some() && runs().all(|result| result.guard.is_some()) {
        "held-out loss"
    } else {
        "outer loss"
    };
    Criterion { name: name.into(), higher: false }
}
