//! Few-shot classification: learns the initialisation for tasks with a few images of unknown classes.
//!
//! Every outer iteration draws a batch of tasks, each with N classes, K images of each to learn from and Q to be judged
//! on. All train side by side on the device. `learner` has the formulas.

mod images;
mod judge;
mod learner;
mod svgd;
#[cfg(test)]
mod tests;

pub use judge::{BINS, Bin, Judgement};
pub use learner::Learner;

use bilevel::data::Shots;
use bilevel::optimizers::{Adam, InnerOptimizer};
use bilevel::training::Trainer;
use bilevel::{Array, DType, Error, InnerLoop, Key, Precision, Problem, Result, Session, Variable};
use bilevel_models::Conv4Config;
use bilevel_report::{Panel, Pictures, Section};
use bilevel_run::run::LambdaLeaf;
use bilevel_run::{Context, Defaults, Task};
use bilevel_run::{Picture, Place};
use images::{Parts, pixels};
use judge::Number;
use learner::{Adapted, Batch, Learned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The images to learn from, among a problem's data and classes.
const LEARN: &str = "learn";
/// The test classes.
const TEST: &str = "test";
/// So many queries are judged side by side in a test.
const QUERIES_AT_ONCE: usize = 4500;

/// The source of the images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImageSet {
    /// Handwritten characters, embedded.
    #[default]
    Omniglot,
    /// 200 classes of ImageNet at 64 by 64 pixels, from files.
    TinyImagenet,
    /// 100 classes of ImageNet, from files.
    MiniImagenet,
    /// 608 classes of ImageNet, from files.
    TieredImagenet,
}

/// Which of Omniglot's characters are learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// 1200 of all 1623 characters, as Vinyals et al. do.
    #[default]
    Characters,
    /// The 30 alphabets of the official background set; those of the evaluation set are tested on.
    Alphabets,
}

/// The initialisation for a task with few images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FewShot {
    /// omniglot, which is embedded, or tiny-imagenet, mini-imagenet and tiered-imagenet from files
    pub dataset: ImageSet,
    /// tasks of omniglot: from 1200 characters at random, or from the 30 background alphabets
    pub split: Split,
    /// the largest number of training classes, and of test classes; 0 is all
    pub classes: usize,
    /// images turned by quarters of a circle are further classes to learn from
    pub rotations: bool,
    /// height and width of mini- and tieredImageNet's images; Omniglot's are 28, tiny ImageNet's 64
    pub side: usize,
    /// classes of a task
    pub ways: usize,
    /// images of each class to learn from
    pub shots: usize,
    /// query images of each class
    pub queries: usize,
    /// images of each inner step, drawn again from those to learn from; 0 is all of them
    pub minibatch: usize,
    /// tasks of one outer iteration, side by side
    pub tasks: usize,
    /// learner of a task: a network, a distribution over networks, particles or prototypes
    pub learner: Learner,
    /// networks of each task, if particles learn it
    pub particles: usize,
    /// weight of the divergence from λ, if a distribution learns it
    pub prior: f64,
    /// channels of each of the four convolutions
    pub width: usize,
    /// learning rate of the measure, and of the inner loop by default
    pub learning_rate: f64,
    /// steps of the measure, and of the inner loop by default
    pub steps: usize,
    /// test tasks of the measure 'test accuracy'; 0 leaves it out
    pub test_tasks: usize,
}

impl Default for FewShot {
    /// Small enough for seconds on a CPU.
    fn default() -> Self {
        FewShot {
            dataset: ImageSet::Omniglot,
            split: Split::Characters,
            classes: 60,
            rotations: false,
            side: 84,
            ways: 5,
            shots: 1,
            queries: 2,
            minibatch: 0,
            tasks: 2,
            learner: Learner::Network,
            particles: 5,
            prior: 1e-4,
            width: 8,
            learning_rate: 0.1,
            steps: 2,
            test_tasks: 4,
        }
    }
}

/// How a task is learned in a test: the published protocols take more steps there than in training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Adaptation {
    /// The training.
    pub inner: InnerLoop,
    /// The weight ρ of a proximal term (ρ/2)·‖θ − λ‖² that holds a network near λ, as implicit MAML has it; 0 is none.
    pub proximal: f64,
    /// Chains, or draws, whose predictions are averaged.
    pub samples: usize,
}

