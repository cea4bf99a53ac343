//! Learning rates and weight decays, one of each per layer, as hyperparameters of a training by Adam.
//!
//!   wₖ = wₖ⁰ + e^ρₖ·φₖ,   L_T = mean cross entropy of a minibatch + Σ e^δₖ·‖wₖ‖²,   f = mean cross entropy of the validation digits
//!
//! λ holds ρₖ and δₖ of every layer k, and θ = φ starts at 0. Adam's direction does not depend on the size of a
//! gradient, so a step γ of φₖ is a step γ·e^ρₖ of wₖ. So e^ρₖ is the learning rate of layer k in units of γ, exactly
//! except for Adam's ε. The end of a training of T steps depends on its rates, and the derivative with respect to them
//! is that of the whole training, which reverse mode computes.

use crate::digits::{CLASSES, DigitSource, share_right};
use bilevel::graph::nn::{cross_entropy, cross_entropy_rows};
use bilevel::graph::random::fill_normal_f64;
use bilevel::optimizers::Adam;
use bilevel::splits::Part;
use bilevel::{Array, DType, Error, InnerLoop, Key, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_models::{Activation, Linear, Mlp};
use bilevel_report::{Column, Section, Table, number};
use bilevel_run::LambdaLeaf;
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Layers of the network, two of them hidden.
const LAYERS: usize = 3;

/// λ: a number of each kind per layer.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
struct PerLayer<T> {
    log_rate: T,
    log_decay: T,
}

/// A learning rate and a weight decay for each layer of a network on digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LayerRates {
    /// digits (embedded) or mnist (from --data)
    pub source: DigitSource,
    /// digits to train on
    pub train: usize,
    /// digits the rates are chosen by
    pub clean: usize,
    /// test digits
    pub test: usize,
    /// units of each of the two hidden layers
    pub hidden: usize,
    /// rows of a minibatch of the inner loss
    pub batch: usize,
    /// logarithm of every rate at the start, in units of the inner step
    pub rate: f64,
    /// logarithm of every weight decay at the start
    pub decay: f64,
}

impl Default for LayerRates {
    fn default() -> Self {
        LayerRates {
            source: DigitSource::Digits,
            train: 599,
            clean: 599,
            test: 599,
            hidden: 32,
            batch: 64,
            rate: 0.0,
            decay: -9.0,
        }
    }
}

impl LayerRates {
    fn widths(&self) -> [usize; LAYERS + 1] {
        [self.source.pixels(), self.hidden, self.hidden, CLASSES]
    }

    fn check(&self) -> Result<()> {
        let setting = |name, value, must| Err(Error::setting(name, value, must));
        if !(1..=10_000).contains(&self.hidden) {
            return setting("hidden", self.hidden as f64, "from 1 to 10000");
        }
        if !(1..=self.train).contains(&self.batch) {
            return setting("batch", self.batch as f64, "from 1 to task.train");
        }
        for (name, value) in [("rate", self.rate), ("decay", self.decay)] {
            if !(-15.0..=5.0).contains(&value) {
                return setting(name, value, "from -15 to 5");
            }
        }
        Ok(())
    }
}

/// The weights: their start, plus the movement of each layer at its rate.
fn weights(s: &Scope, log_rate: Tensor, moved: &Mlp<Tensor>) -> Mlp<Tensor> {
    let layer = |(k, layer): (usize, &Linear<Tensor>)| {
        let rate = log_rate.index(0, k).exp();
        Linear { weight: s.data(&format!("start {k}")) + layer.weight * rate, bias: layer.bias.map(|bias| bias * rate) }
    };
    Mlp { layers: moved.layers.iter().enumerate().map(layer).collect(), activation: moved.activation }
}

impl Task for LayerRates {
    const NAME: &'static str = "layer-rates";
    const SUMMARY: &'static str = "a learning rate and a weight decay for each layer of a network that Adam trains";

