//! Convolutions: as products of patches with the kernel, or as they are defined where a product would be thin.

use crate::dot::dot;
use crate::source::{Elements, convolution, gathered, patches};
use crate::step::{Factor, Work};
use crate::workspace::Workspace;
use bilevel_graph::{ConvDims, DType};
use bilevel_plan::{DotLayout, Place, View};

/// Bytes of patches at once.
const MOST: usize = 512 << 20;
/// Products with fewer rows and terms than this are as well done as they are defined.
const THIN: usize = 16;

/// The steps of a convolution of an image with a kernel, into the layout `out` at a place.
pub(crate) fn conv(
    dims: &ConvDims,
    (image, kernel): (Elements, Elements),
    (dtype, factor): (DType, Factor),
    (out, to): (&View, Place),
    workspace: &mut Workspace,
) -> Vec<Work> {
    let [outputs, inputs, kh, kw] = kernel.view.shape[..] else { return vec![] };
    let [images, _, oh, ow] = out.shape[..] else { return vec![] };
    if out.count() == 0 {
        return vec![];
    }
    let (groups, terms, plane) = (dims.groups, inputs * kh * kw, oh * ow);
    let rows = outputs / groups;
    let (down, along) = (out.strides[2], out.strides[3]);
    let merges = oh == 1 || ow == 1 || down == along * ow as isize;
    if rows * inputs < THIN || dtype == DType::I32 || terms == 0 || !merges {
        return vec![Work::Kernel(convolution(dims, (image, kernel), (dtype, factor.precision()), out, to))];
    }
    let mut works = vec![];
    let weights = if kernel.view.runs().len() <= 1 && kernel.view.runs().iter().all(|run| run.stride == 1) {
        (kernel.place, kernel.view.offset)
    } else {
        let place = workspace.take(kernel.view.count() * dtype.size());
        works.push(Work::Kernel(gathered(kernel, dtype, place, None)));
        (place, 0)
    };
    let size = dtype.size();
    let together = (MOST / (groups * terms * plane * size)).clamp(1, images);
    let place = workspace.take(together * groups * terms * plane * size);
    let mark = workspace.mark();
    for first in (0..images).step_by(together) {
        let count = together.min(images - first);
        let shapes = ([kh, kw], [oh, ow]);
        works.push(Work::Kernel(patches(dims, image, dtype, (first, count), shapes, (place, None))));
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
        let begin = (to, out.offset + first as isize * out.strides[0]);
        works.extend(dot(&layout, dtype, factor, (weights, (place, 0), begin), workspace));
        workspace.back_to(mark);
    }
    works
}
