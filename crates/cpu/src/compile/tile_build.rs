//! From a group to a tile program: every member becomes an instruction. Values without other readers stay in scratch,
//! which is shared between values with disjoint lifetimes.

use crate::compile::scratch_alloc::{Value, assign_slots, places};
use crate::kernels;
use crate::kernels::{Arity, Isa};
use crate::runtime::memory::{Address, CONSTANTS, Places};
use crate::vm::tile::{Advance, Instruction, Load, Place, Sink, TileProgram};
use bilevel_graph::shape::other_axes;
use bilevel_graph::{DType, ReduceOp, Result};
use bilevel_plan::{
    Access, Domain, Elementwise, Kind, Operand, Role, Run, Schedule, View, expect, internal_error, repeats_rows,
};
use std::collections::HashMap;

/// Scratch a tile's live values should fit: most of a first-level cache.
const TILE_SCRATCH_BYTES: usize = 24 * 1024;
/// Element operations worth a separate task.
const TASK_WORK: usize = 1 << 17;
const MAX_TASKS: usize = 32;
/// Tasks that keep separate sums.
const MAX_SINK_TASKS: usize = 8;

/// The surrounding plan of a group.
pub(crate) struct Surroundings<'a> {
    pub schedule: &'a Schedule,
    pub places: &'a Places,
    /// Members written at the end of each tile, by group: (node, place). For carries updated in place, whose old values other
    /// members may read before.
    pub copies: &'a HashMap<usize, Vec<(usize, Address)>>,
    pub isa: Isa,
}

impl Surroundings<'_> {
    /// The copies of this group at the end of each tile.
    pub fn copies_of(&self, group: usize) -> &[(usize, Address)] {
        self.copies.get(&group).map_or(&[], |copies| copies)
    }

    /// The address of a member that is written when computed, rather than at the end of each tile.
    pub fn written_at(&self, group: usize, node: usize) -> Option<Address> {
        self.places.0[node].filter(|&place| !self.copies_of(group).contains(&(node, place)))
    }

    /// The place of a node's memory, which it must have.
    fn place(&self, node: usize) -> Result<Address> {
        self.places.of(self.schedule, node)
    }
}

/// The constants of a program, each once.
#[derive(Default)]
pub(crate) struct Constants {
    /// Their bits, in the order of their places.
    pub bits: Vec<u64>,
    number: HashMap<u64, usize>,
}

impl Constants {
    fn place(&mut self, bits: u64) -> Address {
        let number = *self.number.entry(bits).or_insert_with(|| {
            self.bits.push(bits);
            self.bits.len() - 1
        });
        Address { region: CONSTANTS, offset: number * size_of::<u64>() }
    }
}

/// A value of a tile: in scratch, or in memory as the plan placed it.
#[derive(Clone, Copy)]
enum ValueSource {
    /// Scratch value, by number.
    Value(usize),
    Memory(Place),
}

struct TileBuilder<'a> {
    around: &'a Surroundings<'a>,
    group: usize,
    domain: Domain,
    row: usize,
    constants: &'a mut Constants,
    values: Vec<Value>,
    /// Instructions whose scratch places hold value numbers until slots are given.
    instructions: Vec<Instruction>,
    loads: Vec<Load>,
    sinks: Vec<Sink>,
    /// The location of each member's value.
    members: HashMap<usize, ValueSource>,
    /// Operands brought into a tile already: node, view, whether by rows.
    loaded: HashMap<(usize, View, bool), ValueSource>,
    wide: bool,
}

/// How a loop is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Elements in a row.
    pub row: usize,
    /// Tasks, or pieces of a product.
    pub parts: usize,
    /// The parts are pieces of the product whose epilogue the loop is.
    pub pieces: bool,
}

impl Cut {
    /// A loop that runs by itself.
    pub fn into_tasks(schedule: &Schedule, group: usize) -> Self {
        Cut { row: row_of(schedule, group), parts: task_count(schedule, group), pieces: false }
    }
}

