//! Random programs of every operation the differentiable ones leave out: integers, conversions, draws, choices, empty axes
//! and scalars, with loops that carry values in every way there is.
//!
//! Operations that choose (a maximum, a comparison, a conversion to integers) see only `exact` values: those every executor
//! computes to the same bits, so that rounding never decides a choice.

use crate::conformance::suite::differentiable::{Size, moved, smooth};
use crate::conformance::{Case, Dice, Inputs, fits, sized, tolerance};
use crate::{Array, BinaryOp, ConvDims, DType, Graph, Program, RandomKind, Result, Tensor, gradient, nn};

/// Tensors made so far.
struct Pools<'a> {
    dice: Dice,
    g: &'a Graph,
    dtype: DType,
    size: Size,
    inputs: Inputs,
    floats: Vec<Tensor>,
    integers: Vec<Tensor>,
    rounded: Vec<Tensor>,
    indices: Tensor,
    batch_indices: Tensor,
    key: Tensor,
    z: Tensor,
}

impl Pools<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.dice.below(n)
    }

    fn axes(&mut self, x: Tensor) -> Vec<usize> {
        (0..x.rank()).filter(|_| self.dice.below(2) == 0).collect()
    }

    /// Another tensor that broadcasts with p, or p itself.
    fn partner(&mut self, p: Tensor) -> Tensor {
        let pool = if p.dtype() == DType::I32 { &self.integers } else { &self.floats };
        let q = self.dice.pick(pool);
        if fits(p, q, self.size.elements + 1) { q } else { p }
    }

    /// Moves, with empty axes among them.
    fn shifted(&mut self, p: Tensor) -> Tensor {
        if !p.is_empty() {
            return moved_any(&mut self.dice, p);
        }
        let (shape, rank) = (p.shape(), p.rank());
        let axis = self.below(rank);
        match self.below(6) {
            0 => p.reverse([axis]),
            1 => p.reshape([0, 3]),
            2 => p.reshape([2, 0, 1]),
            3 => p.pad(axis, 1, self.below(2)),
            4 => p.transpose((0..rank).rev().collect::<Vec<_>>()),
            _ if rank < 4 => p.broadcast((1..=rank).collect::<Vec<_>>(), [&[2], &shape[..]].concat()),
            _ => p.reshape([0]),
        }
    }

    /// An operation whose bits are determined, on floats.
    fn exact_float(&mut self) -> Tensor {
        let p = self.dice.pick(&self.floats);
        let q = self.partner(p);
        let scalar = self.dice.uniform();
        match self.below(24) {
            0 => p + q,
            1 => p - q,
            2 => (p * q).clamp(-3.0, 3.0),
            3 => p.maximum(q),
            4 => p.minimum(q),
            5 => p.less(q).select(p, q),
            6 => p.greater_equal(scalar).select(scalar, q),
            7 => p.less_equal(0.25).select(p * 0.5, 2.0),
            8 => p.abs(),
            9 => -p,
            10 => (p * 3.0).floor(),
            11 => p.sign() + p.not_equal(q),
            12 => {
                let axes = self.axes(p);
                one_zero(p.max(axes))
            }
            13 if p.rank() > 0 => {
                let last = p.rank() - 1;
                let axis = self.below(p.rank());
                if p.dim(axis) == 0 { one_zero(p.max([last])) } else { p.argmax(axis).convert(self.dtype) }
            }
            14 => p.stop_gradient(),
            15 => {
                let other = if self.dtype == DType::F64 { DType::F32 } else { DType::F64 };
                (p.convert(other) * 0.75).convert(self.dtype)
            }
            16 => self.dice.pick(&self.integers).convert(self.dtype),
            17 => self.draw(),
            18 if p.rank() > 0 && p.dim(0) >= self.size.lengths[0] => p.take(self.indices),
            19 => self.z.gather(self.batch_indices, 1),
            20 | 21 => self.shifted(p),
            22 => {
                let q = self.dice.pick(&self.floats);
                let s = q.sum((0..q.rank()).collect::<Vec<_>>()) * 0.0;
                // A scalar among tensors, and a rank-0 chain.
                if q.is_empty() { s.maximum(scalar) + p } else { p * scalar }
            }
            _ => self.g.constant(scalar, p.shape(), self.dtype).maximum(q),
        }
    }

    fn draw(&mut self) -> Tensor {
        let stream = self.below(5) as u32;
        let [a, b, c] = self.size.lengths;
        let shape = [vec![a, b, c], vec![a, c], vec![2], vec![], vec![c], vec![0, 3]][self.dice.below(6)].clone();
        let counter =
            [self.g.step(), self.g.scalar(7.0, DType::I32), self.g.step() + self.g.step()][self.dice.below(3)];
        let key = if self.below(2) == 0 { self.key } else { self.key.reverse([0]) + 1.0 };
        match self.below(3) {
            0 => key.random(counter, RandomKind::Normal, stream, shape, self.dtype),
            1 => key.random(counter, RandomKind::Uniform, stream, shape, self.dtype),
            _ => key.random(counter, RandomKind::Bits, stream, shape, DType::I32).less(0.0).convert(self.dtype),
        }
    }

    fn integer(&mut self) -> Tensor {
        let p = self.dice.pick(&self.integers);
        let q = self.partner(p);
        let f = self.dice.pick(&self.floats);
        match self.below(18) {
            0 => p + q,
            1 => p - q,
            2 => p * q,
            3 => p.maximum(q) - p.minimum(q),
            4 => p.binary(self.dice.pick(&[BinaryOp::Eq, BinaryOp::Ne, BinaryOp::Lt, BinaryOp::Le]), q),
            5 => p.less(1.0).select(p, q * 3.0),
            6 => -p + p.abs() * p.sign(),
            7 => {
                let axes = self.axes(p);
                p.sum(axes)
            }
            8 => {
                let axes = self.axes(p);
                p.max(axes)
            }
            9 if p.rank() > 0 && sized(p, 64) => {
                let (axis, reverse) = (self.below(p.rank()), self.below(2) == 0);
                p.cumsum_from(axis, reverse)
            }
            10 => (f * 3e9).convert(DType::I32),
            11 => (f * 7.5).convert(DType::I32),
            12 if f.rank() > 0 && !f.is_empty() => {
                let axis = self.below(f.rank());
                if self.below(2) == 0 { f.argmax(axis) } else { f.argsort(axis) }
            }
            13 if p.rank() > 0 && !p.is_empty() => {
                let axis = self.below(p.rank());
                match self.below(3) {
                    0 => p.argmax(axis),
                    1 => p.sort(axis),
                    _ => p.scatter_max(p.maximum(0.0).minimum(2.0), 0, 3),
                }
            }
            14 => self.key.random(self.g.step(), RandomKind::Bits, 3, p.shape(), DType::I32),
            15 if p.rank() > 0 => p.concat(&[p * 2.0], self.dice.below(p.rank())),
            16 => p.shape().first().map_or(p, |_| p.iota_like(0) + p),
            _ => self.shifted(p),
        }
    }

    /// An operation whose last bits depend on the order of sums, or on an approximation.
    fn rounded(&mut self) -> Tensor {
        let exact = self.dice.pick(&self.floats).clamp(-2.0, 2.0);
        let p = if self.rounded.is_empty() || self.below(2) == 0 { exact } else { self.dice.pick(&self.rounded) };
        match self.below(12) {
            0 | 1 => smooth(&mut self.dice, p),
            2 => {
                let axes = self.axes(p);
                let count: usize = axes.iter().map(|&a| p.dim(a)).product();
                p.sum(axes) * (1.0 / count.max(1) as f64)
            }
            3 if p.rank() > 0 && !p.is_empty() => nn::softmax(p, self.dice.below(p.rank())),
            4 if p.rank() > 0 => {
                // Repeated indices: every row of p is added to one of three rows.
                let to = p.iota_like(0).slice_all(
                    vec![0; p.rank()],
                    p.shape().iter().enumerate().map(|(i, &n)| if i == 0 { n } else { n.min(1) }).collect(),
                    vec![1; p.rank()],
                );
                if p.is_empty() {
                    return p.tanh();
                }
                let rows = to.reshape([p.dim(0)]).convert(DType::I32);
                let third = rows - (rows.convert(DType::F64) * (1.0 / 3.0)).floor().convert(DType::I32) * 3.0;
                p.scatter_add(third.maximum(0.0).minimum(2.0), 0, 3) * (1.0 / p.dim(0) as f64)
            }
            5 => {
                let k = self.batch_indices.dim(1);
                let (b, c) = (self.z.dim(1), self.z.dim(2));
                let updates = self.z.gather(self.batch_indices, 1).reshape([self.z.dim(0), k, c]);
                updates.sin().scatter_add(self.batch_indices, 1, b)
            }
            6 => self.grouped_conv(),
            7 if p.rank() > 0 && sized(p, 64) => p.cumsum(self.dice.below(p.rank())) * 0.2,
            8 if p.rank() >= 2 && p.len() * p.dim(p.rank() - 1).max(1) <= self.size.products => {
                let flat = p.reshape([p.len() / p.dim(p.rank() - 1).max(1), p.dim(p.rank() - 1)]);
                if flat.dim(0) > 300 { flat.t().matmul(flat.tanh()) * 0.01 } else { flat.matmul(flat.t()) * 0.1 }
            }
            9 => moved_any(&mut self.dice, p),
            // Used again and again, by groups of different lengths.
            10 => p.sin() * p.cos() + mean(p).tanh(),
            _ => p * 0.5 + mean(exact).tanh(),
        }
    }

    fn grouped_conv(&mut self) -> Tensor {
        let groups = 1 + self.below(2);
        let (count, image_channels) = (2, 2 * groups);
        let image = self.g.iota([count, image_channels, 6, 5], 3, self.dtype).sin() * self.z.mean_all();
        let kernel = self.g.iota([3 * groups, 2, 3, 2], 0, self.dtype).cos() + self.z.mean_all().tanh();
        let dims = ConvDims {
            stride: [1 + self.below(2), 1],
            padding: [(1, 1), (0, self.below(2) as i64)],
            image_dilation: [1, 1],
            kernel_dilation: [1, 1 + self.below(2)],
            groups,
        };
        image.conv(kernel, dims) * 0.2
    }

    fn keep(&mut self, t: Tensor) -> Result<Option<Tensor>> {
        let t = t.check()?;
        Ok((t.len() <= self.size.elements && t.rank() <= 5).then_some(t))
    }
}

