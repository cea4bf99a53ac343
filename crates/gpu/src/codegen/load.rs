//! Loads of loop operands, from memory or from shared memory.

use crate::codegen::body::Members;
use crate::codegen::kernel::{CStorage, Value, c_type, decode, reach};
use crate::codegen::prefetch::{self, PrefetchedValue};
use crate::codegen::thread_mapping::ThreadMapping;
use bilevel_graph::Result;
use bilevel_plan::{Run, StorageType, View};

/// An operand that is already in shared memory.
pub struct SmemOperand {
    /// The node.
    pub node: usize,
    /// The expression of the start of a thread's row.
    pub row: String,
}

/// Elements in memory: the runs and the offset of their view, their type, and the pointer to the first.
type Source<'a> = (&'a [Run], isize, StorageType, &'a str);

impl Members<'_, '_> {
    /// Returns a value loaded from a node's memory: one per lane, or one per row.
    pub fn load(&mut self, node: usize, view: &View, full: bool) -> Result<Value> {
        let key = (node, view.clone(), full);
        if let Some(value) = self.loaded.get(&key) {
            return Ok(value.clone());
        }
        let dtype = self.context.schedule.nodes[node].dtype;
        let storage = self.context.storage(node);
        let pointer = self.code.input(self.context.place(node)?, storage, view.offset);
        let (c, lanes) = (c_type(dtype), self.mapping.lanes());
        let name = format!("m{}", self.fresh());
        let runs = view.runs();
        self.code.reaches(view.count().max(reach(&runs)));
        // The runs of the rows, and within a row.
        let in_rows = match self.mapping {
            ThreadMapping::RowPerGroup { length, .. } | ThreadMapping::ColumnMajor { length, .. } if full => {
                split(&runs, length)
            }
            _ => None,
        };
        let is_one = |runs: &[Run]| runs.iter().all(|run| run.stride == 0);
        let one = match &in_rows {
            _ if is_one(&runs) => Some("0".to_string()),
            _ if !full => Some(decode(&runs, "row")),
            Some((outer, inner)) if is_one(inner) => Some(decode(outer, self.mapping.row_number())),
            _ => None,
        };
        let value = if one.is_some() { Value::One(name.clone()) } else { Value::Lanes(name.clone()) };
        self.loaded.insert(key, value.clone());
        let lanes = one.is_none().then_some(lanes);
        let registers = lanes.unwrap_or(1) * dtype.size().div_ceil(4);
        let same = in_rows.is_some_and(|(outer, _)| is_one(&outer));
        let is_prefetched = registers <= self.prefetch.registers && (same || !self.prefetch.only_same);
        self.prefetch.registers -= if is_prefetched { registers } else { 0 };
        if is_one(&runs) {
            self.code.head(format!("const {c} {name} = {pointer}[0];"));
            return Ok(value);
        }
        let from = (&runs[..], view.offset, storage, &pointer[..]);
        if is_prefetched {
            let written = self.code.written();
            let target = if same { name.clone() } else { prefetch::next_of(&name) };
            match one {
                Some(place) => self.code.line(format!("{target} = {pointer}[{place}];")),
                None => self.load_lanes((node, view), from, (&name, &target)),
            }
            let load = self.code.take_after(written);
            self.prefetch.parts.push(PrefetchedValue { name, c, lanes, load, same });
            return Ok(value);
        }
        match (one, lanes) {
            (Some(place), _) => self.code.line(format!("const {c} {name} = {pointer}[{place}];")),
            (None, lanes) => {
                self.code.line(format!("{c} {name}[{}];", lanes.unwrap_or(1)));
                self.load_lanes((node, view), from, (&name, &name));
            }
        }
        Ok(value)
    }

    /// Loads the lanes of a value to the array `target`; other variables are named after the value.
    fn load_lanes(&mut self, (node, view): (usize, &View), from: Source, (name, target): (&str, &str)) {
        let in_rows = |runs: &[Run], length: usize| split(runs, length).is_some();
        match self.mapping {
            ThreadMapping::Flat { lanes } => self.load_side(from, lanes, (name, target)),
            ThreadMapping::ColumnMajor { lanes, length } if !in_rows(from.0, length) => {
                self.load_side(from, lanes, (name, target))
            }
            ThreadMapping::RowPerGroup { length, .. } | ThreadMapping::ColumnMajor { length, .. } => {
                self.load_row(from, length, (name, target))
            }
            ThreadMapping::MmaFragment { lanes } => {
                let whole = self.context.schedule.nodes[node].is_whole(view);
                let smem_operand = self.smem_operand.as_ref().filter(|smem_operand| whole && smem_operand.node == node);
                let place = smem_operand.map(|smem_operand| smem_operand.row.clone());
                self.load_pairs(from, 4 * lanes, place, (name, target))
            }
        }
    }

