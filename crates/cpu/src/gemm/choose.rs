//! Which method computes a product, by a rough count of machine cycles.

use super::blocked::Blocked;
use super::direct::Direct;
use super::inner::Inner;
use super::plan::{GemmMethod, Problem};
use crate::gemm::kernel_tables::{Kernels, Real};

/// The cheapest method with m as the vector axis, and its cost in rough machine cycles.
pub(crate) fn choose<T: Real>(kernels: &Kernels<T>, p: &Problem) -> (f64, GemmMethod) {
    let (m, n, k) = (p.m as f64, p.n as f64, p.k as f64);
    let lanes = kernels.lanes as f64;
    // Cycles to compute: a tile costs at least its loads, and at least the latency of one multiply-add.
    let tile = |rows: f64, cols: f64| (rows * cols).max(rows + cols).max(4.0);
    let vectors = (m / lanes).ceil();
    let high = vectors.min(2.0);
    let wide = n.min(kernels.nr as f64);
    let compute = k * (vectors / high) * (n / wide) * tile(high, wide);
    // Cycles to move one element, by how contiguous it is.
    let moved = |unit: bool, other: bool| {
        if unit {
            0.15
        } else if other {
            0.4
        } else {
            1.5
        }
    };
    let unit = p.c.0 == 1 || p.m == 1;
    // A sum in several blocks comes back to C for each; a tile that lies across C is then added one by one.
    let again = (k / 400.0).ceil() - if p.accumulate { 0.0 } else { 1.0 };
    let write = m * n * (moved(unit, p.c.1 == 1) + again * if unit { 0.3 } else { 2.0 });
    let (pack_a, pack_b) = (moved(p.a.0 == 1, p.a.1 == 1) * m * k, moved(p.b.1 == 1, p.b.0 == 1) * n * k);
    let thin = p.n <= 2 * kernels.nr || p.m <= 2 * kernels.mr() || p.m * p.n * p.k <= 1 << 18;
    let outer = if thin {
        let pack_a = if p.a.0 == 1 || p.m == 1 { 0.0 } else { pack_a };
        (compute + write + pack_a, GemmMethod::Direct(Direct::new(kernels, p)))
    } else {
        (compute + write + pack_a + pack_b, GemmMethod::Blocked(Blocked::new(kernels, p)))
    };
    if p.a.1 != 1 || p.n > 32 {
        return outer;
    }
    let (dr, dc) = (m.min(kernels.dr as f64), n.min(kernels.dc as f64));
    let inner = (k / lanes).ceil() * m / dr * (n / dc) * tile(dr, dc)
        + m * n * (0.5 * lanes)
        + if p.b.0 == 1 { 0.0 } else { n * k * moved(false, p.b.1 == 1) };
    if inner < outer.0 { (inner, GemmMethod::Inner(Inner::new(kernels, p))) } else { outer }
}
