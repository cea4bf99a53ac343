//! The share of rows whose label ranks high enough.

use super::call::{Call, require};
use crate::DType;
use crate::tensor::Tensor;

/// The share of rows whose largest logit is that of their label, a scalar in \[0, 1\] of the logits' type: for logits
/// `[.., classes]` and i32 labels `[..]`.
///
/// Among equal logits the first ranks first, as for [`argmax`](Tensor::argmax), and a NaN ranks ahead of every number.
/// A row with a NaN is therefore never right, so a network that has diverged scores 0. A label that is not in
/// `0..classes` makes the run fail. It has no derivative.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (logits, labels) = (g.input("logits", [4, 3], DType::F64), g.input("labels", [4], DType::I32));
/// let rows = [[0.1, 0.9, 0.0], [0.7, 0.2, 0.1], [0.0, 0.3, 0.7], [0.2, 0.5, 0.3]];
/// let point = [
///     (logits, Array::from_f64([4, 3], rows.concat())?),
///     (labels, Array::labels(&[1.0, 0.0, 2.0, 2.0], 3)?),
/// ];
/// let found = Reference::evaluate(&g, &point, &[nn::accuracy(logits, labels)])?;
/// assert_eq!(found[0].item(), Some(0.75));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[track_caller]
pub fn accuracy(logits: Tensor, labels: Tensor) -> Tensor {
    let operands = [logits, labels];
    let call = Call::new("accuracy", &operands);
    call.done(share(&call, logits, labels, 1))
}

/// The share of rows whose label is among the `k` classes of the largest logits, a scalar in \[0, 1\] of the logits'
/// type. Logits are `[.., classes]`, labels i32 `[..]`, and k is in `1..=classes`. With k = 1 it is [`accuracy`].
///
/// Among equal logits the first ranks first, and a NaN ranks ahead of every number; a label whose own logit is NaN is
/// never right.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (logits, labels) = (g.input("logits", [2, 3], DType::F64), g.input("labels", [2], DType::I32));
/// let point = [
///     (logits, Array::from_f64([2, 3], vec![0.5, 0.3, 0.2, 0.5, 0.3, 0.2])?),
///     (labels, Array::labels(&[1.0, 2.0], 3)?),
/// ];
/// let shares = [1, 2, 3].map(|k| nn::top_k_accuracy(logits, labels, k));
/// let found = Reference::evaluate(&g, &point, &shares)?;
/// assert_eq!([0, 1, 2].map(|i| found[i].item().unwrap()), [0.0, 0.5, 1.0]);
/// assert!(nn::top_k_accuracy(logits, labels, 4).check().is_err(), "there are 3 classes");
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[track_caller]
pub fn top_k_accuracy(logits: Tensor, labels: Tensor, k: usize) -> Tensor {
    let operands = [logits, labels];
    let call = Call::new("top_k_accuracy", &operands);
    call.done(share(&call, logits, labels, k))
}

/// mean over rows of \[#{j : j does not rank ahead of the label} > classes − k\], with j not ahead of the label y if
/// z\[j\] < z\[y\], or z\[j\] = z\[y\] and j ≥ y. Both are false for a NaN.
#[track_caller]
fn share(call: &Call, logits: Tensor, labels: Tensor, k: usize) -> Tensor {
    let (shape, dtype) = (logits.shape(), logits.dtype());
    require!(call, dtype.is_float(), "the logits must be floats");
    require!(call, labels.dtype() == DType::I32, "the labels must be i32");
    let Some((&classes, lead)) = shape.split_last().filter(|(_, lead)| labels.shape() == *lead) else {
        return call.refuse("logits [.., classes] need labels [..]".into());
    };
    require!(call, (1..=classes).contains(&k), "k must be in 1..={classes}, the number of classes, not {k}");
    require!(call, !labels.is_empty(), "the accuracy of no rows is undefined");
    let last = lead.len();
    let label = labels.check_index(classes).broadcast((0..last).collect::<Vec<_>>(), &shape);
    let class = label.iota_like(last);
    let own = class.equal(label).select(logits, 0.0).sum([last]).unsqueeze([last]);
    let not_before = class.greater_equal(label).convert(dtype);
    let behind = logits.less(own) + logits.equal(own) * not_before;
    let right = behind.sum([last]).greater((classes - k) as f64);
    // Divided, so that n of n is 1 for every n.
    right.sum_all() / labels.len() as f64
}
