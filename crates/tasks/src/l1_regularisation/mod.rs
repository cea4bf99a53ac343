//! An L1 penalty for every weight of a network, chosen by the loss on validation pictures: the paper's largest experiment, with
//! as many hyperparameters as parameters.

mod granularity;
mod layers;
mod problem;

pub use granularity::Granularity;
pub use layers::{LayerPenalties, layer_plot, layer_table, layers};
pub use problem::{HELD, MEASURES};

use crate::photographs::{PerClass, PictureSet};
use bilevel::graph::Executor;
use bilevel::graph::tree::TreeOf;
use bilevel::methods::AnyMethod;
use bilevel::observers::StopSignal;
use bilevel::optimizers::InnerOptimizer;
use bilevel::{Array, Cpu, DType, Error, InnerLoop, Named, Precision, Problem, Result, Variable};
use bilevel_data::prepare::Normalisation;
use bilevel_models::{
    EfficientNet, EfficientNetConfig, Mlp, MlpConfig, Statistics, Vit, VitConfig, Weights, with_frozen_statistics,
};
use bilevel_report::Section;
use bilevel_run::LambdaLeaf;
use bilevel_run::{BuiltOn, Context, Defaults, Task};
use problem::Ingredients;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// The network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A perceptron with one hidden layer.
    Mlp,
    /// EfficientNet-Lite0, 4.65 million parameters.
    #[serde(rename = "efficientnet-lite0")]
    EfficientNetLite0,
    /// ViT-B/16, 86 million parameters.
    #[serde(rename = "vit-b16")]
    VitB16,
}

/// An L1 penalty for every weight of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct L1Regularisation {
    /// the pictures: digits (embedded), or pets, dtd, dtd10 or flowers102 from the data folder
    pub pictures: PictureSet,
    /// the network: mlp, efficientnet-lite0 or vit-b16
    pub network: Network,
    /// hidden units of the mlp
    pub hidden: usize,
    /// safetensors file of pretrained weights; empty for the one in the data folder, random for none
    pub weights: String,
    /// unit with its own penalty: weight, filter, layer, or one for all
    pub granularity: Granularity,
    /// every penalty at the start, at least 0
    pub start: f64,
    /// pictures of each class to train on
    pub train: usize,
    /// pictures of each class to learn the penalties by
    pub validation: usize,
    /// pictures of each class that no loss sees, to stop by; 0 for none
    pub second: usize,
    /// pictures of each class to test on, at most; 0 for all
    pub test: usize,
    /// height and width of photographs
    pub side: usize,
    /// pictures of a batch, in both losses
    pub batch: usize,
    /// learning rate of the warm-up, and of the inner loop by default
    pub learning_rate: f64,
    /// steps without a penalty before a run begins, at most: the weights with the least validation loss are kept
    pub warm_up: usize,
    /// train on the validation pictures too, to measure their value as training data
    pub train_on_validation: bool,
}

impl Default for L1Regularisation {
    fn default() -> Self {
        L1Regularisation {
            pictures: PictureSet::Digits,
            network: Network::Mlp,
            hidden: 32,
            weights: String::new(),
            granularity: Granularity::Weight,
            start: 1e-4,
            train: 10,
            validation: 10,
            second: 10,
            test: 50,
            side: 224,
            batch: 8,
            learning_rate: 0.05,
            warm_up: 100,
            train_on_validation: false,
        }
    }
}

/// Inner steps of a hypergradient, as in the paper.
const STEPS: usize = 10;
/// Inner steps after which an adjoint decays: those of ten hypergradients. A pretrained network is nearly flat, so an
/// adjoint without decay keeps pushing λ by the gradients of an outdated network, until the penalties destroy it.
pub const HORIZON: usize = 100;

