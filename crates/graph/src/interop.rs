//! Conversions from and to the arrays of the crate `ndarray`, without a copy if the layout allows.
//!
//! An owned array in row-major order hands its elements over; any other layout, and every view, is copied in row-major order. Back,
//! the elements of an owned [`Array`] are handed over, and a reference becomes a view of them.
//!
//! ```
//! use bilevel_graph::Array;
//! use ndarray::{Array2, ArrayView1, array};
//! let rows = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
//! let column = Array::from(&rows.column(1));
//! assert_eq!((column.shape(), column.to_f64()), (&[2][..], vec![2.0, 5.0]));
//! let back: Array2<f64> = Array::from(rows.clone()).try_into()?;
//! assert_eq!(back, rows);
//! let view: ArrayView1<f64> = (&column).try_into()?;
//! assert_eq!(view.sum(), 7.0);
//! # Ok::<(), bilevel_graph::Error>(())
//! ```

use crate::{Array, Data, Error, ErrorKind};
use ::ndarray::{ArrayBase, ArrayView, Dimension, IxDyn};

/// The element types of an [`Array`].
pub trait Element: Copy + private::Sealed {
    /// Elements of this type.
    fn data(elements: Vec<Self>) -> Data;
    /// The elements, if they have this type.
    fn slice(data: &Data) -> Option<&[Self]>;
    /// The elements, if they have this type; otherwise the given data.
    fn vec(data: Data) -> Result<Vec<Self>, Data>;
    /// The name of the type.
    const NAME: &str;
}

mod private {
    pub trait Sealed {}
}

macro_rules! element {
    ($type:ty, $variant:ident) => {
        impl private::Sealed for $type {}

        impl Element for $type {
            const NAME: &str = stringify!($type);

            fn data(elements: Vec<Self>) -> Data {
                Data::$variant(elements.into())
            }

            fn slice(data: &Data) -> Option<&[Self]> {
                if let Data::$variant(elements) = data { Some(elements) } else { None }
            }

            fn vec(data: Data) -> Result<Vec<Self>, Data> {
                if let Data::$variant(elements) = data { Ok(elements.into_vec()) } else { Err(data) }
            }
        }
    };
}

element!(f32, F32);
element!(f64, F64);
element!(i32, I32);

/// Hands the elements over if they are in row-major order, else copies them.
impl<A: Element, D: Dimension> From<ndarray::Array<A, D>> for Array {
    fn from(array: ndarray::Array<A, D>) -> Self {
        if !array.is_standard_layout() {
            return Array::from(&array);
        }
        let (shape, count) = (array.shape().to_vec(), array.len());
        let (mut elements, offset) = array.into_raw_vec_and_offset();
        // An array that was sliced keeps the elements around it.
        elements.truncate(offset.unwrap_or(0) + count);
        elements.drain(..offset.unwrap_or(0));
        Array::whole(shape, A::data(elements))
    }
}

/// Copies the elements in row-major order, for any strides.
impl<A: Element, S: ndarray::Data<Elem = A>, D: Dimension> From<&ArrayBase<S, D>> for Array {
    fn from(array: &ArrayBase<S, D>) -> Self {
        Array::whole(array.shape().to_vec(), A::data(array.iter().copied().collect()))
    }
}

/// Hands the elements over. Refuses another type and another number of axes.
impl<A: Element, D: Dimension> TryFrom<Array> for ndarray::Array<A, D> {
    type Error = Error;

    fn try_from(array: Array) -> Result<Self, Error> {
        let refused = refused::<A, D>(&array);
        let shape = IxDyn(array.shape());
        let elements = A::vec(array.into_data()).map_err(|_| refused.clone())?;
        let dynamic = ndarray::ArrayD::from_shape_vec(shape, elements).map_err(|_| refused.clone())?;
        dynamic.into_dimensionality().map_err(|_| refused)
    }
}

/// Borrows the elements. Refuses another type and another number of axes.
impl<'a, A: Element, D: Dimension> TryFrom<&'a Array> for ArrayView<'a, A, D> {
    type Error = Error;

    fn try_from(array: &'a Array) -> Result<Self, Error> {
        let refused = || refused::<A, D>(array);
        let elements = A::slice(array.data()).ok_or_else(refused)?;
        let dynamic = ArrayView::from_shape(IxDyn(array.shape()), elements).map_err(|_| refused())?;
        dynamic.into_dimensionality().map_err(|_| refused())
    }
}

fn refused<A: Element, D: Dimension>(array: &Array) -> Error {
    let axes = D::NDIM.map_or(String::new(), |axes| format!("{axes}-dimensional "));
    Error::new(ErrorKind::NotConvertible {
        found: (array.dtype(), array.shape().to_vec()),
        wanted: format!("{axes}array of {}", A::NAME),
    })
}
