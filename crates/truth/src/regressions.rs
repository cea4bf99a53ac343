//! Regressions: ridge with one penalty or many, more parameters than rows, minibatches, and the logistic loss.

use super::dense::{Matrix, dot, gram, rows, solve, times, transposed_times};
use super::{TruthProblem, normals};
use bilevel::methods::claims::Facts;
use bilevel::{Array, InnerLoop, Leaf, Problem, Result, Variable};
use bilevel_graph::nn;

const ROWS: usize = 30;
const WIDTH: usize = 5;

fn array(matrix: &Matrix) -> Result<Array> {
    Ok(Array::from_f64([matrix.len(), matrix[0].len()], matrix.concat())?)
}

fn column(values: &[f64]) -> Result<Array> {
    Ok(Array::from_f64([values.len(), 1], values.to_vec())?)
}

/// Ridge regression: L_T = ½·mean (Xθ − y)² + ½·Σ e^λᵢ·θᵢ², f = ½·mean over other rows. One λ is shared, or each weight has its own.
///
/// θ* = A⁻¹·Xᵀy/n with A = XᵀX/n + diag(e^λ), and dF/dλᵢ = −qᵢ·e^λᵢ·θᵢ with A·q = f_θ.
fn ridge(shared: bool) -> Result<TruthProblem> {
    let (x, y) = (rows(&normals(1, ROWS * WIDTH), WIDTH), normals(2, ROWS));
    let (x_outside, y_outside) = (rows(&normals(3, ROWS * WIDTH), WIDTH), normals(4, ROWS));
    let lambda: Vec<f64> = (0..WIDTH).map(|i| if shared { -1.0 } else { -1.5 + 0.3 * i as f64 }).collect();
    let n = ROWS as f64;
    let mut a = gram(&x);
    for (i, row) in a.iter_mut().enumerate() {
        row.iter_mut().for_each(|v| *v /= n);
        row[i] += lambda[i].exp();
    }
    let theta = solve(a.clone(), transposed_times(&x, &y).iter().map(|v| v / n).collect());
    let off: Vec<f64> = times(&x_outside, &theta).iter().zip(&y_outside).map(|(z, y)| (z - y) / n).collect();
    let q = solve(a, transposed_times(&x_outside, &off));
    let each: Vec<f64> = (0..WIDTH).map(|i| -q[i] * lambda[i].exp() * theta[i]).collect();
    let (truth, first) = match shared {
        true => (vec![each.iter().sum()], vec![-1.0]),
        false => (each, lambda),
    };
    let problem = Problem::builder(
        Leaf(Variable::fixed(Array::from_f64([first.len(), 1], first)?)),
        Leaf(Variable::constant([WIDTH, 1], 0.0)),
    )
    .data("x", array(&x)?)
    .data("y", column(&y)?)
    .data("x outside", array(&x_outside)?)
    .data("y outside", column(&y_outside)?)
    .inner(|s, l, t| nn::mse(s.data("x").matmul(t.0), s.data("y")) * 0.5 + (l.0.exp() * t.0.square()).sum_all() * 0.5)
    .outer(|s, _, t| nn::mse(s.data("x outside").matmul(t.0), s.data("y outside")) * 0.5)
    .build()?
    .erase();
    let (name, about) = match shared {
        true => ("ridge, one penalty", "30 rows, 5 weights, λ the logarithm of one penalty"),
        false => ("ridge, a penalty per weight", "30 rows, 5 weights, 5 penalties"),
    };
    Ok(TruthProblem::new(name, about, problem, truth, Facts::minimum(0.2, 3.0)))
}

