//! Laplace's approximation of the marginal likelihood of N training images, and its slopes:
//!
//!   −log p(D | λ, δ) ≈ N·L + ½ Σₗ [δₗ‖θₗ‖² − Pₗ·log δₗ + log det(N·Aₗ⊗Gₗ + δₗ)]
//!
//! L is the mean cross entropy at θ, δₗ the precision of the prior of layer l and Pₗ the number of its weights; Aₗ and Gₗ are the
//! factors of `evidence.rs`. λ is in L and in the factors; θ is fixed.

use super::evidence::LAYERS;
use crate::kronecker::{Kronecker, side_by_side};
use bilevel::graph::{Graph, Program, gradient_or_zeros};
use bilevel::optimizers::{Adam, LeafStep, Optimizer};
use bilevel::programs::{Leaves, Routine, Trace};
use bilevel::{Array, Key, Result, Session, State};

/// Leaves of λ.
pub(super) const RANGES: usize = 0;
const LOG_PRECISIONS: usize = 1;
const MULTIPLIERS: usize = 2;

/// The approximation around a θ, for any δ.
pub(super) struct Laplace {
    layers: [Layer; LAYERS],
    /// N·L.
    loss: f64,
    count: f64,
}

struct Layer {
    curvature: Kronecker,
    /// ‖θₗ‖².
    square: f64,
}

impl Laplace {
    /// −log p(D | λ, δ).
    pub fn objective(&self, log_precisions: [f64; LAYERS]) -> f64 {
        let layer = |(layer, log_delta): (&Layer, f64)| {
            let delta = log_delta.exp();
            let size = layer.curvature.size() as f64;
            0.5 * (delta * layer.square - size * log_delta + layer.curvature.log_det(delta))
        };
        self.loss + self.layers.iter().zip(log_precisions).map(layer).sum::<f64>()
    }

    /// Its slope with respect to log δ.
    pub fn by_log_precisions(&self, log_precisions: [f64; LAYERS]) -> [f64; LAYERS] {
        std::array::from_fn(|i| {
            let (layer, delta) = (&self.layers[i], log_precisions[i].exp());
            0.5 * (delta * layer.square - layer.curvature.size() as f64 + layer.curvature.by_log_delta(delta))
        })
    }

    /// Precisions half of the way, on a logarithmic scale, to the zeros of these slopes, by MacKay's rule. The zero is
    /// the number of parameters of a layer determined by the images, divided by ‖θₗ‖².
    pub fn better_precisions(&self, log_precisions: [f64; LAYERS]) -> [f64; LAYERS] {
        let slopes = self.by_log_precisions(log_precisions);
        std::array::from_fn(|i| {
            let there = log_precisions[i].exp() * self.layers[i].square;
            log_precisions[i] + 0.5 * ((there - 2.0 * slopes[i]) / there).ln()
        })
    }

    /// The slopes of its determinants with respect to the factors, divided by N, as are all terms of the outer loss.
    fn multipliers(&self, log_precisions: [f64; LAYERS]) -> Vec<Vec<f64>> {
        let works: [_; LAYERS] =
            std::array::from_fn(|i| move || self.layers[i].curvature.by_factors(log_precisions[i].exp()));
        let mut all: Vec<Vec<f64>> = side_by_side(works).into_iter().flatten().collect();
        all.iter_mut().flatten().for_each(|slope| *slope *= 0.5 / self.count);
        all
    }
}

/// Gives a state the precisions, and the multipliers with which ∂f/∂λ is the approximation's slope, divided by N.
pub(super) fn set_multipliers(state: &State, laplace: &Laplace, log_precisions: [f64; LAYERS]) -> Result<()> {
    let of = |leaf: usize, numbers: &[f64]| -> Result<()> {
        let meta = state.lambda[leaf].meta();
        Ok(state.lambda[leaf].write(&Array::from_values(&meta.shape, numbers, meta.dtype)?)?)
    };
    of(LOG_PRECISIONS, &log_precisions)?;
    laplace.multipliers(log_precisions).iter().enumerate().try_for_each(|(i, slope)| of(MULTIPLIERS + i, slope))
}

/// A program that computes the factors from all minibatches of an epoch.
pub(super) struct Fitting {
    routine: Routine,
    batches: u32,
    count: usize,
}

