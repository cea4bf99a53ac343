//! A fused loop as a list of instructions on tiles, and how to run it on one tile.

use crate::gemm::Piece;
use crate::kernels::{BinaryFn, RandomFn, RowsFn, StridedFn, TernaryFn, UnaryFn};
use crate::runtime::memory::{Address, Memory, SCRATCH};
use bilevel_plan::Run;

/// Longest list of strides a view may need.
pub(crate) const MAX_RUNS: usize = 12;

/// How a place moves during the loop. A tile's pointers are computed without a branch: region + offset + index·size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// It stands still.
    Fixed = 0,
    /// It advances with the elements of the loop.
    Full = 1,
    /// It advances with its rows.
    Row = 2,
}

/// The operand or result of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub start: Address,
    pub advance: Advance,
    /// Bytes of an element.
    pub size: usize,
}

impl Place {
    /// A place in a worker's scratch.
    pub fn scratch(offset: usize) -> Self {
        Place { start: Address { region: SCRATCH, offset }, advance: Advance::Fixed, size: 0 }
    }

    pub fn is_scratch(&self) -> bool {
        self.start.region == SCRATCH
    }
}

/// Elements from strided memory into a tile.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub from: Place,
    pub runs: Vec<Run>,
    pub copy: UnaryFn,
    pub fill: UnaryFn,
    pub strided: StridedFn,
    /// The same in every tile: loaded only for a task's first.
    pub once: bool,
}

/// A reduction into memory: the place to which each element of the loop is added.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    pub runs: Vec<Run>,
    pub size: usize,
    pub count: usize,
    /// Combines a stretch of elements into as many results.
    pub accumulate: UnaryFn,
    /// Reduces one row.
    pub row: RowsFn,
    /// The value of no elements, as the bits of one element.
    pub start: [u8; 8],
    pub fill: UnaryFn,
    /// The address of the result.
    pub result: Address,
    /// The addresses of the tasks' sums if there are several.
    pub partial: Address,
}

/// One instruction. `rows` says whether it works on one value per row or on every element.
#[derive(Clone, Debug)]
pub(crate) enum Instruction {
    Unary {
        f: UnaryFn,
        dst: Place,
        a: Place,
        rows: bool,
    },
    Binary {
        f: BinaryFn,
        dst: Place,
        a: Place,
        b: Place,
        rows: bool,
    },
    Ternary {
        f: TernaryFn,
        dst: Place,
        a: Place,
        b: Place,
        c: Place,
        rows: bool,
    },
    /// Row values along their rows.
    Repeat {
        f: RowsFn,
        dst: Place,
        a: Place,
    },
    /// Rows to row values.
    Reduce {
        f: RowsFn,
        dst: Place,
        a: Place,
    },
    Load {
        load: usize,
        dst: Place,
        rows: bool,
    },
    Random {
        f: RandomFn,
        stream: u32,
        dst: Place,
        key: Place,
        counter: Place,
        rows: bool,
    },
    Sink {
        sink: usize,
        a: Place,
        rows: bool,
    },
}

/// A fused loop, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct TileProgram {
    pub n: usize,
    /// Elements in a row; tiles are whole rows.
    pub row: usize,
    pub rows_per_tile: usize,
    pub tiles_per_task: usize,
    pub tasks: usize,
    pub instructions: Vec<Instruction>,
    pub loads: Vec<Load>,
    pub sinks: Vec<Sink>,
    /// Bytes of scratch a worker needs.
    pub scratch: usize,
}

/// Visits `count` elements from number `first` of a strided view, a run at a time: (offset, stride, done, length).
#[inline(always)]
fn walk(runs: &[Run], first: usize, count: usize, mut visit: impl FnMut(isize, isize, usize, usize)) {
    let Some((inner, outer)) = runs.split_last() else { return visit(0, 0, 0, count) };
    let mut index = [0usize; MAX_RUNS];
    let mut rest = first / inner.length;
    let mut offset = 0isize;
    for (i, run) in outer.iter().enumerate().rev() {
        index[i] = rest % run.length;
        rest /= run.length;
        offset += index[i] as isize * run.stride;
    }
    let mut start = first % inner.length;
    let mut done = 0;
    while done < count {
        let length = (inner.length - start).min(count - done);
        visit(offset + start as isize * inner.stride, inner.stride, done, length);
        done += length;
        start = 0;
        for (i, run) in outer.iter().enumerate().rev() {
            index[i] += 1;
            offset += run.stride;
            if index[i] < run.length {
                break;
            }
            offset -= run.length as isize * run.stride;
            index[i] = 0;
        }
    }
}

