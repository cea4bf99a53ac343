//! A ridge regression, whose hypergradient is known in closed form: a comparison of methods with it, over four decades
//! of the penalty.
//!
//! With A = XᵀX/n, b = Xᵀy/n and L_T = ½·mean (xᵀθ − y)² + ½·e^λ·‖θ‖², training ends at θ* = (A + e^λ·I)⁻¹·b, and
//!
//!   dF/dλ = −e^λ·f_θᵀ·(A + e^λ·I)⁻¹·θ*
//!
//!     cargo run --release -p bilevel --example ridge -- [PICTURE.svg]

use bilevel::methods::{HpoSgld, IftCg, LangevinAdjoint, Rmd};
use bilevel::optimizers::Adam;
use bilevel::{Array, Cpu, Driver, InnerLoop, Key, Leaf, Method, Problem, Result, Scope, Session, Tensor, Variable};
use bilevel_report::{Axis, Curve, Plot};

/// Rows of two features and a target. The features are nearly the same, so the data leave one direction almost free.
struct Rows {
    x: Vec<[f64; 2]>,
    y: Vec<f64>,
}

impl Rows {
    fn new(count: usize, phase: f64, noise: f64) -> Rows {
        let x = |i: usize| {
            let (a, b) = ((1.7 * i as f64 + phase).sin(), (2.9 * i as f64 + phase).cos());
            [a + 0.3 * b, a - 0.3 * b]
        };
        let y = |i: usize| x(i)[0] + 0.5 * x(i)[1] + noise * (5.3 * i as f64 + phase).sin();
        Rows { x: (0..count).map(x).collect(), y: (0..count).map(y).collect() }
    }

    /// XᵀX/n, as its three different numbers, and Xᵀy/n.
    fn moments(&self) -> ([f64; 3], [f64; 2]) {
        let mean = |f: &dyn Fn([f64; 2], f64) -> f64| {
            self.x.iter().zip(&self.y).map(|(x, y)| f(*x, *y)).sum::<f64>() / self.y.len() as f64
        };
        let a = [mean(&|x, _| x[0] * x[0]), mean(&|x, _| x[0] * x[1]), mean(&|x, _| x[1] * x[1])];
        (a, [mean(&|x, y| x[0] * y), mean(&|x, y| x[1] * y)])
    }
}

/// (A + shift·I)⁻¹·v for a symmetric A of two rows.
fn solve([a, b, d]: [f64; 3], shift: f64, v: [f64; 2]) -> [f64; 2] {
    let (a, d) = (a + shift, d + shift);
    let determinant = a * d - b * b;
    [(d * v[0] - b * v[1]) / determinant, (a * v[1] - b * v[0]) / determinant]
}

/// F(λ) and dF/dλ in closed form.
fn exact(train: &Rows, valid: &Rows, lambda: f64) -> (f64, f64) {
    let penalty = lambda.exp();
    let (a, b) = train.moments();
    let theta = solve(a, penalty, b);
    let (v, c) = valid.moments();
    let square = valid.y.iter().map(|y| y * y).sum::<f64>() / valid.y.len() as f64;
    let v_theta = [v[0] * theta[0] + v[1] * theta[1], v[1] * theta[0] + v[2] * theta[1]];
    let dot = |p: [f64; 2], q: [f64; 2]| p[0] * q[0] + p[1] * q[1];
    let loss = 0.5 * (dot(theta, v_theta) - 2.0 * dot(theta, c) + square);
    let f_theta = [v_theta[0] - c[0], v_theta[1] - c[1]];
    (loss, -penalty * dot(f_theta, solve(a, penalty, theta)))
}

type Ridge = Problem<Leaf<Variable>, Leaf<Variable>>;

