//! Concrete arrays, the inputs and outputs of a program.

use crate::shape::element_count;
use crate::{DType, Elements, Error, ErrorKind, Result};

/// A dense row-major array of one of the element types. Clones share their [`Elements`] until one of them is changed.
///
/// ```
/// use bilevel_graph::{Array, DType};
/// let a = Array::from_f64([2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
/// assert_eq!((a.shape(), a.dtype()), (&[2, 2][..], DType::F64));
/// assert!(Array::from_f64([3], vec![1.0]).is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    data: Data,
}

/// The elements of an [`Array`].
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// 32-bit floats.
    F32(Elements<f32>),
    /// 64-bit floats.
    F64(Elements<f64>),
    /// 32-bit integers.
    I32(Elements<i32>),
}

/// The elements of an [`Array`], to change one by one. Slices, because their number belongs to the array's shape.
#[derive(Debug, PartialEq)]
pub enum DataMut<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// 64-bit floats.
    F64(&'a mut [f64]),
    /// 32-bit integers.
    I32(&'a mut [i32]),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Data::F32(v) => v.len(),
            Data::F64(v) => v.len(),
            Data::I32(v) => v.len(),
        }
    }
}

impl Array {
    /// An array of this shape and these elements; an error if their numbers differ.
    pub fn new(shape: impl AsRef<[usize]>, data: Data) -> Result<Self> {
        let shape = shape.as_ref().to_vec();
        if element_count(&shape) != data.len() {
            return Err(Error::new(ErrorKind::WrongLength { shape, found: data.len() }));
        }
        Ok(Array { shape, data })
    }

    /// An array with as many elements as the shape has.
    #[cfg(feature = "ndarray")]
    pub(crate) fn whole(shape: Vec<usize>, data: Data) -> Self {
        debug_assert_eq!(element_count(&shape), data.len());
        Array { shape, data }
    }

    /// The elements, without a copy.
    pub fn into_data(self) -> Data {
        self.data
    }

    /// An array of 32-bit floats.
    pub fn from_f32(shape: impl AsRef<[usize]>, data: Vec<f32>) -> Result<Self> {
        Self::new(shape, Data::F32(data.into()))
    }

    /// An array of 64-bit floats.
    pub fn from_f64(shape: impl AsRef<[usize]>, data: Vec<f64>) -> Result<Self> {
        Self::new(shape, Data::F64(data.into()))
    }

    /// An array of 32-bit integers.
    pub fn from_i32(shape: impl AsRef<[usize]>, data: Vec<i32>) -> Result<Self> {
        Self::new(shape, Data::I32(data.into()))
    }

    /// A scalar of this type.
    pub fn scalar(value: f64, dtype: DType) -> Self {
        Self::full([], value, dtype)
    }

    /// Every element the same; an error if there is no memory for this many. For shapes that come from a user or a
    /// file.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType};
    /// assert_eq!(Array::try_full([2], 3.0, DType::F64).unwrap().to_f64(), [3.0, 3.0]);
    /// let error = Array::try_full([1 << 40, 1 << 20], 0.0, DType::F32).unwrap_err().to_string();
    /// assert!(error.contains("no memory for f32[1099511627776, 1048576]"), "{error}");
    /// ```
    pub fn try_full(shape: impl AsRef<[usize]>, value: f64, dtype: DType) -> Result<Self> {
        let shape = shape.as_ref().to_vec();
        let n = element_count(&shape);
        let data = match dtype {
            DType::F32 => Elements::repeated(value as f32, n).map(Data::F32),
            DType::F64 => Elements::repeated(value, n).map(Data::F64),
            DType::I32 => Elements::repeated(value as i32, n).map(Data::I32),
        };
        match data {
            Some(data) => Ok(Array { shape, data }),
            None => Err(Error::new(ErrorKind::NoMemory { shape, dtype })),
        }
    }

    /// Every element the same, for shapes known to be small.
    ///
    /// # Panics
    ///
    /// If there is no memory for this many elements; [`try_full`](Self::try_full) gives an error instead.
    #[track_caller]
    pub fn full(shape: impl AsRef<[usize]>, value: f64, dtype: DType) -> Self {
        match Self::try_full(shape, value, dtype) {
            Ok(array) => array,
            Err(error) => panic!("{error}"),
        }
    }

    /// All zeros, for shapes known to be small.
    ///
    /// # Panics
    ///
    /// As [`full`](Self::full).
    #[track_caller]
    pub fn zeros(shape: impl AsRef<[usize]>, dtype: DType) -> Self {
        Self::full(shape, 0.0, dtype)
    }

