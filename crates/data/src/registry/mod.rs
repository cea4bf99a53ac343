//! Known datasets: what they are, where they come from, whether they are present and intact, and how to get them.
//!
//! This is what the subcommands `list`, `check` and `fetch` need; each dataset is described in a file of its own in
//! [`datasets`](crate::datasets).

mod check;
#[cfg(feature = "download")]
mod fetch;
#[cfg(feature = "download")]
mod unpack;

use crate::error::{Error, Result};
pub use check::{FileState, check, check_file};
#[cfg(feature = "download")]
pub use fetch::{Progress, fetch};

/// A dataset that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub summary: &'static str,
    /// Its licence, or what is known of it.
    pub licence: &'static str,
    /// Its home page.
    pub home: &'static str,
    /// The folder of its files, within the data folder.
    pub folder: &'static str,
    /// How to get it.
    pub access: Access,
}

/// How to get a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By downloading these files.
    Files(&'static [Remote]),
    /// By hand, because terms have to be accepted or an account is needed.
    ByHand {
        /// Where to find it, what to accept, and where to put it.
        how: &'static str,
        /// What must be in its folder afterwards.
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
    /// The folder to unpack it into, beside it; none where readers read the file as it is.
    pub unpack: Option<&'static str>,
}

impl Dataset {
    /// Bytes to download; `None` if that has to be done by hand.
    pub fn bytes(&self) -> Option<u64> {
        match self.access {
            Access::Files(files) => Some(files.iter().map(|file| file.bytes).sum()),
            Access::ByHand { .. } => None,
        }
    }
}

/// All known datasets, sorted by name.
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

/// The dataset with this name.
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

/// What was probably meant, or the names there are.
pub(crate) fn suggestion(name: &str) -> String {
    let names = || list().iter().map(|dataset| dataset.name);
    match bilevel::errors::nearest(name, names()) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => format!("; there is {}", names().collect::<Vec<_>>().join(", ")),
    }
}
