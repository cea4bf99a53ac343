//! Images written out for one product with the kernel, and what such a product gives added up into an image.
//!
//! With the channels before the places, P\[n, (c, r, s), (y, x)\] for one product per image or P\[(c, r, s), (n, y, x)\] for one of all;
//! with the channels last, P\[(n, y, x), (r, s, c)\]. What is unfolded and what is folded lie alike:
//!
//!   unfolded: P\[n, c, r, s, y, x\] = image\[n, c, y·stride + r·dilation − padding, x·stride + s·dilation − padding\], 0 beyond its borders
//!   folded: image\[n, c, u, v\] = Σ P\[n, c, r, s, y, x\] over all y, x, r and s that meet there, in the order of r and s
//!
//! Numbers of images and channels are arguments where nothing is to be gained from knowing them, so that the layers of a network which see
//! images of one size share their kernels.

use super::code::{Code, Launch, reach};
use crate::form::Geometry;
use bilevel_graph::DType;
use bilevel_plan::{Place, View};

/// Elements of 16 bytes.
const WIDE: usize = 4;
/// Places of a kernel up to which the sum over them is written out.
const FEW: usize = 25;

/// Where elements begin: a place, and how many are before the first.
type From = (Place, isize);

/// Elements that a thread works on: neighbours of an axis of so many.
fn lanes(length: usize) -> usize {
    if length.is_multiple_of(WIDE) { WIDE } else { 1 }
}

/// Elements from one image to the next, and from one place of the kernel to the next, where channels come before places: the images
/// together in one matrix, or each in its own.
fn apart(geometry: &Geometry, together: bool) -> [usize; 2] {
    let (Geometry { w: [_, c, r, s], y: [n, _, oy, ox], .. }, plane) = (geometry, geometry.y[2] * geometry.y[3]);
    if together { [plane, n * plane] } else { [c * r * s * oy * ox, plane] }
}

/// Says how far indices reach.
fn reaches(code: &mut Code, geometry: &Geometry) {
    let patches = geometry.patch_elements();
    for shape in [geometry.x, [patches, 1, 1, 1]] {
        code.reaches(reach(&View::contiguous(&shape).runs()));
    }
}

/// Writes out the patches of x; its images together, where each could have a matrix of its own.
pub(crate) fn unfolded(geometry: &Geometry, together: bool, (place, first): From, to: Place) -> Launch {
    let Geometry { x: [_, c, h, w], w: [_, _, kh, kw], y: [_, _, oy, ox], stride, padding, dilation, .. } = *geometry;
    let (plane, ([sy, sx], [dy, dx], [top, left])) = (oy * ox, (stride, dilation, padding));
    let lanes = lanes(if geometry.last { c } else { ox });
    let count = geometry.patch_elements() / lanes;
    let mut code = Code::default();
    reaches(&mut code, geometry);
    code.each(count);
    let (from, to) = (code.pointer(place, DType::F32, first), code.pointer(to, DType::F32, 0));
    code.line(format!("const U i = e * {lanes};"));
    // The place in the result, and in the kernel, from elements that are so far apart.
    let decoded = |inner: usize, of_kernel: usize, of_result: usize| {
        let at = |apart: usize, length: usize| format!("(I)(i / {apart} % {length})");
        format!(
            "const I x = {}, y = {}, s = {}, r = {};",
            at(of_result * inner, ox),
            at(of_result * inner * ox, oy),
            at(of_kernel * inner, kw),
            at(of_kernel * inner * kw, kh)
        )
    };
    let meets = format!("const I u = y * {sy} + r * {dy} - {top}, v = x * {sx} + s * {dx} - {left};");
    code.line(format!("float p[{lanes}];"));
    if geometry.last {
        code.line(decoded(c, 1, kh * kw));
        code.line(meets);
        code.lanes(lanes, "p[j] = 0.0f;");
        code.line(format!("const I image = (I)(i / {});", c * kh * kw * plane));
        code.line(format!("if (u >= 0 && u < {h} && v >= 0 && v < {w})"));
        let at = format!("((image * {h} + u) * {w} + v) * {c} + (I)(i % {c})");
        code.line(format!("    load<float, {lanes}>({from} + ({at}), p);"));
        code.line(format!("store<float, {lanes}>({to} + i, p);"));
    } else {
        let [of_image, of_place] = apart(geometry, together);
        let [channels, of_image, of_place] = [c, of_image, of_place].map(|number| code.count(number as u64));
        code.line(decoded(1, plane, 1));
        code.line(meets);
        code.line(format!("const U channel = i / {};", plane * kh * kw));
        code.line(format!("const I row = (I)channel * {} + u * {w} + v;", h * w));
        code.line(format!("const bool inside = u >= 0 && u < {h};"));
        let there = format!("inside && v + j * {sx} >= 0 && v + j * {sx} < {w}");
        code.lanes(lanes, format!("p[j] = {there} ? {from}[row + j * {sx}] : 0.0f;"));
        let term = format!("(channel % {channels} * {} + (U)(r * {kw} + s))", kh * kw);
        let at = format!("channel / {channels} * {of_image} + {term} * {of_place} + (U)(y * {ox} + x)");
        code.line(format!("store<float, {lanes}>({to} + ({at}), p);"));
    }
    code.launch_each(count)
}

