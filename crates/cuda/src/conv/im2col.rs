//! Convolutions as a single matrix product with the im2col matrix, by cuBLASLt.
//!
//! With P the patches of x: fprop is y = W·P, wgrad is y·Pᵀ, and dgrad is col2im(Wᵀ·y). With channels first, all images
//! share one matrix, and y is transposed before or after, or each image has its own. The product can use a whole GPU
//! even if a convolution of small images has too few outputs. bf16 operands have bf16 patches; patches that col2im sums
//! are f32.

use crate::codegen::cuda_cpp::CudaCpp;
use crate::codegen::{col2im, im2col, swapped};
use crate::compile::step::{GemmMath, Work};
use crate::conv::canonical::{ConvPass, Geometry};
use crate::conv::lower::PATCH_WORKSPACE_BYTES;
use crate::gemm::lower::dot;
use bilevel_gpu::codegen::naive_gemm::Start;
use bilevel_gpu::compile::workspace::Workspace;
use bilevel_graph::DType;
use bilevel_plan::{DotLayout, Place, StorageType};

/// Above this size of the im2col matrix in bytes, im2col cannot win: it must nearly fit the L2 cache. For bf16 wgrad
/// the limit is [`PATCH_WORKSPACE_BYTES`], because cuDNN's deterministic wgrad engines take 2.5 times as long as fprop.
const MAX_PATCH_BYTES: usize = 64 << 20;
/// Below this many multiplications im2col cannot win: it launches two or three kernels.
const MIN_MULTIPLICATIONS: usize = 1 << 24;

/// How the images of a batch are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// All images in one matrix.
    Together,
    /// A matrix per image, in the layout of the image.
    ByImage,
}

/// Returns the arrangements worth a trial for a geometry.
pub(crate) fn arrangements(geometry: &Geometry) -> Vec<Arrangement> {
    let Geometry { pass, y: [images, ..], groups, .. } = *geometry;
    let last = geometry.channels_last();
    let writes_patches = !geometry.is_plain() || (pass == ConvPass::Wgrad && !last);
    let most = if geometry.is_bf16() && pass == ConvPass::Wgrad { PATCH_WORKSPACE_BYTES } else { MAX_PATCH_BYTES };
    let large = writes_patches && geometry.patch_elements().saturating_mul(geometry.patch_storage().size()) > most;
    if groups != 1 || large || geometry.products() < MIN_MULTIPLICATIONS {
        return vec![];
    }
    match pass {
        // The sum includes the images.
        ConvPass::Wgrad => vec![Arrangement::Together],
        _ if last => vec![Arrangement::Together],
        _ if images == 1 || geometry.is_plain() => vec![Arrangement::ByImage],
        _ => vec![Arrangement::Together, Arrangement::ByImage],
    }
}

/// Returns the steps of a convolution whose dense x, w and y start at these byte offsets, in the layout of the
/// geometry.
pub(crate) fn as_gemm(
    geometry: &Geometry,
    arrangement: Arrangement,
    at: [(Place, isize); 3],
    space: &mut Workspace,
) -> Vec<Work> {
    let storage = geometry.storage;
    let [x, w, y] = at.map(|(place, bytes)| -> Start { (place, bytes / storage.size() as isize, storage) });
    let [n, k, oy, ox] = geometry.y;
    let (plane, last) = (oy * ox, geometry.channels_last());
    // With channels last, the images already form one matrix.
    let together = arrangement == Arrangement::Together && !last;
    let in_place = geometry.is_plain() && !together;
    let mut works = vec![];
    let mut take =
        |elements: usize, storage: StorageType| -> Start { (space.take(elements * storage.size()), 0, storage) };
    let from = |(place, elements, _): Start| (place, elements);
    // The patches, and y as an operand or result of the product.
    let patches = if in_place { x } else { take(geometry.patch_elements(), geometry.patch_storage()) };
    let matrix = if together { take(n * k * plane, storage) } else { y };
    if !in_place && geometry.pass != ConvPass::Dgrad {
        works.push(Work::Kernel(im2col(&CudaCpp, geometry, together, from(x), patches.0)));
    }
    if together && geometry.pass != ConvPass::Fprop {
        works.push(Work::Kernel(swapped(&CudaCpp, [n, k, plane], from(y), from(matrix))));
    }
    let (a, b, c) = match (geometry.pass, last) {
        (ConvPass::Fprop, false) => (w, patches, matrix),
        (ConvPass::Fprop, true) => (patches, w, matrix),
        (ConvPass::Dgrad, false) => (w, matrix, patches),
        (ConvPass::Dgrad, true) => (matrix, w, patches),
        (ConvPass::Wgrad, _) => (matrix, patches, w),
    };
    let math = match (geometry.is_bf16(), geometry.rounds()) {
        (true, _) => GemmMath::BF16,
        (false, true) => GemmMath::TF32,
        (false, false) => GemmMath::F32,
    };
    works.extend(dot(&layout(geometry, together), DType::F32, math, (a, b, c), space));
    if together && geometry.pass == ConvPass::Fprop {
        works.push(Work::Kernel(swapped(&CudaCpp, [k, n, plane], from(matrix), from(y))));
    }
    if !in_place && geometry.pass == ConvPass::Dgrad {
        works.push(Work::Kernel(col2im(&CudaCpp, geometry, together, patches.0, from(x))));
    }
    works
}

