//! The problem's measures at one moment of a run, and the aims of a run that they define.

use crate::compiled::evaluator::Evaluator;
use crate::compiled::key::Key;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::error::require;
use crate::outer::stopping::StopSignal;
use crate::{Error, Result};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Folded into the key of a run, so that measures have separate draws. All measures of a run share them, so that they
/// can be compared.
pub(crate) const MEASURES: u32 = u32::MAX;

/// The problem's own measures by name, in their order; empty at a moment that was not measured.
///
/// In JSON it is an object, and a measure that is not finite is null there, which is read back as NaN.
///
/// ```
/// use bilevel::observers::Recorder;
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .measure("distance", |_, l, _| (l.0 - 1.0).abs())
///     .build()?;
/// let recorder = Recorder::new();
/// let driver = Driver::new(&problem, HpoSgld::default()).iterations(20).measure_every(10);
/// let outcome = driver.observe(recorder.clone()).run()?;
/// let distances: Vec<f64> = recorder.iterations().iter().filter_map(|i| i.measures.get("distance")).collect();
/// assert_eq!(distances.len(), 2);
/// assert_eq!(outcome.measures.get("distance"), Some(distances[1]));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures(Vec<(String, f64)>);

impl Measures {
    /// The measure of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// All of them, in the problem's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Returns true if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Measures {
    /// Adds one.
    pub(crate) fn push(&mut self, name: &str, value: f64) {
        self.0.push((name.into(), value));
    }
}

