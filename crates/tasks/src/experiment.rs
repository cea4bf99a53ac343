//! An experiment by its name, and how much work to put into it.

use crate::{Figure, Row};
use bilevel::Result;

/// How much work to put into an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Few seeds and low caps: seconds for everything.
    Quick,
    /// Enough for the printed digits: minutes for everything.
    Full,
}

impl Effort {
    /// One of two values.
    pub(crate) fn choose<T>(self, quick: T, full: T) -> T {
        if self == Effort::Quick { quick } else { full }
    }
}

/// Told what is being done.
pub(crate) type Progress<'a> = dyn FnMut(&str) + 'a;

/// Everything an experiment gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Its table.
    pub rows: Vec<Row>,
    /// Its curves.
    pub figures: Vec<Figure>,
}

/// One of the paper's experiments.
#[derive(Debug)]
pub struct Experiment {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    pub(crate) work: fn(Effort, &mut Progress) -> Result<Report>,
}

impl Experiment {
    /// Runs it: the table.
    pub fn run(&self, effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Vec<Row>> {
        Ok(self.report(effort, progress)?.rows)
    }

    /// Runs it: the curves.
    pub fn figures(&self, effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Vec<Figure>> {
        Ok(self.report(effort, progress)?.figures)
    }

    /// Runs it once for both.
    pub fn report(&self, effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Report> {
        (self.work)(effort, progress)
    }
}
