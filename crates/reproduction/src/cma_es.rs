//! CMA-ES (Hansen 2016), the evolution strategy with which TaylorGLO searches for losses: for few numbers, and
//! functions without an available derivative.
//!
//!   xₖ = m + σ·C^½·zₖ,   zₖ normal,   m ← Σ wᵢ·x₍ᵢ₎ over the better half, the best first
//!
//! C and σ follow the steps of m: C grows along them, σ grows if they add up and shrinks if they cancel.

use bilevel::Key;
use bilevel::graph::random::fill_normal_f64;

/// The state of a search.
///
/// ```
/// use bilevel_reproduction::cma_es::CmaEs;
/// // A valley a thousand times as long as it is wide.
/// let valley = |x: &[f64]| (x[0] - 3.0).powi(2) + 1e6 * (x[1] - x[0]).powi(2);
/// let mut search = CmaEs::new(vec![0.0, 0.0], 0.5, 8, 1);
/// for _ in 0..150 {
///     let asked = search.ask();
///     let values: Vec<f64> = asked.iter().map(|x| valley(x)).collect();
///     search.tell(&asked, &values);
/// }
/// assert!((search.mean()[0] - 3.0).abs() < 1e-6, "{:?}", search.mean());
/// ```
#[derive(Clone, Debug)]
pub struct CmaEs {
    mean: Vec<f64>,
    sigma: f64,
    /// C = B·D²·Bᵀ, with the eigenvectors in the columns of B.
    covariance: Vec<Vec<f64>>,
    axes: Vec<Vec<f64>>,
    lengths: Vec<f64>,
    path: Vec<f64>,
    sigma_path: Vec<f64>,
    weights: Vec<f64>,
    population: usize,
    key: Key,
    generation: u32,
}

impl CmaEs {
    /// A search around a point, with steps of about σ in every direction and this many points per generation, at least 4.
    pub fn new(mean: Vec<f64>, sigma: f64, population: usize, seed: u64) -> Self {
        let (n, population) = (mean.len(), population.max(4));
        let half = population / 2;
        let raw: Vec<f64> = (1..=half).map(|rank| (half as f64 + 0.5).ln() - (rank as f64).ln()).collect();
        let sum: f64 = raw.iter().sum();
        CmaEs {
            sigma,
            covariance: identity(n),
            axes: identity(n),
            lengths: vec![1.0; n],
            path: vec![0.0; n],
            sigma_path: vec![0.0; n],
            weights: raw.iter().map(|weight| weight / sum).collect(),
            population,
            key: Key::from_seed(seed),
            generation: 0,
            mean,
        }
    }

    /// The mean of the search.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The points of the next generation.
    pub fn ask(&self) -> Vec<Vec<f64>> {
        let n = self.mean.len();
        let mut draws = vec![0.0; n * self.population];
        fill_normal_f64(self.key.words(), self.generation, 0, 0, &mut draws);
        let point = |z: &[f64]| {
            let scaled: Vec<f64> = z.iter().zip(&self.lengths).map(|(z, length)| z * length).collect();
            (0..n).map(|i| self.mean[i] + self.sigma * dot(&self.axes[i], &scaled)).collect()
        };
        draws.chunks(n.max(1)).map(point).collect()
    }

