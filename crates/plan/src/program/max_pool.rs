//! Decomposition of max pools with disjoint windows into layout-agnostic operations.
//!
//! A pool finds the index of the largest element of every window and gathers it, and its gradient scatters to it, all
//! in planes \[n·c, h·w\]. Here an element is identified by its index i within its window, and all elements with one
//! index are a slice xᵢ of the image:
//!
//!   chosen = i of the first largest xᵢ,    gathered = x_chosen,    scattered = updates if i = chosen, else 0
//!
//! This is elementwise on images in any layout. A slice of a sum is the sum of slices, so that a preceding bias is
//! added when a window is read.

use crate::ir::rewrite::{Rewriter, without_dead};
use bilevel_graph::{BinaryOp, DType, Meta, Op, Program, ProgramNode, WindowDims};
use std::collections::HashMap;

/// The maximum number of elements of a window, each of which becomes a slice.
const MAX_WINDOW_ELEMENTS: usize = 16;

/// A pool of the new program.
#[derive(Clone, Copy)]
struct Pool {
    /// The node of the chosen indices, in the type of the image.
    chosen: usize,
    /// The shape of the image, the size of a window, and the number of windows along each axis.
    image: [usize; 4],
    size: [usize; 2],
    count: [usize; 2],
}

impl Pool {
    /// Returns the shape of the pooled image.
    fn pooled(&self) -> [usize; 4] {
        let ([n, c, ..], [oh, ow]) = (self.image, self.count);
        [n, c, oh, ow]
    }
}

/// Returns true if every element of an image is in at most one window, and no window exceeds the image.
pub(crate) fn are_disjoint(windows: &WindowDims) -> bool {
    windows.size == windows.stride && windows.padding == [(0, 0); 2]
}

/// The planes of an image.
fn planes([n, c, h, w]: [usize; 4]) -> [usize; 2] {
    [n * c, h * w]
}

/// Returns true if a program has max pools.
pub(crate) fn has_max_pools(program: &Program) -> bool {
    program.nodes.iter().any(|node| matches!(node.op, Op::WindowArgMax(_)))
}

/// Returns the program with every max pool decomposed; `None` if one has overlapping or padded windows, or does not
/// pool images.
pub(crate) fn elementwise_pools(program: &Program) -> Option<Program> {
    let mut new = Pools { new: Rewriter::new(program), slices: HashMap::new(), pools: HashMap::new() };
    for (id, node) in program.nodes.iter().enumerate() {
        let pool = |new: &Pools, operand: usize| node.inputs.get(operand).and_then(|read| new.pools.get(read)).copied();
        let held = match &node.op {
            Op::WindowArgMax(dims) if pool(&new, 0).is_none() => {
                let image = new.new.at(node.inputs[0]);
                let pool = new.choose(dims, image, &node.meta.shape, node)?;
                new.pools.insert(id, pool);
                pool.chosen
            }
            Op::Reshape => match pool(&new, 0) {
                Some(pool) => {
                    (node.meta.shape == planes(pool.pooled())).then(|| new.pools.insert(id, pool))?;
                    pool.chosen
                }
                None => new.reshaped(new.new.at(node.inputs[0]), &node.meta.shape, node),
            },
            Op::Gather { batch: 1 } if pool(&new, 1).is_some() => {
                let (pool, from) = (pool(&new, 1)?, new.new.at(node.inputs[0]));
                (new.new.nodes[from].meta.shape == planes(pool.image)).then(|| new.gathered(pool, from, node))?
            }
            Op::ScatterAdd { batch: 1, size } if pool(&new, 0).is_some() => {
                let (pool, updates) = (pool(&new, 0)?, new.new.at(node.inputs[1]));
                let plain =
                    new.new.nodes[updates].meta.shape == planes(pool.pooled()) && *size == planes(pool.image)[1];
                plain.then(|| new.scattered(pool, updates, node))?
            }
            // Another operation reads the indices themselves.
            _ if node.inputs.iter().any(|read| new.pools.contains_key(read)) => return None,
            _ => {
                new.new.keep();
                continue;
            }
        };
        // Nothing but a pool can read its indices.
        new.new.hold((!new.pools.contains_key(&id)).then_some(held));
    }
    without_dead(&new.new.finish()?)
}