/// The outer rate for large networks, and its number of warm-up iterations. Penalties that grow fast while the
/// validation pictures are learned stay large. With 0.01 from the start the adjoint's sum to 48, against a loss of at
/// most log(37) = 3.6, and the network collapses. Once they are learned, a larger rate keeps the validation loss lower.
const LARGE_NETWORK_RATE: f64 = 1e-3;
const LARGE_NETWORK_WARM_UP: u32 = 500;

impl L1Regularisation {
    /// EfficientNet-Lite0 on photographs, with the paper's batch and step. Penalties start so small that their sum is
    /// below the loss. Its weights sum to 240 000, so with a start of 1e-4 the least inner loss is that of a network of
    /// zeros.
    pub fn photographs(pictures: PictureSet) -> Self {
        let (network, learning_rate, warm_up, start) = (Network::EfficientNetLite0, 0.01, 400, 1e-6);
        let (train, validation, second) = (3, 3, 3);
        L1Regularisation {
            pictures,
            network,
            train,
            validation,
            second,
            start,
            test: 0,
            learning_rate,
            warm_up,
            ..L1Regularisation::default()
        }
    }

    /// θ after the warm-up on this executor. It does not depend on how λ is shared, nor on the later training data.
    pub fn warmed_up(
        &self,
        context: &Context,
        precision: Precision,
        executor: &dyn Executor,
        signal: &StopSignal,
    ) -> Result<Named<Array>> {
        struct WarmUp<'a>(&'a L1Regularisation, u64, Precision, &'a dyn Executor, &'a StopSignal);
        impl Use for WarmUp<'_> {
            type Made = Named<Array>;
            fn apply<M>(self, ingredients: Ingredients<M>) -> Result<Self::Made>
            where
                M: TreeOf<Variable> + Clone + Send + Sync + 'static,
            {
                let WarmUp(task, seed, precision, executor, signal) = self;
                ingredients.warmed_up((task.learning_rate, task.warm_up), precision, seed, executor, signal)
            }
        }
        self.with_ingredients(context, WarmUp(self, context.seed, precision, executor, signal))
    }

    /// The problem, with θ that starts here.
    pub fn problem_from(&self, theta: &Named<Array>, context: &Context) -> Result<Problem> {
        struct From<'a>(&'a L1Regularisation, &'a Named<Array>);
        impl Use for From<'_> {
            type Made = Problem;
            fn apply<M>(self, ingredients: Ingredients<M>) -> Result<Problem>
            where
                M: TreeOf<Variable> + Clone + Send + Sync + 'static,
            {
                let From(task, theta) = self;
                let ingredients = if task.train_on_validation { ingredients.trained_on_both()? } else { ingredients };
                ingredients.starting_at(theta)?.problem(task.granularity, (task.start, task.learning_rate))
            }
        }
        self.with_ingredients(context, From(self, theta))
    }

    fn check(&self) -> Result<()> {
        let counts = [
            ("train", self.train),
            ("validation", self.validation),
            ("side", self.side),
            ("batch", self.batch),
            ("hidden", self.hidden),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(Error::setting(name, 0_usize, "at least 1"));
        }
        if self.start.is_nan() || self.start < 0.0 {
            return Err(Error::setting("start", self.start, "at least 0"));
        }
        if self.pictures == PictureSet::Digits && self.network != Network::Mlp {
            let reason =
                "digits are 8 × 8 grey pixels, which only the mlp takes; choose other pictures with task.pictures";
            return Err(Error::Conflict { reason: reason.into() });
        }
        Ok(())
    }

    fn with_ingredients<U: Use>(&self, context: &Context, using: U) -> Result<U::Made> {
        self.check()?;
        let each = PerClass { train: self.train, validation: self.validation, second: self.second, test: self.test };
        let parts = self.pictures.parts(context.data.as_deref(), self.side, each, context.seed)?;
        let (classes, batch, dtype) = (parts.train.classes.len(), self.batch, context.dtype);
        match self.network {
            Network::Mlp => {
                let pixels = self.pictures.shape(self.side).iter().product();
                let model = MlpConfig::relu([pixels, self.hidden, classes]).build()?;
                let forward = Arc::new(move |net: &Mlp<bilevel::Tensor>, x: bilevel::Tensor| {
                    net.forward(x.reshape([x.dim(0), pixels]))
                });
                using.apply(Ingredients { model, forward, parts, normalisation: None, batch, dtype })
            }
            Network::EfficientNetLite0 => {
                let model = self.efficientnet(&EfficientNetConfig::lite0(classes), context)?;
                let forward = Arc::new(|net: &EfficientNet<bilevel::Tensor>, x| net.forward(x, Statistics::Running));
                // Made for pixels (x − 127)/128.
                let each = |value: f64| vec![value / 255.0; 3];
                let normalisation = Some(Normalisation { mean: each(127.0), deviation: each(128.0) });
                using.apply(Ingredients { model, forward, parts, normalisation, batch, dtype })
            }
            Network::VitB16 => {
                let config = VitConfig { image: [self.side, self.side], ..VitConfig::base(16, classes) };
                let model = self.vit(&config, context)?;
                let forward = Arc::new(|net: &Vit<bilevel::Tensor>, x| net.forward(x));
                let half = || vec![0.5; 3];
                let normalisation = Some(Normalisation { mean: half(), deviation: half() });
                using.apply(Ingredients { model, forward, parts, normalisation, batch, dtype })
            }
        }
    }

    /// The file of pretrained weights, if it should exist.
    fn weights_file(&self, context: &Context, usual: &str) -> Option<PathBuf> {
        match (self.weights.as_str(), &context.data) {
            ("random", _) | ("", None) => None,
            ("", Some(data)) => Some(data.join(usual)),
            (path, _) => Some(path.into()),
        }
    }

    /// With frozen statistics, and a head that starts from scratch.
    fn efficientnet(&self, config: &EfficientNetConfig, context: &Context) -> Result<EfficientNet<Variable>> {
        let model = config.build()?;
        let loaded = match self.weights_file(context, "efficientnet-lite0/efficientnet-lite0.safetensors") {
            Some(path) if !path.exists() => {
                let remedy =
                    "put the safetensors file there, name another with task.weights, or set task.weights to random";
                return Err(Error::MissingData {
                    reason: format!("there are no weights of EfficientNet-Lite0 at {}", path.display()),
                    remedy: remedy.into(),
                });
            }
            Some(path) => Weights::of(&model).named(|leaf| model.pytorch_name(leaf)).except("head").load(path)?,
            None => model,
        };
        Ok(with_frozen_statistics(&loaded))
    }

    /// With timm's weights if available, otherwise with random ones, which are useful only for timing.
    fn vit(&self, config: &VitConfig, context: &Context) -> Result<Vit<Variable>> {
        let model = config.build()?;
        match self.vit_weights(context) {
            Some(path) => Weights::of(&model).except("head").load(path),
            None => Ok(model),
        }
    }

    fn vit_weights(&self, context: &Context) -> Option<PathBuf> {
        self.weights_file(context, "vit-b16/vit-b16.safetensors")
            .filter(|path| !self.weights.is_empty() || path.exists())
    }

    /// Whose weights the network starts from, in a sentence.
    pub fn provenance(&self, context: &Context) -> String {
        let file = |path: PathBuf| format!("the pretrained weights of {}", path.display());
        let random = || "random weights, which are useful only for timing".to_string();
        match self.network {
            Network::Mlp => "random weights".into(),
            Network::EfficientNetLite0 => self
                .weights_file(context, "efficientnet-lite0/efficientnet-lite0.safetensors")
                .map_or_else(random, file),
            Network::VitB16 => self.vit_weights(context).map_or_else(random, file),
        }
    }
}

