//! NeRF's synthetic scenes: eight rendered objects, each seen from 100 places to train on, 100 to validate on and 200 to test on.

use crate::error::Result;
use crate::readers::views::{self, Views};
use crate::registry::{Access, Dataset};
use std::path::Path;

/// Where it comes from.
pub const DATASET: Dataset = Dataset {
    name: "nerf-synthetic",
    summary: "eight rendered scenes, 400 posed views of 800 x 800 each",
    licence: "CC BY 3.0, per scene; see its README",
    home: "https://www.matthewtancik.com/nerf",
    folder: "nerf-synthetic",
    access: Access::ByHand {
        how: "download nerf_synthetic.zip from the Google Drive folder that https://www.matthewtancik.com/nerf links to, and \
              unpack it so that nerf-synthetic/lego/transforms_train.json is there",
        expects: &["lego/transforms_train.json"],
    },
};

/// The views of a part (`train`, `val` or `test`) of a scene such as `lego`, from the folder of all data.
///
/// ```
/// assert!(bilevel_data::datasets::nerf_synthetic::load("no/such/folder", "lego", "train").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, scene: &str, part: &str) -> Result<Views> {
    views::read(root.as_ref().join(DATASET.folder).join(scene), &format!("transforms_{part}.json"))
}
