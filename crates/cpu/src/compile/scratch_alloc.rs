//! Scratch places: values of a tile that do not live at the same time share one.

use crate::vm::tile::{Instruction, Place};

/// A scratch value while instructions are collected.
pub(crate) struct Value {
    pub rows: bool,
    /// The last instruction that reads it.
    pub last_use: usize,
    /// Kept for the whole task.
    pub kept: bool,
    /// Its slot, among the values of its kind.
    pub slot: usize,
}

/// Gives every scratch value a slot and returns how many slots full values and row values need. Two values share one when
/// the first is read for the last time before the second is written. (An instruction may overwrite its operand only if
/// sizes agree, so none does.)
pub(crate) fn assign_slots(instructions: &mut [Instruction], values: &mut [Value]) -> (usize, usize) {
    let mut free: [Vec<usize>; 2] = [vec![], vec![]];
    let mut made = [0, 0];
    let mut defined = vec![usize::MAX; values.len()];
    // The values each instruction is the last to read.
    let mut ending: Vec<Vec<usize>> = vec![vec![]; instructions.len()];
    for (number, value) in values.iter().enumerate().filter(|(_, value)| !value.kept) {
        if let Some(here) = ending.get_mut(value.last_use) {
            here.push(number);
        }
    }
    for (at, instruction) in instructions.iter_mut().enumerate() {
        if let Some(number) = written(instruction)
            && defined[number] == usize::MAX
        {
            defined[number] = at;
            // A kept value is read in tiles that do not load it again, so its slot is its own.
            let class = values[number].rows as usize;
            let shared = if values[number].kept { None } else { free[class].pop() };
            values[number].slot = shared.unwrap_or_else(|| {
                made[class] += 1;
                made[class] - 1
            });
        }
        for &number in ending[at].iter().filter(|&&number| defined[number] <= at) {
            free[values[number].rows as usize].push(values[number].slot);
        }
    }
    (made[0], made[1])
}

/// The scratch value an instruction writes.
fn written(instruction: &mut Instruction) -> Option<usize> {
    let place = match instruction {
        Instruction::Sink { .. } => return None,
        other => places(other).into_iter().next()?,
    };
    place.is_scratch().then_some(place.start.offset)
}

/// All places of an instruction, the one it writes first.
pub(crate) fn places(instruction: &mut Instruction) -> Vec<&mut Place> {
    match instruction {
        Instruction::Unary { dst, a, .. } | Instruction::Repeat { dst, a, .. } | Instruction::Reduce { dst, a, .. } => {
            vec![dst, a]
        }
        Instruction::Binary { dst, a, b, .. } => vec![dst, a, b],
        Instruction::Ternary { dst, a, b, c, .. } => vec![dst, a, b, c],
        Instruction::Load { dst, .. } => vec![dst],
        Instruction::Random { dst, key, counter, .. } => vec![dst, key, counter],
        Instruction::Sink { a, .. } => vec![a],
    }
}
