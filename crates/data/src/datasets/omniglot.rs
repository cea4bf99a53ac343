//! Omniglot: 1 623 handwritten characters of 50 alphabets, each drawn by 20 people, black on white, 105 × 105.

use crate::error::Result;
use crate::images::LabelledImages;
use crate::readers::pictures::{Channels, Settings, read_cached};
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Where it comes from.
pub const DATASET: Dataset = Dataset {
    name: "omniglot",
    summary: "handwritten characters of 50 alphabets, 964 + 659 classes of 20 images of 105 x 105",
    licence: "MIT",
    home: "https://github.com/brendenlake/omniglot",
    folder: "omniglot",
    access: Access::Files(&[
        Remote {
            name: "images_background.zip",
            url: "https://github.com/brendenlake/omniglot/raw/master/python/images_background.zip",
            bytes: 9_464_212,
            sha256: "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            unpack: None,
        },
        Remote {
            name: "images_evaluation.zip",
            url: "https://github.com/brendenlake/omniglot/raw/master/python/images_evaluation.zip",
            bytes: 6_462_886,
            sha256: "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            unpack: None,
        },
    ]),
};

/// The 30 alphabets of the background set and the 20 of the evaluation set, from the data folder: grey images of `side`
/// by `side` pixels, ink 0 and paper 255. A class is a character, `ALPHABET/CHARACTER`. Decoded images are cached in
/// `cache`.
///
/// ```
/// assert!(bilevel_data::datasets::omniglot::load("no/such/folder", 28, "no/such/cache").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, side: usize, cache: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let folder = root.as_ref().join(DATASET.folder);
    let settings = Settings { size: Some([side, side]), channels: Channels::Grey, ..Settings::default() };
    let part = |name: &str| {
        let pictures = read_cached(folder.join(format!("{name}.zip")), &settings, cache.as_ref())?;
        pictures.under(name)?.by_folder()
    };
    Ok((part("images_background")?, part("images_evaluation")?))
}
