//! The origin of a result: version, commit, command line, device and dates, in `provenance.json`.
//!
//! It is separate from `result.json`, which is the same for the same run on every machine and every day. Each process
//! that works on a run adds an entry: the first begins it, others resume it.

use crate::errors::Result;
use crate::run::folder::{read_settings, write_whole};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the command.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from; `None` if it was not built from a checkout, or not for release.
pub const COMMIT: Option<&str> = option_env!("BILEVEL_COMMIT");

/// One process that worked on a run or a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The version of the command.
    pub version: String,
    /// The commit it was built from.
    pub commit: Option<String>,
    /// Its command line.
    pub command: Vec<String>,
    /// The device of the process.
    pub device: String,
    /// Threads it was allowed on the processor.
    pub threads: usize,
    /// The name of the machine.
    pub host: Option<String>,
    /// Outer iterations that were done when it began; none for a study.
    pub resumed_after: Option<u32>,
    /// When it began, in UTC.
    pub started: String,
    /// When it ended; `None` if it is still at work, or was killed.
    pub ended: Option<String>,
}

impl Provenance {
    /// The entry of this process, which begins now.
    pub fn begin(device: impl std::fmt::Display, threads: usize, resumed_after: Option<u32>) -> Self {
        let all = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Provenance {
            version: VERSION.into(),
            commit: COMMIT.map(String::from),
            command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            device: device.to_string(),
            threads: if threads == 0 { all() } else { threads },
            host: host(),
            resumed_after,
            started: rfc3339(SystemTime::now()),
            ended: None,
        }
    }

    /// The entry in one line, for the foot of a page.
    pub fn line(&self) -> String {
        let commit = self.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
        let host = self.host.as_ref().map_or(String::new(), |host| format!(" of {host}"));
        let ended = self.ended.as_ref().map_or(String::new(), |ended| format!(" to {ended}"));
        let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        let Provenance { version, device, started, .. } = self;
        format!("bilevel {version}{commit} · {started}{ended} · {device}{host}, {threads} · {}", self.command.join(" "))
    }
}

/// Its path in a folder.
pub fn file(folder: &Path) -> PathBuf {
    folder.join("provenance.json")
}

/// The entries of a folder, the oldest first; `None` if the file is damaged. Nothing is computed from them, so pages say so and go on.
pub fn read(folder: &Path) -> Option<Vec<Provenance>> {
    let path = file(folder);
    if path.symlink_metadata().is_err() {
        return Some(vec![]);
    }
    let entries: Vec<Provenance> = serde_json::from_slice(&read_settings(&path).ok()?).ok()?;
    Some(entries).filter(|entries| !entries.is_empty())
}

/// The foot of a page: the last process that worked on the folder, and how often it was resumed.
pub fn footer(folder: &Path) -> String {
    let unknown = |why: &str| format!("drawn by bilevel {VERSION}; {why}");
    match read(folder).as_deref() {
        None => unknown("provenance.json is damaged, so the origin of this result is unknown"),
        Some([]) => unknown("there is no provenance.json, so the origin of this result is unknown"),
        Some([only]) => only.line(),
        Some([first, last]) => format!("{} · resumed once since {}", last.line(), first.started),
        Some(all @ [first, .., last]) => {
            format!("{} · resumed {} times since {}", last.line(), all.len() - 1, first.started)
        }
    }
}

/// Adds an entry, or completes the one that this process has added.
pub fn write(folder: &Path, entry: &Provenance) -> Result<()> {
    let mut entries = read(folder).unwrap_or_default();
    let same =
        |known: &Provenance| Provenance { ended: None, ..known.clone() } == Provenance { ended: None, ..entry.clone() };
    match entries.last_mut().filter(|known| same(known)) {
        Some(known) => *known = entry.clone(),
        None => entries.push(entry.clone()),
    }
    // Strings and numbers can always be written down.
    let text = serde_json::to_string_pretty(&entries).unwrap_or_default() + "\n";
    write_whole(&file(folder), text.as_bytes())
}

/// Completes an entry when its process ends. A failure to write it is ignored, because the results are kept.
pub fn end(folder: &Path, entry: Provenance) {
    if file(folder).is_file() {
        let _ = write(folder, &Provenance { ended: Some(rfc3339(SystemTime::now())), ..entry });
    }
}

/// The name of the machine, if a file has it.
fn host() -> Option<String> {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let name = name.ok().or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

/// A time in UTC to the second, as RFC 3339 writes it.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days from 1 March of year 0, in eras of 400 years of 146097 days (Hinnant, "chrono-compatible low-level date algorithms").
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        let at = |seconds: u64| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(at(4_102_444_799), "2099-12-31T23:59:59Z");
    }

    #[test]
    fn an_entry_is_completed_once_and_others_are_added_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = Provenance::begin("cpu", 1, Some(0));
        write(folder.path(), &first).unwrap();
        assert_eq!(read(folder.path()).unwrap()[0].ended, None);
        end(folder.path(), first.clone());
        let second = Provenance { resumed_after: Some(5), ..Provenance::begin("cpu", 2, None) };
        write(folder.path(), &second).unwrap();
        let entries = read(folder.path()).unwrap();
        assert_eq!(entries.len(), 2);
        assert!(entries[0].ended.is_some() && entries[1] == second);
        assert!(
            first.line().starts_with(&format!("bilevel {VERSION}")) && first.line().contains("cpu"),
            "{}",
            first.line()
        );
        assert!(footer(folder.path()).ends_with(&format!("resumed once since {}", first.started)));
        std::fs::write(file(folder.path()), "damaged").unwrap();
        assert!(footer(folder.path()).contains("provenance.json is damaged"));
        write(folder.path(), &second).unwrap();
        assert_eq!(read(folder.path()).unwrap(), [second]);
        std::fs::remove_file(file(folder.path())).unwrap();
        assert!(footer(folder.path()).contains("there is no provenance.json"));
    }
}
