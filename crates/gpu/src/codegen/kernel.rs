//! Kernels, and their builder: statements, parameters and launch configuration.
//!
//! A kernel records what its text needs and does: the width of indices, the parts of the device library, the memory it
//! reads and writes, and whether it can fail. Nothing is detected by searching the text.

use crate::codegen::limits::VECTOR_BYTES;
use crate::codegen::parts::{Part, Parts};
use crate::codegen::renderer::Dialect;
use bilevel_graph::{DType, ReduceOp};
use bilevel_plan::{Place, Run, StorageType};
use std::fmt::Display;
use std::sync::Arc;

/// The largest constant that is a literal, if it is a multiple of ¼: kernels that differ in others are shared.
const MAX_LITERAL: f64 = 16.0;
/// Threads per block if each thread has one element.
const MAP_BLOCK: usize = 256;

/// A kernel argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// An address, this many bytes from a place.
    Memory(Place, isize),
    /// A number of elements or of an operation.
    Count(u64),
    /// A constant of the graph.
    Number(DType, f64),
    /// The address of the record of failed index checks.
    Error,
}

impl Arg {
    /// Returns the argument with its address mapped.
    pub fn moved(&self, to: impl Fn(Place) -> Place) -> Arg {
        match *self {
            Arg::Memory(place, bytes) => Arg::Memory(to(place), bytes),
            other => other,
        }
    }
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// A pointer to elements of this C type.
    Pointer(&'static str),
    /// A number of elements or of an operation, as wide as an index.
    Count,
    /// A constant of the graph.
    Number(DType),
    /// The record of failed index checks.
    FailureRecord,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    kind: ParamType,
    number: usize,
    /// Whether the kernel reads the elements it points to.
    pub reads: bool,
    /// Whether it writes them.
    pub writes: bool,
}

impl Param {
    /// Returns its type.
    pub fn kind(&self) -> ParamType {
        self.kind
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        let prefix = match self.kind {
            ParamType::Pointer(_) => "p",
            ParamType::Count => "n",
            ParamType::Number(_) => "c",
            ParamType::FailureRecord => "error",
        };
        format!("{prefix}{}", self.number)
    }

    /// Returns its declaration as a field.
    pub fn field(&self) -> String {
        let name = self.name();
        match self.kind {
            ParamType::Pointer(c) => format!("{c}* {name}"),
            ParamType::Count => format!("U {name}"),
            ParamType::Number(dtype) => format!("{} {name}", c_type(dtype)),
            ParamType::FailureRecord => format!("u64* {name}"),
        }
    }

    /// Returns its declaration as a parameter.
    pub fn declaration(&self) -> String {
        match self.kind {
            ParamType::Count | ParamType::Number(_) => format!("const {}", self.field()),
            ParamType::Pointer(_) | ParamType::FailureRecord => self.field(),
        }
    }
}

/// The width of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits, if an index can be 2³¹ or more.
    Bits64,
}

/// A statement of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// A line of text.
    Line(String),
    /// A loop with a constant number of iterations, which is unrolled.
    Unrolled(String),
    /// A line of text with the number of blocks of the launch between its halves.
    WithBlocks(String, String),
}

/// A kernel: all that determines its machine code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Its parameters. Equal kernels may have different arguments.
    pub params: Vec<Param>,
    statements: Vec<Stmt>,
    /// The width of its indices.
    pub index: IndexWidth,
    /// Threads of a block.
    pub block: u32,
    /// The blocks per multiprocessor that registers must suffice for.
    pub min_blocks: Option<u32>,
    /// The number of launches that it batches, each with its own arguments.
    pub batch: usize,
    /// The parts of the device library that it uses.
    pub parts: Parts,
    /// Whether the threads of a block wait for each other.
    pub waits: bool,
    /// Whether it can report an index out of range.
    pub can_fail: bool,
    /// Whether it exits early after a failure.
    pub skips_after_failure: bool,
}

impl Kernel {
    /// Returns its statements as text, given the expression of the number of blocks.
    pub fn body(&self, blocks: &str) -> String {
        let line = |stmt: &Stmt| match stmt {
            Stmt::Line(line) => format!("    {line}\n"),
            Stmt::Unrolled(line) => format!("#pragma unroll\n    {line}\n"),
            Stmt::WithBlocks(before, after) => format!("    {before}{blocks}{after}\n"),
        };
        self.statements.iter().map(line).collect()
    }

    /// Returns the kernel that does the work of this many launches.
    pub fn batched(&self, launches: usize) -> Kernel {
        Kernel { batch: launches, ..self.clone() }
    }

