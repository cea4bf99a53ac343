//! The interpreter's single operations: each reads its operands through their views, applies the reference's formula,
//! and writes its result as its layout says.

use crate::internal_error::internal_error;
use crate::ir::dot_layout::DotLayout;
use crate::ir::interpret::loops::Values;
use crate::ir::interpret::{InterpreterRun, position};
use crate::ir::node::{Elementwise, Kind, Node, Padding};
use crate::ir::storage_type::StorageType;
use crate::lower::scaled_fp16::scale::Pow2Scale;
use bilevel_graph::reference_ops::{Total, checked_index, evaluate_op, product};
use bilevel_graph::shape::for_each_index;
use bilevel_graph::{BinaryOp, DType, Meta, Op, Precision, Result, scalar};

/// An operand's type, shape and row-major elements.
pub(crate) type Dense = (Meta, Vec<f64>);

impl Elementwise {
    /// The function of these numbers, in the arithmetic of the type. Draws are whole arrays and have no such function.
    pub(crate) fn value(self, x: &[f64], dtype: DType) -> f64 {
        match self {
            Elementwise::Copy | Elementwise::Convert(_) => scalar::round(x[0], dtype),
            Elementwise::Unary(op) => scalar::unary(op, x[0], dtype),
            Elementwise::Binary(op) => scalar::binary(op, x[0], x[1], dtype),
            Elementwise::Select => scalar::round(if x[0] != 0.0 { x[1] } else { x[2] }, dtype),
            Elementwise::Round(precision) => f64::from(precision.round(x[0] as f32)),
            Elementwise::ScaleToF16(scale) => {
                let scaled = x[0] as f32 * two_to(shift(scale, &x[1..]));
                StorageType::F16.rounded(f64::from(scaled))
            }
            Elementwise::Unscale([a, b]) => {
                let (of_a, of_b) = x[1..].split_at(a.factors());
                let shift = -shift(a, of_a) - shift(b, of_b);
                // In two steps: the scale of both may overflow a float although the result does not.
                f64::from(x[0] as f32 * two_to(shift / 2) * two_to(shift - shift / 2))
            }
            Elementwise::Random(..) => f64::NAN,
        }
    }
}

/// The power of two that scales an array: to 2¹⁴ if its amax exponent is that of these factors, within the range of a
/// float.
fn shift(scale: Pow2Scale, factors: &[f64]) -> i32 {
    let exponent = |factor: &f64| ((*factor as f32).to_bits() >> 23) as i32 - 127;
    14 - scale.exponent(&factors.iter().map(exponent).collect::<Vec<_>>()).clamp(-112, 127)
}

