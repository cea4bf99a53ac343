//! im2col and col2im kernels for convolutions as a single matrix product.
//!
//! With channels first, P\[n, (c, r, s), (y, x)\] for one product per image or P\[(c, r, s), (n, y, x)\] for one of
//! all; with channels last, P\[(n, y, x), (r, s, c)\]. Both directions use the same layout:
//!
//!   im2col: P\[n, c, r, s, y, x\] = image\[n, c, y·stride + r·dilation − padding, x·stride + s·dilation − padding\]
//!   col2im: image\[n, c, u, v\] = Σ P\[n, c, r, s, y, x\] over all y, x, r and s that map there, r and s in order
//!
//! with zeros outside the image.
//!
//! im2col may write bf16, and col2im may write a bf16 image from f32 patches. Numbers of images and channels are
//! arguments if their values gain nothing, so that layers with images of one size share kernels.

use crate::conv::canonical::Geometry;
use crate::target::H200;
use bilevel_gpu::codegen::Elements;
use bilevel_gpu::codegen::conv::im2col::Patches;
use bilevel_gpu::codegen::kernel::{CStorage, Code, Launch, reach};
use bilevel_gpu::codegen::renderer::Dialect;
use bilevel_graph::{ConvDims, DType};
use bilevel_plan::{Place, StorageType, View};

/// The maximum number of kernel taps for which the loop over them is unrolled.
const MAX_UNROLLED_TAPS: usize = 25;
const FLOAT: StorageType = StorageType::F32;

/// The start of elements: a place, and the elements before the first.
type Source = (Place, isize);

/// Returns the vector width for a contiguous axis of this length.
fn lanes(length: usize, storage: StorageType) -> usize {
    let wide = H200.lanes(storage);
    if length.is_multiple_of(wide) { wide } else { 1 }
}

/// Returns the pragma before a loop over taps.
fn unroll(places: usize) -> &'static str {
    if places <= MAX_UNROLLED_TAPS { "#pragma unroll" } else { "#pragma unroll 1" }
}

/// Returns the strides from image to image and from tap to tap, with channels first: for one matrix of all images, or
/// one per image.
fn patch_strides(geometry: &Geometry, together: bool) -> [usize; 2] {
    let (Geometry { w: [_, c, r, s], y: [n, _, oy, ox], .. }, plane) = (geometry, geometry.y[2] * geometry.y[3]);
    if together { [plane, n * plane] } else { [c * r * s * oy * ox, plane] }
}

/// Notes the largest index.
fn reaches(code: &mut Code, geometry: &Geometry) {
    let patches = geometry.patch_elements();
    for shape in [geometry.x, [patches, 1, 1, 1]] {
        code.reaches(reach(&View::contiguous(&shape).runs()));
    }
}

/// Returns the im2col kernel; `together` for one matrix of all images.
pub(crate) fn im2col(dialect: Dialect, geometry: &Geometry, together: bool, from: Source, to: Place) -> Launch {
    if geometry.channels_last() {
        return im2col_nhwc(dialect, geometry, from, to);
    }
    let Geometry { w: [_, _, kh, kw], y: [_, _, oy, ox], stride, padding, dilation, .. } = *geometry;
    let both_sides = |length: usize| (length as i64, length as i64);
    let dims = ConvDims { stride, padding: padding.map(both_sides), kernel_dilation: dilation, ..Default::default() };
    let view = View { offset: from.1, ..View::contiguous(&geometry.x) };
    let image = Elements { place: from.0, view: &view };
    Patches { image, dtype: DType::F32, dims: &dims, kernel: [kh, kw], out: [oy, ox], together }.im2col(dialect, to)
}

