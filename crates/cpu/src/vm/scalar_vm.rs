//! Loops over a single element: a handful of numbers in registers, a nanosecond or two per operation, while a tile
//! kernel would spend most of its time in the call.
//!
//! Values are kept as `f64`, which holds every `f32` and `i32` exactly; after each operation they are rounded to their type.
//! For +, −, ·, / and √ that gives the same bits as computing in `f32`, since `f64` has more than twice its digits.

use crate::compile::tile_build::Surroundings;
use crate::kernels;
use crate::kernels::RandomFn;
use crate::runtime::memory::{Address, Memory, SCRATCH};
use bilevel_graph::{BinaryOp, DType, Precision, UnaryOp, scalar};
use bilevel_plan::{Elementwise, Kind, Operand};
use std::collections::HashMap;

/// The operation of an instruction on registers a, b and c.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    Copy,
    Round(Precision),
    Unary(UnaryOp),
    Binary(BinaryOp),
    Select,
}

/// dst = code(a, b, c), rounded to the type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarInstruction {
    code: Code,
    dtype: DType,
    pub dst: u16,
    pub a: u16,
    pub b: u16,
    pub c: u16,
}

/// A move between a register and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub register: u16,
    dtype: DType,
    pub place: Address,
}

/// A random draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    f: RandomFn,
    dtype: DType,
    stream: u32,
    pub dst: u16,
    key: Address,
    pub counter: u16,
}

/// One thing to do. The commonest, on 64-bit floats, are told apart in one jump. The first register is the result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Add(u16, u16, u16),
    Sub(u16, u16, u16),
    Mul(u16, u16, u16),
    Div(u16, u16, u16),
    /// a·b + c, rounded twice; likewise the two after it: a·b − c and c − a·b.
    MulAdd(u16, u16, u16, u16),
    MulSub(u16, u16, u16, u16),
    SubMul(u16, u16, u16, u16),
    /// 1 where a ≤ b, else 0.
    LessEqual(u16, u16, u16),
    /// b where a is not 0, else c.
    Select(u16, u16, u16, u16),
    LoadF64(u16, Address),
    StoreF64(u16, Address),
    Compute(ScalarInstruction),
    Load(Transfer),
    Store(Transfer),
    Draw(u16),
}

impl Action {
    fn load(transfer: Transfer) -> Self {
        if transfer.dtype == DType::F64 {
            Action::LoadF64(transfer.register, transfer.place)
        } else {
            Action::Load(transfer)
        }
    }

    fn store(transfer: Transfer) -> Self {
        if transfer.dtype == DType::F64 {
            Action::StoreF64(transfer.register, transfer.place)
        } else {
            Action::Store(transfer)
        }
    }
}

/// A loop over one element, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Scalars {
    /// Every register is written by one of them at most.
    pub actions: Vec<Action>,
    pub draws: Vec<Draw>,
    pub constants: Vec<(u16, f64)>,
    registers: usize,
}

/// The scalar program of a group, or `None` if some member is not elementwise on one element.
pub(crate) fn build(around: &Surroundings, group: usize) -> Option<Scalars> {
    let info = &around.schedule.groups()[group];
    if info.domain?.n != 1 {
        return None;
    }
    let mut builder = ScalarBuilder {
        around,
        group,
        found: Scalars { actions: vec![], draws: vec![], constants: vec![], registers: 0 },
        known: HashMap::new(),
        constants: HashMap::new(),
    };
    for &id in &info.members {
        builder.member(id)?;
    }
    for &(node, place) in around.copies_of(group) {
        let register = *builder.known.get(&(node, 0))?;
        let dtype = around.schedule.nodes[node].dtype;
        builder.found.actions.push(Action::store(Transfer { register, dtype, place }));
    }
    Some(builder.found)
}

struct ScalarBuilder<'a> {
    around: &'a Surroundings<'a>,
    group: usize,
    found: Scalars,
    /// The register of each element in use, by its node and its offset in the node's memory.
    known: HashMap<(usize, isize), u16>,
    /// The register of each constant, by its bits.
    constants: HashMap<u64, u16>,
}

