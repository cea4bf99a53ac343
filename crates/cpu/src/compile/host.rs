//! The step of a function that user code computes, on 64-bit floats.

use crate::runtime::memory::{Address, Memory};
use bilevel_graph::{DType, HostCall, Line, Result};
use std::borrow::Cow;

/// A dense array in the memory of a run.
pub(crate) struct HostArray {
    pub at: Address,
    pub count: usize,
    pub dtype: DType,
}

impl HostArray {
    /// The elements: those in memory, or a conversion of them.
    ///
    /// # Safety
    /// The array must lie in this memory, and nothing may write to it while the elements are in use.
    unsafe fn read<'a>(&self, memory: Memory) -> Cow<'a, [f64]> {
        // SAFETY: the caller guarantees that the plan placed `count` elements of this type here.
        unsafe {
            let start = memory.at(self.at).cast_const();
            match self.dtype {
                DType::F64 => Cow::Borrowed(std::slice::from_raw_parts(start.cast(), self.count)),
                DType::F32 => widened(std::slice::from_raw_parts(start.cast::<f32>(), self.count)),
                DType::I32 => widened(std::slice::from_raw_parts(start.cast::<i32>(), self.count)),
            }
        }
    }

    /// Stores these elements, rounded to the type.
    ///
    /// # Safety
    /// As for [`read`](Self::read), and nothing may read the array either.
    unsafe fn write(&self, memory: Memory, values: &[f64]) {
        // SAFETY: the caller guarantees that the plan placed `count` elements of this type here.
        unsafe {
            let start = memory.at(self.at);
            match self.dtype {
                DType::F64 => std::slice::from_raw_parts_mut(start.cast::<f64>(), self.count).copy_from_slice(values),
                DType::F32 => {
                    let to = std::slice::from_raw_parts_mut(start.cast::<f32>(), self.count);
                    to.iter_mut().zip(values).for_each(|(to, value)| *to = *value as f32);
                }
                DType::I32 => {
                    let to = std::slice::from_raw_parts_mut(start.cast::<i32>(), self.count);
                    to.iter_mut().zip(values).for_each(|(to, value)| *to = *value as i32);
                }
            }
        }
    }
}

fn widened<'a, T: Copy + Into<f64>>(values: &[T]) -> Cow<'a, [f64]> {
    Cow::Owned(values.iter().map(|&value| value.into()).collect())
}

/// A call with its operands and its result. The result is computed outside the run's memory, which user code never sees to write to.
pub(crate) struct HostStep {
    pub call: HostCall,
    pub operands: Vec<HostArray>,
    pub result: HostArray,
}

impl HostStep {
    /// Calls the function.
    ///
    /// # Safety
    /// `memory` must be laid out as the plan says and belong to this run alone.
    pub unsafe fn run(&self, memory: Memory, location: Line) -> Result<()> {
        let mut result = vec![0.0; self.result.count];
        // SAFETY: the arrays are the plan's, and no other step runs while the function does.
        unsafe {
            let operands: Vec<Cow<[f64]>> = self.operands.iter().map(|array| array.read(memory)).collect();
            let operands: Vec<&[f64]> = operands.iter().map(|operand| &**operand).collect();
            self.call.evaluate(&operands, &mut result, location)?;
            self.result.write(memory, &result);
        }
        Ok(())
    }

    /// The step in a line.
    pub fn describe(&self) -> String {
        format!("host function {}", self.call.function().name())
    }
}
