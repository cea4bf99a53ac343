//! Pooling of images over windows and over the whole.

use super::conv::both_sides;
use crate::ir::graph::bypass;
use crate::ir::op::{ConvDims, WindowDims};
use crate::nn::activation::{before_relu, relu};
use crate::nn::call::{Call, require};
use crate::tensor::Tensor;

/// Windows of [`max_pool2d`] and [`avg_pool2d`], each pair by height and width. Places beyond the last whole window are
/// left out.
///
/// ```
/// use bilevel_graph::nn::Pool2d;
/// let overlapping = Pool2d { stride: [2, 2], padding: [1, 1], ..Pool2d::of([3, 3]) };
/// assert_eq!(Pool2d::of([3, 3]).stride, [3, 3]);
/// assert!(overlapping.count_include_pad);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Window size.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Padding on both sides, at most half a window: zeros for averages, never chosen as a largest.
    pub padding: [usize; 2],
    /// Whether an average counts padded places.
    pub count_include_pad: bool,
}

impl Pool2d {
    /// Windows of this size side by side, without padding.
    pub fn of(kernel: [usize; 2]) -> Self {
        Pool2d { kernel, stride: kernel, padding: [0, 0], count_include_pad: true }
    }

    /// Output length along each spatial axis of x, or why the windows do not fit it.
    fn output(&self, x: Tensor) -> Result<[usize; 2], String> {
        if x.rank() != 4 || !x.dtype().is_float() {
            return Err("needs a float image [n, c, h, w]".into());
        }
        let mut lengths = [0; 2];
        for (i, length) in lengths.iter_mut().enumerate() {
            let (size, stride, padding) = (self.kernel[i], self.stride[i], self.padding[i]);
            if size == 0 || stride == 0 || padding > size / 2 {
                return Err("needs windows and strides of at least 1 and padding of at most half a window".into());
            }
            let room = x.dim(2 + i).checked_add(2 * padding).and_then(|whole| whole.checked_sub(size));
            *length = room.map(|room| room / stride + 1).filter(|_| x.dim(2 + i) > 0).ok_or_else(|| {
                format!("a window of {size} does not fit {} with padding {padding} on both sides", x.dim(2 + i))
            })?;
        }
        Ok(lengths)
    }
}

/// The largest element of every window over the last two axes of x `[n, c, h, w]`. If several are equal, the derivative
/// goes to the first in row-major order.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.iota([1, 1, 1, 5], 3, DType::F64);
/// let y = nn::max_pool2d(x, nn::Pool2d::of([1, 2]));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [1.0, 3.0]);
/// ```
#[track_caller]
pub fn max_pool2d(x: Tensor, windows: Pool2d) -> Tensor {
    let operands = [x];
    let call = Call::new("max_pool2d", &operands);
    let [height, width] = match windows.output(x) {
        Ok(lengths) => lengths,
        Err(reason) => return call.refuse(reason),
    };
    let dims = WindowDims {
        size: windows.kernel,
        stride: windows.stride,
        padding: windows.padding.map(|padding| (padding, padding)),
    };
    // Taking the largest and cutting at 0 commute, for values and for derivatives of every order (if the largest is not
    // above 0, both give 0), and after pooling there is less to cut.
    if let Some(y) = before_relu(x) {
        let pooled = relu(max_pool2d(y, windows));
        bypass(x, pooled);
        return call.done(pooled);
    }
    let (n, c) = (x.dim(0), x.dim(1));
    let chosen = x.stop_gradient().window_argmax(dims).reshape([n * c, height * width]);
    let planes = x.reshape([n * c, x.dim(2) * x.dim(3)]);
    call.done(planes.gather(chosen, 1).reshape([n, c, height, width]))
}

