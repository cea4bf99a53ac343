//! What a run falls back on: its progress after the last iteration that gave no cause for suspicion. It is also what is saved, so a run
//! that is resumed meets the suspicious iterations again and judges them alike.

use crate::Result;
use crate::progress::Progress;
use crate::session::Session;

/// The last good progress of a run, as far as it is held.
pub(crate) enum LastGood {
    /// A copy with memory of its own.
    Held(Box<Progress>),
    /// No copy. It is the run's own progress after a good iteration, and nowhere after any other.
    Own { good: bool },
}

impl LastGood {
    /// Of a run that has this progress; a copy where the run is to hold one.
    pub fn new(progress: &Progress, hold: bool, session: &Session) -> Result<Self> {
        if hold {
            return Ok(LastGood::Held(Box::new(progress.duplicate(session)?)));
        }
        Ok(LastGood::Own { good: progress.numbers.watch.suspect == 0 })
    }

    /// The copy.
    pub fn held(&self) -> Option<&Progress> {
        match self {
            LastGood::Held(good) => Some(good),
            LastGood::Own { .. } => None,
        }
    }

    /// The last good progress of a run whose progress this is, if there is one.
    pub fn of<'a>(&'a self, progress: &'a Progress) -> Option<&'a Progress> {
        match self {
            LastGood::Held(good) => Some(good),
            LastGood::Own { good } => good.then_some(progress),
        }
    }

    /// Takes in the progress after an iteration.
    pub fn note(&mut self, progress: &Progress, session: &Session) -> Result<()> {
        let suspect = progress.numbers.watch.suspect > 0;
        match self {
            LastGood::Held(good) if !suspect => good.copy_from(progress, session)?,
            LastGood::Held(_) => {}
            LastGood::Own { good } => *good = !suspect,
        }
        Ok(())
    }

    /// Brings a progress that an iteration has left in no particular state back to what it was before, or else to the last good one;
    /// where no copy is held, what a person should know of that.
    pub fn fall_back(
        &mut self,
        before: Option<&Progress>,
        progress: &mut Progress,
        session: &Session,
    ) -> Result<Option<String>> {
        match self {
            LastGood::Held(good) => progress.copy_from(before.unwrap_or(good), session).map(|()| None),
            LastGood::Own { good } => {
                *good = false;
                let note = "the run held no state to fall back on: λ and θ are as an unfinished iteration left them";
                Ok(Some(note.into()))
            }
        }
    }
}
