//! The builder of kernels: text, arguments and launch configuration.

use bilevel_graph::DType;
use bilevel_plan::{Place, Run};
use std::fmt::Write;

/// Threads per block if each thread has one element.
const MAP_BLOCK: usize = 256;

/// A kernel argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arg {
    /// An address, this many bytes from a place.
    Memory(Place, isize),
    /// A number of elements or of an operation.
    Count(u64),
    /// A constant of the graph.
    Number(DType, f64),
    /// The address of the record of failed index checks.
    Error,
}

/// A kernel and its launch configuration.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Its text; the function is called `kernel`.
    pub source: String,
    /// Its arguments in order; a batched launch has those of each kernel, preceded by its number of blocks.
    pub args: Vec<Arg>,
    /// The number of batched kernels, which is the grid along z.
    pub parts: u32,
    /// Blocks along x and y.
    pub grid: [u32; 2],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory per block in bytes.
    pub shared: u32,
    /// Whether it can report an index out of range.
    pub can_fail: bool,
    /// Whether it exits early after a failure.
    pub skips_after_failure: bool,
}

/// The C name of an element type.
pub(crate) fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I32 => "int",
    }
}

/// The type of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// That of the graph.
    Of(DType),
    /// bf16.
    Bf16,
    /// Scaled fp16, which loops write and products read.
    Half,
}

impl From<DType> for Cell {
    fn from(dtype: DType) -> Cell {
        Cell::Of(dtype)
    }
}

impl Cell {
    /// Its C name.
    pub fn name(self) -> &'static str {
        match self {
            Cell::Of(dtype) => c_type(dtype),
            Cell::Bf16 => "bf16",
            Cell::Half => "half",
        }
    }

    /// Returns the C type that rounds values to this storage type: bf16 in two bytes or in four.
    pub fn rounded_name(self) -> &'static str {
        match self {
            Cell::Of(_) => "wide_bf16",
            Cell::Bf16 => "bf16",
            Cell::Half => "half",
        }
    }

    /// Returns the function that loads this many contiguous elements as numbers of the graph.
    pub fn load(self, lanes: usize) -> String {
        match self {
            Cell::Of(dtype) => format!("load<{}, {lanes}>", c_type(dtype)),
            Cell::Bf16 => format!("load_bf16<{lanes}>"),
            Cell::Half => format!("load<half, {lanes}>"),
        }
    }

    /// Returns the function that stores them.
    pub fn store(self, lanes: usize) -> String {
        match self {
            Cell::Of(dtype) => format!("store<{}, {lanes}>", c_type(dtype)),
            Cell::Bf16 => format!("store_bf16<{lanes}>"),
            Cell::Half => format!("store_half<{lanes}>"),
        }
    }

    /// Returns how many of this many contiguous elements are moved at once: at most 16 bytes.
    pub fn at_once(self, neighbours: usize) -> usize {
        neighbours.min(16 / self.size())
    }

    /// Returns the bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Cell::Of(dtype) => dtype.size(),
            Cell::Bf16 | Cell::Half => 2,
        }
    }
}

/// A kernel under construction.
#[derive(Default)]
pub(crate) struct Code {
    args: Vec<Arg>,
    params: Vec<String>,
    /// Statements before the loop over elements.
    head: String,
    body: String,
    /// Whether an index needs 64 bits.
    long: bool,
    /// As in [`Launch`].
    can_fail: bool,
    skips_after_failure: bool,
}

impl Code {
    /// Adds a pointer argument, this many elements from a place, and returns its name.
    pub fn pointer(&mut self, place: Place, cell: impl Into<Cell>, elements: isize) -> String {
        let cell = cell.into();
        let arg = Arg::Memory(place, elements * cell.size() as isize);
        self.param(format!("{}* ", cell.name()), "p", arg)
    }

    /// Adds a pointer argument of another C type, and returns its name.
    pub fn raw_pointer(&mut self, place: Place, bytes: isize, c_type: &str) -> String {
        self.param(format!("{c_type}* "), "p", Arg::Memory(place, bytes))
    }

    /// Adds a count argument, and returns its name.
    pub fn count(&mut self, count: u64) -> String {
        self.long |= count >= 1 << 31;
        self.args.push(Arg::Count(count));
        self.params.push(format!("const U n{}", self.params.len()));
        format!("n{}", self.params.len() - 1)
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
        self.param("u64* ".into(), "error", Arg::Error)
    }