impl TileProgram {
    /// Runs one task on one worker.
    ///
    /// # Safety
    /// `memory` must be laid out as the plan says, and no other task may run on `worker` at the same time.
    pub unsafe fn run_task(&self, memory: Memory, task: usize, worker: usize) {
        // SAFETY: the caller's promise.
        let memory = unsafe { memory.of_worker(worker) };
        let mut tile = Tile { memory, index: [0; 3], count: 0, rows: 0 };
        // SAFETY: the plan reserved room for the sums of every task.
        unsafe { self.clear_sinks(memory, task) };
        let rows = self.n / self.row;
        let first_tile = task * self.tiles_per_task;
        for t in first_tile..first_tile + self.tiles_per_task {
            let first_row = t * self.rows_per_tile;
            if first_row >= rows {
                break;
            }
            tile.rows = self.rows_per_tile.min(rows - first_row);
            tile.count = tile.rows * self.row;
            tile.index = [0, first_row * self.row, first_row];
            for instruction in &self.instructions {
                // SAFETY: as for this function.
                unsafe { self.step(instruction, &tile, memory, task, t == first_tile) };
            }
        }
    }

    /// Runs the loop on one piece of the product whose epilogue it is.
    ///
    /// # Safety
    /// As for [`run_task`](Self::run_task); the piece is complete, and its stretches are whole rows.
    pub unsafe fn run_piece(&self, memory: Memory, piece: &Piece, worker: usize) {
        // SAFETY: the caller's promise.
        let memory = unsafe { memory.of_worker(worker) };
        // SAFETY: the plan reserved room for the sums of every piece.
        unsafe { self.clear_sinks(memory, piece.number) };
        let most = self.rows_per_tile * self.row;
        for stretch in 0..piece.count {
            let start = piece.first + stretch * piece.step;
            for done in (0..piece.length).step_by(most) {
                let (first, count) = (start + done, most.min(piece.length - done));
                let rows = count / self.row;
                let tile = Tile { memory, index: [0, first, first / self.row], count, rows };
                for instruction in &self.instructions {
                    // SAFETY: as for this function.
                    unsafe { self.step(instruction, &tile, memory, piece.number, stretch == 0 && done == 0) };
                }
            }
        }
    }

    /// Sets the sums of a task to those of no elements.
    ///
    /// # Safety
    /// As for [`run_task`](Self::run_task).
    unsafe fn clear_sinks(&self, memory: Memory, task: usize) {
        for sink in &self.sinks {
            // SAFETY: the plan reserved `count` elements at the sink's place for every task.
            unsafe { (sink.fill)(self.sink_place(sink, memory, task), sink.start.as_ptr(), sink.count) };
        }
    }

    /// The address of a task's sums of a sink.
    ///
    /// # Safety
    /// As for [`run_task`](Self::run_task).
    unsafe fn sink_place(&self, sink: &Sink, memory: Memory, task: usize) -> *mut u8 {
        // SAFETY: inside the program's memory by plan.
        unsafe {
            match self.tasks {
                1 => memory.at(sink.result),
                _ => memory.at(sink.partial).add(task * sink.count * sink.size),
            }
        }
    }