fn two_to(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// 2^⌊log₂ max |x|⌋ over the finite numbers; 0 if none is at least 2⁻¹²⁶.
pub(crate) fn amax_exponent(values: impl IntoIterator<Item = f64>) -> f64 {
    let exponent = |x: f64| (x as f32).to_bits() & 0x7f80_0000;
    let bits = values.into_iter().map(exponent).filter(|&bits| bits != 0x7f80_0000).max();
    f64::from(f32::from_bits(bits.unwrap_or(0)))
}

/// The reference's operation of a kind that loops do not have, if there is one.
fn reference_op(node: &Node) -> Option<Op> {
    Some(match &node.kind {
        Kind::Elementwise(Elementwise::Random(kind, stream)) => Op::Random(*kind, *stream),
        Kind::Reduce(op, axes) => Op::Reduce(*op, axes.clone()),
        Kind::ArgMax => Op::ArgMax(node.shape.len()),
        Kind::Conv(dims, role, precision) => Op::Conv(dims.clone(), *role, *precision),
        Kind::Gather { batch } => Op::Gather { batch: *batch },
        Kind::ScatterAdd { batch } => Op::ScatterAdd { batch: *batch, size: node.shape[*batch] },
        Kind::WindowArgMax(dims) => Op::WindowArgMax(dims.clone()),
        Kind::Block(op) => Op::Block(*op),
        Kind::CumSum { axis, reverse } => Op::CumSum { axis: *axis, reverse: *reverse },
        Kind::Host(call) => Op::Host(call.clone()),
        Kind::Collective(collective) => Op::Collective(collective.clone()),
        Kind::Concat(axis) => Op::Concat(*axis),
        Kind::Pad(frame) => padding(frame),
        _ => return None,
    })
}

fn padding(frame: &Padding) -> Op {
    Op::Pad { low: frame.low.clone(), high: vec![0; frame.low.len()], interior: frame.interior.clone() }
}

/// The reference's value of an operation of dense operands.
pub(crate) fn evaluate(op: &Op, operands: &[Dense], node: &Node) -> Result<Vec<f64>> {
    let operands: Vec<(&Meta, &[f64])> = operands.iter().map(|(meta, values)| (meta, &values[..])).collect();
    let meta = Meta { dtype: node.dtype, shape: node.shape.clone() };
    evaluate_op(op, &operands, &meta, node.location)
}

impl InterpreterRun {
    /// Runs an operation that is a separate group.
    pub(crate) fn run_operation(&mut self, id: usize) -> Result<()> {
        let node = self.schedule.nodes[id].clone();
        if let Kind::Dot(layout, precision) = &node.kind {
            let values = self.dot(&node, layout, *precision, &Values::new())?;
            values.into_iter().enumerate().for_each(|(at, value)| self.store(id, at, value));
            return Ok(());
        }
        let mut operands: Vec<Dense> = vec![];
        for operand in &node.operands {
            operands.push(match operand.at() {
                None => return Err(internal_error("the memory of an operand")),
                Some((read, view)) => {
                    let meta = Meta { dtype: self.schedule.nodes[read].dtype, shape: view.shape.clone() };
                    (meta, self.view(read, view)?)
                }
            });
        }
        let values = self.operation(&node, &operands)?;
        for (element, value) in values.into_iter().enumerate() {
            self.store(id, position(&node.layout, element) as usize, value);
        }
        Ok(())
    }

    fn operation(&self, node: &Node, operands: &[Dense]) -> Result<Vec<f64>> {
        if let Some(op) = reference_op(node) {
            return evaluate(&op, operands, node);
        }
        match &node.kind {
            Kind::Elementwise(function) => {
                let element = |i: usize| operands.iter().map(|(_, values)| values[i]).collect::<Vec<_>>();
                Ok((0..node.count()).map(|i| function.value(&element(i), node.dtype)).collect())
            }
            Kind::AmaxExponent => Ok(vec![amax_exponent(operands[0].1.iter().copied())]),
            Kind::PadSum(frames) => {
                let mut sum = vec![0.0; node.count()];
                for (frame, piece) in frames.iter().zip(operands) {
                    let piece = evaluate(&padding(frame), std::slice::from_ref(piece), node)?;
                    sum = added(&sum, &piece, node.dtype);
                }
                Ok(sum)
            }
            Kind::AddRows { batch } => {
                let scatter = Op::ScatterAdd { batch: *batch, size: node.shape[*batch] };
                Ok(added(&operands[0].1, &evaluate(&scatter, &operands[1..], node)?, node.dtype))
            }
            Kind::CheckIndex { limit, operation } => {
                operands[0]
                    .1
                    .iter()
                    .try_for_each(|&index| checked_index(operation, index, *limit, node.location).map(|_| ()))?;
                Ok(vec![])
            }
            _ => Err(internal_error("the formula of an operation")),
        }
    }

    /// A product by its strides, in the order of its memory, of operands in memory or at hand.
    pub(crate) fn dot(
        &self,
        node: &Node,
        layout: &DotLayout,
        precision: Precision,
        at_hand: &Values,
    ) -> Result<Vec<f64>> {
        let [Some((a, of_a)), Some((b, of_b))] = [0, 1].map(|i| node.operands.get(i).and_then(|o| o.at())) else {
            return Err(internal_error("the operands of a product"));
        };
        let all = |read: usize| match at_hand.get(&read) {
            Some(values) if self.map.nodes[read].is_none() => Ok(values.clone()),
            _ => self.elements(read, 0..self.schedule.nodes[read].count() as isize),
        };
        let (all_a, all_b) = (all(a)?, all(b)?);
        let lengths: Vec<usize> = layout.batch.iter().map(|(length, _)| *length).collect();
        let mut places = vec![];
        for_each_index(&lengths, |index| {
            let along = |side: usize| -> isize {
                index.iter().zip(&layout.batch).map(|(&i, (_, strides))| i as isize * strides[side]).sum()
            };
            places.push([of_a.offset + along(0), of_b.offset + along(1), along(2)]);
        });
        let mut result = vec![f64::NAN; node.count()];
        for [at_a, at_b, at_c] in places {
            for i in 0..layout.m as isize {
                for j in 0..layout.n as isize {
                    let mut sum = Total::default();
                    for k in 0..layout.k as isize {
                        let x = all_a[(at_a + i * layout.a.0 + k * layout.a.1) as usize];
                        let y = all_b[(at_b + k * layout.b.0 + j * layout.b.1) as usize];
                        sum.add(product(x, y, precision));
                    }
                    let at = (at_c + i * layout.c.0 + j * layout.c.1) as usize;
                    result[at] = scalar::round(sum.value(), node.dtype);
                }
            }
        }
        Ok(result)
    }
}

fn added(a: &[f64], b: &[f64], dtype: DType) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| scalar::binary(BinaryOp::Add, a, b, dtype)).collect()
}
