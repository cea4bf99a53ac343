//! From the results of a manifest's items to rows, curves and sentences.

use super::items::{Piece, filled};
use super::rule::{Case, Rule};
use super::{Better, Contents, Difference, Group, Held, Metric, Source, Taken, TakenPicture, curves, pictures};
use crate::config::entries::Entry;
use crate::spread::Spread;
use crate::{Config, Context, Done, Findings, Finished, FinishedRun, LambdaLeaf, Plan, Row, Verdict};
use bilevel::Result;
use bilevel_report::{Pictures, Plot, Section, Table};

/// The outcome of a seed of a piece.
pub(super) enum Outcome<'a> {
    /// A run, whether it diverged or not.
    Run(&'a FinishedRun),
    /// A measure.
    Taken(Taken),
    /// It does not apply, for this reason.
    NotApplicable(&'a str),
}

/// The outcomes of all finished seeds of a piece.
pub(super) struct Outcomes<'a> {
    pub piece: Piece<'a>,
    pub all: Vec<Outcome<'a>>,
    /// The findings of its judges, seed by seed.
    judged: Vec<Vec<Taken>>,
    /// Its setting in tables.
    setting: String,
    /// The cost of a run as the study words it.
    effort: String,
    config: Option<Config>,
    /// Seeds that there should be.
    wanted: u64,
    seconds: Option<f64>,
}

impl Metric {
    /// With factor, offset and sign.
    fn scaled(&self, number: f64) -> f64 {
        let number = self.times * (number - self.minus);
        if self.absolute { number.abs() } else { number }
    }

    /// Whether it is a number of a group's rows.
    fn is_in(&self, group: &Group) -> bool {
        !self.drawn && (self.groups.is_empty() || self.groups.contains(&group.name))
    }

    fn is_higher(&self) -> bool {
        self.better == Some(Better::Higher)
    }

    /// Its value after so many iterations of a run, or at the end.
    fn of_run(&self, run: &FinishedRun, at: Option<f64>) -> Option<f64> {
        let lambda = || run.lambda.iter().flat_map(|leaf| leaf.values.iter().copied());
        let number = match &self.source {
            Source::Measure(name) => match at {
                None => end_of(run, name),
                Some(at) => way_of(run, name).into_iter().rev().find(|(x, _)| *x <= at).map(|(_, y)| y),
            },
            Source::Best(name) => self.best(&way_of(run, name)),
            Source::AtBest(name, guide) => {
                let least =
                    way_of(run, guide).into_iter().filter(|(_, y)| y.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1));
                least.and_then(|(at, _)| way_of(run, name).into_iter().find(|(x, _)| *x == at).map(|(_, y)| y))
            }
            Source::Lambda(index) => lambda().nth(*index),
            Source::LambdaBut(index, relative) => largest_but(&lambda().collect::<Vec<_>>(), *index, *relative),
            Source::Diverged => None,
        };
        number.filter(|number| number.is_finite()).map(|number| self.scaled(number))
    }

    /// The number on the way whose value is best.
    fn best(&self, way: &[(f64, f64)]) -> Option<f64> {
        let numbers = way.iter().map(|(_, y)| *y).filter(|y| y.is_finite());
        let value = |a: &f64, b: &f64| self.scaled(*a).total_cmp(&self.scaled(*b));
        if self.is_higher() { numbers.max_by(value) } else { numbers.min_by(value) }
    }

    /// Its values in a measure.
    fn of_taken(&self, taken: &Taken) -> Vec<f64> {
        let found = match &self.source {
            Source::Measure(name) => taken.numbers.get(name).cloned().unwrap_or_default(),
            Source::Best(name) => taken.way.get(name).and_then(|way| self.best(way)).into_iter().collect(),
            Source::AtBest(..) | Source::Diverged => vec![],
            Source::Lambda(index) => taken.lambda.get(*index).copied().into_iter().collect(),
            Source::LambdaBut(index, relative) => largest_but(&taken.lambda, *index, *relative).into_iter().collect(),
        };
        found.into_iter().filter(|number| number.is_finite()).map(|number| self.scaled(number)).collect()
    }

    /// Its values over iterations.
    fn way(&self, outcome: &Outcome) -> Vec<(f64, f64)> {
        let (Source::Measure(name) | Source::Best(name)) = &self.source else { return vec![] };
        match outcome {
            Outcome::Run(run) => way_of(run, name).into_iter().map(|(x, y)| (x, self.scaled(y))).collect(),
            Outcome::Taken(taken) => self.way_of_taken(taken),
            Outcome::NotApplicable(_) => vec![],
        }
    }

    /// Its curve in a measure.
    fn way_of_taken(&self, taken: &Taken) -> Vec<(f64, f64)> {
        let (Source::Measure(name) | Source::Best(name)) = &self.source else { return vec![] };
        taken.way.get(name).into_iter().flatten().map(|(x, y)| (*x, self.scaled(*y))).collect()
    }
}