    /// Learns from the values of the points from [`ask`](Self::ask); smaller is better, and a value that is not a
    /// number is worst.
    pub fn tell(&mut self, points: &[Vec<f64>], values: &[f64]) {
        let n = self.mean.len() as f64;
        let mut order: Vec<usize> = (0..points.len().min(values.len())).collect();
        let rank = |value: f64| if value.is_nan() { f64::INFINITY } else { value };
        order.sort_by(|a, b| rank(values[*a]).total_cmp(&rank(values[*b])));
        let effective = 1.0 / self.weights.iter().map(|weight| weight * weight).sum::<f64>();
        // How fast paths forget, how fast σ and C follow: Hansen's defaults.
        let path_rate = (4.0 + effective / n) / (n + 4.0 + 2.0 * effective / n);
        let sigma_rate = (effective + 2.0) / (n + effective + 5.0);
        let one_rate = 2.0 / ((n + 1.3).powi(2) + effective);
        let many_rate =
            (1.0 - one_rate).min(2.0 * (effective - 2.0 + 1.0 / effective) / ((n + 2.0).powi(2) + effective));
        let damping = 1.0 + 2.0 * (((effective - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + sigma_rate;
        let expected = n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));

        let steps: Vec<Vec<f64>> = (order.iter().take(self.weights.len()))
            .map(|k| points[*k].iter().zip(&self.mean).map(|(x, m)| (x - m) / self.sigma).collect())
            .collect();
        let count = self.mean.len();
        let weighted = |i: usize| steps.iter().zip(&self.weights).map(|(step, weight)| weight * step[i]).sum::<f64>();
        let mean_step: Vec<f64> = (0..count).map(weighted).collect();
        self.mean.iter_mut().zip(&mean_step).for_each(|(m, step)| *m += self.sigma * step);

        // C^−½ times the step of the mean is normal if the values carry no information.
        let along = |j: usize| (0..count).map(|i| self.axes[i][j] * mean_step[i]).sum::<f64>() / self.lengths[j];
        let turned: Vec<f64> = (0..count).map(along).collect();
        let white: Vec<f64> = (0..count).map(|i| dot(&self.axes[i], &turned)).collect();
        let scale = (sigma_rate * (2.0 - sigma_rate) * effective).sqrt();
        self.sigma_path.iter_mut().zip(&white).for_each(|(p, w)| *p = (1.0 - sigma_rate) * *p + scale * w);
        self.generation += 1;
        let length = dot(&self.sigma_path, &self.sigma_path).sqrt();
        let settled = (1.0 - (1.0 - sigma_rate).powi(2 * self.generation as i32)).sqrt();
        // While σ is still growing fast, C would be stretched by it.
        let steady = f64::from(u8::from(length / settled < (1.4 + 2.0 / (n + 1.0)) * expected));
        let scale = steady * (path_rate * (2.0 - path_rate) * effective).sqrt();
        self.path.iter_mut().zip(&mean_step).for_each(|(p, step)| *p = (1.0 - path_rate) * *p + scale * step);
        let kept = 1.0 - one_rate - many_rate + (1.0 - steady) * one_rate * path_rate * (2.0 - path_rate);
        for i in 0..count {
            for j in 0..count {
                let many: f64 = steps.iter().zip(&self.weights).map(|(step, weight)| weight * step[i] * step[j]).sum();
                let one = self.path[i] * self.path[j];
                self.covariance[i][j] = kept * self.covariance[i][j] + one_rate * one + many_rate * many;
            }
        }
        self.sigma *= ((sigma_rate / damping) * (length / expected - 1.0)).exp();
        let (lengths, axes) = eigen(&self.covariance);
        self.lengths = lengths.iter().map(|square| square.max(1e-20).sqrt()).collect();
        self.axes = axes;
    }
}

fn identity(n: usize) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The eigenvalues of a small symmetric matrix, and its eigenvectors as columns, by Jacobi's rotations.
fn eigen(matrix: &[Vec<f64>]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = matrix.len();
    let (mut a, mut v) = (matrix.to_vec(), identity(n));
    for _ in 0..60 {
        let off: f64 = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j] * a[i][j]).sum();
        let diagonal: f64 = (0..n).map(|i| a[i][i] * a[i][i]).sum();
        if off <= 1e-30 * diagonal {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] == 0.0 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for row in a.iter_mut() {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                let (above, below) = a.split_at_mut(q);
                for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
                for row in v.iter_mut() {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
            }
        }
    }
    ((0..n).map(|i| a[i][i]).collect(), v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvectors_turn_a_matrix_into_its_eigenvalues() {
        let matrix = vec![vec![4.0, 1.0, -2.0], vec![1.0, 2.0, 0.5], vec![-2.0, 0.5, 3.0]];
        let (values, vectors) = eigen(&matrix);
        for k in 0..3 {
            for i in 0..3 {
                let product: f64 = (0..3).map(|j| matrix[i][j] * vectors[j][k]).sum();
                assert!((product - values[k] * vectors[i][k]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn it_finds_the_minimum_of_a_banana_and_survives_values_that_are_no_numbers() {
        let banana = |x: &[f64]| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2);
        let mut search = CmaEs::new(vec![-1.0, 1.0], 0.3, 8, 3);
        for generation in 0..250 {
            let asked = search.ask();
            let mut values: Vec<f64> = asked.iter().map(|x| banana(x)).collect();
            values[generation % 8] = f64::NAN;
            search.tell(&asked, &values);
        }
        assert!(search.mean().iter().all(|x| (x - 1.0).abs() < 1e-4), "{:?}", search.mean());
    }
}
