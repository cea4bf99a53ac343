//! Saves a run at intervals, and resumes it.

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::file::Opened;
use crate::checkpoint::fingerprint::Identity;
use crate::checkpoint::folder::{Checkpoints, Folder, send_parts};
use crate::compiled::leaves::Leaves;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::outer::driver::Settings;
use crate::outer::progress::Progress;
use crate::outer::stopping::Criteria;
use bilevel_graph::Buffer;
use std::io::{Read, Seek};

/// The folder of a run, if it is saved.
pub(crate) struct Saving<'a> {
    settings: Option<&'a Checkpoints>,
    identity: Identity,
    slots: &'a [&'a str],
    folder: Option<Folder>,
    /// The iteration of the newest checkpoint.
    saved: Option<u32>,
    /// All ranks must read the tensors, of which each has a part.
    is_sharded: bool,
}

impl<'a> Saving<'a> {
    /// Opens the folder of a run, if it has one, and loads the newest checkpoint, if the run resumes. Skipped
    /// checkpoints are added to the notes.
    pub fn begin(
        driver: &'a Settings,
        progress: &mut Progress,
        session: &Session,
        notes: &mut Vec<String>,
    ) -> crate::Result<Self> {
        let (settings, slots) = (driver.checkpoints.as_ref(), driver.optimizer.slots());
        let link = session.executor().link();
        let is_sharded = link.is_some() && driver.shard_from > 0;
        let mut saving = Saving { settings, identity: driver.identity(), slots, folder: None, saved: None, is_sharded };
        let rank = link.map_or(0, |link| link.rank());
        if let (Some(settings), 1..) = (settings, rank) {
            // Rank 0 owns the folder and reports on it.
            if settings.follow(&saving.identity, slots, progress, session)?.is_some() {
                progress.aim_at(&driver.criteria);
                saving.saved = Some(progress.numbers.iteration);
            }
        } else if let Some(settings) = settings {
            let folder = Folder::open(settings)?;
            // If a run does not resume, the folder is empty.
            if let Some(refused) = folder.resume(&saving.identity, slots, progress, session)? {
                notes.extend(refused.iter().map(|error| format!("{error}; continuing from the previous one")));
                progress.aim_at(&driver.criteria);
                saving.saved = Some(progress.numbers.iteration);
            }
            saving.folder = Some(folder);
        }
        Ok(saving)
    }

    /// Returns true if a checkpoint is due after this iteration.
    pub fn is_due(&self, iteration: u32) -> bool {
        self.settings.is_some_and(|settings| settings.is_due(iteration))
    }

    /// Saves this progress, if there is one.
    pub fn save(&mut self, progress: Option<&Progress>) -> Result<(), CheckpointError> {
        let (Some(progress), Some(_)) = (progress, self.settings) else { return Ok(()) };
        let iteration = progress.numbers.iteration;
        if self.saved != Some(iteration) {
            match &self.folder {
                Some(folder) => folder.save(&self.identity, progress, self.slots, self.is_sharded)?,
                None if self.is_sharded => send_parts(&self.identity, progress, self.slots)?,
                None => {}
            }
            self.saved = Some(iteration);
        }
        Ok(())
    }

    /// As [`save`](Self::save), after an error that the other ranks may not have: a progress of which each has a part
    /// cannot be saved.
    pub fn save_alone(&mut self, progress: Option<&Progress>) -> Result<(), CheckpointError> {
        if self.is_sharded { Ok(()) } else { self.save(progress) }
    }
}

impl Progress {
    /// The buffers of all tensors, in the order of a checkpoint: λ, θ, the method's memory and the optimizer's slots.
    /// Then follow λ and θ at the best measure and at the best held-out rows.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let State { lambda, theta, memory } = &self.state;
        let kept = self.best.iter().chain(&self.guarded);
        let best = kept.flat_map(|best| best.state.lambda.iter().chain(best.state.theta.iter()));
        let slots = self.slots.iter().flat_map(|slot| slot.iter());
        lambda.iter().chain(theta.iter()).chain(memory.iter()).chain(slots).chain(best)
    }

    /// Loads a checkpoint of the same run, tensor by tensor. After an error it is undefined.
    pub fn load(&mut self, file: &mut Opened<impl Read + Seek>, session: &Session) -> crate::Result<()> {
        let before = self.state.lambda.len() + self.state.theta.len();
        let memory = || file.metas().skip(before).take(file.header().memory);
        if !memory().eq(self.state.memory.iter().map(Buffer::meta)) {
            self.state.memory = Leaves::zeros(session.executor(), memory())?;
        }
        let executor = session.executor();
        let blank = || {
            let (lambda, theta) = (self.state.lambda.zeros_like(executor)?, self.state.theta.zeros_like(executor)?);
            Ok(State { lambda, theta, memory: Leaves::default() })
        };
        let (best, guarded) = (file.header().best(blank)?, file.header().guarded(blank)?);
        (self.best, self.guarded) = (best, guarded);
        for (number, buffer) in self.buffers().enumerate() {
            file.read_to(number, buffer)?;
        }
        self.numbers = file.header().numbers();
        Ok(())
    }

    /// Drops records that were kept for an aim other than that of this run.
    pub fn aim_at(&mut self, criteria: &Criteria) {
        let measuring = &criteria.measuring;
        if criteria.guard.every == 0 {
            (self.numbers.watched, self.guarded) = (None, None);
        }
        self.numbers
            .followed
            .take_if(|followed| measuring.patience.as_ref().is_none_or(|(aim, ..)| *aim != followed.aim));
        self.best.take_if(|best| measuring.keep.as_ref() != Some(&best.aim));
    }
}
