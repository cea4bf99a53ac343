//! safetensors: named arrays, such as the weights of a trained network.

use crate::element::{Element, Order};
use crate::error::Result;
use crate::input::Input;
use crate::numbers::Numbers;
use safetensors::tensor::{Dtype, SafeTensors};
use std::collections::BTreeMap;

/// Reads all arrays of a file by name. 16-bit floats become 32-bit ones, booleans 0 and 1.
///
/// ```
/// use bilevel::files::save_tree;
/// use bilevel::{Array, Leaf};
/// use bilevel_data::readers::safetensors;
/// let path = std::env::temp_dir().join(format!("bilevel-doc-data-{}.safetensors", std::process::id()));
/// save_tree(&Leaf(Array::from_f32([2], vec![1.5, 2.5])?), &path)?;
/// assert_eq!(safetensors::read(&path)?[""].to_f64(), [1.5, 2.5]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read(input: impl Into<Input>) -> Result<BTreeMap<String, Numbers>> {
    let input = input.into();
    let bytes = input.bytes()?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| input.damaged(format!("is not a readable safetensors file: {error}")))?;
    let mut arrays = BTreeMap::new();
    for (name, view) in file.iter() {
        let element = element(view.dtype()).ok_or_else(|| {
            input.damaged(format!("holds '{name}' of the type {:?}, which cannot be read", view.dtype()))
        })?;
        let place = format!("{}: {name}", input.name());
        let numbers = element.numbers(Order::Little, view.shape().to_vec(), view.data(), &input.limits(), &place)?;
        arrays.insert(name.to_string(), numbers);
    }
    Ok(arrays)
}

fn element(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::BOOL | Dtype::U8 => Element::U8,
        Dtype::I8 => Element::I8,
        Dtype::U16 => Element::U16,
        Dtype::I16 => Element::I16,
        Dtype::U32 => Element::U32,
        Dtype::I32 => Element::I32,
        Dtype::U64 => Element::U64,
        Dtype::I64 => Element::I64,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::Bf16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        _ => return None,
    })
}
