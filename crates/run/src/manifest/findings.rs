//! From the results of a manifest's items to rows, curves and sentences.

use super::items::Piece;
use super::rule::{Case, Rule};
use super::{Better, Contents, Group, Held, Metric, Source, Taken, curves};
use crate::spread::Spread;
use crate::{Context, Done, Findings, Finished, FinishedRun, LambdaLeaf, Plan, Row, Verdict};
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
            Source::AtBest(..) => vec![],
            Source::Lambda(index) => taken.lambda.get(*index).copied().into_iter().collect(),
            Source::LambdaBut(index, relative) => largest_but(&taken.lambda, *index, *relative).into_iter().collect(),
        };
        found.into_iter().filter(|number| number.is_finite()).map(|number| self.scaled(number)).collect()
    }

    /// Its values over iterations.
    pub fn way(&self, outcome: &Outcome) -> Vec<(f64, f64)> {
        let (Source::Measure(name) | Source::Best(name)) = &self.source else { return vec![] };
        let way = match outcome {
            Outcome::Run(run) => way_of(run, name),
            Outcome::Taken(taken) => taken.way.get(name).cloned().unwrap_or_default(),
            Outcome::NotApplicable(_) => vec![],
        };
        way.into_iter().map(|(x, y)| (x, self.scaled(y))).collect()
    }
}

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
        let (seeds, mut all, mut seconds) = (contents.seeds(plan, piece), vec![], None);
        for seed in seeds.clone() {
            let label = piece.label(seed);
            seconds = seconds.or(done.seconds(&label));
            match done.get(&label) {
                Some(Done::Run(run)) => all.push(Outcome::Run(run)),
                Some(Done::Measured { .. }) => all.push(Outcome::Taken(done.measured(&label)?)),
                Some(Done::NotApplicable(why)) => all.push(Outcome::NotApplicable(why)),
                None => {}
            }
        }
        Ok(Outcomes { piece, all, wanted: seeds.end - seeds.start, seconds })
    }

    /// Values of a metric over the seeds that arrived, after so many iterations or at the end.
    pub fn values(&self, metric: &Metric, at: Option<f64>) -> Vec<f64> {
        let of = |outcome: &Outcome| match outcome {
            Outcome::Run(run) if run.arrived() => metric.of_run(run, at).into_iter().collect(),
            Outcome::Taken(taken) => metric.of_taken(taken),
            _ => vec![],
        };
        self.all.iter().flat_map(of).collect()
    }

    /// Runs that diverged, all runs, and why the first of them did.
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
                    lost += taken.diverged;
                    if taken.diverged > 0 && why.is_empty() {
                        why = "diverged".into();
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
    all: Vec<Outcomes<'a>>,
}

