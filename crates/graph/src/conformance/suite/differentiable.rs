//! Random differentiable programs: the same seed gives the same program on any graph.

use crate::conformance::{Case, Dice, fits, sized, tolerance};
use crate::{Array, BinaryOp, ConvDims, DType, DotDims, Graph, Program, Result, Tensor, WindowDims, gradient, nn, vjp};

/// A random loss with its derivatives.
///
/// ```
/// use bilevel_graph::conformance::{Differentiable, Size};
/// use bilevel_graph::{DType, GradientCheck, Graph};
/// let g = Graph::new();
/// let made = Differentiable::new(3, &g, DType::F64, Size::small)?;
/// let point: Vec<_> = made.inputs.iter().map(|(tensor, _, value)| (*tensor, value.clone())).collect();
/// let report = GradientCheck::new(&g, made.loss, &made.variables, &point).coordinates(2).run()?;
/// assert!(report.passed(1e-6), "{report}");
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub struct Differentiable {
    /// Its inputs with their names and values.
    pub inputs: Vec<(Tensor, String, Array)>,
    /// A scalar.
    pub loss: Tensor,
    /// The inputs that it is derived by.
    pub variables: Vec<Tensor>,
    /// The loss, its gradient, and for every other seed a product with its Hessian.
    pub results: Vec<Tensor>,
    /// For every other seed, an input to carry and its next value.
    pub carry: Option<(Tensor, Tensor)>,
}

/// How large a sample is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Lengths of the three axes of most tensors.
    pub lengths: [usize; 3],
    /// Most elements of one tensor.
    pub elements: usize,
    /// Most multiplications of one product.
    pub products: usize,
    /// Most operations before the derivatives.
    pub operations: usize,
}

impl Size {
    /// A few elements: every kind of program, quickly.
    pub fn small(dice: &mut Dice) -> Self {
        let lengths = [2 + dice.below(3), 2 + dice.below(4), 3 + dice.below(10)];
        Size { lengths, elements: 2000, products: 4000, operations: 14 }
    }

    /// Loops of several tasks, sinks of several partial sums, rows of 2 to several thousand.
    pub fn large(dice: &mut Dice) -> Self {
        let row = dice.pick(&[2, 3, 8, 10, 33, 64, 100, 197, 500, 768, 1000, 2500, 4100]);
        let rows = 50_000 / row;
        let a = [2, 3, 4, 16][dice.below(4)].min(rows.max(2));
        let lengths = match dice.below(3) {
            0 => [a, (rows / a).max(1), row],
            1 => [(rows / a).max(2), a, row],
            _ => [a, row, (rows / a).max(1)],
        };
        Size { lengths, elements: 120_000, products: 400_000, operations: 6 }
    }
}

/// Smooth functions whose values stay moderate.
pub(crate) fn smooth(dice: &mut Dice, x: Tensor) -> Tensor {
    match dice.below(16) {
        0 => x.tanh(),
        1 => x.sin(),
        2 => x.cos(),
        3 => x.sigmoid(),
        4 => x.erf(),
        5 => x.tanh().exp(),
        6 => (x * x + 1.0).sqrt(),
        7 => (x * x).log1p(),
        8 => (x * x + 1.0).recip(),
        9 => x.tanh().expm1(),
        10 => (x * x + 0.5).log(),
        11 => -x,
        12 => (x * x + 1.0).pow(-0.75),
        13 => nn::softplus(x),
        14 => x * 0.5 + 0.25,
        _ => special(dice, x.tanh()),
    }
}

/// Less common smooth functions of numbers in −1..1.
fn special(dice: &mut Dice, x: Tensor) -> Tensor {
    match dice.below(9) {
        0 => x.erfc(),
        1 => x.atan(),
        2 => (x + 2.5).ln_gamma(),
        3 => (x + 2.5).digamma(),
        4 => (x + 2.5).polygamma(1 + dice.below(2) as u32),
        5 => nn::atan2(x, x * x + 0.5),
        6 => nn::asin(x * 0.7) + nn::acos(x * 0.6),
        7 => solved(x),
        _ => nn::gelu(x),
    }
}

/// The solution of a system of equations with a positive definite matrix of the numbers of x.
fn solved(x: Tensor) -> Tensor {
    let [.., m, n] = x.shape()[..] else { return x.atan() };
    if !(1..=12).contains(&n) || m == 0 || x.len() > 400 {
        return x.erfc();
    }
    let b = x.t();
    let gram = b.matmul(x) * (1.0 / m as f64);
    let a = gram + gram.iota_like(gram.rank() - 2).equal(gram.iota_like(gram.rank() - 1));
    let l = a.cholesky();
    l.triangular_solve(l.triangular_solve(b, true, false), true, true).t()
}

