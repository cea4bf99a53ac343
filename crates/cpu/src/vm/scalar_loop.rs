//! A whole loop of scalar steps at once: loop-invariant operands are loaded once, carried values stay in registers, and
//! values that only an output needs are computed in the last step.

use crate::runtime::memory::{Address, Memory, SCRATCH};
use crate::vm::scalar_vm::{Action, Scalars};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A loop whose body is one scalar program.
pub(crate) struct ScalarLoop {
    scalars: Scalars,
    /// Loads before the first step.
    first: Vec<Action>,
    /// A step but the last.
    every: Vec<Action>,
    /// (to, from) at the end of such a step: carried values that could not be computed in place.
    moves: Vec<(u16, u16)>,
    /// The last step, with the stores of outputs and of carried values.
    last: Vec<Action>,
    /// The register of the step's number.
    counter: Option<u16>,
}

impl ScalarLoop {
    /// The loop over steps of this program, whose number is at the place `counter`; `None` if it has to be run step by
    /// step.
    pub fn new(scalars: &Scalars, counter: Option<Address>) -> Option<Self> {
        let (mut first, mut body, mut outputs, mut carried) = (vec![], vec![], vec![], vec![]);
        let mut number = None;
        let mut stored: HashMap<Address, Vec<u16>> = HashMap::new();
        for (register, place) in scalars.actions.iter().filter_map(store) {
            stored.entry(place).or_default().push(register);
        }
        for &action in &scalars.actions {
            match (load(&action), store(&action)) {
                (Some((register, place)), _) if Some(place) == counter => number = Some(register),
                (Some((register, place)), _) => {
                    first.push(action);
                    if let Some(from) = stored.get(&place).and_then(|all| all.first()) {
                        carried.push((register, *from, place));
                    }
                }
                (_, Some((_, place))) => {
                    let twice = stored.get(&place).is_some_and(|all| all.len() > 1);
                    if twice || counter == Some(place) {
                        return None;
                    }
                    outputs.push(action);
                }
                _ => body.push(action),
            }
        }
        // One value carried into two places, or from one carried value to another, would need an order of moves.
        let targets: HashSet<u16> = carried.iter().map(|(to, ..)| *to).collect();
        if carried.iter().any(|(_, from, _)| targets.contains(from)) {
            return None;
        }
        let places: HashSet<Address> = carried.iter().map(|c| c.2).collect();
        let carries = |action: &Action| store(action).is_some_and(|(_, place)| places.contains(&place));
        let (end, outputs): (Vec<Action>, Vec<Action>) = outputs.into_iter().partition(carries);
        let wanted: Vec<u16> = carried.iter().map(|(_, from, _)| *from).collect();
        let mut every = fused(needed(&body, &wanted, scalars), &wanted, scalars);
        let mut moves: Vec<(u16, u16)> = carried.iter().map(|(to, from, _)| (*to, *from)).collect();
        let in_place = InPlace::new(&every, &wanted, scalars);
        moves.retain(|&(to, from)| !in_place.write(&mut every, to, from));
        let shown = outputs.iter().filter_map(store).map(|(register, _)| register);
        let mut last = fused(body, &wanted.iter().copied().chain(shown).collect::<Vec<_>>(), scalars);
        last.extend(outputs);
        last.extend(end);
        Some(ScalarLoop { scalars: scalars.clone(), first, every, moves, last, counter: number })
    }

    /// # Safety
    /// As for [`Scalars::run`].
    pub unsafe fn run(&self, steps: Range<u32>, memory: Memory) {
        let final_step = steps.end.wrapping_sub(1);
        // SAFETY: the registers and places are those of the scalar program.
        unsafe {
            let registers = memory.region(SCRATCH).cast::<f64>();
            self.scalars.write_constants(memory);
            self.scalars.execute(&self.first, memory);
            for step in steps {
                if let Some(register) = self.counter {
                    registers.add(register as usize).write(step as i32 as f64);
                }
                if step == final_step {
                    self.scalars.execute(&self.last, memory);
                    break;
                }
                self.scalars.execute(&self.every, memory);
                for &(to, from) in &self.moves {
                    registers.add(to as usize).write(registers.add(from as usize).read());
                }
            }
        }
    }
}

/// Register and place of an action that only loads, or only stores.
fn load(action: &Action) -> Option<(u16, Address)> {
    match *action {
        Action::LoadF64(register, place) => Some((register, place)),
        Action::Load(t) => Some((t.register, t.place)),
        _ => None,
    }
}

fn store(action: &Action) -> Option<(u16, Address)> {
    match *action {
        Action::StoreF64(register, place) => Some((register, place)),
        Action::Store(t) => Some((t.register, t.place)),
        _ => None,
    }
}

