//! A program for every primitive, on ordinary shapes, on axes of length one, on nothing and on scalars.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{Array, BinaryOp, ConvDims, DType, DotDims, Graph, RandomKind, Result, Tensor, UnaryOp, WindowDims};

/// A case under construction, and the type of its floats.
struct Making {
    case: CaseBuilder,
    dtype: DType,
    inputs: usize,
}

impl Making {
    fn input(&mut self, value: Array) -> Tensor {
        self.inputs += 1;
        self.case.given(format!("input {}", self.inputs), value)
    }

    /// Numbers in −1..1.
    fn floats(&mut self, shape: &[usize]) -> Result<Tensor> {
        let value = self.case.dice.array(shape, self.dtype)?;
        Ok(self.input(value))
    }

    /// Whole numbers in 0..limit.
    fn indices(&mut self, shape: &[usize], limit: usize) -> Result<Tensor> {
        let value = self.case.dice.indices(shape, limit)?;
        Ok(self.input(value))
    }

    /// A result whose bits are determined.
    fn exact(&mut self, output: Tensor) {
        self.case.output(output, 0.0);
    }

    /// A result that may round otherwise than the reference's.
    fn near(&mut self, output: Tensor) {
        self.case.output(output, tolerance(self.dtype));
    }
}

type Make = fn(&mut Making) -> Result<()>;

/// A program for every primitive, with floats of this type.
///
/// ```
/// use bilevel_graph::{DType, Reference, conformance};
/// for case in conformance::primitives(DType::F32)? {
///     case.check(&Reference)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn primitives(dtype: DType) -> Result<Vec<Case>> {
    let list: [(&str, Make); 20] = [
        ("constants and indices along an axis", sources),
        ("random draws", draws),
        ("functions of one number", unary),
        ("functions of two numbers", binary),
        ("whole numbers", integers),
        ("choices and conversions", choices),
        ("shapes", shapes),
        ("slices and paddings", slices),
        ("concatenations and reversals", joins),
        ("reductions", reductions),
        ("the first largest", argmax),
        ("products", products),
        ("convolutions", convolutions),
        ("gathers and scatters", gathers),
        ("windows", windows),
        ("running sums", running_sums),
        ("sorting and segment maxima", sorting),
        ("factorisations", factorisations),
        ("rows and columns of many lengths", lengths),
        ("larger products, convolutions and scatters", larger),
    ];
    let mut cases = vec![];
    for (number, (name, make)) in list.into_iter().enumerate() {
        // As written: no rewriting may take a primitive out of its case.
        let case = CaseBuilder::on(Graph::without_simplification(), number as u64);
        let mut making = Making { case, dtype, inputs: 0 };
        make(&mut making)?;
        cases.push(making.case.build(format!("{name} in {dtype}"), 2)?);
    }
    Ok(cases)
}

/// Shapes every elementwise primitive is tried on: long enough for several vectors, short, nothing, one number.
const SHAPES: [&[usize]; 6] = [&[7, 13], &[3, 1, 2], &[1], &[0, 4], &[2, 0], &[]];

fn sources(m: &mut Making) -> Result<()> {
    for shape in SHAPES {
        for dtype in [m.dtype, DType::I32] {
            m.exact(m.case.g.constant(-3.0, shape, dtype));
            for axis in 0..shape.len() {
                m.exact(m.case.g.iota(shape, axis, dtype));
            }
        }
    }
    m.exact(m.case.g.step());
    Ok(())
}

fn draws(m: &mut Making) -> Result<()> {
    let key = m.indices(&[2], 1 << 30)?;
    for (stream, shape) in SHAPES.iter().enumerate() {
        for counter in [m.case.g.step(), m.case.g.scalar(5.0, DType::I32)] {
            let stream = stream as u32;
            m.exact(key.random(counter, RandomKind::Normal, stream, shape, m.dtype));
            m.exact(key.random(counter, RandomKind::Uniform, stream, shape, m.dtype));
            m.exact(key.random(counter, RandomKind::Bits, stream, shape, DType::I32));
        }
    }
    Ok(())
}

