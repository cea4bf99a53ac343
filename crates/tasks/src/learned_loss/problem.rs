//! The problem of any network.
//!
//!   L_T = the polynomial with coefficients λ of a batch of training pictures
//!   f   = cross entropy of a batch of validation pictures

use super::polynomial::polynomial;
use crate::photographs::{batch_of, error, pixels};
use bilevel::graph::nn::{convex_in, cross_entropy, one_hot, softmax};
use bilevel::graph::tree::TreeOf;
use bilevel::{DType, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_data::prepare::Normalisation;
use bilevel_data::{LabelledImages, augment};
use std::sync::Arc;

/// Zeros around a picture before it is cut to its size at a random place.
const PADDING: usize = 4;

/// The numbers that no loss uses.
pub const MEASURES: [&str; 3] = ["validation loss", "validation error in %", "test error in %"];

/// λ: the coefficients of the loss.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
pub(super) struct Loss<T> {
    pub coefficients: T,
}

/// Logits of pictures.
pub(super) type Forward<M> = Arc<dyn Fn(&Scope, &<M as Tree>::With<Tensor>, Tensor) -> Tensor + Send + Sync>;

/// Pictures to train on, to learn λ by and to test on.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub train: LabelledImages,
    pub validation: LabelledImages,
    pub test: LabelledImages,
}

/// All parts of the problem.
pub(super) struct Ingredients<M: Tree> {
    pub model: M,
    pub forward: Forward<M>,
    pub parts: Parts,
    pub normalisation: Option<Normalisation>,
    pub coefficients: Variable,
    pub batch: usize,
    pub augment: bool,
    /// Train with cross entropy, for any λ.
    pub plain: bool,
    pub dtype: DType,
}