/// A difference of fewer standard errors may be chance.
const MIN_ERRORS: f64 = 3.0;

/// The losses of a run by name, in addition to the measures of its task.
const OUTER: &str = "outer loss";
const INNER: &str = "inner loss";

fn end_of(run: &FinishedRun, name: &str) -> Option<f64> {
    match name {
        OUTER => run.result.outer_loss,
        INNER => run.result.inner_loss,
        _ => run.measure(name),
    }
}

fn way_of(run: &FinishedRun, name: &str) -> Vec<(f64, f64)> {
    match name {
        OUTER => run.history.points(|row| row.outer_loss),
        INNER => run.history.points(|row| row.inner_loss),
        _ => run.history.measure(name),
    }
}

/// The largest size of all numbers but one, in units of the size of that one if that is asked for.
fn largest_but(lambda: &[f64], index: usize, relative: bool) -> Option<f64> {
    let one = lambda.get(index)?.abs();
    let others = lambda.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, number)| number.abs());
    let largest = others.fold(0.0, f64::max);
    Some(if relative { largest / one } else { largest })
}

impl<'a> Outcomes<'a> {
    fn of(contents: &Contents, plan: &Plan, piece: Piece<'a>, done: &'a Finished) -> Result<Self> {
        let (seeds, mut all, mut judged, mut seconds) = (contents.seeds(plan, piece), vec![], vec![], None);
        for seed in seeds.clone() {
            let label = piece.label(seed);
            seconds = seconds.or(done.seconds(&label));
            match done.get(&label) {
                Some(Done::Run(run)) => all.push(Outcome::Run(run)),
                Some(Done::Measured { .. }) => all.push(Outcome::Taken(done.measured(&label)?)),
                Some(Done::NotApplicable(why)) => all.push(Outcome::NotApplicable(why)),
                None => continue,
            }
            let judges = contents.judges(piece).map(|judge| judge.label(seed));
            let judges = judges.filter(|label| done.get(label).is_some());
            judged.push(judges.map(|label| done.measured(&label)).collect::<Result<_>>()?);
        }
        let config = contents.config(plan, piece.base(), plan.seed, None).ok();
        let with_values = |text: &str| config.as_ref().map_or(text.to_string(), |config| filled(text, config));
        let setting = with_values(&piece.row.setting);
        let effort = contents.effort.as_ref().map_or(String::new(), |text| with_values(text));
        Ok(Outcomes { piece, all, judged, setting, effort, config, wanted: seeds.end - seeds.start, seconds })
    }

    /// Its method and its setting.
    pub fn name(&self) -> String {
        format!("{} {}", self.piece.method(), self.setting).trim().to_string()
    }

