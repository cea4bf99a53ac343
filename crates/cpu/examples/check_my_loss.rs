//! Are the derivatives of my loss those of my loss? `cargo run --release -p bilevel-cpu --example check_my_loss`
//!
//! The gradient checker compares the gradient, a Hessian product and a mixed product with central differences. It is run
//! on a loss that is right and on one that is wrong, to show both outputs.

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, CheckReport, DType, GradientCheck, Graph, Result, Tensor, nn};

/// A data weight for each example: λ weights the examples, θ is a linear classifier.
fn weighted(lambda: Tensor, theta: Tensor, x: Tensor, labels: Tensor) -> Tensor {
    let rows = nn::cross_entropy_rows(x.matmul(theta), labels);
    (nn::softmax(lambda, 0) * rows).sum_all()
}

/// The same with a mistake: the weights are taken as constants.
fn with_stopped_weights(lambda: Tensor, theta: Tensor, x: Tensor, labels: Tensor) -> Tensor {
    weighted(lambda.stop_gradient(), theta, x, labels)
}

type Loss = fn(Tensor, Tensor, Tensor, Tensor) -> Tensor;

/// Traces the loss and checks it at one point; data may be of any type, variables are 64-bit floats.
fn check(loss: Loss) -> Result<CheckReport> {
    let g = Graph::new();
    let (lambda, theta) = (g.input("lambda", [4], DType::F64), g.input("theta", [2, 3], DType::F64));
    let (x, labels) = (g.input("x", [4, 2], DType::F64), g.input("labels", [4], DType::I32));
    let point = [
        (lambda, Array::from_f64([4], vec![0.1, -0.4, 0.8, 0.0])?),
        (theta, Array::from_f64([2, 3], vec![0.5, -0.2, 0.1, -0.7, 0.9, 0.3])?),
        (x, Array::from_f64([4, 2], vec![1.0, 0.3, -0.6, 1.2, 0.4, -1.0, -1.5, -0.2])?),
        (labels, Array::labels(&[0.0, 2.0, 1.0, 2.0], 3)?),
    ];
    let loss = loss(lambda, theta, x, labels);
    GradientCheck::new(&g, loss, &[theta], &point).lambda(&[lambda]).executor(&Cpu::with_threads(1)).run()
}

fn main() -> Result<()> {
    let losses: [(&str, Loss); 2] = [("a correct loss", weighted), ("a wrong stop_gradient", with_stopped_weights)];
    for (name, loss) in losses {
        let report = check(loss)?;
        let verdict = if report.passed(1e-7) { "passed" } else { "FAILED" };
        println!("{name}: {verdict}, largest relative error {:.1e}\n\n{report}\n", report.worst());
    }
    println!(
        "A derivative that is structurally zero is known to be so from the graph alone. Where the differences beside"
    );
    println!(
        "it are not zero, a stop_gradient, a comparison or a conversion to integers cuts a path that should be there."
    );
    Ok(())
}
