//! The problem of any network.
//!
//!   L_T = the polynomial with coefficients λ of a batch of training pictures
//!   f   = cross entropy of a batch of validation pictures

use super::polynomial::polynomial;
use crate::photographs::{batch_of, error, pixels};
use bilevel::graph::nn::{cross_entropy, one_hot, softmax};
use bilevel::graph::tree::TreeOf;
use bilevel::{DType, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_data::prepare::Normalisation;
use bilevel_data::{LabelledImages, augment};
use std::sync::Arc;

/// Zeros around a picture before it is cut to its size at a random place.
const PADDING: usize = 4;

/// The numbers that no loss looks at.
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

/// Everything the problem is made of.
pub(super) struct Ingredients<M: Tree> {
    pub model: M,
    pub forward: Forward<M>,
    pub parts: Parts,
    pub normalisation: Option<Normalisation>,
    pub coefficients: Variable,
    pub batch: usize,
    pub augment: bool,
    /// Train with cross entropy, whatever λ is.
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
        let mut problem = Problem::new(Loss { coefficients: self.coefficients }, model).dtype(dtype);
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
            polynomial(lambda.coefficients, softmax(logits, 1), one_hot(y, classes, dtype))
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
