//! CIFAR-10: 50 000 small photographs to train on and 10 000 to test on, of 10 classes, in colour, 32 × 32.

use crate::error::Result;
use crate::images::LabelledImages;
use crate::readers::cifar::{Kind, Part, read_archive};
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Where it comes from.
pub const DATASET: Dataset = Dataset {
    name: "cifar10",
    summary: "small photographs of 10 classes, 50 000 + 10 000 colour images of 32 x 32",
    licence: "not stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    home: "https://www.cs.toronto.edu/~kriz/cifar.html",
    folder: "cifar10",
    access: Access::Files(&[Remote {
        name: "cifar-10-binary.tar.gz",
        url: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        bytes: 170_052_171,
        sha256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        unpack: None,
    }]),
};

/// The images to train on and those to test on, from the folder of all data.
///
/// ```
/// assert!(bilevel_data::datasets::cifar10::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let archive = root.as_ref().join(DATASET.folder).join("cifar-10-binary.tar.gz");
    let part = |part| read_archive(&archive, Kind::Ten, part);
    Ok((part(Part::Train)?, part(Part::Test)?))
}
