//! Convolutions against naive loops, over random shapes, strides, geometries, machines and teams.

use super::*;
use crate::gemm::tests::{Rng, TestNumber, layout};
use crate::simd::Isa;

/// Which method a test forces; `None` leaves the choice to the plan.
fn plan<T: TestNumber>(spec: &ConvSpec, isa: Isa, force: Option<u8>) -> Option<ConvPlan<T>> {
    let kernels = T::kernels(isa)?;
    let mut plan = ConvPlan::with(spec, isa)?;
    for (core, method) in &mut plan.parts {
        match (&method, force) {
            (ConvMethod::Zero, _) | (_, None) => {}
            (_, Some(0)) => *method = ConvMethod::Im2col(Im2col::new(kernels, core)),
            (_, Some(1)) => *method = ConvMethod::Shift(Shift::new(kernels, core)),
            (_, Some(_)) => *method = ConvMethod::Plane(Plane::new(kernels, core)?),
        }
    }
    Some(plan)
}

struct ConvCase {
    spec: ConvSpec,
    first: [usize; 3],
    size: [usize; 3],
}

fn out_len(size: usize, taps: usize, stride: usize, (low, high): (i64, i64), id: usize, kd: usize) -> usize {
    let spread = if size == 0 { 0 } else { (size - 1) * id + 1 };
    let room = spread as i64 + low + high;
    let extent = ((taps - 1) * kd + 1) as i64;
    if room < extent { 0 } else { ((room - extent) / stride as i64 + 1) as usize }
}

fn case(rng: &mut Rng, big: bool) -> ConvCase {
    let groups = rng.pick(&[1, 1, 1, 2, 3]);
    let (n, c, o) = (rng.pick(&[0, 1, 2, 3, 5, 18]), rng.pick(&[1, 1, 2, 3, 7]), rng.pick(&[1, 2, 3, 13, 34]));
    let pair = |rng: &mut Rng, from: &[usize]| [rng.pick(from), rng.pick(from)];
    let sizes: &[usize] = if big { &[1, 7, 12, 23] } else { &[0, 1, 2, 3, 5, 6, 9] };
    let size = pair(rng, sizes);
    let taps = pair(rng, if big { &[1, 3, 9, 12] } else { &[1, 2, 3, 3, 4] });
    let (stride, image_dilation, kernel_dilation) =
        (pair(rng, &[1, 1, 2, 3]), pair(rng, &[1, 1, 1, 2, 3, 4]), pair(rng, &[1, 1, 2, 3, 4]));
    let mut pad = || (rng.below(7) as i64 - 2, rng.below(7) as i64 - 2);
    let padding = [pad(), pad()];
    let out = |i: usize| out_len(size[i], taps[i], stride[i], padding[i], image_dilation[i], kernel_dilation[i]);
    let dims = ConvDims { stride, padding, image_dilation, kernel_dilation, groups };
    let image = [n, c * groups, size[0], size[1]];
    let kernel = [o * groups, c, taps[0], taps[1]];
    let out = [n, o * groups, out(0), out(1)];
    let (i, i0, il) = strides(rng, &image, true);
    let (k, k0, kl) = strides(rng, &kernel, true);
    let (u, u0, ul) = strides(rng, &out, false);
    let spec = ConvSpec { dims, image, kernel, out, image_strides: i, kernel_strides: k, out_strides: u };
    ConvCase { spec, first: [i0, k0, u0], size: [il, kl, ul] }
}

/// Row-major half of the time.
fn strides(rng: &mut Rng, lens: &[usize; 4], input: bool) -> ([isize; 4], usize, usize) {
    if rng.below(2) == 0 {
        return (row_major(lens), 0, lens.iter().product::<usize>().max(1));
    }
    let (s, first, size) = layout(rng, lens, input);
    ([s[0], s[1], s[2], s[3]], first, size)
}

