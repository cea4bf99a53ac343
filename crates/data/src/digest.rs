//! SHA-256, as hexadecimal text.

use sha2::{Digest as _, Sha256};
use std::io::Read;

/// A digest of bytes that come in pieces.
pub(crate) struct Digest(Sha256);

impl Digest {
    pub fn new() -> Self {
        Digest(Sha256::new())
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish_bytes(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    pub fn finish(self) -> String {
        hexadecimal(&self.finish_bytes())
    }
}

/// The digest of everything a reader yields.
pub(crate) fn of_file(mut reader: impl Read) -> std::io::Result<String> {
    let (mut digest, mut buffer) = (Digest::new(), vec![0; 1 << 16]);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(digest.finish()),
            read => digest.add(&buffer[..read]),
        }
    }
}

/// Bytes as hexadecimal text.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of bytes, as hexadecimal text: for tests of the contents read.
///
/// ```
/// let found = bilevel_data::sha256(b"abc");
/// assert!(found.starts_with("ba7816bf8f01cfea"));
/// ```
pub fn sha256(bytes: &[u8]) -> String {
    let mut digest = Digest::new();
    digest.add(bytes);
    digest.finish()
}
