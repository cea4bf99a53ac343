//! Inline gathers: a loop loads the whole short row of each index, and members select their columns.
//!
//! row(e) = table[base(e) + index(e)·stride ..][.. stride], zeros if the index is out of range

use crate::codegen::body::Members;
use crate::codegen::kernel::{Value, c_type, decode, reach};
use crate::codegen::limits::VECTOR_BYTES;
use crate::codegen::parts::Part;
use bilevel_graph::{DType, Result};
use bilevel_plan::{Kind, StorageType, View, expect, internal_error};

/// Gathered rows: their indices, the table, and the view of row 0.
pub type GatheredRows = (Value, usize, View);

impl Members<'_, '_> {
    /// Returns the expression of a member's gathered value, for lane j if it has lanes.
    pub fn gathered_value(&mut self, member: usize) -> Result<String> {
        let node = &self.context.schedule.nodes[member];
        let Kind::InlineGather { stride, limit, .. } = node.kind else {
            return Err(internal_error("the table of an inline gather"));
        };
        let (table, view) = expect(node.operands[1].at(), "the table of an inline gather", node.location)?;
        let index = self.operand(member, &node.operands[0], DType::I32)?;
        // A column of a row if all elements read the same one; otherwise a row of one element.
        let by_rows = view.strides.iter().all(|across| across.unsigned_abs().is_multiple_of(stride));
        let column = if by_rows { view.offset.rem_euclid(stride as isize) } else { 0 };
        let from = View { offset: view.offset - column, ..view.clone() };
        let width = if by_rows { stride } else { 1 };
        let lanes = if self.is_row(member) { 1 } else { self.mapping.lanes() };
        let key = (index.clone(), table, from.clone());
        let name = match self.rows.get(&key) {
            Some(name) => name.clone(),
            None => {
                let name = format!("f{}", self.fresh());
                self.rows.insert(key, name.clone());
                self.gather_rows(member, (table, &from), (&index, limit, stride, width), (&name, lanes))?;
                name
            }
        };
        if let Some(operation) = self.context.checks.number(member) {
            self.check(member, operation, (&index, limit), lanes);
        }
        let lane = if self.is_row(member) { "0" } else { "j" };
        Ok(format!("{name}[{lane}][{column}]"))
    }

    /// Returns the condition for lane j to be an element, and its index.
    fn numbered(&self, member: usize) -> (Option<String>, String) {
        if self.is_row(member) { (None, "row".into()) } else { (self.mapping.inside(), self.mapping.element()) }
    }

    fn gather_rows(
        &mut self,
        member: usize,
        (table, from): (usize, &View),
        (index, limit, stride, width): (&Value, usize, usize, usize),
        (name, lanes): (&str, usize),
    ) -> Result<()> {
        let dtype = self.context.schedule.nodes[table].dtype;
        let c = c_type(dtype);
        let runs = from.runs();
        self.code.reaches(from.count().max(reach(&runs) + limit * stride));
        self.code.uses(Part::InlineGather);
        let pointer = self.code.input(self.context.place(table)?, StorageType::from(dtype), from.offset);
        let limit = self.code.count(limit as u64);
        // Rows are aligned to their width. The bytes of a load are a power of two.
        let at_once = if width.is_power_of_two() { width.min(VECTOR_BYTES / dtype.size()) } else { 1 };
        let (_, element) = self.numbered(member);
        let place = format!("{pointer} + ({})", decode(&runs, &element));
        self.code.line(format!("alignas(16) {c} {name}[{lanes}][{width}];"));
        let fetch =
            format!("gather_row<{c}, {width}, {at_once}>({place}, {index}, (u64){limit}, {stride}, {name}[j]);");
        self.code.lanes(lanes, fetch);
        Ok(())
    }

    /// Reports an index out of range.
    fn check(&mut self, member: usize, operation: usize, (index, limit): (&Value, usize), lanes: usize) {
        let limit = self.code.count(limit as u64);
        let (inside, element) = self.numbered(member);
        let inside = inside.map_or(String::new(), |inside| format!("{inside} && "));
        let out = format!("{inside}({index} < 0 || (U){index} >= {limit})");
        let report = self.code.report(operation, &element, &index.to_string());
        self.code.lanes(lanes, format!("if ({out}) {report}"));
    }
}
