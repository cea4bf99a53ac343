//! A quadratic bi-level problem whose every derivative is known in closed form.

use crate::with::Usual;
use bilevel::programs::Leaves;
use bilevel::{AnyProblem, Array, Cpu, DType, Hypergradient, Key, Leaf, Method, Problem, State, Tensor, Variable};

pub const N: usize = 4;
pub type Vector = [f64; N];
pub type Matrix = [Vector; N];

/// Gaussian elimination with row exchanges.
pub fn solve(mut a: Matrix, mut b: Vector) -> Vector {
    for k in 0..N {
        let pivot = (k..N).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs())).unwrap();
        a.swap(k, pivot);
        b.swap(k, pivot);
        for i in k + 1..N {
            let factor = a[i][k] / a[k][k];
            (0..N).for_each(|j| a[i][j] -= factor * a[k][j]);
            b[i] -= factor * b[k];
        }
    }
    let mut x = [0.0; N];
    for k in (0..N).rev() {
        x[k] = (b[k] - (k + 1..N).map(|j| a[k][j] * x[j]).sum::<f64>()) / a[k][k];
    }
    x
}

pub fn times(a: &Matrix, x: &Vector) -> Vector {
    std::array::from_fn(|i| (0..N).map(|j| a[i][j] * x[j]).sum())
}

pub fn transposed(a: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| a[j][i]))
}

pub fn plus_diagonal(mut a: Matrix, d: impl Fn(usize) -> f64) -> Matrix {
    (0..N).for_each(|i| a[i][i] += d(i));
    a
}

pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

pub fn identity(scale: f64) -> Matrix {
    plus_diagonal([[0.0; N]; N], |_| scale)
}

/// Orthonormal columns: the reflection at (1, 2, 3, 4).
pub fn reflection() -> Matrix {
    let u = [1.0, 2.0, 3.0, 4.0];
    std::array::from_fn(|i| std::array::from_fn(|j| (i == j) as u8 as f64 - 2.0 * u[i] * u[j] / 30.0))
}

/// The symmetric matrix with these eigenvalues and the reflection's columns as eigenvectors.
pub fn with_eigenvalues(values: Vector) -> Matrix {
    let q = reflection();
    std::array::from_fn(|i| std::array::from_fn(|j| (0..N).map(|k| q[i][k] * values[k] * q[j][k]).sum()))
}

pub const EIGENVALUES: Vector = [0.3, 0.7, 1.2, 1.9];
pub const LAMBDA: Vector = [0.4, -0.3, 0.8, -0.6];
pub const TARGET: Vector = [1.0, -0.5, 0.2, 0.7];
pub const B: Matrix = [[1.0, 0.2, 0.0, -0.3], [0.1, 0.8, 0.4, 0.0], [0.0, -0.2, 1.1, 0.3], [0.5, 0.0, 0.1, 0.9]];

pub fn flat(m: &Matrix) -> Vec<f64> {
    m.iter().flatten().copied().collect()
}

pub fn column(v: Tensor) -> Tensor {
    v.reshape([v.len(), 1])
}

/// L_T = ½θᵀAθ − θᵀBλ [+ ½Σ e^λ θ²], f = ½‖θ−t‖² [+ θᵀλ + ½‖λ−1‖²]; θ in two leaves.
pub struct Quadratic {
    pub a: Matrix,
    pub b: Matrix,
    pub diagonal: bool,
    pub direct: bool,
    /// θ⁰ = λ.
    pub start: bool,
    pub dtype: DType,
}

impl Default for Quadratic {
    fn default() -> Self {
        let a = with_eigenvalues(EIGENVALUES);
        Quadratic { a, b: B, diagonal: true, direct: true, start: false, dtype: DType::F64 }
    }
}

