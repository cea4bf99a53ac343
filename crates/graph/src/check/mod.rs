//! The gradient checker: are the derivatives of a loss those of the loss?
//!
//! Gradients are compared with central differences of the loss, Hessian and mixed products with central differences of
//! the gradient along a direction, all in 64-bit floats and extrapolated to step 0, so that agreement to 8 digits and
//! more can be required if the loss is smooth at the point. Elements at a kink are counted and not compared.

pub(crate) mod finite_differences;
pub(crate) mod report;

use crate::autodiff::transform::{gradient, mixed_vector};
use crate::check::finite_differences::{Difference, derivative};
use crate::check::report::{CheckReport, CheckRow, Quantity};
use crate::exec::executor::{Executor, Runnable};
use crate::exec::reference::{Reference, input_name};
use crate::ir::graph::Graph;
use crate::ir::program::Program;
use crate::shape::element_count;
use crate::tensor::Tensor;
use crate::{Array, DType, Error, ErrorKind, Result};

/// Checks a loss written as a function of its inputs, all of which are variables, with the settings of [`GradientCheck`].
///
/// ```
/// use bilevel_graph::{check_gradients, Array, Quantity};
/// let point = [
///     ("w", Array::from_f64([2, 2], vec![0.1, -0.7, 0.4, 1.2]).unwrap()),
///     ("x", Array::from_f64([3, 2], vec![0.3, 0.2, -0.5, 0.9, 1.1, -0.2]).unwrap()),
/// ];
/// let report = check_gradients(&point, |t| t[1].matmul(t[0]).tanh().square().sum_all()).unwrap();
/// assert!(report.passed(1e-8), "{report}");
/// assert_eq!(report.row(Quantity::Gradient, "x").unwrap().coordinates, 6);
/// ```
pub fn check_gradients(point: &[(&str, Array)], loss: impl FnOnce(&[Tensor]) -> Tensor) -> Result<CheckReport> {
    let graph = Graph::new();
    let inputs: Vec<Tensor> = point.iter().map(|(name, v)| graph.input(*name, v.shape(), v.dtype())).collect();
    let loss = loss(&inputs);
    let point: Vec<(Tensor, Array)> = inputs.iter().copied().zip(point.iter().map(|(_, v)| v.clone())).collect();
    GradientCheck::new(&graph, loss, &inputs, &point).run()
}

/// A check of the derivatives of `loss` with respect to some of the graph's inputs, at a point.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, GradientCheck, Quantity};
/// let g = Graph::new();
/// let (theta, lambda) = (g.input("theta", [3], DType::F64), g.input("lambda", [3], DType::F64));
/// let loss = (theta.sin() * lambda.exp()).sum_all();
/// let at = |values: [f64; 3]| Array::from_f64([3], values.to_vec()).unwrap();
/// let point = [(theta, at([0.1, 0.2, 0.3])), (lambda, at([-0.5, 0.0, 0.5]))];
/// let report = GradientCheck::new(&g, loss, &[theta], &point).lambda(&[lambda]).run().unwrap();
/// assert!(report.passed(1e-8), "{report}");
/// assert!(report.row(Quantity::MixedVector, "lambda").is_some());
/// ```
pub struct GradientCheck<'a> {
    graph: &'a Graph,
    loss: Tensor,
    theta: &'a [Tensor],
    lambda: &'a [Tensor],
    point: &'a [(Tensor, Array)],
    executor: &'a dyn Executor,
    coordinates: usize,
    seed: u64,
    step: f64,
}

impl<'a> GradientCheck<'a> {
    /// Checks gradient, Hessian product and its symmetry with respect to `theta` (f64 inputs). `point` gives every input
    /// the loss depends on its value, variables and data alike.
    pub fn new(graph: &'a Graph, loss: Tensor, theta: &'a [Tensor], point: &'a [(Tensor, Array)]) -> Self {
        let executor = &Reference;
        GradientCheck { graph, loss, theta, lambda: &[], point, executor, coordinates: 64, seed: 1, step: 0.0625 }
    }

    /// Also checks the gradient with respect to these and the mixed product vᵀ·∂²loss/∂theta∂lambda.
    pub fn lambda(mut self, lambda: &'a [Tensor]) -> Self {
        self.lambda = lambda;
        self
    }

