//! The bodies of fused loops: members as lines of C. A value is an array with one lane per element of a thread; a row
//! value is a scalar.

use crate::codegen::context::Context;
use crate::codegen::data::inline_gather::GatheredRows;
use crate::codegen::expr::{formula, once};
use crate::codegen::kernel::{Code, Value, c_type};
use crate::codegen::limits::{VECTOR_BYTES, WARP};
use crate::codegen::load::SmemOperand;
use crate::codegen::parts::Part;
use crate::codegen::prefetch::Prefetch;
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::{DType, Precision, RandomKind, ReduceOp};
use bilevel_plan::{Access, Elementwise, Kind, Operand, Role, StorageType, View, expect};
use std::collections::HashMap;

/// Emits members, each once, on demand.
pub struct Members<'a, 'c> {
    /// The group.
    pub context: Context<'a>,
    /// The elements of each thread.
    pub mapping: ThreadMapping,
    /// The kernel.
    pub code: &'c mut Code,
    /// The variable of each member.
    names: HashMap<usize, String>,
    /// The variables of values loaded from memory.
    pub loaded: HashMap<(usize, View, bool), Value>,
    /// The variables of gathered rows.
    pub rows: HashMap<GatheredRows, String>,
    /// The number of row reductions across warps so far.
    pub sums: usize,
    /// The loads that are issued before their row is computed.
    pub prefetch: Prefetch,
    /// The operand that is already in shared memory, if any.
    pub smem_operand: Option<SmemOperand>,
}

impl<'a, 'c> Members<'a, 'c> {
    /// Starts the body of a loop with this thread mapping.
    pub fn new(context: Context<'a>, mapping: ThreadMapping, code: &'c mut Code) -> Self {
        let (names, loaded, rows) = (HashMap::new(), HashMap::new(), HashMap::new());
        Members {
            context,
            mapping,
            code,
            names,
            loaded,
            rows,
            sums: 0,
            prefetch: Prefetch::default(),
            smem_operand: None,
        }
    }

    /// Returns a number that no variable has yet.
    pub fn fresh(&self) -> usize {
        self.names.len() + self.loaded.len() + self.rows.len()
    }

    /// Returns true if a member, or its operand, is one value per row.
    pub fn is_row(&self, member: usize) -> bool {
        self.context.schedule.role(member) == Some(Role::Row)
    }