/// Both zeros, both infinities, NaN and one: the first of the edges, and enough of them for every pair.
const CORNERS: usize = 6;

/// Numbers at which functions have their edges.
const EDGES: [f64; 18] = [
    0.0,
    -0.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.5,
    1e-3,
    -1e-3,
    1e-20,
    7.0,
    -7.0,
    20.0,
    -20.0,
];

fn edges(m: &mut Making) -> Result<Tensor> {
    Ok(m.input(Array::from_values([EDGES.len()], &EDGES, m.dtype)?))
}

/// Every pair of edges as two tensors, and every pair of corners as two scalars: an executor may compute single numbers in
/// another way.
fn edge_pairs(m: &mut Making) -> Result<Vec<(Tensor, Tensor)>> {
    let edges = edges(m)?;
    let n = EDGES.len();
    let mut pairs = vec![(edges.broadcast([0], [n, n]), edges.broadcast([1], [n, n]))];
    for i in 0..CORNERS {
        pairs.extend((0..CORNERS).map(|j| (edges.index(0, i), edges.index(0, j))));
    }
    Ok(pairs)
}

fn unary(m: &mut Making) -> Result<()> {
    use UnaryOp::{Abs, Floor, Neg, Recip, Sign, Sqrt};
    let edges = edges(m)?;
    for op in UnaryOp::ALL {
        if matches!(op, Neg | Abs | Sign | Floor | Recip | Sqrt) {
            m.exact(edges.unary(op));
            (0..EDGES.len()).for_each(|i| m.exact(edges.index(0, i).unary(op)));
        } else {
            // One number after another, because the tolerance is relative to the largest of an array.
            let all = edges.unary(op);
            (0..EDGES.len()).for_each(|i| m.near(all.slice(0, i, i + 1)));
            (0..EDGES.len()).for_each(|i| m.near(edges.index(0, i).unary(op)));
        }
    }
    for shape in SHAPES {
        let x = m.floats(shape)?;
        for op in UnaryOp::ALL {
            match op {
                Neg | Abs | Sign | Floor | Recip => m.exact(x.unary(op)),
                Sqrt => m.exact(x.abs().unary(op)),
                _ => m.near((x * x + 0.5).unary(op)),
            }
        }
    }
    Ok(())
}

fn binary(m: &mut Making) -> Result<()> {
    let mut pairs = edge_pairs(m)?;
    let edge_pairs = pairs.len();
    for shape in SHAPES {
        pairs.push((m.floats(shape)?, m.floats(shape)?));
    }
    for (number, (a, b)) in pairs.into_iter().enumerate() {
        for op in BinaryOp::ALL {
            match op {
                // The edges of a power are tested with the functions themselves. A polygamma has whole orders.
                BinaryOp::Pow | BinaryOp::Polygamma if number < edge_pairs => {}
                BinaryOp::Pow => m.near((a * a + 0.5).binary(op, b)),
                BinaryOp::Polygamma => m.near((b * 4.0).abs().floor().binary(op, a * a + 0.5)),
                _ => m.exact(a.binary(op, b)),
            }
        }
    }
    let edges = edges(m)?;
    for order in [-1.0, 0.0, 0.5, 1.0, 2.0, 5.0] {
        // One number after another, because the tolerance is relative to the largest of an array.
        let orders = edges.constant_like(order, edges.shape());
        let all = orders.binary(BinaryOp::Polygamma, edges);
        (0..EDGES.len()).for_each(|i| m.near(all.slice(0, i, i + 1)));
    }
    Ok(())
}

