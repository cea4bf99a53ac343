//! Prints GFLOP/s of the dense kernels next to the `gemm` crate: `cargo run --release --example dense_speed [filter]`.

use bilevel_cpu::Team;
use bilevel_cpu::gemm::{BatchAxis, GemmPlan, GemmSpec, Strides};
use std::time::Instant;

/// Least seconds of each of these, measured in turns so that a busy machine slows all alike.
fn least<const N: usize>(mut fs: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::MAX; N];
    let mut repeat = [1; N];
    for (f, repeat) in fs.iter_mut().zip(&mut repeat) {
        f();
        let start = Instant::now();
        f();
        *repeat = (0.002 / start.elapsed().as_secs_f64().max(1e-9)).ceil().clamp(1.0, 100_000.0) as usize;
    }
    let all = Instant::now();
    for round in 0.. {
        for i in 0..N {
            // Lets the threads of the one before go to sleep, and wakes those of this one.
            std::thread::sleep(std::time::Duration::from_micros(300));
            fs[i]();
            let start = Instant::now();
            (0..repeat[i]).for_each(|_| fs[i]());
            best[i] = best[i].min(start.elapsed().as_secs_f64() / repeat[i] as f64);
        }
        if round >= 8 && all.elapsed().as_secs_f64() > 1.5 {
            break;
        }
    }
    best
}

fn row(cols: usize) -> Strides {
    Strides { row: cols as isize, col: 1 }
}

fn col(rows: usize) -> Strides {
    Strides { row: 1, col: rows as isize }
}

/// A row-major product, A transposed if asked.
fn plain(m: usize, n: usize, k: usize, a_transposed: bool) -> GemmSpec {
    let a = if a_transposed { col(m) } else { row(k) };
    GemmSpec { m, n, k, a, b: row(n), c: row(n), batch: vec![], accumulate: false }
}

fn cases() -> Vec<(String, GemmSpec)> {
    let mut all = vec![];
    let mut add = |name: &str, s: GemmSpec| all.push((format!("{name} {}x{}x{}", s.m, s.n, s.k), s));
    add("plain", plain(1000, 1000, 784, false));
    add("a-transposed", plain(784, 1000, 1000, true));
    add("plain", plain(1576, 2304, 768, false));
    add("plain", plain(1576, 768, 3072, false));
    add("a-transposed", plain(768, 3072, 1576, true));
    // Attention: q, k, v interleaved in rows of 2304, twelve heads of 64, eight sequences of 197.
    let heads = |a: isize, b: isize, c: isize| {
        vec![
            BatchAxis {
                len: 8,
                a: if a == 64 { 197 * 2304 } else { 12 * a },
                b: 197 * 2304,
                c: if c == 64 { 197 * 768 } else { 12 * c },
            },
            BatchAxis { len: 12, a, b, c },
        ]
    };
    let sq = 197 * 197;
    add(
        "q·kᵀ x96",
        GemmSpec {
            m: 197,
            n: 197,
            k: 64,
            a: row(2304),
            b: col(2304),
            c: row(197),
            batch: heads(64, 64, sq),
            accumulate: false,
        },
    );
    add(
        "p·v x96",
        GemmSpec {
            m: 197,
            n: 64,
            k: 197,
            a: row(197),
            b: row(2304),
            c: row(768),
            batch: heads(sq, 64, 64),
            accumulate: false,
        },
    );
    add("thin", plain(898, 10, 64, false));
    add("thin a-transposed", plain(64, 10, 898, true));
    add("thin", plain(1000, 10, 1000, false));
    add("thin a-transposed", plain(1000, 10, 1000, true));
    add("outer", plain(1000, 1000, 10, false));
    add("thin", plain(25, 5, 1600, false));
    add("thin a-transposed", plain(1600, 5, 25, true));
    add("matrix-vector", plain(1000, 1, 1000, false));
    add("matrix-vector a-transposed", plain(1000, 1, 1000, true));
    add("vector-matrix", plain(1, 1000, 1000, false));
    add("long", plain(10, 10, 100_000, true));
    for s in [2usize, 3, 4, 8] {
        let q = (s * s) as isize;
        let batch = vec![BatchAxis { len: 1000, a: q, b: q, c: q }];
        add("tiny x1000", GemmSpec { batch, ..plain(s, s, s, false) });
    }
    add("tiny x1", plain(4, 4, 4, false));
    add("tiny x1", plain(8, 8, 8, false));
    add("square", plain(64, 64, 64, false));
    add("square", plain(128, 128, 128, false));
    add("square", plain(256, 256, 256, false));
    all
}