/// With channels last. A thread has some channels of one output position, and writes them for every tap, so it divides
/// by the number of channels once. The loads for a row of taps are in flight at once.
fn im2col_nhwc(dialect: Dialect, geometry: &Geometry, (place, first): Source, to: Place) -> Launch {
    let Geometry { x: [_, c, h, w], w: [_, _, kh, kw], y: [n, _, oy, ox], stride, padding, dilation, .. } = *geometry;
    let ([sy, sx], [dy, dx], [top, left]) = (stride, dilation, padding);
    let storage = geometry.storage;
    let (lanes, t) = (lanes(c, storage), storage.name());
    let count = n * oy * ox * c / lanes;
    let mut code = Code::new(dialect);
    reaches(&mut code, geometry);
    code.each(count);
    let (from, to) = (code.input(place, storage, first), code.output(to, storage, 0));
    let channels = code.count(c as u64);
    code.line(format!("const U i = e * {lanes}, place = i / {channels}, channel = i % {channels};"));
    code.line(format!(
        "const I x = (I)(place % {ox}), y = (I)(place / {ox} % {oy}), image = (I)(place / {});",
        oy * ox
    ));
    code.line(unroll(kh * kw));
    code.line(format!("for (I r = 0; r < {kh}; ++r) {{"));
    code.line(format!("const I u = y * {sy} + r * {dy} - {top};"));
    code.line(format!("{t} p[{kw}][{lanes}];"));
    code.line(unroll(kw));
    code.line(format!("for (I s = 0; s < {kw}; ++s) {{"));
    code.line(format!("const I v = x * {sx} + s * {dx} - {left};"));
    code.lanes(lanes, "p[s][j] = 0.0f;");
    code.line(format!("if (u >= 0 && u < {h} && v >= 0 && v < {w})"));
    let at = format!("((image * {h} + u) * {w} + v) * {channels} + channel");
    code.line(format!("    load<{t}, {lanes}>({from} + ({at}), p[s]);"));
    code.line("}");
    code.line(unroll(kw));
    code.line(format!("for (I s = 0; s < {kw}; ++s)"));
    let at = format!("(place * {} + (U)(r * {kw} + s)) * {channels} + channel", kh * kw);
    code.line(format!("    store<{t}, {lanes}>({to} + ({at}), p[s]);"));
    code.line("}");
    code.launch_each(count)
}

/// Returns the col2im kernel; `together` for one matrix of all images.
pub(crate) fn col2im(
    dialect: Dialect,
    geometry: &Geometry,
    together: bool,
    from: Place,
    (place, first): Source,
) -> Launch {
    let Geometry { x: [n, c, h, w], w: [_, _, kh, kw], y: [_, _, oy, ox], stride, padding, dilation, .. } = *geometry;
    let ([sy, sx], [dy, dx], [top, left]) = (stride, dilation, padding);
    let lanes = lanes(if geometry.channels_last() { c } else { w }, FLOAT);
    let count = n * c * h * w / lanes;
    let mut code = Code::new(dialect);
    reaches(&mut code, geometry);
    code.each(count);
    let storage = geometry.storage;
    let (from, to) = (code.input(from, DType::F32, 0), code.output(place, storage, first));
    let unroll = unroll(kh * kw);
    code.line(format!("const U i = e * {lanes};"));
    code.line(format!("float sum[{lanes}];"));
    code.lanes(lanes, "sum[j] = 0.0f;");
    let inner = if geometry.channels_last() { c } else { 1 };
    code.line(format!("const I v = (I)(i / {inner} % {w}), u = (I)(i / {} % {h});", inner * w));
    let mut begin = String::new();
    let mut of_place = String::new();
    if geometry.channels_last() {
        code.line(format!("const I image = (I)(i / {}), channel = (I)(i % {c});", c * h * w));
    } else {
        let [of_image, place_apart] = patch_strides(geometry, together);
        let [channels, of_image, apart] = [c, of_image, place_apart].map(|number| code.count(number as u64));
        code.line(format!("const U channel = i / {};", h * w));
        begin = format!("channel / {channels} * {of_image} + channel % {channels} * {} * {apart}", kh * kw);
        of_place = apart;
    }
    code.line(unroll);
    code.line(format!("for (I r = 0; r < {kh}; ++r) {{"));
    code.line(format!("const I y = u + {top} - r * {dy};"));
    code.line(format!("if (y < 0 || y % {sy} != 0 || y / {sy} >= {oy}) continue;"));
    code.line(unroll);
    code.line(format!("for (I s = 0; s < {kw}; ++s) {{"));
    code.line(format!("const I x = v + {left} - s * {dx};"));
    let term = format!("r * {kw} + s");
    if geometry.channels_last() {
        code.line(format!("if (x < 0 || x % {sx} != 0 || x / {sx} >= {ox}) continue;"));
        code.line(format!("float p[{lanes}];"));
        let at = format!("(((image * {oy} + y / {sy}) * {ox} + x / {sx}) * {} + {term}) * {c} + channel", kh * kw);
        code.line(format!("load<float, {lanes}>({from} + ({at}), p);"));
        code.lanes(lanes, "sum[j] += p[j];");
    } else {
        let at = format!("{begin} + (U)({term}) * {of_place} + (U)(y / {sy} * {ox})");
        code.line(format!("const float* p = {from} + ({at});"));
        let there = format!("x + j >= 0 && (x + j) % {sx} == 0 && (x + j) / {sx} < {ox}");
        code.lanes(lanes, format!("if ({there}) sum[j] += p[(x + j) / {sx}];"));
    }
    code.line("}");
    code.line("}");
    code.line(format!("{}({to} + i, sum);", storage.store(lanes)));
    code.launch_each(count)
}