impl ScalarBuilder<'_> {
    fn register(&mut self) -> Option<u16> {
        self.found.registers += 1;
        u16::try_from(self.found.registers - 1).ok()
    }

    fn operand(&mut self, operand: &Operand) -> Option<u16> {
        let (node, offset) = match operand {
            Operand::Constant(value) => {
                if let Some(register) = self.constants.get(&value.to_bits()) {
                    return Some(*register);
                }
                let register = self.register()?;
                self.constants.insert(value.to_bits(), register);
                self.found.constants.push((register, *value));
                return Some(register);
            }
            Operand::At { node, view } => (*node, view.offset),
        };
        if let Some(register) = self.known.get(&(node, offset)) {
            return Some(*register);
        }
        let dtype = self.around.schedule.nodes[node].dtype;
        let place = self.around.places.0[node]?.advanced(offset, dtype);
        let register = self.register()?;
        self.found.actions.push(Action::load(Transfer { register, dtype, place }));
        self.known.insert((node, offset), register);
        Some(register)
    }

    fn member(&mut self, id: usize) -> Option<()> {
        let around = self.around;
        let node = &around.schedule.nodes[id];
        let Kind::Elementwise(kind) = node.kind else { return None };
        if let Elementwise::Random(kind, stream) = kind {
            let (key, _) = node.operands[0].at()?;
            if around.schedule.group_of(key) == Some(self.group) {
                return None;
            }
            let counter = self.operand(&node.operands[1])?;
            let f = kernels::random(around.isa, kind, node.dtype)?;
            let dst = self.register()?;
            let draw = Draw { f, dtype: node.dtype, stream, dst, key: around.places.0[key]?, counter };
            self.found.actions.push(Action::Draw(self.found.draws.len() as u16));
            self.found.draws.push(draw);
            self.finish(id, dst);
            return Some(());
        }
        let operands: Vec<u16> = node.operands.iter().map(|o| self.operand(o)).collect::<Option<_>>()?;
        let at = |i: usize| operands.get(i).copied().unwrap_or(operands[0]);
        // Every number of any type is itself as an f64.
        if matches!(kind, Elementwise::Copy | Elementwise::Convert(_)) && node.dtype == DType::F64 {
            self.finish(id, operands[0]);
            return Some(());
        }
        let dst = self.register()?;
        let code = match kind {
            Elementwise::Copy | Elementwise::Convert(_) => Code::Copy,
            Elementwise::Round(precision) => Code::Round(precision),
            Elementwise::Unary(op) => Code::Unary(op),
            Elementwise::Binary(op) => Code::Binary(op),
            Elementwise::Select => Code::Select,
            Elementwise::ScaleToF16(_) | Elementwise::Unscale(_) | Elementwise::Random(..) => return None,
        };
        self.found.actions.push(match code {
            Code::Binary(BinaryOp::Add) if node.dtype == DType::F64 => Action::Add(dst, at(0), at(1)),
            Code::Binary(BinaryOp::Sub) if node.dtype == DType::F64 => Action::Sub(dst, at(0), at(1)),
            Code::Binary(BinaryOp::Mul) if node.dtype == DType::F64 => Action::Mul(dst, at(0), at(1)),
            Code::Binary(BinaryOp::Div) if node.dtype == DType::F64 => Action::Div(dst, at(0), at(1)),
            Code::Binary(BinaryOp::Le) => Action::LessEqual(dst, at(0), at(1)),
            Code::Select => Action::Select(dst, at(0), at(1), at(2)),
            _ => Action::Compute(ScalarInstruction { code, dtype: node.dtype, dst, a: at(0), b: at(1), c: at(2) }),
        });
        self.finish(id, dst);
        Some(())
    }

    /// Records a member's register and stores it for other readers.
    fn finish(&mut self, id: usize, register: u16) {
        self.known.insert((id, 0), register);
        if let Some(place) = self.around.written_at(self.group, id) {
            let dtype = self.around.schedule.nodes[id].dtype;
            self.found.actions.push(Action::store(Transfer { register, dtype, place }));
        }
    }
}

impl Scalars {
    /// Bytes of scratch it needs.
    pub fn scratch(&self) -> usize {
        self.registers * size_of::<f64>()
    }

