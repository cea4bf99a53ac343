//! Lowering: data movement becomes views, operations that need dense operands get copies, and products get strides.

pub(crate) mod carried_casts;
pub(crate) mod casts;
pub(crate) mod inline_gather;
pub(crate) mod narrow_storage;
pub(crate) mod pad_sum;
pub(crate) mod scaled_fp16;

use crate::internal_error::{expect, internal_error};
use crate::ir::dot_layout::{dot_result, lower_dot, placed};
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Elementwise, Kind, Node, Operand, Padding};
use crate::ir::storage_type::StorageType;
use crate::ir::view::View;
use crate::lower::pad_sum::{are_disjoint, pad_sums};
use crate::lower::scaled_fp16::ScaledF16Operands;
use crate::target::Target;
use bilevel_graph::{
    BinaryOp, ConvDims, ConvRole, DType, DotDims, Line, Meta, Op, Precision, Program, ProgramNode, Result,
};
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};

/// A lowered program in the making.
#[derive(Default)]
pub(crate) struct Lowering {
    pub graph: LoweredGraph,
    pub copies: Copies,
}

/// The copies of values that products read. They are known by node, so that they are of use only until nodes are
/// renumbered: the pass that carries casts takes them.
#[derive(Default)]
pub(crate) struct Copies {
    /// The rounded copy of a node that products of this precision read.
    pub rounded: HashMap<(usize, Precision), usize>,
    /// Operands scaled to fp16.
    pub scaled_f16: ScaledF16Operands,
    /// Copies of views of a node, rounded or not, that products read.
    pub parts: HashMap<(usize, View, Option<Precision>), usize>,
}

impl Deref for Lowering {
    type Target = LoweredGraph;

    fn deref(&self) -> &LoweredGraph {
        &self.graph
    }
}

impl DerefMut for Lowering {
    fn deref_mut(&mut self) -> &mut LoweredGraph {
        &mut self.graph
    }
}

impl Lowering {
    pub fn push(&mut self, kind: Kind, operands: Vec<Operand>, shape: &[usize], dtype: DType, like: Line) -> usize {
        let invariant = !matches!(kind, Kind::Input)
            && operands.iter().all(|o| o.at().is_none_or(|(node, _)| self.nodes[node].invariant));
        let layout = View::contiguous(shape);
        // Moving elements keeps their storage.
        let moves = match &kind {
            Kind::PadSum(frames) => are_disjoint(frames, &operands),
            kind => matches!(kind, Kind::Elementwise(Elementwise::Copy) | Kind::Concat(_) | Kind::Pad(_)),
        };
        let is_bf16 = |o: &Operand| o.at().is_some_and(|(node, _)| self.nodes[node].storage == StorageType::Bf16);
        let storage = if moves && operands.iter().all(is_bf16) { StorageType::Bf16 } else { dtype.into() };
        if storage == StorageType::Bf16 {
            let number = self.nodes.len();
            self.copies.rounded.insert((number, Precision::Bf16), number);
        }
        self.nodes.push(Node {
            kind,
            operands,
            shape: shape.to_vec(),
            dtype,
            storage,
            layout,
            invariant,
            is_remat: false,
            location: like,
        });
        self.nodes.len() - 1
    }

    pub fn dense(&self, node: usize) -> Operand {
        Operand::At { node, view: View::contiguous(&self.nodes[node].shape) }
    }

    /// Recomputes a comparison with a constant for each of its readers.
    fn fresh(&mut self, value: &Operand, target: &Target) -> Operand {
        let Operand::At { node, view } = value else { return value.clone() };
        let made = &self.nodes[*node];
        let comparison = matches!(made.kind, Kind::Elementwise(Elementwise::Binary(op)) if op.is_comparison());
        let is_mask = comparison && made.operands.iter().any(|operand| matches!(operand, Operand::Constant(_)));
        if !is_mask || made.shape.is_empty() || !target.costs.recomputes_masks {
            return value.clone();
        }
        let again = made.clone();
        let node = self.push(again.kind, again.operands, &again.shape, again.dtype, again.location);
        Operand::At { node, view: view.clone() }
    }

