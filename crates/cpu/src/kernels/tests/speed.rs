//! Time of every kernel on a tile in the first cache, printed by `cargo test --release -- --ignored --nocapture speed`.

use crate::kernels::*;
use std::hint::black_box;
use std::time::Instant;

/// Best of several runs, in nanoseconds for each of n elements.
fn time(n: usize, mut f: impl FnMut()) -> f64 {
    // Short runs, many of them: one falls between whatever else the machine does.
    let repeats = 4000 / n + 1;
    let mut best = f64::INFINITY;
    for _ in 0..1000 {
        let start = Instant::now();
        for _ in 0..repeats {
            f();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / repeats as f64);
    }
    best / n as f64
}

/// The next address that is a multiple of 64.
fn aligned<T>(p: *mut T) -> *mut u8 {
    let p = p.cast::<u8>();
    p.wrapping_add(p.align_offset(64))
}

#[test]
#[ignore = "prints times"]
fn speed() {
    const N: usize = 1024;
    let x32: Vec<f32> = (0..N + 16).map(|i| 0.1 + i as f32 * 0.003).collect();
    let x64: Vec<f64> = x32.iter().map(|&x| x as f64).collect();
    let xi: Vec<i32> = (0..N as i32 + 16).map(|i| i % 7 - 3).collect();
    let mut out = vec![0f64; 8 * N];
    let mut same = vec![1f64; N + 8];
    let d = aligned(out.as_mut_ptr());
    let s = aligned(same.as_mut_ptr());
    let tile = Arity::Tile;
    for isa in Isa::available() {
        for (dtype, x) in [
            (DType::F32, aligned(x32.as_ptr().cast_mut()).cast_const()),
            (DType::F64, aligned(x64.as_ptr().cast_mut()).cast_const()),
            (DType::I32, aligned(xi.as_ptr().cast_mut()).cast_const()),
        ] {
            let line = |name: &str, ns: f64| println!("{isa:?} {dtype} {name} {ns:.3}");
            for op in UnaryOp::ALL {
                if let Some(f) = unary(isa, op, dtype) {
                    line(&format!("{op:?}"), time(N, || kernel!(f(black_box(d), black_box(x), N))));
                }
            }
            for op in BinaryOp::ALL {
                if let Some(f) = binary(isa, op, dtype, tile, tile) {
                    line(&format!("{op:?}"), time(N, || kernel!(f(black_box(d), black_box(x), x, N))));
                }
            }
            let f = binary(isa, BinaryOp::Mul, dtype, tile, Arity::Scalar).unwrap();
            line("Mul by scalar", time(N, || kernel!(f(black_box(d), black_box(x), x, N))));
            let f = binary(isa, BinaryOp::Mul, dtype, tile, tile).unwrap();
            line("Mul in place", time(N, || kernel!(f(black_box(s), black_box(s), s, N))));
            same.fill(1.0);
            line("Mul, n = 1, per call", time(1, || kernel!(f(black_box(d), black_box(x), x, 1))));
            line("Mul, n = 10", time(10, || kernel!(f(black_box(d), black_box(x), x, 10))));
            if let Some(f) = unary(isa, UnaryOp::Tanh, dtype) {
                line("Tanh, n = 1, per call", time(1, || kernel!(f(black_box(d), black_box(x), 1))));
            }
            let f = select(isa, dtype, tile, tile);
            line("select", time(N, || kernel!(f(black_box(d), black_box(x), x, x, N))));
            let f = fused(isa, FusedOp::MulAdd, dtype, tile, tile, tile);
            line("mul_add", time(N, || kernel!(f(black_box(d), black_box(x), x, x, N))));
            for to in [DType::F32, DType::F64, DType::I32] {
                let f = convert(isa, dtype, to);
                line(&format!("convert to {to}"), time(N, || kernel!(f(black_box(d), black_box(x), N))));
            }
            let f = fill(isa, dtype);
            line("fill", time(N, || kernel!(f(black_box(d), black_box(x), N))));
            let f = iota(isa, dtype);
            line("iota", time(N, || kernel!(f(black_box(d), 1.0, 2.0, N))));
            let f = copy_strided(isa, dtype);
            line("copy_strided", time(N / 4, || kernel!(f(black_box(d), black_box(x), 4, N / 4))));
            for l in [2, 10, 64, 1000] {
                let f = repeat(isa, dtype);
                line(&format!("repeat {l}"), time(N / l * l, || kernel!(f(black_box(d), black_box(x), N / l, l))));
            }
            for l in [2, 4, 10, 16, 64, 256, 1024] {
                let n = N / l * l;
                for (name, f) in [
                    ("row_sum", row_sum(isa, dtype)),
                    ("row_max", row_max(isa, dtype)),
                    ("row_argmax", row_argmax(isa, dtype)),
                ] {
                    line(&format!("{name} {l}"), time(n, || kernel!(f(black_box(d), black_box(x), N / l, l))));
                }
                let f = row_dot(isa, dtype);
                line(&format!("row_dot {l}"), time(n, || kernel!(f(black_box(d), black_box(x), x, N / l, l))));
            }
            let f = accumulate_max(isa, dtype);
            line("accumulate_max", time(N, || kernel!(f(black_box(s), black_box(x), N))));
            for kind in [RandomKind::Normal, RandomKind::Uniform, RandomKind::Bits] {
                if let Some(f) = random(isa, kind, dtype) {
                    line(&format!("{kind:?}"), time(N, || kernel!(f(black_box(d), black_box([1, 2]), 0, 0, 0, N))));
                    let one = time(1, || kernel!(f(black_box(d), black_box([1, 2]), 0, 0, 0, 1)));
                    line(&format!("{kind:?}, n = 1, per call"), one);
                }
            }
        }
    }
}
