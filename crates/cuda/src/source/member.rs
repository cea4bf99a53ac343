//! The members of a fused loop as lines of C. A value of a member is an array of lanes, one for each element a thread holds;
//! a row value is a single number.

use super::ahead::{Ahead, Part};
use super::code::{Cell, Code, c_type, decode, reach};
use super::fetch::Fetched;
use super::walk::Walk;
use crate::checks::Checks;
use bilevel_graph::{BinaryOp, DType, Precision, RandomKind, UnaryOp};
use bilevel_plan::{Access, Elementwise, Kind, MemoryMap, Operand, Place, Role, Run, Schedule, View, known};
use std::collections::HashMap;

/// What a group is part of.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The program.
    pub schedule: &'a Schedule,
    /// Where everything lies.
    pub map: &'a MemoryMap,
    /// By member: the carried input it is written to in place.
    pub updates: &'a HashMap<usize, Vec<usize>>,
    /// What can fail, and must leave carried inputs as they were.
    pub checks: &'a Checks,
    /// Only what every step must compute is wanted: nobody will look at the outputs of this one.
    pub lean: bool,
    /// Only workspaces are asked for: no text of a loop is written.
    pub measures: bool,
}

impl Context<'_> {
    /// True where a node is to be computed.
    pub fn wants(&self, node: usize) -> bool {
        !self.lean || self.schedule.in_every_step(node)
    }

    /// Where a node lies.
    pub fn place(&self, node: usize) -> bilevel_graph::Result<Place> {
        known(self.map.nodes[node], "the memory of a value", self.schedule.nodes[node].location)
    }

    /// The type of a node's elements in memory.
    pub fn cell(&self, node: usize) -> Cell {
        let node = &self.schedule.nodes[node];
        match node.narrow {
            true if node.is_halved() => Cell::Half,
            true => Cell::Bf16,
            false => node.dtype.into(),
        }
    }

    /// True where one of these members is written over a carried input.
    pub fn overwrites(&self, members: &[usize]) -> bool {
        members.iter().any(|member| self.updates.contains_key(member))
    }

    /// Has a kernel that stores these members do nothing where it would overwrite carried inputs after something has failed.
    pub fn guard(&self, code: &mut Code, stored: &[usize]) {
        if !self.checks.all.is_empty() && self.overwrites(stored) {
            let error = code.error();
            code.head(format!("if (has_failed({error})) return;"));
        }
    }

    /// Where the values of a member must be written.
    pub fn stores(&self, member: usize) -> bilevel_graph::Result<Vec<Place>> {
        let mut places = vec![];
        if self.schedule.is_stored(member) {
            places.push(self.place(member)?);
        }
        for &input in self.updates.get(&member).into_iter().flatten() {
            places.push(self.place(input)?);
        }
        // The next value of a carried input may lie where the input does.
        places.dedup();
        Ok(places)
    }
}

/// An array that is in shared memory already.
pub(super) struct Brought {
    /// What it is.
    pub node: usize,
    /// The text of where a thread's row of it begins.
    pub row: String,
}

/// Writes members, each once, in the order in which they are asked for.
pub(crate) struct Members<'a, 'c> {
    pub(super) context: Context<'a>,
    pub(super) walk: Walk,
    pub code: &'c mut Code,
    /// The name of each member's value.
    names: HashMap<usize, String>,
    /// What was read from memory: name of the value.
    loaded: HashMap<(usize, View, bool), String>,
    /// Rows that were fetched: their names.
    pub(super) rows: HashMap<Fetched, String>,
    pub(super) ahead: Ahead,
    pub(super) brought: Option<Brought>,
}

impl<'a, 'c> Members<'a, 'c> {
    pub fn new(context: Context<'a>, walk: Walk, code: &'c mut Code) -> Self {
        let (names, loaded, rows) = (HashMap::new(), HashMap::new(), HashMap::new());
        Members { context, walk, code, names, loaded, rows, ahead: Ahead::default(), brought: None }
    }

