//! Takes the place of the decoder if the feature `images` is off: every picture is refused with the name of the feature.

use super::Settings;
use crate::error::{Error, Result};
use crate::input::Input;

/// Refuses pictures.
pub(crate) fn decode_all(
    input: &Input,
    files: &[(&str, &[u8])],
    _settings: &Settings,
    _size: &mut Option<[usize; 2]>,
    _pixels: &mut Vec<u8>,
) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let reason = "PNG and JPEG cannot be decoded in this build: compile bilevel-data with its feature `images`";
    Err(Error::request(format!("{}: {reason}", input.name())))
}
