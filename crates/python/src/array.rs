//! Arrays in and out: NumPy's, copied once in either direction.

use crate::error;
use bilevel::Array;
use bilevel::graph::Data;
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods, ToPyArray};
use pyo3::prelude::*;

fn contiguous<'py, T: numpy::Element + Copy>(value: &Bound<'py, PyAny>) -> Option<(Vec<usize>, Vec<T>)> {
    let array: PyReadonlyArrayDyn<'py, T> = value.extract().ok()?;
    let numbers = match array.as_slice() {
        Ok(numbers) => numbers.to_vec(),
        Err(_) => array.as_array().iter().copied().collect(),
    };
    Some((array.shape().to_vec(), numbers))
}

/// A NumPy array of f64, f32 or i32.
pub fn read(value: &Bound<'_, PyAny>) -> PyResult<Array> {
    let read = if let Some((shape, numbers)) = contiguous::<f64>(value) {
        Array::from_f64(shape, numbers)
    } else if let Some((shape, numbers)) = contiguous::<f32>(value) {
        Array::from_f32(shape, numbers)
    } else if let Some((shape, numbers)) = contiguous::<i32>(value) {
        Array::from_i32(shape, numbers)
    } else {
        let kind = value.getattr("dtype").map_or_else(|_| value.get_type().to_string(), |dtype| dtype.to_string());
        return Err(error::setting(format!("an array of float64, float32 or int32 is needed, not {kind}")));
    };
    read.map_err(error::of_graph)
}

/// A NumPy array of the same numbers.
pub fn written<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let shape = array.shape().to_vec();
    fn shaped<'py, T: numpy::Element>(
        flat: Bound<'py, numpy::PyArray1<T>>,
        shape: Vec<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shaped: Bound<'py, PyArrayDyn<T>> = flat.reshape(shape)?;
        Ok(shaped.into_any())
    }
    match array.data() {
        Data::F64(numbers) => shaped(numbers.to_pyarray(py), shape),
        Data::F32(numbers) => shaped(numbers.to_pyarray(py), shape),
        Data::I32(numbers) => shaped(numbers.to_pyarray(py), shape),
    }
}

/// NumPy arrays of several.
pub fn all<'py>(py: Python<'py>, arrays: &[Array]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    arrays.iter().map(|array| written(py, array)).collect()
}
