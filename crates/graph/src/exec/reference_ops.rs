//! The primitives on whole arrays in plain index arithmetic, one formula each. Nothing here is meant to be fast.

use crate::exec::block_ops::{self, Blocks};
use crate::ir::infer::Meta;
use crate::ir::op::{BlockOp, ConvDims, DotDims, Op, RandomKind, ReduceOp, WindowDims};
use crate::ir::program::ProgramNode;
use crate::shape::{element_count, for_each_index, other_axes};
use crate::{DType, Error, ErrorKind, Line, Precision, Result, random, scalar};

/// An operand's type, shape and row-major elements.
#[derive(Clone, Copy)]
pub(crate) struct DenseOperand<'a> {
    pub meta: &'a Meta,
    pub values: &'a [f64],
}

impl DenseOperand<'_> {
    fn at(&self, index: &[usize]) -> f64 {
        self.values[place(&self.meta.shape, index)]
    }
}

/// The row-major place of a multi-index.
fn place(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |flat, (&length, &i)| flat * length + i)
}

/// The array whose element at every index is `element(index)`, rounded to the type.
fn fill(meta: &Meta, mut element: impl FnMut(&[usize]) -> f64) -> Vec<f64> {
    let mut values = Vec::with_capacity(element_count(&meta.shape));
    for_each_index(&meta.shape, |index| values.push(scalar::round(element(index), meta.dtype)));
    values
}

/// A sum in progress: integers wrap, floats add up in 64 bits and are rounded when they are stored.
fn plus(sum: f64, x: f64, dtype: DType) -> f64 {
    if dtype == DType::I32 { scalar::binary(crate::BinaryOp::Add, sum, x, dtype) } else { sum + x }
}

/// A compensated sum of many terms (Neumaier, 1974), at least as accurate as plain sums in any order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    sum: f64,
    lost: f64,
}

impl Total {
    /// Adds a term.
    pub fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        // Beyond the range of f64 nothing is lost that could be kept.
        if sum.is_finite() {
            self.lost += if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        }
        self.sum = sum;
    }

    /// The sum so far.
    pub fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

/// The value of an operation of these operands, each with its type, shape and row-major elements. The line of user code is for errors.
///
/// ```
/// use bilevel_graph::{DType, Line, Meta, Op, ReduceOp, reference_ops::evaluate_op};
/// let (row, number) = (Meta { dtype: DType::F32, shape: vec![3] }, Meta { dtype: DType::F32, shape: vec![] });
/// let line = Line::caller();
/// let sum = evaluate_op(&Op::Reduce(ReduceOp::Sum, vec![0]), &[(&row, &[1.0, 2.0, 4.0])], &number, line)?;
/// assert_eq!(sum, [7.0]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn evaluate_op(op: &Op, operands: &[(&Meta, &[f64])], meta: &Meta, location: Line) -> Result<Vec<f64>> {
    let node = ProgramNode { op: op.clone(), inputs: vec![], meta: meta.clone(), location };
    let operands: Vec<DenseOperand> = operands.iter().map(|&(meta, values)| DenseOperand { meta, values }).collect();
    evaluate_node(&node, &operands)
}

