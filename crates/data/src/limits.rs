//! Limits on a file's memory. Before allocating, every reader compares the sizes that a file declares with the actual
//! sizes and with these limits.

use crate::error::{Error, OverLimit, Result};
use std::io::{self, Read};

/// Any compressed file may expand to this size, however small it is.
const ALWAYS_ALLOWED: u64 = 64 << 20;

/// The most a reader accepts.
///
/// ```
/// use bilevel_data::{Error, Input, Limits, readers::csv};
/// let tight = Limits { bytes: 10, ..Limits::default() };
/// let input = Input::from_bytes("numbers.csv", "1,2\n3,4\n5,6\n").limited(tight);
/// assert!(matches!(csv::read(input, &csv::Format::default()), Err(Error::TooLarge { .. })));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a decompressed file, and bytes of the result; 8 GiB by default.
    pub bytes: u64,
    /// The factor by which a compressed file may expand beyond 64 MiB; 250 by default. Real data stay far below, and
    /// decompression bombs are far above.
    pub expansion: u64,
    /// Files in a folder or an archive, rows or columns of a table; 16 million by default.
    pub entries: usize,
    /// Pixels of a picture before it is resized; 64 million by default.
    pub pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 8 << 30, expansion: 250, entries: 16_000_000, pixels: 64_000_000 }
    }
}

impl Limits {
    /// The most that this many bytes may expand to.
    pub(crate) fn unpacked(&self, packed: u64) -> u64 {
        self.bytes.min(packed.saturating_mul(self.expansion).max(ALWAYS_ALLOWED))
    }

    /// The number of elements of a shape, if this many of this size are allowed. An axis of length 0 does not excuse
    /// the others, because strides are computed from them.
    pub(crate) fn elements(&self, place: &str, shape: &[usize], size: usize) -> Result<usize> {
        let count = shape.iter().try_fold(size as u64, |product, length| product.checked_mul((*length).max(1) as u64));
        if count.is_some_and(|bytes| bytes <= self.bytes) {
            return Ok(shape.iter().product());
        }
        let reason = format!("declares {shape:?} elements of {size} bytes, but only {} bytes are allowed", self.bytes);
        Err(Error::TooLarge { place: place.into(), reason, limit: "bytes" })
    }

    /// Refuses more files, rows or columns than allowed.
    pub(crate) fn count(&self, place: &str, what: &str, count: usize) -> Result<()> {
        if count <= self.entries {
            return Ok(());
        }
        let reason = format!("has more than {} {what}", self.entries);
        Err(Error::TooLarge { place: place.into(), reason, limit: "entries" })
    }
}

/// Bytes that may still be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: u64,
    whole: u64,
    limit: &'static str,
}

impl Allowance {
    /// The allowance for decompressing this many bytes.
    pub fn unpacking(limits: &Limits, packed: u64) -> Self {
        let whole = limits.unpacked(packed);
        Allowance { left: whole, whole, limit: if whole < limits.bytes { "expansion" } else { "bytes" } }
    }

    /// The allowance for uncompressed content.
    pub fn stored(limits: &Limits) -> Self {
        Allowance { left: limits.bytes, whole: limits.bytes, limit: "bytes" }
    }

    fn spend(&mut self, bytes: u64) -> std::result::Result<(), OverLimit> {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or_else(|| OverLimit {
            reason: format!("expands to more than the {} bytes allowed", self.whole),
            limit: self.limit,
        })
    }

    /// Everything a reader yields, if it is allowed.
    pub fn read_all(&mut self, place: &str, reader: impl Read) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        reader
            .take(self.left.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| Error::decoding(place, error))?;
        self.spend(bytes.len() as u64).map_err(|over| over.at(place))?;
        Ok(bytes)
    }
}

/// A reader that fails once the allowance is spent.
pub(crate) struct Limited<R> {
    pub inner: R,
    pub allowance: Allowance,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.allowance.spend(read as u64).map_err(io::Error::other)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_whose_size_overflows_are_refused() {
        let limits = Limits::default();
        assert_eq!(limits.elements("x", &[2, 3], 4).unwrap(), 6);
        for shape in [vec![usize::MAX, 2], vec![usize::MAX], vec![1 << 32, 1 << 31], vec![usize::MAX, 0, 2]] {
            let found = limits.elements("x", &shape, 8);
            assert!(found.is_err(), "{shape:?} {found:?}");
        }
    }

    #[test]
    fn a_small_file_may_grow_by_a_constant_and_a_large_one_by_a_factor() {
        let limits = Limits::default();
        assert_eq!(limits.unpacked(10), 64 << 20);
        assert_eq!(limits.unpacked(1 << 20), 250 << 20);
        assert_eq!(limits.unpacked(u64::MAX), limits.bytes);
    }
}
