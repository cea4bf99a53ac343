//! im2col: the patches of images with channels first, as the operand of a matrix product.
//!
//!   P\[n, (c, r, s), (y, x)\] = image\[n, c, (y·stride + r·kernel_dilation − low) / image_dilation, …\]
//!
//! with zeros outside the image and between its elements; P\[(c, r, s), (n, y, x)\] for one matrix of all images.
//! Numbers of images and channels are arguments, so that layers with images of one size share kernels.

use crate::codegen::conv::direct::four;
use crate::codegen::data::copy::Elements;
use crate::codegen::kernel::{Code, Launch, c_type, reach};
use crate::codegen::limits::VECTOR;
use crate::codegen::renderer::Dialect;
use bilevel_graph::{ConvDims, DType};
use bilevel_plan::Place;

/// Patches of a view `[n, channels, h, w]`.
pub struct Patches<'a> {
    /// The images.
    pub image: Elements<'a>,
    /// Their type.
    pub dtype: DType,
    /// The convolution.
    pub dims: &'a ConvDims,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Height and width of a result.
    pub out: [usize; 2],
    /// Whether all images are one matrix.
    pub together: bool,
}

impl Patches<'_> {
    /// Returns the number of their elements.
    pub fn count(&self) -> usize {
        let [n, c, ..] = four(&self.image.view.shape);
        n * c * self.kernel.iter().chain(&self.out).product::<usize>()
    }

    /// Returns the im2col kernel.
    pub fn im2col(&self, dialect: Dialect, to: Place) -> Launch {
        let Patches { image, dtype, dims, kernel: [kh, kw], out: [oy, ox], together } = *self;
        let [n, c, h, w] = four(&image.view.shape);
        let [of_image, of_channel, of_row, of_column] = image.view.strides[..] else { unreachable!("four axes") };
        let (plane, t) = (oy * ox, c_type(dtype));
        let lanes = if dtype == DType::F32 && ox.is_multiple_of(VECTOR) { VECTOR } else { 1 };
        let count = self.count() / lanes;
        let mut code = Code::new(dialect);
        code.reaches(self.count().max(reach(&image.view.runs())));
        code.each(count);
        let (from, to) = (code.input(image.place, dtype, image.view.offset), code.output(to, dtype, 0));
        code.line(format!("const U i = e * {lanes};"));
        let at = |apart: usize, length: usize| format!("(I)(i / {apart} % {length})");
        let (in_row, in_column) = (at(plane, kw), at(plane * kw, kh));
        code.line(format!("const I x = {}, y = {}, s = {in_row}, r = {in_column};", at(1, ox), at(ox, oy)));
        let ([sy, sx], [ky, kx], [dy, dx]) = (dims.stride, dims.kernel_dilation, dims.image_dilation);
        let [(top, _), (left, _)] = dims.padding;
        code.line(format!("const I u = y * {sy} + r * {ky} - ({top}), v = x * {sx} + s * {kx} - ({left});"));
        code.line(format!("{t} p[{lanes}];"));
        let (channel_apart, place_apart) = if together { (plane, n * plane) } else { (c * kh * kw * plane, plane) };
        let [channels, image_apart, place_apart] =
            [c, channel_apart, place_apart].map(|number| code.count(number as u64));
        code.line(format!("const U channel = i / {};", plane * kh * kw));
        let first = match of_image == c as isize * of_channel {
            true => format!("(I)channel * {of_channel}"),
            false => format!("(I)(channel / {channels}) * {of_image} + (I)(channel % {channels}) * {of_channel}"),
        };
        let inside = |place: &str, spread: usize, length: usize| match spread {
            1 => format!("{place} >= 0 && {place} < {length}"),
            _ => format!("{place} >= 0 && {place} % {spread} == 0 && {place} / {spread} < {length}"),
        };
        let row = format!("u / {dy} * {of_row}");
        code.line(format!("const I row = {first} + {row};"));
        code.line(format!("const bool inside = {};", inside("u", dy, h)));
        let column = format!("(v + j * {sx})");
        let value = format!("{from}[row + {column} / {dx} * {of_column}]");
        code.lanes(lanes, format!("p[j] = inside && {} ? {value} : {t}(0);", inside(&column, dx, w)));
        let term = format!("(channel % {channels} * {} + (U)(r * {kw} + s))", kh * kw);
        let at = format!("channel / {channels} * {image_apart} + {term} * {place_apart} + (U)(y * {ox} + x)");
        code.line(format!("store<{t}, {lanes}>({to} + ({at}), p);"));
        code.launch_each(count)
    }
}