    /// Returns the number of its statements.
    pub fn length(&self) -> usize {
        self.statements.len()
    }
}

/// A kernel with its arguments and launch configuration.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Its arguments in order; a batched launch has those of each of its launches, preceded by their number of blocks.
    pub args: Vec<Arg>,
    /// Blocks along x and y. A batched launch has one slice of them per launch.
    pub grid: [u32; 2],
    /// Dynamic shared memory per block in bytes.
    pub shared: u32,
}

impl Launch {
    /// Returns the arguments as the kernel takes them, each in eight bytes, given the addresses of memory and of the
    /// record of failed checks.
    pub fn words(&self, address: impl Fn(Place) -> u64, failures: u64) -> Vec<[u8; 8]> {
        let long = self.kernel.index == IndexWidth::Bits64;
        let word = |&arg: &Arg| {
            let mut word = [0; 8];
            match arg {
                Arg::Memory(place, bytes) => word = address(place).wrapping_add_signed(bytes as i64).to_ne_bytes(),
                Arg::Error => word = failures.to_ne_bytes(),
                Arg::Count(count) if long => word = count.to_ne_bytes(),
                Arg::Count(count) => word[..4].copy_from_slice(&(count as u32).to_ne_bytes()),
                Arg::Number(DType::F64, value) => word = value.to_ne_bytes(),
                Arg::Number(DType::F32, value) => word[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
                Arg::Number(DType::I32, value) => word[..4].copy_from_slice(&(value as i32).to_ne_bytes()),
            }
            word
        };
        self.args.iter().map(word).collect()
    }

    /// Returns the arguments with their parameters, for each launch of a batch in turn.
    pub fn bound(&self) -> impl Iterator<Item = (&Param, &Arg)> {
        let skip = usize::from(self.kernel.batch > 1);
        let own = self.args.chunks(self.kernel.params.len() + skip);
        own.flat_map(move |args| self.kernel.params.iter().zip(&args[skip..]))
    }
}

/// The C name of an element type.
pub fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I32 => "int",
    }
}

/// The C side of a storage type.
pub trait CStorage {
    /// Returns its C name.
    fn name(self) -> &'static str;

    /// Returns the function that loads this many contiguous elements as numbers of the graph.
    fn load(self, lanes: usize) -> String;

    /// Returns the function that stores them.
    fn store(self, lanes: usize) -> String;

    /// Returns how many of this many contiguous elements are moved at once: at most 16 bytes.
    fn at_once(self, neighbours: usize) -> usize;
}

impl CStorage for StorageType {
    fn name(self) -> &'static str {
        match self {
            StorageType::F32 | StorageType::F64 | StorageType::I32 => c_type(self.dtype()),
            StorageType::Bf16 => "bf16",
            StorageType::F16 => "half",
        }
    }

    fn load(self, lanes: usize) -> String {
        match self {
            StorageType::F32 | StorageType::F64 | StorageType::I32 | StorageType::F16 => {
                format!("load<{}, {lanes}>", self.name())
            }
            StorageType::Bf16 => format!("load_bf16<{lanes}>"),
        }
    }

    fn store(self, lanes: usize) -> String {
        match self {
            StorageType::F32 | StorageType::F64 | StorageType::I32 => format!("store<{}, {lanes}>", self.name()),
            StorageType::Bf16 => format!("store_bf16<{lanes}>"),
            StorageType::F16 => format!("store_half<{lanes}>"),
        }
    }

    fn at_once(self, neighbours: usize) -> usize {
        neighbours.min(VECTOR_BYTES / self.size())
    }
}

/// Returns the part of the device library that defines a storage type.
fn part_of(storage: StorageType) -> Option<Part> {
    match storage {
        StorageType::F32 | StorageType::F64 | StorageType::I32 => None,
        StorageType::Bf16 => Some(Part::Bf16),
        StorageType::F16 => Some(Part::ScaledF16),
    }
}

/// Rounding to bf16 by a copy, in two bytes or in four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundedStorage {
    /// bf16.
    Bf16,
    /// f32 that has been rounded to bf16, for libraries that take no other type.
    WideBf16,
}

impl RoundedStorage {
    /// Returns the storage of rounded elements of this type.
    pub fn of(storage: StorageType) -> Self {
        if storage == StorageType::Bf16 { RoundedStorage::Bf16 } else { RoundedStorage::WideBf16 }
    }

