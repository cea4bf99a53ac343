//! Prints milliseconds and GFLOP/s of convolutions and their gradients: `cargo run --release --example conv_speed`.

use bilevel_cpu::Team;
use bilevel_cpu::conv::{ConvPlan, ConvSpec};
use bilevel_graph::ConvDims;
use std::time::Instant;

fn row_major(lens: [usize; 4]) -> [isize; 4] {
    let [_, b, c, d] = lens.map(|x| x as isize);
    [b * c * d, c * d, d, 1]
}

/// A layer of the given shape: forward, gradient by the image, gradient by the kernel.
fn layer(
    n: usize,
    c: usize,
    o: usize,
    h: usize,
    k: usize,
    stride: usize,
    groups: usize,
) -> Vec<(&'static str, ConvSpec, usize)> {
    let pad = (k / 2) as i64;
    let out = (h + 2 * (k / 2) - k) / stride + 1;
    let dims = |stride: usize, low: i64, id: usize, kd: usize| ConvDims {
        stride: [stride; 2],
        padding: [(low, low); 2],
        image_dilation: [id; 2],
        kernel_dilation: [kd; 2],
        groups,
    };
    let (x, w, y) = ([n, c, h, h], [o, c / groups, k, k], [n, o, out, out]);
    let (xs, ws, ys) = (row_major(x), row_major(w), row_major(y));
    let swap = |s: [isize; 4]| [s[1], s[0], s[2], s[3]];
    let forward = ConvSpec {
        dims: dims(stride, pad, 1, 1),
        image: x,
        kernel: w,
        out: y,
        image_strides: xs,
        kernel_strides: ws,
        out_strides: ys,
    };
    let mut all = vec![("forward", forward, 0)];
    if groups == 1 {
        let by_image = ConvSpec {
            dims: dims(1, k as i64 - 1 - pad, stride, 1),
            image: y,
            kernel: [c, o, k, k],
            out: x,
            image_strides: ys,
            kernel_strides: [ws[1], ws[0], -ws[2], -ws[3]],
            out_strides: xs,
        };
        let by_kernel = ConvSpec {
            dims: dims(1, pad, 1, stride),
            image: [c, n, h, h],
            kernel: [o, n, out, out],
            out: [c, o, k, k],
            image_strides: swap(xs),
            kernel_strides: swap(ys),
            out_strides: swap(ws),
        };
        all.push(("by image", by_image, k * k - 1));
        all.push(("by kernel", by_kernel, 0));
    }
    all
}

fn main() {
    let teams = [Team::new(1), Team::new(2)];
    let layers = [
        (25, 64, 64, 42, 3, 1, 1),
        (25, 3, 64, 84, 3, 1, 1),
        (25, 64, 64, 21, 3, 1, 1),
        (25, 64, 64, 10, 3, 1, 1),
        (25, 64, 64, 5, 3, 1, 1),
        (25, 64, 64, 42, 3, 2, 1),
        (25, 1, 64, 28, 3, 2, 1),
        (8, 3, 768, 224, 16, 16, 1),
        (25, 64, 128, 42, 1, 1, 1),
        (25, 64, 64, 42, 3, 1, 64),
    ];
    let filter = std::env::args().nth(1).unwrap_or_default();
    println!("{:52} {:>9} {:>9} {:>9} {:>9}", "n c o size kernel stride groups", "ms 1", "ms 2", "GF/s 1", "GF/s 2");
    for (n, c, o, h, k, stride, groups) in layers {
        for (name, s, turn) in layer(n, c, o, h, k, stride, groups) {
            let title = format!("{n} {c} {o} {h}x{h} {k}x{k} /{stride} g{groups} {name}");
            if !title.contains(&filter) {
                continue;
            }
            let out = s.dims.stride[0].max(s.dims.image_dilation[0]).max(s.dims.kernel_dilation[0]);
            let small = (h + 2 * (k / 2) - k) / out + 1;
            let flop = 2.0 * (n * c / groups * o * k * k * small * small) as f64;
            let fill =
                |n: usize| -> Vec<f32> { (0..n).map(|i| (i * 2654435761 % 1000) as f32 / 1000.0 - 0.5).collect() };
            let (image, kernel) = (fill(s.image.iter().product()), fill(s.kernel.iter().product()));
            let mut y = fill(s.out.iter().product());
            let plan = ConvPlan::<f32>::new(&s);
            let mut work = vec![0u8; plan.workspace_bytes(2)];
            let mut best = [f64::MAX; 2];
            for (team, best) in teams.iter().zip(&mut best) {
                let all = Instant::now();
                for round in 0.. {
                    let start = Instant::now();
                    // SAFETY: the buffers have the sizes of the shapes.
                    unsafe {
                        plan.run(team, image.as_ptr(), kernel.as_ptr().add(turn), y.as_mut_ptr(), work.as_mut_ptr())
                    };
                    *best = best.min(start.elapsed().as_secs_f64());
                    if round >= 5 && all.elapsed().as_secs_f64() > 0.4 {
                        break;
                    }
                }
            }
            let [a, b] = best;
            println!(
                "{title:52} {:9.3} {:9.3} {:9.1} {:9.1}  ({:.1} MB workspace)",
                a * 1e3,
                b * 1e3,
                flop / a * 1e-9,
                flop / b * 1e-9,
                work.len() as f64 / 1e6
            );
        }
    }
}
