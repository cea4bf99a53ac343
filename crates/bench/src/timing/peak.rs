//! The rate of arithmetic this machine reaches at its best, measured.

use bilevel_cpu::Team;
use bilevel_cpu::gemm::{GemmPlan, GemmSpec, Strides};
use std::time::Instant;

/// Side of the matrices multiplied: large enough for full speed, small enough to be quick.
const SIDE: usize = 1024;

/// Floating point operations a second of our own f32 product of two matrices of 1024×1024: the best of `tries`.
pub fn peak_rate(threads: usize, tries: usize) -> f64 {
    let rows = Strides { row: SIDE as isize, col: 1 };
    let spec = GemmSpec { m: SIDE, n: SIDE, k: SIDE, a: rows, b: rows, c: rows, batch: vec![], accumulate: false };
    let plan = GemmPlan::<f32>::new(&spec);
    let team = Team::new(threads);
    let (a, b) = (vec![0.5f32; SIDE * SIDE], vec![0.25f32; SIDE * SIDE]);
    let mut c = vec![0f32; SIDE * SIDE];
    let mut workspace = vec![0u8; plan.workspace_bytes(team.threads())];
    let mut best = f64::INFINITY;
    for _ in 0..tries.max(1) {
        let start = Instant::now();
        // SAFETY: the matrices have the shape and strides of the spec, the workspace the size of the plan.
        unsafe { plan.run(&team, a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), workspace.as_mut_ptr()) };
        best = best.min(start.elapsed().as_secs_f64());
    }
    2.0 * (SIDE as f64).powi(3) / best
}