    /// Returns a dense copy of an operand in this shape.
    pub fn copy(&mut self, operand: Operand, shape: &[usize], dtype: DType, like: Line) -> Operand {
        let node = self.push(Kind::Elementwise(Elementwise::Copy), vec![operand], shape, dtype, like);
        self.dense(node)
    }

    /// Returns the operand itself if it is dense from the start of its memory; otherwise a copy.
    fn dense_operand(&mut self, operand: Operand, shape: &[usize], dtype: DType, like: Line) -> Operand {
        let operand = self.widened(operand, shape, dtype, like);
        match &operand {
            Operand::At { node, view } if self.nodes[*node].is_whole(view) => operand,
            _ => self.copy(operand, shape, dtype, like),
        }
    }

    /// Returns the operand itself if it is in memory; otherwise a broadcast table of the constant.
    fn stretched(&mut self, operand: &Operand, shape: &[usize], dtype: DType, like: Line) -> Operand {
        match operand {
            Operand::At { .. } => operand.clone(),
            Operand::Constant(value) => {
                let node = self.push(Kind::Table(vec![*value]), vec![], &[], dtype, like);
                Operand::At { node, view: View::contiguous(&[]).broadcast(&[], shape) }
            }
        }
    }

    /// Adds a check that these dense indices are in 0..limit.
    fn check(&mut self, indices: Operand, limit: usize, operation: &'static str, like: Line) {
        let same = |node: &Node| match node.kind {
            Kind::CheckIndex { limit: known, operation: by } => {
                (known, by) == (limit, operation)
                    && node.reads().map(|(read, _)| read).eq(indices.at().map(|(at, _)| at))
            }
            _ => false,
        };
        if !self.nodes.iter().any(same) {
            self.push(Kind::CheckIndex { limit, operation }, vec![indices], &[0], DType::I32, like);
        }
    }

    /// Returns a carried input with the rows of a scatter added, replacing the scatter.
    fn add_rows(&mut self, input: Operand, scatter: &Operand, like: Line) -> Option<Operand> {
        let scatter = self.nodes[scatter.at()?.0].clone();
        let Kind::ScatterAdd { batch } = scatter.kind else { return None };
        self.check(scatter.operands[0].clone(), scatter.shape[batch], "scatter_add", scatter.location);
        let operands = [vec![input], scatter.operands].concat();
        let node = self.push(Kind::AddRows { batch }, operands, &scatter.shape, scatter.dtype, like);
        Some(self.dense(node))
    }

    /// Returns the sum of padded values, replacing the paddings.
    fn pad_sum<'a>(
        &mut self,
        pads: impl Iterator<Item = &'a Operand>,
        shape: &[usize],
        dtype: DType,
        like: Line,
    ) -> Option<Operand> {
        let (mut frames, mut operands) = (vec![], vec![]);
        for pad in pads {
            let pad = &self.nodes[pad.at()?.0];
            let Kind::Pad(frame) = &pad.kind else { return None };
            frames.push(frame.clone());
            operands.extend(pad.operands.clone());
        }
        let node = self.push(Kind::PadSum(frames), operands, shape, dtype, like);
        Some(self.dense(node))
    }

    /// Returns the operand itself if it is in memory; otherwise a copy of the constant.
    pub fn in_memory(&mut self, operand: Operand, shape: &[usize], dtype: DType, like: Line) -> Operand {
        match operand {
            Operand::Constant(_) => self.copy(operand, shape, dtype, like),
            at => at,
        }
    }
}