impl Quadratic {
    pub fn problem(&self) -> Problem {
        let (diagonal, direct) = (self.diagonal, self.direct);
        let lambda = (fixed(&LAMBDA[..1]), fixed(&LAMBDA[1..]));
        let theta = (Leaf(Variable::constant([1], 0.0)), Leaf(Variable::constant([3], 0.0)));
        let join = |pair: &(Leaf<Tensor>, Leaf<Tensor>)| pair.0.0.concat(&[pair.1.0], 0);
        let builder = Problem::builder(lambda, theta)
            .dtype(self.dtype)
            .data("a", Array::from_f64([N, N], flat(&self.a)).unwrap())
            .data("b", Array::from_f64([N, N], flat(&self.b)).unwrap())
            .data("t", Array::from_f64([N], TARGET.to_vec()).unwrap())
            .inner(move |s, l, t| {
                let (l, t) = (join(l), join(t));
                let loss = (column(t) * s.data("a").matmul(column(t))).sum_all() * 0.5
                    - (column(t) * s.data("b").matmul(column(l))).sum_all();
                if diagonal { loss + (l.exp() * t.square()).sum_all() * 0.5 } else { loss }
            })
            .outer(move |s, l, t| {
                let (l, t) = (join(l), join(t));
                let loss = (t - s.data("t")).square().sum_all() * 0.5;
                if direct { loss + (t * l).sum_all() + (l - 1.0).square().sum_all() * 0.5 } else { loss }
            });
        let builder = if self.start { builder.start(|_, l| (Leaf(l.0.0), Leaf(l.1.0))) } else { builder };
        builder.build().unwrap().erase()
    }

    pub fn hessian(&self, lambda: &Vector) -> Matrix {
        if self.diagonal { plus_diagonal(self.a, |i| lambda[i].exp()) } else { self.a }
    }

    /// The minimum of L_T + (ρ/2)‖θ−λ‖².
    pub fn minimum(&self, lambda: &Vector, rho: f64) -> Vector {
        let pulled = times(&self.b, lambda);
        let right = std::array::from_fn(|i| pulled[i] + rho * lambda[i]);
        solve(plus_diagonal(self.hessian(lambda), |_| rho), right)
    }

    pub fn outer(&self, lambda: &Vector, theta: &Vector) -> f64 {
        let f: f64 = (0..N).map(|i| 0.5 * (theta[i] - TARGET[i]).powi(2)).sum();
        let direct: f64 = (0..N).map(|i| theta[i] * lambda[i] + 0.5 * (lambda[i] - 1.0).powi(2)).sum();
        if self.direct { f + direct } else { f }
    }

    pub fn f_theta(&self, lambda: &Vector, theta: &Vector) -> Vector {
        std::array::from_fn(|i| theta[i] - TARGET[i] + if self.direct { lambda[i] } else { 0.0 })
    }

    pub fn f_lambda(&self, lambda: &Vector, theta: &Vector) -> Vector {
        std::array::from_fn(|i| if self.direct { theta[i] + lambda[i] - 1.0 } else { 0.0 })
    }

    /// vᵀC.
    pub fn mixed(&self, lambda: &Vector, theta: &Vector, v: &Vector) -> Vector {
        let through = times(&transposed(&self.b), v);
        let diagonal = |i: usize| if self.diagonal { v[i] * lambda[i].exp() * theta[i] } else { 0.0 };
        std::array::from_fn(|i| diagonal(i) - through[i])
    }

    /// f_λ − f_θᵀ(H + reg·I)⁻¹C at the minimum.
    pub fn hypergradient(&self, lambda: &Vector, reg: f64) -> Vector {
        let theta = self.minimum(lambda, 0.0);
        let q = solve(plus_diagonal(self.hessian(lambda), |_| reg), self.f_theta(lambda, &theta));
        let (direct, mixed) = (self.f_lambda(lambda, &theta), self.mixed(lambda, &theta, &q));
        std::array::from_fn(|i| direct[i] - mixed[i])
    }
}

/// d of f at the minimum by differences of dense solves.
pub fn differences(value: impl Fn(&Vector) -> f64) -> Vector {
    std::array::from_fn(|i| {
        let at = |step: f64| {
            let mut lambda = LAMBDA;
            lambda[i] += step;
            value(&lambda)
        };
        (at(1e-5) - at(-1e-5)) / 2e-5
    })
}

pub fn fixed(values: &[f64]) -> Leaf<Variable> {
    Leaf(Variable::fixed(Array::from_f64([values.len()], values.to_vec()).unwrap()))
}

pub fn numbers(leaves: &Leaves) -> Vec<f64> {
    leaves.numbers().unwrap()
}

pub fn key() -> Key {
    Key::from([7, 3])
}

pub fn once(method: &dyn Method, problem: &AnyProblem) -> (State, Hypergradient) {
    let mut state = State::initial(problem, &Cpu::with_threads(1), key()).unwrap();
    let mut estimator = method.prepared_on(problem, &Cpu::with_threads(1)).unwrap();
    let h = estimator.estimate(&mut state, key()).unwrap();
    (state, h)
}