    /// Values of a metric over the seeds that arrived, after so many iterations or at the end.
    pub fn values(&self, metric: &Metric, at: Option<f64>) -> Vec<f64> {
        let of = |(outcome, judged): (&Outcome, &Vec<Taken>)| {
            let own = match outcome {
                Outcome::Run(run) if run.arrived() => metric.of_run(run, at).into_iter().collect(),
                Outcome::Taken(taken) => metric.of_taken(taken),
                _ => vec![],
            };
            let judged = || judged.iter().flat_map(|taken| metric.of_taken(taken)).collect();
            if own.is_empty() { judged() } else { own }
        };
        self.all.iter().zip(&self.judged).flat_map(of).collect()
    }

    /// Pictures of the first seed.
    pub fn pictures(&self) -> impl Iterator<Item = &TakenPicture> {
        let own = self.all.first().into_iter().filter_map(|outcome| match outcome {
            Outcome::Taken(taken) => Some(taken),
            _ => None,
        });
        own.chain(self.judged.first().into_iter().flatten()).flat_map(|taken| &taken.pictures)
    }

    /// Values of a metric over iterations, of the first seed.
    pub fn way(&self, metric: &Metric) -> Vec<(f64, f64)> {
        let own = self.all.first().map_or(vec![], |outcome| metric.way(outcome));
        let judged = || self.judged.first().into_iter().flatten().flat_map(|taken| metric.way_of_taken(taken));
        if own.is_empty() { judged().collect() } else { own }
    }

    /// Whether a run did not arrive without having diverged.
    fn missed(&self) -> bool {
        self.all.iter().any(|outcome| matches!(outcome, Outcome::Taken(taken) if !taken.missed.is_empty()))
    }

    /// Runs that diverged or did not arrive, all runs, and why the first of them did not.
    fn diverged(&self) -> Option<(u32, u32, String)> {
        let (mut lost, mut count, mut why) = (0, 0, String::new());
        for outcome in &self.all {
            match outcome {
                Outcome::Run(run) => {
                    count += 1;
                    lost += u32::from(!run.arrived());
                    if !run.arrived() && why.is_empty() {
                        why.clone_from(&run.result.because);
                    }
                }
                Outcome::Taken(taken) => {
                    count += taken.diverged + taken.numbers.values().map(Vec::len).max().unwrap_or(0) as u32;
                    lost += taken.diverged + u32::from(!taken.missed.is_empty());
                    if why.is_empty() {
                        why = if taken.diverged > 0 { "diverged".into() } else { taken.missed.clone() };
                    }
                }
                Outcome::NotApplicable(_) => {}
            }
        }
        (lost > 0).then_some((lost, count, why))
    }

    fn cost(&self) -> Option<f64> {
        let of = |outcome: &Outcome| match outcome {
            Outcome::Run(run) => Some(run.price),
            Outcome::Taken(taken) => taken.cost,
            Outcome::NotApplicable(_) => None,
        };
        let costs: Vec<f64> = self.all.iter().filter_map(of).collect();
        (!costs.is_empty()).then(|| Spread::of(&costs).mean)
    }

    /// Outer iterations of its runs.
    fn iterations(&self) -> Option<f64> {
        self.all.iter().find_map(|outcome| match outcome {
            Outcome::Run(run) => Some(f64::from(run.result.iterations)),
            _ => None,
        })
    }
}

/// All of a group.
struct OfGroup<'a> {
    contents: &'a Contents,
    study: &'a str,
    group: &'a Group,
    /// Whether numbers are compared with the paper's.
    held: bool,
    is_quick: bool,
    all: Vec<Outcomes<'a>>,
}