    fn load_side(&mut self, (runs, offset, storage, pointer): Source, lanes: usize, (name, target): (&str, &str)) {
        let inner = runs[runs.len() - 1];
        let whole = |n: isize| n % lanes as isize == 0;
        let aligned = inner.stride == 1 && whole(offset) && runs[..runs.len() - 1].iter().all(|run| whole(run.stride));
        if !inner.length.is_multiple_of(lanes) {
            let place = decode(runs, if lanes == 1 { "e" } else { "(e + j)" });
            self.code.lanes(lanes, format!("{target}[j] = {pointer}[{place}];"));
        } else if aligned && lanes > 1 {
            let load = storage.load(lanes);
            self.code.line(format!("{load}({pointer} + ({}), {target});", decode(runs, "e")));
        } else {
            self.code.line(format!("const I {name}_at = {};", decode(runs, "e")));
            self.code.lanes(lanes, format!("{target}[j] = {pointer}[{name}_at + j * {}];", inner.stride));
        }
    }

    /// Loads two contiguous elements at once, if all pairs are aligned.
    fn load_pairs(&mut self, from: Source, length: usize, smem_operand: Option<String>, (name, target): (&str, &str)) {
        let (runs, offset, storage, pointer) = from;
        let even = |n: isize| n % 2 == 0;
        let rows = split(runs, length).filter(|(outer, inner)| {
            let in_order = matches!(inner[..], [Run { stride: 1, .. }]);
            in_order && even(length as isize) && even(offset) && outer.iter().all(|run| even(run.stride))
        });
        let Some((outer, _)) = rows else { return self.load_row(from, length, (name, target)) };
        let (pairs, load) = (self.mapping.lanes() / 2, storage.load(2));
        let row = smem_operand.unwrap_or_else(|| format!("{pointer} + ({})", decode(&outer, "row")));
        self.code.line(format!("const {}* const {name}_row = {row};", storage.name()));
        self.code.lanes(pairs, format!("{load}({name}_row + left + j * 8, {target} + 2 * j);"));
    }

    /// Loads as many contiguous elements at once as a thread has, if all of them are aligned.
    fn load_row(&mut self, (runs, offset, storage, pointer): Source, length: usize, (name, target): (&str, &str)) {
        let (column, lanes) = (&self.mapping.column(), self.mapping.lanes());
        let Some((outer, inner)) = split(runs, length) else {
            let place = decode(runs, &self.mapping.element());
            return self.code.lanes(lanes, format!("{target}[j] = {pointer}[{place}];"));
        };
        self.code.line(format!("const I {name}_row = {};", decode(&outer, self.mapping.row_number())));
        let place = format!("{name}_row + {}", decode(&inner, column));
        let most = storage.at_once(self.mapping.beside());
        let at_once = (2..=most).rev().find(|&n| most.is_multiple_of(n) && are_vectors(n, offset, &outer, &inner));
        match at_once.map(|n| (n, storage.load(n))) {
            Some((n, load)) => self.code.every(n, lanes, format!("{load}({pointer} + ({place}), &{target}[j]);")),
            None => self.code.lanes(lanes, format!("{target}[j] = {pointer}[{place}];")),
        }
    }
}

/// Returns true if every n consecutive elements of a row, starting at a multiple of n, are contiguous and aligned in
/// memory.
fn are_vectors(n: usize, offset: isize, outer: &[Run], inner: &[Run]) -> bool {
    let whole = |places: isize| places % n as isize == 0;
    inner.split_last().is_some_and(|(last, others)| {
        let apart = outer.iter().chain(others).all(|run| whole(run.stride));
        last.stride == 1 && last.length.is_multiple_of(n) && whole(offset) && apart
    })
}

/// Returns the runs of the rows and those within a row; `None` if a run crosses the boundary.
pub fn split(runs: &[Run], length: usize) -> Option<(Vec<Run>, Vec<Run>)> {
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