/// Lowers every node of the program.
pub(crate) fn lower(program: &Program, target: &Target) -> Result<Lowering> {
    let graph = LoweredGraph { inputs: vec![None; program.inputs.len()], ..LoweredGraph::default() };
    let mut low = Lowering { graph, copies: Copies::default() };
    let mut changes = vec![false; program.inputs.len()];
    program.carries.iter().map(|carry| carry.input).chain(program.step).for_each(|input| changes[input] = true);
    let numbers = program.inputs.iter().enumerate().filter_map(|(number, port)| Some((port.node?, number)));
    let input_of: HashMap<usize, usize> = numbers.collect();
    let next: HashSet<usize> = program.carries.iter().map(|carry| carry.next).collect();
    let uses = uses(program);
    let written_transposed = transposed_results(program, &uses);
    let rows_added = rows_added(program, &uses);
    let pad_sums = if target.can.pad_sum { pad_sums(program, &uses) } else { vec![None; program.nodes.len()] };
    let mut values: Vec<Operand> = Vec::with_capacity(program.nodes.len());
    for (id, node) in program.nodes.iter().enumerate() {
        let (shape, dtype, line) = (&node.meta.shape, node.meta.dtype, node.location);
        if let Some([input, scatter]) = rows_added[id] {
            let sum = low.add_rows(values[input].clone(), &values[scatter], line);
            values.push(expect(sum, "the rows of a scatter", line)?);
            continue;
        }
        if let Some(pads) = &pad_sums[id] {
            let sum = low.pad_sum(pads.iter().map(|&pad| &values[pad]), shape, dtype, line);
            values.push(expect(sum, "the terms of a sum of padded values", line)?);
            continue;
        }
        if let Op::Input(_) = node.op {
            let number = *expect(input_of.get(&id), "the name of an input", line)?;
            values.push(low.input(number, !changes[number], node));
            continue;
        }
        let operation = Operation {
            node,
            operands: node.inputs.iter().map(|&i| low.fresh(&values[i], target)).collect(),
            metas: node.inputs.iter().map(|&i| &program.nodes[i].meta).collect(),
            transposed: written_transposed[id].as_deref(),
        };
        let value = low.operation(&operation, target)?;
        if let (true, Some((node, _))) = (next.contains(&id), value.at())
            && matches!(low.nodes[node].kind, Kind::Elementwise(_))
        {
            low.copies.scaled_f16.parameters.insert(node);
        }
        values.push(value);
    }
    finish(&mut low, program, &values)?;
    Ok(low)
}

/// An operation of the program, with its operands as they are lowered.
struct Operation<'a> {
    node: &'a ProgramNode,
    operands: Vec<Operand>,
    /// Types and shapes of the operands.
    metas: Vec<&'a Meta>,
    /// The permutation in which the result is read, if it is read in no other.
    transposed: Option<&'a [usize]>,
}

impl Operation<'_> {
    /// Returns a view of the first operand.
    fn view(&self, change: impl FnOnce(&View) -> View) -> Operand {
        through(&self.operands[0], change)
    }
}

impl Lowering {
    fn input(&mut self, number: usize, invariant: bool, of: &ProgramNode) -> Operand {
        let node = self.push(Kind::Input, vec![], &of.meta.shape, of.meta.dtype, of.location);
        self.nodes[node].invariant = invariant;
        self.inputs[number] = Some(node);
        self.copies.scaled_f16.parameters.insert(node);
        self.dense(node)
    }

    /// Returns the value of an operation as a node of this kind.
    fn made(&mut self, kind: Kind, operands: Vec<Operand>, of: &Operation) -> Operand {
        let made = self.push(kind, operands, &of.node.meta.shape, of.node.meta.dtype, of.node.location);
        self.dense(made)
    }

    /// Returns the value of an operation as a node that reads dense operands.
    fn densely(&mut self, kind: Kind, of: &Operation) -> Operand {
        let operands = of.operands.iter().zip(&of.metas);
        let dense = operands
            .map(|(operand, meta)| self.dense_operand(operand.clone(), &meta.shape, meta.dtype, of.node.location))
            .collect();
        self.made(kind, dense, of)
    }

