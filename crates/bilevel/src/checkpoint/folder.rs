//! A folder of checkpoints: written so that a crash at any moment leaves a whole one, read so that a damaged one is passed
//! over.
//!
//! A checkpoint is whole or not there (see `whole_file.rs`). The last two are kept.

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::file::{CHUNK, Opened, Tensor};
use crate::checkpoint::fingerprint::Identity;
use crate::checkpoint::header::Header;
use crate::checkpoint::whole_file::{refuse_irregular, remove_unfinished, write_whole_by};
use crate::checkpoint::{Checkpoint, file};
use crate::compiled::session::Session;
use crate::error::{Error, require};
use crate::outer::progress::Progress;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".bilevel";
const LOCK: &str = "lock";
/// How many are kept.
const KEEP: usize = 2;

type Result<T> = std::result::Result<T, CheckpointError>;

/// The folder of checkpoints, their interval, and whether to resume from an existing one.
///
/// ```
/// use bilevel::checkpoints::Checkpoints;
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
    /// Its content.
    pub checkpoint: Checkpoint,
    /// The errors of newer files, newest first.
    pub refused: Vec<CheckpointError>,
}

impl Checkpoints {
    /// Checkpoints in this folder, which is created when a run begins: every ten iterations and at the end.
    ///
    /// ```
    /// let checkpoints = bilevel::checkpoints::Checkpoints::new("runs/first");
    /// # let _ = checkpoints;
    /// ```
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Checkpoints { folder: folder.as_ref().to_path_buf(), every: 10, resume: false }
    }

    /// Every n iterations, and at the end.
    ///
    /// ```
    /// let checkpoints = bilevel::checkpoints::Checkpoints::new("runs/first").every(100);
    /// # let _ = checkpoints;
    /// ```
    pub fn every(mut self, iterations: u32) -> Self {
        self.every = iterations;
        self
    }

    /// Continues from the newest checkpoint if there is one, otherwise starts. Without this, a folder that holds
    /// checkpoints is refused.
    ///
    /// ```
    /// let checkpoints = bilevel::checkpoints::Checkpoints::new("runs/first").resume(true);
    /// # let _ = checkpoints;
    /// ```
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// The newest undamaged checkpoint of any run; `None` if the folder has none. If all are damaged, the error is that
    /// of the newest.
    ///
    /// ```
    /// assert!(bilevel::checkpoints::Checkpoints::new("no/such/folder").newest()?.is_none());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn newest(&self) -> crate::Result<Option<Newest>> {
        let found = newest(&self.folder, |file| Ok(Checkpoint::inspect(file)?))?;
        Ok(found.map(|(path, checkpoint, refused)| Newest { path, checkpoint, refused }))
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        require(self.every > 0, "every", self.every, "at least 1")
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
    let failed = |error: std::io::Error| CheckpointError::io("list", folder, error);
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

/// The newest checkpoint that `take` accepts, with its file and the errors of newer ones.
fn newest<T>(
    folder: &Path,
    mut take: impl FnMut(Opened<File>) -> crate::Result<T>,
) -> crate::Result<Option<(PathBuf, T, Vec<CheckpointError>)>> {
    let mut refused = vec![];
    for (number, path) in list(folder)? {
        let mut attempt = || {
            let file = Opened::file(&path)?;
            let iteration = file.header().iteration;
            if iteration != number {
                let reason = format!("it is from iteration {iteration}, not from the one in its name");
                return Err(CheckpointError::damaged(reason).into());
            }
            take(file)
        };
        match attempt() {
            Ok(taken) => return Ok(Some((path, taken, refused))),
            Err(Error::Checkpoint(error)) => refused.push(error.at(&path)),
            // Not the file's fault: no older one would fare better.
            Err(error) => return Err(error),
        }
    }
    if refused.is_empty() { Ok(None) } else { Err(refused.swap_remove(0).into()) }
}

/// A folder a run writes to, and no other run while it does.
pub(crate) struct Folder {
    path: PathBuf,
    /// Held for as long as the run lasts; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Checkpoints {
    /// Sets a progress to the newest usable checkpoint, for a rank that only reads the folder. Returns the same as
    /// [`Folder::resume`].
    pub(crate) fn follow(
        &self,
        identity: &Identity,
        slots: &[&str],
        progress: &mut Progress,
        session: &Session,
    ) -> crate::Result<Option<Vec<CheckpointError>>> {
        if !self.resume {
            return Ok(None);
        }
        let found = newest(&self.folder, |file| load(file, identity, slots, progress, session))?;
        Ok(found.map(|(_, (), refused)| refused))
    }
}