    /// Runs the programs on this executor instead of the [`Reference`].
    pub fn executor(mut self, executor: &'a dyn Executor) -> Self {
        self.executor = executor;
        self
    }

    /// At most this many elements of each gradient are differenced, chosen at random if there are more (64 by default).
    pub fn coordinates(mut self, most: usize) -> Self {
        self.coordinates = most;
        self
    }

    /// Another choice of elements and directions.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The largest difference step (1/16 unless told); eight halvings of it are also tried. Use a smaller one if the
    /// loss has a kink or a pole near the point.
    pub fn step(mut self, step: f64) -> Self {
        self.step = step;
        self
    }

    /// Runs the check.
    pub fn run(&self) -> Result<CheckReport> {
        let variables = [self.theta, self.lambda].concat();
        let point = self.variable_values(&variables)?;
        let names = variables.iter().map(|&t| input_name(t)).collect::<Result<Vec<_>>>()?;
        let first = gradient(self.loss, &variables)?;
        let mut random = self.seed;
        let mut rows = vec![];

        let mut value = Probe::new(self, &[self.loss], &variables, &[])?;
        let noise = 1e-4 * largest(&value.at(&point)?);
        let dense: Vec<Tensor> =
            variables.iter().zip(&first).map(|(x, d)| d.unwrap_or_else(|| x.zeros_like())).collect();
        let mut slope = Probe::new(self, &dense, &variables, &[])?;
        let analytic = slope.at(&point)?;
        for (j, name) in names.iter().enumerate() {
            let mut pairs = vec![];
            for element in chosen(point[j].len(), self.coordinates, &mut random) {
                let mut moved = point.clone();
                let along = |h: f64| {
                    moved[j][element] = point[j][element] + h;
                    Ok(value.at(&moved)?.concat())
                };
                let numeric = derivative(along, self.step)?[0];
                pairs.push((index_of(&variables[j].shape(), element), analytic[j][element], numeric));
            }
            rows.push(CheckRow::new(Quantity::Gradient, name.clone(), first[j].is_none(), &pairs, noise));
        }
        rows.extend(self.second_order((&variables, &names, &point), &mut slope, noise, &mut random)?);
        Ok(CheckReport { rows })
    }

    /// Hessian and mixed products along two random directions u and v, and u·Hv = v·Hu.
    fn second_order(
        &self,
        (variables, names, point): (&[Tensor], &[String], &[Vec<f64>]),
        slope: &mut Probe,
        noise: f64,
        random: &mut u64,
    ) -> Result<Vec<CheckRow>> {
        let count = self.theta.len();
        let v_inputs: Vec<Tensor> = (self.theta.iter().enumerate())
            .map(|(j, x)| self.graph.input(format!("direction {j} of the check"), x.shape(), x.dtype()))
            .collect();
        let second = mixed_vector(self.loss, self.theta, &v_inputs, variables)?;
        let dense: Vec<Tensor> =
            variables.iter().zip(&second).map(|(x, d)| d.unwrap_or_else(|| x.zeros_like())).collect();
        let mut product = Probe::new(self, &dense, variables, &v_inputs)?;
        let noise = noise.max(1e-4 * largest(&slope.at(point)?));

        let mut pairs: Vec<Vec<(Vec<usize>, f64, Difference)>> = vec![vec![]; variables.len()];
        let mut kept = vec![];
        for _ in 0..2 {
            let v: Vec<Vec<f64>> =
                point[..count].iter().map(|x| x.iter().map(|_| uniform(random) * 2.0 - 1.0).collect()).collect();
            let analytic = product.at(&[point, &v[..]].concat())?;
            let mut moved = point.to_vec();
            let along = |h: f64| {
                for (j, v) in v.iter().enumerate() {
                    for (e, v) in v.iter().enumerate() {
                        moved[j][e] = point[j][e] + h * v;
                    }
                }
                Ok(slope.at(&moved)?.concat())
            };
            let numeric = derivative(along, self.step)?;
            let mut place = 0;
            for (j, analytic) in analytic[..count].iter().enumerate() {
                for (e, &a) in analytic.iter().enumerate() {
                    pairs[j].push((index_of(&variables[j].shape(), e), a, numeric[place]));
                    place += 1;
                }
            }
            // Along λ, the slope by θ: a λ that was cut off from the gradient by mistake still moves it.
            for (j, analytic) in analytic.iter().enumerate().skip(count) {
                for e in chosen(point[j].len(), self.coordinates, random) {
                    let mut moved = point.to_vec();
                    let along = |h: f64| {
                        moved[j][e] = point[j][e] + h;
                        let slopes = slope.at(&moved)?;
                        let terms = slopes.iter().zip(&v).flat_map(|(s, v)| s.iter().zip(v));
                        Ok(vec![terms.map(|(s, v)| s * v).sum()])
                    };
                    let numeric = derivative(along, self.step)?[0];
                    pairs[j].push((index_of(&variables[j].shape(), e), analytic[e], numeric));
                }
            }
            kept.push((v, analytic));
        }
        let mut rows = vec![];
        for (j, name) in names.iter().enumerate() {
            let quantity = if j < count { Quantity::HessianVector } else { Quantity::MixedVector };
            rows.push(CheckRow::new(quantity, name.clone(), second[j].is_none(), &pairs[j], noise));
        }
        let [(u, hu), (v, hv)] = &kept[..] else { return Ok(rows) };
        let products = |a: &[Vec<f64>], b: &[Vec<f64>]| -> Vec<f64> {
            a.iter().flatten().zip(b.iter().flatten()).map(|(x, y)| x * y).collect()
        };
        let (left, right) = (products(u, &hv[..count]), products(v, &hu[..count]));
        // Terms that cancel leave rounding in proportion to their size.
        let noise = left.iter().map(|t| t.abs()).sum::<f64>();
        let pair = [(vec![], left.iter().sum(), Difference { value: right.iter().sum(), doubt: 0.0 })];
        let zero = second[..count].iter().all(Option::is_none);
        rows.push(CheckRow::new(Quantity::Symmetry, "all".into(), zero, &pair, noise));
        Ok(rows)
    }