    pub(super) fn fresh(&self) -> usize {
        self.names.len() + self.loaded.len() + self.rows.len()
    }

    /// True where a member, or what it reads, is one number per row.
    pub(super) fn is_row(&self, member: usize) -> bool {
        self.context.schedule.role(member) == Some(Role::Row)
    }

    /// The value of an operand of a member, for lane j where it has lanes.
    pub fn operand(&mut self, member: usize, operand: &Operand, constant: DType) -> bilevel_graph::Result<String> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let Operand::At { node: read, view } = operand else {
            let Operand::Constant(value) = operand else { unreachable!("an operand is a constant or in memory") };
            return Ok(self.code.number(*value, constant));
        };
        let access = known(schedule.access(member, operand), "how a loop reads an operand", node.location)?;
        if access == Access::Memory {
            let reduces = matches!(node.kind, Kind::Reduce(..) | Kind::ArgMax);
            let full = match schedule.role(member) {
                Some(Role::Row) => reduces,
                Some(Role::Sink { full }) => full,
                _ => true,
            };
            return self.load(*read, view, full);
        }
        let name = self.value(*read)?;
        Ok(if self.is_row(*read) { name } else { format!("{name}[j]") })
    }

    /// The name of what is to be stored of a member: of a number that is rounded as it is stored, the number itself.
    pub fn stored(&mut self, member: usize) -> bilevel_graph::Result<String> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let rounds = matches!(node.kind, Kind::Elementwise(Elementwise::Round(Precision::Bf16)));
        if rounds
            && self.context.cell(member) == Cell::Bf16
            && let Some((read, _)) = node.operands[0].at()
            && schedule.access(member, &node.operands[0]) == Some(Access::Register)
        {
            return self.value(read);
        }
        self.value(member)
    }

    /// The name of a member's value, written if it is not there yet.
    pub fn value(&mut self, member: usize) -> bilevel_graph::Result<String> {
        if let Some(name) = self.names.get(&member) {
            return Ok(name.clone());
        }
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let text = match &node.kind {
            Kind::Elementwise(Elementwise::Random(kind, stream)) => {
                let (kind, stream) = (*kind, *stream);
                return self.random(member, kind, stream);
            }
            Kind::Elementwise(function) => {
                let mut values = vec![];
                for (number, operand) in node.operands.iter().enumerate() {
                    // A mask can be of any type; a constant one must not be rounded.
                    let mask = number == 0 && *function == Elementwise::Select;
                    values.push(self.operand(member, operand, if mask { DType::F64 } else { node.dtype })?);
                }
                formula(*function, &values)
            }
            Kind::Fetch { .. } => self.fetched(member)?,
            Kind::Reduce(op, _) => return self.row_reduction(member, &format!("{op:?}")),
            Kind::ArgMax => return self.row_argmax(member),
            _ => return Err(bilevel_plan::lacks("how to compute a member of a loop")),
        };
        Ok(self.assign(member, &text))
    }

    /// Declares a member's value, of this text: one number per row, or one per lane.
    pub(super) fn assign(&mut self, member: usize, text: &str) -> String {
        let name = self.declare(member);
        if self.is_row(member) {
            self.code.line(format!("const {} {name} = {text};", c_type(self.context.schedule.nodes[member].dtype)));
        } else {
            self.code.lanes(self.walk.lanes(), format!("{name}[j] = {text};"));
        }
        name
    }

    /// Names a member's value and, where it has lanes, makes room for them.
    fn declare(&mut self, member: usize) -> String {
        let name = format!("v{}", self.fresh());
        if !self.is_row(member) {
            let c = c_type(self.context.schedule.nodes[member].dtype);
            self.code.line(format!("{c} {name}[{}];", self.walk.lanes()));
        }
        self.names.insert(member, name.clone());
        name
    }

    fn random(&mut self, member: usize, kind: RandomKind, stream: u32) -> bilevel_graph::Result<String> {
        let node = &self.context.schedule.nodes[member];
        let mut words = vec![];
        for (read, view) in node.reads() {
            words.push(self.code.pointer(self.context.place(read)?, DType::I32, view.offset));
        }
        let [key, counter] = &words[..] else { return Err(bilevel_plan::lacks("the key and the counter of a draw")) };
        let c = c_type(node.dtype);
        let block = 16 / node.dtype.size();
        // Every leaf of a network has a stream of its own, and the text must be the same for all.
        let from = format!("{key}, {counter}, (u32){}", self.code.count(stream.into()));
        if self.is_row(member) {
            return Ok(self.assign(member, &format!("draw<{kind:?}, {c}>(row, {from})")));
        }
        // Lanes that are a whole block of the generator are drawn at once.
        if self.walk == (Walk::Side { lanes: block }) {
            let name = self.declare(member);
            self.code.line(format!("draw_block<{kind:?}, {c}>(e, {from}, {name});"));
            return Ok(name);
        }
        Ok(self.assign(member, &format!("draw<{kind:?}, {c}>({}, {from})", self.walk.element())))
    }

    /// The name of the value read from a node's memory: for lane j of the elements, or one per row.
    fn load(&mut self, node: usize, view: &View, full: bool) -> bilevel_graph::Result<String> {
        let key = (node, view.clone(), full);
        if let Some(name) = self.loaded.get(&key) {
            return Ok(name.clone());
        }
        let dtype = self.context.schedule.nodes[node].dtype;
        let cell = self.context.cell(node);
        let pointer = self.code.pointer(self.context.place(node)?, cell, view.offset);
        let (c, lanes) = (c_type(dtype), self.walk.lanes());
        let name = format!("m{}", self.fresh());
        let runs = view.runs();
        self.code.reaches(view.count().max(reach(&runs)));
        let written = self.code.written();
        // What is read of a row, and of an element of it.
        let in_rows = match self.walk {
            Walk::Row { length, .. } if full => split(&runs, length),
            _ => None,
        };
        let is_one = |runs: &[Run]| runs.iter().all(|run| run.stride == 0);
        let value = if is_one(&runs) {
            self.code.head(format!("const {c} {name} = {pointer}[0];"));
            name.clone()
        } else if !full {
            self.code.line(format!("const {c} {name} = {pointer}[{}];", decode(&runs, "row")));
            name.clone()
        } else if let Some((outer, _)) = in_rows.as_ref().filter(|(_, inner)| is_one(inner)) {
            self.code.line(format!("const {c} {name} = {pointer}[{}];", decode(outer, "row")));
            name.clone()
        } else {
            self.code.line(format!("{c} {name}[{lanes}];"));
            match self.walk {
                Walk::Side { lanes } => self.load_side(&runs, view.offset, lanes, cell, &pointer, &name),
                Walk::Row { length, .. } => self.load_row(&runs, length, &pointer, &name),
                Walk::Quad { lanes } => {
                    let whole = self.context.schedule.nodes[node].is_whole(view);
                    let brought = self.brought.as_ref().filter(|brought| whole && brought.node == node);
                    let place = brought.map(|brought| brought.row.clone());
                    self.load_pairs(&runs, (4 * lanes, view.offset), (cell, place), &pointer, &name)
                }
            }
            format!("{name}[j]")
        };
        let lanes = (value != name).then_some(lanes);
        let registers = lanes.unwrap_or(1) * dtype.size().div_ceil(4);
        if registers <= self.ahead.registers {
            self.ahead.registers -= registers;
            let text = self.code.take_after(written);
            let declared = lanes.map_or(format!("const {c} "), |lanes| format!("{c} {name}[{lanes}];"));
            let text = text.trim_start().trim_start_matches(&declared[..]).trim().to_string();
            let same = in_rows.is_some_and(|(outer, _)| is_one(&outer));
            self.ahead.parts.extend((!text.is_empty()).then_some(Part { name, c, lanes, text, same }));
        }
        self.loaded.insert(key, value.clone());
        Ok(value)
    }

    fn load_side(&mut self, runs: &[Run], offset: isize, lanes: usize, cell: Cell, pointer: &str, name: &str) {
        let inner = runs[runs.len() - 1];
        let whole = |n: isize| n % lanes as isize == 0;
        let aligned = inner.stride == 1 && whole(offset) && runs[..runs.len() - 1].iter().all(|run| whole(run.stride));
        if !inner.length.is_multiple_of(lanes) {
            let place = decode(runs, if lanes == 1 { "e" } else { "(e + j)" });
            self.code.lanes(lanes, format!("{name}[j] = {pointer}[{place}];"));
        } else if aligned && lanes > 1 {
            let load = cell.load(lanes);
            self.code.line(format!("{load}({pointer} + ({}), {name});", decode(runs, "e")));
        } else {
            self.code.line(format!("const I {name}_at = {};", decode(runs, "e")));
            self.code.lanes(lanes, format!("{name}[j] = {pointer}[{name}_at + j * {}];", inner.stride));
        }
    }

    /// Two neighbours at once, where all pairs of them begin at multiples of two.
    fn load_pairs(
        &mut self,
        runs: &[Run],
        (length, offset): (usize, isize),
        (cell, brought): (Cell, Option<String>),
        pointer: &str,
        name: &str,
    ) {
        let even = |n: isize| n % 2 == 0;
        let rows = split(runs, length).filter(|(outer, inner)| {
            let in_order = matches!(inner[..], [Run { stride: 1, .. }]);
            in_order && even(length as isize) && even(offset) && outer.iter().all(|run| even(run.stride))
        });
        let Some((outer, _)) = rows else { return self.load_row(runs, length, pointer, name) };
        let (pairs, load) = (self.walk.lanes() / 2, cell.load(2));
        let row = brought.unwrap_or_else(|| format!("{pointer} + ({})", decode(&outer, "row")));
        self.code.line(format!("const {}* const {name}_row = {row};", cell.name()));
        self.code.lanes(pairs, format!("{load}({name}_row + left + j * 8, {name} + 2 * j);"));
    }

    fn load_row(&mut self, runs: &[Run], length: usize, pointer: &str, name: &str) {
        let column = &self.walk.column();
        let place = match split(runs, length) {
            Some((outer, inner)) => {
                self.code.line(format!("const I {name}_row = {};", decode(&outer, "row")));
                format!("{name}_row + {}", decode(&inner, column))
            }
            None => decode(runs, &self.walk.element()),
        };
        self.code.lanes(self.walk.lanes(), format!("{name}[j] = {pointer}[{place}];"));
    }

    /// A sum or a maximum over a row, which all its threads know.
    fn row_reduction(&mut self, member: usize, how: &str) -> bilevel_graph::Result<String> {
        let (operand, c, threads) = self.reduced(member)?;
        let name = format!("v{}", self.fresh());
        self.code.line(format!("{c} {name} = {how}::first<{c}>();"));
        let join = format!("{name} = {how}::join({name}, {operand});");
        let join = self.walk.inside().map_or(join.clone(), |inside| format!("if ({inside}) {join}"));
        self.code.lanes(self.walk.lanes(), join);
        self.code.line(format!("{name} = across<{how}, {threads}>({name});"));
        self.names.insert(member, name.clone());
        Ok(name)
    }

    fn row_argmax(&mut self, member: usize) -> bilevel_graph::Result<String> {
        let (operand, c, threads) = self.reduced(member)?;
        let name = format!("v{}", self.fresh());
        // Every thread begins with a column of its own that exists, or with the last of all places.
        self.code.line(format!("Placed<{c}> {name}_best = {{Least<{c}>::value(), 0x7fffffff}};"));
        let join = format!("{name}_best = larger({name}_best, Placed<{c}>{{{operand}, (int)(j * {threads} + t)}});");
        let join = self.walk.inside().map_or(join.clone(), |inside| format!("if ({inside}) {join}"));
        self.code.lanes(self.walk.lanes(), join);
        self.code.line(format!("const int {name} = largest_across<{threads}>({name}_best).place;"));
        self.names.insert(member, name.clone());
        Ok(name)
    }

    /// What a row reduction reads, its type, and the threads of a row.
    fn reduced(&mut self, member: usize) -> bilevel_graph::Result<(String, &'static str, usize)> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let threads = match self.walk {
            Walk::Row { threads, .. } => threads,
            Walk::Quad { .. } => 4,
            Walk::Side { .. } => return Err(bilevel_plan::lacks("the rows of a reduction")),
        };
        let (read, _) = known(node.operands[0].at(), "the memory of a reduction", node.location)?;
        let operand = self.operand(member, &node.operands[0], node.dtype)?;
        Ok((operand, c_type(schedule.nodes[read].dtype), threads))
    }
}