/// Sets a progress to a checkpoint of the same run.
fn load(
    mut file: Opened<File>,
    identity: &Identity,
    slots: &[&str],
    progress: &mut Progress,
    session: &Session,
) -> crate::Result<()> {
    let header = file.header();
    let other_slots =
        || (header.slots != slots).then(|| "the optimizer of the same name has a different memory".into());
    match header.identity.difference(identity).or_else(other_slots) {
        Some(difference) => Err(CheckpointError::Foreign { path: PathBuf::new(), difference }.into()),
        None => progress.load(&mut file, session),
    }
}

impl Folder {
    /// Makes the folder and sees that it can be written to.
    pub fn open(settings: &Checkpoints) -> Result<Self> {
        let path = settings.folder.clone();
        std::fs::create_dir_all(&path).map_err(|e| CheckpointError::io("make the folder", &path, e))?;
        let lock_path = path.join(LOCK);
        let lock = refuse_irregular(&lock_path)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&lock_path))
            .map_err(|e| CheckpointError::io("write to", &lock_path, e))?;
        // Some network file systems have no locks; there the user has to take care.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(CheckpointError::Busy { path });
        }
        let folder = Folder { path, _lock: lock };
        // Removes partly written files of a killed run.
        remove_unfinished(&folder.path).map_err(|e| CheckpointError::io("clean up", &folder.path, e))?;
        if !settings.resume && !list(&folder.path)?.is_empty() {
            return Err(CheckpointError::Occupied { path: folder.path });
        }
        Ok(folder)
    }

    /// Sets a progress to the newest usable checkpoint. Returns the errors of newer ones, or `None` if there is no
    /// checkpoint. After an error the progress is undefined.
    pub fn resume(
        &self,
        identity: &Identity,
        slots: &[&str],
        progress: &mut Progress,
        session: &Session,
    ) -> crate::Result<Option<Vec<CheckpointError>>> {
        let found = newest(&self.path, |file| load(file, identity, slots, progress, session))?;
        let Some((_, (), refused)) = found else { return Ok(None) };
        // Moved aside, but not lost: a refused file may be of a newer version, or of another run.
        for error in &refused {
            let mut aside = error.path().as_os_str().to_os_string();
            aside.push(".refused");
            std::fs::rename(error.path(), &aside).map_err(|e| CheckpointError::io("rename", error.path(), e))?;
        }
        Ok(Some(refused))
    }

    /// Writes a checkpoint and removes all but the last two. If its tensors are sharded, they are read to the end even
    /// if they cannot be written, as the other ranks send their parts.
    pub fn save(&self, identity: &Identity, progress: &Progress, slots: &[&str], is_sharded: bool) -> Result<()> {
        let header = Header::new(identity, progress, slots);
        let tensors: Vec<Tensor> = progress.buffers().map(Tensor::Buffer).collect();
        let place = self.path.join(name(header.iteration));
        let mut was_read = false;
        let written = write_whole_by(&place, |file| {
            if !is_sharded {
                return file::write(&header, &tensors, CHUNK, file);
            }
            was_read = true;
            let mut patient = Patient { sink: file, failed: None };
            file::write(&header, &tensors, CHUNK, &mut patient)?;
            patient.failed.map_or(Ok(()), Err)
        });
        if is_sharded && !was_read {
            send_parts(identity, progress, slots)?;
        }
        written.map_err(|error| CheckpointError::io("write", &place, error))?;
        for (_, old) in list(&self.path)?.into_iter().skip(KEEP) {
            // One too many does no harm.
            let _ = std::fs::remove_file(old);
        }
        Ok(())
    }
}

/// The part of a rank that writes no checkpoint, but has parts of its tensors: it reads them as rank 0 does.
pub(crate) fn send_parts(identity: &Identity, progress: &Progress, slots: &[&str]) -> Result<()> {
    let tensors: Vec<Tensor> = progress.buffers().map(Tensor::Buffer).collect();
    let sent = file::write(&Header::new(identity, progress, slots), &tensors, CHUNK, &mut std::io::sink());
    sent.map_err(|error| CheckpointError::damaged(error.to_string()))
}

/// A sink that takes everything, and remembers its first error.
struct Patient<'s> {
    sink: &'s mut dyn Write,
    failed: Option<std::io::Error>,
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self.sink.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }
}