/// The mean of every window over the last two axes of x `[n, c, h, w]`; padded places are zeros, counted or not as
/// [`Pool2d::count_include_pad`] says.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let x = g.iota([1, 1, 1, 5], 3, DType::F64);
/// let y = nn::avg_pool2d(x, nn::Pool2d { stride: [1, 2], ..nn::Pool2d::of([1, 3]) });
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [1.0, 3.0]);
/// ```
#[track_caller]
pub fn avg_pool2d(x: Tensor, windows: Pool2d) -> Tensor {
    let operands = [x];
    let call = Call::new("avg_pool2d", &operands);
    let lengths = match windows.output(x) {
        Ok(lengths) => lengths,
        Err(reason) => return call.refuse(reason),
    };
    let sums = if windows.stride == windows.kernel {
        side_by_side_sums(x, &windows, lengths)
    } else {
        // One channel at a time with a kernel of ones.
        let dims = ConvDims { stride: windows.stride, padding: windows.padding.map(both_sides), ..Default::default() };
        let ones = x.constant_like(1.0, [1, 1, windows.kernel[0], windows.kernel[1]]);
        let planes = x.reshape([x.dim(0) * x.dim(1), 1, x.dim(2), x.dim(3)]);
        planes.conv(ones, dims).reshape([x.dim(0), x.dim(1), lengths[0], lengths[1]])
    };
    if windows.count_include_pad || windows.padding == [0, 0] {
        return call.done(sums * (1.0 / (windows.kernel[0] * windows.kernel[1]) as f64));
    }
    let rows = counts(x, &windows, 0, lengths[0]).reshape([lengths[0], 1]);
    let columns = counts(x, &windows, 1, lengths[1]).reshape([1, lengths[1]]);
    call.done(sums * (rows * columns).recip())
}

/// Sums of windows that touch without overlapping: cut each spatial axis into (window, place inside), sum the places.
#[track_caller]
fn side_by_side_sums(x: Tensor, windows: &Pool2d, lengths: [usize; 2]) -> Tensor {
    let mut image = x;
    for (i, length) in lengths.into_iter().enumerate() {
        let (axis, low, whole) = (2 + i, windows.padding[i], length * windows.kernel[i]);
        let present = x.dim(axis).min(whole - low);
        image = image.slice(axis, 0, present).pad(axis, low, whole - low - present);
    }
    let [kh, kw] = windows.kernel;
    image.reshape([x.dim(0), x.dim(1), lengths[0], kh, lengths[1], kw]).sum([3, 5])
}

/// How many places of each window along a spatial axis lie inside the image.
#[track_caller]
fn counts(x: Tensor, windows: &Pool2d, i: usize, length: usize) -> Tensor {
    let start = x.constant_like(0.0, [length]).iota_like(0) * windows.stride[i] as f64 - windows.padding[i] as f64;
    let stop = start + windows.kernel[i] as f64;
    stop.minimum(x.dim(2 + i) as f64) - start.maximum(0.0)
}

/// The mean over height and width of x `[n, c, h, w]`: `[n, c]`.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::global_avg_pool2d(g.iota([1, 1, 1, 3], 3, DType::F64));
/// assert!((Reference::evaluate(&g, &[], &[y]).unwrap()[0].item().unwrap() - 1.0).abs() < 1e-15);
/// ```
#[track_caller]
pub fn global_avg_pool2d(x: Tensor) -> Tensor {
    let operands = [x];
    let call = Call::new("global_avg_pool2d", &operands);
    require!(call, x.rank() == 4 && x.dtype().is_float(), "needs a float image [n, c, h, w]");
    call.done(x.mean([2, 3]))
}

/// The largest over height and width of x `[n, c, h, w]`: `[n, c]`. If several are equal, the derivative goes to the
/// first.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::global_max_pool2d(g.iota([1, 1, 1, 3], 3, DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].item(), Some(2.0));
/// ```
#[track_caller]
pub fn global_max_pool2d(x: Tensor) -> Tensor {
    let operands = [x];
    let call = Call::new("global_max_pool2d", &operands);
    let fits = x.rank() == 4 && x.dtype().is_float() && x.dim(2) * x.dim(3) > 0;
    require!(call, fits, "needs a float image [n, c, h, w] with at least one place");
    call.done(x.max([2, 3]))
}
