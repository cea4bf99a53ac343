//! Range analysis: bounds of the elements of nodes, derived from the operations that compute them ([`Bound`]).
//!
//! The amax of biases and gains is computed on purpose: they are short, and known before the step or at its end.

use crate::ir::node::{Elementwise, Kind, Operand};
use crate::lower::Lowering;
use crate::lower::scaled_fp16::range::Bound;
use crate::lower::scaled_fp16::range_patterns::Factors;
use bilevel_graph::{BinaryOp, DType, UnaryOp};

/// The maximum number of elements of a parameter whose amax is computed only for a bound.
const MAX_PARAMETER_ELEMENTS: usize = 1 << 13;

/// The maximum depth of operations that the analysis follows.
const MAX_DEPTH: usize = 32;

impl Lowering {
    /// Returns the bound of a node's elements, as far as it does not follow from their own amax.
    pub fn bound(&mut self, node: usize) -> Option<Bound> {
        self.bound_at(node, MAX_DEPTH)
    }

    fn bound_at(&mut self, node: usize, depth: usize) -> Option<Bound> {
        if let Some(known) = self.copies.scaled_f16.bounds.get(&node) {
            return known.clone();
        }
        let found = if depth == 0 { None } else { self.bound_of_function(node, depth - 1) };
        self.copies.scaled_f16.bounds.insert(node, found.clone());
        found
    }

    fn bound_of_function(&mut self, node: usize, depth: usize) -> Option<Bound> {
        let Kind::Elementwise(function) = self.nodes[node].kind else { return None };
        let operands = self.nodes[node].operands.clone();
        let mut of = |number: usize| self.bound_of_operand(&operands[number], depth);
        match function {
            Elementwise::Copy | Elementwise::Unary(UnaryOp::Abs) => of(0),
            Elementwise::Unary(UnaryOp::Neg) | Elementwise::Binary(BinaryOp::Mul) => {
                let factors = self.factors_of(&self.dense(node));
                self.bound_of_product(factors, depth)
            }
            // −1, 0 and 1: unless all are 0, their amax is 1.
            Elementwise::Unary(UnaryOp::Sign) => Some(Bound::about(1.0)),
            Elementwise::Binary(op) if op.is_comparison() => Some(Bound::about(1.0)),
            Elementwise::Unary(UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sigmoid | UnaryOp::Sin | UnaryOp::Cos) => {
                Some(Bound::ceiling(1.0))
            }
            Elementwise::Unary(UnaryOp::Exp) => self.bell(&self.dense(node)).is_some().then_some(Bound::ceiling(1.0)),
            Elementwise::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Max | BinaryOp::Min) => of(0)?.plus(&of(1)?),
            Elementwise::Binary(BinaryOp::Div) => {
                let Operand::Constant(by) = operands[1] else { return None };
                of(0).filter(|_| by != 0.0).map(|bound| bound.scaled(1.0 / by))
            }
            Elementwise::Select => of(1)?.plus(&of(2)?),
            _ => None,
        }
    }

    fn bound_of_product(&mut self, mut factors: Factors, depth: usize) -> Option<Bound> {
        let mut product = Bound::about(factors.coefficient);
        let together = self.known_together(&mut factors.operands);
        for bound in together {
            product = product.times(&bound)?;
        }
        for operand in &factors.operands {
            product = product.times(&self.bound_of_operand(operand, depth)?)?;
        }
        Some(product)
    }

    fn bound_of_operand(&mut self, operand: &Operand, depth: usize) -> Option<Bound> {
        match operand {
            Operand::Constant(value) => Some(Bound::about(*value)),
            Operand::At { node, .. } if self.is_short_parameter(*node) => Some(Bound::of(*node)),
            Operand::At { node, .. } => self.bound_at(*node, depth),
        }
    }

    fn is_short_parameter(&self, node: usize) -> bool {
        let made = &self.nodes[node];
        self.copies.scaled_f16.parameters.contains(&node)
            && made.count() <= MAX_PARAMETER_ELEMENTS
            && made.dtype == DType::F32
            && !made.storage.is_reduced()
    }
}

#[cfg(test)]
mod tests {
    use crate::lower::lower;
    use crate::target::Target;
    use bilevel_graph::conformance::Dice;
    use bilevel_graph::{Array, DType, Graph, Precision, Program, Reference, Tensor, gradient, nn};

    /// A target that always prefers fp16.
    fn machine() -> Target {
        Target::PLAIN.with(|target| {
            target.can.rounds_operands = true;
            (target.costs.min_scaled_side, target.costs.load_bytes) = (Some(1), 2);
        })
    }

    /// An array has more elements than a parameter may have; a row has fewer.
    const ROWS: usize = 96;
    const COLUMNS: usize = 104;

    const NAMES: [&str; 6] = ["x", "w", "b", "s", "v", "gain"];

    /// A layer x·w + b, and cotangents s·v of its functions.
    struct Layer {
        g: Graph,
        inputs: Vec<(Tensor, Array)>,
    }