impl<M> Ingredients<M>
where
    M: TreeOf<Variable> + Clone + Send + Sync + 'static,
{
    pub fn problem(self) -> Result<Problem> {
        let Ingredients { model, forward, parts, normalisation, batch, augment, plain, dtype, .. } = self;
        let classes = parts.train.classes.len();
        let mut problem = Problem::builder(Loss { coefficients: self.coefficients }, model).dtype(dtype);
        for (name, part) in [("train", &parts.train), ("validation", &parts.validation), ("test", &parts.test)] {
            problem = problem
                .data(format!("{name} x"), pixels(part, normalisation.as_ref(), dtype)?)
                .data(format!("{name} y"), part.label_array()?);
        }
        let logits = forward.clone();
        let problem = problem.inner(move |s, lambda, theta| {
            let (x, y) = batch_of(s, "train", batch);
            let x = if augment { augment::random_flip(s, augment::random_crop(s, x, PADDING)) } else { x };
            let logits = logits(s, theta, x);
            if plain {
                return cross_entropy(logits, y);
            }
            let probabilities = softmax(logits, 1);
            let loss = polynomial(lambda.coefficients, probabilities, one_hot(y, classes, dtype));
            // Convex in the probabilities near the start of λ, so a Gauss-Newton product treats these as the outputs of
            // the model.
            convex_in(loss, &[probabilities])
        });
        let logits = forward.clone();
        let problem = problem.outer(move |s, _, theta| {
            let (x, y) = batch_of(s, "validation", batch);
            cross_entropy(logits(s, theta, x), y)
        });
        let [loss, validation, test] = MEASURES;
        let logits = forward.clone();
        let problem = problem.measure(loss, move |s, _, theta| {
            cross_entropy(logits(s, theta, s.data("validation x")), s.data("validation y"))
        });
        let logits = forward.clone();
        let problem = problem.measure(validation, move |s, _, theta| error(s, "validation", |x| logits(s, theta, x)));
        let problem = problem.measure(test, move |s, _, theta| error(s, "test", |x| forward(s, theta, x)));
        problem.build().map(Problem::erase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned_loss::FirstLoss;
    use bilevel::methods::Rmd;
    use bilevel::{Array, Cpu, InnerLoop};
    use bilevel_data::Images;
    use bilevel_models::alexnet::LayerConfig;
    use bilevel_models::{AlexNet, AlexNetConfig, Mlp, MlpConfig, Statistics, WideResNet, WideResNetConfig};

    fn pictures(count: usize, seed: usize) -> LabelledImages {
        let pixels = (0..count * 3 * 64).map(|i| ((i * 7919 + seed * 104_729) % 251) as u8).collect();
        let images = Images::new([count, 3, 8, 8], pixels).unwrap();
        let labels = (0..count as i32).map(|row| row % 3).collect();
        LabelledImages::new(images, labels, ["a", "b", "c"].map(String::from).to_vec()).unwrap()
    }

    fn ingredients<M: Tree>(model: M, forward: Forward<M>, first: FirstLoss, plain: bool) -> Ingredients<M> {
        let coefficients = Array::from_f64([8], first.coefficients(3).to_vec()).unwrap();
        Ingredients {
            model,
            forward,
            parts: Parts { train: pictures(8, 1), validation: pictures(6, 2), test: pictures(6, 3) },
            normalisation: Some(Normalisation { mean: vec![0.5; 3], deviation: vec![0.25; 3] }),
            coefficients: Variable::fixed(coefficients),
            batch: 4,
            augment: true,
            plain,
            dtype: DType::F64,
        }
    }

    fn checked(problem: &Problem) -> bilevel::diagnostics::ProblemReport {
        let check = problem.check().executor(Cpu::with_threads(1)).method(Rmd::default());
        check.inner(InnerLoop::new(0.01, 2)).seed(5).run().unwrap()
    }

    #[test]
    fn derivatives_of_both_losses_are_those_of_differences() {
        for first in [FirstLoss::CrossEntropy, FirstLoss::Brier] {
            let model = MlpConfig::tanh([192, 4, 3]).build().unwrap();
            let forward: Forward<Mlp<Variable>> =
                Arc::new(|_, net: &Mlp<Tensor>, x: Tensor| net.forward(x.reshape([x.dim(0), 192])));
            let report = checked(&ingredients(model, forward, first, false).problem().unwrap());
            assert!(report.passed(1e-6), "{report}");
        }
    }

    #[test]
    fn derivatives_through_training_are_those_of_differences() {
        let features = vec![LayerConfig::same(3, 3, true), LayerConfig::same(4, 3, false)];
        let config = AlexNetConfig { image: [8, 8], channels: 3, features, hidden: vec![5], classes: 3 };
        let forward: Forward<AlexNet<Variable>> = Arc::new(|_, net: &AlexNet<Tensor>, x| net.forward(x));
        let alexnet = ingredients(config.build().unwrap(), forward, FirstLoss::CrossEntropy, false);
        let model = WideResNetConfig { stem: 4, ..WideResNetConfig::new(10, 1, 3) }.build().unwrap();
        let forward: Forward<WideResNet<Variable>> =
            Arc::new(|s, net: &WideResNet<Tensor>, x| net.forward(x, Statistics::Tracked(s)));
        let wide_resnet = ingredients(model, forward, FirstLoss::CrossEntropy, false);
        for problem in [alexnet.problem().unwrap(), wide_resnet.problem().unwrap()] {
            let report = checked(&problem);
            assert!(report.methods[0].training().unwrap().error < 1e-6, "{report}");
        }
    }

    #[test]
    fn a_plain_task_trains_with_cross_entropy_whatever_the_coefficients_are() {
        let features = vec![LayerConfig::same(3, 3, true)];
        let config = AlexNetConfig { image: [8, 8], channels: 3, features, hidden: vec![], classes: 3 };
        let forward: Forward<AlexNet<Variable>> = Arc::new(|_, net: &AlexNet<Tensor>, x| net.forward(x));
        let problem = ingredients(config.build().unwrap(), forward, FirstLoss::Brier, true).problem().unwrap();
        assert_eq!(problem.idle_hyperparameters().unwrap(), ["coefficients"]);
    }
}
