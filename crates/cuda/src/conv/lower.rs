//! Lowers convolutions: by cuDNN, by one GEMM if autotuning found that faster, by batched im2col, or by a direct
//! kernel.

use crate::codegen::cuda_cpp::CudaCpp;
use crate::compile::step::{Call, GemmMath, Work};
use crate::conv::canonical::{CanonicalConv, ConvPass, Geometry, canonical};
use crate::conv::cudnn::{ConvAlgo, Dnn};
use crate::conv::im2col::as_gemm;
use crate::gemm::lower::dot;
use bilevel_gpu::codegen::naive_gemm::Start;
use bilevel_gpu::codegen::{Arg, Elements, RoundedStorage, gathered, scattered};
use bilevel_gpu::compile::conv_as_gemm::conv_as_gemm;
use bilevel_gpu::compile::workspace::Workspace;
use bilevel_graph::{ConvDims, ConvRole, DType, Precision};
use bilevel_plan::{DotLayout, Place, StorageType, View};

/// The maximum size of the im2col workspace in bytes.
pub(crate) const PATCH_WORKSPACE_BYTES: usize = 512 << 20;

/// Returns the steps of a convolution of an image with a kernel of these types, written with the layout `out` and its
/// element type.
pub(crate) fn conv(
    (dims, role): (&ConvDims, ConvRole),
    operands: [(Elements, StorageType); 2],
    (dtype, math): (DType, GemmMath),
    (out, to, storage): (&View, Place, StorageType),
    dnn: Option<&Dnn>,
    workspace: &mut Workspace,
) -> Vec<Work> {
    if out.count() == 0 {
        return vec![];
    }
    if let Some(dnn) = dnn {
        let algo = |geometry: &Geometry| dnn.algo(geometry);
        if let Some(works) = as_chosen((dims, role), operands, (dtype, math), (out, to, storage), algo, workspace) {
            return works;
        }
    }
    // Generated kernels read 32 bits.
    let mut works = vec![];
    let dense = operands.map(|(elements, _)| View::contiguous(&elements.view.shape));
    let mut widened = |which: usize| match operands[which] {
        (elements, StorageType::Bf16) => {
            let place = workspace.take(elements.view.count() * dtype.size());
            works.push(Work::Kernel(gathered(
                &CudaCpp,
                elements,
                StorageType::Bf16,
                place,
                Some(RoundedStorage::WideBf16),
            )));
            Elements { place, view: &dense[which] }
        }
        (elements, _) => elements,
    };
    let (image, kernel) = (widened(0), widened(1));
    let mut gemm = |layout: &DotLayout, operands: [Start; 3], space: &mut Workspace| {
        dot(layout, dtype, math, operands.into(), space)
    };
    let (types, to) = ((dtype, math.precision), (out, to, storage));
    let space = (workspace, PATCH_WORKSPACE_BYTES);
    works.extend(conv_as_gemm((&CudaCpp, dims), (image, kernel), types, to, space, &mut gemm));
    works
}

/// The alignment that cuDNN needs, in bytes.
const LIBRARY_ALIGNMENT: isize = 16;

