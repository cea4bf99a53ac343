//! One shape rule per primitive: its result, or the reason why the operands do not fit.

use crate::ir::graph::not_in_type;
use crate::ir::op::{BinaryOp, BlockOp, ConvDims, DotDims, Op, RandomKind, UnaryOp, WindowDims};
use crate::shape::{element_count, is_countable, other_axes};
use crate::{DType, Precision};

/// Type and shape of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Meta {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

type Inferred = std::result::Result<Meta, String>;

/// The type and shape of `op` on these operands. `asked` is the result's type and shape for operations whose operands
/// do not determine it (constants, random draws, reshapes, broadcasts).
pub(crate) fn infer(op: &Op, operands: &[&Meta], asked: Option<Meta>) -> Inferred {
    let meta = infer_unbounded(op, operands, asked)?;
    require(is_countable(&meta.shape), || too_large(&meta.shape))?;
    Ok(meta)
}

/// Why a shape is refused whose elements no machine can hold.
pub(crate) fn too_large(shape: &[usize]) -> String {
    format!("shape {shape:?} has too many elements")
}

fn infer_unbounded(op: &Op, operands: &[&Meta], asked: Option<Meta>) -> Inferred {
    let none = || require(operands.is_empty(), || "takes no operand".into());
    let one = || match operands {
        [x] => Ok(*x),
        _ => Err("needs one operand".to_string()),
    };
    let need = || asked.clone().ok_or_else(|| "needs a result shape".to_string());
    match op {
        Op::Input(_) => none().and_then(|()| need()),
        Op::Constant(bits) => {
            none()?;
            let meta = need()?;
            not_in_type(f64::from_bits(*bits), meta.dtype).map_or(Ok(meta), Err)
        }
        Op::Iota(axis) => {
            none()?;
            let meta = need()?;
            require(*axis < meta.shape.len(), || format!("axis {axis} is not one of shape {:?}", meta.shape))?;
            Ok(meta)
        }
        Op::Random(kind, _) => random(*kind, operands, need()?),
        Op::Unary(op) => unary(*op, one()?),
        Op::Binary(op) => binary(*op, operands),
        Op::Select => select(operands),
        Op::Convert(to) => Ok(Meta { dtype: *to, shape: one()?.shape.clone() }),
        Op::CheckIndex(_) => {
            let x = one()?;
            require(x.dtype == DType::I32, || "indices must be i32".into())?;
            Ok(x.clone())
        }
        Op::StopGradient => Ok(one()?.clone()),
        Op::Host(call) => call.function().result(operands),
        Op::Custom(_) => operands.first().map(|value| (*value).clone()).ok_or("needs a value".into()),
        Op::Reshape => reshape(one()?, need()?),
        Op::Transpose(perm) => transpose(perm, one()?),
        Op::Broadcast(axes) => broadcast(axes, one()?, need()?),
        Op::Slice { start, stop, step } => slice(one()?, start, stop, step),
        Op::Pad { low, high, interior } => pad(one()?, [low, high, interior]),
        Op::Concat(axis) => concat(*axis, operands),
        Op::Reverse(axes) => same_with_axes(axes, one()?),
        Op::Reduce(_, axes) => reduce(axes, one()?),
        Op::ArgMax(axis) => argmax(*axis, one()?),
        Op::Dot(dims, precision) => rounded(*precision, dot(dims, operands)?),
        Op::Conv(dims, _, precision) => rounded(*precision, conv(dims, operands)?),
        Op::Gather { batch } => gather(*batch, operands),
        Op::ScatterAdd { batch, size } => scatter_add(*batch, *size, operands),
        Op::WindowArgMax(dims) => window_argmax(dims, one()?),
        Op::CumSum { axis, .. } => same_with_axes(&[*axis], one()?),
        Op::Block(op) => block(*op, operands),
        Op::Collective(collective) => collective.result(operands),
    }
}

fn require(holds: bool, reason: impl FnOnce() -> String) -> std::result::Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}

fn check_axes(axes: &[usize], rank: usize) -> std::result::Result<(), String> {
    require(axes.windows(2).all(|w| w[0] < w[1]) && axes.iter().all(|&a| a < rank), || {
        format!("axes {axes:?} must be increasing and below the rank {rank}")
    })
}

