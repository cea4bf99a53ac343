//! Describable Textures: 47 classes of textures with 120 images each, of many sizes.

use crate::error::Result;
use crate::images::LabelledImages;
use crate::readers::pictures::{Fit, Settings, read_cached};
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "dtd",
    summary: "textures of 47 classes, 120 colour images per class",
    licence: "research use",
    home: "https://www.robots.ox.ac.uk/~vgg/data/dtd/",
    folder: "dtd",
    access: Access::Files(&[Remote {
        name: "dtd-r1.0.1.tar.gz",
        url: "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
        bytes: 625_239_812,
        sha256: "e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205",
        unpack: Some("unpacked"),
    }]),
};

/// All images from the data folder, cut to `side` by `side` pixels. Decoded images are cached in `cache`.
///
/// ```
/// assert!(bilevel_data::datasets::describable_textures::load("no/such/folder", 128, "no/such/cache").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, side: usize, cache: impl AsRef<Path>) -> Result<LabelledImages> {
    let folder = root.as_ref().join(DATASET.folder).join("unpacked/dtd/images");
    let settings = Settings { size: Some([side, side]), fit: Fit::Crop, ..Settings::default() };
    read_cached(folder, &settings, cache)?.by_folder()
}