impl<N: Into<String>> FromIterator<(N, f64)> for Measures {
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(named: I) -> Self {
        Measures(named.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Serialize for Measures {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_map(self.iter().map(|(name, value)| (name, Some(value).filter(|value| value.is_finite()))))
    }
}

impl<'de> Deserialize<'de> for Measures {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        /// A map would not keep the order.
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Measures;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("measures by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Measures, A::Error> {
                let mut all = vec![];
                while let Some((name, value)) = map.next_entry::<String, Option<f64>>()? {
                    all.push((name, value.unwrap_or(f64::NAN)));
                }
                Ok(Measures(all))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// A metric to follow, and whether lower or higher is better. `inner` and `outer` are the losses, measured as the
/// problem's own measures are: at λ and θ after the step, with draws that are the same each time.
///
/// ```
/// use bilevel::observers::Aim;
/// assert_eq!(Aim::highest("accuracy").measure(), "accuracy");
/// assert_ne!(Aim::highest("accuracy"), Aim::lowest("accuracy"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aim {
    measure: String,
    higher: bool,
}

impl Aim {
    /// The higher this measure, the better.
    pub fn highest(measure: impl Into<String>) -> Self {
        Aim { measure: measure.into(), higher: true }
    }

    /// The lower this measure, the better.
    pub fn lowest(measure: impl Into<String>) -> Self {
        Aim { measure: measure.into(), higher: false }
    }

    /// The name of the measure.
    pub fn measure(&self) -> &str {
        &self.measure
    }

    /// Whether a number is better than another, if there is one, by more than this. A number that is not finite is
    /// never better.
    fn is_better(&self, value: f64, than: Option<f64>, by: f64) -> bool {
        let gain = |than: f64| if self.higher { value - than } else { than - value };
        value.is_finite() && than.is_none_or(|than| gain(than) > by)
    }
}

/// The progress of the measure that patience follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Followed {
    pub aim: Aim,
    /// The value improvement is measured from, and measurements since it was set.
    mark: Option<f64>,
    pub since: u32,
}

impl Followed {
    pub fn new(aim: &Aim) -> Self {
        Followed { aim: aim.clone(), mark: None, since: 0 }
    }

    /// Takes in a measurement; only one that is better by more than `improvement` sets a new mark.
    pub fn note(&mut self, measures: &Measured, improvement: f64) {
        let Some(value) = measures.get(&self.aim.measure) else { return };
        if self.aim.is_better(value, self.mark, improvement) {
            (self.mark, self.since) = (Some(value), 0);
        } else {
            self.since = self.since.saturating_add(1);
        }
    }
}

/// The state at which a measure was best: see [`Driver::keep_best`](crate::Driver::keep_best).
#[derive(Debug)]
pub struct Best {
    /// The aim for which it is the best.
    pub aim: Aim,
    /// The measure there.
    pub value: f64,
    /// The iteration after which it was found.
    pub iteration: u32,
    /// λ and θ there, without the method's memory.
    pub state: State,
    /// The problem's measures there, which are taken when the run ends.
    pub measures: Measures,
}

impl Best {
    /// This state, if it is better than the best so far.
    pub(crate) fn of(
        aim: &Aim,
        before: Option<&Best>,
        (iteration, measures): (u32, &Measured),
        state: &State,
        session: &Session,
    ) -> Result<Option<Self>> {
        let Some(value) = measures.get(&aim.measure) else { return Ok(None) };
        if !aim.is_better(value, before.map(|best| best.value), 0.0) {
            return Ok(None);
        }
        Best::at(aim, value, iteration, state, session).map(Some)
    }

    /// A copy of this state.
    pub(crate) fn at(aim: &Aim, value: f64, iteration: u32, state: &State, session: &Session) -> Result<Self> {
        let executor = session.executor();
        let (lambda, theta) = (state.lambda.duplicate(executor)?, state.theta.duplicate(executor)?);
        let state = State { lambda, theta, ..State::default() };
        Ok(Best { aim: aim.clone(), value, iteration, state, measures: Measures::default() })
    }

    /// Another handle to the same numbers, which never change.
    pub(crate) fn handle(&self) -> Self {
        let (lambda, theta) = (self.state.lambda.clone(), self.state.theta.clone());
        let state = State { lambda, theta, ..State::default() };
        Best { aim: self.aim.clone(), state, measures: self.measures.clone(), ..*self }
    }
}

/// The measures of a run, and their use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measuring {
    /// Iterations from one measurement to the next; 0 means never.
    pub every: u32,
    /// This many measurements without an improvement of this size.
    pub patience: Option<(Aim, u32, f64)>,
    pub keep: Option<Aim>,
}

impl Measuring {
    /// Refuses a run that follows something it does not measure; `own` are the problem's measures.
    pub fn check(&self, own: &[&str]) -> Result<()> {
        let known: Vec<&str> = LOSSES.iter().chain(own).copied().collect();
        let aims = self.patience.iter().map(|(aim, ..)| aim).chain(&self.keep);
        for Aim { measure, .. } in aims {
            require(self.every > 0, "measure_every", 0.0, "at least 1 if the run is to follow a measure")?;
            if !known.contains(&measure.as_str()) {
                let known = known.iter().map(|name| name.to_string()).collect();
                return Err(Error::Unknown { kind: "measure", name: measure.clone(), known });
            }
        }
        if let Some((_, measurements, improvement)) = &self.patience {
            require(*measurements > 0, "patience", *measurements, "at least 1 measurement")?;
            let name = "patience's improvement";
            require(*improvement >= 0.0 && improvement.is_finite(), name, *improvement, "at least 0")?;
        }
        Ok(())
    }
}

/// Names under which a run can follow the losses.
pub(crate) const LOSSES: [&str; 2] = ["inner", "outer"];

/// A measurement of a run.
#[derive(Default)]
pub(crate) struct Measured {
    losses: Measures,
    /// The problem's own measures.
    pub own: Measures,
}

impl Measured {
    /// A loss or a measure.
    fn get(&self, name: &str) -> Option<f64> {
        self.losses.get(name).or_else(|| self.own.get(name))
    }
}

/// Takes a run's measures.
pub(crate) struct Gauge {
    evaluator: Evaluator,
    key: Key,
}

impl Gauge {
    /// The measures in the session of a run with this key. A request to stop does not interrupt a measurement.
    pub fn new(session: &Session, key: Key) -> Result<Self> {
        let session = session.clone().stopped_by(StopSignal::new());
        Ok(Gauge { evaluator: session.evaluator()?, key: key.fold_in(MEASURES) })
    }

    /// The losses and the problem's own measures.
    pub fn at(&mut self, state: &State) -> Result<Measured> {
        let values = self.evaluator.at(state, self.key)?;
        let mut named = self.evaluator.names().iter().cloned().zip(values);
        let losses = named.by_ref().take(LOSSES.len()).collect();
        Ok(Measured { losses, own: named.collect() })
    }
}
