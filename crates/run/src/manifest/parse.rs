//! Parses the text of a file into its contents.

use super::reader::{Reader, Result, TomlFile};
use super::rule::{self, Rule};
use super::{AtScale, Better, ByGroup, Contents, Difference, Follow, Group, Held, Metric, Point, RowSpec, Source};
use crate::Scale;
use crate::config::entries::{Entry, Given};
use crate::config::errors::{ConfigError, Place, Wrong};
use serde_json::{Map, Value};
use std::path::Path;

/// A file that cannot be read.
pub(super) fn unread(path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError::at(&Place::File(path.to_path_buf(), 1), Wrong::Other(format!("it cannot be read: {error}")))
}

/// The title and the contents of a file.
pub(super) fn parse(path: &Path, text: &str) -> Result<(String, Contents)> {
    let file = TomlFile::parse(path, text)?;
    let root = file.root();
    let title = root.required("title")?;
    let data = root.text("data")?.unwrap_or_default();
    let metrics = root.tables("metric")?.iter().map(metric).collect::<Result<Vec<_>>>()?;
    if metrics.is_empty() {
        return Err(root.wrong("it has no [[metric]], so that its rows would have no numbers"));
    }
    let follow = root.tables("follow")?.iter().map(one_follow).collect::<Result<Vec<_>>>()?;
    let mut groups = root.tables("group")?.iter().map(|table| group(table, &data)).collect::<Result<Vec<_>>>()?;
    if groups.is_empty() {
        let (settings, with) = (vec![], Map::new());
        groups.push(Group { name: String::new(), settings, with, data, x: None, scales: AtScale::none() });
    }
    let tables = root.tables("row")?;
    let rows = tables.iter().map(|table| row(table, &metrics, &groups, &follow)).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = rows.iter().map(RowSpec::name).collect();
    for (n, (table, row)) in tables.iter().zip(&rows).enumerate() {
        let overlap = |other: &RowSpec| {
            other.name() == names[n]
                && (row.groups.is_empty()
                    || other.groups.is_empty()
                    || row.groups.iter().any(|group| other.groups.contains(group)))
        };
        if rows[..n].iter().any(overlap) {
            let wrong = format!("there are two rows '{}'; give one of them another setting or other groups", names[n]);
            return Err(table.wrong(wrong));
        }
        if let Some(group) = row.shared.as_ref().filter(|name| groups.iter().all(|group| group.name != **name)) {
            return Err(table.unknown_word("shared", group, groups.iter().map(|group| group.name.as_str())));
        }
        let known = || names.iter().map(String::as_str);
        let rules =
            row.held.iter().filter_map(|held| held.rule.as_ref()).chain(metrics.iter().map(|metric| &metric.rule));
        let known = || known().chain(follow.iter().filter_map(|follow| follow.method.as_deref()));
        let others = rules.filter_map(Rule::baseline).chain(row.theta.as_deref());
        if let Some(other) = others.into_iter().find(|other| !known().any(|name| name == *other)) {
            return Err(table.unknown_word("rule", other, known()));
        }
    }
    let known = || names.iter().map(String::as_str);
    for (table, metric) in root.tables("metric")?.iter().zip(&metrics) {
        if let Some(other) = metric.rows.iter().find(|row| !known().any(|name| name == *row)) {
            return Err(table.unknown_word("rows", other, known()));
        }
        listed(table, "groups", groups.iter().map(|group| group.name.as_str()))?;
    }
    let differences = root.tables("difference")?;
    let differences = differences.iter().map(|table| difference(table, &metrics, &names)).collect::<Result<_>>()?;
    let contents = Contents {
        about: root.text("about")?.unwrap_or_default(),
        settings: root.settings("settings")?,
        gpu: root.settings("gpu")?,
        scales: at_scales(&root)?,
        sweep: root.text("sweep")?,
        groups,
        metrics,
        rows,
        follow,
        differences,
        effort: root.text("effort")?,
    };
    root.finish()?;
    Ok((title, contents))
}

impl AtScale {
    fn none() -> [AtScale; 3] {
        Default::default()
    }
}

/// The tables `scale.quick`, `scale.full` and `scale.paper`.
fn at_scales(table: &Reader) -> Result<[AtScale; 3]> {
    let mut found = AtScale::none();
    if let Some(scales) = table.table("scale")? {
        for (scale, at) in Scale::ALL.iter().zip(&mut found) {
            if let Some(inside) = scales.table(scale.name())? {
                *at = at_scale(&inside)?;
            }
        }
        scales.finish()?;
    }
    Ok(found)
}