/// More parameters than rows: L_T = ½·Σ (Xθ − y − λ)², and training from 0 finds the shortest θ that fits, X⁺(y + λ).
///
/// dθ/dλ = X⁺ = Xᵀ(XXᵀ)⁻¹, so dF/dλ = (XXᵀ)⁻¹·X·f_θ. f is a distance to a point; if `inside`, one that the rows span.
fn overparametrised(inside: bool) -> Result<TruthProblem> {
    let (few, many) = (3, 8);
    let (x, y) = (rows(&normals(5, few * many), many), normals(6, few));
    let lambda = vec![0.3, -0.2, 0.5];
    let outer: Matrix = rows(&x.concat(), many);
    let mut products = vec![vec![0.0; few]; few];
    for i in 0..few {
        for j in 0..few {
            products[i][j] = dot(&outer[i], &outer[j]);
        }
    }
    let wanted: Vec<f64> = y.iter().zip(&lambda).map(|(y, l)| y + l).collect();
    let theta = transposed_times(&x, &solve(products.clone(), wanted));
    let point = match inside {
        true => transposed_times(&x, &[0.2, -0.1, 0.3]),
        false => normals(7, many),
    };
    let slope: Vec<f64> = theta.iter().zip(&point).map(|(t, p)| t - p).collect();
    let truth = solve(products, times(&x, &slope));
    let problem = Problem::builder(Leaf(Variable::fixed(column(&lambda)?)), Leaf(Variable::constant([many, 1], 0.0)))
        .data("x", array(&x)?)
        .data("y", column(&y)?)
        .data("point", column(&point)?)
        .inner(|s, l, t| (s.data("x").matmul(t.0) - s.data("y") - l.0).square().sum_all() * 0.5)
        .outer(|s, _, t| (t.0 - s.data("point")).square().sum_all() * 0.5)
        .build()?
        .erase();
    let (name, about) = match inside {
        true => ("overparametrised", "3 rows, 8 weights: H is singular, and f_θ has no part in its null space"),
        false => ("overparametrised, f beyond the rows", "3 rows, 8 weights: f_θ has a part in the null space of H"),
    };
    Ok(TruthProblem::new(name, about, problem, truth, Facts { singular: true, ..Facts::minimum(0.5, 30.0) }))
}

/// Rows drawn four at a time: L_T = ½·mean over them of (θ − xᵢ − λ)², f = ½·(θ − 1)². The mean of θ is the mean of all xᵢ plus λ,
/// however noisy training is, and that less 1 is the hypergradient.
fn minibatches() -> Result<TruthProblem> {
    let x = normals(8, 40);
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let problem = Problem::builder(Leaf(Variable::constant([1], 0.4)), Leaf(Variable::constant([1], 0.0)))
        .data("x", Array::from_f64([x.len(), 1], x)?)
        .inner(|s, l, t| {
            let rows = s.data("x").gather(s.minibatch(40, 4), 0);
            ((t.0 - l.0).broadcast_to([4, 1]) - rows).square().mean_all() * 0.5
        })
        .outer(|_, _, t| (t.0 - 1.0).square().sum_all() * 0.5)
        .build()?
        .erase();
    let facts = Facts { minibatches: true, inner: InnerLoop::new(0.1, 400), ..Facts::minimum(1.0, 1.0) };
    Ok(TruthProblem::new("minibatches", "rows drawn four at a time", problem, vec![mean + 0.4 - 1.0], facts))
}

/// L_T = ln(1 + e^−θ) + ½·e^λ·θ², f = ln(1 + e^(−2θ)): the minimum by bisection, the derivative by the implicit function theorem.
fn logistic() -> Result<TruthProblem> {
    let lambda = -1.0f64;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let slope = |t: f64| -sigmoid(-t) + lambda.exp() * t;
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if slope(middle) > 0.0 { high = middle } else { low = middle }
    }
    let theta = 0.5 * (low + high);
    let curvature = sigmoid(theta) * sigmoid(-theta) + lambda.exp();
    let truth = -2.0 * sigmoid(-2.0 * theta) * (-lambda.exp() * theta / curvature);
    let problem = Problem::builder(Leaf(Variable::constant([1], lambda)), Leaf(Variable::constant([1], 0.0)))
        .inner(|_, l, t| nn::softplus(-t.0).sum_all() + (l.0.exp() * t.0.square()).sum_all() * 0.5)
        .outer(|_, _, t| nn::softplus(t.0 * -2.0).sum_all())
        .build()?
        .erase();
    let about = "the logistic loss with a penalty: convex and no quadratic";
    Ok(TruthProblem::new("logistic", about, problem, vec![truth], Facts::minimum(0.3, 0.7)))
}

pub(super) fn problems() -> Result<Vec<TruthProblem>> {
    Ok(vec![
        ridge(true)?,
        ridge(false)?,
        overparametrised(true)?,
        overparametrised(false)?,
        minibatches()?,
        logistic()?,
    ])
}
