//! Canonical convolutions: fprop, dgrad or wgrad of one geometry of an image x, a kernel w and a result y.
//!
//!   y\[n, k, o\] = Σ x\[n, c, o·stride + r·dilation − padding\]·w\[k, c, r\]
//!
//! Every convolution of the graph has a role. Fprop is the convolution itself. Dgrad is a convolution of a dilated image with the reversed kernel, with padding (r−1)·dilation − low. Wgrad sums
//! over the batch: a large kernel of the graph is y, and its result is w.

use crate::target::H200;
pub(crate) use bilevel_graph::ConvPass;
use bilevel_graph::{ConvDims, ConvRole, Precision};
use bilevel_plan::{StorageType, View};

/// The shapes of a convolution, and the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    pub pass: ConvPass,
    /// `[n, c, h, w]`.
    pub x: [usize; 4],
    /// `[k, c / groups, r, s]`.
    pub w: [usize; 4],
    /// `[n, k, oh, ow]`.
    pub y: [usize; 4],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
    /// `Full`, or `Tf32` if the multiplication may round its operands.
    pub precision: Precision,
    /// The layout of x, w and y.
    pub layout: ImageLayout,
    /// How x, w and y are stored: in f32 or bf16.
    pub storage: StorageType,
}

/// The order of the axes of x and y, and of w, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ImageLayout {
    /// `[n, c, h, w]`, and w as `[k, c, r, s]`.
    Nchw,
    /// `[n, h, w, c]`, and w as `[k, r, s, c]`: the layout of the fastest kernels.
    Nhwc,
}

/// The permutation that puts channels last.
const NHWC: [usize; 4] = [0, 2, 3, 1];
/// The minimum number of multiplications for which bf16 storage pays.
const MIN_BF16_MULTIPLICATIONS: usize = 1 << 26;

/// A geometry with the views of x, w and y; the pass determines which of them is the graph's image, kernel and result.
#[derive(Clone)]
pub(crate) struct CanonicalConv {
    pub geometry: Geometry,
    pub x: View,
    pub w: View,
    pub y: View,
}

impl CanonicalConv {
    /// Returns the channels-last form, if x or y already has that layout and cuDNN has fast kernels for it. Otherwise
    /// it is cheaper to leave conversion to cuDNN.
    pub fn with_channels_last(&self) -> Option<CanonicalConv> {
        let CanonicalConv { geometry, x, w, y } = self;
        let [x, w, y] = [x, w, y].map(|view| view.transpose(&NHWC));
        let fits = geometry.rounds()
            && geometry.groups == 1
            && geometry.loads(size_of::<f32>())
            && (x.is_dense() || y.is_dense());
        fits.then_some(CanonicalConv { geometry: Geometry { layout: ImageLayout::Nhwc, ..*geometry }, x, w, y })
    }

    /// Returns the bf16 form of a large channels-last convolution: its kernels may have to be compiled at first use,
    /// which takes about a second.
    pub fn in_bf16(&self) -> Option<CanonicalConv> {
        let fits = self.geometry.channels_last()
            && self.geometry.products() >= MIN_BF16_MULTIPLICATIONS
            && self.geometry.loads(size_of::<u16>());
        fits.then(|| CanonicalConv {
            geometry: Geometry { storage: StorageType::Bf16, ..self.geometry },
            ..self.clone()
        })
    }
}

