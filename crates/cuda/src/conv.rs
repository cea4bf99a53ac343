//! Convolutions: by the library where it is there and can; else as products of patches with the kernel, or as they are defined where
//! a product would be thin.

use crate::dnn::Dnn;
use crate::dot::dot;
use crate::form::{Form, Sought, form};
use crate::source::{Arg, Elements, convolution, gathered, patches, scattered};
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
    dnn: Option<&Dnn>,
    workspace: &mut Workspace,
) -> Vec<Work> {
    let [outputs, inputs, kh, kw] = kernel.view.shape[..] else { return vec![] };
    let [images, _, oh, ow] = out.shape[..] else { return vec![] };
    if out.count() == 0 {
        return vec![];
    }
    if let Some(works) =
        dnn.and_then(|dnn| by_library(dims, (image, kernel), (dtype, factor), (out, to), dnn, workspace))
    {
        return works;
    }
    let (groups, terms, plane) = (dims.groups, inputs * kh * kw, oh * ow);
    let rows = outputs / groups;
    let (down, along) = (out.strides[2], out.strides[3]);
    let merges = oh == 1 || ow == 1 || down == along * ow as isize;
    let of_channels = groups > 1 && kh * kw > plane && rows < THIN;
    if rows * inputs < THIN || of_channels || dtype == DType::I32 || terms == 0 || !merges {
        return vec![Work::Kernel(convolution(dims, (image, kernel), (dtype, factor.precision()), out, to))];
    }
    let mut works = vec![];
    let weights = if kernel.view.runs().len() <= 1 && kernel.view.runs().iter().all(|run| run.stride == 1) {
        (kernel.place, kernel.view.offset, dtype.into())
    } else {
        let place = workspace.take(kernel.view.count() * dtype.size());
        works.push(Work::Kernel(gathered(kernel, dtype, place, None)));
        (place, 0, dtype.into())
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
        let begin = (to, out.offset + first as isize * out.strides[0], dtype.into());
        works.extend(dot(&layout, dtype, factor, (weights, (place, 0, dtype.into()), begin), workspace));
        workspace.back_to(mark);
    }
    works
}

/// The steps of a convolution by the library, with what it reads and writes put into its order where it is in another.
fn by_library(
    dims: &ConvDims,
    (image, kernel): (Elements, Elements),
    (dtype, factor): (DType, Factor),
    (out, to): (&View, Place),
    dnn: &Dnn,
    workspace: &mut Workspace,
) -> Option<Vec<Work>> {
    if dtype != DType::F32 {
        return None;
    }
    let Form { geometry, x, w, y } = form(dims, image.view, kernel.view, out, factor != Factor::F32)?;
    let bytes = dnn.workspace_bytes(&geometry)?;
    let (x, w, y) = match geometry.sought {
        Sought::Result => ((image.place, x), (kernel.place, w), (to, y)),
        Sought::Image => ((to, x), (kernel.place, w), (image.place, y)),
        Sought::Kernel => ((image.place, x), (to, w), (kernel.place, y)),
    };
    // What the library is to round to fewer digits than it would is rounded before.
    let rounded = (factor == Factor::Bf16).then_some("wide_bf16");
    let is_dense = |view: &View| view.runs().len() <= 1 && view.runs().iter().all(|run| run.stride == 1);
    let (mut works, mut after) = (vec![], vec![]);
    let at = [(Sought::Image, x), (Sought::Kernel, w), (Sought::Result, y)].map(|(part, (place, view))| {
        let is_result = part == geometry.sought;
        if is_dense(&view) && (is_result || rounded.is_none()) {
            return Arg::Memory(place, view.offset * dtype.size() as isize);
        }
        let dense = workspace.take(view.count() * dtype.size());
        let there = Elements { place, view: &view };
        if is_result {
            after.push(Work::Kernel(scattered(dense, dtype, there)));
        } else {
            works.push(Work::Kernel(gathered(there, dtype, dense, rounded)));
        }
        Arg::Memory(dense, 0)
    });
    works.push(Work::Convolution { geometry, at, workspace: workspace.take(bytes) });
    works.extend(after);
    Some(works)
}
