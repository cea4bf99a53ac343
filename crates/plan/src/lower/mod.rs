//! Lowering: data movement becomes views, operations that need dense operands get copies, and products get strides.

pub(crate) mod carried_casts;
pub(crate) mod casts;
pub(crate) mod inline_gather;
pub(crate) mod narrow_storage;
pub(crate) mod pad_sum;
pub(crate) mod pool_gradient;
pub(crate) mod scaled_fp16;

use crate::internal_error::{expect, internal_error};
use crate::ir::dot_layout::{dot_result, lower_dot, placed};
use crate::ir::node::{Elementwise, Kind, Node, Operand, Padding};
use crate::ir::view::View;
use crate::lower::carried_casts::InitialCast;
use crate::lower::pad_sum::{are_disjoint, pad_sums};
use crate::lower::pool_gradient::disjoint_pool_windows;
use crate::lower::scaled_fp16::ScaledF16Operands;
use crate::target::Target;
use bilevel_graph::{BinaryOp, DType, Meta, Op, Precision, Program, Result};
use std::collections::{HashMap, HashSet};
use std::panic::Location;

/// The lowered program.
#[derive(Default)]
pub(crate) struct Lowering {
    pub nodes: Vec<Node>,
    /// The node of each program input that is used.
    pub inputs: Vec<Option<usize>>,
    /// The operand of each output.
    pub outputs: Vec<Operand>,
    /// The input node and the operand of its next value, for every carry.
    pub carries: Vec<(usize, Operand)>,
    /// The rounded copy of a node that products of this precision read.
    pub rounded: HashMap<(usize, Precision), usize>,
    /// Operands scaled to fp16.
    pub scaled_f16: ScaledF16Operands,
    /// Carried casts that are computed before the first step.
    pub initial_casts: Vec<InitialCast>,
    /// Copies of views of a node, rounded or not, that products read.
    pub parts: HashMap<(usize, View, Option<Precision>), usize>,
}

impl Lowering {
    /// Returns which nodes are live.
    pub fn live(&self) -> Vec<bool> {
        let checked = |node: &Node| matches!(node.kind, Kind::CheckIndex { .. } | Kind::Input | Kind::CarriedCast(_));
        let mut live: Vec<bool> = self.nodes.iter().map(checked).collect();
        let results = self.outputs.iter().chain(self.carries.iter().map(|(_, next)| next));
        results.filter_map(Operand::at).for_each(|(node, _)| live[node] = true);
        for id in (0..live.len()).rev().filter(|&id| live[id]).collect::<Vec<_>>() {
            let mut stack = vec![id];
            while let Some(id) = stack.pop() {
                for (operand, _) in self.nodes[id].operands.iter().filter_map(Operand::at) {
                    if !std::mem::replace(&mut live[operand], true) {
                        stack.push(operand);
                    }
                }
            }
        }
        live
    }
}

