//! The folder of a study.
//!
//!   study.toml        the request
//!   provenance.json   its origin: version, command line, device and dates of every process
//!   ITEM/             a folder for every item: that of a run, or one with `measurement.json`
//!   rows.jsonl        one line per number, written when all is done
//!   report.html       tables and figures on one page
//!   plots/            every figure as SVG and PNG

use crate::errors::{CliError, Result};
use crate::run::folder::{RunFolder, clean, is_taken, read_settings, refuse_foreign, write_whole};
use crate::terminal::readable::escaped_path;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

const MARK: &str = "study.toml";

/// A folder that one study writes, and no other command while it does.
#[derive(Debug)]
pub struct StudyFolder {
    path: PathBuf,
    /// The folder itself, locked until the process ends, however it ends. Not every system lets one open a folder or lock
    /// it; there the user has to take care.
    _lock: Option<File>,
}

impl StudyFolder {
    /// Chooses the user's folder, or one under `runs`: the unfinished folder of the same request and name, otherwise a
    /// new one, with a number if the name is taken.
    pub fn choose(out: Option<&Path>, name: &str, asked: &str) -> Result<PathBuf> {
        if let Some(path) = out {
            refuse_foreign(path, "study", path.join(MARK).is_file())?;
            return Ok(path.to_path_buf());
        }
        let numbered = |n: u32| if n == 1 { name.to_string() } else { format!("{name}-{n}") };
        let mut paths = (1..).map(|n| Path::new("runs").join(numbered(n)));
        let is_free = |path: &PathBuf| {
            !is_taken(path) || (read_mark(path).is_some_and(|mark| mark == asked) && !path.join("rows.jsonl").exists())
        };
        paths.find(is_free).ok_or_else(|| CliError::Usage("there is no free name under runs".into()))
    }

    /// Makes the folder, records its request, and removes partly written files.
    pub fn begin(path: &Path, asked: &str) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|error| CliError::file("make", path, &error))?;
        let lock = File::open(path).ok();
        if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
            return Err(CliError::Usage(format!(
                "another command is writing to {}; wait for it, or choose another folder with --out",
                escaped_path(path)
            )));
        }
        clean(path)?;
        if read_mark(path).as_deref() != Some(asked) {
            write_whole(&path.join(MARK), asked.as_bytes())?;
        }
        Ok(StudyFolder { path: path.to_path_buf(), _lock: lock })
    }

    /// The folder that rank 0 has begun, for a rank that writes nothing but items in it.
    pub fn of_the_first(path: &Path) -> Self {
        StudyFolder { path: path.to_path_buf(), _lock: None }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of an item that is a run.
    pub fn run(&self, label: &str) -> RunFolder {
        RunFolder::at(&self.path.join(label))
    }

    /// The file of an item that is a measurement.
    pub fn measurement(&self, label: &str) -> PathBuf {
        self.path.join(label).join("measurement.json")
    }

    /// Its rows.
    pub fn rows_file(&self) -> PathBuf {
        self.path.join("rows.jsonl")
    }

    /// Its report.
    pub fn report_file(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// The figures of its report.
    pub fn plots(&self) -> PathBuf {
        self.path.join("plots")
    }
}

fn read_mark(path: &Path) -> Option<String> {
    String::from_utf8(read_settings(&path.join(MARK)).ok()?).ok()
}
