//! Known datasets: description, source, check of the local files, and download.
//!
//! The subcommands `list`, `check` and `fetch` use this; each dataset has its own file in
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
    /// Its description, in a sentence.
    pub summary: &'static str,
    /// Its licence, as far as it is known.
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
        /// Its source, the terms to accept, and the place to put it.
        how: &'static str,
        /// The files that its folder must then have.
        expects: &'static [&'static str],
    },
}

/// A file to download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its name in the dataset's folder.
    pub name: &'static str,
    /// Its address.
    pub url: &'static str,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: &'static str,
    /// The folder next to it to unpack it into; `None` if readers read the file directly.
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

/// The name that was probably meant, or all names.
pub(crate) fn suggestion(name: &str) -> String {
    let names = || list().iter().map(|dataset| dataset.name);
    match bilevel::errors::nearest(name, names()) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => format!("; there is {}", names().collect::<Vec<_>>().join(", ")),
    }
}