    fn elementwise(&mut self, function: Elementwise, of: &Operation) -> Operand {
        self.made(Kind::Elementwise(function), of.operands.clone(), of)
    }

    /// Returns all operands in memory, constants as tables.
    fn all_stretched(&mut self, of: &Operation) -> Vec<Operand> {
        let operands = of.operands.iter().zip(&of.metas);
        operands.map(|(operand, meta)| self.stretched(operand, &meta.shape, meta.dtype, of.node.location)).collect()
    }

    /// Lowers an operation.
    fn operation(&mut self, of: &Operation, target: &Target) -> Result<Operand> {
        let (operands, shape, line) = (&of.operands, &of.node.meta.shape, of.node.location);
        Ok(match &of.node.op {
            Op::Input(_) => return Err(internal_error("the number of an input").at(line)),
            Op::Constant(bits) => Operand::Constant(f64::from_bits(*bits)),
            Op::Iota(axis) => self.iota(*axis, of),
            Op::Random(kind, stream) => {
                let key = self.dense_operand(operands[0].clone(), &[2], DType::I32, line);
                let counter = self.dense_operand(operands[1].clone(), &[], DType::I32, line);
                self.made(Kind::Elementwise(Elementwise::Random(*kind, *stream)), vec![key, counter], of)
            }
            Op::Unary(op) => self.elementwise(Elementwise::Unary(*op), of),
            // A constant operand of a commutative operation goes last, so that equal loops have equal kernel texts.
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Mul)) if matches!(operands[0], Operand::Constant(_)) => {
                let turned = operands.iter().rev().cloned().collect();
                self.made(Kind::Elementwise(Elementwise::Binary(*op)), turned, of)
            }
            Op::Binary(op) => self.elementwise(Elementwise::Binary(*op), of),
            Op::Select => self.elementwise(Elementwise::Select, of),
            Op::Convert(to) => match operands[0] {
                Operand::At { .. } => self.elementwise(Elementwise::Convert(*to), of),
                Operand::Constant(value) => Operand::Constant(converted(value, *to)),
            },
            Op::StopGradient | Op::Custom(_) => operands[0].clone(),
            Op::CheckIndex(limit) => {
                let dense = self.dense_operand(operands[0].clone(), shape, of.node.meta.dtype, line);
                self.check(dense, *limit, "check_index", line);
                operands[0].clone()
            }
            Op::Reshape => match operands[0].at() {
                Some((node, view)) => match view.reshape(shape) {
                    Some(view) => Operand::At { node, view },
                    None => self.elementwise(Elementwise::Copy, of),
                },
                None => operands[0].clone(),
            },
            Op::Transpose(perm) => of.view(|view| view.transpose(perm)),
            Op::Broadcast(axes) => of.view(|view| view.broadcast(axes, shape)),
            Op::Slice { start, step, .. } => of.view(|view| view.slice(start, step, shape)),
            Op::Reverse(axes) => of.view(|view| view.reverse(axes)),
            Op::Reduce(op, axes) => {
                let operands = self.all_stretched(of);
                self.made(Kind::Reduce(*op, axes.clone()), operands, of)
            }
            Op::ArgMax(axis) => self.argmax(*axis, of),
            Op::Dot(dims, precision) => self.dot(dims, *precision, of, target)?,
            Op::Conv(dims, role, precision) => self.conv(dims, *role, *precision, of, target),
            Op::Gather { batch } => self.densely(Kind::Gather { batch: *batch }, of),
            Op::ScatterAdd { batch, .. } => self.densely(Kind::ScatterAdd { batch: *batch }, of),
            Op::CumSum { axis, reverse } => self.densely(Kind::CumSum { axis: *axis, reverse: *reverse }, of),
            Op::Host(call) => self.densely(Kind::Host(call.clone()), of),
            Op::Collective(collective) => {
                let made = self.densely(Kind::Collective(collective.clone()), of);
                // All ranks call it in every step, whatever each of them keeps from the step before.
                if let Some((node, _)) = made.at() {
                    self.nodes[node].invariant = false;
                }
                made
            }
            Op::Block(op) => self.densely(Kind::Block(*op), of),
            Op::WindowArgMax(dims) => self.densely(Kind::WindowArgMax(dims.clone()), of),
            Op::Concat(axis) => {
                let parts = self.all_stretched(of);
                self.made(Kind::Concat(*axis), parts, of)
            }
            Op::Pad { low, interior, .. } => {
                let operands = self.all_stretched(of);
                self.made(Kind::Pad(Padding { low: low.clone(), interior: interior.clone() }), operands, of)
            }
        })
    }

    /// Returns a table of the indices along an axis, repeated along the others.
    fn iota(&mut self, axis: usize, of: &Operation) -> Operand {
        let (shape, length) = (&of.node.meta.shape, of.node.meta.shape[axis]);
        let table = (0..length).map(|i| i as f64).collect();
        let node = self.push(Kind::Table(table), vec![], &[length], of.node.meta.dtype, of.node.location);
        Operand::At { node, view: View::contiguous(&[length]).broadcast(&[axis], shape) }
    }

    /// Returns the index of the largest element along an axis, which is made the last.
    fn argmax(&mut self, axis: usize, of: &Operation) -> Operand {
        let mut perm: Vec<usize> = (0..of.metas[0].shape.len()).filter(|&other| other != axis).collect();
        perm.push(axis);
        let operands = self.all_stretched(of).iter().map(|o| through(o, |view| view.transpose(&perm))).collect();
        self.made(Kind::ArgMax, operands, of)
    }

    fn dot(&mut self, dims: &DotDims, asked: Precision, of: &Operation, target: &Target) -> Result<Operand> {
        let (shape, dtype, line) = (&of.node.meta.shape, of.node.meta.dtype, of.node.location);
        let [of_a, of_b] = [0, 1].map(|i| &of.metas[i].shape);
        let (operands, precision) = self.factors(of.operands.clone(), asked, target, line);
        let a = self.in_memory(operands[0].clone(), of_a, dtype, line);
        let b = self.in_memory(operands[1].clone(), of_b, dtype, line);
        let out = dot_result(dims, of_a.len(), shape, of.transposed);
        let (layout, a, b) = lower_dot(self, target, dims, (a, of_a), (b, of_b), (&out, dtype, precision), line)?;
        let scales_to_f16 = precision == Precision::Tf32 && target.costs.scales_to_f16(&layout);
        let terms = layout.k;
        let scaled = scales_to_f16.then(|| self.scaled_to_f16([&a, &b], line)).flatten();
        let factors = scaled.as_ref().map_or(vec![a, b], |(factors, _)| factors.to_vec());
        let node = self.push(Kind::Dot(layout, precision), factors, shape, dtype, line);
        self.nodes[node].layout = out.clone();
        let made = Operand::At { node, view: out };
        Ok(match scaled {
            Some((_, scaled)) => self.unscaled(made, scaled, terms, line),
            None => self.result(made, asked, target.can.gemm_reads_bf16, target, line),
        })
    }

    fn conv(&mut self, dims: &ConvDims, role: ConvRole, asked: Precision, of: &Operation, target: &Target) -> Operand {
        let (shape, dtype, line) = (&of.node.meta.shape, of.node.meta.dtype, of.node.location);
        let [image, kernel] = [0, 1].map(|i| &of.metas[i].shape);
        let in_bf16 = asked == Precision::Bf16 && target.can.conv_reads_bf16(dims, image, kernel);
        let (operands, precision) = match in_bf16 {
            true => (self.stored_as_bf16(of.operands.clone(), line), asked),
            false => self.rounded(of.operands.clone(), asked, target.can.rounds_operands, line),
        };
        let a = self.in_memory(operands[0].clone(), image, dtype, line);
        let b = self.in_memory(operands[1].clone(), kernel, dtype, line);
        let out = placed(shape, of.transposed);
        let node = self.push(Kind::Conv(dims.clone(), role, precision), vec![a, b], shape, dtype, line);
        self.nodes[node].layout = out.clone();
        self.result(Operand::At { node, view: out }, asked, in_bf16, target, line)
    }
}

