//! A quadratic with 60 unknowns and condition 1000, in rotated coordinates, whose every derivative is a sum over its eigenvectors.
//!
//!   L_T = ½θᵀAθ − θᵀBλ,   f = ½‖θ − t‖² + ½‖λ − 1‖²,   A = QDQ with a reflection Q
//!
//! In the coordinates of Q: L_T = Σ ½d·θ² − c·θ with c = b·λ, so θ* = c/d, and T steps of γ from θ⁰ give
//! θᵀ = r·θ⁰ + (1 − r)·c/d with r = (1 − γd)ᵀ.

use crate::with::Usual;
use bilevel::{Array, Cpu, Key, Leaf, Method, Problem, State, Variable};

pub const N: usize = 60;
pub const LAMBDA: [f64; 3] = [0.4, -0.3, 0.8];
/// Every number of the first θ.
const START: f64 = 0.2;

/// The problem; θ⁰ is a constant, or Bλ (`start`), or λ itself (`copy`), which then has as many numbers as θ and acts nowhere else.
#[derive(Clone, Copy, Default)]
pub struct Large {
    pub start: bool,
    pub copy: bool,
    /// Judged by the evidence: f is L_T.
    pub evidence: bool,
}

/// What a method found.
pub struct Found {
    pub value: Vec<f64>,
    pub error: Option<Vec<f64>>,
    pub residual: Option<f64>,
    pub inner_loss: f64,
    pub outer_loss: f64,
    pub state: State,
}

/// One eigenvector: its curvature, its part of B, of t, of the constant start and of λ where that is θ⁰.
pub struct Direction {
    pub d: f64,
    pub b: [f64; 3],
    pub t: f64,
    pub constant: f64,
    pub copy: f64,
}

impl Direction {
    /// c = b·λ.
    pub fn c(&self) -> f64 {
        self.b.iter().zip(LAMBDA).map(|(b, l)| b * l).sum()
    }
}

/// λ of 60 numbers.
pub fn copied_lambda() -> Vec<f64> {
    (0..N).map(|i| 0.5 + 0.3 * (i as f64).sin()).collect()
}

/// Q: the reflection at (1, 2, …, 60).
fn reflected(x: &[f64]) -> Vec<f64> {
    let square: f64 = (1..=N).map(|u| (u * u) as f64).sum();
    let along: f64 = x.iter().zip(1..=N).map(|(x, u)| x * u as f64).sum();
    x.iter().zip(1..=N).map(|(x, u)| x - 2.0 * u as f64 * along / square).collect()
}

pub fn directions() -> Vec<Direction> {
    let (constant, copy) = (reflected(&[START; N]), reflected(&copied_lambda()));
    let one = |k: usize| {
        let d = 10f64.powf(-3.0 * k as f64 / (N - 1) as f64);
        // As large as the curvature, so that the minimum is about 1 in every direction.
        let b = std::array::from_fn(|j| d * ((j + 1) as f64 * (k + 1) as f64).cos());
        Direction { d, b, t: (k as f64).sin(), constant: constant[k], copy: copy[k] }
    };
    (0..N).map(one).collect()
}

fn array(shape: [usize; 2], numbers: Vec<f64>) -> Array {
    Array::from_f64(shape, numbers).unwrap()
}

impl Large {
    pub fn problem(self) -> Problem {
        let all = directions();
        let unit = |k: usize| (0..N).map(|i| (i == k) as u8 as f64).collect::<Vec<f64>>();
        let q: Vec<Vec<f64>> = (0..N).map(|k| reflected(&unit(k))).collect();
        let entry = |i: usize, j: usize| (0..N).map(|k| q[k][i] * all[k].d * q[k][j]).sum::<f64>();
        let a = (0..N * N).map(|n| entry(n / N, n % N)).collect();
        let columns: Vec<Vec<f64>> =
            (0..3).map(|j| reflected(&all.iter().map(|x| x.b[j]).collect::<Vec<_>>())).collect();
        let b = (0..N * 3).map(|n| columns[n % 3][n / 3]).collect();
        let t = reflected(&all.iter().map(|x| x.t).collect::<Vec<_>>());
        let lambda = if self.copy { copied_lambda() } else { LAMBDA.to_vec() };
        let lambda = Variable::fixed(array([lambda.len(), 1], lambda));
        let copy = self.copy;
        let builder = Problem::builder(Leaf(lambda), Leaf(Variable::constant([N, 1], START)))
            .data("a", array([N, N], a))
            .data("b", array([N, 3], b))
            .data("c", array([N, 1], reflected(&all.iter().map(Direction::c).collect::<Vec<_>>())))
            .data("t", array([N, 1], t))
            .inner(move |s, l, t| {
                let pull = if copy { s.data("c") } else { s.data("b").matmul(l.0) };
                (t.0 * s.data("a").matmul(t.0)).sum_all() * 0.5 - (t.0 * pull).sum_all()
            });
        let builder = match self.evidence {
            true => builder.evidence(),
            false => builder.outer(move |s, l, t| {
                let f = (t.0 - s.data("t")).square().sum_all() * 0.5;
                if copy { f } else { f + (l.0 - 1.0).square().sum_all() * 0.5 }
            }),
        };
        let builder = match (self.start, self.copy) {
            (_, true) => builder.start(|_, l| *l),
            (true, _) => builder.start(|s, l| Leaf(s.data("b").matmul(l.0))),
            _ => builder,
        };
        builder.build().unwrap().erase()
    }

