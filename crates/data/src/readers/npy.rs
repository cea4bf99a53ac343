//! NumPy's arrays: `.npy`, one array, and `.npz`, a zip file of them.
//!
//! A `.npy` file is `\x93NUMPY`, two bytes of version, the length of its header (two bytes, four from version 2 on) and
//! the header, the text of a Python dictionary:
//!
//!   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }

use crate::element::{Element, Order};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::limits::Limits;
use crate::numbers::Numbers;
use crate::readers::archive;
use std::collections::BTreeMap;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a `.npy` file: booleans, integers and floats of any width, in either order of bytes and of axes.
///
/// ```
/// use bilevel_data::{Input, readers::npy};
/// let mut file = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
/// file.extend(format!("{:69}\n", "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }").bytes());
/// file.extend([7, 0, 0, 1]);
/// let numbers = npy::read(Input::from_bytes("two.npy", file))?;
/// assert_eq!((numbers.shape(), numbers.to_f64()), (&[2, 1][..], vec![7.0, 256.0]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read(input: impl Into<Input>) -> Result<Numbers> {
    let input = input.into();
    array(&input.bytes()?, input.name(), &input.limits())
}

/// Reads all arrays of a `.npz` file by name.
///
/// ```
/// assert!(bilevel_data::readers::npy::read_npz("no/such/file.npz").is_err());
/// ```
pub fn read_npz(input: impl Into<Input>) -> Result<BTreeMap<String, Numbers>> {
    let input = input.into();
    let mut arrays = BTreeMap::new();
    archive::visit(&input, &|path| path.ends_with(".npy"), &mut |path, bytes| {
        let numbers = array(&bytes, &format!("{}: {path}", input.name()), &input.limits())?;
        arrays.insert(path.trim_end_matches(".npy").to_string(), numbers);
        Ok(())
    })?;
    Ok(arrays)
}

fn array(bytes: &[u8], place: &str, limits: &Limits) -> Result<Numbers> {
    let damaged = |reason: &str| Error::damaged(place, reason);
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("is not a .npy file"))?;
    let short = || damaged("ends within its header");
    let (&[version, _], rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (length, rest) = match version {
        1 => rest.split_first_chunk().map(|(length, rest)| (u16::from_le_bytes(*length) as usize, rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => return Err(damaged("is a .npy file of a version later than 3, which is not supported")),
    }
    .ok_or_else(short)?;
    let (header, numbers) = rest.split_at_checked(length).ok_or_else(short)?;
    let header = std::str::from_utf8(header).map_err(|_| damaged("has a header that is not text"))?;
    let header = Header::parse(header).ok_or_else(|| {
        let start: String = header.chars().take(80).collect();
        damaged(&format!("has a header that cannot be read: {start}"))
    })?;
    let element = header.element().ok_or_else(|| {
        damaged(&format!("holds '{}', but only booleans, integers and floats can be read", header.kind))
    })?;
    if !header.fortran {
        return element.numbers(header.order(), header.shape, numbers, limits, place);
    }
    let (order, shape) = (header.order(), header.shape.into_iter().rev().collect());
    element.numbers(order, shape, numbers, limits, place)?.transposed()
}

/// The contents of a header.
struct Header {
    kind: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// The three entries of the dictionary, in any order; others are refused.
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('{')?.trim_start();
        let (mut kind, mut fortran, mut shape) = (None, None, None);
        while !rest.starts_with('}') {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" => {
                    let (value, after) = quoted(value)?;
                    kind = Some(value.to_string());
                    after
                }
                "fortran_order" => {
                    let (value, after) = value.split_at_checked(if value.starts_with('T') { 4 } else { 5 })?;
                    fortran = Some(matches!(value, "True"));
                    (value == "True" || value == "False").then_some(after)?
                }
                "shape" => {
                    let (inside, after) = value.strip_prefix('(')?.split_once(')')?;
                    let lengths = inside.split(',').map(str::trim).filter(|length| !length.is_empty());
                    shape =
                        Some(lengths.map(|length| length.trim_end_matches('L').parse().ok()).collect::<Option<_>>()?);
                    after
                }
                _ => return None,
            }
            .trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        (rest == "}").then_some(())?;
        Some(Header { kind: kind?, fortran: fortran?, shape: shape? })
    }

    fn order(&self) -> Order {
        if self.kind.starts_with('>') { Order::Big } else { Order::Little }
    }

    fn element(&self) -> Option<Element> {
        Some(match self.kind.strip_prefix(['<', '>', '|', '='])? {
            "b1" | "u1" => Element::U8,
            "i1" => Element::I8,
            "u2" => Element::U16,
            "i2" => Element::I16,
            "u4" => Element::U32,
            "i4" => Element::I32,
            "u8" => Element::U64,
            "i8" => Element::I64,
            "f2" => Element::F16,
            "f4" => Element::F32,
            "f8" => Element::F64,
            _ => return None,
        })
    }
}

/// A quoted word at the beginning of a text, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    text[1..].split_once(quote)
}