fn at_scale(table: &Reader) -> Result<AtScale> {
    let found = AtScale {
        settings: table.settings("settings")?,
        with: with(table)?,
        seeds: table.whole("seeds")?,
        looks: table.whole("looks")?,
        saves: table.whole("saves")?,
        groups: table.texts("groups")?.unwrap_or_default(),
        rows: table.texts("rows")?.unwrap_or_default(),
        skip: table.truth("skip")?,
        grid: grid(table)?,
        held: Some(table.truth("held")?).filter(|held| *held),
        about: table.text("about")?.unwrap_or_default(),
    };
    table.finish()?;
    Ok(found)
}

/// Settings of a measure: words, numbers and truths.
fn with(table: &Reader) -> Result<Map<String, Value>> {
    let entries = table.settings("with")?;
    Ok(entries.into_iter().filter_map(|entry| Some((entry.dotted(), entry.value.json()?))).collect())
}

/// Settings with arrays of values, as all combinations of them; the last one changes fastest.
fn grid(table: &Reader) -> Result<Vec<Point>> {
    let mut points: Vec<Vec<Entry>> = vec![];
    for (n, entry) in table.settings("grid")?.into_iter().filter(|entry| entry.value != Given::Table).enumerate() {
        let Given::Array(values) = &entry.value else {
            return Err(ConfigError::at(&entry.place, Wrong::Other(format!("grid.{} is an array", entry.dotted()))));
        };
        let before = if n == 0 { vec![vec![]] } else { std::mem::take(&mut points) };
        for point in before {
            let with = |value: &Given| {
                let one = Entry { value: value.clone(), ..entry.clone() };
                point.iter().cloned().chain([one]).collect()
            };
            points.extend(values.iter().map(with));
        }
    }
    Ok(points.into_iter().enumerate().map(|(number, settings)| Point { number, settings }).collect())
}

fn difference(table: &Reader, metrics: &[Metric], rows: &[String]) -> Result<Difference> {
    let listed = |name: &str, known: Vec<String>| -> Result<String> {
        let word = table.required(name)?;
        match known.contains(&word) {
            true => Ok(word),
            false => Err(table.unknown_word(name, &word, known.iter().map(String::as_str))),
        }
    };
    let found = Difference {
        name: table.required("name")?,
        method: table.required("method")?,
        metric: listed("metric", metrics.iter().map(Metric::id).collect())?,
        of: listed("of", rows.to_vec())?,
        minus: listed("minus", rows.to_vec())?,
        paper: table.number("paper")?,
        why: table.text("why")?.unwrap_or_default(),
    };
    table.finish()?;
    Ok(found)
}

fn group(table: &Reader, data: &str) -> Result<Group> {
    let found = Group {
        name: table.required("name")?,
        settings: table.settings("settings")?,
        with: with(table)?,
        data: table.text("data")?.unwrap_or_else(|| data.into()),
        x: table.number("x")?,
        scales: at_scales(table)?,
    };
    table.finish()?;
    Ok(found)
}

fn metric(table: &Reader) -> Result<Metric> {
    let mut sources: Vec<Source> = vec![];
    let guide = table.text("at_best")?;
    sources.extend(table.text("of")?.map(|name| match guide {
        None => Source::Measure(name),
        Some(guide) => Source::AtBest(name, guide),
    }));
    sources.extend(table.text("best")?.map(Source::Best));
    sources.extend(table.whole("lambda")?.map(|n| Source::Lambda(n as usize)));
    let relative = table.truth("relative")?;
    sources.extend(table.whole("lambda_but")?.map(|n| Source::LambdaBut(n as usize, relative)));
    sources.extend(table.truth("diverged")?.then_some(Source::Diverged));
    let one = || {
        table.wrong(
            "a metric has one of: of = MEASURE, best = MEASURE, lambda = NUMBER, lambda_but = NUMBER, diverged = true",
        )
    };
    let over = table.text("over")?;
    let iterations = table.truth("curve")?.then(|| "outer iteration".to_string());
    let found = Metric {
        name: table.required("name")?,
        setting: table.text("setting")?.unwrap_or_default(),
        source: if sources.len() == 1 { sources.swap_remove(0) } else { return Err(one()) },
        times: table.number("times")?.unwrap_or(1.0),
        minus: table.number("minus")?.unwrap_or(0.0),
        absolute: table.truth("absolute")?,
        better: table.word("better", &[("higher", Better::Higher), ("lower", Better::Lower)])?,
        rule: rule::read(table, "rule")?.unwrap_or_default(),
        drawn: over.is_some(),
        curve: over.or(iterations),
        groups: table.texts("groups")?.unwrap_or_default(),
        rows: table.texts("rows")?.unwrap_or_default(),
    };
    table.finish()?;
    Ok(found)
}