/// The same numbers with 0 for −0: of both, either may be the largest.
fn one_zero(p: Tensor) -> Tensor {
    p.equal(0.0).select(0.0, p)
}

/// The mean, 0 of nothing.
fn mean(p: Tensor) -> Tensor {
    p.sum_all() * (1.0 / p.len().max(1) as f64)
}

/// A move of a tensor that may be empty or a scalar.
fn moved_any(dice: &mut Dice, p: Tensor) -> Tensor {
    if p.is_empty() || p.rank() > 4 {
        return p.reshape([p.len()]);
    }
    moved(dice, p)
}

/// Builds the program of this seed on `g`.
///
/// ```
/// use bilevel_graph::conformance::{Size, varied_program};
/// use bilevel_graph::{DType, Graph, Reference};
/// varied_program(1, &Graph::new(), DType::F32, Size::small)?.check(&Reference)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn varied_program(seed: u64, g: &Graph, dtype: DType, size: impl Fn(&mut Dice) -> Size) -> Result<Case> {
    let mut dice = Dice::new(seed ^ 0x5eed);
    let size = size(&mut dice);
    let [a, b, c] = size.lengths;
    let mut inputs: Inputs = vec![];
    let mut float = |dice: &mut Dice, name: &str, shape: &[usize]| -> Result<Tensor> {
        let mut values = dice.array(shape, dtype)?.to_f64();
        // Both zeros are among the numbers.
        values.iter_mut().zip([-0.0, 0.0]).skip(dice.below(2)).for_each(|(value, zero)| *value = zero);
        inputs.push((name.to_string(), Array::from_values(shape, &values, dtype)?));
        Ok(g.input(name, shape, dtype))
    };
    let x = float(&mut dice, "x", &[a, c])?;
    let x2 = float(&mut dice, "x2", &[a, c])?;
    let z = float(&mut dice, "z", &[a, b, c])?;
    let s = float(&mut dice, "s", &[])?;
    let t = float(&mut dice, "t", &[])?;
    let w = float(&mut dice, "w", &[a, c])?;
    let empty = float(&mut dice, "empty", if seed.is_multiple_of(2) { &[0, 3] } else { &[2, 0] })?;
    let mut integer = |name: &str, value: Array| {
        let tensor = g.input(name, value.shape(), DType::I32);
        inputs.push((name.to_string(), value));
        tensor
    };
    let mut wild = dice.indices(&[a, b], 11)?.to_f64();
    (wild[0], wild[1]) = (i32::MAX as f64, i32::MIN as f64);
    let n = integer("n", Array::from_values([a, b], &wild, DType::I32)?);
    let m = integer("m", dice.indices(&[b], 5)?);
    let count = 1 + dice.below(7);
    let indices = integer("indices", dice.indices(&[count], a)?);
    let batch_indices = integer("batch_indices", dice.indices(&[a, count], b)?);
    let key = integer("key", dice.indices(&[2], 1 << 30)?);

    let middle = x.broadcast([0, 2], [a, b, c]);
    let mut pools = Pools {
        floats: vec![x, x2, z, s, t, empty, middle],
        integers: vec![n, m, indices, g.step()],
        rounded: vec![],
        dice,
        g,
        dtype,
        size,
        inputs,
        indices,
        batch_indices,
        key,
        z,
    };
    for _ in 0..4 + pools.below(size.operations) {
        let made = pools.exact_float();
        if let Some(made) = pools.keep(made)? {
            pools.floats.push(made);
        }
        let made = pools.integer();
        if let Some(made) = pools.keep(made)? {
            pools.integers.push(made);
        }
        let made = pools.rounded();
        if let Some(made) = pools.keep(made)? {
            pools.rounded.push(made);
        }
    }
    finish(seed, pools, [x, x2, z, s, t, w, empty, n])
}

