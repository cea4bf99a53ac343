//! The whole command for your own problem: `cargo run --release -p own-task -- run weight-decay --set task.pull=3`

use bilevel::{InnerLoop, Leaf, Problem, Result, Variable};
use bilevel_run::{Context, Defaults, Registry, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Its fields are the keys of `[task]`; their doc comments are shown next to the keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct WeightDecay {
    /// the target of the parameter
    pull: f64,
}

impl Default for WeightDecay {
    fn default() -> Self {
        WeightDecay { pull: 2.0 }
    }
}

impl Task for WeightDecay {
    const NAME: &'static str = "weight-decay";
    const SUMMARY: &'static str = "the weight decay with which training ends at 1";

    fn build(&self, context: &Context) -> Result<Problem> {
        let pull = self.pull;
        Problem::builder(Leaf(Variable::constant([], 0.1).at_least(0.0)), Leaf(Variable::constant([], 0.0)))
            .dtype(context.dtype)
            .inner(move |_, decay, t| (t.0 - pull).square() + decay.0 * t.0.square())
            .outer(|_, _, t| (t.0 - 1.0).square())
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults { method: "rmd", inner: InnerLoop::new(0.1, 20), curvature: 4.0, rate: 0.1, ..Defaults::default() }
    }
}

fn main() -> std::process::ExitCode {
    bilevel_cli::main(&Registry::new().task::<WeightDecay>())
}
