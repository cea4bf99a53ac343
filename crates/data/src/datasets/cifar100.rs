//! CIFAR-100: as CIFAR-10, with 100 classes of 500 + 100 images.

use crate::error::Result;
use crate::images::LabelledImages;
use crate::readers::cifar::{Kind, Part, read_archive};
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "cifar100",
    summary: "small photographs of 100 classes, 50 000 + 10 000 colour images of 32 x 32",
    licence: "not stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    home: "https://www.cs.toronto.edu/~kriz/cifar.html",
    folder: "cifar100",
    access: Access::Files(&[Remote {
        name: "cifar-100-binary.tar.gz",
        url: "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        bytes: 168_513_733,
        sha256: "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        unpack: None,
    }]),
};

/// The training and test images, with their fine labels, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::cifar100::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let archive = root.as_ref().join(DATASET.folder).join("cifar-100-binary.tar.gz");
    let part = |part| read_archive(&archive, Kind::Hundred, part);
    Ok((part(Part::Train)?, part(Part::Test)?))
}