    /// An array of this type from 64-bit values, rounded if needed.
    pub fn from_values(shape: impl AsRef<[usize]>, values: &[f64], dtype: DType) -> Result<Self> {
        let data = match dtype {
            DType::F32 => Data::F32(values.iter().map(|&v| v as f32).collect()),
            DType::F64 => Data::F64(Elements::copied(values)),
            DType::I32 => Data::I32(values.iter().map(|&v| v as i32).collect()),
        };
        Self::new(shape, data)
    }

    /// Integer labels from numbers read from a file; refuses NaN, fractions and anything not in `0..classes`.
    ///
    /// ```
    /// use bilevel_graph::Array;
    /// assert!(Array::labels(&[0.0, 2.0], 3).is_ok());
    /// let error = Array::labels(&[0.0, f64::NAN], 3).unwrap_err().to_string();
    /// assert!(error.contains("label NaN at position 1"), "{error}");
    /// ```
    pub fn labels(values: &[f64], classes: usize) -> Result<Self> {
        let mut labels = Vec::with_capacity(values.len());
        for (position, &value) in values.iter().enumerate() {
            if value.fract() != 0.0 || !(0.0..classes as f64).contains(&value) {
                return Err(Error::new(ErrorKind::NotALabel { position, value, classes }));
            }
            labels.push(value as i32);
        }
        Self::from_i32([values.len()], labels)
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self.data {
            Data::F32(_) => DType::F32,
            Data::F64(_) => DType::F64,
            Data::I32(_) => DType::I32,
        }
    }

    /// True if the elements are [aligned](Elements::is_aligned).
    pub fn is_aligned(&self) -> bool {
        match &self.data {
            Data::F32(v) => v.is_aligned(),
            Data::F64(v) => v.is_aligned(),
            Data::I32(v) => v.is_aligned(),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns true when it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The elements, mutable. Their number and type are fixed.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, DataMut};
    /// let mut a = Array::zeros([2], DType::F64);
    /// if let DataMut::F64(values) = a.data_mut() {
    ///     values[1] = 3.0;
    /// }
    /// assert_eq!(a.to_f64(), [0.0, 3.0]);
    /// ```
    ///
    /// Executors rely on the number of elements of a shape, so none can be added or removed:
    ///
    /// ```compile_fail
    /// use bilevel_graph::{Array, DType, Data};
    /// let mut a = Array::zeros([2], DType::F64);
    /// *a.data_mut() = Data::F64(vec![]);
    /// ```
    pub fn data_mut(&mut self) -> DataMut<'_> {
        match &mut self.data {
            Data::F32(v) => DataMut::F32(v.as_mut_slice()),
            Data::F64(v) => DataMut::F64(v.as_mut_slice()),
            Data::I32(v) => DataMut::I32(v.as_mut_slice()),
        }
    }

    /// The elements as 64-bit floats.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::F32(v) => v.iter().map(|&x| x as f64).collect(),
            Data::F64(v) => v.to_vec(),
            Data::I32(v) => v.iter().map(|&x| x as f64).collect(),
        }
    }

    /// The elements as 64-bit floats, without a copy if they are the only handle to a vector of them.
    pub fn into_f64(self) -> Vec<f64> {
        match self.data {
            Data::F64(v) => v.into_vec(),
            _ => self.to_f64(),
        }
    }

    /// The first element as a 64-bit float, or `None` when empty. For scalars such as a loss.
    pub fn item(&self) -> Option<f64> {
        match &self.data {
            Data::F32(v) => v.first().map(|&x| x as f64),
            Data::F64(v) => v.first().copied(),
            Data::I32(v) => v.first().map(|&x| x as f64),
        }
    }

    /// The raw bytes of the elements, in machine order.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the element types are plain numbers without padding; any byte of them may be read.
        unsafe {
            let (ptr, len) = match &self.data {
                Data::F32(v) => (v.as_ptr().cast::<u8>(), v.len() * 4),
                Data::F64(v) => (v.as_ptr().cast::<u8>(), v.len() * 8),
                Data::I32(v) => (v.as_ptr().cast::<u8>(), v.len() * 4),
            };
            std::slice::from_raw_parts(ptr, len)
        }
    }

    /// The raw bytes of the elements, to overwrite.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and every bit pattern is a valid number.
        unsafe {
            let (ptr, len) = match self.data_mut() {
                DataMut::F32(v) => (v.as_mut_ptr().cast::<u8>(), v.len() * 4),
                DataMut::F64(v) => (v.as_mut_ptr().cast::<u8>(), v.len() * 8),
                DataMut::I32(v) => (v.as_mut_ptr().cast::<u8>(), v.len() * 4),
            };
            std::slice::from_raw_parts_mut(ptr, len)
        }
    }
}
