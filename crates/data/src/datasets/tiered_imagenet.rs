//! tieredImageNet: 608 classes of ImageNet, split so that no class to test on is near one to learn from.

use super::mini_imagenet::FewShot;
use crate::error::Result;
use crate::readers::pictures::{Settings, read_cached};
use crate::registry::{Access, Dataset};
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "tiered-imagenet",
    summary: "608 classes of ImageNet for few-shot learning, 779 165 colour images of 84 x 84",
    licence: "ImageNet's terms: non-commercial research and education",
    home: "https://github.com/renmengye/few-shot-ssl-public",
    folder: "tiered-imagenet",
    access: Access::ByHand {
        how: "accept ImageNet's terms at https://image-net.org, get the images of \
              https://github.com/renmengye/few-shot-ssl-public, and put them into tiered-imagenet/train/CLASS/, \
              tiered-imagenet/val/CLASS/ and tiered-imagenet/test/CLASS/ as PNG or JPEG files",
        expects: &["train", "val", "test"],
    },
};

/// The three parts from the data folder, in colour, `side` by `side` pixels (84 is usual). Decoded images are
/// cached in `cache`.
///
/// ```
/// assert!(bilevel_data::datasets::tiered_imagenet::load("no/such/folder", 84, "no/such/cache").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, side: usize, cache: impl AsRef<Path>) -> Result<FewShot> {
    let folder = root.as_ref().join(DATASET.folder);
    let settings = Settings { size: Some([side, side]), ..Settings::default() };
    let part = |name: &str| read_cached(folder.join(name), &settings, cache.as_ref())?.by_folder();
    Ok(FewShot { train: part("train")?, validation: part("val")?, test: part("test")? })
}