impl FewShot {
    fn check(&self) -> Result<()> {
        let at_least = |name, value: usize, least: usize, must| {
            if value >= least { Ok(()) } else { Err(Error::setting(name, value, must)) }
        };
        at_least("ways", self.ways, 2, "at least 2")?;
        at_least("particles", self.particles, 2, "at least 2")?;
        for (name, value) in [
            ("shots", self.shots),
            ("queries", self.queries),
            ("tasks", self.tasks),
            ("width", self.width),
            ("steps", self.steps),
        ] {
            at_least(name, value, 1, "at least 1")?;
        }
        let not_negative = |name, value: f64| match value >= 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(Error::setting(name, value, "at least 0")),
        };
        not_negative("prior", self.prior)
    }

    /// Height, width and channels of the images.
    fn image(&self) -> ([usize; 2], usize) {
        match self.dataset {
            ImageSet::Omniglot => ([28, 28], 1),
            ImageSet::TinyImagenet => ([64, 64], 3),
            ImageSet::MiniImagenet | ImageSet::TieredImagenet => ([self.side; 2], 3),
        }
    }

    /// The step and the number of steps that suit the learner: prototypes take one of size 1.
    fn loop_of(&self) -> (f64, usize) {
        if self.learner == Learner::Prototypes { (1.0, 1) } else { (self.learning_rate, self.steps) }
    }

    fn batch(&self, set: &'static str, tasks: usize, samples: usize) -> Batch {
        let (image, channels) = self.image();
        let copies = match self.learner {
            Learner::Network | Learner::Distribution => samples,
            Learner::Particles => self.particles,
            Learner::Prototypes => 1,
        };
        // The embedding of prototypes has a linear layer on top, to as many features as it has channels.
        let classes = if self.learner == Learner::Prototypes { self.width } else { self.ways };
        Batch {
            set,
            tasks,
            copies,
            shots: Shots { ways: self.ways, support: self.shots, query: self.queries },
            minibatch: self.minibatch,
            learner: self.learner,
            network: Conv4Config { image, channels, width: self.width, classes, normalised: true },
            prior: self.prior,
            proximal: 0.0,
        }
    }

    /// The losses of a batch, without data.
    fn losses(
        &self,
        batch: &Batch,
        dtype: DType,
    ) -> Result<bilevel::ProblemBuilder<Learned<Variable>, Adapted<Variable>>> {
        let [inner, outer, start] = [(); 3].map(|()| batch.clone());
        let builder = Problem::builder(batch.lambda()?, batch.theta()?)
            .dtype(dtype)
            .inner(move |s, l, t| inner.inner(s, l, t))
            .outer(move |s, l, t| outer.outer(s, l, t));
        Ok(match batch.starts_at_lambda() {
            true => builder.start(move |s, l| start.start(s, l)),
            false => builder,
        })
    }

    /// Learns test tasks from λ, this many, and judges each on its queries. Which tasks they are follows from the seed.
    pub fn test(
        &self,
        lambda: &[LambdaLeaf],
        how: &Adaptation,
        (tasks, seed): (usize, u64),
        precision: Precision,
        place: &Place,
    ) -> Result<Judgement> {
        let context = Context { seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let parts = Parts::of(&FewShot { rotations: false, ..self.clone() }, &context)?;
        let samples = self.batch(TEST, 1, how.samples).copies;
        let at_once = (QUERIES_AT_ONCE / (self.ways * self.queries * samples)).clamp(1, tasks.max(1));
        let batch = Batch { proximal: how.proximal, ..self.batch(TEST, at_once, how.samples) };
        let mut builder = self.losses(&batch, DType::F32)?;
        for number in Number::all() {
            let batch = batch.clone();
            builder = builder.measure(number.name(), move |s, l, t| number.measure(&batch, s, l, t));
        }
        let problem = builder
            .data(TEST, pixels(&parts.test, DType::F32)?)
            .classes(TEST, parts.test.to_classes()?)
            .build()?
            .erase()
            .in_precision(precision)?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let (mut trainer, mut evaluator) = (Trainer::new(&session, how.inner)?, session.evaluator()?);
        let key = Key::from_seed(seed).fold_in(u32::MAX);
        let state = session.state(key)?;
        state.lambda.write(&arrays(lambda)?)?;
        let mut found = Judgement::default();
        for round in 0..tasks.div_ceil(at_once) {
            let key = key.fold_in(round as u32);
            trainer.train(&state, key)?;
            found.add(at_once, &evaluator.at(&state, key)?[2..]);
            (place.progress)((round + 1) as f64 / tasks.div_ceil(at_once) as f64);
        }
        Ok(found)
    }
}

