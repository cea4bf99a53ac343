//! idx, the format of MNIST: `[0, 0, type, axes]`, then the length of each axis and the numbers, all with the highest
//! byte first.

use crate::element::{Element, Order};
use crate::error::Result;
use crate::images::{Images, LabelledImages};
use crate::input::Input;
use crate::numbers::Numbers;

/// Reads an array.
///
/// ```
/// use bilevel_data::{Input, readers::idx};
/// let file = [0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];
/// let numbers = idx::read(Input::from_bytes("six", file))?;
/// assert_eq!((numbers.shape(), numbers.to_f64()), (&[2, 3][..], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
/// let error = idx::read(Input::from_bytes("five", &file[..17])).unwrap_err().to_string();
/// assert_eq!(error, "five declares 6 bytes for the shape [2, 3] but has 5: it is truncated");
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read(input: impl Into<Input>) -> Result<Numbers> {
    let input = input.into();
    let bytes = input.bytes()?;
    let no_idx = || input.damaged("is not an idx file: it does not begin with two zeros, a type and a number of axes");
    let (&[zero, also_zero, kind, axes], rest) = bytes.split_first_chunk().ok_or_else(no_idx)?;
    let element = match kind {
        _ if (zero, also_zero) != (0, 0) => return Err(no_idx()),
        0x08 => Element::U8,
        0x09 => Element::I8,
        0x0b => Element::I16,
        0x0c => Element::I32,
        0x0d => Element::F32,
        0x0e => Element::F64,
        _ => return Err(no_idx()),
    };
    let header = 4 * usize::from(axes);
    let (lengths, numbers) = rest.split_at_checked(header).ok_or_else(|| input.damaged("ends within its header"))?;
    let (lengths, _) = lengths.as_chunks::<4>();
    let shape = lengths.iter().map(|length| u32::from_be_bytes(*length) as usize).collect();
    element.numbers(Order::Big, shape, numbers, &input.limits(), input.name())
}

/// Reads grey images `[n, h, w]` and their labels `[n]` from two files, as MNIST has them.
///
/// ```
/// use bilevel_data::{Input, readers::idx};
/// let images = Input::from_bytes("images", [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7, 9]);
/// let labels = Input::from_bytes("labels", [0, 0, 8, 1, 0, 0, 0, 2, 1, 0]);
/// let set = idx::read_labelled(images, labels, 2)?;
/// assert_eq!((set.images.shape(), set.labels), ([2, 1, 1, 1], vec![1, 0]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read_labelled(images: impl Into<Input>, labels: impl Into<Input>, classes: usize) -> Result<LabelledImages> {
    let (images, labels) = (images.into(), labels.into());
    let numbers = read(&images)?;
    let shape = match *numbers.shape() {
        [count, height, width] => [count, 1, height, width],
        ref other => return Err(images.damaged(format!("has the shape {other:?}, but images have three axes"))),
    };
    let pixels = numbers.into_bytes().ok_or_else(|| images.damaged("holds numbers that are not bytes"))?;
    let numbers = read(&labels)?.labels(classes).map_err(|error| labels.damaged(format!("has no labels: {error}")))?;
    if numbers.len() != shape[0] {
        let reason = format!("has {} labels, but {} has {} images", numbers.len(), images.name(), shape[0]);
        return Err(labels.damaged(reason));
    }
    LabelledImages::new(Images::new(shape, pixels)?, numbers, (0..classes).map(|class| class.to_string()).collect())
}