fn row_major(lens: &[usize; 4]) -> [isize; 4] {
    let [_, b, c, d] = lens.map(|x| x as isize);
    [b * c * d, c * d, d, 1]
}

/// The sum and the sum of absolute products, by place in the output.
fn naive<T: TestNumber>(case: &ConvCase, image: &[T], kernel: &[T]) -> Vec<Option<(f64, f64)>> {
    let s = &case.spec;
    let d = &s.dims;
    let at = |first: usize, st: &[isize; 4], i: [usize; 4]| {
        (first as isize + (0..4).map(|a| i[a] as isize * st[a]).sum::<isize>()) as usize
    };
    let mut want = vec![None; case.size[2]];
    let per = s.kernel[0] / d.groups;
    for n in 0..s.out[0] {
        for o in 0..s.out[1] {
            for y in 0..s.out[2] {
                for x in 0..s.out[3] {
                    let (mut sum, mut size) = (0.0, 0.0);
                    for c in 0..s.kernel[1] {
                        for ty in 0..s.kernel[2] {
                            for tx in 0..s.kernel[3] {
                                let place = |a: usize, y: usize, t: usize| {
                                    let p = (y * d.stride[a] + t * d.kernel_dilation[a]) as i64 - d.padding[a].0;
                                    let id = d.image_dilation[a] as i64;
                                    (p >= 0 && p % id == 0 && p / id < s.image[2 + a] as i64)
                                        .then_some((p / id) as usize)
                                };
                                let (Some(iy), Some(ix)) = (place(0, y, ty), place(1, x, tx)) else {
                                    continue;
                                };
                                let ic = o / per * s.kernel[1] + c;
                                let v = image[at(case.first[0], &s.image_strides, [n, ic, iy, ix])].f64()
                                    * kernel[at(case.first[1], &s.kernel_strides, [o, c, ty, tx])].f64();
                                sum += v;
                                size += v.abs();
                            }
                        }
                    }
                    let place = at(case.first[2], &s.out_strides, [n, o, y, x]);
                    assert!(want[place].replace((sum, size)).is_none(), "the output overlaps itself");
                }
            }
        }
    }
    want
}

fn check<T: TestNumber>(rng: &mut Rng, case: &ConvCase, teams: &[Team]) {
    let s = &case.spec;
    let mut fill = |n: usize| -> Vec<T> { (0..n).map(|_| T::of(rng.unit())).collect() };
    let (image, kernel, old) = (fill(case.size[0]), fill(case.size[1]), fill(case.size[2]));
    let want = naive(case, &image, &kernel);
    for isa in Isa::ALL {
        for force in [None, Some(0), Some(1), Some(2)] {
            let Some(plan) = plan::<T>(s, isa, force) else {
                continue;
            };
            let mut first: Option<Vec<T>> = None;
            for team in teams {
                let mut out = old.clone();
                let mut work = vec![0xffu8; plan.workspace_bytes(team.threads())];
                // SAFETY: the buffers have the sizes of the layouts.
                unsafe {
                    plan.run(
                        team,
                        image.as_ptr().add(case.first[0]),
                        kernel.as_ptr().add(case.first[1]),
                        out.as_mut_ptr().add(case.first[2]),
                        work.as_mut_ptr(),
                    )
                };
                for (i, (x, w)) in out.iter().zip(&want).enumerate() {
                    match w {
                        None => assert_eq!(x.bits(), old[i].bits(), "place {i} is not the output's: {s:?} {isa:?}"),
                        Some((sum, size)) => assert!(
                            (x.f64() - sum).abs() <= T::EXACT * size,
                            "{x:?} is not {sum} at {i}: {s:?} {isa:?} {force:?}"
                        ),
                    }
                }
                match &first {
                    None => first = Some(out),
                    Some(f) => {
                        assert!(f.iter().zip(&out).all(|(x, y)| x.bits() == y.bits()), "team changes {s:?} {isa:?}")
                    }
                }
            }
        }
    }
}

