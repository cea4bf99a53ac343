//! One L2 penalty for each of the 640 weights of a digit classifier, chosen by the loss on validation digits.

use crate::digits::{
    CLASSES, PIXELS, Penalty, PerWeightL2, SHAPE, Split, judged_by_evidence, largest_curvature, per_weight_l2,
};
use bilevel::graph::Executor;
use bilevel::methods::AnyMethod;
use bilevel::observers::StopSignal;
use bilevel::{Array, Cpu, DType, Error, InnerLoop, Problem, Result, Variable};
use bilevel_run::{Context, Defaults, Picture, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Penalties for the weights of a digit classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DigitsL2 {
    /// digits to train on, at most 599
    pub train: usize,
    /// logarithm of every penalty at the start
    pub start: f64,
    /// the least logarithm of a penalty
    pub lowest: f64,
    /// the largest logarithm of a penalty
    pub highest: f64,
    /// pre-training steps, at the initial penalties
    pub trained: usize,
}

impl Default for DigitsL2 {
    fn default() -> Self {
        DigitsL2 { train: 599, start: -5.0, lowest: -12.0, highest: 0.0, trained: 0 }
    }
}

impl DigitsL2 {
    /// The split of a seed, with the configured number of training digits.
    pub fn split(&self, seed: u64) -> Split {
        let split = Split::new(seed);
        Split { train: split.train.first(self.train), ..split }
    }

    /// The problem in its structs, on a split, with weights that start at 0.
    pub fn typed(&self, split: &Split, dtype: DType) -> Result<PerWeightL2> {
        let log_strength =
            Variable::constant(SHAPE, self.start).at_least(self.lowest).at_most(self.highest).log_penalty();
        per_weight_l2(split, dtype, log_strength, Variable::constant(SHAPE, 0.0))
    }

    /// γ = 1 / (largest curvature of the training loss at weights 0). In training that curvature rises by a fifth within a few
    /// steps and then falls, so γ times it stays well below 2.
    pub fn safe_step(split: &Split) -> f64 {
        1.0 / largest_curvature(&split.train)
    }
}

/// The weights after plain training from 0 with these penalties.
pub fn trained(
    problem: &PerWeightL2,
    log_strength: Array,
    (step, steps): (f64, usize),
    executor: impl Executor + 'static,
    signal: &StopSignal,
) -> Result<Array> {
    let penalty = Penalty { log_strength };
    let training = problem.train(&penalty).step(step).steps(steps).executor(executor).stop_signal(signal.clone());
    Ok(training.run()?.theta.weights)
}

impl Task for DigitsL2 {
    const NAME: &'static str = "digits-l2";
    const SUMMARY: &'static str =
        "640 penalties, one per weight of a digit classifier, by the loss on validation digits";

    fn build(&self, context: &Context) -> Result<Problem> {
        if !(1..=599).contains(&self.train) {
            return Err(Error::setting("train", self.train, "from 1 to 599"));
        }
        if !(self.lowest..=self.highest).contains(&self.start) {
            return Err(Error::setting("start", self.start, "from task.lowest to task.highest"));
        }
        let split = self.split(context.seed);
        if context.evidence {
            let log_strength =
                Variable::constant(SHAPE, self.start).at_least(self.lowest).at_most(self.highest).log_penalty();
            return judged_by_evidence(&split, context.dtype, log_strength).map(Problem::erase);
        }
        let problem = self.typed(&split, context.dtype)?;
        if self.trained == 0 {
            return Ok(problem.erase());
        }
        let penalties = Array::full(SHAPE, self.start, context.dtype);
        let steps = (Self::safe_step(&split), self.trained);
        let weights = trained(&problem, penalties, steps, Cpu::with_threads(1), &StopSignal::new())?;
        let log_strength =
            Variable::constant(SHAPE, self.start).at_least(self.lowest).at_most(self.highest).log_penalty();
        per_weight_l2(&split, context.dtype, log_strength, Variable::fixed(weights)).map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(0.4, 20).at_temperature(1e-6),
            curvature: 1.5,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        if let AnyMethod::Evidence(_) = method {
            let rows = self.train + Split::new(0).validation.len();
            *inner = InnerLoop { burn_in: 0, ..*inner }.at_temperature(1.0 / rows as f64);
        }
    }

    fn picture(&self) -> Option<Picture> {
        Some(Picture { leaf: "log_strength", panels: CLASSES, rows: 8, columns: PIXELS / 8, panels_last: true })
    }
}
