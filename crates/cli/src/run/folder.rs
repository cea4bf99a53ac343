//! The folder of a run: its files, the place of a new one, atomic writes, and clean-up after a kill.
//!
//!   config.toml          the configuration, with every key
//!   metrics.jsonl        one line per outer iteration
//!   checkpoint/          the state that a resumed run continues from
//!   result.json          the results of a finished run
//!   provenance.json      its origin: version, command line, device and dates of every process
//!   lambda.safetensors   the hyperparameters it found
//!   theta.safetensors    the parameters at the end, if requested
//!   report.html, plots/  the report and its figures
//!   tensorboard/         event files, if requested

use crate::config::entries::Entry;
use crate::config::errors::{ConfigError, Instead, Place, Wrong};
use crate::config::{parse_including, resolve, text};
use crate::errors::{CliError, Result};
use crate::terminal::readable::escaped_path;
use bilevel::checkpoints::{CheckpointError, Checkpoints};
use bilevel::files::whole_file;
use bilevel::files::whole_file::{is_unfinished, open_regular, remove_unfinished};
use bilevel_run::{Config, Device, LAMBDA_FILE, Registry, THETA_FILE};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Chooses the folder of a new run: the user's, or `runs/TASK-METHOD-sSEED` under the current folder, with a number
    /// if that is taken. Refuses a folder that holds anything. Creates only a folder under `runs`, so that no other run
    /// takes it.
    pub fn for_new_run(out: Option<&Path>, config: &Config) -> Result<Self> {
        if let Some(path) = out {
            let folder = RunFolder { path: path.to_path_buf() };
            if folder.holds_run() {
                return Err(CliError::Occupied(folder.path));
            }
            refuse_foreign(path, "run", folder.is_not_begun())?;
            return Ok(folder);
        }
        let name = format!("{}-{}-s{}", config.task.name(), config.method.name(), config.seed);
        let runs = Path::new("runs");
        std::fs::create_dir_all(runs).map_err(|error| CliError::file("make the folder", runs, &error))?;
        for n in 1u32.. {
            let path = runs.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(RunFolder { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(CliError::file("make the folder", &path, &error)),
            }
        }
        Err(CliError::Occupied(runs.join(name)))
    }

    /// Removes a folder under `runs` again if it is still empty.
    pub fn remove_if_empty(&self) {
        if std::fs::remove_dir(&self.path).is_ok()
            && let Some(above) = self.path.parent()
        {
            let _ = std::fs::remove_dir(above);
        }
    }

    /// The folder at this path, without a check of its contents.
    pub fn at(path: &Path) -> Self {
        RunFolder { path: path.to_path_buf() }
    }

    /// The folder of an existing run.
    pub fn of_run(path: &Path) -> Result<Self> {
        let folder = RunFolder { path: path.to_path_buf() };
        std::fs::metadata(path).map_err(|error| CliError::file("open", path, &error))?;
        match folder.config_file().is_file() {
            true => Ok(folder),
            false if folder.is_not_begun() => Err(CliError::NotBegun(folder.path)),
            false => Err(CliError::NoRun(folder.path)),
        }
    }

    /// Returns true if a run was killed before its configuration was written: the folder has only earlier files.
    fn is_not_begun(&self) -> bool {
        let only = |folder: &Path, known: &[&str]| {
            entries_of(folder).is_ok_and(|names| names.iter().all(|name| known.iter().any(|known| name == known)))
        };
        only(&self.path, &["checkpoint"]) && only(&self.checkpoints(), &["lock", "configuration"])
    }

    /// Removes partly written files.
    pub fn clean(&self) -> Result<()> {
        clean(&self.path)?;
        clean(&self.plots())
    }

    fn holds_run(&self) -> bool {
        let saved = match Checkpoints::new(self.checkpoints()).newest() {
            // If no checkpoint is readable, there is nothing to lose.
            Ok(None) | Err(bilevel::Error::Checkpoint(CheckpointError::Io { .. })) => false,
            // A checkpoint that is damaged is a checkpoint all the same.
            _ => true,
        };
        self.config_file().exists() || saved
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its configuration.
    pub fn config_file(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// Its metrics.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// Its checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// The hash of the run's configuration and its last device, so that later changes are noticed.
    pub fn path_hash_file(&self) -> PathBuf {
        self.checkpoints().join("configuration")
    }

    /// Records the run's hash and device next to the checkpoints.
    pub fn mark(&self, config: &Config) -> Result<()> {
        write_whole(&self.path_hash_file(), format!("{} {}\n", config.path_hash(), config.device).as_bytes())
    }

    /// The run's hash and last device; `None` if they cannot be read.
    fn marked(&self) -> Option<(String, Option<Device>)> {
        let bytes = read_settings(&self.path_hash_file()).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (begun, device) = match words[..] {
            [begun] => (begun, None),
            [begun, device] => device.parse().map_or(("", None), |device| (begun, Some(device))),
            // A damaged mark belongs to no run.
            _ => ("", None),
        };
        Some((begun.to_string(), device))
    }

    /// The last device of the run, if known.
    pub fn device(&self) -> Option<Device> {
        self.marked()?.1
    }

    /// Refuses a configuration that would continue the run on another path, or on another device than its checkpoints were
    /// made on.
    pub fn check_unchanged(&self, config: &Config) -> Result<()> {
        match self.marked() {
            Some((begun, _)) if begun != config.path_hash() => Err(CliError::Changed(self.path.clone())),
            Some((_, Some(was))) if was != config.device => {
                Err(CliError::OtherDevice { path: self.path.clone(), was, now: config.device })
            }
            // If it cannot be read, the checkpoints themselves identify their run.
            _ => Ok(()),
        }
    }

    /// Its result.
    pub fn result_file(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// The hyperparameters it found.
    pub fn lambda_file(&self) -> PathBuf {
        self.path.join(LAMBDA_FILE)
    }

    /// The parameters at the end of a run that keeps them.
    pub fn theta_file(&self) -> PathBuf {
        self.path.join(THETA_FILE)
    }

    /// Its report.
    pub fn report_file(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// The figures of its report.
    pub fn plots(&self) -> PathBuf {
        self.path.join("plots")
    }

    /// Its event files.
    pub fn tensorboard(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    /// The configuration of its run.
    pub fn config(&self, registry: &Registry) -> Result<Config> {
        Ok(resolve(registry, &self.entries(registry)?)?)
    }

    /// The settings in its configuration. A run writes every key there is, so a file that lacks one was cut.
    pub fn entries(&self, registry: &Registry) -> Result<Vec<Entry>> {
        let path = self.config_file();
        let entries = read_entries(&path)?;
        let config = resolve(registry, &entries).map_err(|error| match error.wrong {
            Wrong::UnknownKey { instead: Instead::Moved(_), .. } => CliError::File {
                action: "read",
                path: path.clone(),
                reason: "it was written by version 0.1, whose runs this version cannot read; start the run \
                    again"
                    .into(),
            },
            _ => error.into(),
        })?;
        let keys = text::keys(&config.settings());
        match keys.iter().find(|key| !entries.iter().any(|entry| entry.dotted() == **key)) {
            None => Ok(entries),
            Some(key) => Err(CliError::File {
                action: "read",
                path,
                reason: format!("it is incomplete: {key} is missing; put the right file back"),
            }),
        }
    }
}

/// Refuses a file, and a folder with something in it that is not the command's own: nobody's files are written over.
pub fn refuse_foreign(path: &Path, what: &str, own: bool) -> Result<()> {
    if is_taken(path) && !own {
        let sentence = format!("holds something other than a {what}; choose another folder with --out");
        return Err(CliError::Usage(format!("{} {sentence}", escaped_path(path))));
    }
    Ok(())
}

/// Returns true for a file, and for a folder with something in it; partly written files do not count.
pub fn is_taken(path: &Path) -> bool {
    match entries_of(path) {
        Ok(names) => !names.is_empty(),
        Err(_) => path.exists() && !path.is_dir(),
    }
}

/// The names in a folder, without those of files that a kill left half-written.
fn entries_of(path: &Path) -> std::io::Result<Vec<OsString>> {
    let names = std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
    Ok(names.collect::<std::io::Result<Vec<_>>>()?.into_iter().filter(|name| !is_unfinished(name)).collect())
}

/// Removes partly written files in a folder of ours.
pub fn clean(folder: &Path) -> Result<()> {
    remove_unfinished(folder).map_err(|error| CliError::file("clean up", folder, &error))
}

/// The most bytes a file of settings may have.
const LARGEST_SETTINGS: u64 = 1 << 20;

/// A small file of the command's own; one that is larger than it can be is refused before it fills the memory.
pub fn read_settings(path: &Path) -> std::io::Result<Vec<u8>> {
    read_up_to(open_regular(path)?)
}

fn read_up_to(file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![];
    file.take(LARGEST_SETTINGS + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST_SETTINGS {
        true => Err(std::io::Error::other(format!(
            "it has more than {LARGEST_SETTINGS} bytes, which is too large for a configuration file"
        ))),
        false => Ok(bytes),
    }
}

/// The settings in a file and in those that it includes. The file may be a pipe if the user names one.
pub fn read_entries(path: &Path) -> Result<Vec<Entry>> {
    let text = File::open(path).and_then(read_up_to).map_err(|error| CliError::file("read", path, &error))?;
    let entries = parse_including(&text, path, &read_settings)?;
    if entries.is_empty() {
        return Err(ConfigError::at(&Place::File(path.into(), 1), Wrong::NoTask).into());
    }
    Ok(entries)
}

/// Writes a file so that at any moment it is the old one or the new one, whole.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    whole_file::write_whole(path, bytes).map_err(|error| CliError::file("write", path, &error))
}