    /// The point's values of the variables, checked to be given and 64-bit.
    fn variable_values(&self, variables: &[Tensor]) -> Result<Vec<Vec<f64>>> {
        let refuse = |t: Tensor, reason: &str| {
            let operands = vec![(t.dtype(), t.shape())];
            let kind = ErrorKind::Operation { operation: "check".into(), operands, reason: reason.into() };
            Err(Error::new(kind))
        };
        let mut values = vec![];
        for &variable in variables {
            let variable = variable.check()?;
            if variable.dtype() != DType::F64 {
                return refuse(variable, "differences need 64-bit floats; declare the variables as f64 for the check");
            }
            match self.point.iter().find(|(t, _)| t.is_same_node(variable)) {
                Some((_, value)) if value.shape() == variable.shape() => values.push(value.to_f64()),
                Some(_) => return refuse(variable, "its value at the point has another shape"),
                None => return refuse(variable, "the point gives it no value"),
            }
        }
        Ok(values)
    }
}

/// A compiled program of some tensors as a function of some inputs, the others fixed at the check's point.
struct Probe {
    run: Box<dyn Runnable>,
    /// Number and shape of each moving input.
    inputs: Vec<(usize, Vec<usize>)>,
    outputs: usize,
}

impl Probe {
    fn new(check: &GradientCheck, outputs: &[Tensor], variables: &[Tensor], directions: &[Tensor]) -> Result<Self> {
        let mut builder = Program::builder(check.graph).outputs("", outputs.iter().copied());
        let moving = [variables, directions].concat();
        for &input in check.point.iter().map(|(t, _)| t).chain(&moving) {
            builder = builder.keep_input(input);
        }
        let program = builder.build()?;
        let mut run = check.executor.compile(&program)?;
        for (input, value) in check.point {
            run.set(program.input(&input_name(*input)?)?, value)?;
        }
        let inputs = moving.iter().map(|&t| Ok((program.input(&input_name(t)?)?, t.shape()))).collect::<Result<_>>()?;
        Ok(Probe { run, inputs, outputs: outputs.len() })
    }

    /// The outputs at these values of the moving inputs.
    fn at(&mut self, values: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
        for ((input, shape), value) in self.inputs.iter().zip(values) {
            self.run.set(*input, &Array::from_values(shape, value, DType::F64)?)?;
        }
        self.run.run(0..1)?;
        (0..self.outputs).map(|number| Ok(self.run.output(number)?.to_f64())).collect()
    }
}

fn largest(values: &[Vec<f64>]) -> f64 {
    values.iter().flatten().fold(0.0, |m, v| m.max(v.abs()))
}