/// The register an action writes and those it reads; one it does not use is given twice.
fn registers(action: &Action, scalars: &Scalars) -> (u16, [u16; 3]) {
    use Action::*;
    match *action {
        Add(d, a, b) | Sub(d, a, b) | Mul(d, a, b) | Div(d, a, b) | LessEqual(d, a, b) => (d, [a, b, a]),
        MulAdd(d, a, b, c) | MulSub(d, a, b, c) | SubMul(d, a, b, c) | Select(d, a, b, c) => (d, [a, b, c]),
        Compute(i) => (i.dst, [i.a, i.b, i.c]),
        Draw(number) => {
            let draw = &scalars.draws[number as usize];
            (draw.dst, [draw.counter; 3])
        }
        LoadF64(register, _) | StoreF64(register, _) => (register, [register; 3]),
        Load(t) | Store(t) => (t.register, [t.register; 3]),
    }
}

/// The actions that these registers depend on.
fn needed(actions: &[Action], wanted: &[u16], scalars: &Scalars) -> Vec<Action> {
    let mut wanted: HashSet<u16> = wanted.iter().copied().collect();
    let mut kept = vec![];
    for action in actions.iter().rev() {
        let (result, operands) = registers(action, scalars);
        if wanted.contains(&result) {
            wanted.extend(operands);
            kept.push(*action);
        }
    }
    kept.reverse();
    kept
}

/// The writes and last reads of registers, and how often they are carried.
#[derive(Default)]
struct InPlace {
    written: HashMap<u16, usize>,
    last_read: HashMap<u16, usize>,
    carried: HashMap<u16, usize>,
}

impl InPlace {
    fn new(actions: &[Action], wanted: &[u16], scalars: &Scalars) -> Self {
        let mut found = InPlace::default();
        for (at, action) in actions.iter().enumerate() {
            let (result, operands) = registers(action, scalars);
            found.written.entry(result).or_insert(at);
            for register in operands {
                found.last_read.insert(register, at);
            }
        }
        wanted.iter().for_each(|&register| *found.carried.entry(register).or_default() += 1);
        found
    }

    /// Lets the action that computes `from` write to `to` at once, if nothing reads the old `to` afterwards and `from`
    /// is carried only once. Returns false if that is impossible. Reads do not change.
    fn write(&self, actions: &mut [Action], to: u16, from: u16) -> bool {
        let Some(&place) = self.written.get(&from) else { return false };
        let shared = self.carried.get(&from).is_some_and(|&times| times > 1);
        let late = [to, from].iter().any(|register| self.last_read.get(register).is_some_and(|&at| at > place));
        !shared && !late && redirect(&mut actions[place], to)
    }
}

/// Makes an action write to another register; false for one whose result is written elsewhere than in itself.
fn redirect(action: &mut Action, to: u16) -> bool {
    use Action::*;
    match action {
        Add(d, ..) | Sub(d, ..) | Mul(d, ..) | Div(d, ..) | LessEqual(d, ..) => *d = to,
        MulAdd(d, ..) | MulSub(d, ..) | SubMul(d, ..) | Select(d, ..) => *d = to,
        Compute(instruction) => instruction.dst = to,
        Draw(_) | LoadF64(..) | StoreF64(..) | Load(_) | Store(_) => return false,
    }
    true
}

/// A product that only one sum or difference reads becomes part of it.
fn fused(actions: Vec<Action>, wanted: &[u16], scalars: &Scalars) -> Vec<Action> {
    let mut uses: HashMap<u16, usize> = HashMap::new();
    let mut products: HashMap<u16, usize> = HashMap::new();
    for (at, action) in actions.iter().enumerate() {
        match *action {
            // An unused third operand repeats the first.
            Action::Add(_, a, b) | Action::Sub(_, a, b) | Action::Mul(_, a, b) | Action::Div(_, a, b) => {
                [a, b].iter().for_each(|&register| *uses.entry(register).or_default() += 1);
            }
            // Read by anything else, a product has to be there by itself.
            _ => registers(action, scalars).1.iter().for_each(|&register| *uses.entry(register).or_default() += 2),
        }
        if let Action::Mul(result, ..) = *action {
            products.insert(result, at);
        }
    }
    wanted.iter().for_each(|&register| *uses.entry(register).or_default() += 2);
    let mut kept: Vec<Option<Action>> = actions.into_iter().map(Some).collect();
    for at in 0..kept.len() {
        let product = |register: u16| {
            let found = *products.get(&register).filter(|&&found| found < at)?;
            let Some(Action::Mul(_, a, b)) = kept[found] else { return None };
            (uses.get(&register) == Some(&1)).then_some((found, a, b))
        };
        let replaced = match kept[at] {
            Some(Action::Add(d, x, y)) => (product(x).map(|(i, a, b)| (i, Action::MulAdd(d, a, b, y))))
                .or_else(|| product(y).map(|(i, a, b)| (i, Action::MulAdd(d, a, b, x)))),
            Some(Action::Sub(d, x, y)) => (product(x).map(|(i, a, b)| (i, Action::MulSub(d, a, b, y))))
                .or_else(|| product(y).map(|(i, a, b)| (i, Action::SubMul(d, a, b, x)))),
            _ => None,
        };
        if let Some((product, action)) = replaced {
            kept[at] = Some(action);
            kept[product] = None;
        }
    }
    kept.into_iter().flatten().collect()
}
