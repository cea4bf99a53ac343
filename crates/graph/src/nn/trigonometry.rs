//! Inverse trigonometric functions, by the arc tangent.

use super::call::{Call, require};
use crate::tensor::Tensor;
use std::f64::consts::{FRAC_PI_2, PI};

/// arcsin x, between −π/2 and π/2; NaN outside [−1, 1]: 2·arctan(x/(1 + √(1 − x²))).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::asin(g.constant(-1.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y])?[0].item(), Some(-std::f64::consts::FRAC_PI_2));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[track_caller]
pub fn asin(x: Tensor) -> Tensor {
    // As a product, 1 − x² keeps its digits near ±1.
    let adjacent = ((1.0 - x) * (x + 1.0)).sqrt();
    Call::new("asin", &[x]).done((x / (adjacent + 1.0)).atan() * 2.0)
}

/// arccos x, between 0 and π; NaN outside [−1, 1]: 2·arctan √((1 − x)/(1 + x)).
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let y = nn::acos(g.constant(-1.0, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[y])?[0].item(), Some(std::f64::consts::PI));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[track_caller]
pub fn acos(x: Tensor) -> Tensor {
    Call::new("acos", &[x]).done(((1.0 - x) / (x + 1.0)).sqrt().atan() * 2.0)
}

/// The angle of the point (x, y) to the first axis, between −π and π, with the signs of zeros and the infinities of IEEE 754.
///
/// Its derivative is (x·dy − y·dx)/(x² + y²); at the origin it is dy.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let [y, x] = [1.0, -1.0].map(|v| g.constant(v, [], DType::F64));
/// assert_eq!(Reference::evaluate(&g, &[], &[nn::atan2(y, x)])?[0].item(), Some(0.75 * std::f64::consts::PI));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[track_caller]
pub fn atan2(y: Tensor, x: Tensor) -> Tensor {
    let operands = [y, x];
    let call = Call::new("atan2", &operands);
    require!(call, call.floats_of_one_type(), "both coordinates must be floats of one type");
    // A negative zero counts as negative.
    let is_negative = |t: Tensor| t.less(0.0).maximum(t.recip().less(0.0));
    let steep = x.abs().less(y.abs());
    let (shorter, longer) = (steep.select(x, y), steep.select(y, x));
    // A ratio of at most 1 in size: neither its value nor its derivative overflows. At the origin it is y, of two infinities ±1.
    let is_infinite = shorter.abs().equal(f64::INFINITY);
    let ratio = is_infinite.select(shorter.sign() * longer.sign(), shorter / longer.equal(0.0).select(1.0, longer));
    let angle = ratio.atan();
    let side = is_negative(y).select(-1.0, y.ones_like());
    let flat = is_negative(x).select(angle + side * PI, angle);
    call.done(steep.select(side * FRAC_PI_2 - angle, flat))
}
