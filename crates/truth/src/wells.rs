//! Inner losses with one well or several, in one and two dimensions: at finite temperature by quadrature, cold by the
//! implicit function theorem.

use super::TruthProblem;
use super::quadrature::quadrature;
use bilevel::methods::claims::{Facts, Target};
use bilevel::{Array, Leaf, Problem, Result, Scope, Tensor, Variable};

type Loss = fn(&Scope, Tensor, Tensor) -> Tensor;

fn problem(lambda: &[f64], dimension: usize, start: f64, inner: Loss, outer: Loss) -> Result<Problem> {
    let lambda = Variable::fixed(Array::from_f64([lambda.len()], lambda.to_vec())?);
    Ok(Problem::builder(Leaf(lambda), Leaf(Variable::constant([dimension], start)))
        .inner(move |s, l, t| inner(s, l.0, t.0))
        .outer(move |s, l, t| outer(s, l.0, t.0))
        .build()?
        .erase())
}

fn first(x: Tensor) -> Tensor {
    x.index(0, 0)
}

fn second(x: Tensor) -> Tensor {
    x.index(0, 1)
}

fn warm(
    name: &str,
    about: &'static str,
    (lambda, dimension): (&[f64], usize),
    (inner, outer): (Loss, Loss),
    facts: Facts,
) -> Result<TruthProblem> {
    let problem = problem(lambda, dimension, 0.2, inner, outer)?;
    let Target::Gibbs { temperature } = facts.target else {
        return Err(bilevel::Error::other("a quadrature needs a temperature"));
    };
    let truth = quadrature(&problem, temperature)?;
    Ok(TruthProblem::new(name, about, problem, truth, facts))
}

/// The paper's one-dimensional problem: L_T = θ³/3 − (1 − λ²)·θ has its minimum at θ = √(1 − λ²) =: t, with dθ/dλ = −λ/t, and a maximum
/// at −t. f = (λ − θ)² + (θ − ½)².
fn cubic() -> Result<TruthProblem> {
    let l: f64 = 0.6;
    let t = (1.0 - l * l).sqrt();
    let truth = 2.0 * (l - t) + (-2.0 * (l - t) + 2.0 * (t - 0.5)) * (-l / t);
    let problem = problem(
        &[l],
        1,
        0.5,
        |_, l, t| (t * t * t / 3.0 - (1.0 - l * l) * t).sum_all(),
        |_, l, t| ((l - t).square() + (t - 0.5).square()).sum_all(),
    )?;
    let facts = Facts { several_minima: true, ..Facts::minimum(1.2, 1.7) };
    Ok(TruthProblem::new(
        "cubic",
        "the paper's one-dimensional problem, which curves downwards for θ < 0",
        problem,
        vec![truth],
        facts,
    ))
}

pub(super) fn problems() -> Result<Vec<TruthProblem>> {
    let several = |facts: Facts| Facts { several_minima: true, ..facts };
    Ok(vec![
        cubic()?,
        warm(
            "quartic well",
            "one well that is no quadratic, f names λ; τ = 0.5",
            (&[1.0], 1),
            (
                |_, l, t| (t.square().square() / 4.0 + l * t.square() / 2.0 - t).sum_all(),
                |_, l, t| ((t - 2.0).square() + l * t / 2.0).sum_all(),
            ),
            Facts::gibbs(0.5, 0.01, 5.0),
        )?,
        warm(
            "quartic well, nearly cold",
            "the same at τ = 0.01",
            (&[1.0], 1),
            (
                |_, l, t| (t.square().square() / 4.0 + l * t.square() / 2.0 - t).sum_all(),
                |_, l, t| ((t - 2.0).square() + l * t / 2.0).sum_all(),
            ),
            Facts::gibbs(0.01, 0.002, 2.5).with_steps(8000),
        )?,
        warm(
            "rippled bowl",
            "two hyperparameters, and ripples that curve downwards; τ = 0.3",
            (&[0.3, 1.5], 1),
            (
                |_, l, t| {
                    let t = first(t);
                    second(l) * t.square() / 2.0 + first(l) * (t * 2.0).cos() - t
                },
                |_, _, t| first(t).square(),
            ),
            several(Facts::gibbs(0.3, 0.01, 2.7)),
        )?,
        warm(
            "coupled plane",
            "two dimensions that λ couples, f names λ; τ = 0.3",
            (&[0.6], 2),
            (
                |_, l, t| {
                    let (l, x, y) = (first(l), first(t), second(t));
                    x.square().square() / 4.0 + (x.square() + y.square()) / 2.0 + l * x * y - x + y * l.square()
                },
                |_, l, t| (first(t) - second(t)).square() + first(l) * second(t),
            ),
            Facts::gibbs(0.3, 0.01, 5.0),
        )?,
        warm(
            "double well",
            "a chain that crosses between two wells; τ = 0.5",
            (&[0.3], 1),
            (|_, l, t| ((t.square() - 1.0).square() / 4.0 - l * t).sum_all(), |_, _, t| (t.square() * t).sum_all()),
            several(Facts::gibbs(0.5, 0.005, 5.0).with_steps(20_000)),
        )?,
        warm(
            "double well in the plane",
            "two wells and a second direction that follows; τ = 0.5",
            (&[0.3], 2),
            (
                |_, l, t| {
                    let (x, y) = (first(t), second(t));
                    (x.square() - 1.0).square() / 4.0 - first(l) * x + (y - x).square() / 2.0
                },
                |_, _, t| first(t).square() * second(t),
            ),
            several(Facts::gibbs(0.5, 0.005, 6.0).with_steps(20_000)),
        )?,
        warm(
            "triple well",
            "three wells, f names λ; τ = 1",
            (&[0.2], 1),
            (
                |_, l, t| {
                    let square = t.square();
                    (square * (square - 2.0).square() / 4.0 - l * t).sum_all()
                },
                |_, l, t| (t + l * t.square() * 0.3).sum_all(),
            ),
            several(Facts::gibbs(1.0, 0.002, 12.0).with_steps(20_000)),
        )?,
    ])
}
