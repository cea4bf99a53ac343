//! Conversions from and to `ndarray`: every layout arrives in row-major order, and row-major arrays are not copied.

use bilevel_graph::{Array, DType, Data};
use ndarray::{Array1, Array2, Array3, ArrayD, ArrayView2, Axis, ShapeBuilder, array, s};

/// The address of the first element.
fn address(array: &Array) -> *const u8 {
    array.bytes().as_ptr()
}

fn counted() -> Array3<f64> {
    Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as f64)
}

#[test]
fn a_row_major_array_is_handed_over_and_back_without_a_copy() {
    let given = counted();
    let (first, wanted) = (given.as_ptr().cast::<u8>(), given.clone());
    let taken = Array::from(given);
    assert_eq!((taken.shape(), taken.dtype()), (&[2, 3, 4][..], DType::F64));
    assert_eq!(address(&taken), first);
    let view: ndarray::ArrayView3<f64> = (&taken).try_into().unwrap();
    assert_eq!((view.as_ptr().cast::<u8>(), view), (first, wanted.view()));
    let back: Array3<f64> = taken.try_into().unwrap();
    assert_eq!((back.as_ptr().cast::<u8>(), back), (first, wanted));
}

#[test]
fn elements_of_any_layout_arrive_in_row_major_order() {
    let given = counted();
    let views = [
        given.view().into_dyn(),
        given.view().reversed_axes().into_dyn(),
        given.view().permuted_axes([1, 0, 2]).into_dyn(),
        given.slice(s![.., 1.., ..;2]).into_dyn(),
        given.slice(s![..;-1, .., ..;-3]).into_dyn(),
        given.index_axis(Axis(1), 2).into_dyn(),
    ];
    for view in &views {
        let taken = Array::from(view);
        assert_eq!(taken.shape(), view.shape());
        assert_eq!(taken.to_f64(), view.iter().copied().collect::<Vec<_>>());
        // An owned copy of a view may keep the order of its strides.
        assert_eq!(Array::from(view.to_owned()), taken);
    }
    let broadcast = array![1.0, 2.0];
    let broadcast = broadcast.broadcast((3, 2)).unwrap();
    assert_eq!(Array::from(&broadcast).to_f64(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn owned_arrays_that_are_column_major_or_sliced_arrive_in_row_major_order() {
    let columns = Array2::from_shape_vec((2, 3).f(), vec![1, 4, 2, 5, 3, 6]).unwrap();
    assert_eq!(Array::from(columns), Array::from_i32([2, 3], vec![1, 2, 3, 4, 5, 6]).unwrap());
    // A slice that begins inside keeps the elements before it and behind it.
    let middle = Array2::from_shape_fn((4, 2), |(i, j)| (2 * i + j) as f32).slice_move(s![1..3, ..]);
    assert_eq!(Array::from(middle), Array::from_f32([2, 2], vec![2.0, 3.0, 4.0, 5.0]).unwrap());
    let turned = Array1::from(vec![1.0, 2.0, 3.0]).slice_move(s![..;-1]);
    assert_eq!(Array::from(turned).to_f64(), [3.0, 2.0, 1.0]);
}

#[test]
fn numbers_without_axes_and_arrays_without_elements_convert() {
    assert_eq!(Array::from(ndarray::arr0(2.5)), Array::scalar(2.5, DType::F64));
    let empty = Array::from(Array2::<f32>::zeros((0, 3)));
    assert_eq!((empty.shape(), empty.data()), (&[0, 3][..], &Data::F32(vec![].into())));
    let back: ArrayD<f32> = empty.try_into().unwrap();
    assert_eq!(back.shape(), [0, 3]);
}

#[test]
fn another_type_or_number_of_axes_is_refused_with_both() {
    let array = Array::from_f32([2, 3], vec![0.0; 6]).unwrap();
    let said = Array2::<f64>::try_from(array.clone()).unwrap_err().to_string();
    assert_eq!(said, "f32[2, 3] is not a 2-dimensional array of f64");
    let said = Array1::<f32>::try_from(array.clone()).unwrap_err().to_string();
    assert_eq!(said, "f32[2, 3] is not a 1-dimensional array of f32");
    let said = ArrayView2::<i32>::try_from(&array).unwrap_err().to_string();
    assert_eq!(said, "f32[2, 3] is not a 2-dimensional array of i32");
    assert!(ArrayD::<f32>::try_from(array).is_ok());
}
