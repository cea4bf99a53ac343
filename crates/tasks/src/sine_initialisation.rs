//! Learns an initialisation: every outer iteration is an episode with a new sine wave. A small network takes five
//! gradient steps from λ on ten points of it, and is judged on fifty others.
//!
//!   θ⁰ = λ,   L_T = mean squared error at ten points,   f = mean squared error at fifty others of the same wave

use bilevel::graph::gradient_or_zeros;
use bilevel::graph::nn::{linear, mse, tanh};
use bilevel::{DType, Error, InnerLoop, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Waves the measure trains on, all at once.
const WAVES: usize = 64;

/// A layer of the network.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
struct Layer<T> {
    weight: T,
    bias: T,
}

type Network<T> = [Layer<T>; 3];

/// The first weights of a small network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SineInitialisation {
    /// units of each of the two hidden layers
    pub hidden: usize,
    /// points of a wave to learn from
    pub shots: usize,
    /// learning rate of the measure, and of the inner loop by default
    pub learning_rate: f64,
    /// steps of the measure, and of the inner loop by default
    pub steps: usize,
}

impl Default for SineInitialisation {
    fn default() -> Self {
        SineInitialisation { hidden: 32, shots: 10, learning_rate: 0.03, steps: 5 }
    }
}

impl Task for SineInitialisation {
    const NAME: &'static str = "sine-initialisation";
    const SUMMARY: &'static str =
        "the initial weights of a small network, so that five steps on ten points learn a new sine wave";

    fn build(&self, context: &Context) -> Result<Problem> {
        for (name, value) in [("hidden", self.hidden), ("shots", self.shots), ("steps", self.steps)] {
            if value == 0 {
                return Err(Error::setting(name, 0_usize, "at least 1"));
            }
        }
        let layer = |i: usize, o: usize| Layer {
            weight: Variable::normal([i, o], 1.0 / (i as f64).sqrt()),
            bias: Variable::constant([o], 0.0),
        };
        let network: Network<Variable> =
            [layer(1, self.hidden), layer(self.hidden, self.hidden), layer(self.hidden, 1)];
        let (shots, settings) = (self.shots, self.clone());
        Problem::builder(network.clone(), network)
            .dtype(context.dtype)
            .start(|_, l| l.clone())
            .inner(move |s, _, t| error(t, episode(s, shots)[0]))
            .outer(move |s, _, t| error(t, episode(s, shots)[1]))
            .measure("error on new waves", move |s, l, _| after_training(s, l, &settings))
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            method: "rmd",
            inner: InnerLoop::new(self.learning_rate, self.steps),
            curvature: 40.0,
            rate: 0.003,
            cosine: true,
            iterations: 2000,
            cold: true,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }
}

/// The episode's wave at a few training points and at fifty test points. All is drawn in one order, so that both losses
/// see the same wave.
fn episode(s: &Scope, shots: usize) -> [(Tensor, Tensor); 2] {
    let s = s.episode();
    let (amplitude, phase) = (s.uniform([], 0.5, 3.0), s.uniform([], 0.0, 3.0));
    let points = [s.uniform([shots, 1], -3.0, 3.0), s.uniform([50, 1], -3.0, 3.0)];
    points.map(|x| (x, amplitude * (x + phase).sin()))
}

fn error(network: &Network<Tensor>, (x, wave): (Tensor, Tensor)) -> Tensor {
    let [first, second, last] = network;
    let hidden = tanh(linear(x, first.weight, first.bias));
    let hidden = tanh(linear(hidden, second.weight, second.bias));
    mse(linear(hidden, last.weight, last.bias), wave)
}

/// The error after training from λ, averaged over waves: every wave has a copy of the network along a first axis.
fn after_training(s: &Scope, lambda: &Network<Tensor>, settings: &SineInitialisation) -> Tensor {
    let SineInitialisation { shots, learning_rate, steps, .. } = *settings;
    let (amplitude, phase) = (s.uniform([WAVES, 1, 1], 0.5, 3.0), s.uniform([WAVES, 1, 1], 0.0, 3.0));
    let wave = |points: usize| {
        let x = s.uniform([WAVES, points, 1], -3.0, 3.0);
        let full = [WAVES, points, 1];
        (x, amplitude.broadcast_to(full) * (x + phase.broadcast_to(full)).sin())
    };
    let (learn, judge) = (wave(shots), wave(50));
    let error = |network: &[Tensor], (x, wave): (Tensor, Tensor)| {
        let layer = |x: Tensor, n: usize| {
            let y = x.matmul(network[2 * n]);
            y + network[2 * n + 1].broadcast_to(y.shape())
        };
        (layer(layer(layer(x, 0).tanh(), 1).tanh(), 2) - wave).square().mean([1, 2])
    };
    let copies =
        |t: Tensor, shape: [usize; 2]| t.reshape([1, shape[0], shape[1]]).broadcast_to([WAVES, shape[0], shape[1]]);
    let mut network: Vec<Tensor> = lambda
        .iter()
        .flat_map(|l| {
            let (i, o) = (l.weight.dim(0), l.weight.dim(1));
            [copies(l.weight, [i, o]), copies(l.bias, [1, o])]
        })
        .collect();
    for _ in 0..steps {
        match gradient_or_zeros(error(&network, learn).sum_all(), &network) {
            Ok(slopes) => network.iter_mut().zip(slopes).for_each(|(t, slope)| *t = *t - slope * learning_rate),
            // A tensor that could not be made carries its error, and so does the loss computed from it.
            Err(_) => break,
        }
    }
    error(&network, judge).mean_all()
}
