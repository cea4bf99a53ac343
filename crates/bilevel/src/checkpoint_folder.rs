//! A folder of checkpoints: written so that a crash at any moment leaves a whole one, read so that a damaged one is passed
//! over.
//!
//! A checkpoint is whole or not there (see `whole_file.rs`). The last two are kept.

use crate::checkpoint::Checkpoint;
use crate::checkpoint_error::CheckpointError;
use crate::error::require;
use crate::fingerprint::Identity;
use crate::progress::Progress;
use crate::whole_file::{refuse_irregular, remove_unfinished, write_whole};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".bilevel";
const LOCK: &str = "lock";
/// How many are kept.
const KEEP: usize = 2;

type Result<T> = std::result::Result<T, CheckpointError>;

/// Where checkpoints go, how often, and whether to go on from what is there.
///
/// ```
/// use bilevel::Checkpoints;
/// let folder = std::env::temp_dir().join(format!("bilevel-doc-none-{}", std::process::id()));
/// let checkpoints = Checkpoints::new(&folder).every(20).resume(true);
/// assert!(checkpoints.newest()?.is_none());
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    folder: PathBuf,
    every: u32,
    resume: bool,
}

/// The newest checkpoint that can be used, and those that were passed over to find it.
///
/// See [`Checkpoint`] for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Newest {
    /// Its file.
    pub path: PathBuf,
    /// What is in it.
    pub checkpoint: Checkpoint,
    /// Why newer files were not taken, newest first.
    pub refused: Vec<CheckpointError>,
}

impl Checkpoints {
    /// In this folder, which is made when a run begins; every ten iterations and at the end.
    ///
    /// ```
    /// let checkpoints = bilevel::Checkpoints::new("runs/first");
    /// # let _ = checkpoints;
    /// ```
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Checkpoints { folder: folder.as_ref().to_path_buf(), every: 10, resume: false }
    }

    /// Every so many iterations, and at the end.
    ///
    /// ```
    /// let checkpoints = bilevel::Checkpoints::new("runs/first").every(100);
    /// # let _ = checkpoints;
    /// ```
    pub fn every(mut self, iterations: u32) -> Self {
        self.every = iterations;
        self
    }

    /// Goes on from the newest checkpoint if there is one, else begins. Without this, a folder that holds checkpoints is
    /// refused.
    ///
    /// ```
    /// let checkpoints = bilevel::Checkpoints::new("runs/first").resume(true);
    /// # let _ = checkpoints;
    /// ```
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// The newest checkpoint that is whole, whichever run it belongs to; `None` where the folder holds none. Where it holds
    /// some and all are damaged, the error is that of the newest.
    ///
    /// ```
    /// assert!(bilevel::Checkpoints::new("no/such/folder").newest()?.is_none());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn newest(&self) -> crate::Result<Option<Newest>> {
        Ok(newest(&self.folder, |_| None)?)
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        require(self.every > 0, "every", self.every as f64, "at least 1")
    }

    pub(crate) fn is_due(&self, iteration: u32) -> bool {
        iteration.is_multiple_of(self.every)
    }
}

fn name(iteration: u32) -> String {
    format!("{PREFIX}{iteration:010}{SUFFIX}")
}

fn number(file: &str) -> Option<u32> {
    file.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Everything in the folder that is named as a checkpoint, newest first.
fn list(folder: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let failed = |error: std::io::Error| CheckpointError::io("list", folder, &error);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(failed(error)),
    };
    let mut all = vec![];
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let Some(number) = entry.file_name().to_str().and_then(number) {
            all.push((number, entry.path()));
        }
    }
    all.sort_by(|a, b| b.cmp(a));
    Ok(all)
}

/// The newest that is whole and in which `objection` finds nothing.
fn newest(folder: &Path, objection: impl Fn(&Checkpoint) -> Option<String>) -> Result<Option<Newest>> {
    let mut refused = vec![];
    for (number, path) in list(folder)? {
        let objections = |checkpoint: &Checkpoint| {
            if checkpoint.iteration() != number {
                let reason = format!("it is of iteration {}, not of that in its name", checkpoint.iteration());
                return Err(CheckpointError::damaged(reason).at(&path));
            }
            match objection(checkpoint) {
                Some(difference) => Err(CheckpointError::Foreign { path: path.clone(), difference }),
                None => Ok(()),
            }
        };
        match Checkpoint::read(&path).and_then(|c| objections(&c).map(|()| c)) {
            Ok(checkpoint) => return Ok(Some(Newest { path, checkpoint, refused })),
            Err(error) => refused.push(error),
        }
    }
    if refused.is_empty() { Ok(None) } else { Err(refused.swap_remove(0)) }
}

/// A folder a run writes to, and no other run while it does.
pub(crate) struct Folder {
    path: PathBuf,
    /// Held for as long as the run lasts; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Folder {
    /// Makes the folder, sees that it can be written to, and reads where to go on from.
    pub fn open(settings: &Checkpoints, identity: &Identity, slots: &[&str]) -> Result<(Self, Option<Newest>)> {
        let path = settings.folder.clone();
        std::fs::create_dir_all(&path).map_err(|e| CheckpointError::io("make the folder", &path, &e))?;
        let lock_path = path.join(LOCK);
        let lock = refuse_irregular(&lock_path)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&lock_path))
            .map_err(|e| CheckpointError::io("write to", &lock_path, &e))?;
        // Some network file systems have no locks; there the user has to take care.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(CheckpointError::Busy { path });
        }
        let folder = Folder { path, _lock: lock };
        // What a run that was killed left half-written.
        remove_unfinished(&folder.path).map_err(|e| CheckpointError::io("clean up", &folder.path, &e))?;
        if !settings.resume {
            return match list(&folder.path)?.is_empty() {
                true => Ok((folder, None)),
                false => Err(CheckpointError::Occupied { path: folder.path }),
            };
        }
        let objection = |checkpoint: &Checkpoint| {
            let other_slots = || {
                (checkpoint.slot_names() != slots)
                    .then(|| "the optimizer of the same name remembers other things".into())
            };
            checkpoint.identity().difference(identity).or_else(other_slots)
        };
        let newest = newest(&folder.path, objection)?;
        // Out of the way, but not lost: a refused file may be of a newer version, or somebody else's.
        for error in newest.iter().flat_map(|n| &n.refused) {
            let mut aside = error.path().as_os_str().to_os_string();
            aside.push(".refused");
            std::fs::rename(error.path(), &aside).map_err(|e| CheckpointError::io("rename", error.path(), &e))?;
        }
        Ok((folder, newest))
    }

    /// Writes a checkpoint and removes all but the last two.
    pub fn save(&self, identity: &Identity, progress: &Progress, slots: &[&str]) -> Result<()> {
        let failed = |error: crate::Error| {
            CheckpointError::io("read the state to write it to", &self.path, &std::io::Error::other(error))
        };
        let checkpoint = Checkpoint::new(identity, progress, slots).map_err(failed)?;
        let place = self.path.join(name(checkpoint.iteration()));
        let written = checkpoint.encode().map_err(std::io::Error::other).and_then(|bytes| write_whole(&place, &bytes));
        written.map_err(|error| CheckpointError::io("write", &place, &error))?;
        for (_, old) in list(&self.path)?.into_iter().skip(KEEP) {
            // One too many does no harm.
            let _ = std::fs::remove_file(old);
        }
        Ok(())
    }
}
