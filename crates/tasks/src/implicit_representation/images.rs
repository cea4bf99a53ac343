//! A family of images: the embedded digits, or the pictures of a folder or an archive.

use crate::digits::Digits;
use bilevel::{Error, Key, Result};
use bilevel_data::prepare::shuffled;
use bilevel_data::readers::pictures::{self, Fit, Settings};
use std::path::{Path, PathBuf};

/// Pixels in a row of an embedded digit.
pub(super) const DIGIT: usize = 8;

/// Images of one size: `[count, pixels, channels]`, from 0 to 1.
pub(super) struct Images {
    pub count: usize,
    pub channels: usize,
    pub values: Vec<f32>,
}

/// The digits.
pub(super) fn digits() -> Images {
    let digits = Digits::all();
    in_random_order(digits.len(), 1, |row| digits.pixels[row * DIGIT * DIGIT..][..DIGIT * DIGIT].to_vec())
}

/// Pictures in `side`² pixels, cut to a square.
pub(super) fn read(folder: &Path, side: usize) -> Result<Images> {
    let settings = Settings { size: Some([side, side]), fit: Fit::Crop, ..Settings::default() };
    let images = pictures::read(archive_in(folder)?, &settings)?.images;
    let size = side * side;
    Ok(in_random_order(images.count(), 3, |row| {
        let image = images.image(row);
        (0..3 * size).map(|i| f32::from(image[i % 3 * size + i / 3]) / 255.0).collect()
    }))
}

/// The archive of a folder, if it has a single one and otherwise only plain files, or the folder itself.
fn archive_in(folder: &Path) -> Result<PathBuf> {
    if !folder.is_dir() {
        return Ok(folder.into());
    }
    let place = folder.display();
    let entries =
        std::fs::read_dir(folder).map_err(|error| Error::other(format!("cannot read the folder {place}: {error}")))?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    let is_archive = |path: &&PathBuf| {
        let name = path.to_string_lossy().to_lowercase();
        name.ends_with(".zip") || name.contains(".tar")
    };
    let mut archives = paths.iter().filter(is_archive);
    match (archives.next(), archives.next()) {
        (Some(archive), None) if !paths.iter().any(|path| path.is_dir()) => Ok(archive.clone()),
        _ => Ok(folder.into()),
    }
}

/// In an order that is always the same, so that neighbours are no more alike than any two.
fn in_random_order(count: usize, channels: usize, image: impl Fn(usize) -> Vec<f32>) -> Images {
    let values = shuffled(count, Key::from_seed(0)).into_iter().flat_map(image).collect();
    Images { count, channels, values }
}
