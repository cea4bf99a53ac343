//! Normalisation over features, groups of channels, or the batch.

use crate::nn::call::{Call, require};
use crate::tensor::Tensor;

/// c/√(mean c² + eps) with c = x − mean x over `axes`.
#[track_caller]
fn standardised(x: Tensor, axes: &[usize], eps: f64) -> Tensor {
    let centred = x - x.mean(axes).unsqueeze(axes);
    let scale = (centred.square().mean(axes) + eps).sqrt().recip();
    centred * scale.unsqueeze(axes)
}

/// c/√(mean c² + eps)·gain + bias with c = x − mean x, over the last axes of x, as many as `gain` and `bias` have.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.input("x", [1, 2], DType::F64);
/// let (gain, bias) = (g.constant(2.0, [2], DType::F64), g.constant(1.0, [2], DType::F64));
/// let value = Array::from_f64([1, 2], vec![5.0, 9.0]).unwrap();
/// let y = Reference::evaluate(&g, &[(x, value)], &[nn::layer_norm(x, gain, bias, 0.0)]).unwrap();
/// assert_eq!(y[0].to_f64(), [-1.0, 3.0]);
/// ```
#[track_caller]
pub fn layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: f64) -> Tensor {
    let operands = [x, gain, bias];
    let call = Call::new("layer_norm", &operands);
    let (shape, own) = (x.shape(), gain.shape());
    require!(call, call.floats_of_one_type(), "all operands must be floats of one type");
    let fits = !own.is_empty() && shape.ends_with(&own) && bias.shape() == own && !gain.is_empty();
    require!(call, fits, "gain and bias must have the shape of the last axes of x");
    let axes: Vec<usize> = (shape.len() - own.len()..shape.len()).collect();
    call.done(standardised(x, &axes, eps) * gain + bias)
}

/// The result of [`batch_norm`].
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    /// The normalised tensor, in the shape of x.
    pub y: Tensor,
    /// Mean over batch and positions, `[c]`.
    pub mean: Tensor,
    /// Mean squared distance from the mean, `[c]`, as it normalised x. For an unbiased estimate multiply it by m/(m − 1)
    /// for m averaged elements.
    pub variance: Tensor,
}

/// (x − mean)/√(variance + eps)·gain + bias for x `[n, c, ..]`, gain and bias `[c]`, with mean and variance of this batch
/// over all axes but the second. Derivatives flow through both; take [`Tensor::stop_gradient`] of them to keep running
/// averages for [`batch_norm_frozen`].
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.input("x", [2, 1], DType::F64);
/// let (gain, bias) = (g.constant(1.0, [1], DType::F64), g.constant(0.0, [1], DType::F64));
/// let norm = nn::batch_norm(x, gain, bias, 0.0);
/// let value = Array::from_f64([2, 1], vec![5.0, 9.0]).unwrap();
/// let found = Reference::evaluate(&g, &[(x, value)], &[norm.y, norm.mean, norm.variance]).unwrap();
/// assert_eq!(found[0].to_f64(), [-1.0, 1.0]);
/// assert_eq!((found[1].item(), found[2].item()), (Some(7.0), Some(4.0)));
/// ```
#[track_caller]
pub fn batch_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: f64) -> BatchNorm {
    let operands = [x, gain, bias];
    let call = Call::new("batch_norm", &operands);
    if let Some(y) = refused_channels(&call, x) {
        return BatchNorm { y, mean: y, variance: y };
    }
    let axes: Vec<usize> = (0..x.rank()).filter(|&a| a != 1).collect();
    let mean = x.mean(&axes);
    let centred = x - along_channels(mean, x);
    let variance = centred.square().mean(&axes);
    let scale = gain * (variance + eps).sqrt().recip();
    let y = call.done(centred * along_channels(scale, x) + along_channels(bias, x));
    BatchNorm { y, mean: call.done(mean), variance: call.done(variance) }
}

/// (x − mean)/√(variance + eps)·gain + bias for x `[n, c, ..]` with statistics `[c]` given, such as running averages.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let [mean, variance, gain, bias] = [1.0, 4.0, 10.0, 0.5].map(|v| g.constant(v, [3], DType::F64));
/// let y = nn::batch_norm_frozen(g.constant(3.0, [2, 3], DType::F64), mean, variance, gain, bias, 0.0);
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [10.5; 6]);
/// ```
#[track_caller]
pub fn batch_norm_frozen(x: Tensor, mean: Tensor, variance: Tensor, gain: Tensor, bias: Tensor, eps: f64) -> Tensor {
    let operands = [x, mean, variance, gain, bias];
    let call = Call::new("batch_norm_frozen", &operands);
    if let Some(refused) = refused_channels(&call, x) {
        return refused;
    }
    // One product and one sum per element: everything else is done once per channel.
    let scale = gain * (variance + eps).sqrt().recip();
    call.done(x * along_channels(scale, x) + along_channels(bias - mean * scale, x))
}

/// (x − mean)/√(variance + eps)·gain + bias for x `[n, c, ..]`, gain and bias `[c]`, with mean and variance of each
/// example over each of `groups` equal runs of channels and all positions.
///
/// ```
/// use bilevel_graph::{Array, DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.input("x", [1, 4, 1], DType::F64);
/// let (gain, bias) = (g.constant(1.0, [4], DType::F64), g.constant(0.0, [4], DType::F64));
/// let value = Array::from_f64([1, 4, 1], vec![1.0, 3.0, 30.0, 10.0]).unwrap();
/// let y = Reference::evaluate(&g, &[(x, value)], &[nn::group_norm(x, 2, gain, bias, 0.0)]).unwrap();
/// assert_eq!(y[0].to_f64(), [-1.0, 1.0, 1.0, -1.0]);
/// ```
#[track_caller]
pub fn group_norm(x: Tensor, groups: usize, gain: Tensor, bias: Tensor, eps: f64) -> Tensor {
    let operands = [x, gain, bias];
    let call = Call::new("group_norm", &operands);
    if let Some(refused) = refused_channels(&call, x) {
        return refused;
    }
    let (shape, channels) = (x.shape(), x.dim(1));
    require!(call, groups > 0 && channels.is_multiple_of(groups), "{channels} channels do not make {groups} groups");
    let rows = x.reshape([shape[0], groups, x.len() / (shape[0] * groups)]);
    let y = standardised(rows, &[2], eps).reshape(&shape);
    call.done(y * along_channels(gain, x) + along_channels(bias, x))
}

/// An error if the first operand is not a nonempty `[n, c, ..]` or the others are not `[c]`.
#[track_caller]
fn refused_channels(call: &Call, x: Tensor) -> Option<Tensor> {
    if !call.floats_of_one_type() {
        return Some(call.refuse("all operands must be floats of one type".into()));
    }
    let fits = x.rank() >= 2 && call.operands[1..].iter().all(|t| t.shape() == [x.dim(1)]);
    if !fits || x.is_empty() {
        return Some(call.refuse("needs x [n, c, ..] with elements, and [c] for each of the others".into()));
    }
    None
}

/// A `[c]` tensor as `[c, 1, ..]`, ready to broadcast against x `[n, c, ..]`.
#[track_caller]
fn along_channels(values: Tensor, x: Tensor) -> Tensor {
    let mut shape = vec![1; x.rank() - 1];
    shape[0] = values.dim(0);
    values.reshape(shape)
}