fn random(kind: RandomKind, operands: &[&Meta], meta: Meta) -> Inferred {
    let [key, counter] = operands else { return Err("needs a key and a counter".into()) };
    require(key.dtype == DType::I32 && key.shape == [2], || "the key must be i32[2], as seed_key gives it".into())?;
    require(counter.dtype == DType::I32 && counter.shape.is_empty(), || "the counter must be an i32 scalar".into())?;
    require(meta.dtype.is_float() != (kind == RandomKind::Bits), || {
        format!("cannot draw {kind:?} in type {}", meta.dtype)
    })?;
    Ok(meta)
}

fn unary(op: UnaryOp, x: &Meta) -> Inferred {
    let on_integers = matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign);
    require(x.dtype.is_float() || on_integers, || format!("{op:?} needs floats; convert first"))?;
    Ok(x.clone())
}

fn binary(op: BinaryOp, operands: &[&Meta]) -> Inferred {
    let [a, b] = operands else { return Err("needs two operands".into()) };
    require(a.dtype == b.dtype, || "both operands must have one type; convert one of them".into())?;
    require(a.shape == b.shape, || "the shapes do not broadcast to one".into())?;
    use BinaryOp::{Add, Max, Min, Mul, Sub};
    let on_integers = op.is_comparison() || matches!(op, Add | Sub | Mul | Max | Min);
    require(a.dtype.is_float() || on_integers, || format!("{op:?} needs floats; convert first"))?;
    Ok((*a).clone())
}

fn select(operands: &[&Meta]) -> Inferred {
    let [mask, a, b] = operands else { return Err("needs a mask and two values".into()) };
    require(mask == a && a == b, || "the mask and both values must have one shape and type".into())?;
    Ok((*a).clone())
}

fn reshape(x: &Meta, meta: Meta) -> Inferred {
    require(element_count(&x.shape) == element_count(&meta.shape), || {
        format!("cannot put {} elements into shape {:?}", element_count(&x.shape), meta.shape)
    })?;
    Ok(Meta { dtype: x.dtype, shape: meta.shape })
}

fn transpose(perm: &[usize], x: &Meta) -> Inferred {
    let mut seen = perm.to_vec();
    seen.sort_unstable();
    require(seen.iter().copied().eq(0..x.shape.len()), || {
        format!("{perm:?} is not an order of the {} axes", x.shape.len())
    })?;
    Ok(Meta { dtype: x.dtype, shape: perm.iter().map(|&p| x.shape[p]).collect() })
}

fn broadcast(axes: &[usize], x: &Meta, meta: Meta) -> Inferred {
    let fits = axes.len() == x.shape.len()
        && axes.windows(2).all(|w| w[0] < w[1])
        && axes.iter().zip(&x.shape).all(|(&a, &d)| meta.shape.get(a) == Some(&d));
    require(fits, || format!("axes {axes:?} do not place it inside shape {:?}", meta.shape))?;
    Ok(Meta { dtype: x.dtype, shape: meta.shape })
}

fn pad(x: &Meta, [low, high, interior]: [&[usize]; 3]) -> Inferred {
    let rank = x.shape.len();
    require([low.len(), high.len(), interior.len()] == [rank; 3], || {
        format!("give one padding for each of {rank} axes")
    })?;
    let padded = |i: usize| {
        let between = interior[i].saturating_mul(x.shape[i].saturating_sub(1));
        low[i].saturating_add(high[i]).saturating_add(x.shape[i]).saturating_add(between)
    };
    Ok(Meta { dtype: x.dtype, shape: (0..rank).map(padded).collect() })
}

/// The operand's own type and shape, for operations along axes it must have.
fn same_with_axes(axes: &[usize], x: &Meta) -> Inferred {
    check_axes(axes, x.shape.len())?;
    Ok(x.clone())
}

fn reduce(axes: &[usize], x: &Meta) -> Inferred {
    check_axes(axes, x.shape.len())?;
    let kept = other_axes(x.shape.len(), axes);
    Ok(Meta { dtype: x.dtype, shape: kept.iter().map(|&a| x.shape[a]).collect() })
}

fn argmax(axis: usize, x: &Meta) -> Inferred {
    check_axes(&[axis], x.shape.len())?;
    require(x.shape[axis] > 0, || format!("axis {axis} is empty and has no largest element"))?;
    let mut shape = x.shape.clone();
    shape.remove(axis);
    Ok(Meta { dtype: DType::I32, shape })
}