/// A use of the ingredients that is independent of the model.
trait Use {
    type Made;
    fn apply<M>(self, ingredients: Ingredients<M>) -> Result<Self::Made>
    where
        M: TreeOf<Variable> + Clone + Send + Sync + 'static;
}

impl Task for L1Regularisation {
    const NAME: &'static str = "l1-regularisation";
    const SUMMARY: &'static str = "an L1 penalty for every weight of a network, by the loss on validation pictures";

    fn build(&self, context: &Context) -> Result<Problem> {
        let (executor, signal) = (Cpu::new(), StopSignal::new());
        self.build_on(context, &BuiltOn { executor: &executor, precision: Precision::Full, signal: &signal })
    }

    /// The warm-up is done here.
    fn build_on(&self, context: &Context, on: &BuiltOn) -> Result<Problem> {
        let theta = self.warmed_up(context, on.precision, on.executor, on.signal)?;
        self.problem_from(&theta, context)
    }

    fn defaults(&self) -> Defaults {
        let (rate, warm_up) = match self.network {
            Network::Mlp => (0.01, 0),
            Network::EfficientNetLite0 | Network::VitB16 => (LARGE_NETWORK_RATE, LARGE_NETWORK_WARM_UP),
        };
        Defaults {
            inner: InnerLoop::new(self.learning_rate, STEPS).at_temperature(1e-6),
            curvature: 20.0,
            optimizer: InnerOptimizer::Sgd,
            rate,
            warm_up,
            iterations: 250,
            dtype: DType::F32,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        if let AnyMethod::LangevinAdjoint(adjoint) = method {
            adjoint.horizon = HORIZON;
            // The weights of a large network shrink under their penalties throughout a run. Its curvature grows, and
            // eventually the inner step is too large for it.
            inner.shrink = self.network != Network::Mlp;
        }
    }

    fn reads_data(&self) -> bool {
        self.pictures != PictureSet::Digits
    }

    fn show(&self, lambda: &[LambdaLeaf], context: &Context) -> Vec<Section> {
        let found = layers(lambda);
        let text = format!(
            "The network started from {}. The validation loss drove some penalties to exactly 0, and their weights \
                are free; a large penalty keeps its weight near 0.",
            self.provenance(context)
        );
        let mut sections = vec![Section::Text { title: "Penalties by layer".into(), text }];
        sections.extend(layer_plot("Penalties by layer", &[("λ".into(), &found)]).map(Section::Plot));
        sections.push(Section::Table(layer_table(&found)));
        sections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::graph::{Buffer, Meta, Program, Runnable};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the programs that are compiled.
    #[derive(Clone)]
    struct Counting(Arc<dyn Executor>, Arc<AtomicUsize>);

    impl Executor for Counting {
        fn compile(&self, program: &Program) -> bilevel::graph::Result<Box<dyn Runnable>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.compile(program)
        }

        fn buffer(&self, meta: &Meta) -> bilevel::graph::Result<Buffer> {
            self.0.buffer(meta)
        }

        fn share(&self) -> Arc<dyn Executor> {
            Arc::new(self.clone())
        }
    }

    #[test]
    fn the_warm_up_of_a_run_is_done_by_its_executor_and_ends_with_its_signal() {
        let (task, context) = (L1Regularisation::default(), Context { dtype: DType::F32, ..Context::default() });
        let executor = Counting(Arc::new(Cpu::with_threads(1)), Arc::default());
        let signal = StopSignal::new();
        let on = BuiltOn { executor: &executor, precision: Precision::Full, signal: &signal };
        let there = task.build_on(&context, &on).unwrap();
        assert!(executor.1.load(Ordering::Relaxed) > 0);
        let start = |problem: &Problem| {
            let session = bilevel::Session::new(problem, &Cpu::with_threads(1)).unwrap();
            problem.theta_of(&session.state(bilevel::Key::from_seed(0)).unwrap().theta).unwrap()
        };
        let here = task.build(&context).unwrap();
        assert_eq!(format!("{:?}", start(&there)), format!("{:?}", start(&here)));
        signal.stop();
        assert!(task.build_on(&context, &on).is_err());
    }
}
