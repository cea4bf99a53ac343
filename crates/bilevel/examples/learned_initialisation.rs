//! Learns where training should start: a small network meets a new sine wave in every outer iteration, sees ten points of it,
//! takes five gradient steps, and λ, its first weights, moves so that the next wave is learned better.
//!
//!     cargo run --release -p bilevel --example learned_initialisation

use bilevel::graph::nn::{linear, mse, tanh};
use bilevel::graph::random::{fold_in, seed_key};
use bilevel::{
    Adam, Array, Cpu, DType, Driver, Method, Problem, Result, Rmd, RmdFo, Schedule, State, Tensor, Tree, Variable,
};

#[derive(Clone, Tree)]
struct Layer<T> {
    weight: T,
    bias: T,
}

/// θ: the network (λ is how its layers start) and the task of this iteration, which no step changes. The task is here because
/// what a loss draws from its scope is new in every step, but what the start draws is drawn once an iteration.
#[derive(Clone, Tree)]
struct Learner<T> {
    layers: [Layer<T>; 3],
    amplitude: T,
    phase: T,
    points: T,
}

/// The mean squared error of the network on the wave at these points.
fn error(t: &Learner<Tensor>, x: Tensor) -> Tensor {
    let [first, second, last] = &t.layers;
    let hidden = tanh(linear(x, first.weight, first.bias));
    let hidden = tanh(linear(hidden, second.weight, second.bias));
    let wave = t.amplitude.stop_gradient() * (x + t.phase.stop_gradient()).sin();
    mse(linear(hidden, last.weight, last.bias), wave)
}

/// Inner loss: the error at ten points. Outer loss: the error at fifty others, or for Reptile ½‖λ − θ‖² with θ held fast,
/// whose derivative is Reptile's step from λ to where training ended.
fn problem(reptile: bool) -> Result<Problem> {
    let layer = |i: usize, o: usize| Layer {
        weight: Variable::normal([i, o], 1.0 / (i as f64).sqrt()),
        bias: Variable::constant([o], 0.0),
    };
    let lambda = [layer(1, 32), layer(32, 32), layer(32, 1)];
    let none = || Variable::constant([], 0.0);
    let points = Variable::constant([10, 1], 0.0);
    let theta = Learner { layers: lambda.clone(), amplitude: none(), phase: none(), points };
    Problem::new(lambda, theta)
        .dtype(DType::F32)
        .start(|s, l| Learner {
            layers: l.clone(),
            amplitude: s.uniform([], 0.5, 3.0),
            phase: s.uniform([], 0.0, 3.0),
            points: s.uniform([10, 1], -3.0, 3.0),
        })
        .inner(|_, _, t| error(t, t.points.stop_gradient()))
        .outer(move |s, l, t| {
            if !reptile {
                return error(t, s.uniform([50, 1], -3.0, 3.0));
            }
            let apart = |a: Tensor, b: Tensor| (a - b.stop_gradient()).square().sum_all() * 0.5;
            let layers = l.iter().zip(&t.layers);
            layers
                .map(|(l, t)| apart(l.weight, t.weight) + apart(l.bias, t.bias))
                .fold(s.graph().scalar(0.0, s.dtype()), |a, b| a + b)
        })
        .build()
}

const STEP: f64 = 0.03;
const STEPS: usize = 5;
const SEED: u64 = 1;

/// The error after training from λ, averaged over 300 waves that were never met.
fn after_training(lambda: &[Array]) -> Result<f64> {
    let problem = problem(false)?;
    let mut train = RmdFo { step: STEP, steps: STEPS, ..RmdFo::default() }.prepare(&problem, &Cpu::with_threads(1))?;
    let mut state = State { lambda: lambda.to_vec(), ..State::initial(&problem, seed_key(SEED))? };
    let losses = (0..300).map(|k| Ok(train.estimate(&mut state, fold_in(seed_key(1000), k))?.outer_loss));
    Ok(losses.collect::<Result<Vec<f64>>>()?.iter().sum::<f64>() / 300.0)
}

fn main() -> Result<()> {
    println!("Error on new sine waves after {STEPS} steps on ten points of each.\n");
    println!("{:42} {:>9} {:>9}", "first weights", "error", "seconds");
    let random = after_training(&problem(false)?.initial_lambda(seed_key(SEED))?)?;
    println!("{:42} {random:9.4} {:>9}", "random, where all of the below start", "");

    let first_order = RmdFo { step: STEP, steps: STEPS, ..RmdFo::default() };
    let runs: [(&str, bool, Box<dyn Method>); 3] = [
        ("MAML (rmd)", false, Box::new(Rmd { step: STEP, steps: STEPS, ..Rmd::default() })),
        ("first-order MAML (rmd-fo)", false, Box::new(first_order)),
        ("Reptile's step (rmd-fo, other outer loss)", true, Box::new(first_order)),
    ];
    for (name, reptile, method) in runs {
        let outcome = Driver::new(&problem(reptile)?, method)
            .executor(Cpu::with_threads(1))
            .optimizer(Adam::default())
            .schedule(Schedule::cosine(0.003, 4000, 0.0))
            .iterations(4000)
            .seed(SEED)
            .run()?;
        let error = after_training(&outcome.state.lambda)?;
        println!("{name:42} {error:9.4} {:9.1}", outcome.elapsed.as_secs_f64());
        if outcome.reason.is_failure() {
            println!("  ({})", outcome.reason);
        }
    }
    Ok(())
}