fn slice(x: &Meta, start: &[usize], stop: &[usize], step: &[usize]) -> Inferred {
    let rank = x.shape.len();
    require([start.len(), stop.len(), step.len()] == [rank; 3], || format!("give one range for each of {rank} axes"))?;
    for i in 0..rank {
        require(start[i] <= stop[i] && stop[i] <= x.shape[i] && step[i] > 0, || {
            format!("range {}..{} by {} is not inside axis {i} of length {}", start[i], stop[i], step[i], x.shape[i])
        })?;
    }
    Ok(Meta { dtype: x.dtype, shape: (0..rank).map(|i| (stop[i] - start[i]).div_ceil(step[i])).collect() })
}

fn concat(axis: usize, operands: &[&Meta]) -> Inferred {
    let first = *operands.first().ok_or("needs at least one operand")?;
    check_axes(&[axis], first.shape.len())?;
    let mut shape = first.shape.clone();
    for other in &operands[1..] {
        let fits = other.dtype == first.dtype
            && other.shape.len() == shape.len()
            && (0..shape.len()).all(|i| i == axis || other.shape[i] == shape[i]);
        require(fits, || format!("all operands must agree in type and in every axis but {axis}"))?;
        shape[axis] = shape[axis].saturating_add(other.shape[axis]);
    }
    Ok(Meta { dtype: first.dtype, shape })
}

fn rounded(precision: Precision, product: Meta) -> Inferred {
    require(precision == Precision::Full || product.dtype == DType::F32, || {
        format!("only operands of type f32 can be rounded to {precision}, not {}", product.dtype)
    })?;
    Ok(product)
}

fn dot(dims: &DotDims, operands: &[&Meta]) -> Inferred {
    let [a, b] = operands else { return Err("needs two operands".into()) };
    require(a.dtype == b.dtype && a.dtype.is_float(), || "both operands must be floats of one type".into())?;
    let pairs = |l: &[usize], r: &[usize], what: &str| {
        require(l.len() == r.len(), || format!("{what} axes {l:?} and {r:?} do not pair up"))?;
        for (&i, &j) in l.iter().zip(r) {
            let (x, y) = (a.shape.get(i), b.shape.get(j));
            require(x.is_some() && x == y, || {
                format!("{what} axis {i} of the left operand must equal axis {j} of the right")
            })?;
        }
        Ok::<(), String>(())
    };
    pairs(&dims.lhs_contract, &dims.rhs_contract, "contracted")?;
    pairs(&dims.lhs_batch, &dims.rhs_batch, "batch")?;
    let used = |c: &[usize], b: &[usize]| [c, b].concat();
    let (lhs, rhs) = (used(&dims.lhs_contract, &dims.lhs_batch), used(&dims.rhs_contract, &dims.rhs_batch));
    for axes in [&lhs, &rhs] {
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        require(sorted.len() == axes.len(), || format!("an axis is used twice in {axes:?}"))?;
    }
    let mut shape: Vec<usize> = dims.lhs_batch.iter().map(|&i| a.shape[i]).collect();
    shape.extend(other_axes(a.shape.len(), &lhs).iter().map(|&i| a.shape[i]));
    shape.extend(other_axes(b.shape.len(), &rhs).iter().map(|&i| b.shape[i]));
    Ok(Meta { dtype: a.dtype, shape })
}

fn conv(dims: &ConvDims, operands: &[&Meta]) -> Inferred {
    let [x, w] = operands else { return Err("needs an image and a kernel".into()) };
    require(x.dtype == w.dtype && x.dtype.is_float(), || "image and kernel must be floats of one type".into())?;
    require(x.shape.len() == 4 && w.shape.len() == 4, || {
        "image [n, c, h, w] and kernel [o, c, kh, kw] need 4 axes".into()
    })?;
    require(
        dims.groups > 0
            && w.shape[0].is_multiple_of(dims.groups)
            && w.shape[1].checked_mul(dims.groups) == Some(x.shape[1]),
        || format!("{} channels and kernel {:?} do not fit {} groups", x.shape[1], w.shape, dims.groups),
    )?;
    let mut shape = vec![x.shape[0], w.shape[0]];
    for i in 0..2 {
        let steps = [dims.stride[i], dims.image_dilation[i], dims.kernel_dilation[i]];
        require(steps.iter().all(|&s| s > 0), || "strides and dilations must be at least 1".into())?;
        // In 128 bits nothing overflows; after this check nothing does in 64.
        let spread = |n: usize, by: usize| if n == 0 { 0 } else { (n as i128 - 1) * by as i128 + 1 };
        let image = spread(x.shape[2 + i], dims.image_dilation[i]);
        let kernel = spread(w.shape[2 + i], dims.kernel_dilation[i]);
        let (low, high) = (dims.padding[i].0 as i128, dims.padding[i].1 as i128);
        let lengths = [image, kernel, low.abs(), high.abs(), dims.stride[i] as i128];
        require(lengths.iter().all(|&n| n < 1 << 40), || "strides, dilations or padding are too large".into())?;
        let room = image + low + high - kernel;
        require(room >= 0 && w.shape[2 + i] > 0, || {
            format!("the kernel does not fit the padded image along {}", ["height", "width"][i])
        })?;
        shape.push(room as usize / dims.stride[i] + 1);
    }
    Ok(Meta { dtype: x.dtype, shape })
}

