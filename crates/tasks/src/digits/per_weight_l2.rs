//! Logistic regression on the digits with a separate L2 penalty for each of the 640 weights.
//!
//!   L_T = mean cross entropy of the training digits + Σ exp(λᵢⱼ)·wᵢⱼ²
//!   f   = mean cross entropy of the validation digits

use super::{CLASSES, Digits, PIXELS, Split};
use bilevel::graph::nn::{cross_entropy_rows, gaussian_prior};
use bilevel::splits::Part;
use bilevel::{DType, Problem, Result, Scope, Tensor, Tree, Variable};

/// The shape of the weights and of the penalties.
pub const SHAPE: [usize; 2] = [PIXELS, CLASSES];

/// λ: the logarithm of each weight's penalty.
#[derive(Clone, Tree)]
pub struct Penalty<T> {
    /// In the shape [`SHAPE`].
    pub log_strength: T,
}

/// θ: a linear classifier without bias.
#[derive(Clone, Tree)]
pub struct Classifier<T> {
    /// In the shape [`SHAPE`].
    pub weights: T,
}

/// A regularisation weight for every parameter.
pub type PerWeightL2 = Problem<Penalty<Variable>, Classifier<Variable>>;

/// The problem, with λ and weights as they are given, both in the shape [`SHAPE`]. Loss and accuracy on the test digits, and the
/// loss on the validation digits, are its measures.
///
/// ```
/// use bilevel::{DType, Variable};
/// use bilevel_tasks::digits::{SHAPE, Split, per_weight_l2};
/// let problem = per_weight_l2(
///     &Split::new(1),
///     DType::F32,
///     Variable::constant(SHAPE, -5.0),
///     Variable::constant(SHAPE, 0.0),
/// )?;
/// assert_eq!(problem.sizes(), (640, 640));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn per_weight_l2(split: &Split, dtype: DType, log_strength: Variable, weights: Variable) -> Result<PerWeightL2> {
    let parts = || [(Part::Train, &split.train), (Part::Validation, &split.validation), (Part::Test, &split.test)];
    let x = parts().map(|(part, digits)| Ok((part, digits.x()?))).into_iter().collect::<Result<Vec<_>>>()?;
    let y = parts().map(|(part, digits)| Ok((part, digits.y()?))).into_iter().collect::<Result<Vec<_>>>()?;
    let losses = |s: &Scope, t: &Classifier<Tensor>| cross_entropy_rows(s.data("x").matmul(t.weights), s.data("y"));
    Problem::builder(Penalty { log_strength }, Classifier { weights })
        .dtype(dtype)
        .parts("x", x)
        .parts("y", y)
        .inner(move |s, l, t| losses(s, t).mean_all() + (l.log_strength.exp() * t.weights.square()).sum_all())
        .outer_rows(move |s, _, t| losses(s, t))
        .measure("validation loss", move |s, _, t| losses(s, t).mean_all())
        .measure("test loss", move |s, _, t| losses(&s.part(Part::Test), t).mean_all())
        .measure("test accuracy", |s, _, t| {
            let s = s.part(Part::Test);
            share_right(s.data("x").matmul(t.weights), s.data("y"))
        })
        .build()
}

/// The fraction of rows whose largest score is that of their label.
pub(crate) fn share_right(scores: Tensor, labels: Tensor) -> Tensor {
    let dtype = scores.dtype();
    (-(scores.argmax(1).convert(dtype) - labels.convert(dtype)).abs()).greater(-0.5).mean_all()
}

/// The same penalties judged by the evidence of all n labelled digits, those for training and those for validation:
///
///   L_T = mean cross entropy + (1/n)·Σ −ln N(wᵢⱼ; 0, 1/(2n·exp(λᵢⱼ))),   at the temperature 1/n
///
/// so that λ is the logarithm of the same penalty exp(λ)·w² as before.
pub fn judged_by_evidence(split: &Split, dtype: DType, log_strength: Variable) -> Result<PerWeightL2> {
    let all = split.train.clone().and(&split.validation);
    let rows = all.len() as f64;
    let of = [Part::Train, Part::Test];
    let losses = |s: &Scope, t: &Classifier<Tensor>| cross_entropy_rows(s.data("x").matmul(t.weights), s.data("y"));
    Problem::builder(Penalty { log_strength }, Classifier { weights: Variable::constant(SHAPE, 0.0) })
        .dtype(dtype)
        .parts("x", of.into_iter().zip([all.x()?, split.test.x()?]))
        .parts("y", of.into_iter().zip([all.y()?, split.test.y()?]))
        .inner(move |s, l, t| {
            let prior = gaussian_prior(t.weights, l.log_strength.exp() * (2.0 * rows));
            losses(s, t).mean_all() + prior / rows
        })
        .outer_rows(move |s, _, t| losses(s, t))
        .evidence()
        .measure("test loss", move |s, _, t| losses(&s.part(Part::Test), t).mean_all())
        .measure("test accuracy", |s, _, t| {
            let s = s.part(Part::Test);
            share_right(s.data("x").matmul(t.weights), s.data("y"))
        })
        .build()
}

/// The largest curvature of the mean cross entropy at weights 0, where every class has the probability p = 1/10. This
/// is the largest eigenvalue of (p·I − p²·𝟙𝟙ᵀ) ⊗ XᵀX/n, that of XᵀX/n over 10, by power iteration.
///
/// ```
/// use bilevel_tasks::digits::{Digits, largest_curvature};
/// let curvature = largest_curvature(&Digits::all());
/// assert!(curvature > 0.5 && curvature < 2.0, "{curvature}");
/// ```
pub fn largest_curvature(digits: &Digits) -> f64 {
    let mut direction = [1.0; PIXELS];
    let mut size = f64::NAN;
    for _ in 0..100 {
        let mut image = [0.0; PIXELS];
        for digit in digits.pixels.chunks_exact(PIXELS) {
            let along: f64 = digit.iter().zip(direction).map(|(&pixel, d)| pixel as f64 * d).sum();
            image.iter_mut().zip(digit).for_each(|(sum, &pixel)| *sum += along * pixel as f64);
        }
        size = image.iter().map(|v| v * v).sum::<f64>().sqrt();
        direction = image.map(|v| v / size);
    }
    size / (digits.len() * CLASSES) as f64
}
