//! Optimizers as formulas on tensors: the direction of a variable, given its gradient.
//!
//!   λ ← project(λ − rate·direction)
//!
//! The outer loop moves λ with them, on any device. The state of an optimizer consists of tensors in the shape of the
//! variable, which are carried from one step to the next and saved in checkpoints.

use crate::Result;
use crate::error::require;
use crate::hypergradient::settings::SettingsRecord;
use bilevel_graph::{DType, Tensor};
use serde::{Deserialize, Serialize};

/// The input of an optimizer for one leaf.
#[derive(Clone, Copy, Debug)]
pub struct LeafStep<'a> {
    /// The gradient.
    pub gradient: Tensor,
    /// The leaf itself.
    pub value: Tensor,
    /// The state of the optimizer for the leaf, in the order of [`Optimizer::slots`].
    pub slots: &'a [Tensor],
    /// The number of the step, from 1, as a scalar of the leaf's type.
    pub iteration: Tensor,
}

/// Turns gradients into directions. Its settings are checked before a run begins.
///
/// ```
/// use bilevel::methods::Rmd;
/// use bilevel::optimizers::{LeafStep, Optimizer};
/// use bilevel::{Driver, Leaf, Problem, Result, Tensor, Variable};
/// /// Only the sign of each number counts.
/// #[derive(Debug)]
/// struct Sign;
/// impl Optimizer for Sign {
///     fn kind(&self) -> &'static str {
///         "sign"
///     }
///     fn check(&self) -> Result<()> {
///         Ok(())
///     }
///     fn slots(&self) -> &'static [&'static str] {
///         &[]
///     }
///     fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
///         (leaf.gradient.sign(), vec![])
///     }
/// }
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0.square())
///     .build()?;
/// let outcome = Driver::new(&problem, Rmd::default()).optimizer(Sign).rate(0.5).iterations(4).run()?;
/// assert_eq!(outcome.lambda.0.item(), Some(1.0));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub trait Optimizer: std::fmt::Debug + Send + Sync {
    /// Its name, as on the command line and in checkpoints.
    fn kind(&self) -> &'static str;

    /// The settings as a checkpoint holds them; by default their `Debug` text, as for
    /// [`Method::settings`](crate::Method::settings).
    fn settings(&self) -> SettingsRecord {
        SettingsRecord::text(self.kind(), self)
    }

    /// Refuses settings outside their range.
    fn check(&self) -> Result<()>;

    /// Names of the tensors it remembers, each in the shape of the variable and zero at first.
    fn slots(&self) -> &'static [&'static str];

    /// Returns the direction for one leaf, and its state after this step, in the order of [`slots`](Self::slots).
    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>);
}

impl Optimizer for Box<dyn Optimizer> {
    fn kind(&self) -> &'static str {
        (**self).kind()
    }

    fn settings(&self) -> SettingsRecord {
        (**self).settings()
    }

    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn slots(&self) -> &'static [&'static str] {
        (**self).slots()
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        (**self).step(leaf)
    }
}

/// Plain descent: the direction is the gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sgd;

impl Optimizer for Sgd {
    fn kind(&self) -> &'static str {
        "sgd"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.kind(), self)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &[]
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        (leaf.gradient, vec![])
    }
}

/// Heavy ball, v ← decay·v + g: the direction is v, or with `nesterov` g + decay·v.
///
/// ```
/// use bilevel::optimizers::{Momentum, Optimizer};
/// assert!(Momentum { decay: 1.0, ..Momentum::default() }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Momentum {
    /// The share of v that is carried over, at least 0 and below 1; 0.9 by default.
    pub decay: f64,
    /// Look ahead by one step; off by default.
    pub nesterov: bool,
}

impl Default for Momentum {
    fn default() -> Self {
        Momentum { decay: 0.9, nesterov: false }
    }
}

impl Optimizer for Momentum {
    fn kind(&self) -> &'static str {
        "momentum"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.kind(), self)
    }

    fn check(&self) -> Result<()> {
        fraction("decay", self.decay)
    }

    fn slots(&self) -> &'static [&'static str] {
        &["velocity"]
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        let velocity = leaf.slots[0] * self.decay + leaf.gradient;
        let direction = if self.nesterov { leaf.gradient + velocity * self.decay } else { velocity };
        (direction, vec![velocity])
    }
}

/// RMSprop (Hinton): with v the running mean of g², the direction is g / √(v + ε²).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RmsProp {
    /// The share of the mean of g² that is carried over, at least 0 and below 1; 0.99 by default.
    pub decay: f64,
    /// ε, above 0; 1e-8 by default. It is under the root, so that the direction has a derivative at g = 0.
    pub epsilon: f64,
}

impl Default for RmsProp {
    fn default() -> Self {
        RmsProp { decay: 0.99, epsilon: 1e-8 }
    }
}

impl Optimizer for RmsProp {
    fn kind(&self) -> &'static str {
        "rmsprop"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.kind(), self)
    }

    fn check(&self) -> Result<()> {
        fraction("decay", self.decay)?;
        positive("epsilon", self.epsilon)
    }

    fn slots(&self) -> &'static [&'static str] {
        &["square"]
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        let square = leaf.slots[0] * self.decay + leaf.gradient.square() * (1.0 - self.decay);
        (leaf.gradient / (square + self.epsilon * self.epsilon).sqrt(), vec![square])
    }
}