fn integers(m: &mut Making) -> Result<()> {
    let edge = m.input(Array::from_i32([6], vec![0, 1, -1, 7, i32::MAX, i32::MIN])?);
    let mut pairs = vec![(edge.broadcast([0], [6, 6]), edge.broadcast([1], [6, 6]))];
    for shape in SHAPES {
        pairs.push((m.indices(shape, 5)?, m.indices(shape, 5)?));
    }
    for (a, b) in pairs {
        for op in BinaryOp::ALL {
            let result = a.binary(op, b);
            if result.check().is_ok() {
                m.exact(result);
            }
        }
        for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign] {
            m.exact(a.unary(op));
        }
    }
    Ok(())
}

fn choices(m: &mut Making) -> Result<()> {
    for (mask, b) in edge_pairs(m)? {
        m.exact(mask.select(b, -b));
        m.exact(mask.less(b).select(mask, b));
        m.exact(mask.clamp(-1.0, 0.0));
    }
    let edges = edges(m)?;
    for to in [DType::I32, DType::F32, DType::F64] {
        m.exact(edges.convert(to));
        m.exact((edges * 1e9).convert(to));
        (0..CORNERS).for_each(|i| m.exact(edges.index(0, i).convert(to)));
    }
    for shape in SHAPES {
        let (a, b, i) = (m.floats(shape)?, m.floats(shape)?, m.indices(shape, 9)?);
        m.exact(a.less(b).select(a, b));
        m.exact(i.less(4.0).select(i, i * 3.0));
        m.exact((a * 7.5).convert(DType::I32));
        m.exact(i.convert(m.dtype) + a);
        m.exact(i.check_index(9));
        m.exact(a.stop_gradient());
    }
    Ok(())
}

fn shapes(m: &mut Making) -> Result<()> {
    let x = m.floats(&[3, 4, 5])?;
    m.exact(x.reshape([5, 12]));
    m.exact(x.transpose([2, 0, 1]).reshape([60]));
    // The places of a kernel before and after its channels.
    let (first, last) = (m.floats(&[3, 40, 3, 3])?, m.floats(&[3, 3, 3, 70])?);
    m.exact(first.transpose([0, 2, 3, 1]));
    m.exact(last.transpose([0, 3, 1, 2]));
    m.exact(x.transpose([1, 2, 0]).sin().stop_gradient().floor());
    m.exact(x.broadcast([0, 2, 3], [3, 2, 4, 5]));
    m.exact(x.transpose([2, 1, 0]).broadcast([1, 2, 3], [2, 5, 4, 3]).reshape([10, 12]));
    let nothing = m.floats(&[0, 3])?;
    m.exact(nothing.reshape([3, 0, 2]));
    m.exact(nothing.transpose([1, 0]));
    m.exact(nothing.broadcast([1, 2], [4, 0, 3]));
    let scalar = m.floats(&[])?;
    m.exact(scalar.reshape([1, 1]));
    m.exact(scalar.broadcast([], [3, 2]));
    let edges = edges(m)?.reshape([3, 6]);
    m.exact(edges.t());
    m.exact(edges.t().broadcast([0, 2], [6, 2, 3]));
    Ok(())
}

fn slices(m: &mut Making) -> Result<()> {
    let x = m.floats(&[6, 7])?;
    m.exact(x.slice(0, 2, 5));
    m.exact(x.slice_step(1, 1, 7, 3));
    m.exact(x.slice(0, 3, 3));
    m.exact(x.slice_all(vec![1, 2], vec![6, 7], vec![2, 2]).transpose([1, 0]));
    m.exact(x.pad(0, 2, 1));
    m.exact(x.pad_all(vec![0, 1], vec![2, 0], vec![1, 3]));
    m.exact(x.slice(1, 4, 4).pad(1, 1, 2));
    m.exact(x.slice_step(0, 0, 6, 2).pad_all(vec![0, 0], vec![1, 0], vec![1, 0]) + x);
    let edges = edges(m)?;
    m.exact(edges.slice_step(0, 1, EDGES.len(), 3));
    m.exact(edges.pad_all(vec![1], vec![2], vec![1]));
    // −0 + 0 is 0 at padded zeros, and −0 stays elsewhere.
    m.exact(edges.pad(0, 3, 0) + edges.pad(0, 0, 3));
    Ok(())
}