/// The value of a node that is not an input.
pub(crate) fn evaluate_node(node: &ProgramNode, x: &[DenseOperand]) -> Result<Vec<f64>> {
    let (meta, line) = (&node.meta, node.location);
    Ok(match &node.op {
        Op::Input(_) => vec![0.0; element_count(&meta.shape)],
        Op::Constant(bits) => fill(meta, |_| f64::from_bits(*bits)),
        Op::Iota(axis) => fill(meta, |i| i[*axis] as f64),
        Op::Random(kind, stream) => draw(*kind, *stream, x[0], x[1], meta),
        Op::Host(call) => {
            let operands: Vec<&[f64]> = x.iter().map(|operand| operand.values).collect();
            let mut result = vec![0.0; element_count(&meta.shape)];
            call.evaluate(&operands, &mut result, line)?;
            result.into_iter().map(|value| scalar::round(value, meta.dtype)).collect()
        }
        Op::Unary(op) => fill(meta, |i| scalar::unary(*op, x[0].at(i), meta.dtype)),
        Op::Binary(op) => fill(meta, |i| scalar::binary(*op, x[0].at(i), x[1].at(i), meta.dtype)),
        Op::Select => fill(meta, |i| if x[0].at(i) != 0.0 { x[1].at(i) } else { x[2].at(i) }),
        Op::Convert(_) => fill(meta, |i| x[0].at(i)),
        Op::CheckIndex(limit) => {
            for &index in x[0].values {
                checked_index("check_index", index, *limit, line)?;
            }
            x[0].values.to_vec()
        }
        Op::StopGradient | Op::Custom(_) | Op::Reshape => x[0].values.to_vec(),
        Op::Transpose(perm) => fill(meta, |i| {
            let mut from = vec![0; perm.len()];
            for (out, &p) in perm.iter().enumerate() {
                from[p] = i[out];
            }
            x[0].at(&from)
        }),
        Op::Broadcast(axes) => fill(meta, |i| x[0].at(&pick(i, axes))),
        Op::Slice { start, step, .. } => fill(meta, |i| {
            let from: Vec<usize> = (0..i.len()).map(|a| start[a] + i[a] * step[a]).collect();
            x[0].at(&from)
        }),
        Op::Pad { low, interior, .. } => pad(x[0], low, interior, meta),
        Op::Concat(axis) => concat(x, *axis, meta),
        Op::Reverse(axes) => fill(meta, |i| {
            let turned = |a: usize| if axes.contains(&a) { meta.shape[a] - 1 - i[a] } else { i[a] };
            x[0].at(&(0..i.len()).map(turned).collect::<Vec<_>>())
        }),
        Op::Reduce(op, axes) => reduce(*op, x[0], axes, meta),
        Op::ArgMax(axis) => argmax(x[0], *axis, meta),
        Op::Dot(dims, precision) => dot(x[0], x[1], dims, *precision, meta),
        Op::Conv(dims, _, precision) => conv(x[0], x[1], dims, *precision, meta),
        Op::Gather { batch } => gather(x[0], x[1], *batch, meta, line)?,
        Op::ScatterAdd { batch, size } => scatter_add(x[0], x[1], *batch, *size, meta, line)?,
        Op::WindowArgMax(dims) => window_argmax(x[0], dims, meta),
        Op::Block(op) => block(*op, x, meta),
        Op::Collective(collective) => collective.run_on_f64(x[0].values, meta)?,
        Op::CumSum { axis, reverse } => fill(meta, |i| {
            let range = if *reverse { i[*axis]..meta.shape[*axis] } else { 0..i[*axis] + 1 };
            let mut from = i.to_vec();
            range.fold(0.0, |sum, k| {
                from[*axis] = k;
                plus(sum, x[0].at(&from), meta.dtype)
            })
        }),
    })
}

/// The operation on one block of each operand after the other.
fn block(op: BlockOp, x: &[DenseOperand], meta: &Meta) -> Vec<f64> {
    let shapes: Vec<&[usize]> = x.iter().map(|x| &x.meta.shape[..]).collect();
    let blocks = Blocks::of(op, &shapes, &meta.shape);
    let part = |operand: usize, number: usize| {
        let length = blocks.operands[operand];
        x.get(operand).map_or(&[][..], |x| &x.values[number * length..(number + 1) * length])
    };
    let mut values = vec![0.0; element_count(&meta.shape)];
    for number in 0..blocks.count {
        let (a, b, to) = (part(0, number), part(1, number), &mut values[number * blocks.result..][..blocks.result]);
        match op {
            BlockOp::ArgSort => block_ops::argsort(a, to),
            BlockOp::ScatterArgMax { .. } => block_ops::scatter_argmax(a, b, to),
            BlockOp::Cholesky => block_ops::cholesky(a, blocks.n, to),
            BlockOp::TriangularSolve { lower, transposed } => {
                block_ops::triangular_solve(a, b, blocks.n, [lower, transposed], to)
            }
        }
    }
    values.iter().map(|&v| scalar::round(v, meta.dtype)).collect()
}

