//! miniImageNet: 100 classes of ImageNet with 600 images each, split into 64, 16 and 20 classes by Ravi and Larochelle.

use crate::error::{Error, Result};
use crate::images::LabelledImages;
use crate::input::Input;
use crate::readers::pictures::{Pictures, Settings, read_cached};
use crate::registry::{Access, Dataset};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "mini-imagenet",
    summary: "100 classes of ImageNet for few-shot learning, 600 colour images per class",
    licence: "ImageNet's terms: non-commercial research and education",
    home: "https://github.com/twitter-research/meta-learning-lstm",
    folder: "mini-imagenet",
    access: Access::ByHand {
        how: "accept ImageNet's terms at https://image-net.org, get the 60 000 images, put them into \
              mini-imagenet/images/, and put the split files train.csv, val.csv and test.csv of \
              https://github.com/twitter-research/meta-learning-lstm into mini-imagenet/",
        expects: &["images", "train.csv", "val.csv", "test.csv"],
    },
};

/// The parts of the split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FewShot {
    /// Classes to learn from.
    pub train: LabelledImages,
    /// Classes to choose settings by.
    pub validation: LabelledImages,
    /// Classes to test on.
    pub test: LabelledImages,
}

/// The three parts from the data folder, in colour, `side` by `side` pixels (84 is usual). Decoded images are
/// cached in `cache`.
///
/// ```
/// assert!(bilevel_data::datasets::mini_imagenet::load("no/such/folder", 84, "no/such/cache").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, side: usize, cache: impl AsRef<Path>) -> Result<FewShot> {
    let folder = root.as_ref().join(DATASET.folder);
    let settings = Settings { size: Some([side, side]), ..Settings::default() };
    let all = read_cached(folder.join("images"), &settings, cache)?;
    let rows: BTreeMap<&str, usize> = all.paths.iter().enumerate().map(|(row, path)| (path.as_str(), row)).collect();
    let part = |name: &str| {
        let input = Input::new(folder.join(name));
        let (mut chosen, mut paths) = (vec![], vec![]);
        for (file, class) in split(&input)? {
            let row = rows.get(file.as_str()).copied();
            chosen.push(row.ok_or_else(|| input.damaged(format!("names {file}, which is not in images/")))?);
            paths.push(format!("{class}/{file}"));
        }
        Pictures { images: all.images.take(&chosen)?, paths }.by_folder()
    };
    Ok(FewShot { train: part("train.csv")?, validation: part("val.csv")?, test: part("test.csv")? })
}

/// File and class of every line below the header `filename,label`.
fn split(input: &Input) -> Result<Vec<(String, String)>> {
    let mut text = String::new();
    input.stream()?.read_to_string(&mut text).map_err(|error| Error::decoding(input.name(), error))?;
    let pair = |line: &str| {
        let (file, class) = line.trim_end().split_once(',')?;
        Some((file.to_string(), class.to_string()))
    };
    let rows = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    rows.map(|line| pair(line).ok_or_else(|| input.damaged(format!("has a line without a class: {line}")))).collect()
}