/// Returns the steps of a convolution by its selected algorithm, with operands and result converted to the layout of
/// the geometry; `None` if there is no such algorithm.
fn as_chosen(
    conv: (&ConvDims, ConvRole),
    [(image, image_storage), (kernel, kernel_storage)]: [(Elements, StorageType); 2],
    (dtype, math): (DType, GemmMath),
    (out, to, out_storage): (&View, Place, StorageType),
    algo: impl Fn(&Geometry) -> Option<ConvAlgo>,
    workspace: &mut Workspace,
) -> Option<Vec<Work>> {
    if dtype != DType::F32 {
        return None;
    }
    // Operands that are rounded to bf16 before are exact in tf32.
    let precision = if math.precision == Precision::Full { Precision::Full } else { Precision::Tf32 };
    let form = canonical(conv, [image.view, kernel.view, out], precision)?;
    let last = form.with_channels_last();
    let in_bf16 = last.as_ref().filter(|_| math == GemmMath::BF16).and_then(CanonicalConv::in_bf16);
    let (CanonicalConv { geometry, x, w, y }, algo) = [in_bf16, last, Some(form)]
        .into_iter()
        .flatten()
        .find_map(|form| algo(&form.geometry).map(|algo| (form, algo)))?;
    let (image, kernel, out) = ((image.place, image_storage), (kernel.place, kernel_storage), (to, out_storage));
    let (x, w, y) = match geometry.pass {
        ConvPass::Fprop => ((image, x), (kernel, w), (out, y)),
        ConvPass::Dgrad => ((out, x), (kernel, w), (image, y)),
        ConvPass::Wgrad => ((image, x), (out, w), (kernel, y)),
    };
    // Operands that need more rounding than cuDNN does are rounded before, to bf16 if cuDNN reads it.
    let (mut works, mut after) = (vec![], vec![]);
    let at =
        [(ConvPass::Dgrad, x), (ConvPass::Wgrad, w), (ConvPass::Fprop, y)].map(|(part, ((place, storage), view))| {
            let is_result = part == geometry.pass;
            let wanted = geometry.storage;
            let rounds = math == GemmMath::BF16 && !is_result && storage != StorageType::Bf16;
            let bytes = view.offset * storage.size() as isize;
            if view.is_dense() && bytes % LIBRARY_ALIGNMENT == 0 && storage == wanted && !rounds {
                return (place, bytes);
            }
            let dense = workspace.take(view.count() * wanted.size());
            let there = Elements { place, view: &view };
            if is_result {
                after.push(Work::Kernel(scattered(&CudaCpp, (dense, wanted), there, storage)));
            } else {
                let written = (rounds || storage != wanted).then_some(RoundedStorage::of(wanted));
                works.push(Work::Kernel(gathered(&CudaCpp, there, storage, dense, written)));
            }
            (dense, 0)
        });
    match algo {
        ConvAlgo::Library(convolved) => {
            let at = at.map(|(place, bytes)| Arg::Memory(place, bytes));
            works.push(Work::Library(Call::Convolution {
                geometry,
                at,
                workspace: workspace.take(convolved.workspace),
            }));
        }
        ConvAlgo::Im2col(arrangement) => works.extend(as_gemm(&geometry, arrangement, at, workspace)),
    }
    works.extend(after);
    Some(works)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::disk_cache::Cache;
    use crate::compile::nvrtc::{Architecture, compile_all};
    use crate::conv::cudnn::PreparedConv;
    use crate::conv::im2col::Arrangement;
    use crate::runtime::dynlib::{Missing, found_libraries};
    use crate::target::gpu_target;
    use crate::test_common::can_compile;
    use bilevel_gpu::codegen::Renderer;
    use bilevel_graph::{Graph, Program, Tensor, gradient_or_zeros, nn};
    use bilevel_plan::{Kind, Region, Schedule};

    const HERE: Place = Place { region: Region::Arena, offset: 0 };

    /// Returns the steps of each convolution of a program, with a library that supports everything, or without one.
    fn convolutions(program: &Program, library: bool) -> Vec<Vec<Work>> {
        let schedule = Schedule::new(program, &gpu_target(true, true)).unwrap();
        let mut found = vec![];
        for node in &schedule.nodes {
            let Kind::Conv(dims, role, precision) = &node.kind else { continue };
            let math = match precision {
                Precision::Full => GemmMath::F32,
                Precision::Tf32 => GemmMath::TF32,
                Precision::Bf16 => GemmMath::BF16,
            };
            let read: Vec<(usize, &View)> = node.reads().collect();
            let operands = [read[0], read[1]].map(|(node, view)| {
                let storage = schedule.nodes[node].storage;
                (Elements { place: HERE, view }, storage)
            });
            let storage = node.storage;
            let (out, types, space) = ((&node.layout, HERE, storage), (node.dtype, math), &mut Workspace::new(None));
            found.push(match library {
                true => as_chosen(
                    (dims, *role),
                    operands,
                    types,
                    out,
                    |_| Some(ConvAlgo::Library(PreparedConv::default())),
                    space,
                )
                .unwrap(),
                false => conv((dims, *role), operands, types, out, None, space),
            });
        }
        found
    }

    /// Returns the geometry of each convolution by the library, and the number of kernels around it.
    fn moved(program: &Program) -> Vec<(Geometry, usize)> {
        let of = |work: &Work| {
            if let Work::Library(Call::Convolution { geometry, .. }) = work { Some(*geometry) } else { None }
        };
        let steps = convolutions(program, true);
        steps.iter().map(|works| (works.iter().find_map(of).unwrap(), works.len() - 1)).collect()
    }

    /// Two layers of many channels after one that reads RGB images, with the gradient of all kernels.
    fn network(precision: Precision) -> Program {
        let g = Graph::new();
        let mut x = g.input("image", [32, 3, 32, 32], DType::F32);
        let mut kernels: Vec<Tensor> = vec![];
        for (layer, channels) in [3, 64, 64].into_iter().enumerate() {
            let w = g.input(format!("w{layer}"), [64, channels, 3, 3], DType::F32);
            x = nn::relu(nn::conv2d(x, w, None, nn::Conv2d { padding: [1, 1], ..Default::default() }));
            kernels.push(w);
        }
        let builder = Program::builder(&g).outputs("", gradient_or_zeros(x.square().sum_all(), &kernels).unwrap());
        builder.build().unwrap().with_precision(precision)
    }

    #[test]
    fn channels_last_images_are_convolved_without_copies() {
        let program = network(Precision::Tf32);
        let found = moved(&program);
        assert_eq!(found.len(), 8);
        for (geometry, kernels) in found {
            assert!(geometry.channels_last() && geometry.x[1] != 3, "colours have a fourth channel: {geometry:?}");
            // The kernel's gradient is transposed back.
            assert_eq!(kernels, usize::from(geometry.pass == ConvPass::Wgrad), "{geometry:?}");
        }
    }

    #[test]
    fn operands_in_bf16_are_written_so_by_the_loops_that_compute_them() {
        let program = network(Precision::Bf16);
        for (geometry, kernels) in moved(&program) {
            // Four bf16 channels do not fill a load of 16 bytes.
            let colours = geometry.x[1] == 4;
            assert_eq!((geometry.channels_last(), geometry.is_bf16()), (true, !colours), "{geometry:?}");
            // RGB convolutions have both operands rounded in f32; results and given kernels are transposed.
            let expected = match (colours, geometry.pass) {
                (true, _) => 3,
                (false, ConvPass::Wgrad) => 1,
                (false, _) => 0,
            };
            assert_eq!(kernels, expected, "{geometry:?}");
        }
    }

    #[test]
    fn conversions_to_and_from_bf16_compile() {
        let program = network(Precision::Bf16);
        let mut kernels = vec![];
        for work in [true, false].into_iter().flat_map(|library| convolutions(&program, library)).flatten() {
            if let Work::Kernel(launch) = work {
                kernels.push(launch.kernel);
            }
        }
        let texts = kernels.iter().map(|kernel| CudaCpp.kernel(kernel, "kernel"));
        assert!(texts.into_iter().any(|text| text.contains("bf16* p") && text.contains("wide_bf16* p")));
        if can_compile(found_libraries().contains(&(Missing::Nvrtc, true))) {
            compile_all(&kernels, Architecture(90), &Cache::at(None)).unwrap();
        }
    }

    #[test]
    fn a_convolution_that_is_faster_as_a_gemm_is_planned_as_one_on_the_same_operands() {
        let (small, large) = (4, 32);
        let kernel = View::contiguous(&[64, 64, 3, 3]);
        let dims = ConvDims { padding: [(1, 1), (1, 1)], ..Default::default() };
        let at = |number| Place { region: Region::Input(number), offset: 0 };
        let algo = |_: &Geometry| Some(ConvAlgo::Im2col(Arrangement::Together));
        for (side, math, multiplied, expected) in [
            (small, GemmMath::TF32, GemmMath::TF32, 3),
            (small, GemmMath::BF16, GemmMath::TF32, 5),
            (small, GemmMath::F32, GemmMath::F32, 5),
            (large, GemmMath::BF16, GemmMath::BF16, 4),
        ] {
            let image = View::contiguous(&[32, side, side, 64]).transpose(&[0, 3, 1, 2]);
            let operands =
                [(at(0), &image), (at(1), &kernel)].map(|(place, view)| (Elements { place, view }, StorageType::F32));
            let storage = if math == GemmMath::BF16 { StorageType::Bf16 } else { StorageType::F32 };
            let (types, out, space) = ((DType::F32, math), (&image, at(2), storage), &mut Workspace::new(None));
            let works = as_chosen((&dims, ConvRole::FPROP), operands, types, out, algo, space).unwrap();
            // The transposed kernel and the patches. The image is rounded before and the result after, to bf16 at once
            // if large enough; or images with channels first, in both directions.
            let of =
                |work: &Work| if let Work::Library(Call::Gemm(product)) = work { Some(product.math) } else { None };
            let maths: Vec<GemmMath> = works.iter().filter_map(of).collect();
            assert_eq!((works.len(), maths), (expected, vec![multiplied]), "{math:?} of {side}");
        }
    }

    #[test]
    fn convolutions_in_full_precision_keep_their_layout() {
        let program = network(Precision::Full);
        assert!(moved(&program).iter().all(|(geometry, kernels)| !geometry.channels_last() && *kernels == 0));
    }
}
