//! The items of a manifest: rows with an argument first, then all others, and then the runs that start from their
//! results.

use super::{AtScale, Contents, Follow, Group, Point, RowSpec, Taken};
use crate::config::entries::{Entry, Given};
use crate::config::errors::{ConfigError, Place};
use crate::config::resolve;
use crate::run::HeldOut;
use crate::{Config, Done, Finished, Item, Plan, label};
use bilevel::{Error, Result};
use serde_json::{Map, Value};

/// Measurements of a run on the way, unless it is said otherwise.
const LOOKS: u32 = 10;
/// Checkpoints of a run on the way, unless it is said otherwise; one that is stopped is saved too.
const SAVES: u32 = 5;

/// A run of a row, once for each seed.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub row: &'a RowSpec,
    pub group: &'a Group,
    /// The follow-up with the row's learned λ, if it is one.
    pub follow: Option<&'a Follow>,
    /// Which of the row's settings, if it has several.
    pub point: Option<&'a Point>,
}

impl Piece<'_> {
    /// The label of a seed.
    pub fn label(&self, seed: u64) -> String {
        // A shared run has the label of the group that runs it.
        let group = self.row.shared.as_ref().filter(|_| self.follow.is_none()).unwrap_or(&self.group.name);
        let follow = self.follow.map_or("", |follow| follow.name.as_str());
        let point = self.point.map_or(String::new(), |point| format!("grid {} ", point.number));
        // Values in the setting may differ from scale to scale, each of which has its own folder.
        let setting = self.row.setting.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
        let setting: String = setting.collect();
        label(&format!("{group} {} {setting} {point}{seed} {follow}", self.row.method))
    }

    /// Its name in tables.
    pub fn method(&self) -> String {
        match self.follow {
            None => self.row.method.clone(),
            Some(follow) => follow.method.clone().unwrap_or_else(|| format!("{}, {}", self.row.method, follow.name)),
        }
    }

    /// Its metrics; all if there are none.
    pub fn metrics(&self) -> &[String] {
        self.follow.map_or(&self.row.metrics, |follow| &follow.metrics)
    }

    /// Its numbers are those of its row.
    pub fn is_judge(&self) -> bool {
        self.follow.is_some_and(|follow| follow.judges)
    }

    /// The row itself, whose λ a follow-up takes.
    pub fn base(self) -> Self {
        Piece { follow: None, ..self }
    }

    /// The measure that is taken instead of a run.
    fn measure(&self) -> Option<&String> {
        self.follow.map_or(&self.row.measure, |follow| &follow.measure).as_ref()
    }
}

impl AtScale {
    fn of<'a>(scales: &'a [AtScale; 3], plan: &Plan) -> &'a AtScale {
        &scales[plan.scale as usize]
    }
}

impl Contents {
    /// The study's settings for the scale.
    pub fn at(&self, plan: &Plan) -> &AtScale {
        AtScale::of(&self.scales, plan)
    }

    /// Whether numbers are compared with the paper's.
    pub fn is_held(&self, plan: &Plan) -> bool {
        self.at(plan).held.unwrap_or(!plan.is_quick())
    }

