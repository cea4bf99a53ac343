//! The last good state of a run: its progress after the last unsuspicious iteration. Checkpoints hold it too, so a
//! resumed run repeats the suspicious iterations with the same verdict.

use crate::Result;
use crate::compiled::session::Session;
use crate::hypergradient::MemoryTable;
use crate::outer::progress::Progress;

/// The last good progress of a run, as far as it is held.
pub(crate) enum LastGood {
    /// A copy in separate memory, and the rows that later iterations have changed in the tables of the method's memory.
    Held { good: Box<Progress>, changed: Vec<MemoryTable> },
    /// No copy. It is the run's own progress after a good iteration, and nowhere after any other.
    Own { good: bool },
}

impl LastGood {
    /// The last good state of a run with this progress; a copy if the run is to hold one.
    pub fn new(progress: &Progress, hold: bool, session: &Session) -> Result<Self> {
        if hold {
            return Ok(LastGood::Held { good: Box::new(progress.duplicate(session)?), changed: vec![] });
        }
        Ok(LastGood::Own { good: progress.numbers.watch.suspect == 0 })
    }

    /// The copy.
    pub fn held(&self) -> Option<&Progress> {
        match self {
            LastGood::Held { good, .. } => Some(good),
            LastGood::Own { .. } => None,
        }
    }

    /// The last good progress of a run whose progress this is, if there is one.
    pub fn of<'a>(&'a self, progress: &'a Progress) -> Option<&'a Progress> {
        match self {
            LastGood::Held { good, .. } => Some(good),
            LastGood::Own { good } => good.then_some(progress),
        }
    }

    /// Takes in the progress after an iteration, which has changed these rows of the tables in the method's memory.
    pub fn note(&mut self, progress: &Progress, tables: &[MemoryTable], session: &Session) -> Result<()> {
        let suspect = progress.numbers.watch.suspect > 0;
        match self {
            LastGood::Held { good, changed } => {
                for table in tables {
                    match changed.iter_mut().find(|known| known.leaves == table.leaves) {
                        Some(known) => known.changed.extend(&table.changed),
                        None => changed.push(table.clone()),
                    }
                }
                if !suspect {
                    good.copy_changes_from(progress, changed, session)?;
                    changed.clear();
                }
            }
            LastGood::Own { good } => *good = !suspect,
        }
        Ok(())
    }

    /// Restores a progress that an iteration has left undefined: its state before, or else the last good one. If no
    /// copy is held, returns a warning for the user.
    pub fn fall_back(
        &mut self,
        before: Option<&Progress>,
        progress: &mut Progress,
        session: &Session,
    ) -> Result<Option<String>> {
        match self {
            LastGood::Held { good, .. } => progress.copy_from(before.unwrap_or(good), session).map(|()| None),
            LastGood::Own { good } => {
                *good = false;
                let note = "the run kept no last good state: λ and θ are those in the middle of an unfinished \
                    iteration";
                Ok(Some(note.into()))
            }
        }
    }
}
