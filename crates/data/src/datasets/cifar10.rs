//! CIFAR-10: 50 000 + 10 000 small colour photographs of 10 classes, 32 × 32.

use crate::error::{Error, Result};
use crate::images::LabelledImages;
use crate::input::Input;
use crate::readers::cifar::{Kind, Part, read, read_archive};
use crate::readers::pictures::{Settings, read_cached};
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Its name, licence, source and files.
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

/// The training and test images, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::cifar10::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let archive = root.as_ref().join(DATASET.folder).join("cifar-10-binary.tar.gz");
    let part = |part| read_archive(&archive, Kind::Ten, part);
    Ok((part(Part::Train)?, part(Part::Test)?))
}

/// The first training images in the published order, exactly: from the published archive, or from `exact_train_0000-3999.bin.gz`, the first
/// 4000 of its records.
///
/// ```
/// assert!(bilevel_data::datasets::cifar10::load_first("no/such/folder").is_err());
/// ```
pub fn load_first(root: impl AsRef<Path>) -> Result<LabelledImages> {
    let folder = root.as_ref().join(DATASET.folder);
    let first = folder.join("exact_train_0000-3999.bin.gz");
    match first.exists() {
        true => read(first, Kind::Ten),
        false => read_archive(folder.join("cifar-10-binary.tar.gz"), Kind::Ten, Part::Train),
    }
}

/// All 60 000 images from JPEG files instead of the published archive. `cifar10_jpeg60k.tar.xz` has paths
/// `train/CLASS/NUMBER.jpg`, in which the n-th file of a class is the n-th image of that class.
/// `labels_train50000_test1000.u8.gz` puts the training images into the published order. Test images come class by
/// class. Decoded images are cached in `cache`.
///
/// ```
/// assert!(bilevel_data::datasets::cifar10::load_jpeg("no/such/folder", "no/such/cache").is_err());
/// ```
pub fn load_jpeg(root: impl AsRef<Path>, cache: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let folder = root.as_ref().join(DATASET.folder);
    let labels = Input::new(folder.join("labels_train50000_test1000.u8.gz"));
    let all = read_cached(folder.join("cifar10_jpeg60k.tar.xz"), &Settings::default(), cache)?;
    let part = |name: &str| all.under(name)?.by_folder();
    let train = part("train")?;
    let classes = train.to_classes()?;
    let mut next = vec![0; train.classes.len()];
    let order = labels.bytes()?.into_iter().take(train.count()).map(|label| {
        let place = next.get_mut(usize::from(label))?;
        *place += 1;
        classes.rows(usize::from(label)).get(*place - 1).map(|row| *row as usize)
    });
    let order: Option<Vec<usize>> = order.collect();
    let order = order.filter(|order| order.len() == train.count());
    let order = order.ok_or_else(|| labels.damaged("does not list the images of the archive"))?;
    Ok((train.take(&order)?, part("test")?))
}

/// The labels of CIFAR-10N (Wei et al. 2022): the answers of people to the training images, in the published order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HumanLabels {
    /// The true labels.
    pub clean: Vec<i32>,
    /// The majority vote of three people; 9 % are wrong.
    pub aggregate: Vec<i32>,
    /// The answer of each of the three; 17 to 18 % are wrong.
    pub random: [Vec<i32>; 3],
    /// A wrong answer if any of the three gave one; 40 % are wrong.
    pub worst: Vec<i32>,
}

/// The labels of CIFAR-10N from `cifar10n_labels_6x50000.u8.gz`: six rows of bytes.
///
/// ```
/// assert!(bilevel_data::datasets::cifar10::human_labels("no/such/folder").is_err());
/// ```
pub fn human_labels(root: impl AsRef<Path>) -> Result<HumanLabels> {
    let input = Input::new(root.as_ref().join(DATASET.folder).join("cifar10n_labels_6x50000.u8.gz"));
    let bytes = input.bytes()?;
    if bytes.len() != 6 * 50_000 || bytes.iter().any(|label| *label > 9) {
        return Err(Error::damaged(input.name(), "does not hold six rows of 50 000 labels in 0 … 9"));
    }
    let row = |row: usize| bytes[row * 50_000..(row + 1) * 50_000].iter().map(|label| i32::from(*label)).collect();
    Ok(HumanLabels { clean: row(0), aggregate: row(1), random: [row(2), row(3), row(4)], worst: row(5) })
}
