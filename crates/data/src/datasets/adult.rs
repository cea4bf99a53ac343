//! a9a: whether a person earns more than 50 000 dollars, from the census of 1994; 123 columns of 0 and 1.

use crate::error::Result;
use crate::readers::libsvm::{FirstIndex, read};
use crate::registry::{Access, Dataset, Remote};
use crate::table::Table;
use std::path::Path;

/// Columns of both parts.
const COLUMNS: usize = 123;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "a9a",
    summary: "incomes of the 1994 census, two classes, 32 561 + 16 281 rows of 123 zeros and ones",
    licence: "BSD-3-Clause (tick's copy of public UCI data)",
    home: "https://archive.ics.uci.edu/dataset/2/adult",
    folder: "libsvm",
    access: Access::Files(&[
        Remote {
            name: "a9a.trn.bz2",
            url: "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/binary/adult/adult.trn.bz2",
            bytes: 100_554,
            sha256: "73ce74d43bbfc988b08e6ecf738cf5484f19dafa143c31f702f3a8b779d277e5",
            unpack: None,
        },
        Remote {
            name: "a9a.tst.bz2",
            url: "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/binary/adult/adult.tst.bz2",
            bytes: 50_588,
            sha256: "bdb2ec9642e77947a67269471506b18bc4dcf03413f44814dc24833432ba818d",
            unpack: None,
        },
    ]),
};

/// The training and test rows, with targets −1 and 1, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::adult::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<(Table, Table)> {
    let folder = root.as_ref().join(DATASET.folder);
    let part = |name: &str| read(folder.join(name), FirstIndex::Zero)?.to_table(Some(COLUMNS));
    Ok((part("a9a.trn.bz2")?, part("a9a.tst.bz2")?))
}
