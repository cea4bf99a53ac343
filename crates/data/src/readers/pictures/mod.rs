//! Pictures in folders, zip files and tar files: PNG and JPEG, decoded on all cores, resized, and cached in one file.

mod cache;
#[cfg(feature = "images")]
mod decode;
#[cfg(not(feature = "images"))]
#[path = "absent.rs"]
mod decode;

use crate::error::{Error, Result};
use crate::images::{Images, LabelledImages};
use crate::input::Input;
use crate::readers::archive;
pub(crate) use decode::decode_all;
use serde::Serialize;
use std::path::Path;

/// Files are decoded together once this many bytes of them have been read,
const CHUNK: usize = 32 << 20;
/// or this many files.
const CHUNK_FILES: usize = 1024;

/// The channels of the images, for any files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Channels {
    /// One: the brightness.
    Grey,
    /// Three: red, green and blue.
    Rgb,
    /// Four: red, green, blue and opacity.
    Rgba,
}

impl Channels {
    /// Their number.
    pub fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::Rgb => 3,
            Channels::Rgba => 4,
        }
    }
}

/// How a picture is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Fit {
    /// Height and width independently.
    Stretch,
    /// Both by the same factor until the size is filled; the excess is cut off evenly on two sides.
    Crop,
}

/// The size and colours of the images.
///
/// ```
/// use bilevel_data::readers::pictures::{Channels, Settings};
/// let small = Settings { size: Some([28, 28]), channels: Channels::Grey, ..Settings::default() };
/// assert_eq!(small.channels.count(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Height and width. By default those of the first picture, which all others must share.
    pub size: Option<[usize; 2]>,
    /// Channels: red, green and blue by default.
    pub channels: Channels,
    /// How a picture is resized: stretched by default.
    pub fit: Fit,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { size: None, channels: Channels::Rgb, fit: Fit::Stretch }
    }
}

/// Images with the paths of their files, in the order of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pictures {
    /// The images.
    pub images: Images,
    /// The path of each within the folder or archive, with `/` between folders.
    pub paths: Vec<String>,
}

impl Pictures {
    /// The pictures under a folder, with paths relative to it.
    ///
    /// ```
    /// use bilevel_data::{Images, readers::pictures::Pictures};
    /// let images = Images::new([3, 1, 1, 1], vec![1, 2, 3])?;
    /// let paths = ["test/cat/a.png", "train/cat/b.png", "train/dog/c.png"].map(String::from).to_vec();
    /// let train = Pictures { images, paths }.under("train")?.by_folder()?;
    /// assert_eq!((train.labels, train.classes), (vec![0, 1], vec!["cat".to_string(), "dog".into()]));
    /// # Ok::<(), bilevel_data::Error>(())
    /// ```
    pub fn under(&self, folder: &str) -> Result<Self> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let (mut rows, mut paths) = (vec![], vec![]);
        for (row, path) in self.paths.iter().enumerate() {
            if let Some(rest) = path.strip_prefix(&folder) {
                rows.push(row);
                paths.push(rest.to_string());
            }
        }
        if rows.is_empty() {
            return Err(Error::request(format!("there are no pictures under '{folder}'")));
        }
        Ok(Pictures { images: self.images.take(&rows)?, paths })
    }

    /// Makes the folder of each picture its class; classes are sorted by name.
    pub fn by_folder(self) -> Result<LabelledImages> {
        let folder = |path: &String| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_string();
        let folders: Vec<String> = self.paths.iter().map(folder).collect();
        let mut classes = folders.clone();
        classes.sort();
        classes.dedup();
        let label = |folder: &String| classes.binary_search(folder).unwrap_or_default() as i32;
        let labels = folders.iter().map(label).collect();
        LabelledImages::new(self.images, labels, classes)
    }
}