impl Lowering {
    pub fn push(&mut self, kind: Kind, operands: Vec<Operand>, shape: &[usize], dtype: DType, like: Line) -> usize {
        let invariant = !matches!(kind, Kind::Input)
            && operands.iter().all(|o| o.at().is_none_or(|(node, _)| self.nodes[node].invariant));
        let layout = View::contiguous(shape);
        // Moving rounded elements keeps them rounded.
        let moves = match &kind {
            Kind::PadSum(frames) => are_disjoint(frames, &operands),
            kind => matches!(kind, Kind::Elementwise(Elementwise::Copy) | Kind::Concat(_) | Kind::Pad(_)),
        };
        let narrow = moves && operands.iter().all(|o| o.at().is_some_and(|(node, _)| self.nodes[node].narrow));
        if narrow {
            self.rounded.insert((self.nodes.len(), Precision::Bf16), self.nodes.len());
        }
        self.nodes.push(Node {
            kind,
            operands,
            shape: shape.to_vec(),
            dtype,
            narrow,
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

    /// Recomputes a cheap value for each of its readers.
    fn fresh(&mut self, value: &Operand, target: &dyn Target) -> Operand {
        let Operand::At { node, view } = value else { return value.clone() };
        let made = &self.nodes[*node];
        if !matches!(made.kind, Kind::Elementwise(_)) || made.shape.is_empty() || !target.recomputes(made) {
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

pub(crate) type Line = &'static Location<'static>;

/// Lowers every node of the program.
pub(crate) fn lower(program: &Program, target: &dyn Target) -> Result<Lowering> {
    let mut low = Lowering {
        nodes: vec![],
        inputs: vec![None; program.inputs.len()],
        outputs: vec![],
        carries: vec![],
        initial_casts: vec![],
        rounded: HashMap::new(),
        scaled_f16: ScaledF16Operands::default(),
        parts: HashMap::new(),
    };
    let mut changes = vec![false; program.inputs.len()];
    program.carries.iter().map(|carry| carry.input).chain(program.step).for_each(|input| changes[input] = true);
    let numbers = program.inputs.iter().enumerate().filter_map(|(number, port)| Some((port.node?, number)));
    let input_of: HashMap<usize, usize> = numbers.collect();
    let next: HashSet<usize> = program.carries.iter().map(|carry| carry.next).collect();
    let uses = uses(program);
    let written_transposed = transposed_results(program, &uses);
    let rows_added = rows_added(program, &uses);
    let pad_sums = if target.fuses_pad_sum() { pad_sums(program, &uses) } else { vec![None; program.nodes.len()] };
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
        let operands: Vec<Operand> = node.inputs.iter().map(|&i| low.fresh(&values[i], target)).collect();
        let metas: Vec<_> = node.inputs.iter().map(|&i| &program.nodes[i].meta).collect();
        // For operations that read dense operands.
        let densely = |low: &mut Lowering, kind: Kind| {
            let dense = |(o, meta): (&Operand, &&Meta)| low.dense_operand(o.clone(), &meta.shape, meta.dtype, line);
            let dense = operands.iter().zip(&metas).map(dense).collect();
            let node = low.push(kind, dense, shape, dtype, line);
            low.dense(node)
        };
        let mut elementwise = |kind: Elementwise, operands: Vec<Operand>| {
            let node = low.push(Kind::Elementwise(kind), operands, shape, dtype, line);
            low.dense(node)
        };
        let value = match &node.op {
            Op::Input(_) => {
                let number = *expect(input_of.get(&id), "the name of an input", line)?;
                let node = low.push(Kind::Input, vec![], shape, dtype, line);
                low.nodes[node].invariant = !changes[number];
                low.inputs[number] = Some(node);
                low.scaled_f16.parameters.insert(node);
                low.dense(node)
            }
            Op::Constant(bits) => Operand::Constant(f64::from_bits(*bits)),
            Op::Iota(axis) => {
                let table = (0..shape[*axis]).map(|i| i as f64).collect();
                let node = low.push(Kind::Table(table), vec![], &[shape[*axis]], dtype, line);
                let view = View::contiguous(&[shape[*axis]]).broadcast(&[*axis], shape);
                Operand::At { node, view }
            }
            Op::Random(kind, stream) => {
                let key = low.dense_operand(operands[0].clone(), &[2], DType::I32, line);
                let counter = low.dense_operand(operands[1].clone(), &[], DType::I32, line);
                let kind = Kind::Elementwise(Elementwise::Random(*kind, *stream));
                let node = low.push(kind, vec![key, counter], shape, dtype, line);
                low.dense(node)
            }
            Op::Unary(op) => elementwise(Elementwise::Unary(*op), operands),
            // A constant operand of a commutative operation goes last, so that equal loops have equal kernel texts.
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Mul)) if matches!(operands[0], Operand::Constant(_)) => {
                elementwise(Elementwise::Binary(*op), operands.into_iter().rev().collect())
            }
            Op::Binary(op) => elementwise(Elementwise::Binary(*op), operands),
            Op::Select => elementwise(Elementwise::Select, operands),
            Op::Convert(to) => match operands[0] {
                Operand::At { .. } => elementwise(Elementwise::Convert(*to), operands),
                Operand::Constant(value) => Operand::Constant(match to {
                    DType::I32 => value as i32 as f64,
                    DType::F32 => value as f32 as f64,
                    DType::F64 => value,
                }),
            },
            Op::StopGradient => operands[0].clone(),
            Op::CheckIndex(limit) => {
                let dense = low.dense_operand(operands[0].clone(), shape, dtype, line);
                low.check(dense, *limit, "check_index", line);
                operands[0].clone()
            }
            Op::Reshape => match &operands[0] {
                Operand::Constant(value) => Operand::Constant(*value),
                Operand::At { node, view } => match view.reshape(shape) {
                    Some(view) => Operand::At { node: *node, view },
                    None => elementwise(Elementwise::Copy, operands),
                },
            },
            Op::Transpose(perm) => through(&operands[0], |view| view.transpose(perm)),
            Op::Broadcast(axes) => through(&operands[0], |view| view.broadcast(axes, shape)),
            Op::Slice { start, step, .. } => through(&operands[0], |view| view.slice(start, step, shape)),
            Op::Reverse(axes) => through(&operands[0], |view| view.reverse(axes)),
            Op::Reduce(op, axes) => {
                let operand = low.stretched(&operands[0], &metas[0].shape, dtype, line);
                let node = low.push(Kind::Reduce(*op, axes.clone()), vec![operand], shape, dtype, line);
                low.dense(node)
            }
            Op::ArgMax(axis) => {
                let rank = metas[0].shape.len();
                let mut perm: Vec<usize> = (0..rank).filter(|a| a != axis).collect();
                perm.push(*axis);
                let operand = low.stretched(&operands[0], &metas[0].shape, metas[0].dtype, line);
                let operand = through(&operand, |view| view.transpose(&perm));
                let node = low.push(Kind::ArgMax, vec![operand], shape, dtype, line);
                low.dense(node)
            }
            Op::Dot(dims, precision) => {
                let asked = *precision;
                let (operands, precision) = low.factors(operands, asked, target, line);
                let a = low.in_memory(operands[0].clone(), &metas[0].shape, dtype, line);
                let b = low.in_memory(operands[1].clone(), &metas[1].shape, dtype, line);
                let out = dot_result(dims, metas[0].shape.len(), shape, written_transposed[id].as_deref());
                let (layout, a, b) = lower_dot(
                    &mut low,
                    target,
                    dims,
                    (a, &metas[0].shape),
                    (b, &metas[1].shape),
                    (&out, dtype, precision),
                    line,
                )?;
                let scales_to_f16 = precision == Precision::Tf32 && target.scales_to_f16(&layout);
                let terms = layout.k;
                let scaled = scales_to_f16.then(|| low.scaled_to_f16([&a, &b], line)).flatten();
                let factors = scaled.as_ref().map_or(vec![a, b], |(factors, _)| factors.to_vec());
                let node = low.push(Kind::Dot(layout, precision), factors, shape, dtype, line);
                low.nodes[node].layout = out.clone();
                let made = Operand::At { node, view: out };
                match scaled {
                    Some((_, scaled)) => low.unscaled(made, scaled, terms, line),
                    None => low.result(made, asked, target.gemm_reads_bf16(), target, line),
                }
            }
            Op::Conv(dims, precision) => {
                let asked = *precision;
                let narrows =
                    asked == Precision::Bf16 && target.conv_reads_bf16(dims, &metas[0].shape, &metas[1].shape);
                let (operands, precision) = match narrows {
                    true => (low.narrow(operands, line), asked),
                    false => low.rounded(operands, asked, target.has_native(asked), line),
                };
                let a = low.in_memory(operands[0].clone(), &metas[0].shape, dtype, line);
                let b = low.in_memory(operands[1].clone(), &metas[1].shape, dtype, line);
                let out = placed(shape, written_transposed[id].as_deref());
                let node = low.push(Kind::Conv(dims.clone(), precision), vec![a, b], shape, dtype, line);
                low.nodes[node].layout = out.clone();
                low.result(Operand::At { node, view: out }, asked, narrows, target, line)
            }
            Op::Gather { batch } => densely(&mut low, Kind::Gather { batch: *batch }),
            Op::ScatterAdd { batch, .. } => {
                match disjoint_pool_windows(program, id).filter(|_| target.pool_grad_as_select()) {
                    Some(windows) => low.pool_gradient(windows, &operands, shape, dtype, line),
                    None => densely(&mut low, Kind::ScatterAdd { batch: *batch }),
                }
            }
            Op::CumSum { axis, reverse } => densely(&mut low, Kind::CumSum { axis: *axis, reverse: *reverse }),
            Op::WindowArgMax(dims) => densely(&mut low, Kind::WindowArgMax(dims.clone())),
            Op::Concat(axis) => {
                let parts =
                    operands.iter().zip(&metas).map(|(o, meta)| low.stretched(o, &meta.shape, dtype, line)).collect();
                let node = low.push(Kind::Concat(*axis), parts, shape, dtype, line);
                low.dense(node)
            }
            Op::Pad { low: before, interior, .. } => {
                let operand = low.stretched(&operands[0], &metas[0].shape, dtype, line);
                let kind = Kind::Pad(Padding { low: before.clone(), interior: interior.clone() });
                let node = low.push(kind, vec![operand], shape, dtype, line);
                low.dense(node)
            }
        };
        if let (true, Some((node, _))) = (next.contains(&id), value.at())
            && matches!(low.nodes[node].kind, Kind::Elementwise(_))
        {
            low.scaled_f16.parameters.insert(node);
        }
        values.push(value);
    }
    finish(&mut low, program, &values)?;
    Ok(low)
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
