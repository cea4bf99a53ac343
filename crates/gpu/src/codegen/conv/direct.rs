//! Direct convolution.

use crate::codegen::data::copy::Elements;
use crate::codegen::expr::rounded;
use crate::codegen::kernel::{Code, Launch, c_type, reach};
use crate::codegen::renderer::Dialect;
use bilevel_graph::{ConvDims, DType, Precision, ReduceOp};
use bilevel_plan::{Place, StorageType, View};

/// From this many terms on, the threads of a block share a result.
const MIN_SHARED_TERMS: usize = 1024;
/// With this many results, one thread each occupies the whole GPU.
const MAX_SHARED_RESULTS: usize = 1 << 20;
/// The number of threads that share a result.
const SHARING_THREADS: usize = 256;

/// Returns the direct convolution, for depthwise and small cases. Each result has a thread, or a block if it has many
/// terms, as in a depthwise wgrad.
pub fn convolution(
    dialect: Dialect,
    dims: &ConvDims,
    (image, kernel): (Elements, Elements),
    (dtype, precision): (DType, Precision),
    (out, to, storage): (&View, Place, StorageType),
) -> Launch {
    let ([_, _, h, w], [outputs, inputs, kh, kw]) = (four(&image.view.shape), four(&kernel.view.shape));
    let ([_, _, oh, ow], s, k, o) = (four(&out.shape), &image.view.strides, &kernel.view.strides, &out.strides);
    let count = out.count();
    let terms = inputs * kh * kw;
    let shared = terms >= MIN_SHARED_TERMS && count < MAX_SHARED_RESULTS;
    let mut code = Code::new(dialect);
    code.reaches(count.max(terms).max(reach(&image.view.runs())).max(reach(&kernel.view.runs())));
    if shared {
        code.line(format!("const U e = {};", code.block()));
    } else {
        code.each(count)
    };
    let c = c_type(dtype);
    let (from, weights) =
        (code.input(image.place, dtype, image.view.offset), code.input(kernel.place, dtype, kernel.view.offset));
    let to = code.output(to, storage, out.offset);
    code.line(format!("const I x = (I)(e % {ow}), y = (I)(e / {ow} % {oh});"));
    code.line(format!("const I o = (I)(e / {} % {outputs}), im = (I)(e / {});", oh * ow, oh * ow * outputs));
    code.line(format!("const I base = im * {} + o / {} * {} * {};", s[0], outputs / dims.groups, inputs, s[1]));
    code.line(format!("{c} sum = {c}(0);"));
    let [(top, _), (left, _)] = dims.padding;
    let ([sy, sx], [ky, kx], [dy, dx]) = (dims.stride, dims.kernel_dilation, dims.image_dilation);
    if shared {
        code.line(format!("for (I t = {}; t < {}; t += {SHARING_THREADS}) {{", code.thread(), kh * kw * inputs));
        code.line(format!("const I a = t / {kw} % {kh}, b = t % {kw};"));
    } else {
        code.line(format!("for (I a = 0; a < {kh}; ++a) for (I b = 0; b < {kw}; ++b) {{"));
    }
    code.line(format!("const I py = y * {sy} + a * {ky} - ({top}), px = x * {sx} + b * {kx} - ({left});"));
    code.line(format!("if (py < 0 || py % {dy} != 0 || py / {dy} >= {h}) continue;"));
    code.line(format!("if (px < 0 || px % {dx} != 0 || px / {dx} >= {w}) continue;"));
    code.line(format!("const {c}* f = {from} + base + py / {dy} * {} + px / {dx} * {};", s[2], s[3]));
    code.line(format!("const {c}* g = {weights} + o * {} + a * {} + b * {};", k[0], k[2], k[3]));
    let (left, right) = (
        rounded(&mut code, precision, &format!("f[i * {}]", s[1])),
        rounded(&mut code, precision, &format!("g[i * {}]", k[1])),
    );
    match shared {
        true => code.line(format!("const I i = t / {};", kh * kw)),
        false => code.line(format!("for (I i = 0; i < {inputs}; ++i)")),
    }
    code.line(format!("sum = op_fma({left}, {right}, sum);"));
    code.line("}");
    if shared {
        let all = code.across(ReduceOp::Sum, SHARING_THREADS, "sum");
        code.line(format!("sum = {all};"));
        code.line(format!("if ({} > 0) return;", code.thread()));
    }
    code.line(format!("{to}[im * {} + o * {} + y * {} + x * {}] = sum;", o[0], o[1], o[2], o[3]));
    if shared { code.launch([count, 1], SHARING_THREADS as u32) } else { code.launch_each(count) }
}

/// Returns the lengths of four axes.
pub(super) fn four(shape: &[usize]) -> [usize; 4] {
    std::array::from_fn(|axis| shape.get(axis).copied().unwrap_or(1))
}