/// Adds derivatives, outputs of every kind and carries of every kind.
fn finish(seed: u64, mut pools: Pools, [x, x2, z, s, t, w, empty, n]: [Tensor; 8]) -> Result<Case> {
    let loss = pools.rounded.iter().chain(&pools.floats).filter(|p| !p.is_empty());
    let loss = loss.map(|p| p.tanh().mean_all()).reduce(|a, b| a + b).unwrap_or(s);
    let slopes = gradient(loss, &[x, z, s])?;

    // Exact values of x's shape and type, for carries that must stay exact.
    let nexts: Vec<Tensor> = pools.floats.iter().copied().filter(|p| p.shape() == x.shape()).collect();
    let scalars: Vec<Tensor> = pools.floats.iter().copied().filter(|p| p.rank() == 0).collect();
    let computed = pools.dice.pick(&nexts).clamp(-2.0, 2.0);
    let mut carries: Vec<(Tensor, Tensor)> = match pools.below(9) {
        0 => vec![],
        1 => vec![(x, x2), (x2, x)],
        2 => vec![(x, x.reverse([1])), (s, t)],
        3 => vec![(x, x.constant_like(0.25, x.shape())), (t, s)],
        4 => vec![(x, x2)],
        5 => vec![(x, computed), (x2, computed)],
        6 => vec![(x, computed), (x2, x.stop_gradient()), (s, t), (t, s)],
        7 => vec![(x, z.slice(1, 0, 1).reshape(x.shape())), (z, z.reverse([0, 2])), (empty, empty)],
        _ => vec![(x, x), (x2, computed * 0.5), (t, pools.dice.pick(&scalars).clamp(-2.0, 2.0))],
    };
    if pools.below(3) == 0 {
        carries.push((n, n * 3.0 - n.reverse([0])));
    }
    // w feeds nothing exact, so its next value may round.
    let slope = slopes[0].unwrap_or_else(|| x.zeros_like());
    match pools.below(3) {
        0 => carries.push((w, w * 0.5 - slope * 0.1)),
        1 => carries.push((w, slope)),
        _ => {}
    }

    let mut outputs: Vec<(Tensor, bool)> = vec![];
    if seed % 11 != 3 || carries.is_empty() {
        outputs.extend(pools.floats.iter().chain(&pools.integers).map(|&p| (p, true)));
        outputs.extend(pools.rounded.iter().map(|&p| (p, false)));
        outputs.extend(slopes.iter().flatten().map(|&p| (p, false)));
        outputs.push((loss, false));
        outputs.push((w + slope, false));
        outputs.push((z.transpose([2, 0, 1]), true));
        outputs.push((x.slice_step(1, 0, x.dim(1), 2), true));
        outputs.push((x.constant_like(0.5, [2, 2]), true));
        outputs.push((empty.reverse([0]), true));
        outputs.push((pools.g.iota([3, 2], 1, DType::I32), true));
    }
    let mut builder = Program::builder(pools.g);
    let mut tolerances = vec![];
    let rounding = rounding(pools.dtype, pools.size);
    let allowed = |exact: bool| if exact { 0.0 } else { rounding };
    for (i, &(output, exact)) in outputs.iter().enumerate() {
        builder = builder.output(format!("output {i}"), output);
        tolerances.push(allowed(exact));
    }
    for &(input, next) in &carries {
        builder = builder.carry(input, next);
        tolerances.push(allowed(!input.is_same_node(w)));
    }
    Ok(Case {
        name: format!("varied program {seed} in {}", pools.dtype),
        program: builder.build()?,
        inputs: pools.inputs,
        steps: 1 + (seed % 3) as u32,
        tolerances,
    })
}

/// The reference adds up one by one: of n equal terms, which a choice makes many of, it may lose n·2⁻⁵³ of the sum.
fn rounding(dtype: DType, size: Size) -> f64 {
    let terms = size.lengths.iter().product::<usize>() as f64;
    tolerance(dtype).max(1.2 * terms * f64::EPSILON / 2.0)
}