/// Rows of a group's loop: those of its reductions, or, without any, those its strided operands suggest.
fn row_of(schedule: &Schedule, group: usize) -> usize {
    let Some(domain) = schedule.groups()[group].domain else { return 1 };
    if let Some(row) = domain.row {
        return row;
    }
    let mut best = 1;
    let product = schedule.groups()[group].gemm;
    for &id in schedule.groups()[group].members.iter().filter(|&&id| Some(id) != product) {
        for (node, view) in schedule.nodes[id].reads() {
            let runs = view.runs();
            if view.count() != domain.n || schedule.group_of(node) == Some(group) || runs.len() < 2 {
                continue;
            }
            let length = runs[runs.len() - 1].length;
            if length > best && length <= 4096 && domain.n.is_multiple_of(length) && length % best == 0 {
                best = length;
            }
        }
    }
    best
}

/// Number of tasks of a group's loop; sinks need memory for each.
fn task_count(schedule: &Schedule, group: usize) -> usize {
    let Some(domain) = schedule.groups()[group].domain else { return 1 };
    let members = &schedule.groups()[group].members;
    let weight: usize = members.iter().map(|&id| weight(&schedule.nodes[id].kind)).sum();
    let mut tasks = (domain.n.saturating_mul(weight) / TASK_WORK).clamp(1, MAX_TASKS);
    for &id in members {
        if let Some(Role::Reduction { .. }) = schedule.role(id) {
            let count = schedule.nodes[id].count().max(1);
            tasks = tasks.min(MAX_SINK_TASKS).min((domain.n / (4 * count)).max(1));
        }
    }
    tasks.min((domain.n / row_of(schedule, group).max(64)).max(1))
}

fn weight(kind: &Kind) -> usize {
    use bilevel_graph::{BinaryOp, UnaryOp};
    match kind {
        Kind::Elementwise(Elementwise::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Floor)) => 1,
        Kind::Elementwise(
            Elementwise::Unary(_) | Elementwise::Binary(BinaryOp::Pow | BinaryOp::Polygamma) | Elementwise::Random(..),
        ) => 6,
        _ => 1,
    }
}

/// Builds the loop of a group. Given the loop of all its members, builds the one of those that every step needs, in the same
/// tiles, so that its results have the same bits.
pub(crate) fn build(
    around: &Surroundings,
    group: usize,
    constants: &mut Constants,
    partial: &HashMap<usize, Address>,
    cut: Cut,
    all: Option<&TileProgram>,
) -> Result<TileProgram> {
    let info = &around.schedule.groups()[group];
    let domain = info.domain.ok_or_else(|| internal_error("what a loop runs over"))?;
    let wide = info.members.iter().any(|&id| {
        let node = &around.schedule.nodes[id];
        node.dtype == DType::F64 || node.reads().any(|(n, _)| around.schedule.nodes[n].dtype == DType::F64)
    });
    let mut builder = TileBuilder {
        around,
        group,
        domain,
        row: cut.row,
        constants,
        values: vec![],
        instructions: vec![],
        loads: vec![],
        sinks: vec![],
        members: HashMap::new(),
        loaded: HashMap::new(),
        wide,
    };
    if let Some(product) = info.gemm {
        // The loop reads it in place.
        let (start, size) = (around.place(product)?, around.schedule.nodes[product].dtype.size());
        builder.members.insert(product, ValueSource::Memory(Place { start, advance: Advance::Full, size }));
    }
    let computed = |id: usize| Some(id) != info.gemm && (all.is_none() || around.schedule.in_every_step(id));
    for &id in info.members.iter().filter(|&&id| computed(id)) {
        builder.member(id, partial)?;
    }
    for &(node, place) in around.copies_of(group) {
        let (dtype, rows) = (around.schedule.nodes[node].dtype, around.schedule.role(node) == Some(Role::Row));
        let a = builder.member_source(node)?;
        let a = builder.use_source(a);
        let dst = Place { start: place, advance: advance(rows), size: dtype.size() };
        builder.instructions.push(Instruction::Unary { f: kernels::copy(dtype), dst, a, rows });
    }
    Ok(builder.finish(cut, all.map(|all| all.rows_per_tile)))
}