    impl Layer {
        /// Draws x, w and b with these magnitudes.
        fn new(seed: u64, magnitudes: [f64; 3]) -> Self {
            let (g, mut dice) = (Graph::new(), Dice::new(seed));
            let [x, w, b] = magnitudes;
            let (array, weights, row) = (vec![ROWS, COLUMNS], vec![COLUMNS; 2], vec![COLUMNS]);
            let shapes = [&array, &weights, &row, &array, &weights, &row];
            let inputs = NAMES.iter().zip(shapes).zip([x, w, b, x, w, 1.0]).map(|((name, shape), magnitude)| {
                let values: Vec<f64> =
                    dice.array(shape, DType::F32).unwrap().to_f64().iter().map(|value| value * magnitude).collect();
                (g.input(*name, shape, DType::F32), Array::from_values(shape, &values, DType::F32).unwrap())
            });
            let inputs = inputs.collect();
            Layer { g, inputs }
        }

        fn input(&self, name: usize) -> Tensor {
            self.inputs[name].0
        }

        fn row(&self, name: usize) -> Tensor {
            self.input(name).broadcast([1], [ROWS, COLUMNS])
        }

        fn before(&self) -> Tensor {
            self.input(0).matmul(self.input(1)) + self.row(2)
        }

        /// Returns the derivative of a function of the layer.
        fn slope(&self, function: fn(Tensor) -> Tensor) -> Tensor {
            let before = self.before();
            let slopes = self.input(3).matmul(self.input(4));
            gradient((function(before) * slopes).sum_all(), &[before]).unwrap()[0].unwrap()
        }

        /// Returns by how many powers of two the bound exceeds the amax; `None` if there is no bound. Values never
        /// exceed it.
        fn slack(&self, value: Tensor) -> Option<i32> {
            let program = Program::builder(&self.g).output("y", value).build().unwrap();
            let program = program.with_precision(Precision::Tf32);
            let mut low = lower(&program, &machine()).unwrap();
            let (node, _) = low.outputs[0].at().unwrap();
            let (scale, nodes) = low.bound(node)?.scale()?;
            let largest = |array: &Array| array.to_f64().iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let exponent = |largest: f64| largest.max(2f64.powi(-127)).log2().floor() as i32;
            let exponents = nodes.iter().map(|node| {
                let number = low.inputs.iter().position(|input| *input == Some(*node)).expect("the number of an input");
                let name = NAMES.iter().position(|name| *name == program.inputs[number].name).unwrap();
                exponent(largest(&self.inputs[name].1))
            });
            let bound = scale.exponent(&exponents.collect::<Vec<_>>());
            let found = Reference::evaluate(&self.g, &self.inputs, &[value]).unwrap();
            let found = largest(&found[0]);
            assert!(found <= 2.0 * 2f64.powi(bound), "{found} beyond 2·2^{bound}");
            Some(bound - exponent(found))
        }
    }

    #[test]
    fn values_are_within_their_bounds_and_not_far_from_them() {
        for (seed, magnitudes) in
            [[1.0, 1.0, 1.0], [1e-8, 1.0, 1e-9], [1e4, 1e3, 1.0], [1.0, 1e-3, 50.0], [1.0, 0.01, 0.0]]
                .into_iter()
                .enumerate()
        {
            let layer = Layer::new(seed as u64, magnitudes);
            let before = layer.before();
            let normed = nn::layer_norm(layer.input(0), layer.input(5), layer.input(2), 0.0);
            let bounded = [
                (before, 6),
                (nn::relu(before), 6),
                (nn::gelu(before), 7),
                (nn::gelu_tanh(before), 7),
                (nn::silu(before), 7),
                (layer.slope(nn::relu), 6),
                (layer.slope(nn::gelu), 8),
                // For large numbers, the derivative of tanh is 0.
                (layer.slope(|x| x.tanh()), i32::MAX),
                (normed, 5),
                (normed.matmul(layer.input(1)), 10),
                (nn::gelu(normed.matmul(layer.input(1)) + layer.row(2)), 10),
            ];
            for (number, (value, most)) in bounded.into_iter().enumerate() {
                let slack = layer.slack(value).unwrap_or_else(|| panic!("value {number} is not bounded"));
                assert!((0..=most).contains(&slack), "value {number}, numbers {seed}: 2^{slack}");
            }
        }
    }

    #[test]
    fn values_that_may_all_be_far_below_their_bound_have_no_scale() {
        let layer = Layer::new(9, [1.0; 3]);
        let (x, before) = (layer.input(0), layer.before());
        let ranges = [before.tanh(), before.erf() + 1.0, (-(before * before)).exp(), before.sigmoid()];
        let loose = [before * before, nn::gelu(before).matmul(layer.input(4))];
        let anything = [before.exp(), before + x, x.sin(), before * x, before.recip()];
        for (number, value) in [&ranges[..], &loose, &anything].concat().into_iter().enumerate() {
            assert_eq!(layer.slack(value), None, "value {number}");
        }
        // Normalised columns, which a loop over rows cannot hold.
        let length = (x.square().sum([0]) * 0.1).sqrt().recip();
        assert_eq!(layer.slack(x * length.broadcast([1], [ROWS, COLUMNS])), None);
        assert_eq!(layer.slack(before.sign() * 3.0), Some(0));
    }
}