fn gather(batch: usize, operands: &[&Meta]) -> Inferred {
    let [x, indices] = operands else { return Err("needs an operand and indices".into()) };
    require(indices.dtype == DType::I32, || "indices must be i32".into())?;
    let fits = x.shape.len() > batch && indices.shape.len() >= batch && x.shape[..batch] == indices.shape[..batch];
    require(fits, || {
        format!("operand and indices must share their first {batch} axes, and the operand have one more")
    })?;
    let shape = [&indices.shape[..], &x.shape[batch + 1..]].concat();
    Ok(Meta { dtype: x.dtype, shape })
}

fn scatter_add(batch: usize, size: usize, operands: &[&Meta]) -> Inferred {
    let [indices, updates] = operands else { return Err("needs indices and updates".into()) };
    require(indices.dtype == DType::I32, || "indices must be i32".into())?;
    let rank = indices.shape.len();
    let fits = rank >= batch && updates.shape.len() >= rank && updates.shape[..rank] == indices.shape[..];
    require(fits, || "the updates' first axes must be those of the indices".into())?;
    let shape = [&indices.shape[..batch], &[size], &updates.shape[rank..]].concat();
    Ok(Meta { dtype: updates.dtype, shape })
}

fn window_argmax(dims: &WindowDims, x: &Meta) -> Inferred {
    let rank = x.shape.len();
    require(rank >= 2, || "needs at least height and width".into())?;
    let mut shape = x.shape.clone();
    for i in 0..2 {
        let (size, stride, (low, high)) = (dims.size[i], dims.stride[i], dims.padding[i]);
        require(size > 0 && stride > 0, || "window sizes and strides must be at least 1".into())?;
        require(low < size && high < size, || {
            "padding must be smaller than the window, so that none is all padding".into()
        })?;
        let length = shape[rank - 2 + i];
        let padded = length.saturating_add(low).saturating_add(high);
        require(length > 0 && padded >= size && padded < usize::MAX, || {
            format!("a window of {size} does not fit {length} with padding {low} and {high}")
        })?;
        shape[rank - 2 + i] = (padded - size) / stride + 1;
    }
    Ok(Meta { dtype: DType::I32, shape })
}

fn block(op: BlockOp, operands: &[&Meta]) -> Inferred {
    require(operands.len() == op.operands(), || format!("needs {} operands", op.operands()))?;
    let x = operands[0];
    let rank = x.shape.len();
    require(rank >= op.rank(), || format!("needs at least {} axes", op.rank()))?;
    match op {
        BlockOp::ArgSort => Ok(Meta { dtype: DType::I32, shape: x.shape.clone() }),
        BlockOp::ScatterArgMax { size } => {
            require(x.dtype == DType::I32, || "indices must be i32".into())?;
            require(x.shape == operands[1].shape, || "needs an index for each update".into())?;
            Ok(Meta { dtype: DType::I32, shape: [&x.shape[..rank - 1], &[size]].concat() })
        }
        BlockOp::Cholesky | BlockOp::TriangularSolve { .. } => {
            require(x.dtype.is_float(), || "needs floats; convert first".into())?;
            require(x.shape[rank - 2] == x.shape[rank - 1], || "the last two axes must be equal".into())?;
            let Some(b) = operands.get(1) else { return Ok(x.clone()) };
            require(b.dtype == x.dtype, || "both operands must have one type; convert one of them".into())?;
            require(b.shape.len() == rank && b.shape[..rank - 1] == x.shape[..rank - 1], || {
                "the right side must be [.., n, m] for matrices [.., n, n], with the same batch axes".into()
            })?;
            Ok((*b).clone())
        }
    }
}
