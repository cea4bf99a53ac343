//! Omniglot: 1 623 handwritten characters of 50 alphabets, each drawn by 20 people, black on white, 105 × 105.

use crate::error::{Error, Result};
use crate::images::{Images, LabelledImages};
use crate::input::Input;
use crate::readers::pictures::{Channels, Settings, read_cached};
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "omniglot",
    summary: "handwritten characters of 50 alphabets, 964 + 659 classes of 20 images of 105 x 105",
    licence: "MIT",
    home: "https://github.com/brendenlake/omniglot",
    folder: "omniglot",
    access: Access::Files(&[
        Remote {
            name: "images_background.zip",
            url: "https://github.com/brendenlake/omniglot/raw/master/python/images_background.zip",
            bytes: 9_464_212,
            sha256: "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            unpack: None,
        },
        Remote {
            name: "images_evaluation.zip",
            url: "https://github.com/brendenlake/omniglot/raw/master/python/images_evaluation.zip",
            bytes: 6_462_886,
            sha256: "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            unpack: None,
        },
    ]),
};

/// Height and width of the embedded images.
pub const SIDE: usize = 28;
/// Drawings of each character.
pub const DRAWINGS: usize = 20;
/// Bytes of an embedded image.
const PACKED: usize = SIDE * SIDE / 8;
/// Below this grey, two fifths of the way from paper (255) to ink (0), a pixel is ink.
const INK: u8 = 153;

/// The 30 alphabets of the background set and the 20 of the evaluation set, from the data folder: grey images of `side`
/// by `side` pixels, ink 0 and paper 255. A class is a character, `ALPHABET/CHARACTER`. Decoded images are cached in
/// `cache`.
///
/// ```
/// assert!(bilevel_data::datasets::omniglot::load("no/such/folder", 28, "no/such/cache").is_err());
/// ```
pub fn load(root: impl AsRef<Path>, side: usize, cache: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let folder = root.as_ref().join(DATASET.folder);
    let settings = Settings { size: Some([side, side]), channels: Channels::Grey, ..Settings::default() };
    let part = |name: &str| {
        let pictures = read_cached(folder.join(format!("{name}.zip")), &settings, cache.as_ref())?;
        pictures.under(name)?.by_folder()
    };
    Ok((part("images_background")?, part("images_evaluation")?))
}

/// The same two parts without any file: all characters at 28 by 28 pixels, which are either ink (0) or paper (255).
/// `data/README.md` has their origin and licence.
///
/// ```
/// use bilevel_data::datasets::omniglot;
/// let (background, evaluation) = omniglot::embedded()?;
/// assert_eq!((background.classes.len(), evaluation.classes.len()), (964, 659));
/// assert_eq!(background.images.shape(), [964 * 20, 1, 28, 28]);
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn embedded() -> Result<(LabelledImages, LabelledImages)> {
    unpack(&Input::from_bytes("the embedded Omniglot", include_bytes!("../../data/omniglot.xz")).bytes()?)
}

/// The contents of the embedded file before they are compressed, from the parts as [`load`] gives them at [`SIDE`] pixels.
pub fn pack(background: &LabelledImages, evaluation: &LabelledImages) -> Result<Vec<u8>> {
    let (mut names, mut bits) = (String::new(), vec![]);
    for (part, set) in [("background", background), ("evaluation", evaluation)] {
        if set.images.shape() != [DRAWINGS * set.classes.len(), 1, SIDE, SIDE] {
            let reason = format!("each character must have {DRAWINGS} grey images of {SIDE} by {SIDE} pixels");
            return Err(Error::request(reason));
        }
        for (alphabet, characters) in alphabets(&set.classes) {
            names += &format!("{part} {alphabet} {characters}\n");
        }
        let rows = set.to_classes()?;
        for row in (0..set.classes.len()).flat_map(|class| rows.rows(class).to_vec()) {
            let eight = |pixels: &[u8]| pixels.iter().fold(0, |byte, pixel| byte << 1 | u8::from(*pixel < INK));
            bits.extend(set.images.image(row as usize).chunks(8).map(eight));
        }
    }
    Ok([names.as_bytes(), b"\n", &bits].concat())
}

/// The alphabets of characters in their order, each with how many it has.
fn alphabets(classes: &[String]) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = vec![];
    for class in classes {
        let alphabet = class.split('/').next().unwrap_or_default();
        match found.last_mut() {
            Some((last, characters)) if *last == alphabet => *characters += 1,
            _ => found.push((alphabet, 1)),
        }
    }
    found
}

/// The reverse of [`pack`].
fn unpack(packed: &[u8]) -> Result<(LabelledImages, LabelledImages)> {
    let damaged = || Error::damaged("the embedded Omniglot", "differs from the embedded one");
    let end = packed.windows(2).position(|two| two == b"\n\n").ok_or_else(damaged)?;
    let names = std::str::from_utf8(&packed[..end]).map_err(|_| damaged())?;
    let mut parts: [Vec<String>; 2] = [vec![], vec![]];
    for line in names.lines() {
        let [part, alphabet, characters] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(damaged()) };
        let characters: usize = characters.parse().map_err(|_| damaged())?;
        let classes = &mut parts[usize::from(part == "evaluation")];
        classes.extend((1..=characters).map(|number| format!("{alphabet}/character{number:02}")));
    }
    let mut bits = &packed[end + 2..];
    let mut part = |classes: Vec<String>| {
        let images = classes.len() * DRAWINGS;
        let (own, rest) = bits.split_at_checked(images * PACKED).ok_or_else(damaged)?;
        bits = rest;
        let pixel = |byte: &u8, place: u32| if byte >> (7 - place) & 1 == 1 { 0 } else { 255 };
        let pixels = own.iter().flat_map(|byte| (0..8).map(move |place| pixel(byte, place))).collect();
        let labels = (0..images).map(|row| (row / DRAWINGS) as i32).collect();
        LabelledImages::new(Images::new([images, 1, SIDE, SIDE], pixels)?, labels, classes)
    };
    let [background, evaluation] = parts;
    Ok((part(background)?, part(evaluation)?))
}
