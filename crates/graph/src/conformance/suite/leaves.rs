//! Many arrays of several sizes of which the same is asked, as of the leaves of a network: an executor may do so at once.

use crate::conformance::{Case, Dice, tolerance};
use crate::{DType, Graph, Program, Result};

/// Numbers of elements: from one, over rows, to arrays shared by many blocks of threads.
const SIZES: [usize; 12] = [1, 7, 768, 40_000, 64, 768, 90_001, 300_000, 768, 2304, 40_000, 524_288];

/// Two steps of all of them, each with a norm, a largest element and a sum over all to which it is added in turn.
pub(crate) fn leaves(dtype: DType) -> Result<Case> {
    let (g, mut dice) = (Graph::new(), Dice::new(50));
    let (mut builder, mut inputs) = (Program::builder(&g), vec![]);
    let [mut squares, mut largest] = [g.constant(0.0, [], dtype); 2];
    for (number, size) in SIZES.into_iter().enumerate() {
        let names = ["x", "slope"].map(|name| format!("{name}.{number}"));
        for name in &names {
            inputs.push((name.clone(), dice.array(&[size], dtype)?));
        }
        let [x, slope] = names.map(|name| g.input(name, [size], dtype));
        let next = x - slope * 0.25;
        squares = squares + (next - x).square().sum_all();
        largest = largest.maximum(next.abs().max([0]));
        builder = builder.carry(x, next).output(number.to_string(), x.square().sum_all());
    }
    let program = builder.output("squares", squares).output("largest", largest).build()?;
    let tolerances = vec![tolerance(dtype); 2 * SIZES.len() + 2];
    Ok(Case { name: format!("leaves of several sizes in {dtype}"), program, inputs, steps: 2, tolerances })
}
