//! How the elements of a node are stored: as bytes, in the type of the graph, in bf16 or in fp16.

use crate::ir::node::Node;
use bilevel_graph::{DType, Precision};

/// The storage type of a node's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementStorage {
    /// The type of the graph.
    Plain(DType),
    /// The upper two bytes of a 32-bit float.
    Bf16,
    /// An IEEE half.
    F16,
}

impl ElementStorage {
    pub fn of(node: &Node) -> Self {
        match (node.narrow, node.is_scaled_f16()) {
            (false, _) => ElementStorage::Plain(node.dtype),
            (true, false) => ElementStorage::Bf16,
            (true, true) => ElementStorage::F16,
        }
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            ElementStorage::Plain(dtype) => dtype.size(),
            ElementStorage::Bf16 | ElementStorage::F16 => 2,
        }
    }

    /// The value of the element in these bytes, which are as many as its size.
    pub fn load(self, bytes: &[u8]) -> f64 {
        match self {
            ElementStorage::Plain(DType::F64) => f64::from_ne_bytes(array(bytes)),
            ElementStorage::Plain(DType::F32) => f64::from(f32::from_ne_bytes(array(bytes))),
            ElementStorage::Plain(DType::I32) => f64::from(i32::from_ne_bytes(array(bytes))),
            ElementStorage::Bf16 => f64::from(f32::from_bits(u32::from(u16::from_ne_bytes(array(bytes))) << 16)),
            ElementStorage::F16 => f16_value(u16::from_ne_bytes(array(bytes))),
        }
    }

    /// Writes a value, rounded to the type, to these bytes.
    pub fn store(self, value: f64, bytes: &mut [u8]) {
        match self {
            ElementStorage::Plain(DType::F64) => bytes.copy_from_slice(&value.to_ne_bytes()),
            ElementStorage::Plain(DType::F32) => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
            ElementStorage::Plain(DType::I32) => bytes.copy_from_slice(&(value as i32).to_ne_bytes()),
            ElementStorage::Bf16 => {
                let bits = Precision::Bf16.round(value as f32).to_bits() >> 16;
                // A NaN whose digits are in the lower half stays one.
                let quiet = if value.is_nan() { 0x40 } else { 0 };
                bytes.copy_from_slice(&((bits | quiet) as u16).to_ne_bytes());
            }
            ElementStorage::F16 => bytes.copy_from_slice(&f16_bits(value as f32).to_ne_bytes()),
        }
    }

    /// The value that is read where this one was written.
    pub fn rounded(self, value: f64) -> f64 {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.size()];
        self.store(value, bytes);
        self.load(bytes)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// The nearest IEEE half; of two equally near ones the one whose last digit is 0.
fn f16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, size) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    let magnitude = match size {
        0x7f80_0001.. => 0x7e00,
        // 65520 and above.
        0x477f_f000.. => 0x7c00,
        // At least 2⁻¹⁴: the exponent has another bias, and 13 digits are rounded away.
        0x3880_0000.. => (size - 0x3800_0000 + 0xfff + (size >> 13 & 1)) >> 13,
        // Multiples of 2⁻²⁴.
        _ => (f32::from_bits(size) * 16_777_216.0).round_ties_even() as u32,
    };
    sign | magnitude as u16
}

fn f16_value(bits: u16) -> f64 {
    let (exponent, digits) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => digits * 2f64.powi(-24),
        31 if digits == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + digits) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_the_nearest_and_every_half_comes_back() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00 || bits & 0x3ff == 0) {
            assert_eq!(f16_bits(f16_value(bits) as f32), bits);
        }
        let cases = [(1.0 + 2f64.powi(-11), 1.0), (1.0 + 3.0 * 2f64.powi(-11), 1.0 + 2f64.powi(-9))];
        let ends = [(65519.0, 65504.0), (65520.0, f64::INFINITY), (2f64.powi(-25), 0.0), (3e-8, 2f64.powi(-24))];
        for (value, expected) in cases.into_iter().chain(ends) {
            assert_eq!(ElementStorage::F16.rounded(value), expected, "{value}");
        }
        assert!(ElementStorage::F16.rounded(f64::NAN).is_nan() && ElementStorage::Bf16.rounded(f64::NAN).is_nan());
    }

    #[test]
    fn two_bytes_hold_what_bf16_holds() {
        assert_eq!(ElementStorage::Bf16.rounded(1.0 / 3.0), 171.0 / 512.0);
        assert_eq!(ElementStorage::Plain(DType::I32).rounded(-7.0), -7.0);
    }
}
