//! The problem of any model, and its warm-up.
//!
//!   L_T = cross entropy of a batch of training pictures + Σⱼ λⱼ·|θⱼ|,   λ ≥ 0
//!   f   = cross entropy of a batch of validation pictures
//!
//! Before λ is learned, the model is trained without it, and a run starts at the θ with the least validation loss.

use super::Granularity;
use crate::photographs::{Parts, batch_of, error, joined, pixels};
use bilevel::graph::Executor;
use bilevel::graph::nn::cross_entropy;
use bilevel::graph::tree::TreeOf;
use bilevel::observers::StopSignal;
use bilevel::training::Trainer;
use bilevel::{
    Array, DType, InnerLoop, Key, Leaf, Named, Precision, Problem, ProblemBuilder, Result, Scope, Session, Tensor,
    Tree, Variable,
};
use bilevel_data::LabelledImages;
use bilevel_data::prepare::Normalisation;
use std::sync::Arc;

/// Steps of the warm-up between two evaluations of the validation loss.
const LOOK: usize = 20;
/// Looks without an improvement after which the warm-up ends.
const PATIENCE: usize = 10;

/// Errors on the four parts, by the names of these measures.
pub const MEASURES: [&str; 4] =
    ["training error in %", "validation error in %", "second validation error in %", "test error in %"];

/// The share of weights with |θ| ≤ γλ, which the penalty alone would bring across 0 in one step; measured if each weight has its λ.
pub const HELD: &str = "weights held at 0 in %";

/// Logits of pictures.
pub(super) type Forward<M> = Arc<dyn Fn(&<M as Tree>::With<Tensor>, Tensor) -> Tensor + Send + Sync>;

/// All parts of the problem except λ.
pub(super) struct Ingredients<M: Tree> {
    pub model: M,
    pub forward: Forward<M>,
    pub parts: Parts,
    pub normalisation: Option<Normalisation>,
    pub batch: usize,
    pub dtype: DType,
}

