//! The metrics of runs, thinned while they are read; each read continues after the last one.
//!
//! Long runs keep one line in 2ᵏ, and k grows with the run, so that the memory for a run is bounded. In each stretch of
//! 2ᵏ iterations a line with measures is preferred to one without. Lines are kept whole or not at all.

use bilevel::files::whole_file::open_regular;
use bilevel::observers::LONGEST_LINE;
use bilevel_run::run::{History, IterationRow};
use std::fs::Metadata;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The most lines that are kept of a run: twice as many as a plot has pixels.
const MOST_ROWS: usize = 2048;
/// The most runs whose lines are kept.
const MOST_RUNS: usize = 32;

/// The metrics of one run so far.
#[derive(Default)]
struct Thinned {
    /// Distinguishes the file from a replacement.
    identity: u64,
    /// The end of the last complete line.
    offset: u64,
    /// Iterations in a stretch.
    stride: u32,
    rows: Vec<IterationRow>,
    last: Option<IterationRow>,
    /// The damage of the file, if any.
    damage: Option<String>,
}

/// Distinguishes a file from a replacement; only Unix has such an identity.
#[cfg(unix)]
fn identity(data: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(data)
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> u64 {
    0
}

impl Thinned {
    /// Reads on to the last whole line.
    fn read(&mut self, path: &Path) -> std::io::Result<()> {
        let mut file = open_regular(path)?;
        let data = file.metadata()?;
        if identity(&data) != self.identity || data.len() < self.offset || self.stride == 0 || self.damage.is_some() {
            *self = Thinned { identity: identity(&data), stride: 1, ..Thinned::default() };
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let (mut lines, mut line) = (BufReader::new(file), vec![]);
        loop {
            line.clear();
            let read = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if read == 0 || !line.ends_with(b"\n") {
                return Ok(());
            }
            self.offset += read as u64;
            let before = self.last.as_ref().map_or(0, |last| last.iteration);
            match serde_json::from_slice::<IterationRow>(&line) {
                Ok(row) if row.iteration > before => self.take(row),
                _ => {
                    self.damage = Some(format!("metrics.jsonl is damaged after iteration {before}"));
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, row: IterationRow) {
        let row = IterationRow { run: None, ..row };
        self.last = Some(row.clone());
        self.keep(row);
        if self.rows.len() > MOST_ROWS {
            self.stride *= 2;
            for row in std::mem::take(&mut self.rows) {
                self.keep(row);
            }
        }
    }

    /// Keeps a line, or not, so that there is one of each stretch.
    fn keep(&mut self, row: IterationRow) {
        let stretch = |row: &IterationRow| row.iteration / self.stride;
        match self.rows.last_mut() {
            Some(kept) if stretch(kept) == stretch(&row) => {
                if kept.measures.is_empty() && !row.measures.is_empty() {
                    *kept = row;
                }
            }
            _ => self.rows.push(row),
        }
    }

    fn history(&self) -> History {
        let mut rows = self.rows.clone();
        if let Some(last) = &self.last
            && rows.last().is_none_or(|kept| kept.iteration < last.iteration)
        {
            rows.push(last.clone());
        }
        History { rows }
    }
}

/// The metrics of the runs that were viewed last.
#[derive(Default)]
pub struct Curves(Mutex<Vec<(PathBuf, Arc<Mutex<Thinned>>)>>);

impl Curves {
    /// The present metrics of a run, and their damage.
    pub fn of(&self, folder: &Path) -> (History, Option<String>) {
        let kept = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = all.iter().position(|(path, _)| path == folder).map(|at| all.remove(at));
            let (path, kept) = found.unwrap_or_else(|| (folder.to_path_buf(), Arc::default()));
            all.truncate(MOST_RUNS - 1);
            all.insert(0, (path, kept.clone()));
            kept
        };
        let mut thinned = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match thinned.read(&folder.join("metrics.jsonl")) {
            Ok(()) => (thinned.history(), thinned.damage.clone()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (History::default(), None),
            Err(error) => (History::default(), Some(format!("metrics.jsonl cannot be read: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(iteration: u32) -> String {
        let measures = if iteration.is_multiple_of(7) { ",\"measures\":{\"accuracy\":0.5}" } else { "" };
        format!("{{\"iteration\":{iteration},\"outer_loss\":{}{measures}}}\n", 1.0 / f64::from(iteration))
    }

    #[test]
    fn a_file_is_read_on_and_a_half_written_line_is_left_for_the_next_look() {
        let place = tempfile::tempdir().unwrap();
        let curves = Curves::default();
        let count = || curves.of(place.path()).0.rows.len();
        assert_eq!(count(), 0);
        let path = place.path().join("metrics.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all((line(1) + &line(2)[..10]).as_bytes()).unwrap();
        assert_eq!(count(), 1);
        file.write_all((line(2)[10..].to_string() + &line(3)).as_bytes()).unwrap();
        assert_eq!(count(), 3);
        // As a resumed run does: another file, with fewer lines.
        std::fs::write(place.path().join("other"), line(1)).unwrap();
        std::fs::rename(place.path().join("other"), &path).unwrap();
        assert_eq!(count(), 1);
        std::fs::write(&path, line(1) + "garbage\n").unwrap();
        let (history, damage) = curves.of(place.path());
        assert_eq!((history.rows.len(), damage.unwrap().as_str()), (1, "metrics.jsonl is damaged after iteration 1"));
    }

    #[test]
    fn a_long_run_is_thinned_to_lines_of_its_own_and_keeps_its_last_and_its_measures() {
        let place = tempfile::tempdir().unwrap();
        let all = 20_000;
        let text: String = (1..=all).map(line).collect();
        std::fs::write(place.path().join("metrics.jsonl"), text).unwrap();
        let (history, damage) = Curves::default().of(place.path());
        assert!(damage.is_none() && history.rows.len() <= MOST_ROWS + 1 && history.rows.len() > MOST_ROWS / 2);
        assert_eq!(history.last().unwrap().iteration, all);
        assert!(history.rows.iter().all(|row| row.outer_loss == Some(1.0 / f64::from(row.iteration))));
        assert!(history.rows.windows(2).all(|pair| pair[0].iteration < pair[1].iteration));
        assert!(history.measure("accuracy").len() > history.rows.len() / 2);
    }

    #[test]
    fn only_so_many_runs_are_kept() {
        let curves = Curves::default();
        for n in 0..100 {
            curves.of(Path::new(&format!("gone/{n}")));
        }
        assert_eq!(curves.0.lock().unwrap().len(), MOST_RUNS);
    }
}
