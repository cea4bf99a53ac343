//! What every test of a model needs: numbers for its leaves, its outputs, and its derivatives against differences.

use bilevel::data::Start;
use bilevel::{Cpu, Variable};
use bilevel_graph::conformance::agree;
use bilevel_graph::random::fill_uniform_f64;
use bilevel_graph::{
    Array, DType, Derivatives, Executor, GradientCheck, Graph, Program, Quantity, Tensor, Tree, gradient_or_zeros,
    hessian_vector, mixed_vector,
};
use bilevel_models::inputs;
use bilevel_ranks::{Ranks, Threads};

/// Numbers uniform in (−1, 1).
pub fn noise(shape: &[usize], number: u32) -> Array {
    let mut values = vec![0.0; shape.iter().product()];
    fill_uniform_f64([2026, 7], number, 0, 0, &mut values);
    values.iter_mut().for_each(|v| *v = *v * 2.0 - 1.0);
    Array::from_f64(shape, values).unwrap()
}

/// Numbers for every leaf, as large as they are at the start; constants are moved a little, so that none is special.
pub fn numbers<S: Tree<Leaf = Variable>>(model: &S) -> S::With<Array> {
    let mut number = 0;
    model.map(|variable| {
        number += 1;
        let (offset, scale) = match variable.start() {
            Start::Fixed(array) => return (**array).clone(),
            Start::Constant(value) => (*value, 0.2),
            Start::Normal(deviation) => (0.0, deviation * 3f64.sqrt()),
            Start::Uniform(low, high) => ((low + high) / 2.0, (high - low) / 2.0),
        };
        let values = noise(variable.shape(), number).to_f64().iter().map(|v| offset + scale * v).collect();
        Array::from_f64(variable.shape(), values).unwrap()
    })
}

/// What a model answers to some data.
pub fn evaluate<S: Tree<Leaf = Variable>>(
    model: &S,
    values: &S::With<Array>,
    data: &Array,
    forward: impl FnOnce(&S::With<Tensor>, Tensor) -> Tensor,
) -> Array {
    let g = Graph::new();
    let leaves = inputs(model, &g, data.dtype());
    let x = g.input("data", data.shape(), data.dtype());
    let mut builder = Program::builder(&g).output("y", forward(&leaves, x));
    for &input in leaves.leaves().into_iter().chain([&x]) {
        builder = builder.keep_input(input);
    }
    let program = builder.build().unwrap();
    let mut run = Cpu::new().compile(&program).unwrap();
    for (name, value) in values.names().iter().zip(values.leaves()) {
        run.set(program.input(name).unwrap(), value).unwrap();
    }
    run.set(program.input("data").unwrap(), data).unwrap();
    run.run(0..1).unwrap();
    run.output(0).unwrap()
}

/// The largest difference steps for gradients and for Hessian products where a loss is smooth.
pub const SMOOTH: [f64; 2] = [1.0 / 16.0; 2];
/// And where it has kinks, so small that their halvings cross none. Hessian products move all leaves at once, and cross
/// more.
pub const KINKED: [f64; 2] = [1.0 / 128.0, 1.0 / 256.0];

/// Gradient, Hessian product and symmetry of a model's loss with respect to every trained leaf, against differences.
pub fn check_derivatives<S: Tree<Leaf = Variable>>(
    model: &S,
    data: &[Array],
    steps: [f64; 2],
    loss: impl FnOnce(&S::With<Tensor>, &[Tensor]) -> Tensor,
) {
    let g = Graph::new();
    let leaves = inputs(model, &g, DType::F64);
    let input = |(i, v): (usize, &Array)| g.input(format!("data {i}"), v.shape(), v.dtype()).over_ranks(0);
    let given: Vec<Tensor> = data.iter().enumerate().map(input).collect();
    let loss = loss(&leaves, &given);
    let values = numbers(model);
    let tensors: Vec<Tensor> = leaves.leaves().into_iter().copied().collect();
    let trained: Vec<Tensor> =
        tensors.iter().zip(model.leaves()).filter(|(_, leaf)| leaf.is_trained()).map(|(tensor, _)| *tensor).collect();
    let point: Vec<(Tensor, Array)> =
        (tensors.iter().chain(&given).copied()).zip(values.leaves().into_iter().chain(data).cloned()).collect();
    let names = values.names().into_iter().map(|name| name.to_string());
    let names = names.chain((0..data.len()).map(|i| format!("data {i}")));
    let named: Vec<(String, Array)> = names.zip(point.iter().map(|(_, value)| value.clone())).collect();
    check_ranks(&g, loss, (&trained, given[0]), &named);
    let cpu = Cpu::new();
    for (number, step) in steps.into_iter().enumerate() {
        let check = GradientCheck::new(&g, loss, &trained, &point).executor(&cpu).coordinates(6).step(step);
        let mut report = check.run().unwrap();
        report.rows.retain(|row| (row.quantity == Quantity::Gradient) == (number == 0));
        assert!(!report.rows.is_empty() && report.passed(1e-8), "{report}");
    }
}

fn or_zeros(derivatives: Derivatives, like: &[Tensor]) -> Vec<Tensor> {
    derivatives.into_iter().zip(like).map(|(d, t)| d.unwrap_or_else(|| t.zeros_like())).collect()
}

/// Gradient, Hessian product and mixed product of a loss whose batch is shared out: on several ranks they are those of one.
fn check_ranks(g: &Graph, loss: Tensor, (trained, first): (&[Tensor], Tensor), point: &[(String, Array)]) {
    // Hyperparameters: a penalty, and the first of the data, of which each row belongs to one rank.
    let penalty = g.input("penalty", [], DType::F64);
    let squares = trained.iter().fold(g.scalar(0.0, DType::F64), |sum, t| sum + t.square().sum_all());
    let loss = loss.reshape([]) + penalty.exp() * squares;
    let direction: Vec<Tensor> = trained.iter().map(|t| t.cos()).collect();
    let direction: Vec<Tensor> = direction.iter().map(|t| t.stop_gradient()).collect();
    let lambda: Vec<Tensor> = [penalty].into_iter().chain(first.dtype().is_float().then_some(first)).collect();
    let products = [
        ("gradient", gradient_or_zeros(loss, trained).unwrap()),
        ("hessian", or_zeros(hessian_vector(loss, trained, &direction).unwrap(), trained)),
        ("mixed", or_zeros(mixed_vector(loss, trained, &direction, &lambda).unwrap(), &lambda)),
    ];
    let mut builder = Program::builder(g).output("loss", loss);
    for (name, tensors) in &products {
        builder = tensors.iter().enumerate().fold(builder, |b, (i, t)| b.output(format!("{name} {i}"), *t));
    }
    let program = builder.build().unwrap();
    let run = |executor: &dyn Executor| -> Vec<Array> {
        let mut run = executor.compile(&program).unwrap();
        for (name, value) in point {
            if let Ok(input) = program.input(name) {
                run.set(input, value).unwrap();
            }
        }
        run.set(program.input("penalty").unwrap(), &Array::scalar(-3.0, DType::F64)).unwrap();
        run.run(0..1).unwrap();
        (0..program.outputs.len()).map(|output| run.output(output).unwrap()).collect()
    };
    let alone = run(&Cpu::with_threads(1));
    for ranks in [2, 3] {
        for found in Threads::run(ranks, |link| run(&Ranks::new(&Cpu::with_threads(1), link))) {
            agree(&found, &alone, &vec![1e-12; alone.len()]).unwrap_or_else(|m| panic!("on {ranks} ranks: {m}"));
        }
    }
}
