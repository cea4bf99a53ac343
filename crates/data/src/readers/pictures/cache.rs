//! Decoded pictures in one file:
//!
//!   magic | length of the header (8 bytes) | header (JSON) | pixels | SHA-256 of all before
//!
//! A file that is anything else, or belongs to another input or other settings, is ignored.

use super::{Pictures, Settings};
use crate::digest::{Digest, of_file};
use crate::error::{Error, Result};
use crate::images::Images;
use crate::input::Input;
use crate::limits::Limits;
use crate::readers::archive::files_in;
use bilevel::files::whole_file::{open_regular, remove_unfinished_of, write_whole_by};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Must change whenever decoding does, so that files of older versions are not used.
const MAGIC: &[u8; 16] = b"bilevel images 1";
/// Bytes of a digest.
const DIGEST: usize = 32;

/// The file that caches the pictures of an input.
pub(super) struct Cache {
    path: PathBuf,
    key: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    key: String,
    shape: [usize; 4],
    paths: Vec<String>,
}

impl Cache {
    /// The cache of an input with settings, in a folder.
    pub fn of(input: &Input, settings: &Settings, folder: &Path) -> Result<Self> {
        let mut digest = Digest::new();
        digest.add(MAGIC);
        let settings = serde_json::to_vec(settings).map_err(|error| Error::request(error.to_string()))?;
        digest.add(&settings);
        match input.folder() {
            Some(pictures) => add_listing(&mut digest, pictures, &input.limits())?,
            None => {
                let (packed, _) = input.packed()?;
                digest.add(of_file(packed).map_err(|error| input.decoding(error))?.as_bytes());
            }
        }
        let key = digest.finish();
        let name = Path::new(input.name()).file_name().map_or("pictures".into(), |name| name.to_string_lossy());
        Ok(Cache { path: folder.join(format!("{name}-{}.images", &key[..16])), key })
    }

    /// The stored pictures, if the file is intact and belongs to this input.
    pub fn load(&self, limits: &Limits) -> Option<Pictures> {
        let mut file = open_regular(&self.path).ok()?;
        let length = file.metadata().ok()?.len();
        let start = MAGIC.len() as u64 + 8;
        if length < start + DIGEST as u64 || length > limits.bytes {
            return None;
        }
        let mut digest = Digest::new();
        let mut next = |count: u64| -> Option<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(count).ok()?];
            file.read_exact(&mut bytes).ok()?;
            digest.add(&bytes);
            Some(bytes)
        };
        let first = next(start)?;
        let header = u64::from_le_bytes(first.strip_prefix(MAGIC)?.try_into().ok()?);
        let pixels = length.checked_sub(start + DIGEST as u64)?.checked_sub(header)?;
        let header: Header = serde_json::from_slice(&next(header)?).ok()?;
        let pixels = next(pixels)?;
        let found = digest.finish();
        let mut written = [0; DIGEST];
        file.read_exact(&mut written).ok()?;
        let whole = crate::digest::hexadecimal(&written) == found && header.key == self.key;
        let images = Images::new(header.shape, pixels).ok()?;
        (whole && header.paths.len() == images.count()).then_some(Pictures { images, paths: header.paths })
    }

    /// Stores the decoded pictures.
    pub fn keep(&self, pictures: &Pictures) -> Result<()> {
        let failed = Error::io("write", &self.path);
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(&failed)?;
        }
        remove_unfinished_of(&self.path).map_err(&failed)?;
        let header = Header { key: self.key.clone(), shape: pictures.images.shape(), paths: pictures.paths.clone() };
        let header = serde_json::to_vec(&header).map_err(|error| Error::request(error.to_string()))?;
        write_whole_by(&self.path, |file| {
            let mut digest = Digest::new();
            for part in [MAGIC, &(header.len() as u64).to_le_bytes()[..], &header, pictures.images.pixels()] {
                digest.add(part);
                file.write_all(part)?;
            }
            file.write_all(&digest.finish_bytes())
        })
        .map_err(failed)
    }
}

/// Paths, sizes and dates of the pictures in a folder.
fn add_listing(digest: &mut Digest, folder: &Path, limits: &Limits) -> Result<()> {
    for path in files_in(folder, limits)?.into_iter().filter(|path| super::is_picture(path)) {
        let place = folder.join(&path);
        let there = std::fs::metadata(&place).map_err(Error::io("read", &place))?;
        let date = there.modified().ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        digest.add(format!("{path}\0{}\0{}\n", there.len(), date.map_or(0, |date| date.as_nanos())).as_bytes());
    }
    Ok(())
}
