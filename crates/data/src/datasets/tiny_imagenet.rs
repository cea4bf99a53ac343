//! Tiny ImageNet: 200 classes of ImageNet in colour, 64 × 64, with 500 training and 50 validation images each.

use crate::error::{Error, Result};
use crate::images::LabelledImages;
use crate::input::Input;
use crate::readers::archive;
use crate::readers::pictures::{Pictures, Settings, read_cached};
use crate::registry::{Access, Dataset, Remote};
use std::collections::BTreeMap;
use std::path::Path;

const ARCHIVE: &str = "tiny-imagenet-200.zip";

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "tiny-imagenet",
    summary: "200 classes of ImageNet, 500 + 50 colour images of 64 x 64 per class",
    licence: "ImageNet's terms: non-commercial research and education",
    home: "http://cs231n.stanford.edu",
    folder: "tiny-imagenet",
    access: Access::Files(&[Remote {
        name: ARCHIVE,
        url: "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        bytes: 248_100_043,
        sha256: "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
        unpack: None,
    }]),
};

/// The training and validation images, from the data folder. Decoded images are cached in `cache`. A
/// class has its WordNet number as its name.
///
/// ```
/// assert!(bilevel_data::datasets::tiny_imagenet::load("no/such/folder", "no/such/cache").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, cache: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let input = Input::new(root.as_ref().join(DATASET.folder).join(ARCHIVE));
    let all = read_cached(&input, &Settings { size: Some([64, 64]), ..Settings::default() }, cache)?;
    let train = all.under("tiny-imagenet-200/train")?;
    let class = |path: &String| path.split('/').next().unwrap_or_default().to_string();
    let train = Pictures { paths: train.paths.iter().map(|path| format!("{}/", class(path))).collect(), ..train };
    let validation = all.under("tiny-imagenet-200/val/images")?;
    let labels = annotations(&input)?;
    let named = |path: &String| {
        let found = labels.get(path).map(|class| format!("{class}/"));
        found.ok_or_else(|| input.damaged(format!("does not give the class of {path}")))
    };
    let paths = validation.paths.iter().map(named).collect::<Result<_>>()?;
    let (train, validation) = (train.by_folder()?, Pictures { paths, ..validation }.by_folder()?);
    if train.classes != validation.classes {
        return Err(Error::damaged(input.name(), "has different classes for training and validation"));
    }
    Ok((train, validation))
}

/// The class of every image to validate on, by its name: the first two columns of `val_annotations.txt`.
fn annotations(input: &Input) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    archive::visit(input, &|path| path.ends_with("val/val_annotations.txt"), &mut |_, bytes| {
        for line in String::from_utf8_lossy(&bytes).lines() {
            if let [image, class, ..] = line.split('\t').collect::<Vec<_>>()[..] {
                found.insert(image.to_string(), class.to_string());
            }
        }
        Ok(())
    })?;
    Ok(found)
}
