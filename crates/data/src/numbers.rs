//! Numbers as a file holds them: any of the usual types, in any shape.

use crate::error::{Error, Result};
use bilevel::{Array, DType};

/// The elements of [`Numbers`].
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Bytes; booleans as 0 and 1.
    U8(Vec<u8>),
    /// 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// 32-bit floats; also both kinds of 16-bit floats, which these represent exactly.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
}

/// The same for every type of elements.
macro_rules! every {
    ($elements:expr, $values:ident => $do:expr) => {
        match $elements {
            Elements::U8($values) => $do,
            Elements::I8($values) => $do,
            Elements::U16($values) => $do,
            Elements::I16($values) => $do,
            Elements::U32($values) => $do,
            Elements::I32($values) => $do,
            Elements::U64($values) => $do,
            Elements::I64($values) => $do,
            Elements::F32($values) => $do,
            Elements::F64($values) => $do,
        }
    };
}

/// A dense row-major array in the type its file has, such as that of a `.npy` or `.safetensors` file.
///
/// ```
/// use bilevel::DType;
/// use bilevel_data::{Elements, Numbers};
/// let numbers = Numbers::new(vec![3], Elements::I64(vec![0, 2, 1]))?;
/// assert_eq!(numbers.to_array(DType::F32)?.to_f64(), [0.0, 2.0, 1.0]);
/// assert_eq!(numbers.labels(3)?, [0, 2, 1]);
/// assert!(numbers.labels(2).is_err());
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    shape: Vec<usize>,
    elements: Elements,
}

impl Numbers {
    /// Elements in a shape; an error if there are too few or too many.
    pub fn new(shape: Vec<usize>, elements: Elements) -> Result<Self> {
        let (found, size) = (every!(&elements, values => values.len()), bilevel::graph::shape::element_count(&shape));
        if found != size {
            return Err(Error::request(format!("{found} elements do not fill the shape {shape:?}")));
        }
        Ok(Numbers { shape, elements })
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        every!(&self.elements, values => values.len())
    }

    /// Returns true when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as 64-bit floats; integers beyond 2⁵³ are rounded.
    #[allow(clippy::unnecessary_cast, reason = "one of the types is that one")]
    pub fn to_f64(&self) -> Vec<f64> {
        every!(&self.elements, values => values.iter().map(|value| *value as f64).collect())
    }

    /// An array for a problem. Floats are rounded to the requested type; integers must
    /// be whole numbers that fit into 32 bits.
    pub fn to_array(&self, dtype: DType) -> Result<Array> {
        if let (Elements::F32(values), DType::F32) = (&self.elements, dtype) {
            return Ok(Array::from_f32(&self.shape, values.clone())?);
        }
        let values = self.to_f64();
        if dtype == DType::I32 {
            let integers = values.iter().map(|value| whole(*value)).collect::<Result<_>>()?;
            return Ok(Array::from_i32(&self.shape, integers)?);
        }
        Ok(Array::from_values(&self.shape, &values, dtype)?)
    }

    /// The elements as labels in 0 … classes − 1, of one axis.
    pub fn labels(&self, classes: usize) -> Result<Vec<i32>> {
        if self.shape.len() != 1 {
            return Err(Error::request(format!(
                "labels have one axis, but these numbers have the shape {:?}",
                self.shape
            )));
        }
        let values = self.to_f64();
        Array::labels(&values, classes)?;
        values.into_iter().map(whole).collect()
    }

    /// The elements, if they are bytes.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self.elements {
            Elements::U8(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The array with its axes reversed: how an array in Fortran's order is read.
    pub(crate) fn transposed(self) -> Result<Self> {
        let shape: Vec<usize> = self.shape.iter().rev().copied().collect();
        macro_rules! each {
            ($($kind:ident),*) => {
                match self.elements {
                    $(Elements::$kind(values) => Elements::$kind(transpose(&values, &self.shape)),)*
                }
            };
        }
        let elements = each!(U8, I8, U16, I16, U32, I32, U64, I64, F32, F64);
        Numbers::new(shape, elements)
    }
}

/// Elements of this shape, in the order of the opposite one: element (i₁, …, iₙ) goes to (iₙ, …, i₁).
fn transpose<T: Copy>(values: &[T], shape: &[usize]) -> Vec<T> {
    let mut steps = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        steps[axis - 1] = steps[axis] * shape[axis];
    }
    let mut found = Vec::with_capacity(values.len());
    let (mut index, mut place) = (vec![0; shape.len()], 0);
    for _ in 0..values.len() {
        found.push(values[place]);
        // The first axis of the input is the last of the output, so it moves first.
        for axis in 0..shape.len() {
            index[axis] += 1;
            place += steps[axis];
            if index[axis] < shape[axis] {
                break;
            }
            place -= steps[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    found
}

/// A number as a 32-bit integer.
fn whole(value: f64) -> Result<i32> {
    let fits = value.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value);
    if !fits {
        return Err(Error::request(format!("{value} is not a whole number of 32 bits; read floats instead")));
    }
    Ok(value as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_in_the_order_of_fortran_is_turned_around() {
        let written = Numbers::new(vec![2, 3, 1], Elements::I32(vec![0, 1, 2, 10, 11, 12])).unwrap();
        let turned = written.clone().transposed().unwrap();
        assert_eq!(turned.shape(), [1, 3, 2]);
        assert_eq!(turned.elements(), &Elements::I32(vec![0, 10, 1, 11, 2, 12]));
        assert_eq!(turned.transposed().unwrap(), written);
        let empty = Numbers::new(vec![2, 0], Elements::U8(vec![])).unwrap();
        assert_eq!(empty.transposed().unwrap().shape(), [0, 2]);
    }

    #[test]
    fn integers_that_do_not_fit_are_refused() {
        let large = Numbers::new(vec![1], Elements::I64(vec![1 << 40])).unwrap();
        assert!(large.to_array(DType::I32).is_err());
        assert_eq!(large.to_array(DType::F64).unwrap().item(), Some(2f64.powi(40)));
        let half = Numbers::new(vec![1], Elements::F32(vec![0.5])).unwrap();
        assert!(half.to_array(DType::I32).is_err());
    }
}