impl OfGroup<'_> {
    fn held<'h>(&'h self, piece: &'h Piece, metric: &Metric) -> Option<&'h Held> {
        let follow = piece.follow.map(|follow| follow.name.as_str());
        let held = |held: &&Held| held.metric == metric.id() && held.follow.as_deref() == follow;
        piece.row.held.iter().find(held).filter(|_| self.held)
    }

    /// The row that the file calls by a name.
    fn named_row(&self, name: &str) -> Option<&Outcomes<'_>> {
        self.all.iter().find(|base| match base.piece.follow {
            None => base.piece.row.name() == name,
            Some(follow) => follow.method.as_deref() == Some(name),
        })
    }

    /// The mean of a row, after as many iterations as these, and its number in the paper.
    fn baseline(&self, name: &str, metric: &Metric, at: Option<f64>) -> Option<(f64, Option<f64>)> {
        let base = self.named_row(name)?;
        let at = at.filter(|at| base.iterations().is_some_and(|end| *at < end));
        let values = base.values(metric, at);
        let paper = base.piece.row.held.iter().find(|held| held.metric == metric.id() && held.follow.is_none());
        let paper = paper.and_then(|held| held.paper.of(&self.group.name));
        (!values.is_empty()).then(|| (Spread::of(&values).mean, paper))
    }

    /// The row of a metric; `None` if the piece lacks it.
    fn row(&self, outcomes: &Outcomes, metric: &Metric, is_first: bool) -> Option<Row> {
        let (piece, name) = (&outcomes.piece, &self.group.name);
        let held = self.held(piece, metric);
        let (paper, reference) =
            (held.and_then(|held| held.paper.of(name)), held.and_then(|held| held.reference.of(name)));
        let values = outcomes.values(metric, None);
        let spread = Spread::of(&values);
        let setting: Vec<&str> =
            [name.as_str(), &metric.setting, &outcomes.setting].into_iter().filter(|word| !word.is_empty()).collect();
        let row = Row::new(self.study, piece.method(), &metric.name, spread.mean).setting(setting.join(", "));
        let row = row.paper(paper).reference(reference).cost(outcomes.cost()).took(outcomes.seconds);
        let lost = outcomes.diverged();
        if let Source::Diverged = metric.source {
            let (lost, all, why) = lost.filter(|_| !outcomes.missed())?;
            let judged = Case { ours: f64::from(lost), why: held.map_or("", |held| &held.why), ..Case::default() };
            let verdict =
                if self.held { judged.when(false, format!("{lost} of {all} runs {why}")) } else { Verdict::NotClaimed };
            let row = Row { ours: Some(f64::from(lost)), seeds: all, ..row };
            return Some(row.verdict(verdict));
        }
        if values.is_empty() {
            return Some(row.without_runs(self.no_number(outcomes, lost))).filter(|_| is_first);
        }
        let row = if values.len() > 1 { row.over(spread.sd, spread.count as u32) } else { row };
        let rule = held.and_then(|held| held.rule.as_ref()).unwrap_or(&metric.rule);
        // A follow-up run with a learned λ has a rule if it has a number.
        let rule = if self.held && (piece.follow.is_none() || held.is_some()) { rule } else { &Rule::None };
        if let Some((lost, all, why)) = lost.filter(|_| is_first || *rule != Rule::None) {
            return Some(row.verdict(Verdict::NotReproduced(format!("{lost} of {all} runs {why}"))));
        }
        let baseline = rule.baseline().and_then(|base| self.baseline(base, metric, outcomes.iterations()));
        let rival = rule.baseline().and_then(|row| self.named_row(row)).map_or(String::new(), Outcomes::name);
        let why = held.map_or("", |held| &held.why);
        let why = outcomes.config.as_ref().map_or(why.to_string(), |config| filled(why, config));
        let case = Case {
            ours: spread.mean,
            sd: spread.sd,
            count: spread.count,
            paper,
            reference,
            baseline,
            rival: &rival,
            better: metric.better,
            why: &why,
        };
        // The number to beat is shown even without a comparison.
        let own = piece.row.held.iter().find(|held| held.metric == metric.id() && held.follow.is_none());
        let reference = match own.and_then(|held| held.rule.as_ref()).unwrap_or(&metric.rule) {
            Rule::Beats(base) if piece.follow.is_none() => {
                reference.or_else(|| Some(self.baseline(base, metric, outcomes.iterations())?.0))
            }
            _ => reference,
        };
        Some(row.reference(reference).verdict(case.judge(rule)))
    }

    /// Why a piece has no number.
    fn no_number(&self, outcomes: &Outcomes, lost: Option<(u32, u32, String)>) -> Verdict {
        let refused = outcomes.all.iter().find_map(|outcome| match outcome {
            Outcome::NotApplicable(why) => Some(*why),
            _ => None,
        });
        match (refused, lost) {
            (Some(why), _) => Verdict::NotRun(format!("could not begin: {why}")),
            // A quick form is too short to say that something never arrives.
            (None, Some(_)) if outcomes.piece.row.diverged && self.held && !self.is_quick => Verdict::Reproduced,
            (None, Some((lost, all, why))) => Verdict::NotReproduced(format!("{lost} of {all} runs {why}")),
            (None, None) if !outcomes.all.is_empty() && self.contents.judges(outcomes.piece).next().is_some() => {
                Verdict::NotRun("not judged yet".into())
            }
            (None, None) if outcomes.piece.follow.is_some() => {
                Verdict::NotRun("not done yet, or there is no λ to begin with".into())
            }
            (None, None) if outcomes.all.is_empty() => Verdict::NotRun("not done yet".into()),
            (None, None) => Verdict::NotRun("it has no such number".into()),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![];
        for outcomes in &self.all {
            let (own, name) = (outcomes.piece.metrics(), outcomes.piece.row.name());
            let here = |metric: &&Metric| {
                let listed = own.is_empty() || own.contains(&metric.id());
                listed && metric.is_in(self.group) && (metric.rows.is_empty() || metric.rows.contains(&name))
            };
            let mut metrics = self.contents.metrics.iter().filter(here).peekable();
            if let Some(why) = &outcomes.piece.row.not_run {
                let row = metrics.peek().map(|metric| Row::new(self.study, &name, &metric.name, f64::NAN));
                let row = row.map(|row| row.setting(&self.group.name).without_runs(Verdict::NotRun(why.clone())));
                rows.extend(row);
                continue;
            }
            for (number, metric) in metrics.enumerate() {
                rows.extend(self.row(outcomes, metric, number == 0));
            }
        }
        rows.extend(self.contents.differences.iter().filter_map(|difference| self.difference(difference)));
        rows
    }

    /// The difference between two rows, with its standard error.
    fn difference(&self, difference: &Difference) -> Option<Row> {
        let Difference { name, method, metric, of, minus, paper, why } = difference;
        let metric = self.contents.metrics.iter().find(|known| known.id() == *metric)?;
        let spread = |row: &str| {
            let found = self.named_row(row)?;
            Some(Spread::of(&found.values(metric, None))).filter(|spread| spread.count > 0)
        };
        let (one, other) = (spread(of)?, spread(minus)?);
        let square = |spread: &Spread| spread.sd * spread.sd / spread.count as f64;
        let (ours, error) = (one.mean - other.mean, (square(&one) + square(&other)).sqrt());
        let row = Row::new(self.study, method, name, ours).setting(&self.group.name);
        let row = if one.count.min(other.count) > 1 { row.over(error, one.count as u32) } else { row };
        let verdict = match paper.filter(|_| self.held) {
            None => Verdict::NotClaimed,
            Some(paper) => Verdict::when(ours * paper.signum() > MIN_ERRORS * error, why.as_str()),
        };
        // Its spread is a standard error already.
        Some(Row { verdict, ..row.paper(paper.filter(|_| self.held)) })
    }

    /// The costs of rows, and of the rows they are compared with, if they differ.
    fn unequal(&self) -> Vec<String> {
        let metric = &self.contents.metrics[0];
        let cost = |one: &Outcomes| {
            let part = |number: Option<f64>, unit: &str| {
                number.map_or(String::new(), |number| format!(", {number:.0} {unit}"))
            };
            one.effort.clone() + &part(one.cost(), "gradients") + &part(one.seconds, "s")
        };
        let said = self.all.iter().filter_map(|one| {
            let held = one.piece.row.held.iter().find(|held| held.metric == metric.id())?;
            let Rule::Beats(row) = held.rule.as_ref()? else { return None };
            let other = self.named_row(row)?;
            let (ours, theirs) = (cost(one), cost(other));
            let is_there = !one.effort.is_empty() && !one.values(metric, None).is_empty() && ours != theirs;
            let pair = format!("{} and {}", one.name(), other.name());
            is_there.then(|| format!("{pair} are not compared at equal cost: {ours} against {theirs}."))
        });
        said.map(|said| self.named(&said)).collect()
    }

    /// Which row is best by the first metric.
    fn best(&self) -> Option<String> {
        let metric = self.contents.metrics.iter().find(|metric| metric.is_in(self.group))?;
        metric.better?;
        let means = self.all.iter().filter_map(|outcomes| {
            let values = outcomes.values(metric, None);
            (!values.is_empty()).then(|| (Spread::of(&values).mean, outcomes.name()))
        });
        let best = if metric.is_higher() {
            means.max_by(|a, b| a.0.total_cmp(&b.0))
        } else {
            means.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let (number, name) = best?;
        Some(self.named(&format!("{name} is best in {}, with {number:.2}.", metric.id())))
    }

    /// A sentence about this group.
    fn named(&self, sentence: &str) -> String {
        if self.group.name.is_empty() { sentence.into() } else { format!("{}: {sentence}", self.group.name) }
    }

    fn warnings(&self) -> Vec<String> {
        let begun = self.all.iter().filter(|outcomes| (1..outcomes.wanted).contains(&(outcomes.all.len() as u64)));
        let some = begun.map(|outcomes| {
            let (name, count, wanted) = (outcomes.name(), outcomes.all.len(), outcomes.wanted);
            self.named(&format!("{name} has {count} of {wanted} seeds so far."))
        });
        // A run that only did not arrive is a result.
        let lost = self.all.iter().filter(|outcomes| !outcomes.missed());
        let lost = lost.filter_map(|outcomes| Some((outcomes, outcomes.diverged()?)));
        let said = lost.map(|(outcomes, (lost, all, why))| {
            self.named(&format!("{lost} of {all} runs of {} {why}.", outcomes.name()))
        });
        some.chain(said).collect()
    }
}

impl Contents {
    /// The findings of its finished items.
    pub fn findings(&self, study: &str, plan: &Plan, done: &Finished) -> Result<Findings> {
        let mut findings = Findings::default();
        let about = [&self.about, &self.at(plan).about].into_iter().filter(|text| !text.is_empty());
        let about = about.map(|text| text.trim()).collect::<Vec<_>>().join("\n\n");
        if !about.is_empty() {
            findings.sections.push(Section::Text { title: "How it was done".into(), text: about });
        }
        let mut swept = vec![];
        for group in self.groups(plan) {
            if let Some(why) = self.missing(plan, group) {
                let row = Row::new(study, "all", &self.metrics[0].name, f64::NAN).setting(&group.name);
                findings.rows.push(row.without_runs(Verdict::NotRun(why)));
                continue;
            }
            let pieces = self.pieces(plan, group).into_iter().filter(|piece| !piece.is_judge());
            let all = pieces.map(|piece| Outcomes::of(self, plan, piece, done)).collect::<Result<_>>()?;
            let all = self.best_of_grids(all);
            let found =
                OfGroup { contents: self, study, group, held: self.is_held(plan), is_quick: plan.is_quick(), all };
            findings.rows.extend(found.rows());
            findings.said.extend(found.best());
            findings.said.extend(found.unequal());
            findings.warnings.extend(found.warnings());
            findings.sections.extend(curves::of(&group.name, &self.metrics, &found.all).map(Section::Plot));
            findings.sections.extend(pictures::of(&group.name, &found.all).into_iter().map(Section::Photographs));
            for outcomes in found.all.iter().filter(|outcomes| outcomes.piece.row.show) {
                findings.sections.extend(shown(self, plan, outcomes)?);
            }
            swept.extend(group.x.map(|x| (x, found.all)));
        }
        if let Some(over) = &self.sweep {
            findings.sections.extend(curves::sweep(over, &self.metrics, &swept).into_iter().map(Section::Plot));
        }
        Ok(findings)
    }
}

impl Contents {
    /// The outcomes with those settings of a grid alone that are best in the first metric of their row.
    fn best_of_grids<'a>(&self, all: Vec<Outcomes<'a>>) -> Vec<Outcomes<'a>> {
        let mut best: Vec<(Option<f64>, u32, Outcomes)> = vec![];
        for outcomes in all {
            let own = outcomes.piece.metrics();
            let metric = self.metrics.iter().find(|metric| own.is_empty() || own.contains(&metric.id()));
            let of = |metric: &Metric| {
                let values = outcomes.values(metric, None);
                let mean = (!values.is_empty()).then(|| Spread::of(&values).mean);
                mean.map(|mean| if metric.is_higher() { mean } else { -mean })
            };
            let value = metric.and_then(of);
            let same =
                |other: &Outcomes| std::ptr::eq(other.piece.row, outcomes.piece.row) && outcomes.piece.follow.is_none();
            match best.last_mut().filter(|(_, _, last)| outcomes.piece.point.is_some() && same(last)) {
                Some((known, count, last)) => {
                    *count += 1;
                    if value.is_some_and(|value| known.is_none_or(|known| value > known)) {
                        (*known, *last) = (value, outcomes);
                    }
                }
                None => best.push((value, 1, outcomes)),
            }
        }
        let with_values = |(_, count, outcomes): (_, u32, Outcomes<'a>)| {
            let Some(point) = outcomes.piece.point else { return outcomes };
            let value = |entry: &Entry| Some(format!("{} = {}", entry.dotted(), entry.value.json()?));
            let values = point.settings.iter().filter_map(value).collect::<Vec<_>>().join(", ");
            let setting = format!("{}, best of a grid of {count}: {values}", outcomes.setting);
            Outcomes { setting: setting.trim_start_matches(", ").into(), ..outcomes }
        };
        best.into_iter().map(with_values).collect()
    }
}