/// Returns a constant in another type.
fn converted(value: f64, to: DType) -> f64 {
    match to {
        DType::I32 => value as i32 as f64,
        DType::F32 => value as f32 as f64,
        DType::F64 => value,
    }
}

fn through(operand: &Operand, change: impl FnOnce(&View) -> View) -> Operand {
    match operand {
        Operand::Constant(value) => Operand::Constant(*value),
        Operand::At { node, view } => Operand::At { node: *node, view: change(view) },
    }
}

/// Copies outputs and next values out of memory that a carry or a rebound input overwrites, and converts them to the
/// type of the graph.
fn finish(low: &mut Lowering, program: &Program, values: &[Operand]) -> Result<()> {
    let settled = |low: &mut Lowering, node: usize, output: bool| {
        let meta = &program.nodes[node].meta;
        let value = values[node].clone();
        let overwritten = match &value {
            Operand::Constant(_) => true,
            Operand::At { node, .. } => {
                matches!(low.nodes[*node].kind, Kind::Input) && (output || !low.nodes[*node].invariant)
            }
        };
        let line = program.nodes[node].location;
        let value = low.widened(value, &meta.shape, meta.dtype, line);
        if overwritten { low.copy(value, &meta.shape, meta.dtype, line) } else { value }
    };
    for port in &program.outputs {
        let node = port.node.ok_or_else(|| internal_error("the operation of an output"))?;
        let value = settled(low, node, true);
        low.outputs.push(value);
    }
    for carry in &program.carries {
        let input = low.inputs[carry.input].ok_or_else(|| internal_error("the memory of a carried input"))?;
        let next = settled(low, carry.next, false);
        low.carries.push((input, next));
    }
    Ok(())
}