impl Fitting {
    /// The approximation of an [`evidence`](super::evidence::evidence) problem with this many training images.
    pub fn new(session: &Session, batches: u32, count: usize) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let loss = trace.outer(&trace.theta, graph.step())?;
        let multipliers = &trace.lambda[MULTIPLIERS..];
        let found = [vec![loss], gradient_or_zeros(loss, multipliers)?].concat();
        let means = trace.inputs_like("mean", &found);
        let mut builder = Program::builder(&graph);
        for (mean, found) in means.into_iter().zip(found) {
            builder = builder.carry(mean, mean + found * (1.0 / f64::from(batches)));
        }
        Ok(Fitting { routine: Routine::new(&builder.build()?, session)?, batches, count })
    }

    /// The approximation at the λ and θ of a state, whose multipliers are 0 afterwards; `None` if the loss is not a
    /// number.
    pub fn at(&mut self, state: &State, key: Key) -> Result<Option<Laplace>> {
        // Without multipliers the outer loss is the cross entropy.
        state.lambda[MULTIPLIERS..].iter().try_for_each(|multiplier| multiplier.zero())?;
        self.routine.bind_point(&state.lambda, &state.theta, key)?;
        let means: Leaves = self.routine.zeroed("mean")?;
        self.routine.run(0..self.batches)?;
        let (loss, factors) = (means[0].item()?, means.arrays()?);
        if !loss.is_finite() {
            return Ok(None);
        }
        let count = self.count as f64;
        let squares: Vec<f64> =
            state.theta.arrays()?.iter().map(|leaf| leaf.to_f64().iter().map(|x| x * x).sum()).collect();
        let layers: [_; LAYERS] = std::array::from_fn(|i| {
            let (factors, squares) = (&factors[1 + 2 * i..], &squares[2 * i..2 * i + 2]);
            move || -> Result<Layer> {
                let curvature = Kronecker::new(&factors[0], &factors[1], count)?;
                Ok(Layer { curvature, square: squares.iter().sum() })
            }
        });
        let [first, last] = side_by_side(layers);
        Ok(Some(Laplace { layers: [first?, last?], loss: count * loss, count }))
    }
}

