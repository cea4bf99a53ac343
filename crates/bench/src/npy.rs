//! Arrays in files NumPy reads and writes: version 1.0 of its format, little-endian, row-major.

use crate::error::{BenchError, Result};
use bilevel_graph::{Array, Data, shape::element_count};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// Writes an array.
pub fn write(path: &Path, array: &Array) -> Result<()> {
    std::fs::write(path, encode(array)).map_err(BenchError::file(path))
}

/// Reads an array.
pub fn read(path: &Path) -> Result<Array> {
    let bytes = std::fs::read(path).map_err(BenchError::file(path))?;
    decode(&bytes).map_err(|reason| BenchError::Array { path: path.into(), reason })
}

/// The magic words, the length of a header, the header (a Python dictionary that ends a line at a multiple of 64
/// bytes), the elements.
fn encode(array: &Array) -> Vec<u8> {
    let (kind, bytes) = match array.data() {
        Data::F32(v) => ("<f4", v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()),
        Data::F64(v) => ("<f8", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Data::I32(v) => ("<i4", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
    };
    let shape: String = array.shape().iter().map(|length| format!("{length}, ")).collect();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
    let before = MAGIC.len() + 2;
    let length = (before + header.len() + 1).next_multiple_of(64) - before;
    header += &" ".repeat(length - header.len() - 1);
    header.push('\n');
    [MAGIC, &(length as u16).to_le_bytes(), header.as_bytes(), &bytes].concat()
}

fn decode(bytes: &[u8]) -> std::result::Result<Array, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("not an array file of format 1.0")?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or("the file ends early")?;
    let length = u16::from_le_bytes(*length) as usize;
    if rest.len() < length {
        return Err("the file ends early".into());
    }
    let (header, elements) = rest.split_at(length);
    let header = std::str::from_utf8(header).map_err(|_| "the header is not text")?;
    let field = |name: &str| {
        let at = header.find(&format!("'{name}':")).ok_or_else(|| format!("the header has no '{name}'"))?;
        Ok::<_, String>(header[at + name.len() + 3..].trim_start())
    };
    if field("fortran_order")?.starts_with("True") && !elements.is_empty() {
        return Err("the array is column-major; write it with numpy.ascontiguousarray".into());
    }
    let shape = field("shape")?;
    let shape = shape.strip_prefix('(').and_then(|s| Some(&s[..s.find(')')?])).ok_or("the shape is not a tuple")?;
    let lengths = shape.split(',').map(str::trim).filter(|s| !s.is_empty());
    let shape: Vec<usize> = lengths
        .map(|s| s.parse().map_err(|_| format!("'{s}' is not a length")))
        .collect::<std::result::Result<_, _>>()?;
    let kind = field("descr")?;
    let (width, kind) = match kind.get(..5).unwrap_or_default() {
        "'<f4'" => (4, "f4"),
        "'<f8'" => (8, "f8"),
        "'<i4'" => (4, "i4"),
        other => return Err(format!("elements of type {other} are not read; only <f4, <f8 and <i4 are")),
    };
    if element_count(&shape).checked_mul(width) != Some(elements.len()) {
        return Err(format!("shape {shape:?} needs other than the {} bytes there are", elements.len()));
    }
    let data = match kind {
        "f4" => Data::F32(elements.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        "i4" => Data::I32(elements.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        _ => {
            let word = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
            Data::F64(elements.chunks_exact(8).map(word).collect())
        }
    };
    Array::new(shape, data).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::DType;

    #[test]
    fn arrays_read_back() {
        let arrays = [
            Array::from_f32([2, 3], vec![1.0, -0.0, 3.5, f32::MIN_POSITIVE, f32::INFINITY, 6.0]).unwrap(),
            Array::from_f64([2], vec![1e-300, 2.0]).unwrap(),
            Array::from_i32([3, 1], vec![i32::MIN, 0, 7]).unwrap(),
            Array::scalar(2.5, DType::F64),
            Array::zeros([0, 4], DType::F32),
        ];
        for array in arrays {
            assert_eq!(decode(&encode(&array)).unwrap(), array);
        }
    }

    #[test]
    fn the_header_is_as_numpy_wants_it() {
        let bytes = encode(&Array::from_f32([3], vec![1.0, 2.0, 3.0]).unwrap());
        let header = String::from_utf8_lossy(&bytes[10..bytes.len() - 12]).into_owned();
        assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"), "{header}");
        assert!(header.ends_with('\n') && (bytes.len() - 12).is_multiple_of(64));
        assert_eq!(bytes[bytes.len() - 4..], 3f32.to_le_bytes());
    }

    #[test]
    fn what_is_not_an_array_is_refused() {
        let good = encode(&Array::from_f32([3], vec![1.0, 2.0, 3.0]).unwrap());
        assert!(decode(b"").is_err());
        assert!(decode(&good[..9]).is_err());
        assert!(decode(&good[..40]).is_err());
        assert!(decode(&good[..good.len() - 1]).unwrap_err().contains("bytes"));
        let text = |from: &str, to: &str| {
            let bytes = good.clone();
            let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
        };
        assert!(decode(&text("<f4", ">f4")).unwrap_err().contains(">f4"));
        assert!(decode(&text("False", "True ")).unwrap_err().contains("column-major"));
        assert!(decode(&text("(3,)", "(x,)")).unwrap_err().contains("'x'"));
        assert!(decode(&text("(3,)", "[3,]")).is_err());
        assert!(decode(&text("'shape'", "'sharp'")).unwrap_err().contains("'shape'"));
    }
}
