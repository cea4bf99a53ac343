//! One picture: from the bytes of a PNG or JPEG file to planes of pixels in the requested size.

use super::{Channels, Fit, Settings};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::limits::Limits;
use image::imageops::FilterType;
use image::{DynamicImage, ImageError, ImageFormat, ImageReader};
use rayon::prelude::*;
use std::io::Cursor;

/// Memory a decoder may use per pixel: 8 bytes for four channels of 16 bits, and as many again to work with.
const BYTES_PER_PIXEL: u64 = 16;
/// And regardless of size: tables, profiles, buffers.
const BYTES_BESIDE: u64 = 4 << 20;

/// Height and width of a picture, from its header.
fn own_size(bytes: &[u8], place: &str, limits: &Limits) -> Result<[usize; 2]> {
    let (width, height) = reader(bytes, place, limits)?.into_dimensions().map_err(|error| refuse(place, error))?;
    check_size(place, [height as usize, width as usize], limits)
}

/// Decodes a picture of this size, or, if the settings have one, resizes it: one channel after the other.
fn decode(bytes: &[u8], size: [usize; 2], settings: &Settings, place: &str, limits: &Limits) -> Result<Vec<u8>> {
    let (own, [height, width]) = (own_size(bytes, place, limits)?, size);
    if own != size && settings.size.is_none() {
        let reason = format!(
            "is {} by {} pixels, but the first picture is {height} by {width}; set a size to resize them to",
            own[0], own[1]
        );
        return Err(Error::damaged(place, reason));
    }
    let picture = reader(bytes, place, limits)?.decode().map_err(|error| refuse(place, error))?;
    let picture = match settings.fit {
        _ if own == size => picture,
        Fit::Stretch => picture.resize_exact(width as u32, height as u32, FilterType::Triangle),
        Fit::Crop => picture.resize_to_fill(width as u32, height as u32, FilterType::Triangle),
    };
    Ok(planes(picture, settings.channels))
}

fn reader<'a>(bytes: &'a [u8], place: &str, limits: &Limits) -> Result<ImageReader<Cursor<&'a [u8]>>> {
    let format = match bytes {
        [0x89, b'P', b'N', b'G', ..] => ImageFormat::Png,
        [0xff, 0xd8, ..] => ImageFormat::Jpeg,
        _ => return Err(Error::damaged(place, "is neither a PNG nor a JPEG file")),
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut bounds = image::Limits::default();
    bounds.max_alloc = Some(limits.pixels.saturating_mul(BYTES_PER_PIXEL).saturating_add(BYTES_BESIDE));
    reader.limits(bounds);
    Ok(reader)
}

/// Decodes files on all cores and appends their pixels. Unless the settings have a size, all pictures must have that
/// of the first.
pub(crate) fn decode_all(
    input: &Input,
    files: &[(&str, &[u8])],
    settings: &Settings,
    size: &mut Option<[usize; 2]>,
    pixels: &mut Vec<u8>,
) -> Result<()> {
    let (place, limits) = (|path: &str| format!("{}: {path}", input.name()), input.limits());
    let Some((first, bytes)) = files.first() else { return Ok(()) };
    let found = match *size {
        Some(size) => check_size(input.name(), size, &limits)?,
        None => own_size(bytes, &place(first), &limits)?,
    };
    *size = Some(found);
    // All of them are in memory before they are put together, so this comes first.
    let more = limits.elements(input.name(), &[files.len(), settings.channels.count(), found[0], found[1]], 1)?;
    limits.elements(input.name(), &[pixels.len().saturating_add(more)], 1)?;
    let decoded: Result<Vec<Vec<u8>>> =
        files.par_iter().map(|(path, bytes)| decode(bytes, found, settings, &place(path), &limits)).collect();
    decoded?.into_iter().for_each(|planes| pixels.extend(planes));
    Ok(())
}

/// Refuses pictures that are empty or too large.
fn check_size(place: &str, [height, width]: [usize; 2], limits: &Limits) -> Result<[usize; 2]> {
    if height == 0 || width == 0 {
        return Err(Error::damaged(place, format!("cannot have a size of {height} by {width} pixels")));
    }
    // The decoder counts either side in 32 bits.
    let fits = u32::try_from(height).is_ok() && u32::try_from(width).is_ok();
    if !fits || (height as u64).checked_mul(width as u64).is_none_or(|pixels| pixels > limits.pixels) {
        let reason = format!("is a picture of {height} by {width} pixels, but only {} are allowed", limits.pixels);
        return Err(Error::TooLarge { place: place.into(), reason, limit: "pixels" });
    }
    Ok([height, width])
}

fn refuse(place: &str, error: ImageError) -> Error {
    match error {
        ImageError::Limits(error) => {
            let reason = format!("needs too much memory to decode ({error})");
            Error::TooLarge { place: place.into(), reason, limit: "pixels" }
        }
        other => Error::damaged(place, format!("cannot be decoded: {other}")),
    }
}

fn planes(picture: DynamicImage, channels: Channels) -> Vec<u8> {
    let interleaved = match channels {
        Channels::Grey => return picture.into_luma8().into_raw(),
        Channels::Rgb => picture.into_rgb8().into_raw(),
        Channels::Rgba => picture.into_rgba8().into_raw(),
    };
    let count = channels.count();
    (0..count).flat_map(|channel| interleaved.iter().skip(channel).step_by(count).copied()).collect()
}
