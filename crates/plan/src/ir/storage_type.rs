//! Storage types: how the elements of a node are stored, as bytes.

use bilevel_graph::{DType, Precision};

/// The type of a node's elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageType {
    /// A 32-bit float.
    F32,
    /// A 64-bit float.
    F64,
    /// A 32-bit integer.
    I32,
    /// A 32-bit float of which the upper two bytes are stored.
    Bf16,
    /// An IEEE half, which only products read. Its array is scaled by a power of two.
    F16,
}

impl From<DType> for StorageType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => StorageType::F32,
            DType::F64 => StorageType::F64,
            DType::I32 => StorageType::I32,
        }
    }
}

impl StorageType {
    /// Returns the type in which stored numbers are computed.
    pub fn dtype(self) -> DType {
        match self {
            StorageType::F32 | StorageType::Bf16 | StorageType::F16 => DType::F32,
            StorageType::F64 => DType::F64,
            StorageType::I32 => DType::I32,
        }
    }

    /// Returns the bytes of an element.
    pub fn size(self) -> usize {
        match self {
            StorageType::Bf16 | StorageType::F16 => 2,
            StorageType::F32 | StorageType::I32 => 4,
            StorageType::F64 => 8,
        }
    }

    /// Returns true if an element holds fewer bits than the type in which it is computed.
    pub fn is_reduced(self) -> bool {
        matches!(self, StorageType::Bf16 | StorageType::F16)
    }

    /// Returns the value of the element in these bytes, which are as many as its size.
    pub(crate) fn read(self, bytes: &[u8]) -> f64 {
        match self {
            StorageType::F64 => f64::from_ne_bytes(array(bytes)),
            StorageType::F32 => f64::from(f32::from_ne_bytes(array(bytes))),
            StorageType::I32 => f64::from(i32::from_ne_bytes(array(bytes))),
            StorageType::Bf16 => f64::from(f32::from_bits(u32::from(u16::from_ne_bytes(array(bytes))) << 16)),
            StorageType::F16 => f16_value(u16::from_ne_bytes(array(bytes))),
        }
    }

    /// Writes a value, rounded to the type, to these bytes.
    pub(crate) fn write(self, value: f64, bytes: &mut [u8]) {
        match self {
            StorageType::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
            StorageType::F32 => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
            StorageType::I32 => bytes.copy_from_slice(&(value as i32).to_ne_bytes()),
            StorageType::Bf16 => {
                let bits = Precision::Bf16.round(value as f32).to_bits() >> 16;
                // A NaN whose digits are in the lower half stays one.
                let quiet = if value.is_nan() { 0x40 } else { 0 };
                bytes.copy_from_slice(&((bits | quiet) as u16).to_ne_bytes());
            }
            StorageType::F16 => bytes.copy_from_slice(&f16_bits(value as f32).to_ne_bytes()),
        }
    }

    /// Returns the value that is read back after writing this one.
    pub(crate) fn rounded(self, value: f64) -> f64 {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.size()];
        self.write(value, bytes);
        self.read(bytes)
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
            assert_eq!(StorageType::F16.rounded(value), expected, "{value}");
        }
        assert!(StorageType::F16.rounded(f64::NAN).is_nan() && StorageType::Bf16.rounded(f64::NAN).is_nan());
    }

    #[test]
    fn two_bytes_hold_what_bf16_holds() {
        assert_eq!(StorageType::Bf16.rounded(1.0 / 3.0), 171.0 / 512.0);
        assert_eq!(StorageType::I32.rounded(-7.0), -7.0);
    }
}