    /// Returns a constant: a literal if it is simple, otherwise an argument.
    pub fn number(&mut self, value: f64, dtype: DType) -> String {
        let simple = value.abs() <= 16.0 && (value * 4.0).fract() == 0.0 && !(value == 0.0 && value.is_sign_negative());
        if simple {
            return format!("{}({value:?})", c_type(dtype));
        }
        self.param(format!("const {} ", c_type(dtype)), "c", Arg::Number(dtype, value))
    }

    fn param(&mut self, declared: String, name: &str, arg: Arg) -> String {
        // A NaN is not equal to itself; two arguments for it do no harm.
        let number = self.args.iter().zip(&self.params).position(|(a, p)| *a == arg && p.starts_with(&declared));
        let number = number.unwrap_or_else(|| {
            self.args.push(arg);
            self.params.push(format!("{declared}{name}{}", self.params.len()));
            self.params.len() - 1
        });
        format!("{name}{number}")
    }

    /// Notes that an index can be this large.
    pub fn reaches(&mut self, elements: usize) {
        self.long |= elements >= 1 << 31;
    }

    /// Maps each of this many elements to a thread, as `e`; to be launched by [`launch_each`](Self::launch_each).
    pub fn each(&mut self, count: usize) {
        self.reaches(count);
        let all = self.count(count as u64);
        self.line(format!("const U e = (U)blockIdx.x * {MAP_BLOCK} + threadIdx.x;"));
        self.line(format!("if (e >= {all}) return;"));
    }

    /// Returns the kernel with a thread for each of this many elements.
    pub fn launch_each(self, count: usize) -> Launch {
        self.launch([count.div_ceil(MAP_BLOCK), 1], MAP_BLOCK as u32)
    }

    /// Adds a statement before the loop over elements.
    pub fn head(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.head, "    {}", line.as_ref());
    }

    /// Adds a statement to the body.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.body, "    {}", line.as_ref());
    }

    /// Adds a statement for each of this many lanes.
    pub fn lanes(&mut self, count: usize, line: impl AsRef<str>) {
        self.every(1, count, line);
    }

    /// Adds a statement for every `step`-th of this many lanes.
    pub fn every(&mut self, step: usize, count: usize, line: impl AsRef<str>) {
        let next = if step == 1 { "++j".to_string() } else { format!("j += {step}") };
        let _ = writeln!(self.body, "#pragma unroll\n    for (int j = 0; j < {count}; {next}) {}", line.as_ref());
    }

    /// Takes the body so far; it starts again empty.
    pub fn take_body(&mut self) -> String {
        std::mem::take(&mut self.body)
    }

    /// Returns the length of the body so far.
    pub fn written(&self) -> usize {
        self.body.len()
    }

    /// Removes and returns the body after this length.
    pub fn take_after(&mut self, written: usize) -> String {
        self.body.split_off(written)
    }

    /// Returns the kernel for blocks of this many threads.
    pub fn launch(self, grid: [usize; 2], block: u32) -> Launch {
        self.launch_bounded(grid, block, &block.to_string(), 0)
    }

    /// Returns the kernel with this much dynamic shared memory, and a minimum number of blocks per multiprocessor.
    pub fn launch_with(self, grid: [usize; 2], block: u32, at_once: usize, shared: usize) -> Launch {
        self.launch_bounded(grid, block, &format!("{block}, {at_once}"), shared as u32)
    }

    fn launch_bounded(self, grid: [usize; 2], block: u32, bounds: &str, shared: u32) -> Launch {
        let index = if self.long { "typedef u64 U; typedef long long I;" } else { "typedef u32 U; typedef int I;" };
        let source = format!(
            "{index}\nextern \"C\" __global__ void __launch_bounds__({bounds}) kernel({}) {{\n{}{}}}\n",
            self.params.join(", "),
            self.head,
            self.body
        );
        // Grids that are too large are refused when the plan is built.
        let grid = grid.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX));
        let Code { args, can_fail, skips_after_failure, .. } = self;
        Launch { source, args, parts: 1, grid, block, shared, can_fail, skips_after_failure }
    }
}

/// Returns the offset of element `e` in a view with these runs, without the view's own offset.
///
/// Σₐ ((e / Πᵦ₍ᵦ﹥ₐ₎ lengthᵦ) mod lengthₐ)·strideₐ
pub(crate) fn decode(runs: &[Run], e: &str) -> String {
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
pub(crate) fn reach(runs: &[Run]) -> usize {
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