/// λ of the first seed as its task shows it.
fn shown(contents: &Contents, plan: &Plan, outcomes: &Outcomes) -> Result<Vec<Section>> {
    let config = match contents.config(plan, outcomes.piece, plan.seed, None) {
        Ok(config) => config,
        Err(_) => return Ok(vec![]),
    };
    let task = plan.registry.read_task(&config.task)?;
    let context = Context { data: plan.data.clone(), ..config.context() };
    let leaf = |taken: &Taken| LambdaLeaf {
        name: taken.leaf.clone(),
        shape: vec![taken.lambda.len()],
        values: taken.lambda.clone(),
    };
    let sections = match outcomes.all.first() {
        Some(Outcome::Run(run)) if run.arrived() => task.show(&run.lambda, &context),
        Some(Outcome::Taken(taken)) if !taken.lambda.is_empty() => task.show(&[leaf(taken)], &context),
        _ => vec![],
    };
    let title = [outcomes.piece.group.name.as_str(), &outcomes.piece.method()].join(", ");
    let title = title.trim_start_matches(", ");
    Ok(sections.into_iter().map(|section| titled(section, title)).collect())
}

/// Gives a section a unique title, because the figures of several rows are files in one folder.
fn titled(section: Section, title: &str) -> Section {
    let under = |own: String| format!("{title}: {own}");
    match section {
        Section::Plot(plot) => Section::Plot(Plot { title: under(plot.title), ..plot }),
        Section::Pictures(pictures) => Section::Pictures(Pictures { title: under(pictures.title), ..pictures }),
        Section::Table(table) => Section::Table(Table { caption: under(table.caption), ..table }),
        Section::Text { title, text } => Section::Text { title: under(title), text },
        other => other,
    }
}