/// The runs of a view of rows, those of the rows and those within one; `None` where a run lies across the border.
pub(crate) fn split(runs: &[Run], length: usize) -> Option<(Vec<Run>, Vec<Run>)> {
    let (mut outer, mut inner) = (runs.to_vec(), vec![]);
    let mut missing = length;
    while missing > 1 {
        let run = outer.pop()?;
        if missing.is_multiple_of(run.length) {
            missing /= run.length;
            inner.insert(0, run);
        } else if run.length.is_multiple_of(missing) {
            outer.push(Run { length: run.length / missing, stride: run.stride * missing as isize });
            inner.insert(0, Run { length: missing, stride: run.stride });
            missing = 1;
        } else {
            return None;
        }
    }
    Some((outer, inner))
}

/// A function of one element as C.
fn formula(function: Elementwise, x: &[String]) -> String {
    match function {
        Elementwise::Copy => x[0].clone(),
        Elementwise::Unary(op) => format!("{}({})", unary(op), x[0]),
        Elementwise::Binary(op) => format!("{}({}, {})", binary(op), x[0], x[1]),
        Elementwise::Select => format!("{} != 0 ? {} : {}", x[0], x[1], x[2]),
        Elementwise::Convert(to) => format!("To<{}>::of({})", c_type(to), x[0]),
        Elementwise::Round(precision) => rounded(precision, &x[0]),
        Elementwise::Halve => format!("halved({}, {})", x[0], x[1]),
        Elementwise::Restore => format!("restored({}, {}, {})", x[0], x[1], x[2]),
        Elementwise::Random(..) => String::new(),
    }
}