fn joins(m: &mut Making) -> Result<()> {
    let (x, y) = (m.floats(&[2, 5])?, m.floats(&[3, 5])?);
    m.exact(x.concat(&[y, x * 2.0], 0));
    m.exact(x.concat(&[x.slice(1, 0, 0), x.reverse([0])], 1));
    m.exact(x.reverse([0, 1]).concat(&[x.t().reshape([2, 5])], 1));
    m.exact(y.reverse([1]).reverse([0]));
    m.exact(y.slice(0, 0, 0).reverse([0, 1]));
    let edges = edges(m)?;
    m.exact(edges.concat(&[edges.reverse([0]), -edges], 0));
    Ok(())
}

fn reductions(m: &mut Making) -> Result<()> {
    let (x, i) = (m.floats(&[6, 33, 5])?, m.indices(&[6, 33, 5], 100)?);
    for axes in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2], &[]] {
        m.near(x.sum(axes));
        m.exact(x.max(axes));
        m.exact(i.sum(axes));
        m.exact(i.max(axes));
    }
    m.near(x.transpose([2, 0, 1]).sum([1]));
    // The sum of nothing is 0, the largest of nothing the least there is.
    let nothing = m.floats(&[2, 0])?;
    m.exact(nothing.sum([1]));
    m.exact(nothing.max([1]));
    m.exact(nothing.sum([0]));
    // Every pair of numbers except both zeros, whose maximum is not determined.
    let edges = edges(m)?;
    let n = EDGES.len() - 1;
    for kept in [edges.slice(0, 1, n + 1), edges.slice(0, 0, 1).concat(&[edges.slice(0, 2, n + 1)], 0)] {
        let pairs = kept.broadcast([1], [n, n, 2]).slice(2, 0, 1).concat(&[kept.broadcast([0], [n, n, 1])], 2);
        m.exact(pairs.max([2]));
        m.exact(pairs.transpose([2, 0, 1]).max([0]));
    }
    Ok(())
}

fn argmax(m: &mut Making) -> Result<()> {
    let (x, i) = (m.floats(&[4, 9, 3])?, m.indices(&[4, 9, 3], 3)?);
    for axis in 0..3 {
        m.exact(x.argmax(axis));
        // Few different numbers: the first of equal ones counts.
        m.exact(i.argmax(axis));
        m.exact((x * 2.0).floor().argmax(axis));
    }
    m.exact(x.slice(0, 0, 0).argmax(1));
    // The first of equal numbers, with 0 and −0 equal; a NaN is larger than any number.
    for (a, b) in edge_pairs(m)? {
        let last = a.rank();
        let pairs = a.unsqueeze([last]).concat(&[b.unsqueeze([last])], last);
        m.exact(pairs.argmax(last));
        m.exact(pairs.argmax(0));
    }
    Ok(())
}

/// An executor may go about rows of different lengths in different ways: every way is to be tried.
fn lengths(m: &mut Making) -> Result<()> {
    for length in [2, 7, 31, 33, 100, 250, 300, 500, 1000, 1500, 3000, 5000, 9000] {
        let x = m.floats(&[3, length])?;
        m.exact(x.max([1]));
        m.exact(x.argmax(1));
        m.near(x.sum([1]));
        m.near(x.sum([0]));
        let e = (x - x.max([1]).broadcast([0], [3, length])).exp();
        m.near(e / e.sum([1]).broadcast([0], [3, length]));
        m.near((x.t() * 2.0).sum([0]));
    }
    Ok(())
}

