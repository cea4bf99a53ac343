//! The types of numbers that files hold, and their decoding.

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::numbers::{Elements, Numbers};
use half::{bf16, f16};

/// How a number is written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// The byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Element {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 | Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// Numbers of this shape from exactly their bytes. The 16-bit floats become 32-bit ones, which hold them exactly.
    pub fn numbers(
        self,
        order: Order,
        shape: Vec<usize>,
        bytes: &[u8],
        limits: &Limits,
        place: &str,
    ) -> Result<Numbers> {
        let widened = if self.size() == 2 { 4 } else { self.size() };
        let count = limits.elements(place, &shape, widened)?;
        if bytes.len() != count * self.size() {
            let (expected, found) = (count * self.size(), bytes.len());
            let how = if found < expected { "it is truncated" } else { "there is something after it" };
            let reason = format!("declares {expected} bytes for the shape {shape:?} but has {found}: {how}");
            return Err(Error::damaged(place, reason));
        }
        let elements = match self {
            Element::U8 => Elements::U8(bytes.to_vec()),
            Element::I8 => Elements::I8(bytes.iter().map(|byte| *byte as i8).collect()),
            Element::U16 => Elements::U16(decode(bytes, order, u16::from_le_bytes)),
            Element::I16 => Elements::I16(decode(bytes, order, i16::from_le_bytes)),
            Element::U32 => Elements::U32(decode(bytes, order, u32::from_le_bytes)),
            Element::I32 => Elements::I32(decode(bytes, order, i32::from_le_bytes)),
            Element::U64 => Elements::U64(decode(bytes, order, u64::from_le_bytes)),
            Element::I64 => Elements::I64(decode(bytes, order, i64::from_le_bytes)),
            Element::F16 => Elements::F32(decode(bytes, order, |bytes| f16::from_le_bytes(bytes).to_f32())),
            Element::Bf16 => Elements::F32(decode(bytes, order, |bytes| bf16::from_le_bytes(bytes).to_f32())),
            Element::F32 => Elements::F32(decode(bytes, order, f32::from_le_bytes)),
            Element::F64 => Elements::F64(decode(bytes, order, f64::from_le_bytes)),
        };
        Numbers::new(shape, elements)
    }
}

fn decode<T, const N: usize>(bytes: &[u8], order: Order, number: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = bytes.as_chunks::<N>();
    let little = |mut chunk: [u8; N]| {
        if order == Order::Big {
            chunk.reverse();
        }
        chunk
    };
    chunks.iter().map(|chunk| number(little(*chunk))).collect()
}