/// Counts the uses of each node as an operand, an output or a next value.
fn uses(program: &Program) -> Vec<usize> {
    let mut uses = vec![0; program.nodes.len()];
    for node in &program.nodes {
        node.inputs.iter().for_each(|&i| uses[i] += 1);
    }
    let named = program.outputs.iter().filter_map(|p| p.node).chain(program.carries.iter().map(|c| c.next));
    named.for_each(|n| uses[n] += 1);
    uses
}

/// Finds sums of a carried input and a scatter without other readers that are the input's next value.
fn rows_added(program: &Program, uses: &[usize]) -> Vec<Option<[usize; 2]>> {
    let mut found = vec![None; program.nodes.len()];
    for carry in &program.carries {
        let (sum, input) = (&program.nodes[carry.next], program.inputs[carry.input].node);
        let (Op::Binary(BinaryOp::Add), &[a, b], Some(input)) = (&sum.op, &sum.inputs[..], input) else { continue };
        let scatter = if a == input { b } else { a };
        let is_scatter = matches!(program.nodes[scatter].op, Op::ScatterAdd { .. });
        if is_scatter && uses[scatter] == 1 && [a, b].contains(&input) {
            found[carry.next] = Some([input, scatter]);
        }
    }
    found
}

/// For products whose only use is a transpose: the permutation in which to write them.
fn transposed_results(program: &Program, uses: &[usize]) -> Vec<Option<Vec<usize>>> {
    let mut perms = vec![None; program.nodes.len()];
    for node in &program.nodes {
        if let Op::Transpose(perm) = &node.op
            && uses[node.inputs[0]] == 1
            && matches!(program.nodes[node.inputs[0]].op, Op::Dot(..) | Op::Conv(..))
        {
            perms[node.inputs[0]] = Some(perm.clone());
        }
    }
    perms
}