    /// Its C name.
    pub fn name(self) -> &'static str {
        match self {
            RoundedStorage::Bf16 => "bf16",
            RoundedStorage::WideBf16 => "wide_bf16",
        }
    }

    /// Returns the expression of a rounded number.
    pub fn round(self, x: &str) -> String {
        match self {
            RoundedStorage::Bf16 => format!("round_to_bf16({x})"),
            RoundedStorage::WideBf16 => format!("round_to_wide_bf16({x})"),
        }
    }
}

/// A value of a loop, as an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// An array with an element per lane of a thread; displayed as that of lane j.
    Lanes(String),
    /// One number for all lanes.
    One(String),
}

impl Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Value::Lanes(name) => write!(f, "{name}[j]"),
            Value::One(number) => f.write_str(number),
        }
    }
}

/// A kernel under construction.
pub struct Code {
    dialect: Dialect,
    args: Vec<Arg>,
    params: Vec<Param>,
    /// Statements before the loop over elements.
    head: Vec<Stmt>,
    body: Vec<Stmt>,
    /// Whether an index needs 64 bits.
    long: bool,
    parts: Parts,
    /// As in [`Kernel`].
    waits: bool,
    can_fail: bool,
    skips_after_failure: bool,
}

impl Code {
    /// Creates an empty kernel.
    pub fn new(dialect: Dialect) -> Self {
        Code {
            dialect,
            args: vec![],
            params: vec![],
            head: vec![],
            body: vec![],
            long: false,
            parts: Parts::default(),
            waits: false,
            can_fail: false,
            skips_after_failure: false,
        }
    }

    /// Notes that the kernel uses a part of the device library.
    pub fn uses(&mut self, part: Part) {
        self.parts = self.parts.with(part);
    }

    /// Adds a pointer to elements that the kernel reads, this many elements from a place, and returns its name.
    pub fn input(&mut self, place: Place, storage: impl Into<StorageType>, elements: isize) -> String {
        let storage = storage.into();
        self.pointer(storage, Arg::Memory(place, elements * storage.size() as isize), (true, false))
    }

    /// As [`input`](Self::input), for elements that the kernel writes.
    pub fn output(&mut self, place: Place, storage: impl Into<StorageType>, elements: isize) -> String {
        let storage = storage.into();
        self.pointer(storage, Arg::Memory(place, elements * storage.size() as isize), (false, true))
    }

    /// As [`input`](Self::input), for elements that the kernel reads and writes.
    pub fn in_out(&mut self, place: Place, storage: impl Into<StorageType>, elements: isize) -> String {
        let storage = storage.into();
        self.pointer(storage, Arg::Memory(place, elements * storage.size() as isize), (true, true))
    }

    fn pointer(&mut self, storage: StorageType, arg: Arg, access: (bool, bool)) -> String {
        self.parts = part_of(storage).map_or(self.parts, |part| self.parts.with(part));
        self.param(ParamType::Pointer(storage.name()), arg, access)
    }

    /// As [`output`](Self::output), for elements rounded to bf16.
    pub fn rounded_output(&mut self, place: Place, rounded: RoundedStorage) -> String {
        self.uses(Part::Bf16);
        self.param(ParamType::Pointer(rounded.name()), Arg::Memory(place, 0), (false, true))
    }

    /// Adds a pointer to 32-bit words that the kernel writes, and returns its name.
    pub fn words(&mut self, place: Place) -> String {
        self.param(ParamType::Pointer("u32"), Arg::Memory(place, 0), (false, true))
    }

    /// Adds a count argument, and returns its name.
    pub fn count(&mut self, count: u64) -> String {
        self.long |= count >= 1 << 31;
        self.added(ParamType::Count, Arg::Count(count), (false, false))
    }

    /// Returns the statement that reports an index out of range for an operation.
    pub fn report(&mut self, operation: usize, place: &str, index: &str) -> String {
        self.can_fail = true;
        let (error, operation) = (self.error(), self.count(operation as u64));
        format!("report({error}, {operation}, {place}, {index});")
    }

    /// Makes the kernel exit early after a failure.
    pub fn stop_after_report(&mut self) {
        self.skips_after_failure = true;
        let error = self.error();
        self.head(format!("if (has_failed({error})) return;"));
    }

    /// Returns the name of the pointer to the record of failed index checks.
    fn error(&mut self) -> String {
        self.uses(Part::FailureRecord);
        self.param(ParamType::FailureRecord, Arg::Error, (false, false))
    }