/// Transposes `[a, b, inner]` to `[b, a, inner]`.
pub(crate) fn swapped(
    dialect: Dialect,
    [a, b, inner]: [usize; 3],
    (place, first): Source,
    (to, to_first): Source,
) -> Launch {
    let lanes = lanes(inner, FLOAT);
    let count = a * b * inner / lanes;
    let mut code = Code::new(dialect);
    code.each(count);
    code.reaches(a * b * inner);
    let (from, to) = (code.input(place, DType::F32, first), code.output(to, DType::F32, to_first));
    let [a, b] = [a, b].map(|number| code.count(number as u64));
    code.line(format!("const U i = e * {lanes}, row = i / {inner};"));
    code.line(format!("float p[{lanes}];"));
    code.line(format!("load<float, {lanes}>({from} + ((row % {a} * {b} + row / {a}) * {inner} + i % {inner}), p);"));
    code.line(format!("store<float, {lanes}>({to} + i, p);"));
    code.launch_each(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::cuda_cpp::CudaCpp;
    use crate::conv::canonical::{ConvPass, ImageLayout};
    use crate::conv::im2col::tests::example;
    use bilevel_gpu::codegen::kernel::Arg;
    use bilevel_gpu::codegen::renderer::Renderer;
    use bilevel_plan::Region;

    const HERE: Place = Place { region: Region::Input(0), offset: 0 };
    const THERE: Place = Place { region: Region::Arena, offset: 0 };

    /// The im2col kernel with channels last: images, input and output channels, and side length.
    fn last(shape: [usize; 4], storage: StorageType) -> Launch {
        let geometry = Geometry { layout: ImageLayout::Nhwc, storage, ..example(ConvPass::Wgrad, shape) };
        im2col(&CudaCpp, &geometry, false, (HERE, 24), THERE)
    }

    #[test]
    fn patches_of_two_bytes_are_moved_by_16_at_once_for_all_places_of_the_kernel() {
        for (storage, lanes, bytes) in [(StorageType::Bf16, 8, 48), (StorageType::F32, 4, 96)] {
            let launch = last([128, 160, 160, 32], storage);
            let text = CudaCpp.kernel(&launch.kernel, "kernel");
            for how in ["load", "store"] {
                assert_eq!(text.matches(&format!("{how}<{}, {lanes}>(", storage.name())).count(), 1, "{text}");
            }
            assert_eq!(text.contains("float"), storage == StorageType::F32, "{text}");
            // A thread for this many channels of each position.
            assert_eq!(launch.grid, [(128 * 32 * 32 * 160 / lanes / 256) as u32, 1]);
            assert_eq!(launch.args[1..3], [Arg::Memory(HERE, bytes), Arg::Memory(THERE, 0)]);
        }
        // Channels that do not fill whole loads are copied one by one.
        assert!(CudaCpp.kernel(&last([2, 12, 8, 8], StorageType::Bf16).kernel, "kernel").contains("load<bf16, 1>("));
    }

    #[test]
    fn patches_of_images_of_one_size_are_written_by_one_kernel_however_many_channels_they_have() {
        let text = last([128, 160, 160, 32], StorageType::Bf16).kernel;
        assert_eq!(text, last([64, 16, 160, 32], StorageType::Bf16).kernel);
        assert_ne!(text, last([128, 160, 160, 16], StorageType::Bf16).kernel);
        assert_ne!(text, last([128, 160, 160, 32], StorageType::F32).kernel);
    }
}