impl<M> Ingredients<M>
where
    M: TreeOf<Variable> + Clone + Send + Sync + 'static,
{
    /// Adds the validation pictures to the training pictures.
    pub fn trained_on_both(mut self) -> Result<Self> {
        self.parts.train = joined(&self.parts.train, &self.parts.validation)?;
        Ok(self)
    }

    /// The problem with one λ ≥ 0 for each unit of the granularity.
    pub fn problem(&self, granularity: Granularity, (start, step): (f64, f64)) -> Result<Problem> {
        let lambda = granularity.variables(&self.model, start);
        let count: usize = lambda.leaves().iter().map(|leaf| leaf.shape().iter().product::<usize>()).sum();
        let problem = self.given(Problem::builder(lambda, self.model.clone()), &self.parts_in_use())?;
        let (forward, batch) = (self.forward.clone(), self.batch);
        let trained: Vec<bool> = self.model.leaves().iter().map(|leaf| leaf.is_trained()).collect();
        let with_penalty = trained.clone();
        let problem = problem.inner(move |s, lambda, theta| {
            let loss = batch_loss(s, "train", batch, |x| forward(theta, x));
            // λ has a leaf for every trained one, in their order, or one for all.
            let strengths = lambda.leaves();
            let weights = theta.leaves().into_iter().zip(&with_penalty).filter(|(_, trained)| **trained);
            weights.zip(strengths.iter().cycle()).fold(loss, |sum, ((weights, _), strength)| {
                sum + (strength.broadcast_to(weights.shape()) * weights.abs()).sum_all()
            })
        });
        let forward = self.forward.clone();
        let mut problem = problem.outer(move |s, _, theta| batch_loss(s, "validation", batch, |x| forward(theta, x)));
        for ((part, _), name) in self.parts_in_use().iter().zip(MEASURES) {
            let (forward, part) = (self.forward.clone(), *part);
            problem = problem.measure(name, move |s, _, theta| error(s, part, |x| forward(theta, x)));
        }
        if granularity == Granularity::Weight {
            problem = problem.measure(HELD, move |s, lambda, theta| {
                let weights = theta.leaves().into_iter().zip(&trained).filter(|(_, trained)| **trained);
                let held = weights.zip(lambda.leaves()).map(|((weights, _), penalties)| {
                    // A penalty of 0 holds nothing, not even a weight that is 0.
                    let reached = (*penalties * step).greater_equal(weights.abs()).convert(s.dtype());
                    (reached * penalties.greater(0.0).convert(s.dtype())).sum_all()
                });
                held.fold(s.graph().constant(0.0, [], s.dtype()), |sum, held| sum + held)
                    * (100.0 / count.max(1) as f64)
            });
        }
        problem.build().map(Problem::erase)
    }

    /// θ after training without a penalty: at the least validation loss of at most this many steps.
    pub fn warmed_up(
        &self,
        (step, steps): (f64, usize),
        precision: Precision,
        seed: u64,
        executor: &dyn Executor,
        signal: &StopSignal,
    ) -> Result<Named<Array>> {
        // There is nothing to learn yet: λ is a number that no loss uses.
        let none = Leaf(Variable::constant([], 0.0));
        let two = &self.parts_in_use()[..2];
        let (train, validation, batch) = (self.forward.clone(), self.forward.clone(), self.batch);
        let problem = self
            .given(Problem::builder(none, self.model.clone()), two)?
            .inner(move |s, _, theta| batch_loss(s, "train", batch, |x| train(theta, x)))
            .outer(move |s, _, theta| cross_entropy(validation(theta, s.data("validation x")), s.data("validation y")))
            .build()?
            .in_precision(precision)?;
        let session = Session::new(&problem, executor)?.stopped_by(signal.clone());
        let key = Key::from_seed(seed);
        let state = session.state(key)?;
        if steps < LOOK {
            return Ok(Named::of(&problem.theta_of(&state.theta)?));
        }
        let mut trainer = Trainer::new(&session, InnerLoop::new(step, LOOK))?;
        let mut evaluator = session.evaluator()?;
        let (mut best, mut least, mut since) = (problem.theta_of(&state.theta)?, f64::INFINITY, 0);
        for look in 0..steps / LOOK {
            trainer.train(&state, key.fold_in(look as u32))?;
            let loss = evaluator.at(&state, key)?[1];
            since += 1;
            if loss < least {
                (best, least, since) = (problem.theta_of(&state.theta)?, loss, 0);
            }
            if since == PATIENCE {
                break;
            }
        }
        Ok(Named::of(&best))
    }

    /// The model with its leaves starting at these.
    pub fn starting_at(mut self, theta: &Named<Array>) -> Result<Self> {
        self.model = self.model.try_map_named(|name, leaf| match theta.get(name) {
            Some(array) => leaf.clone().starting_at(array.clone()),
            None => Ok(leaf.clone()),
        })?;
        Ok(self)
    }

    /// The parts that hold pictures, with their names; a second validation set may be empty.
    fn parts_in_use(&self) -> Vec<(&'static str, &LabelledImages)> {
        let Parts { train, validation, second, test } = &self.parts;
        // Without separate pictures, the second validation set is the first.
        let second = if second.count() == 0 { validation } else { second };
        vec![("train", train), ("validation", validation), ("second", second), ("test", test)]
    }

    fn given<L>(
        &self,
        mut problem: ProblemBuilder<L, M>,
        parts: &[(&'static str, &LabelledImages)],
    ) -> Result<ProblemBuilder<L, M>>
    where
        L: Tree<Leaf = Variable> + Clone + Send + Sync + 'static,
    {
        problem = problem.dtype(self.dtype);
        for (name, part) in parts {
            problem = problem
                .data(format!("{name} x"), pixels(part, self.normalisation.as_ref(), self.dtype)?)
                .data(format!("{name} y"), part.label_array()?);
        }
        Ok(problem)
    }
}

/// Mean cross entropy of a batch of a part.
fn batch_loss(s: &Scope, part: &str, batch: usize, logits: impl Fn(Tensor) -> Tensor) -> Tensor {
    let (x, y) = batch_of(s, part, batch);
    cross_entropy(logits(x), y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photographs::{PerClass, PictureSet};
    use bilevel::methods::Rmd;
    use bilevel::{Cpu, InnerLoop};
    use bilevel_data::Images;
    use bilevel_models::efficientnet::StageConfig;
    use bilevel_models::{EfficientNet, EfficientNetConfig, Mlp, MlpConfig, Statistics, with_frozen_statistics};

    /// Pictures of three classes that are different everywhere.
    fn pictures(count: usize, side: usize, seed: usize) -> LabelledImages {
        let size = 3 * side * side;
        let pixels = (0..count * size).map(|i| ((i * 7919 + seed * 104_729) % 251) as u8).collect();
        let images = Images::new([count, 3, side, side], pixels).unwrap();
        let labels = (0..count as i32).map(|row| row % 3).collect();
        LabelledImages::new(images, labels, ["a", "b", "c"].map(String::from).to_vec()).unwrap()
    }

    fn small_efficientnet() -> Ingredients<EfficientNet<Variable>> {
        let stage = |stride, expansion, channels| StageConfig { blocks: 1, kernel: 3, stride, expansion, channels };
        let stages = vec![stage(1, 1, 3), stage(2, 2, 4)];
        let config = EfficientNetConfig { channels: 3, stem: 4, stages, top: 6, classes: 3 };
        Ingredients {
            model: with_frozen_statistics(&config.build().unwrap()),
            forward: Arc::new(|net: &EfficientNet<Tensor>, x| net.forward(x, Statistics::Running)),
            parts: Parts {
                train: pictures(6, 8, 1),
                validation: pictures(6, 8, 2),
                second: pictures(3, 8, 3),
                test: pictures(6, 8, 4),
            },
            normalisation: None,
            batch: 4,
            dtype: DType::F64,
        }
    }

    /// A perceptron without kinks, with weights away from 0, the kink of |θ|.
    fn smooth_perceptron() -> Ingredients<Mlp<Variable>> {
        let model = MlpConfig::tanh([192, 3, 3]).build().unwrap();
        let Ingredients { parts, normalisation, batch, dtype, .. } = small_efficientnet();
        Ingredients {
            model: model.map(|leaf| Variable::uniform(leaf.shape(), 0.02, 0.1)),
            forward: Arc::new(|net: &Mlp<Tensor>, x: Tensor| net.forward(x.reshape([x.dim(0), 192]))),
            parts,
            normalisation,
            batch,
            dtype,
        }
    }

    const ALL: [Granularity; 4] = [Granularity::Weight, Granularity::Filter, Granularity::Layer, Granularity::One];

    fn checked(problem: &Problem) -> bilevel::diagnostics::ProblemReport {
        let check = problem.check().executor(Cpu::with_threads(1)).method(Rmd::default());
        check.inner(InnerLoop::new(0.01, 2)).seed(3).run().unwrap()
    }

    #[test]
    fn derivatives_of_both_losses_are_those_of_differences_for_every_granularity() {
        for granularity in ALL {
            let report = checked(&smooth_perceptron().problem(granularity, (0.01, 0.05)).unwrap());
            assert!(report.passed(1e-6), "{granularity:?}: {report}");
        }
    }

    #[test]
    fn derivatives_through_training_are_those_of_differences_for_every_granularity() {
        for granularity in ALL {
            let report = checked(&small_efficientnet().problem(granularity, (0.01, 0.05)).unwrap());
            assert!(report.methods[0].training().unwrap().error < 1e-6, "{granularity:?}: {report}");
        }
    }

    #[test]
    fn a_run_starts_from_what_the_warm_up_found() {
        let ingredients = small_efficientnet();
        let (cpu, signal) = (Cpu::with_threads(1), StopSignal::new());
        let warm = |steps| ingredients.warmed_up((0.05, steps), Precision::Full, 1, &cpu, &signal).unwrap();
        let (cold, warm) = (warm(0), warm(40));
        assert_ne!(cold, warm);
        let problem =
            small_efficientnet().starting_at(&warm).unwrap().problem(Granularity::Layer, (0.0, 0.05)).unwrap();
        let session = Session::new(&problem, &cpu).unwrap();
        let state = session.state(Key::from_seed(9)).unwrap();
        assert_eq!(problem.theta_of(&state.theta).unwrap(), warm);
    }

    #[test]
    fn training_on_both_parts_sees_all_their_pictures() {
        let each = PerClass { train: 2, validation: 3, second: 1, test: 4 };
        let parts = PictureSet::Digits.parts(None, 0, each, 5).unwrap();
        let counts = [&parts.train, &parts.validation, &parts.second, &parts.test].map(LabelledImages::count);
        assert_eq!(counts, [20, 30, 10, 40]);
        assert_eq!(joined(&parts.train, &parts.validation).unwrap().count(), 50);
        let other = PictureSet::Digits.parts(None, 0, each, 6).unwrap();
        assert_ne!(parts.train, other.train);
    }
}