/// Elements in other places.
pub(crate) fn moved(dice: &mut Dice, x: Tensor) -> Tensor {
    let (shape, rank) = (x.shape(), x.rank());
    let axis = dice.below(rank);
    if rank == 0 {
        return x.broadcast([], [1 + dice.below(4)]);
    }
    match dice.below(9) {
        0 => x.reshape([x.len()]),
        1 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            for i in 0..rank {
                perm.swap(i, dice.below(rank));
            }
            x.transpose(perm)
        }
        2 => {
            let start = dice.below(shape[axis]);
            let stop = start + 1 + dice.below(shape[axis] - start);
            x.slice_step(axis, start, stop, 1 + dice.below(2))
        }
        3 => x.pad(axis, dice.below(3), dice.below(3)),
        4 => x.reverse([axis]),
        5 => x.concat(&[x * if x.dtype().is_float() { 0.5 } else { 3.0 }], axis),
        6 if rank < 4 => {
            let mut to = shape.clone();
            let place = dice.below(rank + 1);
            to.insert(place, 1 + dice.below(4));
            x.broadcast((0..=rank).filter(|&a| a != place).collect::<Vec<_>>(), to)
        }
        7 if rank >= 2 => {
            let merged: usize = shape[rank - 2..].iter().product();
            x.reshape([&shape[..rank - 2], &[merged]].concat())
        }
        _ => {
            let mut interior = vec![0; rank];
            interior[axis] = dice.below(2);
            x.pad_all(vec![0; rank], vec![0; rank], interior)
        }
    }
}

fn reduced(dice: &mut Dice, x: Tensor) -> Tensor {
    let axes: Vec<usize> = (0..x.rank()).filter(|_| dice.below(2) == 0).collect();
    // A long sum would be large, and the sine or exponential of it would show its last bits.
    let count: usize = axes.iter().map(|&a| x.dim(a)).product();
    if dice.below(2) == 0 && count < 100 { x.sum(axes) * 0.3 } else { x.mean(axes) }
}

fn combined(dice: &mut Dice, size: Size, a: Tensor, b: Tensor) -> Tensor {
    if !fits(a, b, size.elements + 1000) {
        return smooth(dice, a);
    }
    match dice.below(5) {
        0 => a + b,
        1 => a - b,
        2 => a * b,
        3 => a / (b * b + 1.0),
        _ => a * 0.7 + b * 0.3,
    }
}

fn multiplied(dice: &mut Dice, size: Size, a: Tensor, b: Tensor) -> Tensor {
    let (p, q) = (a.shape(), b.shape());
    let pairs: Vec<(usize, usize)> =
        (0..p.len()).flat_map(|i| (0..q.len()).map(move |j| (i, j))).filter(|&(i, j)| p[i] == q[j]).collect();
    if pairs.is_empty() || a.len() * b.len() > size.products {
        return smooth(dice, a);
    }
    let (i, j) = dice.pick(&pairs);
    let mut dims = DotDims { lhs_contract: vec![i], rhs_contract: vec![j], ..Default::default() };
    let rest: Vec<(usize, usize)> = pairs.iter().copied().filter(|&(k, l)| k != i && l != j).collect();
    if !rest.is_empty() {
        let (k, l) = dice.pick(&rest);
        match dice.below(3) {
            0 => (dims.lhs_batch, dims.rhs_batch) = (vec![k], vec![l]),
            1 => {
                dims.lhs_contract.push(k);
                dims.rhs_contract.push(l);
            }
            _ => {}
        }
    }
    // As with sums: of a long one only the mean stays moderate.
    let count: usize = dims.lhs_contract.iter().map(|&axis| p[axis]).product();
    a.dot(b, dims) * if count < 100 { 0.4 } else { 4.0 / count as f64 }
}

fn normalised(dice: &mut Dice, x: Tensor) -> Tensor {
    if x.rank() == 0 || x.is_empty() {
        return x.tanh();
    }
    match dice.below(4) {
        0 => nn::softmax(x, dice.below(x.rank())),
        1 => nn::log_softmax(x, x.rank() - 1),
        2 => nn::logsumexp(x, x.rank() - 1),
        _ => {
            let last = [x.rank() - 1];
            let centred = x - x.mean(last).unsqueeze(last);
            centred / ((centred * centred).mean(last).unsqueeze(last) + 0.3).sqrt()
        }
    }
}

/// Operations with jumps, used on inputs only: rounding must not decide which side of a jump a value is on.
fn jumpy(dice: &mut Dice, x: Tensor, other: Tensor, indices: Tensor) -> Tensor {
    match dice.below(8) {
        0 => nn::relu(x),
        1 => x.abs(),
        2 => x.clamp(-0.4, 0.6),
        3 => x.max([x.rank() - 1]),
        4 => x.maximum(other * 0.5),
        5 => x.less(0.1).select(x * x, x.sin()),
        6 => x.take(indices),
        _ => x.binary(BinaryOp::Min, other),
    }
}

fn pooled(dice: &mut Dice, image: Tensor) -> Tensor {
    let dims = WindowDims { size: [2, 3], stride: [1 + dice.below(2), 2], padding: [(1, 0), (0, 2)] };
    let (h, w) = (image.dim(2), image.dim(3));
    let index = image.stop_gradient().window_argmax(dims);
    let rows = image.dim(0) * image.dim(1);
    let places = index.dim(2) * index.dim(3);
    image.reshape([rows, h * w]).gather(index.reshape([rows, places]), 1).reshape(index.shape())
}