/// A program that takes a step of Adam with the ranges, by the slope of a minibatch: its input `rate.0` is the rate, its output
/// `slope.0` the slope.
pub(super) fn learning(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    let ranges = trace.lambda[RANGES];
    let gradient = gradient_or_zeros(loss, &[ranges])?[0];
    let slots = trace.inputs_like("slot", &[ranges, ranges]);
    let rate = graph.input("rate.0", [], ranges.dtype());
    let iteration = (graph.step() + 1.0).convert(ranges.dtype());
    let (direction, next) = Adam::default().step(&LeafStep { gradient, value: ranges, slots: &slots, iteration });
    let mut builder = Program::builder(&graph).output("slope.0", gradient).carry(ranges, ranges - direction * rate);
    for (slot, next) in slots.into_iter().zip(next) {
        builder = builder.carry(slot, next);
    }
    Routine::new(&builder.build()?, session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kronecker::tests::{dense_log_det, derivative};
    use bilevel::{Cpu, DType};
    use bilevel_run::Context;
    use bilevel_tasks::Invariance;

    /// One minibatch of a small problem stands for all images.
    struct Small {
        session: Session,
        state: State,
        fitting: Fitting,
    }

    /// Few images, so that differences of the objective have digits left.
    const COUNT: usize = 40;
    const KEY: u64 = 5;
    const RANGE: [f64; 6] = [0.31, -0.22, 0.57, 0.13, 0.26, -0.17];

    impl Small {
        fn new() -> Self {
            let task = Invariance { draws: 2, hidden: 3, batch: 4, test: 4, ..Invariance::default() };
            let (problem, _) = crate::studies::invariance::evidence::evidence(
                &task,
                &Context { dtype: DType::F64, ..Context::default() },
            )
            .unwrap();
            let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
            let state = session.state(Key::from_seed(3)).unwrap();
            let fitting = Fitting::new(&session, 1, COUNT).unwrap();
            Small { session, state, fitting }
        }

        fn at(&mut self, ranges: [f64; 6]) -> Laplace {
            self.state.lambda[RANGES].write(&Array::from_f64([6], ranges.to_vec()).unwrap()).unwrap();
            self.fitting.at(&self.state, Key::from_seed(KEY)).unwrap().unwrap()
        }

        /// The objective by dense determinants.
        fn dense(&mut self, ranges: [f64; 6], log_precisions: [f64; LAYERS]) -> f64 {
            self.at(ranges);
            let means = self.fitting.routine.inputs("mean").unwrap().arrays().unwrap();
            let theta = self.state.theta.arrays().unwrap();
            let mut sum = COUNT as f64 * means[0].item().unwrap();
            for (layer, log_delta) in log_precisions.into_iter().enumerate() {
                let weights: Vec<f64> = theta[2 * layer..2 * layer + 2].iter().flat_map(Array::to_f64).collect();
                let [a, g] = [1, 2].map(|i| means[2 * layer + i].to_f64());
                sum += 0.5 * log_delta.exp() * weights.iter().map(|x| x * x).sum::<f64>();
                sum -= 0.5 * log_delta * weights.len() as f64;
                sum += 0.5 * dense_log_det(&a, &g, COUNT as f64, log_delta.exp());
            }
            sum
        }
    }

    #[test]
    fn the_objective_is_that_of_dense_determinants_and_so_are_its_slopes_with_respect_to_precisions() {
        let mut small = Small::new();
        let laplace = small.at(RANGE);
        for log_precisions in [[0.0, 0.0], [2.0, -1.0]] {
            let (found, expected) = (laplace.objective(log_precisions), small.dense(RANGE, log_precisions));
            assert!((found - expected).abs() < 1e-10 * expected.abs(), "{found} {expected}");
            for (layer, slope) in laplace.by_log_precisions(log_precisions).into_iter().enumerate() {
                let expected = derivative(|step| {
                    let mut moved = log_precisions;
                    moved[layer] += step;
                    small.dense(RANGE, moved)
                });
                assert!((slope - expected).abs() < 1e-8 * slope.abs().max(1.0), "{slope} {expected}");
            }
        }
    }

    #[test]
    fn with_the_multipliers_the_slope_of_the_outer_loss_is_the_difference_of_dense_objectives() {
        let mut small = Small::new();
        let log_precisions = [0.4, -0.3];
        let laplace = small.at(RANGE);
        set_multipliers(&small.state, &laplace, log_precisions).unwrap();
        let mut learn = learning(&small.session).unwrap();
        learn.bind_point(&small.state.lambda, &small.state.theta, Key::from_seed(KEY)).unwrap();
        learn.zeroed("slot").unwrap();
        learn.set_numbers("rate", [0.0]).unwrap();
        learn.run(0..1).unwrap();
        let slope = learn.outputs("slope").unwrap().numbers().unwrap();
        for (i, slope) in slope.into_iter().enumerate() {
            // The step is small, because views have kinks at the edges of pixels.
            let step = 2e-6;
            let mut at = |sign: f64| {
                let mut moved = RANGE;
                moved[i] += sign * step;
                small.dense(moved, log_precisions)
            };
            let (found, expected) = (COUNT as f64 * slope, (at(1.0) - at(-1.0)) / (2.0 * step));
            assert!((found - expected).abs() < 1e-7 * found.abs().max(1.0), "{i}: {found} {expected}");
            assert!(found.abs() > 0.01, "{i}: {found}");
        }
    }

    #[test]
    fn better_precisions_go_to_where_the_slopes_are_0() {
        let laplace = Small::new().at(RANGE);
        let mut log_precisions = [0.0; LAYERS];
        for _ in 0..300 {
            log_precisions = laplace.better_precisions(log_precisions);
        }
        for slope in laplace.by_log_precisions(log_precisions) {
            assert!(slope.abs() < 1e-9, "{slope}");
        }
    }

    #[test]
    fn a_network_that_diverged_has_no_approximation() {
        let mut small = Small::new();
        let weight = &small.state.theta[0];
        weight.write(&Array::full(&weight.meta().shape, f64::NAN, DType::F64)).unwrap();
        assert!(small.fitting.at(&small.state, Key::from_seed(KEY)).unwrap().is_none());
    }
}