/// The new program so far.
struct Pools<'a> {
    new: Rewriter<'a, Program>,
    /// The slices of an image, by index within a window.
    slices: HashMap<(usize, usize), usize>,
    /// By old node: the pool whose chosen indices it holds.
    pools: HashMap<usize, Pool>,
}

impl Pools<'_> {
    /// Reshapes a node; undoes a preceding reshape if possible.
    fn reshaped(&mut self, of: usize, shape: &[usize], like: &ProgramNode) -> usize {
        let ProgramNode { op, inputs, meta, .. } = &self.new.nodes[of];
        match op {
            _ if meta.shape == shape => of,
            Op::Reshape if self.new.nodes[inputs[0]].meta.shape == shape => inputs[0],
            _ => self.new.push(Op::Reshape, vec![of], shape, meta.dtype, like),
        }
    }

    /// Adds an elementwise operation on operands of one shape and type.
    fn each(&mut self, op: Op, operands: &[usize], like: &ProgramNode) -> usize {
        let Meta { dtype, shape } = self.new.nodes[operands[0]].meta.clone();
        self.new.push(op, operands.to_vec(), &shape, dtype, like)
    }

    fn binary(&mut self, op: BinaryOp, a: usize, b: usize, like: &ProgramNode) -> usize {
        self.each(Op::Binary(op), &[a, b], like)
    }

    /// Adds a constant of the shape of another node.
    fn constant(&mut self, value: f64, of: usize, like: &ProgramNode) -> usize {
        let Meta { dtype, shape } = self.new.nodes[of].meta.clone();
        self.new.push(Op::Constant(value.to_bits()), vec![], &shape, dtype, like)
    }

    /// Returns the elements with this index within the windows of an image.
    fn slice(&mut self, pool: &Pool, image: usize, number: usize, like: &ProgramNode) -> usize {
        if let Some(&known) = self.slices.get(&(image, number)) {
            return known;
        }
        let ProgramNode { op, inputs, meta, .. } = self.new.nodes[image].clone();
        let slice = match op {
            Op::Binary(BinaryOp::Add) => {
                let [a, b] = [inputs[0], inputs[1]].map(|term| self.slice(pool, term, number, like));
                self.binary(BinaryOp::Add, a, b, like)
            }
            // Constant over a plane.
            Op::Broadcast(ref axes) if axes.iter().all(|&axis| axis < 2) => {
                self.new.push(op, inputs, &pool.pooled(), meta.dtype, like)
            }
            _ => {
                let ([n, c, ..], [kh, kw], [oh, ow]) = (pool.image, pool.size, pool.count);
                let (y, x) = (number / kw, number % kw);
                let start = vec![0, 0, y, x];
                let stop = vec![n, c, y + (oh - 1) * kh + 1, x + (ow - 1) * kw + 1];
                let op = Op::Slice { start, stop, step: vec![1, 1, kh, kw] };
                self.new.push(op, vec![image], &pool.pooled(), meta.dtype, like)
            }
        };
        self.slices.insert((image, number), slice);
        slice
    }

    /// Finds the first largest element in every window of an image; a NaN is the largest.
    fn choose(&mut self, dims: &WindowDims, image: usize, shape: &[usize], like: &ProgramNode) -> Option<Pool> {
        // A stop-gradient does not change values.
        let image = if self.new.nodes[image].op == Op::StopGradient { self.new.nodes[image].inputs[0] } else { image };
        let &[n, c, h, w] = &self.new.nodes[image].meta.shape[..] else { return None };
        let places = dims.size[0] * dims.size[1];
        if !are_disjoint(dims) || places > MAX_WINDOW_ELEMENTS || shape.contains(&0) {
            return None;
        }
        let mut pool = Pool { chosen: image, image: [n, c, h, w], size: dims.size, count: [shape[2], shape[3]] };
        let mut largest = self.slice(&pool, image, 0, like);
        let mut chosen = self.constant(0.0, largest, like);
        for number in 1..places {
            let next = self.slice(&pool, image, number, like);
            let above = self.binary(BinaryOp::Lt, largest, next, like);
            let [was_nan, is_nan] = [largest, next].map(|x| self.binary(BinaryOp::Ne, x, x, like));
            let first_nan = self.binary(BinaryOp::Lt, was_nan, is_nan, like);
            let larger = self.binary(BinaryOp::Max, above, first_nan, like);
            let own = self.constant(number as f64, largest, like);
            chosen = self.each(Op::Select, &[larger, own, chosen], like);
            largest = self.each(Op::Select, &[larger, next, largest], like);
        }
        pool.chosen = chosen;
        Some(pool)
    }

    /// Returns the elements of planes at the chosen positions.
    fn gathered(&mut self, pool: Pool, planes_of: usize, like: &ProgramNode) -> usize {
        let image = self.reshaped(planes_of, &pool.image, like);
        let mut found = self.slice(&pool, image, 0, like);
        for number in 1..pool.size[0] * pool.size[1] {
            let slice = self.slice(&pool, image, number, like);
            let number = self.constant(number as f64, pool.chosen, like);
            let is_chosen = self.binary(BinaryOp::Eq, pool.chosen, number, like);
            let is_chosen = self.converted(is_chosen, like.meta.dtype, like);
            found = self.each(Op::Select, &[is_chosen, slice, found], like);
        }
        self.reshaped(found, &planes(pool.pooled()), like)
    }

    /// Returns planes with the updates at the chosen positions, and zeros elsewhere.
    fn scattered(&mut self, pool: Pool, updates: usize, like: &ProgramNode) -> usize {
        let updates = self.reshaped(updates, &pool.pooled(), like);
        let ([n, c, h, w], [kh, kw], [oh, ow]) = (pool.image, pool.size, pool.count);
        let by_place = [n, c, oh, kh, ow, kw];
        let mut repeated = |of: usize| {
            let dtype = self.new.nodes[of].meta.dtype;
            self.new.push(Op::Broadcast(vec![0, 1, 2, 4]), vec![of], &by_place, dtype, like)
        };
        let (chosen, updates) = (repeated(pool.chosen), repeated(updates));
        let dtype = self.new.nodes[chosen].meta.dtype;
        let [y, x] = [3, 5].map(|axis| self.new.push(Op::Iota(axis), vec![], &by_place, dtype, like));
        let width = self.constant(kw as f64, y, like);
        let above = self.binary(BinaryOp::Mul, y, width, like);
        let number = self.binary(BinaryOp::Add, above, x, like);
        let is_chosen = self.binary(BinaryOp::Eq, chosen, number, like);
        let is_chosen = self.converted(is_chosen, like.meta.dtype, like);
        let zero = self.constant(0.0, updates, like);
        let mut made = self.each(Op::Select, &[is_chosen, updates, zero], like);
        made = self.reshaped(made, &[n, c, oh * kh, ow * kw], like);
        if [oh * kh, ow * kw] != [h, w] {
            let high = vec![0, 0, h - oh * kh, w - ow * kw];
            let pad = Op::Pad { low: vec![0; 4], high, interior: vec![0; 4] };
            made = self.new.push(pad, vec![made], &pool.image, like.meta.dtype, like);
        }
        self.reshaped(made, &planes(pool.image), like)
    }

    /// Converts a node to this type.
    fn converted(&mut self, of: usize, dtype: DType, like: &ProgramNode) -> usize {
        let meta = self.new.nodes[of].meta.clone();
        if meta.dtype == dtype { of } else { self.new.push(Op::Convert(dtype), vec![of], &meta.shape, dtype, like) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::conformance::outputs;
    use bilevel_graph::{Array, Graph, Reference, Tensor, gradient, nn};

    /// Compares a pool, the derivative of a function of it and its second derivative with the undecomposed ones.
    fn agree(values: &[f64], shape: [usize; 4], windows: nn::Pool2d) {
        let g = Graph::new();
        let x = g.input("x", shape, DType::F64);
        let slope = |of: Tensor| gradient(of, &[x]).unwrap()[0].unwrap();
        let first = slope(nn::max_pool2d(x, windows).square().sum_all());
        let second = slope((first * x.cos()).sum_all());
        let builder = Program::builder(&g).output("pooled", nn::max_pool2d(x, windows));
        let program = builder.output("first", first).output("second", second).build().unwrap();
        let new = elementwise_pools(&program).unwrap();
        new.validate().unwrap();
        assert!(new.nodes.iter().all(|node| !matches!(node.op, Op::Gather { .. } | Op::ScatterAdd { .. })));
        let inputs = vec![("x".to_string(), Array::from_f64(shape, values.to_vec()).unwrap())];
        let [old, new] = [&program, &new].map(|program| outputs(&Reference, program, &inputs, 1).unwrap());
        for (old, new) in old.iter().zip(&new) {
            let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(old.to_f64().iter().zip(&new.to_f64()).all(same), "{old:?} {new:?}");
        }
    }

    #[test]
    fn the_first_of_equals_is_chosen_and_a_nan_before_all() {
        let (nan, low) = (f64::NAN, f64::NEG_INFINITY);
        let rows = [[1.0, 1.0, 0.5, 2.0], [0.0, 1.0, 2.0, 2.0], [nan, 3.0, low, low], [5.0, nan, low, low]].concat();
        agree(&rows, [1, 1, 4, 4], nn::Pool2d::of([2, 2]));
        agree(&rows, [1, 2, 4, 2], nn::Pool2d::of([2, 1]));
        agree(&rows, [2, 1, 2, 4], nn::Pool2d::of([1, 3]));
        agree(&[-0.0, 0.0, 0.0, -0.0], [1, 1, 2, 2], nn::Pool2d::of([2, 2]));
    }

    #[test]
    fn a_bias_before_a_pool_is_added_to_slices() {
        let (shape, windows) = ([2, 3, 4, 6], nn::Pool2d::of([2, 3]));
        let g = Graph::new();
        let (x, bias) = (g.input("x", shape, DType::F64), g.input("bias", [3], DType::F64));
        let image = x.sin() + x.cos() + bias.broadcast([1], shape);
        let y = nn::max_pool2d(image, windows);
        let slopes = gradient(y.square().sum_all(), &[x, bias]).unwrap();
        let mut builder = Program::builder(&g).output("pooled", y);
        for (name, slope) in ["x", "bias"].into_iter().zip(slopes) {
            builder = builder.output(name, slope.unwrap());
        }
        let program = builder.build().unwrap();
        let new = elementwise_pools(&program).unwrap();
        let is_whole_sum = |node: &ProgramNode| node.op == Op::Binary(BinaryOp::Add) && node.meta.shape == shape;
        assert_eq!(
            [&program, &new].map(|program| program.nodes.iter().filter(|node| is_whole_sum(node)).count()),
            [2, 0]
        );
        let values = |count: usize| (0..count).map(|i| (i as f64 * 1.7).sin() * 3.0).collect::<Vec<_>>();
        let array = |shape: &[usize]| Array::from_f64(shape, values(shape.iter().product())).unwrap();
        let inputs =
            [("x", array(&shape)), ("bias", array(&[3]))].map(|(name, array)| (name.to_string(), array)).to_vec();
        let [old, new] = [&program, &new].map(|program| outputs(&Reference, program, &inputs, 1).unwrap());
        assert_eq!(old, new, "the same sums in the same order");
    }

    #[test]
    fn places_that_are_padded_shared_or_wanted_by_others_stay_as_they_are() {
        let of = |windows: nn::Pool2d, shown: bool| {
            let g = Graph::new();
            let x = g.input("x", [2, 3, 6, 6], DType::F32);
            let dims = WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 0); 2] };
            let places = x.window_argmax(dims).convert(DType::F32);
            let pooled = nn::max_pool2d(x, windows);
            let output = if shown { pooled + places } else { pooled };
            elementwise_pools(&Program::builder(&g).output("y", output).build().unwrap()).is_some()
        };
        assert!(of(nn::Pool2d::of([2, 2]), false));
        assert!(!of(nn::Pool2d::of([2, 2]), true));
        assert!(!of(nn::Pool2d { stride: [2, 2], ..nn::Pool2d::of([3, 3]) }, false));
        assert!(!of(nn::Pool2d { padding: [1, 1], ..nn::Pool2d::of([2, 2]) }, false));
        assert!(!of(nn::Pool2d::of([5, 5]), false), "windows of more than 16 places");
    }
}