    /// The last of several hypergradients at one λ.
    pub fn hypergradients(self, method: &dyn Method, calls: usize) -> Found {
        let problem = self.problem();
        let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(1)).unwrap();
        let mut estimator = method.prepared_on(&problem, &Cpu::with_threads(1)).unwrap();
        let draw = |call: usize| Key::from_seed(2).fold_in(call as u32);
        let last = (0..calls).map(|call| estimator.estimate(&mut state, draw(call)).unwrap()).last().unwrap();
        Found {
            value: last.value.numbers().unwrap(),
            error: last.standard_error.map(|error| error.numbers().unwrap()),
            residual: last.diagnostics.solve_residual,
            inner_loss: last.inner_loss,
            outer_loss: last.outer_loss,
            state,
        }
    }

    /// L_T and f at these numbers of λ and θ.
    pub fn losses(self, lambda: &[f64], theta: &[f64]) -> (f64, f64) {
        let mut losses = (0.0, 0.0);
        for (x, theta) in directions().iter().zip(reflected(theta)) {
            let c = if self.copy { x.c() } else { x.b.iter().zip(lambda).map(|(b, l)| b * l).sum() };
            losses.0 += 0.5 * x.d * theta * theta - c * theta;
            losses.1 += 0.5 * (theta - x.t).powi(2);
        }
        if self.evidence {
            return (losses.0, losses.0);
        }
        let direct: f64 = lambda.iter().map(|l| 0.5 * (l - 1.0).powi(2)).sum();
        (losses.0, losses.1 + if self.copy { 0.0 } else { direct })
    }

    /// f_λ plus the sum over all directions of this number times b.
    fn sum(self, part: impl Fn(&Direction) -> f64) -> Vec<f64> {
        let mut h: Vec<f64> = LAMBDA.iter().map(|l| l - 1.0).collect();
        for x in directions() {
            let part = part(&x);
            h.iter_mut().zip(x.b).for_each(|(h, b)| *h += part * b);
        }
        h
    }

    /// f_λ − f_θᵀ·S·C at the minimum, with a function of the curvature for S; C = −B.
    pub fn implicit(self, inverse: impl Fn(f64) -> f64) -> Vec<f64> {
        self.sum(|x| (x.c() / x.d - x.t) * inverse(x.d))
    }

    pub fn hypergradient(self) -> Vec<f64> {
        self.implicit(|d| 1.0 / d)
    }

    /// dθ⁰/dλ is b where θ⁰ = Bλ.
    fn start_of(self, x: &Direction) -> (f64, f64) {
        if self.start { (x.c(), 1.0) } else { (x.constant, 0.0) }
    }

    /// Exactly through T steps: dθᵀ/dλ = r·J0 + (1 − r)·b/d.
    pub fn training(self, step: f64, steps: usize) -> Vec<f64> {
        self.sum(|x| {
            let (r, (start, through)) = ((1.0 - step * x.d).powi(steps as i32), self.start_of(x));
            let theta = r * start + (1.0 - r) * x.c() / x.d;
            (theta - x.t) * (r * through + (1.0 - r) / x.d)
        })
    }

    /// f_λ + f_θ·J0.
    pub fn first_order(self, step: f64, steps: usize) -> Vec<f64> {
        self.sum(|x| {
            let (r, (start, through)) = ((1.0 - step * x.d).powi(steps as i32), self.start_of(x));
            (r * start + (1.0 - r) * x.c() / x.d - x.t) * through
        })
    }

    /// λ − θᵀ where θ⁰ = λ.
    pub fn displacement(self, step: f64, steps: usize) -> Vec<f64> {
        let moved = |x: &Direction| (1.0 - (1.0 - step * x.d).powi(steps as i32)) * (x.copy - x.c() / x.d);
        reflected(&directions().iter().map(moved).collect::<Vec<_>>())
    }

    /// f_λ − γ·f_θᵀ·C after T steps: the derivative through one more.
    pub fn one_more_step(self, step: f64, steps: usize) -> Vec<f64> {
        self.sum(|x| {
            let r = (1.0 - step * x.d).powi(steps as i32);
            step * (r * x.constant + (1.0 - r) * x.c() / x.d - x.t)
        })
    }

    /// HPO-SGLD without noise: f_λ − Σ over m of w_m·γ·f_θ(θᵐ)·C, w_m = min(M, B + M + 1 − m)/M.
    pub fn printed_recursion(self, step: f64, burn_in: usize, samples: usize) -> Vec<f64> {
        let steps = burn_in + samples;
        self.sum(|x| {
            let one = |m: usize| {
                let r = (1.0 - step * x.d).powi(m as i32);
                let weight = samples.min(steps + 1 - m) as f64 / samples as f64;
                weight * step * (r * x.constant + (1.0 - r) * x.c() / x.d - x.t)
            };
            (1..=steps).map(one).sum()
        })
    }

    /// Where θ⁰ = λ, the minimum of L_T + (ρ/2)‖θ − λ‖² is (c + ρλ)/(d + ρ), and moves with λ by ρ/(d + ρ).
    pub fn proximal(self, rho: f64) -> Vec<f64> {
        let part = |x: &Direction| ((x.c() + rho * x.copy) / (x.d + rho) - x.t) * rho / (x.d + rho);
        reflected(&directions().iter().map(part).collect::<Vec<_>>())
    }

    /// f_λ + σ·(∂λL_T(y) − ∂λL_T(θ*)) with y the minimum of L_T + f/σ.
    pub fn penalised(self, penalty: f64) -> Vec<f64> {
        self.sum(|x| penalty * (x.c() / x.d - (x.c() + x.t / penalty) / (x.d + 1.0 / penalty)))
    }

    /// f_λ + 2σ·∇θL_Tᵀ·C where T steps of γ on f/σ + ‖∇θL_T‖² are about to end: the last θ before the last step.
    pub fn slope_penalty(self, step: f64, steps: usize, penalty: f64) -> Vec<f64> {
        self.sum(|x| {
            let curvature = 1.0 / penalty + 2.0 * x.d * x.d;
            let settled = (x.t / penalty + 2.0 * x.d * x.c()) / curvature;
            let theta = settled + (1.0 - step * curvature).powi(steps as i32 - 1) * (x.constant - settled);
            -2.0 * penalty * (x.d * theta - x.c())
        })
    }

    /// f_λ + c·(∂λL_T(θ) − ∂λL_T(w)) where both have settled: (d + ρ)·w = b + ρ·θ and (θ − t)/c + d·θ − b = ρ·(θ − w).
    pub fn moreau(self, rho: f64, penalty: f64) -> Vec<f64> {
        self.sum(|x| {
            let kept = rho / (x.d + rho);
            let fixed = x.c() / (x.d + rho);
            let theta = (x.c() + x.t / penalty - rho * fixed) / (1.0 / penalty + x.d - rho + rho * kept);
            let w = fixed + kept * theta;
            penalty * (w - theta)
        })
    }

    /// BOME's first hypergradient: w after T steps, q = L_T(θ) − L_T(w), μ = max(0, η − ⟨∇f, ∇q⟩/‖∇q‖²).
    pub fn barrier(self, step: f64, steps: usize, barrier: f64) -> Vec<f64> {
        let all = directions();
        let direct: Vec<f64> = LAMBDA.iter().map(|l| l - 1.0).collect();
        let mut q_lambda = vec![0.0; 3];
        let (mut along, mut square) = (0.0, 0.0);
        for x in &all {
            let theta = x.constant;
            let r = (1.0 - step * x.d).powi(steps as i32);
            let w = r * theta + (1.0 - r) * x.c() / x.d;
            let slope = x.d * theta - x.c();
            along += (theta - x.t) * slope;
            square += slope * slope;
            q_lambda.iter_mut().zip(x.b).for_each(|(q, b)| *q += (w - theta) * b);
        }
        along += direct.iter().zip(&q_lambda).map(|(f, q)| f * q).sum::<f64>();
        square += q_lambda.iter().map(|q| q * q).sum::<f64>();
        let weight = (barrier - along / square).max(0.0);
        direct.iter().zip(&q_lambda).map(|(f, q)| f + weight * q).collect()
    }
}