impl TileBuilder<'_> {
    fn isa(&self) -> Isa {
        self.around.isa
    }

    fn member_source(&self, node: usize) -> Result<ValueSource> {
        let found = self.members.get(&node).copied();
        expect(found, "a value of a loop before it is read", self.around.schedule.nodes[node].location)
    }

    /// Marks a use and gives the place to read, scratch places being value numbers for now.
    fn use_source(&mut self, source: ValueSource) -> Place {
        match source {
            ValueSource::Memory(place) => place,
            ValueSource::Value(number) => {
                self.values[number].last_use = self.instructions.len();
                Place::scratch(number)
            }
        }
    }

    fn new_value(&mut self, rows: bool) -> Place {
        self.values.push(Value { rows, last_use: self.instructions.len(), kept: false, slot: 0 });
        Place::scratch(self.values.len() - 1)
    }

    fn constant(&mut self, value: f64, dtype: DType) -> Place {
        let bits = match dtype {
            DType::F32 => (value as f32).to_bits() as u64,
            DType::F64 => value.to_bits(),
            DType::I32 => value as i32 as u32 as u64,
        };
        Place { start: self.constants.place(bits), advance: Advance::Fixed, size: 0 }
    }

    /// Makes an operand readable for an instruction, and returns whether it is a scalar.
    fn operand(&mut self, id: usize, operand: &Operand, role: Role, dtype: DType) -> Result<(Place, Arity)> {
        let rows = matches!(role, Role::Row | Role::Reduction { full: false });
        let single = self.domain.n == 1;
        let (node, view) = match operand {
            Operand::Constant(value) => {
                let place = self.constant(*value, dtype);
                return Ok((place, if single { Arity::Tile } else { Arity::Scalar }));
            }
            Operand::At { node, view } => (*node, view),
        };
        let access = self.around.schedule.access(id, operand);
        match expect(access, "a way for a loop to read its own value", self.around.schedule.nodes[id].location)? {
            Access::Register => {
                let source = self.member_source(node)?;
                Ok((self.use_source(source), Arity::Tile))
            }
            Access::Repeat => {
                let source = self.member_source(node)?;
                Ok((self.repeat(node, view, source), Arity::Tile))
            }
            Access::Memory => self.memory_operand(node, view, rows, single),
        }
    }

    fn repeat(&mut self, node: usize, view: &View, source: ValueSource) -> Place {
        if let Some(place) = self.already(node, view, false) {
            return place;
        }
        let a = self.use_source(source);
        let dst = self.new_value(false);
        let f = kernels::repeat(self.isa(), self.around.schedule.nodes[node].dtype);
        self.instructions.push(Instruction::Repeat { f, dst, a });
        self.remember(node, view, false, dst)
    }

    fn already(&mut self, node: usize, view: &View, rows: bool) -> Option<Place> {
        let found = *self.loaded.get(&(node, view.clone(), rows))?;
        Some(self.use_source(found))
    }

    fn remember(&mut self, node: usize, view: &View, rows: bool, place: Place) -> Place {
        let source = ValueSource::Value(place.start.offset);
        self.loaded.insert((node, view.clone(), rows), source);
        self.use_source(source)
    }

    fn memory_operand(&mut self, node: usize, view: &View, rows: bool, single: bool) -> Result<(Place, Arity)> {
        let schedule = self.around.schedule;
        let dtype = schedule.nodes[node].dtype;
        let size = dtype.size();
        let start = self.around.place(node)?.advanced(view.offset, dtype);
        let runs = view.runs();
        let fixed = Place { start, advance: Advance::Fixed, size };
        let advancing = Place { start, advance: advance(rows), size };
        match runs[..] {
            _ if single => return Ok((fixed, Arity::Tile)),
            [] => return Ok((fixed, Arity::Scalar)),
            [Run { stride: 0, .. }] => return Ok((fixed, Arity::Scalar)),
            [Run { stride: 1, .. }] => return Ok((advancing, Arity::Tile)),
            _ => {}
        }
        let whole_rows = view.count() / self.row;
        if !rows && self.row > 1 && view.offset == 0 && repeats_rows(view, whole_rows, self.row) {
            let source = ValueSource::Memory(Place { start, advance: Advance::Row, size });
            return Ok((self.repeat(node, view, source), Arity::Tile));
        }
        if let Some(place) = self.already(node, view, rows) {
            return Ok((place, Arity::Tile));
        }
        let once = !rows && same_in_every_row(&runs, self.row);
        let isa = self.isa();
        self.loads.push(Load {
            from: fixed,
            runs,
            copy: kernels::copy(dtype),
            fill: kernels::fill(isa, dtype),
            strided: kernels::copy_strided(isa, dtype),
            once,
        });
        let dst = self.new_value(rows);
        self.values[dst.start.offset].kept = once;
        self.instructions.push(Instruction::Load { load: self.loads.len() - 1, dst, rows });
        Ok((self.remember(node, view, rows, dst), Arity::Tile))
    }

    /// A tile of an operand that is one element for all.
    fn filled(&mut self, (place, arity): (Place, Arity), dtype: DType, rows: bool) -> Place {
        if arity == Arity::Tile {
            return place;
        }
        let dst = self.new_value(rows);
        let f = kernels::fill(self.isa(), dtype);
        self.instructions.push(Instruction::Unary { f, dst, a: place, rows });
        self.use_source(ValueSource::Value(dst.start.offset))
    }

    /// The destination of a member's value: its memory if others need it, otherwise scratch.
    fn destination(&mut self, id: usize, rows: bool) -> Place {
        match self.around.written_at(self.group, id) {
            Some(start) => {
                let place = Place { start, advance: advance(rows), size: self.around.schedule.nodes[id].dtype.size() };
                self.members.insert(id, ValueSource::Memory(place));
                place
            }
            None => {
                let place = self.new_value(rows);
                self.members.insert(id, ValueSource::Value(place.start.offset));
                place
            }
        }
    }

    fn member(&mut self, id: usize, partial: &HashMap<usize, Address>) -> Result<()> {
        let schedule = self.around.schedule;
        let node = &schedule.nodes[id];
        let role = expect(self.around.schedule.role(id), "what a member is to its loop", node.location)?;
        let rows = matches!(role, Role::Row | Role::Reduction { full: false });
        match &node.kind {
            Kind::Elementwise(kind) => self.elementwise(id, *kind, role, rows),
            Kind::ArgMax => self.row_reduction(id, kernels::row_argmax),
            Kind::Reduce(ReduceOp::Sum, _) if role == Role::Row => self.row_reduction(id, kernels::row_sum),
            Kind::Reduce(ReduceOp::Max, _) if role == Role::Row => self.row_reduction(id, kernels::row_max),
            Kind::Reduce(op, axes) => {
                let partial = *expect(partial.get(&id), "room for the sums of a loop's tasks", node.location)?;
                self.sink(id, *op, axes, role, rows, partial)
            }
            _ => Err(internal_error("a way to run an operation inside a loop").at(node.location)),
        }
    }

    fn elementwise(&mut self, id: usize, kind: Elementwise, role: Role, rows: bool) -> Result<()> {
        let node = &self.around.schedule.nodes[id];
        let (dtype, isa, line) = (node.dtype, self.isa(), node.location);
        let (kernel, all) = ("the kernel of an operation", "all operands of an operation");
        let from = |o: &Operand| o.at().map_or(dtype, |(n, _)| self.around.schedule.nodes[n].dtype);
        let operand_dtype = from(&node.operands[0]);
        let mut operands: Vec<(Place, Arity)> = vec![];
        for operand in &node.operands {
            let place = match kind {
                Elementwise::Random(..) => (self.fixed(operand)?, Arity::Tile),
                _ => self.operand(id, operand, role, operand_dtype)?,
            };
            operands.push(place);
        }
        match kind {
            Elementwise::Copy => {
                let (a, arity) = operands[0];
                let f = if arity == Arity::Scalar { kernels::fill(isa, dtype) } else { kernels::copy(dtype) };
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Unary { f, dst, a, rows });
            }
            Elementwise::Unary(op) => {
                let a = self.filled(operands[0], dtype, rows);
                let f = expect(kernels::unary(isa, op, dtype), kernel, line)?;
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Unary { f, dst, a, rows });
            }
            Elementwise::Convert(to) => {
                let a = self.filled(operands[0], operand_dtype, rows);
                let f = kernels::convert(isa, operand_dtype, to);
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Unary { f, dst, a, rows });
            }
            Elementwise::Round(precision) => {
                let a = self.filled(operands[0], dtype, rows);
                let f = kernels::round(isa, precision);
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Unary { f, dst, a, rows });
            }
            Elementwise::Binary(op) => {
                if operands.iter().all(|o| o.1 == Arity::Scalar) {
                    operands[0] = (self.filled(operands[0], dtype, rows), Arity::Tile);
                }
                let [(a, first), (b, second)] = operands[..] else { return Err(internal_error(all).at(line)) };
                let f = expect(kernels::binary(isa, op, dtype, first, second), kernel, line)?;
                let (a, b) = (self.touch(a), self.touch(b));
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Binary { f, dst, a, b, rows });
            }
            Elementwise::Select => {
                operands[0] = (self.filled(operands[0], dtype, rows), Arity::Tile);
                let [(a, _), (b, second), (c, third)] = operands[..] else { return Err(internal_error(all).at(line)) };
                let f = kernels::select(isa, dtype, second, third);
                let (a, b, c) = (self.touch(a), self.touch(b), self.touch(c));
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Ternary { f, dst, a, b, c, rows });
            }
            Elementwise::Random(kind, stream) => {
                let (key, counter) = (operands[0].0, operands[1].0);
                let f = expect(kernels::random(isa, kind, dtype), kernel, line)?;
                let dst = self.destination(id, rows);
                self.instructions.push(Instruction::Random { f, stream, dst, key, counter, rows });
            }
            // This machine has none.
            Elementwise::ScaleToF16(_) | Elementwise::Unscale(_) => {
                return Err(internal_error("a product of halves").at(line));
            }
        }
        Ok(())
    }

    /// A use at the next instruction, after any insertions.
    fn touch(&mut self, place: Place) -> Place {
        if place.is_scratch() { self.use_source(ValueSource::Value(place.start.offset)) } else { place }
    }

    /// A small operand read whole, from memory.
    fn fixed(&mut self, operand: &Operand) -> Result<Place> {
        let Operand::At { node, .. } = operand else {
            return Err(internal_error("the key and the counter of a draw in memory"));
        };
        if self.around.schedule.group_of(*node) == Some(self.group)
            && self.around.written_at(self.group, *node).is_none()
        {
            let source = self.member_source(*node)?;
            return Ok(self.use_source(source));
        }
        Ok(Place { start: self.around.place(*node)?, advance: Advance::Fixed, size: 4 })
    }

    fn row_reduction(&mut self, id: usize, kernel: fn(Isa, DType) -> kernels::RowsFn) -> Result<()> {
        let node = &self.around.schedule.nodes[id];
        let dtype = node.operands[0].at().map_or(node.dtype, |(n, _)| self.around.schedule.nodes[n].dtype);
        // The operand is read as full values for every kind of result.
        let operand = self.operand(id, &node.operands[0], Role::Full, dtype)?;
        let a = self.filled(operand, dtype, false);
        let f = kernel(self.isa(), dtype);
        let dst = self.destination(id, true);
        self.instructions.push(Instruction::Reduce { f, dst, a });
        Ok(())
    }

    fn sink(
        &mut self,
        id: usize,
        op: ReduceOp,
        axes: &[usize],
        role: Role,
        rows: bool,
        partial: Address,
    ) -> Result<()> {
        let (schedule, isa) = (self.around.schedule, self.isa());
        let node = &schedule.nodes[id];
        let dtype = node.dtype;
        let (_, view) = expect(node.operands[0].at(), "the operand of a reduction in memory", node.location)?;
        // Each operand axis walks the result by the result's stride, or not at all if it is reduced.
        let result = View::contiguous(&node.shape).broadcast(&other_axes(view.shape.len(), axes), &view.shape);
        let operand = self.operand(id, &node.operands[0], role, dtype)?;
        let a = self.filled(operand, dtype, rows);
        let start = match (op, dtype) {
            (ReduceOp::Sum, _) => [0; 8],
            (ReduceOp::Max, DType::F64) => f64::NEG_INFINITY.to_ne_bytes(),
            (ReduceOp::Max, DType::F32) => pad(f32::NEG_INFINITY.to_ne_bytes()),
            (ReduceOp::Max, DType::I32) => pad(i32::MIN.to_ne_bytes()),
        };
        let (accumulate, row) = match op {
            ReduceOp::Sum => (kernels::accumulate(isa, dtype), kernels::row_sum(isa, dtype)),
            ReduceOp::Max => (kernels::accumulate_max(isa, dtype), kernels::row_max(isa, dtype)),
        };
        self.sinks.push(Sink {
            runs: result.runs(),
            size: dtype.size(),
            count: node.count(),
            accumulate,
            row,
            start,
            fill: kernels::fill(isa, dtype),
            result: self.around.place(id)?,
            partial,
        });
        self.instructions.push(Instruction::Sink { sink: self.sinks.len() - 1, a, rows });
        Ok(())
    }

    /// Gives scratch values their slots and settles the shape of tiles and tasks.
    fn finish(mut self, cut: Cut, rows_per_tile: Option<usize>) -> TileProgram {
        let (full_slots, row_slots) = assign_slots(&mut self.instructions, &mut self.values);
        let element = if self.wide { 8 } else { 4 };
        let rows = self.domain.n / self.row.max(1);
        let target = (TILE_SCRATCH_BYTES / (full_slots.max(1) * element)).clamp(256, 2048);
        let rows_per_tile = rows_per_tile.unwrap_or_else(|| (target / self.row).clamp(1, rows.max(1)));
        let bytes = |count: usize| (count * element).next_multiple_of(64);
        let (full, row) = (bytes(rows_per_tile * self.row), bytes(rows_per_tile));
        for instruction in &mut self.instructions {
            for place in places(instruction) {
                if place.is_scratch() {
                    let value = &self.values[place.start.offset];
                    place.start.offset =
                        if value.rows { full_slots * full + value.slot * row } else { value.slot * full };
                }
            }
        }
        let tiles = rows.div_ceil(rows_per_tile).max(1);
        let tasks = cut.parts.min(tiles);
        let tiles_per_task = tiles.div_ceil(tasks);
        TileProgram {
            n: self.domain.n,
            row: self.row,
            rows_per_tile,
            tiles_per_task,
            tasks: if cut.pieces { cut.parts } else { tiles.div_ceil(tiles_per_task) },
            instructions: self.instructions,
            loads: self.loads,
            sinks: self.sinks,
            scratch: full_slots * full + row_slots * row,
        }
    }
}

fn advance(rows: bool) -> Advance {
    if rows { Advance::Row } else { Advance::Full }
}

fn pad(bytes: [u8; 4]) -> [u8; 8] {
    let mut padded = [0; 8];
    padded[..4].copy_from_slice(&bytes);
    padded
}

/// Returns true if a strided operand has the same elements in every row of this length.
fn same_in_every_row(runs: &[Run], row: usize) -> bool {
    let (mut inner, mut count) = (runs.len(), 1);
    while inner > 0 && count < row {
        inner -= 1;
        count *= runs[inner].length;
    }
    count == row && runs[..inner].iter().all(|run| run.stride == 0)
}
