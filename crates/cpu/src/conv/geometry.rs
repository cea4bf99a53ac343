//! The geometry of a convolution, without the dilation of the image.
//!
//! A dilated image is mostly zeros. Along one axis, output y meets tap t at place y·stride + t·kernel_dilation − low of
//! the dilated image, which holds an element only if image_dilation divides it. Outputs of one residue class meet an
//! arithmetic progression of taps, so the convolution falls into classes ("phases"), each a convolution of the dense
//! image.

use std::ops::Range;

/// One spatial axis of a dense convolution: output y meets tap t at image place start + y·stride + t·dilation, which
/// counts as 0 outside 0..size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Number of outputs.
    pub out: usize,
    /// Place of the first output, and distance between outputs, in the whole output.
    pub out_at: (usize, usize),
    /// Number of taps.
    pub taps: usize,
    /// Place of the first tap, and distance between taps, in the whole kernel.
    pub tap_at: (usize, usize),
    /// Image place of the first output and tap.
    pub start: isize,
    /// Image step by output.
    pub stride: isize,
    /// Image step by tap.
    pub dilation: isize,
    /// Image elements.
    pub size: isize,
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Axis {
    /// The classes of an axis. `low` is the padding before the first element.
    pub(crate) fn phases(
        (out, size, taps): (usize, usize, usize),
        stride: usize,
        low: i64,
        image_dilation: usize,
        kernel_dilation: usize,
    ) -> Vec<Axis> {
        let d = image_dilation;
        // Outputs `period` apart meet the same taps; taps `every` apart meet the same outputs.
        let (period, every) = (d / gcd(stride, d), d / gcd(kernel_dilation, d));
        (0..period.min(out))
            .map(|y| {
                let place = |t: usize| (y * stride + t * kernel_dilation) as i64 - low;
                let first = (0..every.min(taps)).find(|&t| place(t).rem_euclid(d as i64) == 0);
                Axis {
                    out: (out - y).div_ceil(period),
                    out_at: (y, period),
                    taps: first.map_or(0, |t| (taps - t).div_ceil(every)),
                    tap_at: (first.unwrap_or(0), every),
                    start: first.map_or(0, |t| place(t) / d as i64) as isize,
                    stride: (period * stride / d) as isize,
                    dilation: (every * kernel_dilation / d) as isize,
                    size: size as isize,
                }
            })
            .collect()
    }

    /// The outputs whose tap `t` lies inside the image.
    pub(crate) fn inside(&self, t: usize) -> Range<usize> {
        let base = self.start + t as isize * self.dilation;
        let low = if base < 0 { (-base + self.stride - 1) / self.stride } else { 0 };
        let high = if base < self.size { (self.size - 1 - base).div_euclid(self.stride) + 1 } else { 0 };
        let high = (high.max(0) as usize).min(self.out);
        (low as usize).min(high)..high
    }

    /// Image place of an output and a tap; none outside the image.
    pub(crate) fn place(&self, y: usize, t: usize) -> Option<isize> {
        let at = self.start + y as isize * self.stride + t as isize * self.dilation;
        (0..self.size).contains(&at).then_some(at)
    }
}

/// A dense convolution: one class of rows and of columns. Strides are of the class.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    /// Channel groups.
    pub groups: usize,
    /// Images.
    pub n: usize,
    /// Image channels of a group.
    pub c: usize,
    /// Output channels of a group.
    pub o: usize,
    /// Vertical axis.
    pub y: Axis,
    /// Horizontal axis.
    pub x: Axis,
    /// Strides of image, channel, row, column.
    pub image: [isize; 4],
    /// First kernel element of the class.
    pub kernel_at: isize,
    /// Strides of output channel, channel, row, column of the class.
    pub kernel: [isize; 4],
    /// First output element of the class.
    pub out_at: isize,
    /// Strides of image, output channel, row, column of the class.
    pub out: [isize; 4],
}

impl Core {
    /// Terms in each sum.
    pub(crate) fn terms(&self) -> usize {
        self.c * self.y.taps * self.x.taps
    }

    /// Output elements of a group and an output channel.
    pub(crate) fn pixels(&self) -> usize {
        self.n * self.y.out * self.x.out
    }

    /// Offsets of a group in image, kernel and output.
    pub(crate) fn group(&self, g: usize) -> (isize, isize, isize) {
        let (c, o) = ((g * self.c) as isize, (g * self.o) as isize);
        (c * self.image[1], self.kernel_at + o * self.kernel[0], self.out_at + o * self.out[1])
    }
}
