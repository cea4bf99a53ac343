//! The images of few-shot tasks: classes to learn from, and others to test on.

use super::{FewShot, ImageSet, Split};
use bilevel::{Array, DType, Error, Key, Result};
use bilevel_data::datasets::{mini_imagenet, omniglot, tiered_imagenet, tiny_imagenet};
use bilevel_data::readers::pictures::{Settings, read_cached};
use bilevel_data::{LabelledImages, prepare, registry};
use bilevel_run::Context;
use std::path::Path;

/// Omniglot's characters to learn from, as Vinyals et al. have it; the other 423 are to test on.
const CHARACTERS: usize = 1200;
/// The share of tiny ImageNet's classes to learn from, as miniImageNet has it; the last fifth is to test on.
const LEARNED: f64 = 0.64;
const TESTED: f64 = 0.2;
/// Which classes are which does not depend on the seed of a run, so that runs can be compared.
const SPLIT: u64 = 1;

/// Images of classes to learn from and of others to test on.
pub(crate) struct Parts {
    pub learn: LabelledImages,
    pub test: LabelledImages,
}

impl Parts {
    /// As the settings say.
    pub fn of(task: &FewShot, context: &Context) -> Result<Self> {
        let Parts { learn, test } = match task.dataset {
            ImageSet::Omniglot => omniglot(task.split)?,
            ImageSet::TinyImagenet => tiny(context)?,
            ImageSet::MiniImagenet => few(mini_imagenet::load(folder(context, "mini-imagenet")?, task.side, cache())?),
            ImageSet::TieredImagenet => {
                few(tiered_imagenet::load(folder(context, "tiered-imagenet")?, task.side, cache())?)
            }
        };
        let first = |part: LabelledImages| match task.classes {
            0 => Ok(part),
            most if most >= part.classes.len() => Ok(part),
            most => part.of_classes(&(0..most).collect::<Vec<_>>()),
        };
        let (learn, test) = (first(learn)?, first(test)?);
        Ok(Parts { learn: if task.rotations { learn.with_quarter_turns()? } else { learn }, test })
    }
}

fn few(parts: mini_imagenet::FewShot) -> Parts {
    Parts { learn: parts.train, test: parts.test }
}

/// The embedded characters.
fn omniglot(split: Split) -> Result<Parts> {
    let (background, evaluation) = omniglot::embedded()?;
    if split == Split::Alphabets {
        return Ok(Parts { learn: background, test: evaluation });
    }
    let all = background.classes.len() + evaluation.classes.len();
    let order = prepare::shuffled(all, Key::from_seed(SPLIT));
    let part = |wanted: &[usize]| -> Result<LabelledImages> {
        let known = background.classes.len();
        let (first, second): (Vec<usize>, Vec<usize>) = wanted.iter().partition(|class| **class < known);
        let second: Vec<usize> = second.iter().map(|class| class - known).collect();
        Ok(background.of_classes(&first)?.and(evaluation.of_classes(&second)?)?)
    };
    Ok(Parts { learn: part(&order[..CHARACTERS])?, test: part(&order[CHARACTERS..])? })
}

/// All of tiny ImageNet's training images, or any archive or folder of pictures with one folder for each class in its place.
fn tiny(context: &Context) -> Result<Parts> {
    let root = folder(context, "tiny-imagenet")?;
    let own = root.join("tiny-imagenet");
    let all = if own.join("tiny-imagenet-200.zip").exists() {
        tiny_imagenet::load(root, cache())?.0
    } else {
        let found = std::fs::read_dir(&own).map_err(|error| unread(&own, error))?;
        let mut archives: Vec<_> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
        archives.retain(|path| path.extension().is_some_and(|end| end == "zip"));
        archives.sort();
        let settings = Settings { size: Some([64, 64]), ..Settings::default() };
        read_cached(archives.first().unwrap_or(&own), &settings, cache())?.by_folder()?
    };
    let parts = prepare::split(all.classes.len(), &[LEARNED, 1.0 - LEARNED - TESTED, TESTED], Key::from_seed(SPLIT))?;
    Ok(Parts { learn: all.of_classes(&parts[0])?, test: all.of_classes(&parts[2])? })
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::other(format!("{} cannot be read: {error}", path.display()))
}

/// The data folder, if it contains the dataset; otherwise an error that explains how to get it.
fn folder<'a>(context: &'a Context, name: &str) -> Result<&'a Path> {
    let root = context.data_dir(&format!("few-shot with {name}"))?;
    if root.join(registry::find(name)?.folder).exists() {
        return Ok(root);
    }
    Err(Error::MissingData {
        reason: format!("there is no {name} in {}", root.display()),
        remedy: format!("'bilevel data fetch {name}' downloads it, or explains how"),
    })
}

/// The folder that caches decoded pictures between runs.
fn cache() -> std::path::PathBuf {
    std::env::temp_dir().join("bilevel-pictures")
}

/// Images as a problem has them, `[n, c, h, w]`: characters as 1 on 0, colours centred and of the size of 1.
pub(crate) fn pixels(part: &LabelledImages, dtype: DType) -> Result<Array> {
    let images = &part.images;
    let value: fn(u8) -> f32 = match images.shape()[1] {
        1 => |pixel| 1.0 - f32::from(pixel) / 255.0,
        _ => |pixel| (f32::from(pixel) / 255.0 - 0.45) / 0.27,
    };
    let numbers = images.pixels().iter().map(|pixel| value(*pixel));
    Ok(match dtype {
        DType::F64 => Array::from_f64(images.shape(), numbers.map(f64::from).collect())?,
        _ => Array::from_f32(images.shape(), numbers.collect())?,
    })
}
