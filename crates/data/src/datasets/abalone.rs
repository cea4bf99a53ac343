//! Abalone: the age of sea snails, counted in rings of the shell, from 8 measurements.

use crate::error::Result;
use crate::readers::libsvm::{FirstIndex, read};
use crate::registry::{Access, Dataset, Remote};
use crate::table::Table;
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "abalone",
    summary: "ages of sea snails (regression), 4 177 rows of 8 numbers",
    licence: "BSD-3-Clause (tick's copy of public UCI data)",
    home: "https://archive.ics.uci.edu/dataset/1/abalone",
    folder: "libsvm",
    access: Access::Files(&[Remote {
        name: "abalone.trn.bz2",
        url: "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/regression/abalone/abalone.trn.bz2",
        bytes: 52_435,
        sha256: "9d24998fecb496cca34cb56386f99d36edc2aa113f800b1f7c02316e05da80f1",
        unpack: None,
    }]),
};

/// All rows, with the number of rings as the target, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::abalone::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<Table> {
    read(root.as_ref().join(DATASET.folder).join("abalone.trn.bz2"), FirstIndex::One)?.to_table(None)
}