fn one_follow(table: &Reader) -> Result<Follow> {
    let found = Follow {
        name: table.required("name")?,
        method: table.text("method")?,
        settings: table.settings("settings")?,
        measure: table.text("measure")?,
        with: with(table)?,
        judges: table.truth("judges")?,
        scales: at_scales(table)?,
        start: table.truth("start")?,
        take: table.text("take")?,
        every_seed: table.truth("every_seed")?,
        metrics: table.texts("metrics")?.unwrap_or_default(),
    };
    table.finish()?;
    Ok(found)
}

fn row(table: &Reader, metrics: &[Metric], groups: &[Group], follow: &[Follow]) -> Result<RowSpec> {
    let ids: Vec<String> = metrics.iter().map(Metric::id).collect();
    let metric_names = || ids.iter().map(String::as_str);
    let mut held = vec![read_held(table, ids[0].clone(), groups)?];
    for inside in table.tables("number")? {
        let metric = inside.required("metric")?;
        if !metric_names().any(|known| known == metric) {
            return Err(inside.unknown_word("metric", &metric, metric_names()));
        }
        let of = inside.text("follow")?;
        if let Some(of) = of.as_ref().filter(|of| follow.iter().all(|follow| follow.name != **of)) {
            return Err(inside.unknown_word("follow", of, follow.iter().map(|follow| follow.name.as_str())));
        }
        held.push(Held { follow: of, ..read_held(&inside, metric, groups)? });
        inside.finish()?;
    }
    let found = RowSpec {
        method: table.required("method")?,
        setting: table.text("setting")?.unwrap_or_default(),
        argument: table.truth("argument")?,
        settings: table.settings("settings")?,
        within: within(table, groups)?,
        measure: table.text("measure")?,
        with: with(table)?,
        grid: grid(table)?,
        not_run: table.text("not_run")?,
        shared: table.text("shared")?,
        alone: table.truth("alone")?,
        scales: at_scales(table)?,
        groups: listed(table, "groups", groups.iter().map(|group| group.name.as_str()))?,
        metrics: listed(table, "metrics", metric_names())?,
        diverged: table.truth("diverged")?,
        held,
        follow: listed(table, "follow", follow.iter().map(|follow| follow.name.as_str()))?,
        theta: table.text("theta")?,
        show: table.truth("show")?,
    };
    table.finish()?;
    let has_grid = !found.grid.is_empty() || found.scales.iter().any(|at| !at.grid.is_empty());
    if has_grid && !(found.follow.is_empty() && found.measure.is_none()) {
        return Err(table.wrong("a row with a grid is a run, and nothing follows it"));
    }
    Ok(found)
}

/// The settings of a row in some groups: `in."GROUP"`.
fn within(table: &Reader, groups: &[Group]) -> Result<Vec<(String, Vec<Entry>)>> {
    let Some(inside) = table.table("in")? else { return Ok(vec![]) };
    let found = groups.iter().map(|group| Ok((group.name.clone(), inside.settings(&group.name)?)));
    let found = found.collect::<Result<Vec<_>>>()?;
    inside.finish()?;
    Ok(found)
}

/// Words that are all among those known.
fn listed<'a>(table: &Reader, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Result<Vec<String>> {
    let words = table.texts(name)?.unwrap_or_default();
    match words.iter().find(|word| !known.clone().any(|known| known == *word)) {
        Some(word) => Err(table.unknown_word(name, word, known)),
        None => Ok(words),
    }
}

fn read_held(table: &Reader, metric: String, groups: &[Group]) -> Result<Held> {
    let by_group = |name: &str| -> Result<ByGroup> {
        let numbers = table.numbers(name)?;
        for (group, _) in &numbers {
            if let Some(group) = group.as_deref().filter(|name| groups.iter().all(|group| group.name != **name)) {
                return Err(table.unknown_word(name, group, groups.iter().map(|group| group.name.as_str())));
            }
        }
        Ok(ByGroup(numbers))
    };
    Ok(Held {
        metric,
        follow: None,
        paper: by_group("paper")?,
        reference: by_group("reference")?,
        rule: rule::read(table, "rule")?,
        why: table.text("why")?.unwrap_or_default(),
    })
}