    /// Returns a constant: a literal if it is simple, otherwise an argument.
    pub fn number(&mut self, value: f64, dtype: DType) -> String {
        let simple =
            value.abs() <= MAX_LITERAL && (value * 4.0).fract() == 0.0 && !(value == 0.0 && value.is_sign_negative());
        if simple {
            return format!("{}({value:?})", c_type(dtype));
        }
        self.param(ParamType::Number(dtype), Arg::Number(dtype, value), (false, false))
    }

    /// Returns the name of the parameter with this argument, added if there is none yet.
    fn param(&mut self, kind: ParamType, arg: Arg, (reads, writes): (bool, bool)) -> String {
        // A NaN is not equal to itself; two arguments for it do no harm.
        let known = self.args.iter().zip(&mut self.params).find(|(a, param)| **a == arg && param.kind == kind);
        match known {
            Some((_, param)) => {
                (param.reads, param.writes) = (param.reads || reads, param.writes || writes);
                param.name()
            }
            None => self.added(kind, arg, (reads, writes)),
        }
    }

    fn added(&mut self, kind: ParamType, arg: Arg, (reads, writes): (bool, bool)) -> String {
        let param = Param { kind, number: self.params.len(), reads, writes };
        self.args.push(arg);
        self.params.push(param);
        param.name()
    }

    /// Notes that an index can be this large.
    pub fn reaches(&mut self, elements: usize) {
        self.long |= elements >= 1 << 31;
    }

    /// Returns the index of a thread in its block.
    pub fn thread(&self) -> &'static str {
        self.dialect.thread()
    }

    /// Returns the index of a block along x.
    pub fn block(&self) -> &'static str {
        self.dialect.block(0)
    }

    /// Returns the index of a block along y.
    pub fn block_row(&self) -> &'static str {
        self.dialect.block(1)
    }

    /// Returns the function that exchanges a number in memory atomically.
    pub fn atomic_exchange(&self) -> &'static str {
        self.dialect.atomic_exchange()
    }

    /// Notes that the threads of a block wait for each other in a function of the device library.
    pub fn waits_in_library(&mut self) {
        self.waits = true;
    }

    /// Adds a barrier for all threads of a block.
    pub fn barrier(&mut self) {
        self.waits = true;
        self.line(self.dialect.barrier());
    }

    /// Declares an array that the threads of a block share.
    pub fn shared(&mut self, declaration: impl Display) {
        self.line(format!("{} {declaration};", self.dialect.shared()));
    }

    /// Returns the declaration of this many bytes of shared memory, aligned for elements of any type.
    pub fn shared_bytes(&self, name: &str, bytes: usize) -> String {
        format!("{} {} unsigned char {name}[{bytes}];", self.dialect.shared(), self.dialect.aligned())
    }

    /// Returns the identity of a reduction of this C type.
    pub fn first(&mut self, op: ReduceOp, c: &str) -> String {
        self.uses(Part::Reduce);
        format!("{}::first<{c}>()", reducer(op))
    }

    /// Returns the combination of two numbers.
    pub fn join(&mut self, op: ReduceOp, a: impl Display, b: impl Display) -> String {
        self.uses(Part::Reduce);
        format!("{}::join({a}, {b})", reducer(op))
    }

    /// Returns the combination of a number of each of these many adjacent threads.
    pub fn across(&mut self, op: ReduceOp, threads: usize, x: impl Display) -> String {
        self.waits = true;
        self.uses(Part::Reduce);
        format!("across<{}, {threads}>({x})", reducer(op))
    }

    /// As [`across`](Self::across), with own slots in shared memory for each call number.
    pub fn across_in_slots(&mut self, op: ReduceOp, threads: usize, call: usize, x: impl Display) -> String {
        self.waits = true;
        self.uses(Part::Reduce);
        format!("across<{}, {threads}, {call}>({x})", reducer(op))
    }

    /// Returns the position of the largest of a number of each of these many adjacent threads.
    pub fn argmax_across(&mut self, threads: usize, x: impl Display) -> String {
        self.waits = true;
        self.uses(Part::Argmax);
        format!("argmax_across<{threads}>({x}).place")
    }

    /// Maps each of this many elements to a thread, as `e`; to be launched by [`launch_each`](Self::launch_each).
    pub fn each(&mut self, count: usize) {
        self.reaches(count);
        let all = self.count(count as u64);
        self.line(format!("const U e = (U){} * {MAP_BLOCK} + {};", self.block(), self.thread()));
        self.line(format!("if (e >= {all}) return;"));
    }

    /// Returns the kernel with a thread for each of this many elements.
    pub fn launch_each(self, count: usize) -> Launch {
        self.launch([count.div_ceil(MAP_BLOCK), 1], MAP_BLOCK as u32)
    }

    /// Adds a statement before the loop over elements.
    pub fn head(&mut self, line: impl Into<String>) {
        self.head.push(Stmt::Line(line.into()));
    }

    /// Adds a statement to the body.
    pub fn line(&mut self, line: impl Into<String>) {
        self.body.push(Stmt::Line(line.into()));
    }

    /// Adds a line with the number of blocks of the launch between its halves.
    pub fn with_blocks(&mut self, before: impl Into<String>, after: impl Into<String>) {
        self.body.push(Stmt::WithBlocks(before.into(), after.into()));
    }

    /// Adds a statement for each of this many lanes.
    pub fn lanes(&mut self, count: usize, line: impl Display) {
        self.every(1, count, line);
    }

    /// Adds a statement for every `step`-th of this many lanes.
    pub fn every(&mut self, step: usize, count: usize, line: impl Display) {
        let next = if step == 1 { "++j".to_string() } else { format!("j += {step}") };
        self.body.push(Stmt::Unrolled(format!("for (int j = 0; j < {count}; {next}) {line}")));
    }

    /// Adds statements.
    pub fn append(&mut self, statements: Vec<Stmt>) {
        self.body.extend(statements);
    }

    /// Takes the body so far; it starts again empty.
    pub fn take_body(&mut self) -> Vec<Stmt> {
        std::mem::take(&mut self.body)
    }

    /// Returns the number of statements so far.
    pub fn written(&self) -> usize {
        self.body.len()
    }

    /// Removes and returns the statements after this many.
    pub fn take_after(&mut self, written: usize) -> Vec<Stmt> {
        self.body.split_off(written)
    }

    /// Returns the kernel for blocks of this many threads.
    pub fn launch(self, grid: [usize; 2], block: u32) -> Launch {
        self.launch_bounded(grid, (block, None), 0)
    }

    /// Returns the kernel with this much dynamic shared memory, and a minimum number of blocks per multiprocessor.
    pub fn launch_with(self, grid: [usize; 2], block: u32, min_blocks: u32, shared: usize) -> Launch {
        self.launch_bounded(grid, (block, Some(min_blocks)), shared as u32)
    }

    fn launch_bounded(self, grid: [usize; 2], (block, min_blocks): (u32, Option<u32>), shared: u32) -> Launch {
        let Code { args, params, mut head, body, long, parts, waits, can_fail, skips_after_failure, .. } = self;
        head.extend(body);
        let index = if long { IndexWidth::Bits64 } else { IndexWidth::Bits32 };
        let kernel = Kernel {
            params,
            statements: head,
            index,
            block,
            min_blocks,
            batch: 1,
            parts,
            waits,
            can_fail,
            skips_after_failure,
        };
        // Grids that are too large are refused when the plan is built.
        let grid = grid.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX));
        Launch { kernel: Arc::new(kernel), args, grid, shared }
    }
}

