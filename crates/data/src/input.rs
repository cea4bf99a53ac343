//! A file or bytes to read from, decompressed on the fly.

use crate::error::{Error, Result};
use crate::limits::{Allowance, Limited, Limits};
use bilevel::files::whole_file::open_regular;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest dictionary of an xz stream, in KiB; `xz -9` uses 64 MiB.
const XZ_MEMORY: u32 = (128 << 20) / 1024;
/// Bytes needed to recognise the compression.
const MAGIC: usize = 6;

/// The input of a reader: a path, or bytes with a name for errors. Gzip, bzip2 and xz are
/// recognised by their first bytes and decompressed.
///
/// Every reader takes anything that becomes an input, so a path will do:
///
/// ```
/// use bilevel_data::{Input, readers::libsvm};
/// let text = "+1 1:0.5 3:2\n-1 2:1\n";
/// let found = libsvm::read(Input::from_bytes("two rows", text), libsvm::FirstIndex::One)?;
/// assert_eq!((found.rows(), found.columns()), (2, 3));
/// assert!(libsvm::read("no/such/file", libsvm::FirstIndex::One).is_err());
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Input {
    name: String,
    source: Source,
    limits: Limits,
}

#[derive(Clone, Debug)]
enum Source {
    Path(PathBuf),
    Bytes(Arc<[u8]>),
}

/// The source of an archive.
pub(crate) trait Seekable: BufRead + Seek {}

impl<T: BufRead + Seek> Seekable for T {}

impl Input {
    /// A file or folder, opened when it is read.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let name = path.display().to_string();
        Input { name, source: Source::Path(path.into()), limits: Limits::default() }
    }

    /// Bytes, with a name for errors.
    pub fn from_bytes(name: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        Input { name: name.into(), source: Source::Bytes(bytes.as_ref().into()), limits: Limits::default() }
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Input { limits, ..self }
    }

    /// Its name in error messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limits it is read with.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Its path, if it is a folder.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.source {
            Source::Path(path) if path.is_dir() => Some(path),
            _ => None,
        }
    }

    /// The bytes as stored, and their number.
    pub(crate) fn packed(&self) -> Result<(Box<dyn Seekable + '_>, u64)> {
        match &self.source {
            Source::Bytes(bytes) => Ok((Box::new(Cursor::new(bytes)), bytes.len() as u64)),
            Source::Path(path) => {
                let file = open_regular(path).map_err(Error::io("read", path))?;
                let length = file.metadata().map_err(Error::io("read", path))?.len();
                Ok((Box::new(BufReader::with_capacity(1 << 16, file)), length))
            }
        }
    }

    /// Whether the bytes, as stored, begin like this.
    pub(crate) fn begins_with(&self, magic: &[u8]) -> Result<bool> {
        let (packed, _) = self.packed()?;
        let mut start = vec![];
        packed.take(magic.len() as u64).read_to_end(&mut start).map_err(|error| self.decoding(error))?;
        Ok(start == magic)
    }

    /// The decompressed bytes as a stream that fails once a limit is reached.
    pub(crate) fn stream(&self) -> Result<Box<dyn BufRead + '_>> {
        let (mut packed, length) = self.packed()?;
        let mut magic = [0; MAGIC];
        let read = read_up_to(&mut packed, &mut magic).map_err(|error| self.decoding(error))?;
        packed.rewind().map_err(|error| self.decoding(error))?;
        let unpacking = Allowance::unpacking(&self.limits, length);
        Ok(match &magic[..read] {
            [0x1f, 0x8b, ..] => buffered(flate2::bufread::MultiGzDecoder::new(packed), unpacking),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => buffered(bzip2::bufread::MultiBzDecoder::new(packed), unpacking),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                buffered(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY), unpacking)
            }
            _ => buffered(packed, Allowance::stored(&self.limits)),
        })
    }

    /// All decompressed bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        self.stream()?.read_to_end(&mut bytes).map_err(|error| self.decoding(error))?;
        Ok(bytes)
    }

    /// An error about this input.
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> Error {
        Error::damaged(&self.name, reason)
    }

    /// The error of a decoder for this input.
    pub(crate) fn decoding(&self, error: std::io::Error) -> Error {
        Error::decoding(&self.name, error)
    }
}

fn buffered<'a>(reader: impl Read + 'a, allowance: Allowance) -> Box<dyn BufRead + 'a> {
    Box::new(BufReader::with_capacity(1 << 16, Limited { inner: reader, allowance }))
}

/// Fills the buffer, or as much of it as there are bytes for.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match reader.read(&mut buffer[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

impl From<&Path> for Input {
    fn from(path: &Path) -> Self {
        Input::new(path)
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        Input::new(path)
    }
}

impl From<&PathBuf> for Input {
    fn from(path: &PathBuf) -> Self {
        Input::new(path)
    }
}

impl From<&str> for Input {
    fn from(path: &str) -> Self {
        Input::new(path)
    }
}

impl From<&Input> for Input {
    fn from(input: &Input) -> Self {
        input.clone()
    }
}
