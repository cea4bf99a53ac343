//! The position of a step in the epochs: the minibatch of step t is places t·k … t·k + k−1 of all epochs, one after the
//! other.
//!
//!   t·k = e·n + o:   e the number of the epoch, o the place in it
//!
//! t·k may exceed every type here, so t = 2¹⁶·u + v is split into halves, with (2¹⁶·k) and k divided by n on the host.
//! The remaining numbers are below 2⁴⁸ and exact in 64-bit floats.

use bilevel_graph::{DType, Graph, Tensor};

/// The places of one minibatch.
pub(crate) struct Places {
    /// The epoch the minibatch begins in, an i32 scalar.
    pub epoch: Tensor,
    /// The place of each row in its epoch, in 64-bit floats.
    pub place: Tensor,
    /// 1 for a row of the epoch after; `None` if epochs end with a minibatch.
    pub next: Option<Tensor>,
}

impl Places {
    /// The position of a step (an i32 scalar), for minibatches of `size` from at least as many `rows`.
    pub fn new(graph: &Graph, step: Tensor, rows: usize, size: usize) -> Self {
        let n = rows as f64;
        let step = step.convert(DType::F64);
        let upper = (step * 2f64.powi(-16)).floor();
        let lower = step - upper * 2f64.powi(16);
        let divide = |times: u128| {
            let product = times * size as u128;
            ((product / rows as u128) as f64, (product % rows as u128) as f64)
        };
        let ((upper_whole, upper_rest), (lower_whole, lower_rest)) = (divide(1 << 16), divide(1));
        let rest = upper * upper_rest + lower * lower_rest;
        // Half a row from any border, the quotient's rounding cannot cross one.
        let more = ((rest + 0.5) * (1.0 / n)).floor();
        let epoch = (upper * upper_whole + lower * lower_whole + more).convert(DType::I32);
        let place = graph.iota([size], 0, DType::F64) + (rest - more * n);
        if rows.is_multiple_of(size) {
            return Places { epoch, place, next: None };
        }
        let next = place.greater_equal(n);
        Places { epoch, place: place - next * n, next: Some(next) }
    }
}