/// The next number of splitmix64, as a float in [0, 1).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// All of `0..count`, or `most` of them at random, in order.
fn chosen(count: usize, most: usize, random: &mut u64) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    if count > most {
        for i in 0..most {
            all.swap(i, i + (uniform(random) * (count - i) as f64) as usize);
        }
        all.truncate(most);
        all.sort_unstable();
    }
    all
}

/// The multi-index of a row-major place.
fn index_of(shape: &[usize], mut place: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = place % shape[axis].max(1);
        place /= shape[axis].max(1);
    }
    debug_assert!(element_count(shape) == 0 || place == 0);
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f64]) -> Array {
        Array::from_f64([values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn a_correct_loss_passes_to_nine_digits() {
        let point = [("x", vector(&[0.3, -0.8, 1.7])), ("y", vector(&[1.1, 0.4, 2.0]))];
        let report = check_gradients(&point, |t| ((t[0] * t[1]).sin() * t[1].exp() + t[0].tanh()).sum_all()).unwrap();
        assert!(report.passed(1e-9), "{report}");
        assert_eq!(report.rows.len(), 5);
    }

    #[test]
    fn a_derivative_that_is_cut_off_is_found_and_shown_as_structurally_zero() {
        let point = [("x", vector(&[0.3, -0.8]))];
        let report = check_gradients(&point, |t| t[0].stop_gradient().square().sum_all()).unwrap();
        assert!(!report.passed(1e-3), "{report}");
        assert!(report.row(Quantity::Gradient, "x").unwrap().structurally_zero);
        assert!(report.to_string().contains("structurally zero"), "{report}");
    }

    #[test]
    fn a_wrong_derivative_is_found() {
        // The value is x³ but the derivative that of x²·stop(x).
        let point = [("x", vector(&[0.3, -0.8]))];
        let report = check_gradients(&point, |t| (t[0].square() * t[0].stop_gradient()).sum_all()).unwrap();
        let row = report.row(Quantity::Gradient, "x").unwrap();
        assert!(row.max_relative_error > 0.3, "{report}");
        assert!((row.analytic / row.numeric - 2.0 / 3.0).abs() < 1e-6, "{report}");
    }

    #[test]
    fn large_variables_are_checked_at_a_random_part() {
        let point = [("x", vector(&vec![0.5; 300]))];
        let report = check_gradients(&point, |t| t[0].exp().sum_all()).unwrap();
        assert_eq!(report.row(Quantity::Gradient, "x").unwrap().coordinates, 64);
        assert!(report.passed(1e-8), "{report}");
    }

    #[test]
    fn variables_that_are_not_f64_or_have_no_value_are_refused() {
        let g = Graph::new();
        let x = g.input("x", [2], DType::F32);
        let error = GradientCheck::new(&g, x.sum_all(), &[x], &[]).run().unwrap_err().to_string();
        assert!(error.contains("64-bit") && error.contains("f32[2]"), "{error}");
        let y = g.input("y", [2], DType::F64);
        let error = GradientCheck::new(&g, y.sum_all(), &[y], &[]).run().unwrap_err().to_string();
        assert!(error.contains("no value"), "{error}");
        let report = GradientCheck::new(&g, y.sum_all(), &[y + 1.0], &[(y + 1.0, vector(&[1.0, 2.0]))]).run();
        assert!(report.is_err());
    }

    #[test]
    fn a_mixed_product_cut_off_by_mistake_is_seen_in_its_own_row() {
        let g = Graph::new();
        let (theta, lambda) = (g.input("theta", [2], DType::F64), g.input("lambda", [2], DType::F64));
        let point = [
            (theta, Array::from_f64([2], vec![0.3, -0.7]).unwrap()),
            (lambda, Array::from_f64([2], vec![1.1, 0.4]).unwrap()),
        ];
        let loss = |weight: Tensor| (weight * theta.square()).sum_all();
        for (loss, right) in [(loss(lambda), true), (loss(lambda.stop_gradient()), false)] {
            let report = GradientCheck::new(&g, loss, &[theta], &point).lambda(&[lambda]).run().unwrap();
            let mixed = report.rows.iter().find(|row| row.quantity == Quantity::MixedVector).unwrap();
            assert_eq!(mixed.max_relative_error < 1e-8, right, "{report}");
        }
    }
}