    /// Number of things it does, for descriptions.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// # Safety
    /// `memory` must be laid out as the plan says, with this program's registers in its scratch.
    pub unsafe fn run(&self, memory: Memory) {
        // SAFETY: the caller's promise.
        unsafe {
            self.write_constants(memory);
            self.execute(&self.actions, memory);
        }
    }

    /// Gives the registers of constants their values.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn write_constants(&self, memory: Memory) {
        for &(register, value) in &self.constants {
            // SAFETY: register numbers are below `registers`, for which the plan reserved scratch.
            unsafe { memory.region(SCRATCH).cast::<f64>().add(register as usize).write(value) };
        }
    }

    /// Does these actions, which are of this program.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    pub unsafe fn execute(&self, actions: &[Action], memory: Memory) {
        // SAFETY: register numbers are below `registers`, for which the plan reserved scratch; places are inside the
        // program's memory and aligned to their type.
        unsafe {
            let registers = memory.region(SCRATCH).cast::<f64>();
            let get = |register: u16| registers.add(register as usize).read();
            let set = |register: u16, value: f64| registers.add(register as usize).write(value);
            for action in actions {
                match *action {
                    Action::Add(dst, a, b) => set(dst, get(a) + get(b)),
                    Action::Sub(dst, a, b) => set(dst, get(a) - get(b)),
                    Action::Mul(dst, a, b) => set(dst, get(a) * get(b)),
                    Action::Div(dst, a, b) => set(dst, get(a) / get(b)),
                    Action::MulAdd(dst, a, b, c) => set(dst, get(a) * get(b) + get(c)),
                    Action::MulSub(dst, a, b, c) => set(dst, get(a) * get(b) - get(c)),
                    Action::SubMul(dst, a, b, c) => set(dst, get(c) - get(a) * get(b)),
                    Action::LessEqual(dst, a, b) => set(dst, (get(a) <= get(b)) as u8 as f64),
                    Action::Select(dst, a, b, c) => set(dst, if get(a) != 0.0 { get(b) } else { get(c) }),
                    Action::LoadF64(register, place) => set(register, memory.at(place).cast::<f64>().read()),
                    Action::StoreF64(register, place) => memory.at(place).cast::<f64>().write(get(register)),
                    Action::Compute(i) => set(i.dst, compute(i.code, i.dtype, get(i.a), get(i.b), get(i.c))),
                    Action::Load(t) => set(t.register, fetch(memory.at(t.place), t.dtype)),
                    Action::Store(t) => put(memory.at(t.place), t.dtype, get(t.register)),
                    Action::Draw(number) => {
                        let d = self.draws.get_unchecked(number as usize);
                        let key = memory.at(d.key).cast::<[u32; 2]>().read();
                        let mut drawn = [0u64; 1];
                        (d.f)(drawn.as_mut_ptr().cast(), key, get(d.counter) as i32 as u32, d.stream, 0, 1);
                        set(d.dst, fetch(drawn.as_ptr().cast(), d.dtype));
                    }
                }
            }
        }
    }
}

/// The number at a place in memory.
///
/// # Safety
/// An element of this type is at `from`.
#[inline(always)]
unsafe fn fetch(from: *const u8, dtype: DType) -> f64 {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F64 => from.cast::<f64>().read(),
            DType::F32 => from.cast::<f32>().read() as f64,
            DType::I32 => from.cast::<i32>().read() as f64,
        }
    }
}

/// Writes a number to a place in memory.
///
/// # Safety
/// There is room for an element of this type at `to`.
#[inline(always)]
unsafe fn put(to: *mut u8, dtype: DType, value: f64) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F64 => to.cast::<f64>().write(value),
            DType::F32 => to.cast::<f32>().write(value as f32),
            DType::I32 => to.cast::<i32>().write(value as i32),
        }
    }
}

#[inline(always)]
fn compute(code: Code, dtype: DType, a: f64, b: f64, c: f64) -> f64 {
    match code {
        Code::Copy => scalar::round(a, dtype),
        Code::Round(precision) => precision.round(a as f32) as f64,
        Code::Select if a != 0.0 => b,
        Code::Select => c,
        Code::Unary(op) => scalar::unary(op, a, dtype),
        Code::Binary(op) => scalar::binary(op, a, b, dtype),
    }
}
