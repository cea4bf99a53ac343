//! The methods of the study with their settings, and how these were chosen.

use bilevel::InnerLoop;
use bilevel::methods::{AmigoCg, HpoSgld, LangevinAdjoint};
use bilevel_run::Recipe;
use bilevel_run::price::Passes;

/// Temperature of the methods that are made for noise, as in the paper's synthetic experiments.
const TEMPERATURE: f64 = 1e-6;
/// Iterations of the linear solve; not tuned.
const SOLVE: usize = 10;

/// A method and its outer rate.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of the method.
    pub name: &'static str,
    /// The rate of Adam, which moves λ.
    pub rate: f64,
    /// The method with an inner step and this many of them.
    pub make: fn(f64, usize) -> Recipe,
}

/// The compared methods.
///
/// λ is moved by Adam, which was steadier than plain descent on splits 101 to 103. The rates are the best of 0.01,
/// 0.02, 0.05, 0.1, 0.2 and 0.5 for each method by the validation loss, after the classifier is trained from scratch.
/// They were chosen on the splits 101 to 105, which are not among those shown, without test digits.
/// `cargo run --release -p bilevel-tasks --example digits_rates` prints the table.
pub const METHODS: [Setting; 3] = [
    Setting {
        name: "hpo-sgld",
        rate: 0.2,
        make: |step, steps| {
            let (burn_in, samples) = (steps / 2, steps - steps / 2);
            (
                HpoSgld::default(),
                InnerLoop { burn_in, ..InnerLoop::new(step, burn_in + samples).at_temperature(TEMPERATURE) },
            )
                .into()
        },
    },
    Setting {
        name: "langevin-adjoint",
        rate: 0.1,
        make: |step, samples| {
            let temperature = TEMPERATURE;
            (LangevinAdjoint::default(), InnerLoop::new(step, samples).at_temperature(temperature)).into()
        },
    },
    Setting {
        name: "amigo-cg",
        rate: 0.02,
        make: |step, steps| (AmigoCg { iterations: SOLVE, ..AmigoCg::default() }, InnerLoop::new(step, steps)).into(),
    },
];

impl Setting {
    /// The method with this inner loop.
    pub fn method(&self, step: f64, steps: usize) -> Recipe {
        (self.make)(step, steps)
    }

    /// How its second-order products are priced.
    pub fn passes(&self) -> Passes {
        Passes::of(self.name)
    }
}