/// Returns the strides of the product: a batch of images only if channels come first and the images are separate.
fn layout(geometry: &Geometry, together: bool) -> DotLayout {
    let (Geometry { y: [n, k, oy, ox], .. }, terms) = (*geometry, geometry.w[1..].iter().product::<usize>());
    let (places, images) = if together || geometry.channels_last() { (n * oy * ox, 1) } else { (oy * ox, n) };
    // Contiguous rows, and their transpose.
    let rows = |length: usize| (length as isize, 1);
    let columns = |length: usize| (1, length as isize);
    let (m, n, inner, a, b, c) = match (geometry.pass, geometry.channels_last()) {
        (ConvPass::Fprop, false) => (k, places, terms, rows(terms), rows(places), rows(places)),
        (ConvPass::Fprop, true) => (places, k, terms, rows(terms), columns(terms), rows(k)),
        (ConvPass::Dgrad, false) => (terms, places, k, columns(terms), rows(places), rows(places)),
        (ConvPass::Dgrad, true) => (places, terms, k, rows(k), rows(terms), rows(terms)),
        (ConvPass::Wgrad, false) => (k, terms, places, rows(places), columns(places), rows(terms)),
        (ConvPass::Wgrad, true) => (k, terms, places, columns(k), rows(terms), rows(terms)),
    };
    // The kernel, the left operand, is shared by all images.
    let batch = if images == 1 { vec![] } else { vec![(images, [0, (inner * n) as isize, (m * n) as isize])] };
    DotLayout { m, n, k: inner, a, b, c, batch }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::compile::disk_cache::Cache;
    use crate::compile::nvrtc::{Architecture, compile_all};
    use crate::compile::step::Call;
    use crate::conv::canonical::ImageLayout;
    use crate::runtime::dynlib::{Missing, found_libraries};
    use crate::test_common::can_compile;
    use bilevel_gpu::codegen::Arg;
    use bilevel_graph::Precision;
    use bilevel_plan::Region;
    use std::collections::HashSet;

    /// A 3 × 3 kernel on a padded image: images, input and output channels, and side length.
    pub fn example(pass: ConvPass, [n, c, k, side]: [usize; 4]) -> Geometry {
        Geometry {
            pass,
            x: [n, c, side, side],
            w: [k, c, 3, 3],
            y: [n, k, side, side],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
            precision: Precision::Tf32,
            layout: ImageLayout::Nchw,
            storage: StorageType::F32,
        }
    }

    const ALL: [ConvPass; 3] = [ConvPass::Fprop, ConvPass::Dgrad, ConvPass::Wgrad];
    /// Those of AlexNet on small images.
    const LAYERS: [[usize; 4]; 5] =
        [[32, 3, 64, 32], [32, 64, 192, 16], [32, 192, 384, 8], [32, 384, 256, 8], [32, 256, 256, 8]];

    fn works(geometry: &Geometry, arrangement: Arrangement) -> Vec<Work> {
        let at = [0, 1, 2].map(|number| (Place { region: Region::Input(number), offset: 0 }, 0));
        as_gemm(geometry, arrangement, at, &mut Workspace::new(None))
    }

    /// Returns m, n, k and batch of the only product, its type, and the number of kernels around it.
    fn product(works: &[Work]) -> ([usize; 4], GemmMath, usize) {
        let of = |work: &Work| if let Work::Library(Call::Gemm(p)) = work { Some(*p) } else { None };
        let [p] = works.iter().filter_map(of).collect::<Vec<_>>()[..] else { panic!("{works:?}") };
        ([p.m, p.n, p.k, p.batch], p.math, works.len() - 1)
    }

    #[test]
    fn it_is_tried_where_it_has_a_chance() {
        use Arrangement::{ByImage, Together};
        let layer = LAYERS[3];
        assert_eq!(arrangements(&example(ConvPass::Fprop, layer)), [Together, ByImage]);
        assert_eq!(arrangements(&example(ConvPass::Dgrad, layer)), [Together, ByImage]);
        assert_eq!(arrangements(&example(ConvPass::Wgrad, layer)), [Together]);
        let one = example(ConvPass::Fprop, [1, 384, 256, 8]);
        assert_eq!(arrangements(&one), [ByImage]);
        for pass in ALL {
            let made = example(pass, layer);
            assert_eq!(arrangements(&Geometry { layout: ImageLayout::Nhwc, ..made }), [Together]);
            for hopeless in [
                Geometry { groups: 2, ..made },
                // 2^19 multiplications; 1.2 GB of patches.
                example(pass, [2, 16, 28, 8]),
                example(pass, [128, 64, 64, 64]),
            ] {
                assert_eq!(arrangements(&hopeless), [], "{hopeless:?}");
            }
            // As many pixels, but they are copied only if their layout differs.
            let plain = Geometry { w: [64, 64, 1, 1], padding: [0, 0], ..example(pass, [128, 64, 64, 64]) };
            let expected: &[_] = if pass == ConvPass::Wgrad { &[] } else { &[ByImage] };
            assert_eq!(arrangements(&plain), expected);
            assert_eq!(arrangements(&Geometry { layout: ImageLayout::Nhwc, ..plain }), [Together]);
        }
    }

    /// The same in bf16.
    fn in_bf16(pass: ConvPass, layer: [usize; 4]) -> Geometry {
        Geometry { layout: ImageLayout::Nhwc, storage: StorageType::Bf16, ..example(pass, layer) }
    }

    /// A layer of a Wide-ResNet, with 360 MiB of patches in two bytes.
    const WIDE_RESNET: [usize; 4] = [128, 160, 160, 32];

    #[test]
    fn of_two_bytes_it_is_tried_for_results_and_images_that_fit_a_cache_and_for_kernels_of_larger_ones() {
        use Arrangement::Together;
        let [result, image, kernel] = ALL;
        for pass in [result, image] {
            assert_eq!(arrangements(&in_bf16(pass, LAYERS[3])), [Together]);
            assert_eq!(arrangements(&in_bf16(pass, WIDE_RESNET)), []);
        }
        // 48 MiB of bf16 patches that are read, but 96 MiB of f32 patches that are results.
        let between = [32, 96, 96, 29];
        assert_eq!([result, image].map(|pass| arrangements(&in_bf16(pass, between)).len()), [1, 0]);
        for layer in [LAYERS[3], WIDE_RESNET] {
            assert_eq!(arrangements(&in_bf16(kernel, layer)), [Together]);
        }
        // 720 MiB of patches.
        assert_eq!(arrangements(&in_bf16(kernel, [256, 160, 160, 32])), []);
    }

    #[test]
    fn operands_of_two_bytes_are_multiplied_as_they_are_and_their_results_have_four() {
        use Arrangement::Together;
        let [result, image, kernel] = ALL;
        // Columns before rows, as in cuBLASLt.
        let all = |pass| product(&works(&in_bf16(pass, LAYERS[3]), Together));
        assert_eq!(all(result), ([256, 2048, 3456, 1], GemmMath::BF16, 1));
        assert_eq!(all(image), ([3456, 2048, 256, 1], GemmMath::BF16, 1));
        assert_eq!(all(kernel), ([3456, 256, 2048, 1], GemmMath::BF16, 1));
        let plain = Geometry { w: [160, 160, 1, 1], padding: [0, 0], ..in_bf16(kernel, WIDE_RESNET) };
        assert_eq!(product(&works(&plain, Together)).2, 0);
    }

    #[test]
    fn byte_offsets_are_respected_for_every_element_type() {
        let place = |number| Place { region: Region::Input(number), offset: 512 };
        let begun = |geometry: &Geometry| {
            let at = [(place(0), 32), (place(1), 64), (place(2), 96)];
            as_gemm(geometry, Arrangement::Together, at, &mut Workspace::new(None))
        };
        let bytes = |arg: Arg| if let Arg::Memory(place, bytes) = arg { (place, bytes) } else { panic!("{arg:?}") };
        for geometry in [
            in_bf16(ConvPass::Wgrad, WIDE_RESNET),
            Geometry { storage: StorageType::F32, ..in_bf16(ConvPass::Wgrad, WIDE_RESNET) },
        ] {
            let works = begun(&geometry);
            let [Work::Kernel(unfolds), Work::Library(Call::Gemm(p))] = &works[..] else { panic!("{works:?}") };
            assert!(unfolds.args.contains(&Arg::Memory(place(0), 32)), "{:?}", unfolds.args);
            assert_eq!([bytes(p.b.at), bytes(p.c.at)], [(place(2), 96), (place(1), 64)]);
        }
    }

    #[test]
    fn the_images_are_one_product_or_each_its_own_and_pixels_need_no_patches() {
        use Arrangement::{ByImage, Together};
        let all = |pass| product(&works(&example(pass, LAYERS[3]), Together));
        // Columns before rows, as in cuBLASLt.
        assert_eq!(all(ConvPass::Fprop), ([2048, 256, 3456, 1], GemmMath::TF32, 2));
        // Both operands are strided along k, so one is copied.
        assert_eq!(all(ConvPass::Dgrad), ([2048, 3456, 256, 1], GemmMath::TF32, 3));
        assert_eq!(all(ConvPass::Wgrad), ([3456, 256, 2048, 1], GemmMath::TF32, 2));
        let each = |pass| product(&works(&example(pass, LAYERS[3]), ByImage));
        assert_eq!(each(ConvPass::Fprop), ([64, 256, 3456, 32], GemmMath::TF32, 1));
        assert_eq!(each(ConvPass::Dgrad), ([64, 3456, 256, 32], GemmMath::TF32, 1));
        for pass in ALL {
            let last = Geometry { layout: ImageLayout::Nhwc, precision: Precision::Full, ..example(pass, LAYERS[3]) };
            let (_, math, kernels) = product(&works(&last, Together));
            assert_eq!((math, kernels), (GemmMath::F32, 1));
            let plain = Geometry { w: [256, 384, 1, 1], padding: [0, 0], ..last };
            assert_eq!(product(&works(&plain, Together)).2, 0);
            let first = Geometry { layout: ImageLayout::Nchw, ..plain };
            assert_eq!(product(&works(&first, arrangements(&first)[0])).2, if pass == ConvPass::Wgrad { 2 } else { 0 });
        }
    }

    #[test]
    fn layers_with_images_of_one_size_share_kernels_and_all_of_them_compile() {
        let (mut first, mut all) = (HashSet::new(), HashSet::new());
        for (pass, layer) in ALL.into_iter().flat_map(|pass| LAYERS.map(|layer| (pass, layer))) {
            for (layout, storage) in [
                (ImageLayout::Nchw, StorageType::F32),
                (ImageLayout::Nhwc, StorageType::F32),
                (ImageLayout::Nhwc, StorageType::Bf16),
            ] {
                let geometry = Geometry { layout, storage, ..example(pass, layer) };
                for work in arrangements(&geometry).into_iter().flat_map(|algo| works(&geometry, algo)) {
                    let Work::Kernel(launch) = work else { continue };
                    if layout == ImageLayout::Nchw {
                        first.insert(launch.kernel.clone());
                    }
                    all.insert(launch.kernel);
                }
            }
        }
        // For each of three sizes im2col, col2im and transposed results; for all of them, one transpose.
        assert_eq!(first.len(), 10);
        if can_compile(found_libraries().contains(&(Missing::Nvrtc, true))) {
            let kernels: Vec<_> = all.into_iter().collect();
            for architecture in [80, 90] {
                compile_all(&kernels, Architecture(architecture), &Cache::at(None)).unwrap();
            }
        }
    }
}