/// Reads all PNG and JPEG files of a folder, a zip file or a tar file of any compression.
///
/// ```
/// use bilevel_data::readers::pictures::{self, Settings};
/// let folder = tempfile::tempdir().unwrap();
/// image::GrayImage::from_pixel(4, 2, image::Luma([9])).save(folder.path().join("nine.png")).unwrap();
/// let found = pictures::read(folder.path(), &Settings::default())?;
/// assert_eq!((found.images.shape(), found.images.pixels()[0], &*found.paths[0]), ([1, 3, 2, 4], 9, "nine.png"));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read(input: impl Into<Input>, settings: &Settings) -> Result<Pictures> {
    let input = input.into();
    let (mut paths, mut pixels, mut size) = (vec![], vec![], settings.size);
    let mut finish = |waiting: &mut Vec<(String, Vec<u8>)>| -> Result<()> {
        let files: Vec<(&str, &[u8])> = waiting.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        decode_all(&input, &files, settings, &mut size, &mut pixels)?;
        paths.extend(waiting.drain(..).map(|(path, _)| path));
        Ok(())
    };
    let (mut waiting, mut waiting_bytes) = (vec![], 0);
    archive::visit(&input, &is_picture, &mut |path, bytes| {
        waiting_bytes += bytes.len();
        waiting.push((path, bytes));
        if waiting_bytes > CHUNK || waiting.len() >= CHUNK_FILES {
            waiting_bytes = 0;
            finish(&mut waiting)?;
        }
        Ok(())
    })?;
    finish(&mut waiting)?;
    let Some([height, width]) = size.filter(|_| !paths.is_empty()) else {
        return Err(input.damaged("has no PNG or JPEG files in it"));
    };
    let images = Images::new([paths.len(), settings.channels.count(), height, width], pixels)?;
    in_order(&input, Pictures { images, paths })
}

/// As [`read`], but stores the decoded images in a file in the folder `cache`, which is created if missing.
///
/// The file is named after the input and a hash of its content and of the settings, so another input or other settings
/// get a separate file. It is written atomically, and rebuilt if it is damaged. For an archive, the content is its
/// bytes; for a folder, the paths, sizes and modification times of its pictures.
///
/// ```
/// use bilevel_data::readers::pictures::{self, Settings};
/// let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
/// image::GrayImage::new(2, 2).save(folder.path().join("black.png")).unwrap();
/// let decoded = pictures::read_cached(folder.path(), &Settings::default(), cache.path())?;
/// let kept = pictures::read_cached(folder.path(), &Settings::default(), cache.path())?;
/// assert_eq!(decoded, kept);
/// assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read_cached(input: impl Into<Input>, settings: &Settings, cache: impl AsRef<Path>) -> Result<Pictures> {
    let input = input.into();
    let cache = cache::Cache::of(&input, settings, cache.as_ref())?;
    if let Some(kept) = cache.load(&input.limits()) {
        return Ok(kept);
    }
    let pictures = read(&input, settings)?;
    cache.keep(&pictures)?;
    Ok(pictures)
}

/// Returns true for names with the ending of a picture, except for the hidden files that macOS adds.
fn is_picture(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = name.rsplit_once('.').map_or(String::new(), |(_, end)| end.to_ascii_lowercase());
    matches!(end.as_str(), "png" | "jpg" | "jpeg") && !name.starts_with('.')
}

/// Sorted by path, each path once.
fn in_order(input: &Input, found: Pictures) -> Result<Pictures> {
    let mut order: Vec<usize> = (0..found.paths.len()).collect();
    order.sort_by(|a, b| found.paths[*a].cmp(&found.paths[*b]));
    if let Some(pair) = order.windows(2).find(|pair| found.paths[pair[0]] == found.paths[pair[1]]) {
        return Err(input.damaged(format!("has '{}' twice", found.paths[pair[0]])));
    }
    if order.is_sorted() {
        return Ok(found);
    }
    let paths = order.iter().map(|row| found.paths[*row].clone()).collect();
    Ok(Pictures { images: found.images.take(&order)?, paths })
}