/// Returns the C++ class of a reduction.
fn reducer(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "Sum",
        ReduceOp::Max => "Max",
    }
}
/// Returns the offset of element `e` in a view with these runs, without the view's own offset.
///
/// Σₐ ((e / Πᵦ₍ᵦ﹥ₐ₎ lengthᵦ) mod lengthₐ)·strideₐ
pub fn decode(runs: &[Run], e: &str) -> String {
    let mut inner = 1;
    let mut terms = vec![];
    for (number, run) in runs.iter().enumerate().rev() {
        if run.stride != 0 {
            let mut place = if inner == 1 { e.to_string() } else { format!("({e} / {inner})") };
            if number > 0 {
                place = format!("({place} % {})", run.length);
            }
            terms.push(if run.stride == 1 { format!("(I){place}") } else { format!("(I){place} * {}", run.stride) });
        }
        inner *= run.length;
    }
    if terms.is_empty() { "0".into() } else { terms.join(" + ") }
}

/// Returns the distance between the first and last elements of a view with these runs.
pub fn reach(runs: &[Run]) -> usize {
    runs.iter().map(|run| (run.length.saturating_sub(1)).saturating_mul(run.stride.unsigned_abs())).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_of_a_transposed_view_is_found_by_two_divisions() {
        let runs = [Run { length: 4, stride: 1 }, Run { length: 6, stride: 4 }];
        assert_eq!(decode(&runs, "e"), "(I)(e % 6) * 4 + (I)(e / 6)");
        assert_eq!(decode(&runs[..1], "e"), "(I)e");
        assert_eq!(decode(&[], "e"), "0");
        assert_eq!(reach(&runs), 24);
    }
}
