//! Known datasets: what they are, where they come from, whether they are there, and how to get them.
//!
//! What `list`, `check` and `fetch` of a command need is here; a dataset itself is a file in [`datasets`](crate::datasets).

mod check;
mod fetch;
mod unpack;

use crate::error::{Error, Result};
pub use check::{FileState, check, check_file};
pub use fetch::{Progress, fetch};

/// A dataset that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The name it is asked for by.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub summary: &'static str,
    /// Its licence, or what is known of it.
    pub licence: &'static str,
    /// The page of those who made it.
    pub home: &'static str,
    /// The folder its files lie in, within that of all data.
    pub folder: &'static str,
    /// How it is had.
    pub access: Access,
}

/// How a dataset is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By downloading these files.
    Files(&'static [Remote]),
    /// Only by a person, who has to accept terms or to log in.
    ByHand {
        /// Where it is, what to accept, and where to put it.
        how: &'static str,
        /// What has to be in its folder then.
        expects: &'static [&'static str],
    },
}

/// A file to download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its name in the dataset's folder.
    pub name: &'static str,
    /// Where it is.
    pub url: &'static str,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: &'static str,
    /// The folder it is unpacked into, beside it; none where readers read it as it is.
    pub unpack: Option<&'static str>,
}

impl Dataset {
    /// Bytes to download; `None` where that is done by hand.
    pub fn bytes(&self) -> Option<u64> {
        match self.access {
            Access::Files(files) => Some(files.iter().map(|file| file.bytes).sum()),
            Access::ByHand { .. } => None,
        }
    }
}

/// All known datasets, in the order of their names.
///
/// ```
/// use bilevel_data::registry;
/// for dataset in registry::list() {
///     println!("{:20} {} ({})", dataset.name, dataset.summary, dataset.licence);
/// }
/// assert!(registry::list().is_sorted_by_key(|dataset| dataset.name));
/// ```
pub fn list() -> &'static [&'static Dataset] {
    crate::datasets::ALL
}

/// The dataset of a name.
///
/// ```
/// use bilevel_data::registry;
/// assert_eq!(registry::find("mnist")?.bytes(), Some(11_594_722));
/// let error = registry::find("mnits").unwrap_err().to_string();
/// assert_eq!(error, "there is no dataset 'mnits'; did you mean 'mnist'?");
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn find(name: &str) -> Result<&'static Dataset> {
    let found = list().iter().find(|dataset| dataset.name == name).copied();
    found.ok_or_else(|| Error::UnknownDataset { name: name.into() })
}

/// What was probably meant, or all there is.
pub(crate) fn suggestion(name: &str) -> String {
    let names = || list().iter().map(|dataset| dataset.name);
    match bilevel::nearest(name, names()) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => format!("; there is {}", names().collect::<Vec<_>>().join(", ")),
    }
}
