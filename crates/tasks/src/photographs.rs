//! Labelled pictures for tasks: the embedded digits, and photographs from the data folder, a few of each class.

use crate::digits::{CLASSES, Digits, share_right};
use bilevel::{Array, DType, Error, Key, Result, Scope, Tensor};
use bilevel_data::prepare::{Normalisation, shuffled};
use bilevel_data::readers::pictures::{Fit, Pictures, Settings, read};
use bilevel_data::{Images, LabelledImages};
use bilevel_run::Kept;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PictureSet {
    /// 1797 digits of 8 × 8 grey pixels, embedded.
    Digits,
    /// Oxford-IIIT Pet: 37 breeds.
    Pets,
    /// Describable Textures: 47 classes.
    Dtd,
    /// Ten classes of Describable Textures.
    Dtd10,
    /// 102 flowers.
    Flowers102,
}

/// The number of pictures of each class in each set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PerClass {
    pub train: usize,
    pub validation: usize,
    pub second: usize,
    /// At most; 0 is all there are.
    pub test: usize,
}

/// The parts of a set of pictures.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub train: LabelledImages,
    pub validation: LabelledImages,
    pub second: LabelledImages,
    pub test: LabelledImages,
}

/// Pictures to choose from, and those to test on if the set defines them.
#[derive(Debug)]
struct Pool {
    pool: LabelledImages,
    test: Option<LabelledImages>,
}

impl PictureSet {
    /// The parts of this seed, of photographs cut to `side` by `side` pixels.
    pub(crate) fn parts(self, data: Option<&Path>, side: usize, each: PerClass, seed: u64) -> Result<Parts> {
        let found = match (self, data) {
            (PictureSet::Digits, _) => Arc::new(Pool { pool: digits()?, test: None }),
            (_, Some(data)) => self.read(data, side)?,
            (_, None) => return Err(self.missing(None)),
        };
        found.parts(each, seed)
    }

    /// Channels, height and width of its pictures at this side.
    pub(crate) fn shape(self, side: usize) -> [usize; 3] {
        if self == PictureSet::Digits { [1, 8, 8] } else { [3, side, side] }
    }

    /// The folder within the data folder.
    fn folder(self) -> &'static str {
        match self {
            PictureSet::Digits => "digits",
            PictureSet::Pets => "oxford-pets",
            PictureSet::Dtd => "dtd",
            PictureSet::Dtd10 => "dtd10",
            PictureSet::Flowers102 => "flowers102",
        }
    }

    /// Its name, as in settings.
    pub fn name(self) -> &'static str {
        match self {
            PictureSet::Pets => "pets",
            other => other.folder(),
        }
    }

    /// Whether its pictures can be read.
    pub fn is_there(self, data: Option<&Path>) -> bool {
        self == PictureSet::Digits || data.is_some_and(|data| data.join(self.folder()).is_dir())
    }

    /// The error for missing pictures, which explains how to get them.
    pub fn missing(self, data: Option<&Path>) -> Error {
        let folder = self.folder();
        let place = match data {
            Some(data) => format!("there is no folder '{folder}' in {}", data.display()),
            None => format!("the pictures of {folder} are read from a data folder, which --data DIR names"),
        };
        let get = match self {
            PictureSet::Pets | PictureSet::Dtd => format!("'bilevel data fetch {folder}' downloads them"),
            _ => format!("put them there as {folder}/train/CLASS/NAME.jpg and {folder}/test/CLASS/NAME.jpg"),
        };
        Error::MissingData { reason: place, remedy: get }
    }

    /// The pictures, cached: many runs of a study use the same.
    fn read(self, data: &Path, side: usize) -> Result<Arc<Pool>> {
        static LAST: Kept<Pool> = Kept::new(1);
        LAST.get(format!("{self:?} {} {side}", data.display()), || self.read_anew(data, side))
    }

    fn read_anew(self, data: &Path, side: usize) -> Result<Pool> {
        let folder = data.join(self.folder());
        let settings = Settings { size: Some([side, side]), fit: Fit::Crop, ..Settings::default() };
        let published = ["unpacked-images", "unpacked/dtd/images"].map(|inside| folder.join(inside));
        if let Some(inside) = published.iter().find(|inside| inside.is_dir()) {
            let pictures = read(inside.clone(), &settings)?;
            return match self {
                PictureSet::Pets => Pool::of(official_split(pictures, &folder)?),
                _ => Pool::of(pictures),
            };
        }
        let place = zipped(&folder).or_else(|| folder.is_dir().then_some(folder));
        Pool::of(read(place.ok_or_else(|| self.missing(Some(data)))?, &settings)?)
    }
}

/// The only zip file of a folder.
fn zipped(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut zips = files.filter(|path| path.extension().is_some_and(|end| end == "zip"));
    zips.next().filter(|_| zips.next().is_none())
}

/// The published pictures of pets, `images/BREED_NUMBER.jpg`, in the folders of the published split.
fn official_split(pictures: Pictures, folder: &Path) -> Result<Pictures> {
    let mut paths = pictures.paths.clone();
    for part in ["trainval", "test"] {
        let file = folder.join(format!("unpacked-annotations/annotations/{part}.txt"));
        let listed = std::fs::read_to_string(&file)
            .map_err(|error| Error::other(format!("cannot read {}: {error}", file.display())))?;
        for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
            let (file, breed) = (format!("images/{name}.jpg"), name.rsplit_once('_').map_or(name, |(breed, _)| breed));
            if let Some(row) = pictures.paths.iter().position(|path| *path == file) {
                paths[row] = format!("{part}/{breed}/{name}.jpg");
            }
        }
    }
    Ok(Pictures { images: pictures.images, paths })
}