/// The draw of this key, counter and stream, as `random.rs` specifies it.
fn draw(kind: RandomKind, stream: u32, key: DenseOperand, counter: DenseOperand, meta: &Meta) -> Vec<f64> {
    let word = |v: f64| v as i32 as u32;
    let (key, counter) = ([word(key.values[0]), word(key.values[1])], word(counter.values[0]));
    let count = element_count(&meta.shape);
    match (kind, meta.dtype) {
        (RandomKind::Bits, _) => {
            let mut bits = vec![0; count];
            random::fill_bits(key, counter, stream, 0, &mut bits);
            bits.iter().map(|&b| b as f64).collect()
        }
        (kind, DType::F64) => {
            let fill = if kind == RandomKind::Normal { random::fill_normal_f64 } else { random::fill_uniform_f64 };
            let mut values = vec![0.0; count];
            fill(key, counter, stream, 0, &mut values);
            values
        }
        (kind, _) => {
            let fill = if kind == RandomKind::Normal { random::fill_normal_f32 } else { random::fill_uniform_f32 };
            let mut values = vec![0.0; count];
            fill(key, counter, stream, 0, &mut values);
            values.iter().map(|&v| v as f64).collect()
        }
    }
}

fn pick(values: &[usize], axes: &[usize]) -> Vec<usize> {
    axes.iter().map(|&a| values[a]).collect()
}

/// y[low + i·(interior + 1)] = x[i], zero elsewhere.
fn pad(x: DenseOperand, low: &[usize], interior: &[usize], meta: &Meta) -> Vec<f64> {
    let mut values = vec![0.0; element_count(&meta.shape)];
    for_each_index(&x.meta.shape, |i| {
        let to: Vec<usize> = (0..i.len()).map(|a| low[a] + i[a] * (interior[a] + 1)).collect();
        values[place(&meta.shape, &to)] = x.at(i);
    });
    values
}

fn concat(x: &[DenseOperand], axis: usize, meta: &Meta) -> Vec<f64> {
    let mut values = vec![0.0; element_count(&meta.shape)];
    let mut offset = 0;
    for part in x {
        for_each_index(&part.meta.shape, |i| {
            let mut to = i.to_vec();
            to[axis] += offset;
            values[place(&meta.shape, &to)] = part.at(i);
        });
        offset += part.meta.shape[axis];
    }
    values
}

fn reduce(op: ReduceOp, x: DenseOperand, axes: &[usize], meta: &Meta) -> Vec<f64> {
    let dtype = meta.dtype;
    let kept = other_axes(x.meta.shape.len(), axes);
    let count = element_count(&meta.shape);
    if op == ReduceOp::Sum && dtype.is_float() {
        let mut totals = vec![Total::default(); count];
        for_each_index(&x.meta.shape, |i| totals[place(&meta.shape, &pick(i, &kept))].add(x.at(i)));
        return totals.into_iter().map(|total| scalar::round(total.value(), dtype)).collect();
    }
    let start = match (op, dtype) {
        (ReduceOp::Sum, _) => 0.0,
        (ReduceOp::Max, DType::I32) => i32::MIN as f64,
        (ReduceOp::Max, _) => f64::NEG_INFINITY,
    };
    let mut values = vec![start; count];
    for_each_index(&x.meta.shape, |i| {
        let value = &mut values[place(&meta.shape, &pick(i, &kept))];
        *value = match op {
            ReduceOp::Sum => plus(*value, x.at(i), dtype),
            ReduceOp::Max => scalar::binary(crate::BinaryOp::Max, *value, x.at(i), dtype),
        };
    });
    values.iter().map(|&v| scalar::round(v, dtype)).collect()
}

