//! ijcnn1: 49 990 + 91 701 rows, 22 columns, two classes.

use crate::error::Result;
use crate::readers::libsvm::{FirstIndex, read};
use crate::registry::{Access, Dataset, Remote};
use crate::table::Table;
use std::path::Path;

/// Columns of both parts.
const COLUMNS: usize = 22;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "ijcnn1",
    summary: "the challenge of IJCNN 2001, two classes, 49 990 + 91 701 rows of 22 numbers",
    licence: "BSD-3-Clause (tick's copy of public data)",
    home: "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#ijcnn1",
    folder: "libsvm",
    access: Access::Files(&[
        Remote {
            name: "ijcnn1.trn.bz2",
            url: "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/binary/ijcnn1/ijcnn1.trn.bz2",
            bytes: 1_395_175,
            sha256: "b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
            unpack: None,
        },
        Remote {
            name: "ijcnn1.tst.bz2",
            url: "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/binary/ijcnn1/ijcnn1.tst.bz2",
            bytes: 2_597_597,
            sha256: "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24",
            unpack: None,
        },
    ]),
};

/// The training and test rows, with targets −1 and 1, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::ijcnn1::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<(Table, Table)> {
    let folder = root.as_ref().join(DATASET.folder);
    let part = |name: &str| read(folder.join(name), FirstIndex::One)?.to_table(Some(COLUMNS));
    Ok((part("ijcnn1.trn.bz2")?, part("ijcnn1.tst.bz2")?))
}