/// A number as a product of this precision multiplies it.
pub(crate) fn rounded(precision: Precision, x: &str) -> String {
    match precision {
        Precision::Full => x.to_string(),
        Precision::Tf32 => format!("rounded<13>({x})"),
        Precision::Bf16 => format!("rounded<16>({x})"),
    }
}

fn unary(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Neg => "op_neg",
        UnaryOp::Abs => "op_abs",
        UnaryOp::Sign => "op_sign",
        UnaryOp::Floor => "op_floor",
        UnaryOp::Recip => "op_recip",
        UnaryOp::Sqrt => "op_sqrt",
        UnaryOp::Exp => "op_exp",
        UnaryOp::Expm1 => "op_expm1",
        UnaryOp::Log => "op_log",
        UnaryOp::Log1p => "op_log1p",
        UnaryOp::Sin => "op_sin",
        UnaryOp::Cos => "op_cos",
        UnaryOp::Tanh => "op_tanh",
        UnaryOp::Sigmoid => "op_sigmoid",
        UnaryOp::Erf => "op_erf",
    }
}

fn binary(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "op_add",
        BinaryOp::Sub => "op_sub",
        BinaryOp::Mul => "op_mul",
        BinaryOp::Div => "op_div",
        BinaryOp::Max => "op_max",
        BinaryOp::Min => "op_min",
        BinaryOp::Pow => "op_pow",
        BinaryOp::Eq => "op_eq",
        BinaryOp::Ne => "op_ne",
        BinaryOp::Lt => "op_lt",
        BinaryOp::Le => "op_le",
    }
}
