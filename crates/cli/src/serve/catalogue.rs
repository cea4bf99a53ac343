//! All runs below a folder, as a list that is read again only as far as it changed.

use crate::runs::differences::differences;
use crate::runs::{Overview, Status, find};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The folder is scanned at most this often, for any number of clients.
const REST: Duration = Duration::from_millis(500);

/// Length and modification time of each file that a list depends on; `None` for a missing file.
pub type Stamp = [Option<(u64, SystemTime)>; 4];

/// Identifies the state of a run's files.
pub fn stamp(folder: &Path) -> Stamp {
    ["config.toml", "metrics.jsonl", "result.json", "provenance.json"].map(|name| {
        let data = folder.join(name).metadata().ok()?;
        Some((data.len(), data.modified().ok()?))
    })
}

/// A run with the state of its files.
#[derive(Clone)]
pub struct Known {
    /// The run.
    pub overview: Arc<Overview>,
    /// The state of its files when it was read.
    pub stamp: Stamp,
}

/// The list at one moment.
#[derive(Clone, Default)]
pub struct Listing {
    /// Changes whenever the list does.
    pub version: u64,
    /// The list as JSON.
    pub json: Arc<Vec<u8>>,
    runs: Arc<HashMap<String, Known>>,
}

impl Listing {
    /// The run of this name.
    pub fn run(&self, name: &str) -> Option<&Known> {
        self.runs.get(name)
    }
}

/// All runs below a folder.
pub struct Catalogue {
    root: PathBuf,
    state: Mutex<(Option<Instant>, Listing)>,
}

impl Catalogue {
    /// The catalogue of the runs below this folder.
    pub fn new(root: &Path) -> Self {
        Catalogue { root: root.to_path_buf(), state: Mutex::default() }
    }

    /// The list as it is now, or was half a second ago.
    pub fn list(&self) -> Listing {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (looked, listing) = &mut *state;
        if looked.is_none_or(|looked| looked.elapsed() >= REST) {
            self.look(listing);
            *looked = Some(Instant::now());
        }
        listing.clone()
    }

    fn look(&self, listing: &mut Listing) {
        let paths = find(&self.root).unwrap_or_default();
        let (mut runs, mut order, mut changed) = (HashMap::new(), vec![], paths.len() != listing.runs.len());
        for path in paths {
            let name = Overview::name_of(&path, &self.root);
            let stamp = stamp(&path);
            // Whether a run is at work depends on the time, too.
            let same = |known: &&Known| known.stamp == stamp && known.overview.status != Status::Running;
            let known = match listing.runs.get(&name).filter(same) {
                Some(known) => known.clone(),
                None => {
                    let overview = Overview::read(&path, &self.root);
                    let before = listing.runs.get(&name);
                    changed |=
                        before.is_none_or(|known| known.stamp != stamp || known.overview.status != overview.status);
                    Known { overview: Arc::new(overview), stamp }
                }
            };
            // Two names that are not UTF-8 may read alike; the first is shown.
            if runs.insert(name.clone(), known).is_none() {
                order.push(name);
            }
        }
        if changed || listing.json.is_empty() {
            listing.json = Arc::new(self.json(order.iter().map(|name| &runs[name])));
            listing.version += 1;
        }
        listing.runs = Arc::new(runs);
    }

    /// The list for the page: of the settings only those in which runs differ.
    fn json<'a>(&self, runs: impl Iterator<Item = &'a Known>) -> Vec<u8> {
        let runs: Vec<Overview> = runs.map(|known| (*known.overview).clone()).collect();
        let all: Vec<_> = runs
            .iter()
            .zip(differences(&runs))
            .map(|(run, settings)| {
                json!({
                    "run": run.run, "task": run.task, "method": run.method, "seed": run.seed, "name": run.name,
                    "tags": run.tags, "note": run.note, "status": run.status, "because": run.because,
                    "iterations": run.iterations, "until": run.until, "inner_loss": run.inner_loss,
                    "outer_loss": run.outer_loss, "best_outer_loss": run.best_outer_loss, "started": run.started,
                    "seconds": run.seconds, "settings": settings, "report": run.path.join("report.html").is_file(),
                })
            })
            .collect();
        serde_json::to_vec(&json!({ "folder": self.root.to_string_lossy(), "runs": all })).unwrap_or_default()
    }
}
