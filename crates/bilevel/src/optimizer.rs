//! Outer optimizers: which way λ moves, given the hypergradient.
//!
//!   λ ← project(λ − rate·direction)
//!
//! What an optimizer remembers are plain vectors in the shape of λ, which the driver keeps and a checkpoint holds.

use crate::Result;
use crate::error::require;

/// Turns hypergradients into directions. Its settings are checked before a run begins.
///
/// ```
/// use bilevel::{Optimizer, Result};
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
///     fn direction(&self, gradient: &[f64], _: &mut [&mut [f64]], _: u32) -> Vec<f64> {
///         gradient.iter().map(|g| g.signum()).collect()
///     }
/// }
/// assert_eq!(Sign.direction(&[3.0, -0.1], &mut [], 1), [1.0, -1.0]);
/// ```
pub trait Optimizer: std::fmt::Debug + Send + Sync {
    /// Its name, as on the command line and in checkpoints.
    fn kind(&self) -> &'static str;

    /// Refuses settings outside their range.
    fn check(&self) -> Result<()>;

    /// Names of the vectors it remembers, each in the shape of λ and zero at first.
    fn slots(&self) -> &'static [&'static str];

    /// The direction for one leaf of λ. `slots` are that leaf's vectors, in the order of [`slots`](Self::slots); `iteration`
    /// counts from 1.
    fn direction(&self, gradient: &[f64], slots: &mut [&mut [f64]], iteration: u32) -> Vec<f64>;
}

impl Optimizer for Box<dyn Optimizer> {
    fn kind(&self) -> &'static str {
        (**self).kind()
    }

    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn slots(&self) -> &'static [&'static str] {
        (**self).slots()
    }

    fn direction(&self, gradient: &[f64], slots: &mut [&mut [f64]], iteration: u32) -> Vec<f64> {
        (**self).direction(gradient, slots, iteration)
    }
}

/// Plain descent: the direction is the hypergradient.
///
/// ```
/// use bilevel::{Optimizer, Sgd};
/// assert_eq!(Sgd.direction(&[2.0, -1.0], &mut [], 1), [2.0, -1.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd;

impl Optimizer for Sgd {
    fn kind(&self) -> &'static str {
        "sgd"
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &[]
    }

    fn direction(&self, gradient: &[f64], _: &mut [&mut [f64]], _: u32) -> Vec<f64> {
        gradient.to_vec()
    }
}

/// Heavy ball, v ← decay·v + g: the direction is v, or with `nesterov` g + decay·v.
///
/// ```
/// use bilevel::{Momentum, Optimizer};
/// let momentum = Momentum { decay: 0.5, ..Momentum::default() };
/// let mut velocity = [0.0];
/// assert_eq!(momentum.direction(&[1.0], &mut [&mut velocity], 1), [1.0]);
/// assert_eq!(momentum.direction(&[1.0], &mut [&mut velocity], 2), [1.5]);
/// assert!(Momentum { decay: 1.0, ..momentum }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// How much of v is kept, at least 0 and below 1; 0.9 unless said otherwise.
    pub decay: f64,
    /// Look ahead by one step; off unless said otherwise.
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

    fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.decay), "decay", self.decay, "at least 0 and below 1")
    }

    fn slots(&self) -> &'static [&'static str] {
        &["velocity"]
    }

    fn direction(&self, gradient: &[f64], slots: &mut [&mut [f64]], _: u32) -> Vec<f64> {
        let ahead = |v: f64, g: f64| if self.nesterov { g + self.decay * v } else { v };
        let velocity = slots[0].iter_mut();
        velocity
            .zip(gradient)
            .map(|(v, &g)| {
                *v = self.decay * *v + g;
                ahead(*v, g)
            })
            .collect()
    }
}

/// Adam (Kingma and Ba): with m and v the running means of g and g², unbiased, the direction is m / (√v + ε).
///
/// ```
/// use bilevel::{Adam, Optimizer};
/// let (mut m, mut v) = ([0.0], [0.0]);
/// // The first step has size 1 whatever the size of the gradient.
/// let direction = Adam::default().direction(&[1e-3], &mut [&mut m, &mut v], 1);
/// assert!((direction[0] - 1.0).abs() < 1e-4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How much of the mean of g is kept, at least 0 and below 1; 0.9 unless said otherwise.
    pub beta1: f64,
    /// How much of the mean of g² is kept, at least 0 and below 1; 0.999 unless said otherwise.
    pub beta2: f64,
    /// Added to √v, above 0; 1e-8 unless said otherwise.
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

    fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.beta1), "beta1", self.beta1, "at least 0 and below 1")?;
        require((0.0..1.0).contains(&self.beta2), "beta2", self.beta2, "at least 0 and below 1")?;
        require(self.epsilon > 0.0 && self.epsilon.is_finite(), "epsilon", self.epsilon, "above 0")
    }

    fn slots(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn direction(&self, gradient: &[f64], slots: &mut [&mut [f64]], iteration: u32) -> Vec<f64> {
        let Adam { beta1, beta2, epsilon } = *self;
        let [mean, square] = slots else { return gradient.to_vec() };
        let unbias = |beta: f64| 1.0 / (1.0 - beta.powf(iteration as f64));
        let (unbias1, unbias2) = (unbias(beta1), unbias(beta2));
        (mean.iter_mut().zip(square.iter_mut()).zip(gradient))
            .map(|((m, v), &g)| {
                *m = beta1 * *m + (1.0 - beta1) * g;
                *v = beta2 * *v + (1.0 - beta2) * g * g;
                *m * unbias1 / ((*v * unbias2).sqrt() + epsilon)
            })
            .collect()
    }
}
