//! Stein variational gradient descent (Liu and Wang 2016) on the networks of a task, its particles:
//!
//!   φᵢ = (1/P)·Σⱼ \[ −k(θⱼ, θᵢ)·∇L(θⱼ) + ∇_θⱼ k(θⱼ, θᵢ) \],   k(a, b) = exp(−‖a − b‖²/h),   h = mean ‖a − b‖²/ln P
//!
//! The direction is no gradient of any loss, so it enters as a loss that is linear in θ, with φ as its constant slope.
//! A step of descent is a step along φ, and derivatives through training have no curvature. Bayesian MAML with it is of
//! first order.

use bilevel::Tensor;

/// A loss of the value of the particles' own, whose slope is −φ. `leaves` and the `slopes` of the particles' losses lie as
/// `[tasks · particles, ..]`.
pub(super) fn loss(value: Tensor, leaves: &[Tensor], slopes: &[Tensor], (tasks, particles): (usize, usize)) -> Tensor {
    let flat = |x: &Tensor| x.stop_gradient().reshape([tasks, particles, x.len() / (tasks * particles)]);
    let of: Vec<Tensor> = leaves.iter().map(flat).collect();
    let (apart, kernel, width) = kernel(&of, particles);
    // ∇_θⱼ k(θⱼ, θᵢ), summed over j, is (2/h)·Σⱼ k·(θᵢ − θⱼ).
    let (sums, push) = (kernel.sum([2]).unsqueeze([2]), (width.recip() * 2.0).unsqueeze([1, 2]));
    let linear = leaves.iter().zip(slopes).zip(&apart).map(|((leaf, slope), apart)| {
        let pull = kernel.matmul(flat(slope));
        let repel = (*apart * sums - kernel.matmul(*apart)) * push;
        let direction = (repel - pull) * (1.0 / particles as f64);
        (*leaf * direction.reshape(leaf.shape()).stop_gradient()).sum_all()
    });
    let linear = -linear.reduce(|a, b| a + b).unwrap_or(value);
    value.stop_gradient() + (linear - linear.stop_gradient())
}

/// The particles less their mean, which keeps the distances exact, the kernel `[tasks, P, P]`, and h of each task.
fn kernel(of: &[Tensor], particles: usize) -> (Vec<Tensor>, Tensor, Tensor) {
    let apart: Vec<Tensor> = of.iter().map(|x| *x - x.mean([1]).unsqueeze([1])).collect();
    let square = |x: &Tensor| {
        let products = x.matmul(x.transpose([0, 2, 1]));
        let own = x.square().sum([2]);
        own.unsqueeze([2]) + own.unsqueeze([1]) - products * 2.0
    };
    let distances = apart.iter().map(square).reduce(|a, b| a + b).map(|sum| sum.greater(0.0).select(sum, 0.0));
    let Some(distances) = distances else { return (apart, of[0], of[0]) };
    // The mean over pairs of different particles.
    let pairs = (particles * (particles - 1)) as f64;
    let width = distances.sum([1, 2]) * (1.0 / (pairs * (particles as f64).ln())) + 1e-12;
    let kernel = (-distances * width.recip().unsqueeze([1, 2])).exp();
    (apart, kernel, width)
}
