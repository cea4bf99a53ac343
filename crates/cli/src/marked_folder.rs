//! A folder that carries a mark while a command writes it, so that one it was killed in is known and can be finished.

use crate::errors::{CliError, Result};
use crate::folder::{clean, read_settings, write_whole};
use crate::readable::escaped_path;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

const MARK: &str = "unfinished.txt";

/// A folder that one command writes, and no other while it does.
pub struct MarkedFolder {
    path: PathBuf,
    /// The folder itself, locked until the process ends, however it ends. Not every system lets one open a folder or lock
    /// it; there the user has to take care.
    _lock: Option<File>,
}

fn text(command: &str) -> String {
    format!(
        "'bilevel {command}' writes this folder, and takes this file away when it is done.\n\
         If it was killed, give the same command with the same --out again.\n"
    )
}

impl MarkedFolder {
    /// True for a folder that this command left unfinished.
    pub fn was_left(path: &Path, command: &str) -> bool {
        read_settings(&path.join(MARK)).is_ok_and(|found| found == text(command).as_bytes())
    }

    /// Makes the folder, marks it, and clears away what a kill left half-written in it.
    pub fn begin(path: &Path, command: &str) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|error| CliError::file("make", path, &error))?;
        let lock = File::open(path).ok();
        if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
            return Err(CliError::Usage(format!(
                "another 'bilevel {command}' writes to {}; wait for it, or choose another folder with --out",
                escaped_path(path)
            )));
        }
        if !Self::was_left(path, command) {
            write_whole(&path.join(MARK), text(command).as_bytes())?;
        }
        clean(path)?;
        Ok(MarkedFolder { path: path.to_path_buf(), _lock: lock })
    }

    /// All is written: takes the mark away.
    pub fn done(self) -> Result<()> {
        let mark = self.path.join(MARK);
        std::fs::remove_file(&mark).map_err(|error| CliError::file("remove", &mark, &error))
    }

    /// Nothing was written: takes the mark and the folder away, unless an earlier kill left something in it to be finished.
    pub fn give_up(self) {
        let only_the_mark = std::fs::read_dir(&self.path).is_ok_and(|entries| entries.count() == 1);
        if only_the_mark {
            let _ = std::fs::remove_file(self.path.join(MARK));
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