/// Returns true if `x` replaces the largest so far. The first of equals stays; a NaN counts as the largest, because a
/// maximum with it is NaN.
fn beats(x: f64, best: f64) -> bool {
    x > best || (x.is_nan() && !best.is_nan())
}

fn argmax(x: DenseOperand, axis: usize, meta: &Meta) -> Vec<f64> {
    fill(meta, |i| {
        let mut from = i.to_vec();
        from.insert(axis, 0);
        let mut best = (0, x.at(&from));
        for k in 1..x.meta.shape[axis] {
            from[axis] = k;
            if beats(x.at(&from), best.1) {
                best = (k, x.at(&from));
            }
        }
        best.0 as f64
    })
}

/// round(a)·round(b): operands that are rounded are 32-bit floats, and their product is exact in 64 bits.
pub fn product(a: f64, b: f64, precision: Precision) -> f64 {
    let round = |x: f64| if precision == Precision::Full { x } else { precision.round(x as f32) as f64 };
    round(a) * round(b)
}

/// A sum of products as the result of a product is stored.
fn stored(sum: Total, precision: Precision) -> f64 {
    let value = sum.value();
    if precision.rounds_results() { precision.round(value as f32) as f64 } else { value }
}

/// y[batch, free a, free b] = Σ over contracted of a·b.
fn dot(a: DenseOperand, b: DenseOperand, dims: &DotDims, precision: Precision, meta: &Meta) -> Vec<f64> {
    let free_a = other_axes(a.meta.shape.len(), &[&dims.lhs_batch[..], &dims.lhs_contract].concat());
    let free_b = other_axes(b.meta.shape.len(), &[&dims.rhs_batch[..], &dims.rhs_contract].concat());
    let contracted = pick(&a.meta.shape, &dims.lhs_contract);
    let batch = dims.lhs_batch.len();
    // How far each term of a sum lies from the first, in a and in b.
    let mut terms = vec![];
    for_each_index(&contracted, |c| {
        let (mut ia, mut ib) = (vec![0; a.meta.shape.len()], vec![0; b.meta.shape.len()]);
        for (k, &at) in c.iter().enumerate() {
            ia[dims.lhs_contract[k]] = at;
            ib[dims.rhs_contract[k]] = at;
        }
        terms.push((place(&a.meta.shape, &ia), place(&b.meta.shape, &ib)));
    });
    fill(meta, |i| {
        let (mut ia, mut ib) = (vec![0; a.meta.shape.len()], vec![0; b.meta.shape.len()]);
        for k in 0..batch {
            ia[dims.lhs_batch[k]] = i[k];
            ib[dims.rhs_batch[k]] = i[k];
        }
        for (k, &axis) in free_a.iter().enumerate() {
            ia[axis] = i[batch + k];
        }
        for (k, &axis) in free_b.iter().enumerate() {
            ib[axis] = i[batch + free_a.len() + k];
        }
        let (first_a, first_b) = (place(&a.meta.shape, &ia), place(&b.meta.shape, &ib));
        let mut sum = Total::default();
        for &(in_a, in_b) in &terms {
            sum.add(product(a.values[first_a + in_a], b.values[first_b + in_b], precision));
        }
        stored(sum, precision)
    })
}

