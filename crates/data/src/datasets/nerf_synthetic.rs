//! NeRF's synthetic scenes: eight rendered objects, each with 100 training, 100 validation and
//! 200 test views.

use crate::error::Result;
use crate::readers::views::{self, Views};
use crate::registry::{Access, Dataset};
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "nerf-synthetic",
    summary: "eight rendered scenes, 400 posed views of 800 x 800 each",
    licence: "Creative Commons, different for each scene and partly non-commercial; see its README",
    home: "https://www.matthewtancik.com/nerf",
    folder: "nerf-synthetic",
    access: Access::ByHand {
        how: "download nerf_synthetic.zip from the Google Drive folder linked at https://www.matthewtancik.com/nerf, \
              and unpack it so that nerf-synthetic/lego/transforms_train.json exists",
        expects: &["lego/transforms_train.json"],
    },
};

/// The views of a part (`train`, `val` or `test`) of a scene such as `lego`, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::nerf_synthetic::load("no/such/folder", "lego", "train").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, scene: &str, part: &str) -> Result<Views> {
    views::read(root.as_ref().join(DATASET.folder).join(scene), &format!("transforms_{part}.json"))
}
