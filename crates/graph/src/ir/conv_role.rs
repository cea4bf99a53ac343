//! The role of a convolution: which arrays of y = x * w its operands and its result are.
//!
//! Every derivative of a convolution is a convolution of two of the three arrays x, w and y, or of cotangents in their
//! place, that gives the third:
//!
//!   fprop y = x * w,    dgrad x̄ = ȳ * w reversed,    wgrad w̄ = x * ȳ
//!
//! A rule of differentiation replaces the array it differentiates by the result's cotangent, so the role of a derivative
//! follows from that of its convolution, at every order.

use crate::ir::op::ConvDims;

/// An array of a convolution y = x * w.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ConvArray {
    /// The image, the only array whose elements are never spread.
    X,
    /// The kernel.
    W,
    /// The result.
    Y,
}

/// The pass of a convolution: which of the three arrays is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConvPass {
    /// Computes y from x and w.
    Fprop,
    /// Computes x from y and w.
    Dgrad,
    /// Computes w from x and y.
    Wgrad,
}

/// The arrays that the operands of a convolution stand for; its result stands for the third.
///
/// ```
/// use bilevel_graph::{ConvPass, ConvRole};
/// let (dgrad, wgrad) = (ConvRole::FPROP.of_image(), ConvRole::FPROP.of_kernel());
/// assert_eq!([dgrad, wgrad].map(ConvRole::pass), [ConvPass::Dgrad, ConvPass::Wgrad]);
/// assert_eq!(dgrad.of_image(), ConvRole::FPROP);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ConvRole {
    image: ConvArray,
    kernel: ConvArray,
}

impl ConvRole {
    /// The convolution itself.
    pub const FPROP: ConvRole = ConvRole { image: ConvArray::X, kernel: ConvArray::W };

    /// Returns the role of a convolution that is no derivative: x is the first of image, result and kernel that is not
    /// spread.
    pub(crate) fn written(dims: &ConvDims) -> Self {
        let roles = [ConvRole::FPROP, ConvRole::FPROP.of_image(), ConvRole::FPROP.exchanged()];
        roles.into_iter().find(|role| role.fits(dims)).unwrap_or(ConvRole::FPROP)
    }

    /// Returns the array that is computed.
    pub fn result(self) -> ConvArray {
        let is_free = |array: &ConvArray| ![self.image, self.kernel].contains(array);
        [ConvArray::X, ConvArray::W, ConvArray::Y].into_iter().find(is_free).unwrap_or(ConvArray::Y)
    }

    /// Returns the pass.
    pub fn pass(self) -> ConvPass {
        match self.result() {
            ConvArray::X => ConvPass::Dgrad,
            ConvArray::W => ConvPass::Wgrad,
            ConvArray::Y => ConvPass::Fprop,
        }
    }

    /// Returns the role of the convolution that computes the cotangent of the image operand from that of the result.
    pub fn of_image(self) -> Self {
        ConvRole { image: self.result(), kernel: self.kernel }
    }

    /// Returns the role of the convolution that computes the cotangent of the kernel operand.
    pub fn of_kernel(self) -> Self {
        ConvRole { image: self.image, kernel: self.result() }
    }

    /// Returns the role with its operands exchanged.
    pub fn exchanged(self) -> Self {
        ConvRole { image: self.kernel, kernel: self.image }
    }

    /// Returns true if x is not spread, or all three arrays are.
    pub fn fits(self, dims: &ConvDims) -> bool {
        let spacings =
            [(self.image, dims.image_dilation), (self.kernel, dims.kernel_dilation), (self.result(), dims.stride)];
        let dense = |(_, spacing): &(ConvArray, [usize; 2])| *spacing == [1, 1];
        !spacings.iter().any(dense) || spacings.iter().any(|spacing| spacing.0 == ConvArray::X && dense(spacing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derivatives_of_any_role_compute_the_array_they_are_taken_for() {
        let mut roles = vec![ConvRole::FPROP];
        for order in 0..4 {
            for role in std::mem::take(&mut roles) {
                for (derivative, array) in [(role.of_image(), role.image), (role.of_kernel(), role.kernel)] {
                    assert_eq!(derivative.result(), array, "order {order}");
                    assert_eq!(derivative.exchanged().pass(), derivative.pass());
                    roles.extend([derivative, derivative.exchanged()]);
                }
            }
        }
        let mut all = roles.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
    }
}