/// Returns the canonical form of a convolution, if cuDNN supports it.
pub(crate) fn canonical(
    (dims, role): (&ConvDims, ConvRole),
    [image, kernel, out]: [&View; 3],
    precision: Precision,
) -> Option<CanonicalConv> {
    let (dims, [image, kernel, out]) = &forwards(dims, [image, kernel, out]);
    let spread = dims.image_dilation != [1, 1];
    let pass = match role.pass() {
        // Dgrad of a 1×1 kernel is fprop of the transposed kernel. Grouped dgrad is fprop of the reversed kernel.
        ConvPass::Dgrad if !spread && (dims.groups > 1 || kernel.shape[2..] == [1, 1]) => ConvPass::Fprop,
        ConvPass::Dgrad if dims.groups > 1 || dims.stride != [1, 1] => return None,
        // Few results with many terms each, which the library would treat as a huge kernel.
        ConvPass::Wgrad if dims.groups > 1 => return None,
        ConvPass::Fprop | ConvPass::Wgrad if spread => return None,
        pass => pass,
    };
    let (dims, image) = &if pass == ConvPass::Dgrad { (dims.clone(), image.clone()) } else { cropped(dims, image)? };
    let swapped = |view: &View| view.transpose(&[1, 0, 2, 3]);
    let low = [dims.padding[0].0, dims.padding[1].0];
    let made = if pass == ConvPass::Dgrad {
        let around = |i: usize| (kernel.shape[2 + i] as i64 - 1) * dims.kernel_dilation[i] as i64 - low[i];
        CanonicalConv {
            geometry: Geometry {
                stride: dims.image_dilation,
                dilation: dims.kernel_dilation,
                padding: whole([around(0), around(1)])?,
                ..geometry(ConvPass::Dgrad, dims, precision)
            },
            x: out.clone(),
            w: swapped(kernel).reverse(&[2, 3]),
            y: image.clone(),
        }
    } else if pass == ConvPass::Wgrad {
        CanonicalConv {
            geometry: Geometry {
                stride: dims.kernel_dilation,
                dilation: dims.stride,
                padding: whole(low)?,
                ..geometry(ConvPass::Wgrad, dims, precision)
            },
            x: swapped(image),
            w: swapped(out),
            y: swapped(kernel),
        }
    } else {
        CanonicalConv {
            geometry: Geometry {
                stride: dims.stride,
                dilation: dims.kernel_dilation,
                padding: whole(low)?,
                ..geometry(ConvPass::Fprop, dims, precision)
            },
            x: image.clone(),
            w: kernel.clone(),
            y: out.clone(),
        }
    };
    let four = |view: &View| <[usize; 4]>::try_from(&view.shape[..]).ok();
    let geometry = Geometry { x: four(&made.x)?, w: four(&made.w)?, y: four(&made.y)?, ..made.geometry };
    geometry.is_consistent().then_some(CanonicalConv { geometry, ..made })
}

/// Negative padding leaves out the edge of an image: returns the rest of the image, with padding of at least 0. `None` if
/// nothing is left.
fn cropped(dims: &ConvDims, image: &View) -> Option<(ConvDims, View)> {
    let (mut dims, mut start, mut shape) = (dims.clone(), [0; 4], image.shape.clone());
    for (i, (low, high)) in dims.padding.iter_mut().enumerate() {
        let [first, after] = [*low, *high].map(|padding| usize::try_from(-padding).unwrap_or(0));
        (start[2 + i], shape[2 + i]) = (first, shape[2 + i].checked_sub(first + after)?);
        (*low, *high) = ((*low).max(0), (*high).max(0));
    }
    Some((dims, image.slice(&start, &[1; 4], &shape)))
}

/// If image and kernel are both reversed along an axis, reverses all three views. Second derivatives are read that way.
fn forwards(dims: &ConvDims, views: [&View; 3]) -> (ConvDims, [View; 3]) {
    let (mut dims, mut views) = (dims.clone(), views.map(View::clone));
    for i in 0..2 {
        let axis = 2 + i;
        let [image, kernel, out] = [0, 1, 2].map(|which| views[which].shape[axis] as i64);
        let backwards = |view: &View| view.strides[axis] < 0;
        if image > 1 && backwards(&views[0]) && (kernel == 1 || backwards(&views[1])) {
            let spread = |length: i64, by: usize| (length - 1) * by as i64 + 1;
            let reach = spread(out, dims.stride[i]) + spread(kernel, dims.kernel_dilation[i]) - 1;
            let (low, _) = dims.padding[i];
            dims.padding[i] = (reach - spread(image, dims.image_dilation[i]) - low, low);
            views = views.map(|view| view.reverse(&[axis]));
        }
    }
    (dims, views)
}

fn geometry(pass: ConvPass, dims: &ConvDims, precision: Precision) -> Geometry {
    let none = [0; 4];
    let (stride, padding, dilation) = (dims.stride, [0; 2], dims.kernel_dilation);
    Geometry {
        pass,
        x: none,
        w: none,
        y: none,
        stride,
        padding,
        dilation,
        groups: dims.groups,
        precision,
        layout: ImageLayout::Nchw,
        storage: StorageType::F32,
    }
}