/// Sizes at which an executor may hand its work to others, or cut it into parts.
fn larger(m: &mut Making) -> Result<()> {
    let (a, b) = (m.floats(&[40, 70])?, m.floats(&[70, 36])?);
    m.near(a.matmul(b));
    m.near(b.t().matmul(a.t()).t());
    m.near(a.slice_step(1, 0, 70, 2).matmul(b.slice_step(0, 0, 70, 2)));
    // Heads that lie inside rows: batches of two axes.
    let rows = m.floats(&[2, 21, 3, 4, 16])?.transpose([2, 0, 3, 1, 4]);
    let heads = DotDims { lhs_contract: vec![3], rhs_contract: vec![3], lhs_batch: vec![0, 1], rhs_batch: vec![0, 1] };
    let scores = rows.index(0, 0).dot(rows.index(0, 1), heads);
    let mix = DotDims { lhs_contract: vec![3], rhs_contract: vec![2], lhs_batch: vec![0, 1], rhs_batch: vec![0, 1] };
    m.near(scores);
    m.near(scores.dot(rows.index(0, 2), mix).transpose([0, 2, 1, 3]));
    let (image, kernel) = (m.floats(&[3, 8, 11, 9])?, m.floats(&[12, 8, 3, 3])?);
    let plain = ConvDims { padding: [(1, 1); 2], ..ConvDims::default() };
    m.near(image.conv(kernel, plain.clone()));
    m.near(image.conv(kernel, ConvDims { stride: [2, 2], ..plain.clone() }).transpose([0, 2, 3, 1]));
    m.near(image.conv(kernel.slice(1, 0, 4), ConvDims { groups: 2, ..plain.clone() }));
    m.near(image.transpose([1, 0, 2, 3]).conv(kernel.transpose([1, 0, 2, 3]).slice(1, 0, 3), plain));
    let (updates, places) = (m.floats(&[400, 5])?, m.indices(&[400], 60)?);
    m.near(updates.scatter_add(places, 0, 60));
    // Many that meet in few places.
    m.near(updates.scatter_add(places.minimum(2.0), 0, 60));
    Ok(())
}

fn products(m: &mut Making) -> Result<()> {
    let (a, b) = (m.floats(&[6, 17])?, m.floats(&[17, 9])?);
    m.near(a.matmul(b));
    m.near(b.t().matmul(a.t()));
    m.near(a.matmul(a.t()));
    m.near(a.slice(0, 0, 1).matmul(b));
    m.near(a.slice(1, 0, 0).matmul(b.slice(0, 0, 0)));
    let (p, q) = (m.floats(&[3, 4, 5])?, m.floats(&[5, 3, 2])?);
    let dims = |lhs_contract: &[usize], rhs_contract: &[usize], lhs_batch: &[usize], rhs_batch: &[usize]| DotDims {
        lhs_contract: lhs_contract.to_vec(),
        rhs_contract: rhs_contract.to_vec(),
        lhs_batch: lhs_batch.to_vec(),
        rhs_batch: rhs_batch.to_vec(),
    };
    m.near(p.dot(q, dims(&[2], &[0], &[0], &[1])));
    m.near(p.dot(q, dims(&[0, 2], &[1, 0], &[], &[])));
    m.near(p.dot(q, dims(&[], &[], &[], &[])));
    m.near(p.dot(p, dims(&[], &[], &[0, 1], &[0, 1])));
    Ok(())
}

fn convolutions(m: &mut Making) -> Result<()> {
    let (image, kernel) = (m.floats(&[2, 4, 7, 6])?, m.floats(&[6, 4, 3, 2])?);
    m.near(image.conv(kernel, ConvDims::default()));
    m.near(image.conv(kernel, ConvDims { stride: [2, 3], padding: [(1, 2), (2, 0)], ..Default::default() }));
    m.near(image.conv(kernel, ConvDims { padding: [(-1, 1), (3, -2)], ..Default::default() }));
    m.near(image.conv(kernel, ConvDims { image_dilation: [2, 1], kernel_dilation: [1, 2], ..Default::default() }));
    let grouped = kernel.slice(1, 0, 2);
    m.near(image.conv(grouped, ConvDims { groups: 2, padding: [(1, 1), (0, 1)], ..Default::default() }));
    m.near(image.conv(kernel.slice(1, 0, 1).slice(0, 0, 4), ConvDims { groups: 4, ..Default::default() }));
    Ok(())
}