/// Adds up patches into x; of images together, where each could have a matrix of its own.
pub(crate) fn folded(geometry: &Geometry, together: bool, from: Place, (place, first): From) -> Launch {
    let Geometry { x: [n, c, h, w], w: [_, _, kh, kw], y: [_, _, oy, ox], stride, padding, dilation, .. } = *geometry;
    let ([sy, sx], [dy, dx], [top, left]) = (stride, dilation, padding);
    let lanes = lanes(if geometry.last { c } else { w });
    let count = n * c * h * w / lanes;
    let mut code = Code::default();
    reaches(&mut code, geometry);
    code.each(count);
    let (from, to) = (code.pointer(from, DType::F32, 0), code.pointer(place, DType::F32, first));
    let unroll = if kh * kw <= FEW { "#pragma unroll" } else { "#pragma unroll 1" };
    code.line(format!("const U i = e * {lanes};"));
    code.line(format!("float sum[{lanes}];"));
    code.lanes(lanes, "sum[j] = 0.0f;");
    let inner = if geometry.last { c } else { 1 };
    code.line(format!("const I v = (I)(i / {inner} % {w}), u = (I)(i / {} % {h});", inner * w));
    let mut begin = String::new();
    let mut of_place = String::new();
    if geometry.last {
        code.line(format!("const I image = (I)(i / {}), channel = (I)(i % {c});", c * h * w));
    } else {
        let [of_image, place_apart] = apart(geometry, together);
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
    if geometry.last {
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
    code.line(format!("store<float, {lanes}>({to} + i, sum);"));
    code.launch_each(count)
}

/// Writes `[a, b, inner]` as `[b, a, inner]`.
pub(crate) fn swapped([a, b, inner]: [usize; 3], (place, first): From, (to, to_first): From) -> Launch {
    let lanes = lanes(inner);
    let count = a * b * inner / lanes;
    let mut code = Code::default();
    code.each(count);
    code.reaches(a * b * inner);
    let (from, to) = (code.pointer(place, DType::F32, first), code.pointer(to, DType::F32, to_first));
    let [a, b] = [a, b].map(|number| code.count(number as u64));
    code.line(format!("const U i = e * {lanes}, row = i / {inner};"));
    code.line(format!("float p[{lanes}];"));
    code.line(format!("load<float, {lanes}>({from} + ((row % {a} * {b} + row / {a}) * {inner} + i % {inner}), p);"));
    code.line(format!("store<float, {lanes}>({to} + i, p);"));
    code.launch_each(count)
}