/// The formula of [`ConvDims`]: places between spread elements and outside the image hold zero.
fn conv(image: DenseOperand, kernel: DenseOperand, dims: &ConvDims, precision: Precision, meta: &Meta) -> Vec<f64> {
    let (image_shape, kernel_shape) = (&image.meta.shape, &kernel.meta.shape);
    let (out_in_group, in_group) = (kernel_shape[0] / dims.groups, kernel_shape[1]);
    // The image element under kernel element k for output position o, along one axis.
    let source = |axis: usize, o: usize, k: usize| -> Option<usize> {
        let spread = (o * dims.stride[axis] + k * dims.kernel_dilation[axis]) as i64 - dims.padding[axis].0;
        let dilation = dims.image_dilation[axis] as i64;
        let inside = spread >= 0 && spread % dilation == 0 && spread / dilation < image_shape[2 + axis] as i64;
        inside.then(|| (spread / dilation) as usize)
    };
    fill(meta, |i| {
        let [n, o, y, x] = [i[0], i[1], i[2], i[3]];
        let group = o / out_in_group;
        let mut sum = Total::default();
        for_each_index(&kernel_shape[1..], |k| {
            let [c, ky, kx] = [k[0], k[1], k[2]];
            if let (Some(h), Some(w)) = (source(0, y, ky), source(1, x, kx)) {
                let (a, b) = (image.at(&[n, group * in_group + c, h, w]), kernel.at(&[o, c, ky, kx]));
                sum.add(product(a, b, precision));
            }
        });
        stored(sum, precision)
    })
}

/// The index, or the error of this operation if it is not in `0..limit`.
pub fn checked_index(operation: &str, index: f64, limit: usize, line: Line) -> Result<usize> {
    if (0.0..limit as f64).contains(&index) {
        return Ok(index as usize);
    }
    let kind = ErrorKind::IndexOutOfRange { operation: operation.into(), index: index as i64, limit };
    Err(Error::new(kind).at(line))
}

/// y[b.., k.., inner..] = x[b.., indices[b.., k..], inner..].
fn gather(x: DenseOperand, indices: DenseOperand, batch: usize, meta: &Meta, line: Line) -> Result<Vec<f64>> {
    for &index in indices.values {
        checked_index("gather", index, x.meta.shape[batch], line)?;
    }
    let rank = indices.meta.shape.len();
    Ok(fill(meta, |i| {
        let index = indices.at(&i[..rank]) as usize;
        x.at(&[&i[..batch], &[index], &i[rank..]].concat())
    }))
}

/// y[b.., indices[b.., k..], inner..] += updates[b.., k.., inner..].
fn scatter_add(
    indices: DenseOperand,
    updates: DenseOperand,
    batch: usize,
    size: usize,
    meta: &Meta,
    line: Line,
) -> Result<Vec<f64>> {
    for &index in indices.values {
        checked_index("scatter_add", index, size, line)?;
    }
    let rank = indices.meta.shape.len();
    let mut values = vec![0.0; element_count(&meta.shape)];
    for_each_index(&updates.meta.shape, |i| {
        let index = indices.at(&i[..rank]) as usize;
        let to = place(&meta.shape, &[&i[..batch], &[index], &i[rank..]].concat());
        values[to] = plus(values[to], updates.at(i), meta.dtype);
    });
    Ok(values.iter().map(|&v| scalar::round(v, meta.dtype)).collect())
}

/// The flat index of the first largest element of each window; places in the padding are never chosen.
fn window_argmax(x: DenseOperand, dims: &WindowDims, meta: &Meta) -> Vec<f64> {
    let lead = meta.shape.len() - 2;
    let (height, width) = (x.meta.shape[lead], x.meta.shape[lead + 1]);
    fill(meta, |i| {
        let mut best: Option<(usize, f64)> = None;
        for_each_index(&dims.size, |k| {
            let at = |axis: usize| (i[lead + axis] * dims.stride[axis] + k[axis]).checked_sub(dims.padding[axis].0);
            let (Some(row), Some(column)) = (at(0), at(1)) else { return };
            if row >= height || column >= width {
                return;
            }
            let value = x.at(&[&i[..lead], &[row, column]].concat());
            if best.is_none_or(|(_, largest)| beats(value, largest)) {
                best = Some((row * width + column, value));
            }
        });
        best.map_or(0.0, |(place, _)| place as f64)
    })
}