    fn build(&self, context: &Context) -> Result<Problem> {
        self.check()?;
        let [train, clean, test] = self.source.parts([self.train, self.clean, self.test], context)?;
        let batch = self.batch;
        let moved = self.widths().windows(2).map(|w| Linear::new(Variable::constant([w[0], w[1]], 0.0))).collect();
        let per_layer = |start: f64| Variable::constant([LAYERS], start).at_least(-15.0).at_most(5.0);
        let lambda = PerLayer { log_rate: per_layer(self.rate), log_decay: per_layer(self.decay).log_penalty() };
        let mut problem =
            Problem::builder(lambda, Mlp { layers: moved, activation: Activation::Tanh }).dtype(context.dtype);
        for (k, w) in self.widths().windows(2).enumerate() {
            let mut values = vec![0.0; w[0] * w[1]];
            fill_normal_f64(Key::from_seed(context.seed).words(), 0, 1 + k as u32, 0, &mut values);
            values.iter_mut().for_each(|value| *value /= (w[0] as f64).sqrt());
            problem = problem.data(format!("start {k}"), Array::from_f64([w[0], w[1]], values)?);
        }
        let of = [Part::Train, Part::Validation, Part::Test];
        let labels = [train.y()?, clean.y()?, test.y()?];
        let scores =
            move |s: &Scope, l: &PerLayer<Tensor>, t: &Mlp<Tensor>| weights(s, l.log_rate, t).forward(s.data("x"));
        let loss = move |s: &Scope, l: &PerLayer<Tensor>, t: &Mlp<Tensor>| cross_entropy(scores(s, l, t), s.data("y"));
        problem
            .parts("y", of.into_iter().zip(labels))
            .parts("x", of.into_iter().zip([train.x, clean.x, test.x]))
            .inner(move |s, l, t| {
                let net = weights(s, l.log_rate, t);
                let (x, y) = (s.data("x"), s.data("y"));
                let drawn = s.epochs(x.dim(0), batch);
                let fit = cross_entropy(net.forward(x.take(drawn)), y.take(drawn));
                let decay = |(k, layer): (usize, &Linear<Tensor>)| {
                    l.log_decay.index(0, k).exp() * layer.weight.square().sum_all()
                };
                net.layers.iter().enumerate().map(decay).fold(fit, |sum, part| sum + part)
            })
            .outer_rows(move |s, l, t| cross_entropy_rows(scores(s, l, t), s.data("y")))
            .measure("training loss", move |s, l, t| loss(&s.part(Part::Train), l, t))
            .measure("test loss", move |s, l, t| loss(&s.part(Part::Test), l, t))
            .measure("test accuracy", move |s, l, t| {
                let s = s.part(Part::Test);
                share_right(scores(&s, l, t), s.data("y"))
            })
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            method: "rmd",
            inner: InnerLoop { optimizer: Adam::default().into(), ..InnerLoop::new(0.003, 40) },
            curvature: 10.0,
            rate: 0.1,
            cold: true,
            iterations: 100,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn reads_data(&self) -> bool {
        self.source == DigitSource::Mnist
    }

    fn show(&self, lambda: &[LambdaLeaf], _: &Context) -> Vec<Section> {
        let all = |name: &str| lambda.iter().find(|leaf| leaf.name == name).map_or(&[][..], |leaf| &leaf.values);
        let rows = all("log_rate").iter().zip(all("log_decay")).enumerate();
        let row = |(k, (rate, decay)): (usize, (&f64, &f64))| {
            vec![(k + 1).to_string(), number(rate.exp()), number(decay.exp())]
        };
        vec![Section::Table(Table {
            columns: vec![
                Column::text("layer"),
                Column::numeric("rate, in inner steps"),
                Column::numeric("weight decay"),
            ],
            rows: rows.map(row).collect(),
            caption: "Rates and decays".into(),
        })]
    }
}
