//! Losses.

use super::call::{Call, require};
use super::encode::hot_mask;
use super::softmax::{log_softmax, shifted};
use crate::DType;
use crate::autodiff::gauss_newton::{Sign, mark};
use crate::tensor::Tensor;

/// A value whose elements are convex functions of some tensors, such as the outputs of a model, marked for those who
/// take Gauss-Newton products of it ([`GaussNewton`](crate::GaussNewton)). The value itself is unchanged.
///
/// Sums of squares and the losses of this module need no such mark.
///
/// ```
/// use bilevel_graph::{DType, GaussNewton, Graph, nn};
/// let g = Graph::new();
/// let (w, x) = (g.input("w", [4], DType::F64), g.input("x", [4], DType::F64));
/// // ln cosh z, a smooth absolute value, is convex in z.
/// let z = (w * x).tanh();
/// let smooth = ((z.exp() + (-z).exp()) * 0.5).log();
/// let product = |loss| GaussNewton::new(loss, &[w]).unwrap();
/// assert!(!product(smooth.sum_all()).is_definite());
/// assert!(product(nn::convex_in(smooth, &[z]).sum_all()).is_definite());
/// ```
#[track_caller]
pub fn convex_in(value: Tensor, outputs: &[Tensor]) -> Tensor {
    // An error among the operands is reported at the use of the value.
    let _ = mark(value, outputs, Sign::Positive);
    value
}

/// mean (x − y)², a scalar.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let loss = nn::mse(g.constant(3.0, [2, 2], DType::F64), g.constant(1.0, [2, 2], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[loss]).unwrap()[0].item(), Some(4.0));
/// ```
#[track_caller]
pub fn mse(x: Tensor, y: Tensor) -> Tensor {
    let operands = [x, y];
    let call = Call::new("mse", &operands);
    require!(call, call.floats_of_one_type(), "both operands must be floats of one type");
    require!(call, x.shape() == y.shape(), "both operands must have one shape");
    call.done((x - y).square().mean_all())
}

/// The mean over all rows of −ln softmax(logits)\[label\], a scalar. See [`cross_entropy_rows`].
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let labels = g.input("labels", [5], DType::I32);
/// let loss = nn::cross_entropy(g.constant(0.0, [5, 4], DType::F64), labels);
/// let run = |labels_| Reference::evaluate(&g, &[(labels, labels_)], &[loss]);
/// let found = run(Array::labels(&[0.0, 1.0, 2.0, 3.0, 0.0], 4).unwrap()).unwrap();
/// assert!((found[0].item().unwrap() - 4f64.ln()).abs() < 1e-15);
/// assert!(run(Array::full([5], 4.0, DType::I32)).is_err(), "4 is not one of 4 classes");
/// ```
#[track_caller]
pub fn cross_entropy(logits: Tensor, labels: Tensor) -> Tensor {
    let operands = [logits, labels];
    let call = Call::new("cross_entropy", &operands);
    call.done(rows(&call, logits, labels).mean_all())
}

/// −ln softmax(logits)\[label\] for logits `[.., classes]` and i32 labels `[..]`: one loss per row, `[..]`, to be weighted
/// row by row.
///
/// A label that is not in `0..classes` makes the run fail. The derivative is softmax − one-hot, elementwise.
///
/// ```
/// use bilevel_graph::{DType, Graph, nn};
/// let g = Graph::new();
/// let (logits, labels) = (g.input("logits", [6, 3], DType::F32), g.input("labels", [6], DType::I32));
/// let weights = g.input("weights", [6], DType::F32);
/// let loss = (weights * nn::cross_entropy_rows(logits, labels)).sum_all();
/// assert_eq!(loss.check().unwrap().shape(), []);
/// ```
#[track_caller]
pub fn cross_entropy_rows(logits: Tensor, labels: Tensor) -> Tensor {
    let operands = [logits, labels];
    let call = Call::new("cross_entropy_rows", &operands);
    call.done(rows(&call, logits, labels))
}

/// ln Σe^z − z\[label\] with z = logits less their largest.
#[track_caller]
fn rows(call: &Call, logits: Tensor, labels: Tensor) -> Tensor {
    let shape = logits.shape();
    require!(call, logits.dtype().is_float(), "the logits must be floats");
    require!(call, labels.dtype() == DType::I32, "the labels must be i32");
    let fits = shape.split_last().is_some_and(|(_, lead)| labels.shape() == lead);
    require!(call, fits, "logits [.., classes] need labels [..]");
    let last = shape.len() - 1;
    let (z, _) = shifted(logits, last);
    let picked = hot_mask(labels, shape[last], logits.dtype()).select(z, 0.0).sum([last]);
    convex_in(z.exp().sum([last]).log() - picked, &[logits])
}

/// The mean over all rows of −Σ targets·ln softmax(logits), for targets that are probabilities: `[.., classes]` both.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let loss = nn::cross_entropy_soft(g.constant(0.0, [2, 4], DType::F64), g.constant(0.25, [2, 4], DType::F64));
/// let found = Reference::evaluate(&g, &[], &[loss]).unwrap()[0].item().unwrap();
/// assert!((found - 4f64.ln()).abs() < 1e-15);
/// ```
#[track_caller]
pub fn cross_entropy_soft(logits: Tensor, targets: Tensor) -> Tensor {
    let operands = [logits, targets];
    let call = Call::new("cross_entropy_soft", &operands);
    require!(call, call.floats_of_one_type(), "both operands must be floats of one type");
    require!(call, logits.rank() > 0 && logits.shape() == targets.shape(), "both must have one shape [.., classes]");
    let last = logits.rank() - 1;
    let shares = targets * log_softmax(logits, last);
    // An error among the operands is that of the call.
    let _ = mark(shares, &[logits], Sign::Negative);
    let rows = shares.sum([last]);
    call.done(-rows.mean_all())
}
