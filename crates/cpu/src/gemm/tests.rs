//! Products against naive loops, over random shapes, strides, batches, machines and teams.

use super::*;
use crate::runtime::thread_pool::Team;
use crate::simd::Isa;

/// A small random generator, seeded by the test.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// In 0..n.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Number types of the tests: conversion and how exact sums are.
pub(crate) trait TestNumber: Real + std::fmt::Debug {
    const EXACT: f64;
    fn of(x: f64) -> Self;
    fn f64(self) -> f64;
    fn bits(self) -> u64;
}

impl TestNumber for f32 {
    const EXACT: f64 = 2e-5;
    fn of(x: f64) -> f32 {
        x as f32
    }
    fn f64(self) -> f64 {
        self as f64
    }
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl TestNumber for f64 {
    const EXACT: f64 = 1e-12;
    fn of(x: f64) -> f64 {
        x
    }
    fn f64(self) -> f64 {
        self
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// Strides of axes of these lengths in random order, with gaps and reversals; returns strides, first place, size. For
/// inputs an axis may repeat (stride 0).
pub(crate) fn layout(rng: &mut Rng, lens: &[usize], input: bool) -> (Vec<isize>, usize, usize) {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i + 1));
    }
    let (mut strides, mut size, mut first) = (vec![0isize; lens.len()], 1usize, 0usize);
    for axis in order {
        if input && rng.below(8) == 0 {
            continue;
        }
        size += rng.pick(&[0, 0, 0, 0, 1, 3]);
        let reach = size * lens[axis].saturating_sub(1);
        strides[axis] = size as isize;
        if rng.below(5) == 0 {
            strides[axis] = -strides[axis];
            first += reach;
        }
        size += reach;
    }
    (strides, first, size)
}

struct GemmCase {
    spec: GemmSpec,
    first: [usize; 3],
    size: [usize; 3],
}

fn case(rng: &mut Rng, sizes: &[usize]) -> GemmCase {
    let (m, n, k) = (rng.pick(sizes), rng.pick(sizes), rng.pick(sizes));
    let batch: Vec<usize> = (0..rng.pick(&[0, 0, 0, 1, 1, 2, 3])).map(|_| rng.pick(&[0, 1, 2, 3, 3, 20])).collect();
    let all = |x: usize, y: usize| [batch.as_slice(), &[x, y]].concat();
    let (a, a0, an) = layout(rng, &all(m, k), true);
    let (b, b0, bn) = layout(rng, &all(k, n), true);
    let (c, c0, cn) = layout(rng, &all(m, n), false);
    let d = batch.len();
    let two = |s: &[isize]| Strides { row: s[d], col: s[d + 1] };
    let axes = (0..d).map(|i| BatchAxis { len: batch[i], a: a[i], b: b[i], c: c[i] }).collect();
    let spec = GemmSpec { m, n, k, a: two(&a), b: two(&b), c: two(&c), batch: axes, accumulate: rng.below(3) == 0 };
    GemmCase { spec, first: [a0, b0, c0], size: [an, bn, cn] }
}

