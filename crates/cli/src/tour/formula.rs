//! Part 1: a loss in a few lines, its graph before and after derivation, and its derivatives next to central differences.

use super::{Outcome, TourPage};
use bilevel_graph::{Array, DType, GradientCheck, Graph, Program, Tensor, gradient, mixed_vector};

/// The source shown to the reader; [`ridge`] is the same text, compiled.
const SOURCE: &str = "\
fn loss(lambda: Tensor, theta: Tensor, x: Tensor, y: Tensor) -> Tensor {
    (x.matmul(theta) - y).square().sum_all() + (lambda.exp() * theta.square()).sum_all()
}";

/// Least squares with one penalty for each parameter.
fn ridge(lambda: Tensor, theta: Tensor, x: Tensor, y: Tensor) -> Tensor {
    (x.matmul(theta) - y).square().sum_all() + (lambda.exp() * theta.square()).sum_all()
}

/// Writes the part.
pub fn show(page: &mut TourPage) -> Outcome {
    page.heading("1. A loss and its derivatives")?;
    page.line(
        "A loss is plain Rust on symbolic tensors: here least squares with one penalty λ for each parameter θ.\n",
    )?;
    page.inset(SOURCE)?;

    let g = Graph::new();
    let [lambda, theta, v] = ["lambda", "theta", "v"].map(|name| g.input(name, [2, 1], DType::F64));
    let (x, y) = (g.input("x", [3, 2], DType::F64), g.input("y", [3, 1], DType::F64));
    let loss = ridge(lambda, theta, x, y);
    page.line("\nTracing it once gives this graph, one operation per line:\n")?;
    page.inset(&Program::builder(&g).output("loss", loss).build()?.dump(false))?;

    let slope = gradient(loss, &[theta])?;
    let products = mixed_vector(loss, &[theta], &[v], &[theta, lambda])?;
    let mut builder = Program::builder(&g);
    let names = ["gradient", "Hessian product", "mixed product"];
    for (name, value) in names.into_iter().zip(slope.into_iter().chain(products)) {
        builder = builder.output(name, value.unwrap_or_else(|| theta.zeros_like()));
    }
    page.line(
        "\nDifferentiating it gives a graph of the same kind: ∂L/∂θ, v·∂²L/∂θ² and v·∂²L/∂θ∂λ in one program, exactly,",
    )?;
    page.line("with shared parts computed once:\n")?;
    page.inset(&builder.build()?.dump(false))?;

    let at = |shape: [usize; 2], values: &[f64]| Array::from_f64(shape, values.to_vec());
    let point = [
        (lambda, at([2, 1], &[-1.0, 0.5])?),
        (theta, at([2, 1], &[0.7, -0.4])?),
        (x, at([3, 2], &[1.0, 0.2, -0.5, 1.5, 0.3, -1.1])?),
        (y, at([3, 1], &[1.0, -1.0, 0.5])?),
    ];
    let report = GradientCheck::new(&g, loss, &[theta], &point).lambda(&[lambda]).run()?;
    page.line("\nThe gradient checker compares every element with central differences and shows the worst:\n")?;
    page.inset(&report.to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_shown_is_the_code_that_runs() {
        let body = SOURCE.lines().nth(1).unwrap();
        let here = include_str!("formula.rs");
        assert_eq!(here.lines().filter(|line| *line == body).count(), 2);
    }
}