fn convolved(dice: &mut Dice, image: Tensor, kernel: Tensor) -> Tensor {
    let dims = ConvDims {
        stride: [1 + dice.below(2), 1 + dice.below(2)],
        padding: [(2, dice.below(3) as i64), (dice.below(3) as i64 - 1, 3)],
        image_dilation: [1, 1 + dice.below(2)],
        kernel_dilation: [1 + dice.below(2), 1],
        groups: 1,
    };
    image.conv(kernel, dims) * 0.3
}

impl Differentiable {
    /// Builds the program of this seed on `g`.
    pub fn new(seed: u64, g: &Graph, dtype: DType, size: impl Fn(&mut Dice) -> Size) -> Result<Self> {
        let mut dice = Dice::new(seed);
        let size = size(&mut dice);
        let mut inputs = vec![];
        let mut input = |dice: &mut Dice, name: &str, shape: Vec<usize>| -> Result<Tensor> {
            let tensor = g.input(name, &shape, dtype);
            inputs.push((tensor, name.to_string(), dice.array(&shape, dtype)?));
            Ok(tensor)
        };
        let [a, b, c] = size.lengths;
        let x = input(&mut dice, "x", vec![a, c])?;
        let y = input(&mut dice, "y", vec![b, c])?;
        let z = input(&mut dice, "z", vec![a, b, c])?;
        let s = input(&mut dice, "s", vec![])?;
        let image = input(&mut dice, "image", vec![2, 3, 5, 4])?;
        let kernel = input(&mut dice, "kernel", vec![2, 3, 2, 2])?;
        let count = 1 + dice.below(6);
        let indices = g.input("indices", [count], DType::I32);
        inputs.push((indices, "indices".into(), dice.indices(&[count], a)?));

        let mut pool = vec![x, y, z, s, x.transpose([1, 0]), z.slice(1, 0, 1)];
        let given = pool.len();
        for _ in 0..4 + dice.below(size.operations) {
            let (p, q) = (dice.pick(&pool), dice.pick(&pool));
            let made = match dice.below(14) {
                0..=2 => smooth(&mut dice, p),
                3..=5 => combined(&mut dice, size, p, q),
                6 => reduced(&mut dice, p),
                7 | 8 => moved(&mut dice, p),
                9 => multiplied(&mut dice, size, p, q),
                10 => normalised(&mut dice, p),
                11 => jumpy(&mut dice, x, x.reverse([1]), indices),
                12 if dice.below(2) == 0 => convolved(&mut dice, image.tanh(), kernel),
                12 => pooled(&mut dice, image),
                // Along short axes only: the reference adds each running sum up again.
                _ if p.rank() > 0 && sized(p, 64) => p.cumsum_from(dice.below(p.rank()), dice.below(2) == 0) * 0.3,
                _ => smooth(&mut dice, p),
            };
            let made = made.check()?;
            if !made.is_empty() && made.len() < size.elements {
                pool.push(made);
            }
        }
        let loss = pool[given..].iter().map(|t| t.sin().mean_all()).reduce(|a, b| a + b).unwrap_or(s);
        let mut results = vec![loss];
        let variables = vec![x, y, z, s, image, kernel];
        let first = gradient(loss, &variables)?;
        results.extend(first.iter().flatten());
        if dice.below(2) == 0 {
            let (slopes, v): (Vec<Tensor>, Vec<Tensor>) =
                first.iter().zip(&variables).filter_map(|(d, x)| Some(((*d)?, x.cos()))).unzip();
            results.extend(vjp(&slopes, &v, &variables)?.iter().flatten());
        }
        let carry = (dice.below(2) == 0).then(|| (x, first[0].map_or(x * 0.9, |d| x - d * 0.1)));
        Ok(Differentiable { inputs, loss, variables, results, carry })
    }
}

/// The program of a [`Differentiable`] of this seed on `g`: its results as outputs, in one to three steps.
pub fn random_program(seed: u64, g: &Graph, dtype: DType, size: impl Fn(&mut Dice) -> Size) -> Result<Case> {
    let made = Differentiable::new(seed, g, dtype, size)?;
    let mut builder = Program::builder(g).outputs("result ", made.results.iter().copied());
    if let Some((input, next)) = made.carry {
        builder = builder.carry(input, next);
    }
    for (tensor, _, _) in &made.inputs {
        builder = builder.keep_input(*tensor);
    }
    let results = made.results.len() + made.carry.iter().len();
    Ok(Case {
        name: format!("random program {seed} in {dtype}"),
        program: builder.build()?,
        inputs: made.inputs.into_iter().map(|(_, name, value)| (name, value)).collect(),
        steps: 1 + (seed % 3) as u32,
        tolerances: vec![tolerance(dtype); results],
    })
}
