//! Arrays in and out, without a copy if it has no visible effect.
//!
//! NumPy's arrays of floats that are read-only, as JAX's are, are adopted: their memory is read where it is. Others are copied once. What comes
//! out is NumPy's array of our own memory, aligned so that PyTorch and JAX take it over DLPack without a copy.

use crate::error;
use bilevel::Array;
use bilevel::graph::{Data, DataMut, Elements};
use numpy::ndarray::{ArrayViewMutD, IxDyn};
use numpy::{Element, PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// A read-only array of NumPy, kept for as long as its numbers are used.
struct Kept<T> {
    #[allow(dead_code)] // It owns the numbers.
    array: Py<PyAny>,
    first: *const T,
    count: usize,
}

// SAFETY: the numbers are only read, and `Py` may be sent and dropped anywhere.
unsafe impl<T: Sync> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> AsRef<[T]> for Kept<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: the array is contiguous, keeps its memory for as long as it is referred to, and is read-only.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

/// The shape and the numbers of an array of this type; `adopt` lets them stay where they are.
fn numbers<'py, T: Element + Copy + Sync + 'static>(
    value: &Bound<'py, PyAny>,
    adopt: bool,
) -> Option<(Vec<usize>, Elements<T>)> {
    let array: PyReadonlyArrayDyn<'py, T> = value.extract().ok()?;
    let shape = array.shape().to_vec();
    let found = match array.as_slice() {
        Ok([]) => Elements::from(vec![]),
        Ok(all) if adopt => {
            let (first, count) = (all.as_ptr(), all.len());
            Elements::of_owner(Kept { array: value.clone().unbind(), first, count })
        }
        Ok(all) => Elements::copied(all),
        Err(_) => array.as_array().iter().copied().collect(),
    };
    Some((shape, found))
}

/// A NumPy array of f64, f32 or i32. Integers are always copied: those that index are checked, and must not change afterwards.
pub fn read(value: &Bound<'_, PyAny>) -> PyResult<Array> {
    let is_writable = || value.getattr("flags")?.getattr("writeable")?.extract::<bool>();
    let adopt = !is_writable().unwrap_or(true);
    let (shape, data) = if let Some((shape, numbers)) = numbers(value, adopt) {
        (shape, Data::F64(numbers))
    } else if let Some((shape, numbers)) = numbers(value, adopt) {
        (shape, Data::F32(numbers))
    } else if let Some((shape, numbers)) = numbers(value, false) {
        (shape, Data::I32(numbers))
    } else {
        let kind = value.getattr("dtype").map_or_else(|_| value.get_type().to_string(), |dtype| dtype.to_string());
        return Err(error::setting(format!("an array of float64, float32 or int32 is needed, not {kind}")));
    };
    Array::new(shape, data).map_err(error::of_graph)
}

/// Owns the memory of an array that NumPy shows.
#[pyclass(frozen, module = "bilevel._bilevel")]
struct Owner(#[allow(dead_code)] Array);

/// An array of NumPy that is the memory of this one, which is copied first if others share it or it is not aligned.
pub fn written<'py>(py: Python<'py>, array: Array) -> PyResult<Bound<'py, PyAny>> {
    let shape = array.shape().to_vec();
    let data = match array.into_data() {
        Data::F64(numbers) => Data::F64(aligned(numbers)),
        Data::F32(numbers) => Data::F32(aligned(numbers)),
        Data::I32(numbers) => Data::I32(aligned(numbers)),
    };
    let mut array = Array::new(&shape, data).map_err(error::of_graph)?;
    match array.data_mut() {
        DataMut::F64(numbers) => shown(py, numbers.as_mut_ptr(), array, shape),
        DataMut::F32(numbers) => shown(py, numbers.as_mut_ptr(), array, shape),
        DataMut::I32(numbers) => shown(py, numbers.as_mut_ptr(), array, shape),
    }
}

fn aligned<T: Copy>(numbers: Elements<T>) -> Elements<T> {
    if numbers.is_aligned() { numbers } else { Elements::copied(&numbers) }
}

/// An array of NumPy at this address, which is that of the array's only handle.
fn shown<'py, T: Element>(
    py: Python<'py>,
    first: *mut T,
    array: Array,
    shape: Vec<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    if array.is_empty() {
        return Ok(PyArrayDyn::<T>::zeros(py, IxDyn(&shape), false).into_any());
    }
    let owner = Bound::new(py, Owner(array))?.into_any();
    // SAFETY: the memory has as many numbers as the shape says, and `owner` keeps it and never looks at it.
    Ok(unsafe {
        let view = ArrayViewMutD::from_shape_ptr(IxDyn(&shape), first);
        PyArrayDyn::borrow_from_array(&view, owner)
    }
    .into_any())
}

/// NumPy arrays of several.
pub fn all(py: Python<'_>, arrays: Vec<Array>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    arrays.into_iter().map(|array| written(py, array)).collect()
}