    /// The groups of this scale.
    pub fn groups<'a>(&'a self, plan: &Plan) -> Vec<&'a Group> {
        let named = &self.at(plan).groups;
        let is_there = |group: &&Group| {
            !AtScale::of(&group.scales, plan).skip && (named.is_empty() || named.contains(&group.name))
        };
        self.groups.iter().filter(is_there).collect()
    }

    /// The rows of a group, and then the follow-ups with their learned λ.
    pub fn pieces<'a>(&'a self, plan: &Plan, group: &'a Group) -> Vec<Piece<'a>> {
        let here = &AtScale::of(&group.scales, plan).rows;
        let named = if here.is_empty() { &self.at(plan).rows } else { here };
        let rows: Vec<&RowSpec> = self
            .rows
            .iter()
            .filter(|row| row.groups.is_empty() || row.groups.contains(&group.name))
            .filter(|row| !AtScale::of(&row.scales, plan).skip && (named.is_empty() || named.contains(&row.name())))
            .collect();
        let own = rows.iter().flat_map(|row| {
            let at = &AtScale::of(&row.scales, plan).grid;
            let grid = if at.is_empty() { &row.grid } else { at };
            let points = if grid.is_empty() { vec![None] } else { grid.iter().map(Some).collect() };
            points.into_iter().map(move |point| Piece { row, group, follow: None, point })
        });
        let followed = rows.iter().flat_map(|row| {
            let follow = self.follow.iter().filter(|follow| row.follow.contains(&follow.name));
            let follow = follow.filter(|follow| !AtScale::of(&follow.scales, plan).skip);
            follow.map(|follow| Piece { row, group, follow: Some(follow), point: None })
        });
        own.chain(followed).collect()
    }

    /// The measures whose numbers are those of a row.
    pub fn judges<'a>(&'a self, piece: Piece<'a>) -> impl Iterator<Item = Piece<'a>> {
        let is_its = move |follow: &&Follow| follow.judges && piece.row.follow.contains(&follow.name);
        let own = self.follow.iter().filter(move |_| piece.follow.is_none()).filter(is_its);
        own.map(move |follow| Piece { follow: Some(follow), ..piece })
    }

    /// The seeds of a piece, from the first of the plan on.
    pub fn seeds(&self, plan: &Plan, piece: Piece) -> std::ops::Range<u64> {
        let Piece { row, group, follow, .. } = piece;
        let argued = if row.argument { self.at(plan).seeds } else { None };
        let own = AtScale::of(&group.scales, plan).seeds.or(AtScale::of(&row.scales, plan).seeds);
        let count = match follow {
            Some(follow) if !follow.every_seed => 1,
            _ => own.or(argued).unwrap_or(1),
        };
        plan.seed..plan.seed + u64::from(count)
    }

    /// Its settings, layer by layer.
    fn entries(&self, plan: &Plan, piece: Piece) -> Vec<Entry> {
        let Piece { row, group, follow, point } = piece;
        let gpu = if plan.device == crate::Device::Cpu { &[][..] } else { &self.gpu };
        let mut entries = self.settings.clone();
        entries.extend_from_slice(gpu);
        for layer in [&self.at(plan).settings, &group.settings, &AtScale::of(&group.scales, plan).settings] {
            entries.extend_from_slice(layer);
        }
        let here = row.within.iter().filter(|(name, _)| *name == group.name).flat_map(|(_, settings)| settings);
        let point = point.iter().flat_map(|point| &point.settings);
        let own = row.settings.iter().chain(here).chain(&AtScale::of(&row.scales, plan).settings).chain(point);
        match follow {
            None => entries.extend(own.cloned()),
            Some(follow) => {
                // It has its own method, on the task of the row.
                entries.extend(own.filter(|entry| entry.key[0] == "task").cloned());
                entries.extend(follow.settings.iter().chain(&AtScale::of(&follow.scales, plan).settings).cloned());
            }
        }
        entries
    }

    /// The configuration of a seed, with more settings on top.
    pub fn config(
        &self,
        plan: &Plan,
        piece: Piece,
        seed: u64,
        more: Option<Entry>,
    ) -> std::result::Result<Config, ConfigError> {
        let mut entries = self.entries(plan, piece);
        entries.extend(more);
        let mut config = resolve(plan.registry, &entries)?;
        let task = plan.registry.read_task(&config.task).map_err(other)?;
        let data = plan.data.as_ref().filter(|_| task.reads_data());
        config.data = data.map_or(String::new(), |data| data.to_string_lossy().into_owned());
        (config.seed, config.device) = (seed, plan.device);
        let scales = piece.follow.map_or(&piece.row.scales, |follow| &follow.scales);
        let (own, all) = (AtScale::of(scales, plan), self.at(plan));
        let is_given = |key: &str| entries.iter().any(|entry| entry.dotted() == key);
        let every = |count: u32| (config.outer.iterations / count.max(1)).max(1);
        if !is_given("metrics.every") {
            config.metrics.every = every(own.looks.or(all.looks).unwrap_or(LOOKS));
        }
        if !is_given("checkpoint.every") {
            config.checkpoint.every = every(own.saves.or(all.saves).unwrap_or(SAVES));
        }
        // As in the publication.
        if !entries.iter().any(|entry| entry.key[0] == "held_out") {
            config.held_out = HeldOut::NOTHING;
        }
        if !is_given("metrics.diagnose") {
            config.metrics.diagnose = 0;
        }
        Ok(config)
    }

    /// Refuses settings that no item could be run with.
    pub fn check(&self, plan: &Plan) -> std::result::Result<(), ConfigError> {
        for group in self.groups(plan) {
            for piece in self.pieces(plan, group) {
                let config = self.config(plan, piece, plan.seed, None)?;
                if let Some(measure) = piece.measure() {
                    let known = plan.registry.known_measure(measure).map_err(other)?;
                    (known.build)(&config, &self.with(plan, piece)).map_err(other)?;
                }
            }
        }
        Ok(())
    }

    /// Settings of a measure, in the layers of all settings.
    fn with(&self, plan: &Plan, piece: Piece) -> Map<String, Value> {
        let Piece { row, group, follow, .. } = piece;
        let at = |scales| &AtScale::of(scales, plan).with;
        let mut layers = vec![at(&self.scales), &group.with, at(&group.scales), &row.with, at(&row.scales)];
        // Settings of a follow-up hold for every row, so those of a row win.
        layers.splice(0..0, follow.iter().flat_map(|follow| [&follow.with, at(&follow.scales)]));
        layers.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Why a group cannot be run here.
    pub fn missing(&self, plan: &Plan, group: &Group) -> Option<String> {
        let piece = self.pieces(plan, group).into_iter().next()?;
        let config = self.config(plan, piece, plan.seed, None).ok()?;
        let reads = plan.registry.read_task(&config.task).ok()?.reads_data();
        let is_there = plan.data.as_ref().map(|data| group.data.is_empty() || data.join(&group.data).exists());
        let name = if group.data.is_empty() { "data files" } else { &group.data };
        match is_there {
            _ if !reads => None,
            Some(true) => None,
            None => Some(format!(
                "needs {name}: give its folder with --data DIR; 'bilevel data fetch {name}' downloads it, or explains \
                how"
            )),
            Some(false) => {
                Some(format!("{name} is not among the data; 'bilevel data fetch {name}' downloads it, or explains how"))
            }
        }
    }

    fn item(&self, plan: &Plan, piece: Piece, seed: u64, done: &Finished) -> Result<Item> {
        let label = piece.label(seed);
        let base = piece.base();
        let take = piece.follow.and_then(|follow| follow.take.as_ref());
        let more = match take {
            None => None,
            Some(key) => {
                let from = base.label(seed);
                let lambda: Vec<f64> = match done.get(&from) {
                    Some(Done::Measured { .. }) => done.measured::<Taken>(&from)?.lambda,
                    _ => done.run(&from)?.lambda.iter().flat_map(|leaf| leaf.values.iter().copied()).collect(),
                };
                let numbers = lambda.into_iter().map(Given::Number);
                let key = key.split('.').map(String::from).collect();
                let place = Place::Argument(format!("λ of {from}"));
                Some(Entry { key, value: Given::Array(numbers.collect()), place })
            }
        };
        let mut config = self.config(plan, piece, seed, more).map_err(|error| Error::other(error.to_string()))?;
        if piece.follow.is_some_and(|follow| follow.start || follow.measure.is_some()) {
            config.start.lambda = plan.lambda_of(&base.label(seed));
        }
        if let Some(measure) = piece.measure() {
            let known = plan.registry.known_measure(measure)?;
            let work = crate::Work::Measure((known.build)(&config.sealed()?, &self.with(plan, piece))?);
            return Ok(Item { label, alone: piece.row.alone, work });
        }
        if let Some(theta) = self.theta_of(piece) {
            config.start.theta = plan.theta_of(&theta.label(seed));
        }
        Ok(Item::run(label, config))
    }

    /// The piece whose θ this one starts from.
    fn theta_of<'a>(&'a self, piece: Piece<'a>) -> Option<Piece<'a>> {
        let name = piece.row.theta.as_ref()?;
        let here = |row: &&RowSpec| row.groups.is_empty() || row.groups.contains(&piece.group.name);
        let row = self.rows.iter().filter(here).find(|row| row.name() == *name)?;
        Some(Piece { row, ..piece.base() })
    }

    /// All pieces with their seeds that can be run here, in the order they are to be done.
    fn order<'a>(&'a self, plan: &Plan) -> Vec<(Piece<'a>, u64)> {
        let mut all = vec![];
        for group in self.groups(plan).into_iter().filter(|group| self.missing(plan, group).is_none()) {
            for piece in self.pieces(plan, group) {
                let is_done_elsewhere = piece.row.shared.is_some() && piece.follow.is_none();
                if piece.row.not_run.is_none() && !is_done_elsewhere {
                    all.extend(self.seeds(plan, piece).map(|seed| (piece, seed)));
                }
            }
        }
        // The first seed of every row that carries an argument comes first.
        all.sort_by_key(|(piece, seed)| (!piece.row.argument, *seed));
        all
    }

    /// Items that start from nothing.
    pub fn first(&self, plan: &Plan) -> Result<Vec<Item>> {
        let none = Finished::default();
        let own = self.order(plan).into_iter().filter(|(piece, _)| piece.follow.is_none() && piece.row.theta.is_none());
        own.map(|(piece, seed)| self.item(plan, piece, seed, &none)).collect()
    }

    /// Items that start from finished ones.
    pub fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let mut items = vec![];
        for (piece, seed) in self.order(plan) {
            let is_ready = || match (piece.follow, self.theta_of(piece)) {
                (Some(_), _) => match done.get(&piece.base().label(seed)) {
                    Some(Done::Run(run)) => run.arrived(),
                    other => matches!(other, Some(Done::Measured { .. })),
                },
                (None, Some(theta)) => {
                    matches!(done.get(&theta.label(seed)), Some(Done::Run(_) | Done::Measured { .. }))
                }
                (None, None) => false,
            };
            if done.get(&piece.label(seed)).is_none() && is_ready() {
                items.push(self.item(plan, piece, seed, done)?);
            }
        }
        Ok(items)
    }
}

/// A text with the values of a configuration in place of their keys in braces.
pub(super) fn filled(text: &str, config: &Config) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_string();
    let settings = Value::Object(config.settings());
    for part in parts {
        let (key, rest) = part.split_once('}').unwrap_or((part, ""));
        match settings.pointer(&format!("/{}", key.replace('.', "/"))) {
            Some(Value::String(word)) => filled += word,
            Some(value) => filled += &value.to_string(),
            None => filled += &format!("{{{key}}}"),
        }
        filled += rest;
    }
    filled
}

fn other(error: Error) -> ConfigError {
    ConfigError { place: None, wrong: crate::config::errors::Wrong::Other(error.to_string()) }
}