fn problem(train: &Rows, valid: &Rows, lambda: f64) -> Result<Ridge> {
    let x = |rows: &Rows| Array::from_f64([rows.y.len(), 2], rows.x.concat());
    let y = |rows: &Rows| Array::from_f64([rows.y.len(), 1], rows.y.clone());
    let error = |s: &Scope, rows: &str, t: Tensor| {
        (s.data(&format!("{rows} x")).matmul(t) - s.data(&format!("{rows} y"))).square().mean_all() * 0.5
    };
    Problem::builder(
        Leaf(Variable::constant([], lambda).at_least(-9.0).at_most(3.0)),
        Leaf(Variable::constant([2, 1], 0.0)),
    )
    .data("train x", x(train)?)
    .data("train y", y(train)?)
    .data("valid x", x(valid)?)
    .data("valid y", y(valid)?)
    .inner(move |s, l, t| error(s, "train", t.0) + l.0.exp() * t.0.square().sum_all() * 0.5)
    .outer(move |s, _, t| error(s, "valid", t.0))
    .build()
}

/// The last of a few hypergradients in a row at a fixed λ, so that methods with a memory have filled it.
fn hypergradient(problem: &Ridge, method: &dyn Method, inner: InnerLoop) -> Result<f64> {
    let session = Session::new(problem, &Cpu::with_threads(1))?;
    let mut estimator = method.prepare_in(&session, &inner)?;
    let mut state = session.state(Key::from_seed(1))?;
    let mut last = f64::NAN;
    for i in 0..8 {
        last = estimator.estimate(&mut state, Key::from_seed(1).fold_in(i))?.value[0].item()?;
    }
    Ok(last)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (train, valid) = (Rows::new(8, 0.3, 0.8), Rows::new(40, 1.1, 0.8));
    let whole = InnerLoop::new(0.2, 3000);
    let short = InnerLoop::new(0.2, 5);
    let (cg, adjoint, rmd, sgld) = (IftCg::default(), LangevinAdjoint::default(), Rmd::default(), HpoSgld::default());
    let methods: [(&str, &dyn Method, InnerLoop); 4] = [
        ("ift-cg", &cg, whole),
        ("langevin-adjoint", &adjoint, InnerLoop { burn_in: 1500, ..whole }),
        ("rmd, 5 steps", &rmd, short),
        ("hpo-sgld, 5 steps", &sgld, InnerLoop { burn_in: 2, ..short }),
    ];
    let lambdas: Vec<f64> = (0..13).map(|i| -4.6 + 0.425 * i as f64).collect();
    println!("{:20} {:>22}", "method", "largest error of dF/dλ");
    let mut curves = vec![Curve::new(
        "closed form",
        (0..=100).map(|i| {
            let lambda = -4.6 + 0.051 * i as f64;
            (lambda, exact(&train, &valid, lambda).1)
        }),
    )];
    for (name, method, inner) in methods {
        let mut points = vec![];
        for &lambda in &lambdas {
            points.push((lambda, hypergradient(&problem(&train, &valid, lambda)?, method, inner)?));
        }
        let error = points.iter().map(|(l, h)| (h - exact(&train, &valid, *l).1).abs()).fold(0.0, f64::max);
        println!("{name:20} {error:22.1e}");
        curves.push(Curve::new(name, points).dashed().with_markers());
    }
    let outcome = Driver::new(&problem(&train, &valid, -7.0)?, cg)
        .inner(whole)
        .optimizer(Adam::default())
        .rate(0.1)
        .iterations(150)
        .run()?;
    let found = outcome.lambda.0.item().unwrap_or(f64::NAN);
    let grid = (0..=10_000).map(|i| -7.0 + 9e-4 * i as f64);
    let best =
        grid.min_by(|a, b| exact(&train, &valid, *a).0.total_cmp(&exact(&train, &valid, *b).0)).unwrap_or(f64::NAN);
    println!("\nThe best penalty is e^{best:.3} in closed form; following ift-cg ended at e^{found:.3}.");
    if let Some(path) = std::env::args().nth(1) {
        let plot = Plot {
            title: "The hypergradient of a ridge regression".into(),
            x: Axis::linear("λ, the logarithm of the penalty"),
            y: Axis::linear("dF/dλ"),
            curves,
        };
        std::fs::write(path, plot.svg())?;
    }
    Ok(())
}