/// λ as arrays.
fn arrays(lambda: &[LambdaLeaf]) -> Result<Vec<Array>> {
    let one = |leaf: &LambdaLeaf| {
        Ok(Array::from_f32(leaf.shape.clone(), leaf.values.iter().map(|value| *value as f32).collect())?)
    };
    lambda.iter().map(one).collect()
}

impl Task for FewShot {
    const NAME: &'static str = "few-shot";
    const SUMMARY: &'static str = "the initial weights from which a network learns unknown classes from a few images";

    fn build(&self, context: &Context) -> Result<Problem> {
        self.check()?;
        let parts = Parts::of(self, context)?;
        let batch = self.batch(LEARN, self.tasks, 1);
        let mut builder = self
            .losses(&batch, context.dtype)?
            .data(LEARN, pixels(&parts.learn, context.dtype)?)
            .classes(LEARN, parts.learn.to_classes()?);
        if self.test_tasks > 0 {
            let (batch, steps) = (self.batch(TEST, self.test_tasks, 1), self.loop_of());
            builder = builder
                .data(TEST, pixels(&parts.test, context.dtype)?)
                .classes(TEST, parts.test.to_classes()?)
                .measure("test accuracy", move |s, l, _| batch.accuracy_after(s, l, steps));
        }
        builder.build().map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        let (step, steps) = self.loop_of();
        Defaults {
            method: if self.learner == Learner::Particles { "rmd-fo" } else { "rmd" },
            inner: InnerLoop::new(step, steps),
            curvature: 1.0,
            optimizer: InnerOptimizer::Adam(Adam::default()),
            rate: 0.003,
            warm_up: 0,
            cosine: true,
            iterations: 1000,
            cold: true,
            dtype: DType::F32,
        }
    }

    fn reads_data(&self) -> bool {
        self.dataset != ImageSet::Omniglot
    }

    /// An example task: a class per panel, one image to learn from and the first to be judged on.
    fn show(&self, _lambda: &[LambdaLeaf], context: &Context) -> Vec<Section> {
        let Ok(parts) = Parts::of(&FewShot { classes: self.ways, rotations: false, ..self.clone() }, context) else {
            return vec![];
        };
        let (Ok(classes), [_, _, rows, columns]) = (parts.test.to_classes(), parts.test.images.shape()) else {
            return vec![];
        };
        let grey = |row: i32| -> Vec<f64> {
            let image = parts.test.images.image(row as usize);
            let mean =
                |at: usize| image[at..].iter().step_by(rows * columns).map(|pixel| f64::from(*pixel)).sum::<f64>();
            (0..rows * columns).map(mean).map(|sum| 1.0 - sum / (255 * image.len() / (rows * columns)) as f64).collect()
        };
        let panel = |(class, what, number): (usize, &str, usize)| {
            let values = grey(*classes.rows(class).get(number)?);
            Some(Panel { title: format!("{what} {}", class + 1), rows, columns, values })
        };
        let panels = [("learn", 0), ("judge", self.shots)].into_iter();
        let panels = panels.flat_map(|(what, number)| (0..self.ways.min(5)).map(move |class| (class, what, number)));
        let pictures = Pictures {
            title: "A task of classes to test on: an image of each to learn from, and one to be judged on".into(),
            panels: panels.filter_map(panel).collect(),
        };
        vec![Section::Pictures(pictures)]
    }

    fn picture(&self) -> Option<Picture> {
        let (_, channels) = self.image();
        let one = channels == 1 && self.learner != Learner::Particles;
        one.then_some(Picture {
            leaf: "network.layers.0.conv.weight",
            panels: self.width,
            rows: 3,
            columns: 3,
            panels_last: false,
        })
    }
}