/// Adam (Kingma and Ba): with m and v the running means of g and g², unbiased, the direction is m / √(v + ε²).
///
/// ```
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0.square() * 1e3)
///     .build()?;
/// // The first step has the size of the rate, whatever the size of the gradient.
/// let outcome = Driver::new(&problem, Rmd::default()).optimizer(Adam::default()).rate(0.1).iterations(1).run()?;
/// assert!((outcome.lambda.0.item().unwrap() - 2.9).abs() < 1e-9);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adam {
    /// The share of the mean of g that is carried over, at least 0 and below 1; 0.9 by default.
    pub beta1: f64,
    /// The share of the mean of g² that is carried over, at least 0 and below 1; 0.999 by default.
    pub beta2: f64,
    /// ε, above 0; 1e-8 by default. It is under the root, so that the direction has a derivative at g = 0.
    pub epsilon: f64,
}

impl Default for Adam {
    fn default() -> Self {
        Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl Optimizer for Adam {
    fn kind(&self) -> &'static str {
        "adam"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.kind(), self)
    }

    fn check(&self) -> Result<()> {
        fraction("beta1", self.beta1)?;
        fraction("beta2", self.beta2)?;
        positive("epsilon", self.epsilon)
    }

    fn slots(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        let Adam { beta1, beta2, epsilon } = *self;
        let mean = leaf.slots[0] * beta1 + leaf.gradient * (1.0 - beta1);
        let square = leaf.slots[1] * beta2 + leaf.gradient.square() * (1.0 - beta2);
        // 1 − βᵏ, which the running means of the first k steps are short of; in 64 bits, for β is close to 1.
        let k = leaf.iteration.convert(DType::F64);
        let short = |beta: f64| (1.0 - k.constant_like(beta, []).pow(k)).convert(leaf.gradient.dtype());
        let direction = mean / short(beta1) / (square / short(beta2) + epsilon * epsilon).sqrt();
        (direction, vec![mean, square])
    }
}

/// AdamW (Loshchilov and Hutter): Adam's direction plus weight decay, which does not enter the running means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdamW {
    /// Adam's settings.
    #[serde(flatten)]
    pub adam: Adam,
    /// Added to the direction: this many times the variable itself; at least 0, 0.01 by default.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        AdamW { adam: Adam::default(), weight_decay: 0.01 }
    }
}

impl Optimizer for AdamW {
    fn kind(&self) -> &'static str {
        "adamw"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.kind(), self)
    }

    fn check(&self) -> Result<()> {
        self.adam.check()?;
        let decay = self.weight_decay;
        require(decay >= 0.0 && decay.is_finite(), "weight_decay", decay, "at least 0")
    }

    fn slots(&self) -> &'static [&'static str] {
        self.adam.slots()
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        let (direction, slots) = self.adam.step(leaf);
        (direction + leaf.value * self.weight_decay, slots)
    }
}

/// The optimizer of an inner loop. Reverse and forward mode
/// differentiate through it exactly.
///
/// ```
/// use bilevel::InnerLoop;
/// use bilevel::optimizers::{Adam, InnerOptimizer};
/// let inner = InnerLoop { optimizer: Adam::default().into(), ..InnerLoop::new(0.001, 100) };
/// # let _ = inner;
/// let written = serde_json::to_string(&InnerOptimizer::Adam(Adam::default())).unwrap();
/// assert_eq!(written, r#"{"name":"adam","beta1":0.9,"beta2":0.999,"epsilon":1e-8}"#);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum InnerOptimizer {
    /// Plain descent.
    #[default]
    Sgd,
    /// Heavy ball or Nesterov's momentum.
    Momentum(Momentum),
    /// RMSprop.
    RmsProp(RmsProp),
    /// Adam.
    Adam(Adam),
    /// AdamW.
    AdamW(AdamW),
}

/// Each optimizer with its settings can be that of an inner loop.
macro_rules! inner_optimizers {
    ($($optimizer:ident)*) => {$(
        impl From<$optimizer> for InnerOptimizer {
            fn from(optimizer: $optimizer) -> Self {
                InnerOptimizer::$optimizer(optimizer)
            }
        }
    )*};
}

inner_optimizers!(Momentum RmsProp Adam AdamW);

impl From<Sgd> for InnerOptimizer {
    fn from(_: Sgd) -> Self {
        InnerOptimizer::Sgd
    }
}

impl InnerOptimizer {
    fn chosen(&self) -> &dyn Optimizer {
        match self {
            InnerOptimizer::Sgd => &Sgd,
            InnerOptimizer::Momentum(momentum) => momentum,
            InnerOptimizer::RmsProp(rms_prop) => rms_prop,
            InnerOptimizer::Adam(adam) => adam,
            InnerOptimizer::AdamW(adam_w) => adam_w,
        }
    }
}

impl Optimizer for InnerOptimizer {
    fn kind(&self) -> &'static str {
        self.chosen().kind()
    }

    fn settings(&self) -> SettingsRecord {
        self.chosen().settings()
    }

    fn check(&self) -> Result<()> {
        self.chosen().check()
    }

    fn slots(&self) -> &'static [&'static str] {
        self.chosen().slots()
    }

    fn step(&self, leaf: &LeafStep) -> (Tensor, Vec<Tensor>) {
        self.chosen().step(leaf)
    }
}

fn fraction(name: &'static str, value: f64) -> Result<()> {
    require((0.0..1.0).contains(&value), name, value, "at least 0 and below 1")
}

fn positive(name: &'static str, value: f64) -> Result<()> {
    require(value > 0.0 && value.is_finite(), name, value, "above 0")
}
