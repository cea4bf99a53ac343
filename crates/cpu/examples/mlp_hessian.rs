//! Trains a small network and measures its curvature: `cargo run --release -p bilevel-cpu --example mlp_hessian`
//!
//! Training is one program whose loop carries the parameters: a hundred steps are one call. A second program gives the
//! Hessian product ∂²L/∂θ²·v; applied again and again to its own result it finds the largest curvature.

use bilevel_cpu::Cpu;
use bilevel_graph::random::{fill_normal_f64, seed_key};
use bilevel_graph::{
    Array, DType, Executor, Graph, Program, Result, Runnable, Tensor, gradient_or_zeros, hessian_vector, nn,
};

const HIDDEN: usize = 16;
const STEP: f64 = 0.5;

/// Two features, one hidden layer with tanh, two classes.
fn loss(theta: &[Tensor], x: Tensor, labels: Tensor) -> Tensor {
    let hidden = nn::linear(x, theta[0], theta[1]).tanh();
    nn::cross_entropy(nn::linear(hidden, theta[2], theta[3]), labels)
}

/// Points in the plane; the class says whether both coordinates have one sign.
fn data() -> Result<(Array, Array)> {
    let x = normal(0, &[200, 2], 1.0)?;
    let labels = x.to_f64().chunks(2).map(|p| f64::from(p[0] * p[1] > 0.0)).collect::<Vec<_>>();
    Ok((x, Array::labels(&labels, 2)?))
}

/// Normal numbers times `scale`; another stream gives others.
fn normal(stream: u32, shape: &[usize], scale: f64) -> Result<Array> {
    let mut values = vec![0.0; shape.iter().product()];
    fill_normal_f64(seed_key(7).map(|k| k as u32), 0, stream, 0, &mut values);
    values.iter_mut().for_each(|v| *v *= scale);
    Array::from_f64(shape, values)
}

fn main() -> Result<()> {
    let g = Graph::new();
    let shapes: [&[usize]; 4] = [&[2, HIDDEN], &[HIDDEN], &[HIDDEN, 2], &[2]];
    let inputs = |name: &str| -> Vec<Tensor> {
        shapes.iter().enumerate().map(|(i, shape)| g.input(format!("{name}{i}"), shape, DType::F64)).collect()
    };
    let (theta, v) = (inputs("theta"), inputs("v"));
    let (x, labels) = (g.input("x", [200, 2], DType::F64), g.input("labels", [200], DType::I32));
    let loss = loss(&theta, x, labels);

    // θ ← θ − STEP·∇L, as a loop.
    let mut train = Program::builder(&g).output("loss", loss);
    for (&t, slope) in theta.iter().zip(gradient_or_zeros(loss, &theta)?) {
        train = train.carry(t, t - slope * STEP);
    }
    let mut train = Cpu::new().compile(&train.build()?)?;

    // ∂²L/∂θ²·v.
    let mut curvature = Program::builder(&g);
    for (i, product) in hessian_vector(loss, &theta, &v)?.into_iter().enumerate() {
        curvature = curvature.output(format!("hv{i}"), product.unwrap_or(theta[i].zeros_like()));
    }
    let mut curvature = Cpu::new().compile(&curvature.build()?)?;

    let (points, classes) = data()?;
    for run in [&mut train, &mut curvature] {
        set(run.as_mut(), "x", &points)?;
        set(run.as_mut(), "labels", &classes)?;
    }
    for (i, shape) in shapes.iter().enumerate() {
        set(train.as_mut(), &format!("theta{i}"), &normal(1 + i as u32, shape, 0.5)?)?;
    }

    println!("{:>6}  {:>10}  {:>17}", "step", "loss", "largest curvature");
    for round in 0..6u32 {
        train.run(100 * round..100 * (round + 1))?;
        for i in 0..theta.len() {
            let name = format!("theta{i}");
            let value = train.input(train.program().input(&name)?)?;
            set(curvature.as_mut(), &name, &value)?;
        }
        let value = train.output(0)?.item().unwrap_or(f64::NAN);
        println!("{:>6}  {value:>10.6}  {:>17.6}", 100 * (round + 1), largest(curvature.as_mut(), &shapes)?);
    }
    Ok(())
}

/// The largest eigenvalue of the Hessian by power iteration: v ← Hv/‖Hv‖.
fn largest(run: &mut dyn Runnable, shapes: &[&[usize]]) -> Result<f64> {
    let mut v = (shapes.iter().enumerate()).map(|(i, s)| normal(10 + i as u32, s, 1.0)).collect::<Result<Vec<_>>>()?;
    let mut length = f64::NAN;
    for _ in 0..60 {
        for (i, v) in v.iter().enumerate() {
            set(run, &format!("v{i}"), v)?;
        }
        run.run(0..1)?;
        let products = (0..v.len()).map(|i| run.output(i)).collect::<Result<Vec<_>>>()?;
        length = products.iter().flat_map(Array::to_f64).map(|h| h * h).sum::<f64>().sqrt();
        for (v, product) in v.iter_mut().zip(&products) {
            let scaled = product.to_f64().iter().map(|h| h / length).collect();
            *v = Array::from_f64(product.shape(), scaled)?;
        }
    }
    Ok(length)
}

fn set(run: &mut dyn Runnable, name: &str, value: &Array) -> Result<()> {
    let input = run.program().input(name)?;
    run.set(input, value)
}