    /// One instruction on one tile.
    ///
    /// # Safety
    /// As for [`run_task`](Self::run_task), for a tile of the task.
    #[inline(always)]
    unsafe fn step(&self, instruction: &Instruction, tile: &Tile, memory: Memory, task: usize, first: bool) {
        // SAFETY: places come from the plan; kernels are given as many elements as the plan reserved.
        unsafe {
            match instruction {
                Instruction::Unary { f, dst, a, rows } => f(tile.at(dst), tile.at(a), tile.length(*rows)),
                Instruction::Binary { f, dst, a, b, rows } => {
                    f(tile.at(dst), tile.at(a), tile.at(b), tile.length(*rows))
                }
                Instruction::Ternary { f, dst, a, b, c, rows } => {
                    f(tile.at(dst), tile.at(a), tile.at(b), tile.at(c), tile.length(*rows))
                }
                Instruction::Repeat { f, dst, a } | Instruction::Reduce { f, dst, a } => {
                    f(tile.at(dst), tile.at(a), tile.rows, self.row)
                }
                Instruction::Load { load, dst, rows } => {
                    let load = &self.loads[*load];
                    if first || !load.once {
                        tile.load(load, tile.at(dst), *rows);
                    }
                }
                Instruction::Random { f, stream, dst, key, counter, rows } => {
                    let key = tile.at(key).cast::<[u32; 2]>().read_unaligned();
                    let counter = tile.at(counter).cast::<u32>().read_unaligned();
                    f(tile.at(dst), key, counter, *stream, tile.first(*rows) as u64, tile.length(*rows));
                }
                Instruction::Sink { sink, a, rows } => {
                    let sink = &self.sinks[*sink];
                    tile.sink(sink, self.sink_place(sink, memory, task), tile.at(a), *rows);
                }
            }
        }
    }

    /// Adds up the sums of the tasks in their order, so the result does not depend on the threads that ran them.
    ///
    /// # Safety
    /// As [`run_task`](Self::run_task), after all tasks have ended.
    pub unsafe fn combine(&self, memory: Memory) {
        if self.tasks == 1 {
            return;
        }
        for sink in &self.sinks {
            // SAFETY: result and partial sums are disjoint parts of the program's memory.
            unsafe {
                let result = memory.at(sink.result);
                (sink.fill)(result, sink.start.as_ptr(), sink.count);
                for task in 0..self.tasks {
                    (sink.accumulate)(result, self.sink_place(sink, memory, task), sink.count);
                }
            }
        }
    }
}

/// One tile in flight.
struct Tile {
    memory: Memory,
    /// First element or row, by how a place advances.
    index: [usize; 3],
    count: usize,
    rows: usize,
}

impl Tile {
    /// The address of a place at this tile.
    ///
    /// # Safety
    /// The place is one of the plan that this tile belongs to.
    #[inline(always)]
    unsafe fn at(&self, place: &Place) -> *mut u8 {
        // SAFETY: the plan keeps every place inside its memory.
        unsafe { self.memory.at(place.start).add(self.index[place.advance as usize] * place.size) }
    }

    #[inline(always)]
    fn length(&self, rows: bool) -> usize {
        if rows { self.rows } else { self.count }
    }

    fn first(&self, rows: bool) -> usize {
        self.index[if rows { Advance::Row as usize } else { Advance::Full as usize }]
    }

    /// Gathers the elements of a view that belong to this tile.
    ///
    /// # Safety
    /// `dst` has room for the elements of a tile.
    unsafe fn load(&self, load: &Load, dst: *mut u8, rows: bool) {
        let size = load.from.size as isize;
        // SAFETY: the view lies inside the memory of its node.
        unsafe {
            let from = self.at(&load.from);
            walk(&load.runs, self.first(rows), self.length(rows), |offset, stride, done, length| {
                let (dst, src) = (dst.add(done * size as usize), from.offset(offset * size));
                match stride {
                    1 => (load.copy)(dst, src, length),
                    0 => (load.fill)(dst, src, length),
                    _ => (load.strided)(dst, src, stride, length),
                }
            });
        }
    }

    /// Adds the elements of this tile to the sums of a sink.
    ///
    /// # Safety
    /// `a` holds the elements of this tile, and `result` is the address of the task's sums.
    unsafe fn sink(&self, sink: &Sink, result: *mut u8, a: *const u8, rows: bool) {
        let size = sink.size as isize;
        // SAFETY: the runs lead to elements of the result only.
        unsafe {
            walk(&sink.runs, self.first(rows), self.length(rows), |offset, stride, done, length| {
                let (to, from) = (result.offset(offset * size), a.add(done * size as usize));
                match stride {
                    1 => (sink.accumulate)(to, from, length),
                    0 => {
                        let mut sum = [0u64; 1];
                        (sink.row)(sum.as_mut_ptr().cast(), from, 1, length);
                        (sink.accumulate)(to, sum.as_ptr().cast(), 1);
                    }
                    _ => {
                        for i in 0..length as isize {
                            (sink.accumulate)(to.offset(i * stride * size), from.offset(i * size), 1);
                        }
                    }
                }
            });
        }
    }
}