fn span(s: Strides, rows: usize, cols: usize, batch: impl Iterator<Item = (usize, isize)>) -> usize {
    let reach = |n: usize, s: isize| n.saturating_sub(1) * s.unsigned_abs();
    1 + reach(rows, s.row) + reach(cols, s.col) + batch.map(|(n, s)| reach(n, s)).sum::<usize>()
}

fn fill(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 2654435761 % 1000) as f32 / 1000.0 - 0.5).collect()
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let teams = [Team::new(1), Team::new(2)];
    println!(
        "{:44} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}  (GFLOP/s)",
        "product", "ours 1", "gemm 1", "ours 2", "gemm 2", "ratio 1", "ratio 2"
    );
    for (name, s) in cases() {
        if !name.contains(&filter) {
            continue;
        }
        let batches: usize = s.batch.iter().map(|x| x.len).product();
        let a = fill(span(s.a, s.m, s.k, s.batch.iter().map(|x| (x.len, x.a))));
        let b = fill(span(s.b, s.k, s.n, s.batch.iter().map(|x| (x.len, x.b))));
        let mut c = fill(span(s.c, s.m, s.n, s.batch.iter().map(|x| (x.len, x.c))));
        let flop = 2.0 * (s.m * s.n * s.k * batches) as f64 * 1e-9;
        let plan = GemmPlan::<f32>::new(&s);
        let mut work = vec![0u8; plan.workspace_bytes(2)];
        let c = c.as_mut_ptr();
        let mut ours = |team: &Team| {
            // SAFETY: the buffers span all strides.
            unsafe { plan.run(team, a.as_ptr(), b.as_ptr(), c, work.as_mut_ptr()) }
        };
        let theirs = |parallelism: gemm::Parallelism| {
            for flat in 0..batches {
                let (mut rest, mut at) = (flat, [0isize; 3]);
                for x in s.batch.iter().rev() {
                    let i = (rest % x.len) as isize;
                    rest /= x.len;
                    at = [at[0] + i * x.a, at[1] + i * x.b, at[2] + i * x.c];
                }
                let (c, a, b) =
                    (c.wrapping_offset(at[2]), a.as_ptr().wrapping_offset(at[0]), b.as_ptr().wrapping_offset(at[1]));
                // SAFETY: the buffers span all strides.
                unsafe {
                    gemm::gemm(
                        s.m,
                        s.n,
                        s.k,
                        c,
                        s.c.col,
                        s.c.row,
                        false,
                        a,
                        s.a.col,
                        s.a.row,
                        b,
                        s.b.col,
                        s.b.row,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        parallelism,
                    )
                }
            }
        };
        let ours = std::cell::RefCell::new(&mut ours);
        let [o1, o2, g1, g2] = least([
            &mut || ours.borrow_mut()(&teams[0]),
            &mut || ours.borrow_mut()(&teams[1]),
            &mut || theirs(gemm::Parallelism::None),
            &mut || theirs(gemm::Parallelism::Rayon(2)),
        ]);
        let [o1, g1, o2, g2] = [o1, g1, o2, g2].map(|t| flop / t);
        println!("{name:44} {o1:8.1} {g1:8.1} {o2:8.1} {g2:8.1} {:7.2} {:7.2}", o1 / g1, o2 / g2);
    }
}