    /// Returns an operand of a member.
    pub fn operand(&mut self, member: usize, operand: &Operand, constant: DType) -> bilevel_graph::Result<Value> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let Operand::At { node: read, view } = operand else {
            let Operand::Constant(value) = operand else { unreachable!("an operand is a constant or in memory") };
            return Ok(Value::One(self.code.number(*value, constant)));
        };
        let access = expect(self.context.access(member, operand), "the access of a loop to an operand", node.location)?;
        if access == Access::Memory {
            let reduces = matches!(node.kind, Kind::Reduce(..) | Kind::ArgMax);
            let full = match schedule.role(member) {
                Some(Role::Row) => reduces,
                Some(Role::Reduction { full }) => full,
                _ => true,
            };
            return self.load(*read, view, full);
        }
        let name = self.value(*read)?;
        Ok(if self.is_row(*read) { Value::One(name) } else { Value::Lanes(name) })
    }

    /// Returns the variable to store for a member: the unrounded one if the store rounds.
    pub fn stored(&mut self, member: usize) -> bilevel_graph::Result<String> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let rounds = matches!(node.kind, Kind::Elementwise(Elementwise::Round(Precision::Bf16)));
        if rounds
            && self.context.storage(member) == StorageType::Bf16
            && let Some((read, _)) = node.operands[0].at()
            && self.context.access(member, &node.operands[0]) == Some(Access::Register)
        {
            return self.value(read);
        }
        self.value(member)
    }

    /// Returns the variable of a member, emitted if necessary.
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
                if let Some(text) = self.one_plus_erf(member)? {
                    return Ok(self.assign(member, &text));
                }
                let mut values = vec![];
                for (number, operand) in node.operands.iter().enumerate() {
                    // A mask can be of any type; a constant one must not be rounded.
                    let mask = number == 0 && *function == Elementwise::Select;
                    values.push(self.operand(member, operand, if mask { DType::F64 } else { node.dtype })?.to_string());
                }
                if let Some((c, text)) = once(self.code, *function, &values) {
                    let name = format!("by{}", self.fresh());
                    self.code.line(format!("const {c} {name} = {text};"));
                    values = vec![values.swap_remove(0), name];
                }
                formula(self.code, *function, &values)
            }
            Kind::InlineGather { .. } => self.gathered_value(member)?,
            Kind::Reduce(op, _) => return self.row_reduction(member, *op),
            Kind::ArgMax => return self.row_argmax(member),
            _ => return Err(bilevel_plan::internal_error("an expression for a member of a loop")),
        };
        Ok(self.assign(member, &text))
    }

    /// Declares a member with this expression: one value per row, or one per lane.
    pub fn assign(&mut self, member: usize, text: &str) -> String {
        let name = self.declare(member);
        if self.is_row(member) {
            self.code.line(format!("const {} {name} = {text};", c_type(self.context.schedule.nodes[member].dtype)));
        } else {
            self.code.lanes(self.mapping.lanes(), format!("{name}[j] = {text};"));
        }
        name
    }

    /// Names a member and, if it has lanes, declares its array.
    fn declare(&mut self, member: usize) -> String {
        let name = format!("v{}", self.fresh());
        if !self.is_row(member) {
            let c = c_type(self.context.schedule.nodes[member].dtype);
            self.code.line(format!("{c} {name}[{}];", self.mapping.lanes()));
        }
        self.names.insert(member, name.clone());
        name
    }

    fn random(&mut self, member: usize, kind: RandomKind, stream: u32) -> bilevel_graph::Result<String> {
        let node = &self.context.schedule.nodes[member];
        let mut words = vec![];
        for (read, view) in node.reads() {
            words.push(self.code.input(self.context.place(read)?, DType::I32, view.offset));
        }
        let [key, counter] = &words[..] else {
            return Err(bilevel_plan::internal_error("the key and the counter of a draw"));
        };
        self.code.uses(Part::Random);
        let (c, kind) = (c_type(node.dtype), distribution(kind));
        let block = VECTOR_BYTES / node.dtype.size();
        // Every parameter has its own random stream, but the kernel text must be the same for all.
        let from = format!("{key}, {counter}, (u32){}", self.code.count(stream.into()));
        if self.is_row(member) {
            return Ok(self.assign(member, &format!("draw<{kind}, {c}>(row, {from})")));
        }
        let element = self.mapping.element();
        // Contiguous lanes that are whole blocks of the generator are drawn at once.
        if self.mapping.beside().is_multiple_of(block) {
            let name = self.declare(member);
            let draw = format!("draw_block<{kind}, {c}>({element}, {from}, &{name}[j]);");
            self.code.every(block, self.mapping.lanes(), draw);
            return Ok(name);
        }
        Ok(self.assign(member, &format!("draw<{kind}, {c}>({element}, {from})")))
    }

    /// Emits a sum or maximum over a row, known to all its threads.
    fn row_reduction(&mut self, member: usize, op: ReduceOp) -> bilevel_graph::Result<String> {
        let (operand, c, threads) = self.reduced(member)?;
        let name = format!("v{}", self.fresh());
        let (first, join) = (self.code.first(op, c), self.code.join(op, &name, operand));
        self.code.line(format!("{c} {name} = {first};"));
        let join = format!("{name} = {join};");
        let join = self.mapping.inside().map_or(join.clone(), |inside| format!("if ({inside}) {join}"));
        self.code.lanes(self.mapping.lanes(), join);
        // A reduction across warps has its own call number.
        let across = match threads > WARP {
            true => self.code.across_in_slots(op, threads, self.sums, &name),
            false => self.code.across(op, threads, &name),
        };
        self.sums += usize::from(threads > WARP);
        self.code.line(format!("{name} = {across};"));
        self.names.insert(member, name.clone());
        Ok(name)
    }

    fn row_argmax(&mut self, member: usize) -> bilevel_graph::Result<String> {
        let (operand, c, threads) = self.reduced(member)?;
        let name = format!("v{}", self.fresh());
        self.code.uses(Part::Argmax);
        // Every thread starts with its first valid column, or with the last possible index.
        self.code.line(format!("Placed<{c}> {name}_best = {{Least<{c}>::value(), 0x7fffffff}};"));
        let join = format!(
            "{name}_best = argmax_join({name}_best, Placed<{c}>{{{operand}, (int){}}});",
            self.mapping.own_column()
        );
        let join = self.mapping.inside().map_or(join.clone(), |inside| format!("if ({inside}) {join}"));
        self.code.lanes(self.mapping.lanes(), join);
        let place = self.code.argmax_across(threads, format!("{name}_best"));
        self.code.line(format!("const int {name} = {place};"));
        self.names.insert(member, name.clone());
        Ok(name)
    }

    /// Returns the operand of a row reduction, its type, and the threads per row.
    fn reduced(&mut self, member: usize) -> bilevel_graph::Result<(Value, &'static str, usize)> {
        let schedule = self.context.schedule;
        let node = &schedule.nodes[member];
        let threads = match self.mapping {
            ThreadMapping::RowPerGroup { threads, .. } => threads,
            ThreadMapping::MmaFragment { .. } => 4,
            ThreadMapping::Flat { .. } | ThreadMapping::ColumnMajor { .. } => {
                return Err(bilevel_plan::internal_error("the rows of a reduction"));
            }
        };
        let (read, _) = expect(node.operands[0].at(), "the memory of a reduction", node.location)?;
        let operand = self.operand(member, &node.operands[0], node.dtype)?;
        Ok((operand, c_type(schedule.nodes[read].dtype), threads))
    }
}

/// Returns the C++ class of a distribution.
fn distribution(kind: RandomKind) -> &'static str {
    match kind {
        RandomKind::Normal => "Normal",
        RandomKind::Uniform => "Uniform",
        RandomKind::Bits => "Bits",
    }
}