impl OfGroup<'_> {
    fn held<'h>(&'h self, piece: &'h Piece, metric: &Metric) -> Option<&'h Held> {
        let follow = piece.follow.map(|follow| follow.name.as_str());
        let held = |held: &&Held| held.metric == metric.name && held.follow.as_deref() == follow;
        piece.row.held.iter().find(held).filter(|_| self.held)
    }

    /// The mean of a row, after as many iterations as these, and its number in the paper.
    fn baseline(&self, name: &str, metric: &Metric, at: Option<f64>) -> Option<(f64, Option<f64>)> {
        let base = self.all.iter().find(|base| base.piece.follow.is_none() && base.piece.row.name() == name)?;
        let at = at.filter(|at| base.iterations().is_some_and(|end| *at < end));
        let values = base.values(metric, at);
        let paper = base.piece.row.held.iter().find(|held| held.metric == metric.name && held.follow.is_none());
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
            [name.as_str(), &piece.row.setting].into_iter().filter(|word| !word.is_empty()).collect();
        let row = Row::new(self.study, piece.method(), &metric.name, spread.mean).setting(setting.join(", "));
        let row = row.paper(paper).reference(reference).cost(outcomes.cost()).took(outcomes.seconds);
        let lost = outcomes.diverged();
        if values.is_empty() {
            return Some(row.without_runs(self.no_number(outcomes, lost))).filter(|_| is_first);
        }
        let row = if values.len() > 1 { row.over(spread.sd, spread.count as u32) } else { row };
        if let Some((lost, all, why)) = lost.filter(|_| is_first) {
            return Some(row.verdict(Verdict::NotReproduced(format!("{lost} of {all} runs {why}"))));
        }
        let rule = held.and_then(|held| held.rule.as_ref()).unwrap_or(&metric.rule);
        // A follow-up run with a learned λ has a rule if it has a number.
        let rule = if self.held && (piece.follow.is_none() || held.is_some()) { rule } else { &Rule::None };
        let baseline = rule.baseline().and_then(|base| self.baseline(base, metric, outcomes.iterations()));
        let case = Case {
            ours: spread.mean,
            sd: spread.sd,
            paper,
            reference,
            baseline,
            better: metric.better,
            why: held.map_or("", |held| &held.why),
        };
        // The number to beat is shown even without a comparison.
        let own = piece.row.held.iter().find(|held| held.metric == metric.name && held.follow.is_none());
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
            (None, Some(_)) if outcomes.piece.row.diverged && self.held => Verdict::Reproduced,
            (None, Some((lost, all, why))) => Verdict::NotReproduced(format!("{lost} of {all} runs {why}")),
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
            let own = outcomes.piece.metrics();
            let metrics = self.contents.metrics.iter().filter(|metric| own.is_empty() || own.contains(&metric.name));
            for (number, metric) in metrics.enumerate() {
                rows.extend(self.row(outcomes, metric, number == 0));
            }
        }
        rows
    }

    /// Which row is best by the first metric.
    fn best(&self) -> Option<String> {
        let metric = self.contents.metrics.first().filter(|metric| metric.better.is_some())?;
        let means = self.all.iter().filter_map(|outcomes| {
            let values = outcomes.values(metric, None);
            (!values.is_empty()).then(|| (Spread::of(&values).mean, outcomes.piece))
        });
        let best = if metric.is_higher() {
            means.max_by(|a, b| a.0.total_cmp(&b.0))
        } else {
            means.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let (number, piece) = best?;
        let name = format!("{} {}", piece.method(), piece.row.setting);
        Some(self.named(&format!("{} is best in {}, with {number:.2}.", name.trim(), metric.name)))
    }

    /// A sentence about this group.
    fn named(&self, sentence: &str) -> String {
        if self.group.name.is_empty() { sentence.into() } else { format!("{}: {sentence}", self.group.name) }
    }

    fn warnings(&self) -> Vec<String> {
        let begun = self.all.iter().filter(|outcomes| (1..outcomes.wanted).contains(&(outcomes.all.len() as u64)));
        let some = begun.map(|outcomes| {
            let name = format!("{} {}", outcomes.piece.method(), outcomes.piece.row.setting);
            self.named(&format!("{} has {} of {} seeds so far.", name.trim(), outcomes.all.len(), outcomes.wanted))
        });
        let lost = self.all.iter().filter_map(|outcomes| Some((outcomes, outcomes.diverged()?)));
        let said = lost.map(|(outcomes, (lost, all, why))| {
            let name = format!("{} {}", outcomes.piece.method(), outcomes.piece.row.setting);
            self.named(&format!("{lost} of {all} runs of {} {why}.", name.trim()))
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
            let pieces = self.pieces(plan, group);
            let all = pieces.iter().map(|piece| Outcomes::of(self, plan, *piece, done)).collect::<Result<_>>()?;
            let found = OfGroup { contents: self, study, group, held: self.is_held(plan), all };
            findings.rows.extend(found.rows());
            findings.said.extend(found.best());
            findings.warnings.extend(found.warnings());
            findings.sections.extend(curves::of(&group.name, &self.metrics, &found.all).map(Section::Plot));
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