#[test]
fn random_convolutions() {
    let teams: Vec<Team> = (1..=3).map(Team::new).collect();
    let mut rng = Rng(3);
    for i in 0..220 {
        let c = case(&mut rng, i % 8 == 0);
        check::<f64>(&mut rng, &c, &teams[..2]);
        check::<f32>(&mut rng, &c, &teams[i % 2..]);
    }
}

/// The shapes of one convolution layer and its two gradients, as the derivative rules write them.
#[test]
fn a_layer_and_its_gradients() {
    let teams: Vec<Team> = (1..=3).map(Team::new).collect();
    let mut rng = Rng(4);
    for (n, c, o, h, stride) in [(3, 5, 33, 14, 1), (2, 16, 7, 13, 2), (9, 3, 8, 21, 1)] {
        let out = (h + 2 - 3) / stride + 1;
        let high = ((out - 1) * stride + 3) as i64 - (h as i64 + 1);
        let dims = |stride: usize, pad: [i64; 2], id: usize, kd: usize| ConvDims {
            stride: [stride; 2],
            padding: [(pad[0], pad[1]); 2],
            image_dilation: [id; 2],
            kernel_dilation: [kd; 2],
            groups: 1,
        };
        let (x, w, y) = ([n, c, h, h], [o, c, 3, 3], [n, o, out, out]);
        let (xs, ws, ys) = (row_major(&x), row_major(&w), row_major(&y));
        let swap = |s: [isize; 4]| [s[1], s[0], s[2], s[3]];
        let size = |s: [usize; 4]| s.iter().product::<usize>();
        let forward = ConvSpec {
            dims: dims(stride, [1, 1], 1, 1),
            image: x,
            kernel: w,
            out: y,
            image_strides: xs,
            kernel_strides: ws,
            out_strides: ys,
        };
        // out = dY spread by the stride, with the kernel turned around.
        let by_image = ConvSpec {
            dims: dims(1, [1, (h + 1) as i64 - ((out - 1) * stride) as i64], stride, 1),
            image: y,
            kernel: [c, o, 3, 3],
            out: x,
            image_strides: ys,
            kernel_strides: [ws[1], ws[0], -ws[2], -ws[3]],
            out_strides: xs,
        };
        let by_kernel = ConvSpec {
            dims: dims(1, [1, high], 1, stride),
            image: [c, n, h, h],
            kernel: [o, n, out, out],
            out: [c, o, 3, 3],
            image_strides: swap(xs),
            kernel_strides: swap(ys),
            out_strides: swap(ws),
        };
        let all = [
            (forward, [size(x), size(w), size(y)], 0),
            (by_image, [size(y), size(w), size(x)], 8),
            (by_kernel, [size(x), size(y), size(w)], 0),
        ];
        for (spec, size, turn) in all {
            let c = ConvCase { spec, first: [0, turn, 0], size };
            check::<f32>(&mut rng, &c, &teams);
        }
    }
}

/// Shapes whose contraction or images are cut into several blocks.
#[test]
fn convolutions_in_several_blocks() {
    let teams: Vec<Team> = (1..=3).map(Team::new).collect();
    let mut rng = Rng(6);
    for (n, c, o, size, taps) in [(2, 1, 3, 28, 27), (150, 2, 3, 5, 4), (1, 80, 20, 6, 3), (90, 1, 30, 36, 34)] {
        let (image, kernel) = ([n, c, size, size], [o, c, taps, taps]);
        let out = [n, o, size + 1 - taps, size + 1 - taps];
        let dims = ConvDims::default();
        let size = [image, kernel, out].map(|s| s.iter().product());
        let (image_strides, kernel_strides, out_strides) = (row_major(&image), row_major(&kernel), row_major(&out));
        let spec = ConvSpec { dims, image, kernel, out, image_strides, kernel_strides, out_strides };
        check::<f32>(&mut rng, &ConvCase { spec, first: [0; 3], size }, &teams[1..]);
    }
}