fn gathers(m: &mut Making) -> Result<()> {
    let (x, at) = (m.floats(&[5, 3])?, m.indices(&[4, 2], 5)?);
    m.exact(x.take(at));
    m.exact(x.t().gather(m.case.g.iota([3, 2], 1, DType::I32), 1));
    m.exact(x.take(at.slice(0, 0, 0)));
    let (updates, rows) = (m.floats(&[7, 3])?, m.indices(&[7], 4)?);
    // Rows that meet are added.
    m.near(updates.scatter_add(rows, 0, 4));
    let (batched, places) = (m.floats(&[2, 6, 3])?, m.indices(&[2, 6], 5)?);
    m.near(batched.scatter_add(places, 1, 5));
    m.exact(batched.gather(places.minimum(4.0), 1));
    let edges = edges(m)?;
    let all = m.case.g.iota([EDGES.len()], 0, DType::I32);
    m.exact(edges.take(all.reverse([0])));
    Ok(())
}

fn windows(m: &mut Making) -> Result<()> {
    let image = m.floats(&[2, 3, 6, 5])?;
    m.exact(image.window_argmax(WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 0), (0, 1)] }));
    m.exact(image.window_argmax(WindowDims { size: [3, 2], stride: [1, 2], padding: [(1, 1), (1, 0)] }));
    // Equal numbers: the first counts.
    m.exact((image * 2.0).floor().window_argmax(WindowDims { size: [3, 3], stride: [1, 1], padding: [(0, 0); 2] }));
    let edges = edges(m)?.reshape([1, 1, 3, 6]);
    m.exact(edges.window_argmax(WindowDims { size: [2, 2], stride: [1, 1], padding: [(0, 0); 2] }));
    m.exact(edges.window_argmax(WindowDims { size: [1, 2], stride: [1, 1], padding: [(0, 0), (1, 1)] }));
    Ok(())
}

fn running_sums(m: &mut Making) -> Result<()> {
    let (x, i) = (m.floats(&[3, 21, 2])?, m.indices(&[3, 21, 2], 50)?);
    for axis in 0..3 {
        for reverse in [false, true] {
            m.near(x.cumsum_from(axis, reverse));
            m.exact(i.cumsum_from(axis, reverse));
        }
    }
    m.exact(x.slice(1, 0, 0).cumsum(1));
    Ok(())
}

fn sorting(m: &mut Making) -> Result<()> {
    let (x, i) = (m.floats(&[4, 9, 3])?, m.indices(&[4, 9, 3], 3)?);
    for axis in 0..3 {
        m.exact(x.argsort(axis));
        // Few different numbers: equal ones keep their order.
        m.exact(i.argsort(axis));
        m.exact((x * 2.0).floor().sort(axis));
        m.exact(i.sort(axis));
    }
    let (long, one) = (m.floats(&[3, 700])?, m.floats(&[1])?);
    m.exact(long.argsort(1));
    m.exact(one.argsort(0));
    m.exact(x.slice(1, 0, 0).argsort(1));
    m.exact(x.slice(0, 0, 0).sort(1));
    let edges = edges(m)?;
    m.exact(edges.argsort(0));
    m.exact(edges.reverse([0]).sort(0));
    let (updates, places) = (m.floats(&[40, 3])?, m.indices(&[40], 7)?);
    for (updates, least) in [(updates, 0.0), ((updates * 3.0).floor(), 3.0)] {
        m.exact(updates.scatter_max(places.maximum(least), 0, 9));
        m.exact(updates.reshape([2, 20, 3]).scatter_max(places.reshape([2, 20]), 1, 8));
    }
    m.exact(places.scatter_max(places.minimum(4.0), 0, 6));
    m.exact(edges.scatter_max(m.case.g.iota([EDGES.len()], 0, DType::I32) * 0.0, 0, 2));
    m.exact(updates.slice(0, 0, 0).scatter_max(places.slice(0, 0, 0), 0, 3));
    Ok(())
}