fn check<T: TestNumber>(rng: &mut Rng, case: &GemmCase, teams: &[Team]) {
    let s = &case.spec;
    let mut fill = |n: usize| -> Vec<T> { (0..n).map(|_| T::of(rng.unit())).collect() };
    let (a, b, c) = (fill(case.size[0]), fill(case.size[1]), fill(case.size[2]));
    let [a0, b0, c0] = case.first.map(|x| x as isize);
    // Naive: the sum and the sum of absolute products, by place in C.
    let mut want: Vec<Option<(f64, f64)>> = vec![None; c.len()];
    let batches: usize = s.batch.iter().map(|x| x.len).product();
    for flat in 0..batches {
        let (mut rest, mut at) = (flat, [a0, b0, c0]);
        for x in s.batch.iter().rev() {
            let i = (rest % x.len) as isize;
            rest /= x.len;
            at = [at[0] + i * x.a, at[1] + i * x.b, at[2] + i * x.c];
        }
        for i in 0..s.m as isize {
            for j in 0..s.n as isize {
                let place = (at[2] + i * s.c.row + j * s.c.col) as usize;
                let old = if s.accumulate { c[place].f64() } else { 0.0 };
                let (mut sum, mut size) = (old, old.abs());
                for k in 0..s.k as isize {
                    let x = a[(at[0] + i * s.a.row + k * s.a.col) as usize].f64()
                        * b[(at[1] + k * s.b.row + j * s.b.col) as usize].f64();
                    sum += x;
                    size += x.abs();
                }
                assert!(want[place].replace((sum, size)).is_none(), "C overlaps itself");
            }
        }
    }
    for isa in Isa::ALL {
        let Some(plan) = GemmPlan::<T>::with(s, isa) else {
            continue;
        };
        let mut first: Option<Vec<T>> = None;
        for team in teams {
            let mut out = c.clone();
            let mut work = vec![0xffu8; plan.workspace_bytes(team.threads())];
            // SAFETY: the buffers have the sizes of the layouts.
            unsafe {
                plan.run(
                    team,
                    a.as_ptr().offset(a0),
                    b.as_ptr().offset(b0),
                    out.as_mut_ptr().offset(c0),
                    work.as_mut_ptr(),
                )
            };
            for (i, (x, w)) in out.iter().zip(&want).enumerate() {
                match w {
                    None => assert_eq!(x.bits(), c[i].bits(), "place {i} is not C's: {s:?} {isa:?}"),
                    Some((sum, size)) => {
                        assert!((x.f64() - sum).abs() <= T::EXACT * size, "{x:?} is not {sum} at {i}: {s:?} {isa:?}")
                    }
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

fn teams() -> Vec<Team> {
    (1..=3).map(Team::new).collect()
}

#[test]
fn random_products() {
    let (teams, mut rng) = (teams(), Rng(1));
    for _ in 0..250 {
        let c = case(&mut rng, &[0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33, 40]);
        check::<f64>(&mut rng, &c, &teams);
        check::<f32>(&mut rng, &c, &teams);
    }
}

/// All strides of m×k, k×n, m×n matrices from row-major and column-major, so that every fast path is met.
#[test]
fn plain_products() {
    let (teams, mut rng) = (teams(), Rng(2));
    let shapes = [
        (1, 1, 1),
        (1, 9, 300),
        (300, 1, 9),
        (9, 300, 1),
        (1, 300, 70),
        (300, 1, 70),
        (25, 5, 700),
        (90, 10, 64),
        (64, 10, 90),
        (130, 10, 130),
        (100, 100, 10),
        (97, 95, 64),
        (129, 70, 450),
        (70, 290, 401),
        (8, 8, 8),
        (1, 1, 9000),
        (10, 10, 5000),
    ];
    for (m, n, k) in shapes {
        for bits in 0..8 {
            let two = |bit: usize, rows: usize, cols: usize| {
                if bits >> bit & 1 == 0 {
                    Strides { row: cols as isize, col: 1 }
                } else {
                    Strides { row: 1, col: rows as isize }
                }
            };
            let spec = GemmSpec {
                m,
                n,
                k,
                a: two(0, m, k),
                b: two(1, k, n),
                c: two(2, m, n),
                batch: vec![],
                accumulate: bits == 3,
            };
            let c = GemmCase { spec, first: [0; 3], size: [m * k, k * n, m * n] };
            check::<f32>(&mut rng, &c, &teams[1..]);
            if bits % 3 == 0 {
                check::<f64>(&mut rng, &c, &teams[..2]);
            }
        }
    }
}

/// More rows, or more columns, than are packed at a time; and a contraction in several blocks.
#[test]
fn products_in_several_blocks() {
    let (teams, mut rng) = (teams(), Rng(5));
    for (m, n, k) in [(3200, 70, 3), (70, 3200, 3), (80, 75, 900)] {
        let row = |cols: usize| Strides { row: cols as isize, col: 1 };
        let spec = GemmSpec { m, n, k, a: row(k), b: row(n), c: row(n), batch: vec![], accumulate: true };
        check::<f32>(&mut rng, &GemmCase { spec, first: [0; 3], size: [m * k, k * n, m * n] }, &teams[1..]);
    }
}

#[test]
fn pieces_cover_the_result_once_when_it_is_complete() {
    use std::sync::Mutex;
    let mut rng = Rng(9);
    let shapes = [(1, 70, 40), (70, 1, 40), (300, 500, 30), (500, 150, 900), (40, 10, 2000), (20, 3300, 70), (9, 9, 0)];
    for ((m, n, k), batch) in shapes.into_iter().flat_map(|shape| [(shape, 1), (shape, 20)]) {
        for c in [Strides { row: n as isize, col: 1 }, Strides { row: 1, col: m as isize }] {
            let step = (m * n) as isize;
            let axis = BatchAxis { len: batch, a: 0, b: (k * n) as isize, c: step };
            let (a, b) = (Strides { row: k as isize, col: 1 }, Strides { row: n as isize, col: 1 });
            let plan = GemmPlan::<f32>::new(&GemmSpec { m, n, k, a, b, c, batch: vec![axis], accumulate: false });
            let Some(pieces) = plan.pieces() else { continue };
            let mut fill = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.unit() as f32).collect() };
            let (a, b) = (fill(m * k), fill(batch * k * n));
            for team in teams() {
                let mut out = vec![f32::NAN; batch * m * n];
                let mut work = vec![0u8; plan.workspace_bytes(team.threads())];
                let seen = Mutex::new((vec![None; out.len()], vec![false; pieces.count]));
                let start = out.as_mut_ptr();
                let result = super::plan::Matrices { a: start, b: start, c: start };
                let then = |piece: &Piece, worker: usize| {
                    assert!(worker < team.threads());
                    let mut seen = seen.lock().unwrap();
                    assert!(!std::mem::replace(&mut seen.1[piece.number], true));
                    for i in 0..piece.count * piece.length {
                        let at = piece.first + i / piece.length * piece.step + i % piece.length;
                        // SAFETY: a piece lies inside C, and nobody writes it any more.
                        assert!(seen.0[at].replace(unsafe { *result.c().add(at) }).is_none());
                    }
                };
                // SAFETY: the buffers have the sizes of the strides.
                unsafe { plan.run_then(&team, a.as_ptr(), b.as_ptr(), start, work.as_mut_ptr(), Some(&then)) };
                let (found, numbers) = seen.into_inner().unwrap();
                assert!(numbers.iter().all(|&seen| seen), "{m}×{n}×{k}");
                assert!(found.iter().zip(&out).all(|(x, y)| *x == Some(*y)), "{m}×{n}×{k}");
            }
        }
    }
}