fn whole(padding: [i64; 2]) -> Option<[usize; 2]> {
    Some([usize::try_from(padding[0]).ok()?, usize::try_from(padding[1]).ok()?])
}

impl Geometry {
    /// Returns the number of multiplications.
    pub fn products(&self) -> usize {
        let [_, c, r, s] = self.w;
        self.y.iter().product::<usize>().saturating_mul(c * r * s)
    }

    /// Returns the number of elements of the im2col matrix of x.
    pub fn patch_elements(&self) -> usize {
        let ([n, _, oh, ow], [_, c, r, s]) = (self.y, self.w);
        (n * oh * ow).saturating_mul(self.groups * c * r * s)
    }

    /// Returns true for 1×1 kernels, whose patches are the pixels of x.
    pub fn is_plain(&self) -> bool {
        self.w[2..] == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Returns the strides of x, w or y.
    pub fn strides(&self, [_, c, h, w]: [usize; 4]) -> [usize; 4] {
        if self.channels_last() { [c * h * w, 1, w * c, c] } else { [c * h * w, h * w, w, 1] }
    }

    /// Returns true if the multiplication may round its operands.
    pub fn rounds(&self) -> bool {
        self.precision != Precision::Full
    }

    /// Returns true if x and y are stored as `[n, h, w, c]`.
    pub fn channels_last(&self) -> bool {
        self.layout == ImageLayout::Nhwc
    }

    /// Returns true if x, w and y are stored in bf16.
    pub fn is_bf16(&self) -> bool {
        self.storage == StorageType::Bf16
    }

    /// Returns the storage type of patches: those that col2im sums are not rounded.
    pub fn patch_storage(&self) -> StorageType {
        if self.pass == ConvPass::Dgrad { StorageType::F32 } else { self.storage }
    }

    /// Returns the bytes of x, w and y.
    pub fn bytes(&self) -> [usize; 3] {
        [self.x, self.w, self.y].map(|shape| shape.iter().product::<usize>() * self.storage.size())
    }

    /// Returns true if the channels of a pixel fill whole loads, as the kernels for this layout want.
    fn loads(&self, bytes: usize) -> bool {
        [self.x[1], self.y[1]].iter().all(|channels| (channels * bytes).is_multiple_of(H200.load_bytes))
    }

    /// Returns true if cuDNN computes the same: it pads both sides equally, computes every output that fits, and
    /// indexes by 32 bits.
    fn is_consistent(&self) -> bool {
        let fits = |i: usize| {
            let (image, kernel) = (self.x[2 + i] + 2 * self.padding[i], (self.w[2 + i] - 1) * self.dilation[i] + 1);
            image >= kernel && (image - kernel) / self.stride[i] + 1 == self.y[2 + i]
        };
        let small = |shape: &[usize; 4]| (1..1 << 31).contains(&shape.iter().product::<usize>());
        [&self.x, &self.w, &self.y].into_iter().all(small) && fits(0) && fits(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::conformance::Dice;
    use bilevel_graph::shape::inverse_permutation;
    use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference, gradient_or_zeros, nn};
    use bilevel_plan::{Kind, Schedule, Target};

    /// Computes the convolution as cuDNN documents it, through views of arrays.
    fn computed(form: &CanonicalConv, given: [&[f64]; 2], out: &mut [f64]) {
        let Geometry { pass, x, w, y, stride, padding, dilation, groups, layout, .. } = &form.geometry;
        let at = |view: &View, i: [usize; 4]| {
            let i = if *layout == ImageLayout::Nhwc { NHWC.map(|axis| i[axis]) } else { i };
            (view.offset + i.iter().zip(&view.strides).map(|(&i, &s)| i as isize * s).sum::<isize>()) as usize
        };
        let (inner, outer) = (w[1], w[0] / groups);
        for n in 0..x[0] {
            for k in 0..w[0] {
                for c in 0..inner {
                    for (p, q) in (0..y[2]).flat_map(|p| (0..y[3]).map(move |q| (p, q))) {
                        for (r, s) in (0..w[2]).flat_map(|r| (0..w[3]).map(move |s| (r, s))) {
                            let (h, v) = (p * stride[0] + r * dilation[0], q * stride[1] + s * dilation[1]);
                            if h < padding[0] || v < padding[1] {
                                continue;
                            }
                            let (h, v) = (h - padding[0], v - padding[1]);
                            if h >= x[2] || v >= x[3] {
                                continue;
                            }
                            let i = at(&form.x, [n, k / outer * inner + c, h, v]);
                            let (j, o) = (at(&form.w, [k, c, r, s]), at(&form.y, [n, k, p, q]));
                            // The image of the graph is y for dgrad, otherwise x; its kernel is y for wgrad, otherwise
                            // w.
                            match pass {
                                ConvPass::Fprop => out[o] += given[0][i] * given[1][j],
                                ConvPass::Dgrad => out[i] += given[0][o] * given[1][j],
                                ConvPass::Wgrad => out[j] += given[0][i] * given[1][o],
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn in_bf16_all_have_two_bytes_but_patches_that_are_to_be_added_up() {
        for (pass, patches) in [(ConvPass::Fprop, 2), (ConvPass::Dgrad, 4), (ConvPass::Wgrad, 2)] {
            let wide = crate::conv::im2col::tests::example(pass, [2, 8, 16, 8]);
            let in_bf16 = Geometry { layout: ImageLayout::Nhwc, storage: StorageType::Bf16, ..wide };
            let elements = [2 * 8 * 64, 16 * 8 * 9, 2 * 16 * 64];
            assert_eq!((wide.bytes(), in_bf16.bytes()), (elements.map(|n| 4 * n), elements.map(|n| 2 * n)));
            assert_eq!((wide.patch_storage().size(), in_bf16.patch_storage().size()), (4, patches));
        }
    }

    #[test]
    fn each_pass_of_a_kernel_as_large_as_its_image_is_known_and_so_is_a_single_result_under_a_small_kernel() {
        // A kernel as large as its image, with one result; one result under a kernel; and a kernel of one element.
        for (image, kernel, padding) in [(5, 5, 0), (3, 3, 0), (1, 3, 1), (4, 4, 1), (6, 1, 0)] {
            let g = Graph::new();
            let x = g.input("x", [2, 3, image, image], DType::F32);
            let w = g.input("w", [4, 3, kernel, kernel], DType::F32);
            let y = nn::conv2d(x, w, None, nn::Conv2d { padding: [padding; 2], ..Default::default() });
            let slopes = gradient_or_zeros(y.square().sum_all(), &[x, w]).unwrap();
            let program = Program::builder(&g).output("y", y).output("x", slopes[0]).output("w", slopes[1]);
            let schedule = Schedule::new(&program.build().unwrap(), &Target::PLAIN).unwrap();
            let mut passes = vec![];
            for node in &schedule.nodes {
                let Kind::Conv(dims, role, _) = &node.kind else { continue };
                let views: Vec<&View> = node.reads().map(|(_, view)| view).collect();
                let form = canonical((dims, *role), [views[0], views[1], &node.layout], Precision::Tf32);
                let form = form.unwrap_or_else(|| panic!("no form of {role:?}, {dims:?} of {views:?}"));
                // Dgrad of one element, of the kernel or of the result, is a product.
                if role.pass() == ConvPass::Dgrad && views[1].shape[2..] == [1, 1] {
                    assert!(form.geometry.is_plain() && form.geometry.pass == ConvPass::Fprop, "{:?}", form.geometry);
                } else {
                    assert_eq!(form.geometry.pass, role.pass());
                    // A convolution may have its operands exchanged, so that the larger is the image.
                    let sides = [form.geometry.x, form.geometry.w, form.geometry.y].map(|shape| shape[2]);
                    let [first, second, out] = [views[0], views[1], &node.layout].map(|view| view.shape[2]);
                    let expected = match role.pass() {
                        ConvPass::Fprop => [first, second, out],
                        ConvPass::Dgrad => [out, second, first],
                        ConvPass::Wgrad => [first, out, second],
                    };
                    assert_eq!(sides, expected, "{role:?}");
                    let result = image + 2 * padding - kernel + 1;
                    assert!([image, kernel, result].iter().all(|side| sides.contains(side)), "{sides:?}");
                }
                passes.push(role.pass());
            }
            passes.sort_unstable();
            assert_eq!(passes, [ConvPass::Fprop, ConvPass::Dgrad, ConvPass::Wgrad]);
        }
    }

    #[test]
    fn the_three_forms_are_the_convolution_they_are_made_of_in_either_order() {
        let (mut found, mut found_last) = ([0; 3], [0; 3]);
        for seed in 0..40_000 {
            let mut dice = Dice::new(seed);
            // Every other one has whole vectors of channels, and memory in NCHW, channels-last or swapped order.
            let whole = dice.below(2) == 0;
            let groups = if whole { 1 } else { 1 + dice.below(2) };
            let mut count = |groups| if whole { 4 * (1 + dice.below(2)) } else { groups * (1 + dice.below(3)) };
            let (n, c, o) = (count(1), count(groups), count(groups));
            let orders = [[0, 1, 2, 3], [0, 2, 3, 1], [1, 2, 3, 0]];
            let mut order = || if whole { orders[dice.below(3)] } else { orders[0] };
            let (image_order, out_order) = (order(), order());
            let (h, w) = (1 + dice.below(7), 1 + dice.below(7));
            let (kh, kw) = (1 + dice.below(h), 1 + dice.below(w));
            let dims = ConvDims {
                stride: [1 + dice.below(2), 1 + dice.below(2)],
                padding: [(); 2].map(|()| (dice.below(4) as i64 - 1, dice.below(4) as i64 - 1)),
                image_dilation: if dice.below(3) == 0 { [2, 1 + dice.below(2)] } else { [1, 1] },
                kernel_dilation: [1 + dice.below(2), 1 + dice.below(2)],
                groups,
            };
            let g = Graph::new();
            let lying = image_order.map(|axis| [n, c, h, w][axis]);
            let image = g.input("image", lying, DType::F64).transpose(inverse_permutation(&image_order));
            let turned = dice.below(4) == 0;
            let image = if turned { image.reverse([2, 3]) } else { image };
            let kernel = g.input("kernel", [o, c / groups, kh, kw], DType::F64);
            let backwards = dice.below(2) == 0;
            let read = if backwards { kernel.reverse([2, 3]) } else { kernel };
            let Ok(result) = image.conv(read, dims.clone()).check() else { continue };
            let program = Program::builder(&g).output("y", result.transpose(out_order)).build().unwrap();
            let (x, k) =
                (dice.array(&lying, DType::F64).unwrap(), dice.array(&[o, c / groups, kh, kw], DType::F64).unwrap());
            let mut run = Reference.compile(&program).unwrap();
            run.set(0, &x).unwrap();
            run.set(1, &k).unwrap();
            run.run(0..1).unwrap();
            let expected = run.output(0).unwrap();
            let mut view = View::contiguous(k.shape());
            if backwards {
                view = view.reverse(&[2, 3]);
            }
            let seen =
                |shape: &[usize], order: [usize; 4]| View::contiguous(shape).transpose(&inverse_permutation(&order));
            let (shown, out) = (seen(x.shape(), image_order), seen(expected.shape(), out_order));
            let shown = if turned { shown.reverse(&[2, 3]) } else { shown };
            // Whatever its role is said to be, the form is the same convolution.
            let role = [ConvRole::FPROP, ConvRole::FPROP.of_image(), ConvRole::FPROP.of_kernel()][dice.below(3)];
            let role = if dice.below(2) == 0 { role.exchanged() } else { role };
            let precision = if whole { Precision::Tf32 } else { Precision::Full };
            let Some(form) = canonical((&dims, role), [&shown, &view, &out], precision) else { continue };
            found[form.geometry.pass as usize] += 1;
            let last = form.with_channels_last();
            found_last[form.geometry.pass as usize] += usize::from(last.is_some());
            for form in [Some(form), last].into_iter().flatten() {
                let mut made = Array::zeros(expected.shape(), DType::F64).to_f64();
                computed(&form, [&x.to_f64(), &k.to_f64()], &mut made);
                for (a, b) in made.iter().zip(expected.to_f64()) {
                    assert!((a - b).abs() < 1e-12, "seed {seed}, {:?}: {a} instead of {b}", form.geometry);
                }
            }
        }
        assert!(found.iter().chain(&found_last).all(|&count| count > 20), "{found:?}, {found_last:?}");
    }
}