fn factorisations(m: &mut Making) -> Result<()> {
    for n in [1, 2, 5, 33] {
        let (x, b) = (m.floats(&[3, n, n])?, m.floats(&[3, n, 4])?);
        // With a large diagonal, and so positive definite and far from singular: rounding is not amplified.
        let factor = x * (0.5 / n as f64) + x.iota_like(1).equal(x.iota_like(2));
        m.near(factor.cholesky());
        // Only one triangle is read.
        let upper = x.iota_like(1).less(x.iota_like(2));
        m.near(upper.select(f64::NAN, factor).cholesky());
        for lower in [false, true] {
            for transposed in [false, true] {
                m.near(factor.triangular_solve(b, lower, transposed));
            }
        }
        m.near(factor.index(0, 1).triangular_solve(b.index(0, 1).slice(1, 0, 1), true, false));
        m.exact(factor.triangular_solve(b.slice(2, 0, 0), true, false));
    }
    // NaN from the column on at which a matrix is not positive definite.
    let edge = m.input(Array::from_values([3, 3], &[4.0, 0.0, 0.0, 2.0, 1.0, 0.0, 2.0, 3.0, 9.0], m.dtype)?);
    m.exact(edge.cholesky());
    m.exact((-edge).cholesky());
    m.exact(edge.slice(0, 0, 0).slice(1, 0, 0).cholesky());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, ReduceOp};
    use std::collections::BTreeSet;

    /// A word for each primitive; a new one is missing here until it is added, and then below until it has a case.
    fn word(op: &Op) -> String {
        match op {
            Op::Input(_) => "input".into(),
            Op::Constant(_) => "constant".into(),
            Op::Iota(_) => "iota".into(),
            Op::Random(kind, _) => format!("{kind:?}"),
            Op::Unary(op) => format!("{op:?}"),
            Op::Binary(op) => format!("{op:?}"),
            Op::Select => "select".into(),
            Op::Convert(to) => format!("convert to {to}"),
            Op::CheckIndex(_) => "check index".into(),
            Op::StopGradient => "stop gradient".into(),
            Op::Custom(_) => "custom".into(),
            Op::Reshape => "reshape".into(),
            Op::Transpose(_) => "transpose".into(),
            Op::Broadcast(_) => "broadcast".into(),
            Op::Slice { .. } => "slice".into(),
            Op::Pad { .. } => "pad".into(),
            Op::Concat(_) => "concat".into(),
            Op::Reverse(_) => "reverse".into(),
            Op::Reduce(ReduceOp::Sum, _) => "sum".into(),
            Op::Reduce(ReduceOp::Max, _) => "max".into(),
            Op::ArgMax(_) => "argmax".into(),
            Op::Dot(..) => "dot".into(),
            Op::Conv(..) => "conv".into(),
            Op::Gather { .. } => "gather".into(),
            Op::ScatterAdd { .. } => "scatter add".into(),
            Op::WindowArgMax(_) => "window argmax".into(),
            Op::Block(op) => op.name().into(),
            Op::CumSum { .. } => "cumsum".into(),
            Op::Host(_) => "function of the host".into(),
            Op::Collective(collective) => collective.name().into(),
        }
    }

    #[test]
    fn every_primitive_has_a_case() {
        let cases = primitives(DType::F32).unwrap();
        let found: BTreeSet<String> =
            cases.iter().flat_map(|case| case.program.nodes.iter().map(|node| word(&node.op))).collect();
        // Three draws, three conversions, two reductions, four on blocks and twenty others in addition to the
        // elementwise ones. Custom nodes are in no program.
        assert_eq!(found.len(), UnaryOp::COUNT + BinaryOp::COUNT + 3 + 3 + 2 + 4 + 20, "{found:?}");
    }
}