/// All digits as pictures.
pub(crate) fn digits() -> Result<LabelledImages> {
    let digits = Digits::all();
    let pixels = digits.pixels.iter().map(|pixel| (pixel * 255.0).round() as u8).collect();
    let images = Images::new([digits.len(), 1, 8, 8], pixels)?;
    Ok(LabelledImages::new(images, digits.labels, (0..CLASSES).map(|digit| digit.to_string()).collect())?)
}

impl Pool {
    /// `SPLIT/CLASS/NAME`, if there are folders for training and for testing, otherwise `CLASS/NAME`.
    fn of(pictures: Pictures) -> Result<Self> {
        let begins = |with: &str| pictures.paths.iter().any(|path| path.starts_with(with));
        if !(begins("train") && begins("test/")) {
            return Ok(Pool { pool: pictures.by_folder()?, test: None });
        }
        let test = pictures.under("test")?.by_folder()?;
        let is_pool = |path: &String| !path.starts_with("test/") && path.matches('/').count() >= 2;
        let rows: Vec<usize> = (0..pictures.paths.len()).filter(|row| is_pool(&pictures.paths[*row])).collect();
        let inside = |row: &usize| pictures.paths[*row].split_once('/').map_or("", |(_, inside)| inside).to_string();
        let paths = rows.iter().map(inside).collect();
        let pool = Pictures { images: pictures.images.take(&rows)?, paths }.by_folder()?;
        if pool.classes != test.classes {
            let odd = |a: &LabelledImages, b: &LabelledImages| {
                a.classes.iter().find(|class| !b.classes.contains(class)).cloned()
            };
            let class = odd(&pool, &test).or_else(|| odd(&test, &pool)).unwrap_or_default();
            let reason = format!(
                "the training pictures have {} classes and the test pictures {}; '{class}' is not in both",
                pool.classes.len(),
                test.classes.len()
            );
            return Err(Error::other(reason));
        }
        Ok(Pool { pool, test: Some(test) })
    }

    fn parts(&self, each: PerClass, seed: u64) -> Result<Parts> {
        let Pool { pool, test } = self;
        let order = shuffled(pool.count(), Key::from_seed(seed));
        let asked = each.train + each.validation + each.second;
        let mut rows: [Vec<usize>; 4] = Default::default();
        for (label, class) in pool.classes.iter().enumerate() {
            let of_class: Vec<usize> =
                order.iter().copied().filter(|row| pool.labels[*row] as usize == label).collect();
            let least = asked + usize::from(test.is_none());
            if of_class.len() < least {
                let reason = format!(
                    "the class '{class}' has {} pictures, which is too few for {} + {} + {} and {} for the test; \
                        reduce task.train, task.validation or task.second",
                    of_class.len(),
                    each.train,
                    each.validation,
                    each.second,
                    least - asked
                );
                return Err(Error::other(reason));
            }
            let (chosen, left) = of_class.split_at(asked);
            let (train, rest) = chosen.split_at(each.train);
            let (validation, second) = rest.split_at(each.validation);
            let left = &left[..at_most(each.test, left.len())];
            for (all, part) in rows.iter_mut().zip([train, validation, second, left]) {
                all.extend_from_slice(part);
            }
        }
        let [train, validation, second, left] = rows;
        let test = match test {
            Some(test) => test.take(&first_of_each(test, each.test))?,
            None => pool.take(&left)?,
        };
        Ok(Parts { train: pool.take(&train)?, validation: pool.take(&validation)?, second: pool.take(&second)?, test })
    }
}

/// The smaller number; 0 is no limit.
fn at_most(limit: usize, count: usize) -> usize {
    if limit == 0 { count } else { limit.min(count) }
}

/// The rows of the first pictures of each class, this many; 0 is all.
fn first_of_each(set: &LabelledImages, limit: usize) -> Vec<usize> {
    let mut seen = vec![0; set.classes.len()];
    let mut keep = |row: &usize| {
        let count = &mut seen[set.labels[*row] as usize];
        *count += 1;
        limit == 0 || *count <= limit
    };
    (0..set.count()).filter(|row| keep(row)).collect()
}

/// Pixels from 0 to 1, or normalised, as an array in the problem's type.
pub(crate) fn pixels(set: &LabelledImages, normalisation: Option<&Normalisation>, dtype: DType) -> Result<Array> {
    let array = set.images.to_array(dtype)?;
    Ok(match normalisation {
        Some(normalisation) => normalisation.apply(array)?,
        None => array,
    })
}

/// Two sets of the same classes, one after the other.
pub(crate) fn joined(first: &LabelledImages, second: &LabelledImages) -> Result<LabelledImages> {
    let [one, channels, height, width] = first.images.shape();
    let pixels = [first.images.pixels(), second.images.pixels()].concat();
    let images = Images::new([one + second.count(), channels, height, width], pixels)?;
    Ok(LabelledImages::new(images, [&first.labels[..], &second.labels].concat(), first.classes.clone())?)
}

/// A batch of a part, which comes in epochs.
pub(crate) fn batch_of(s: &Scope, part: &str, batch: usize) -> (Tensor, Tensor) {
    let (x, y) = (s.data(&format!("{part} x")), s.data(&format!("{part} y")));
    let rows = s.epochs(x.dim(0), batch.min(x.dim(0)));
    (x.take(rows), y.take(rows))
}

/// The share of a part that is classified wrongly, in percent.
pub(crate) fn error(s: &Scope, part: &str, logits: impl Fn(Tensor) -> Tensor) -> Tensor {
    let right = share_right(logits(s.data(&format!("{part} x"))), s.data(&format!("{part} y")));
    (1.0 - right) * 100.0
}
