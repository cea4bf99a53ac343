//! Convolutions without a library: a product of the kernel with the patches of some images at a time, or a direct
//! kernel for those with few terms.

use crate::codegen::conv::im2col::Patches;
use crate::codegen::naive_gemm::Start;
use crate::codegen::renderer::Dialect;
use crate::codegen::{Elements, convolution, gathered};
use crate::compile::step::{LibraryCall, Work};
use crate::compile::workspace::Workspace;
use bilevel_graph::{ConvDims, DType, Precision};
use bilevel_plan::{DotLayout, Place, StorageType, View};

/// Below this number of rows and terms, a direct kernel is as fast as a GEMM.
const MIN_GEMM_SIDE: usize = 16;

/// Appends the steps of a product of A, B and C.
pub type Gemm<'a, C> = dyn FnMut(&DotLayout, [Start; 3], &mut Workspace) -> Vec<Work<C>> + 'a;

/// Returns the steps of a convolution of an image with a kernel, written with the layout `out` and its element type.
/// Patches fill at most this many bytes of the workspace, or those of one image.
pub fn conv_as_gemm<C: LibraryCall>(
    (dialect, dims): (Dialect, &ConvDims),
    (image, kernel): (Elements, Elements),
    (dtype, precision): (DType, Precision),
    (out, to, storage): (&View, Place, StorageType),
    (workspace, max_patch_bytes): (&mut Workspace, usize),
    gemm: &mut Gemm<C>,
) -> Vec<Work<C>> {
    let [outputs, inputs, kh, kw] = kernel.view.shape[..] else { return vec![] };
    let [images, _, oh, ow] = out.shape[..] else { return vec![] };
    let (groups, terms, plane) = (dims.groups, inputs * kh * kw, oh * ow);
    let rows = outputs / groups;
    let (down, along) = (out.strides[2], out.strides[3]);
    let merges = oh == 1 || ow == 1 || down == along * ow as isize;
    let of_channels = groups > 1 && kh * kw > plane && rows < MIN_GEMM_SIDE;
    if rows * inputs < MIN_GEMM_SIDE || of_channels || dtype == DType::I32 || terms == 0 || !merges {
        let to = (out, to, storage);
        return vec![Work::Kernel(convolution(dialect, dims, (image, kernel), (dtype, precision), to))];
    }
    let mut works = vec![];
    let weights = if kernel.view.is_dense() {
        (kernel.place, kernel.view.offset, dtype.into())
    } else {
        let place = workspace.take(kernel.view.count() * dtype.size());
        works.push(Work::Kernel(gathered(dialect, kernel, dtype, place, None)));
        (place, 0, dtype.into())
    };
    let size = dtype.size();
    let at_once = (max_patch_bytes / (groups * terms * plane * size)).clamp(1, images);
    let place = workspace.take(at_once * groups * terms * plane * size);
    let mark = workspace.mark();
    for first in (0..images).step_by(at_once) {
        let count = at_once.min(images - first);
        let (mut from, mut shape) = ([0; 4], image.view.shape.clone());
        (from[0], shape[0]) = (first, count);
        let some = &image.view.slice(&from, &[1; 4], &shape);
        let image = Elements { place: image.place, view: some };
        let patches = Patches { image, dtype, dims, kernel: [kh, kw], out: [oh, ow], together: false };
        works.push(Work::Kernel(patches.im2col(dialect, place)));
        let step = if ow == 1 { down } else { along };
        let matrix = (terms * plane) as isize;
        let layout = DotLayout {
            m: rows,
            n: plane,
            k: terms,
            a: (terms as isize, 1),
            b: (plane as isize, 1),
            c: (out.strides[1], step),
            batch: vec![
                (count, [0, groups as isize * matrix, out.strides[0]]),
                (groups, [(rows * terms) as isize, matrix, rows as isize * out.strides[1]]),
            ],
        };
        let begin = (to, out.offset + first as isize * out.strides[0], storage);
        works.extend(gemm(&layout, [weights, (place, 0, dtype.into()), begin], workspace));
        workspace.back_to(mark);
    }
    works
}
