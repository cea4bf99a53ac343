//! Meta-learned initialisations for implicit representations (table meta_inr): random weights, Reptile with two
//! controls (its outputs without its weights, its weights without their order), MAML, FO-MAML, and HPO-SGLD with and
//! without the paper's extra term ‖λ − sg(θ*)‖².
//!
//! Two families, each judged by the PSNR of signals that nothing was learned from, after this many steps of plain
//! descent:
//!
//!   1. images: pets at 64 × 64 pixels, SIREN of five layers of 256 with ω = 60, two inner steps of 0.01; and the same
//!      images by a ReLU network on Fourier features, one layer of 128 with two inner steps of 0.1, for which neither
//!      the paper nor an independent program has a number;
//!   2. scenes: generated lamps, with a new one seen in one view and judged by others; NeRF of six layers of 256,
//!      32 inner steps of 0.5 with 128 rays each.
//!
//! The paper uses ShapeNet's lamps, cars and chairs instead, which are not available. The derivative of the extra term
//! is 2·(λ − θ*), twice the step of Reptile, so for a fair comparison there is also a Reptile row at twice the rate.
//! The full form takes about two minutes on one H200. A quarter is MAML on images from three seeds, a quarter is the
//! longer HPO-SGLD on lamps from three seeds, and a quarter is the test on held-out lamps. The quick form uses the
//! embedded digits for images, and smaller lamps and networks.

mod show;
mod work;

use Moved::{ByAdam, ByDescent};
use bilevel::methods::{HpoSgld, Reptile, Rmd, RmdFo};
use bilevel::optimizers::{Adam, InnerOptimizer, Shape};
use bilevel::{InnerLoop, Precision, Result};
use bilevel_run::{Config, Findings, Finished, Item, Plan, Recipe, Scale, Settings, Study, label};
use bilevel_tasks::implicit_representation::NAME;
use bilevel_tasks::{ImplicitRepresentation, Kind};
use work::{Adaptation, Origin, Weights};

/// The folder of the images, below `--data`.
const PETS: &str = "oxford-pets";
/// The paper's temperature and noise scale.
const NOISE: (f64, f64) = (1e-4, 1e-6);
/// Signals shown as pictures.
const SHOWN: usize = 2;

/// A way to learn the initialisation.
#[derive(Clone, Debug)]
struct Way {
    /// In labels.
    key: &'static str,
    /// In tables.
    name: &'static str,
    by: By,
    extra: f64,
    moved: Moved,
    iterations: u32,
    seeds: u64,
}

/// The method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Maml,
    FirstOrder,
    Reptile,
    HpoSgld,
}

/// The optimizer of λ, with its rate.
#[derive(Clone, Copy, Debug)]
enum Moved {
    ByAdam(f64),
    ByDescent(f64),
}

/// A family with the ways to learn its initialisation.
#[derive(Clone)]
struct Experiment {
    /// In labels.
    key: &'static str,
    /// In tables.
    name: String,
    task: ImplicitRepresentation,
    /// Steps after which held-out signals are judged.
    counts: [usize; 3],
    ways: Vec<Way>,
    /// Seeds of random initialisations.
    seeds: u64,
    /// Steps to match outputs in.
    matching: usize,
    /// The precision of the operands of products.
    precision: Precision,
    /// The largest norm of a hypergradient, above which it is scaled down; 0 for any.
    clip: f64,
}

/// All experiments.
fn experiments(plan: &Plan) -> [Experiment; 3] {
    let way = |key, name, by, (extra, moved), iterations, seeds| Way { key, name, by, extra, moved, iterations, seeds };
    let seeds = plan.choose(1, 3);
    let (few, many) = (plan.choose(100, 500), plan.choose(300, 800));
    // Without second derivatives a direction is so far off that only small steps lead anywhere.
    let (exact, rough) = plan.choose((1e-3, 1e-3), (5e-5, 3e-5));
    let (exact, rough) = (ByAdam(exact), ByAdam(rough));
    let images = Experiment {
        key: "images",
        name: plan.choose("digits, 8 px", "pets, 64 px").into(),
        task: plan.choose(ImplicitRepresentation::default(), ImplicitRepresentation::pictures(PETS, 64)),
        counts: [2, 10, 50],
        ways: vec![
            way("reptile", "Reptile", By::Reptile, (0.0, rough), few, seeds),
            way("fo-maml", "FO-MAML", By::FirstOrder, (0.0, rough), few, seeds),
            way("maml", "MAML", By::Maml, (0.0, exact), many, seeds),
            way("hpo-sgld", "HPO-SGLD", By::HpoSgld, (0.0, rough), few, 1),
            way("hpo-sgld-extra", "HPO-SGLD + ‖λ − sg(θ*)‖²", By::HpoSgld, (1.0, rough), few, 1),
        ],
        seeds,
        matching: plan.choose(300, 2000),
        // Sines have ω times their operands as phases, and would see them rounded.
        precision: Precision::Full,
        // If training is about to become chaotic, a single hypergradient can be far larger than all others.
        clip: plan.choose(0.0, 1.0),
    };
    // Chosen by the error on images to learn from, in short runs: with higher frequencies, smaller steps, or more layers,
    // two steps fit little but the mean colour. The step is about as large as random weights bear, and those bear the less
    // the wider their layer is.
    let (features, width, frequency) = plan.choose((32, 24, 1.0), (256, 128, 1.5));
    let network = ImplicitRepresentation { network: Kind::Fourier, layers: 1, features, width, ..images.task.clone() };
    let fourier = Experiment {
        key: "fourier",
        name: format!("{}, Fourier features", images.name),
        task: ImplicitRepresentation { frequency, learning_rate: 0.1, ..network },
        ways: vec![
            way("reptile", "Reptile", By::Reptile, (0.0, ByAdam(1e-3)), few, 1),
            way("fo-maml", "FO-MAML", By::FirstOrder, (0.0, ByAdam(1e-3)), few, 1),
            way("maml", "MAML", By::Maml, (0.0, ByAdam(1e-2)), plan.choose(300, 3000), seeds),
            way("hpo-sgld", "HPO-SGLD", By::HpoSgld, (0.0, ByAdam(1e-3)), few, 1),
        ],
        ..images.clone()
    };
    let small = ImplicitRepresentation {
        width: 32,
        layers: 3,
        frequency: 3.0,
        features: 6,
        signals: 16,
        held_out: 4,
        steps: 8,
        views: 8,
        rays: 64,
        samples: 16,
        ..ImplicitRepresentation::lamps(16)
    };
    let task = plan.choose(small, ImplicitRepresentation::lamps(64));
    let (some, many) = match plan.scale {
        // 45 epochs, as in the paper.
        Scale::Paper => [45 * (task.signals / task.tasks) as u32; 2].into(),
        _ => (plan.choose(20, 40), 160),
    };
    // Plain descent, as in Reptile, at one rate for both; Adam if a hypergradient is small compared with the
    // displacement of training.
    let (rate, adam) = (0.5, ByAdam(plan.choose(3e-3, 1e-4)));
    let (plain, twice, tenth) = (ByDescent(rate), ByDescent(2.0 * rate), ByDescent(0.1 * rate));
    let (extra, tenfold) = ("HPO-SGLD + ‖λ − sg(θ*)‖²", "HPO-SGLD + 10·‖λ − sg(θ*)‖²");
    let mut ways = vec![
        way("reptile", "Reptile", By::Reptile, (0.0, plain), some, seeds),
        way("reptile-twice", "Reptile, twice the rate", By::Reptile, (0.0, twice), some, seeds),
        way("fo-maml", "FO-MAML", By::FirstOrder, (0.0, adam), some, 1),
        way("maml", "MAML", By::Maml, (0.0, adam), some, 1),
        way("hpo-sgld", "HPO-SGLD", By::HpoSgld, (0.0, plain), some, 1),
        way("hpo-sgld-extra", extra, By::HpoSgld, (1.0, plain), some, 1),
        // The paper gives the term no weight. With ten it moves λ as far as before, and the recursion a tenth as far.
        way("hpo-sgld-tenfold", tenfold, By::HpoSgld, (10.0, tenth), some, seeds),
    ];
    if plan.scale == Scale::Full {
        ways.push(way("reptile-long", "Reptile", By::Reptile, (0.0, plain), many, 1));
        ways.push(way("hpo-sgld-tenfold-long", tenfold, By::HpoSgld, (10.0, tenth), many, 1));
    }
    let steps = task.steps;
    let name = format!("lamps from one view, {} px", task.side);
    let counts = [steps, 4 * steps, 16 * steps];
    let (matching, precision) = (plan.choose(300, 3000), plan.choose(Precision::Full, Precision::Tf32));
    [images, fourier, Experiment { key: "lamps", name, task, counts, ways, seeds, matching, precision, clip: 0.0 }]
}

impl Way {
    fn method(&self, task: &ImplicitRepresentation) -> Recipe {
        let (step, steps) = (task.learning_rate, task.steps);
        match self.by {
            By::Maml => (Rmd::default(), InnerLoop::new(step, steps)).into(),
            By::FirstOrder => (RmdFo::default(), InnerLoop::new(step, steps)).into(),
            By::Reptile => (Reptile::default(), InnerLoop::new(step, steps)).into(),
            By::HpoSgld => {
                // The paper keeps 5 of 32.
                let samples = (steps * 5 / 32).max(1);
                let (temperature, noise_scale) = NOISE;
                (
                    HpoSgld::default(),
                    InnerLoop {
                        burn_in: steps - samples,
                        noise_scale,
                        ..InnerLoop::new(step, steps).at_temperature(temperature)
                    },
                )
                    .into()
            }
        }
    }

    fn run(&self, plan: &Plan, experiment: &Experiment, seed: u64) -> Result<Config> {
        let task = ImplicitRepresentation { extra: self.extra, ..experiment.task.clone() };
        let mut config = plan.run(&task)?.by(self.method(&task)).seeded(plan.seed + seed);
        config.precision = experiment.precision;
        let outer = &mut config.outer;
        outer.iterations = self.iterations;
        outer.clip = experiment.clip;
        (outer.rate, outer.optimizer) = match self.moved {
            ByAdam(rate) => (rate, Settings::new("adam", &InnerOptimizer::Adam(Adam::default()))),
            ByDescent(rate) => (rate, Settings::new("sgd", &InnerOptimizer::Sgd)),
        };
        outer.schedule = Shape::Cosine { over: self.iterations, last: 0.0 }.into();
        config.metrics.every = (self.iterations / 20).max(1);
        config.metrics.diagnose = 0;
        config.checkpoint.every = (self.iterations / 5).max(1);
        Ok(config)
    }
}

impl Experiment {
    fn learning(&self, way: &Way, seed: u64) -> String {
        label(&format!("{} {} seed {seed}", self.key, way.key))
    }

    fn judged(&self, origin: &str, seed: u64) -> String {
        label(&format!("{} {origin} seed {seed} judged", self.key))
    }

    fn adaptation(&self, plan: &Plan, origin: Origin, seed: u64) -> Adaptation {
        let counts = [&[0], &self.counts[..]].concat();
        let pictures = if seed == 0 { SHOWN } else { 0 };
        let precision = self.precision;
        Adaptation { task: self.task.clone(), seed: plan.seed + seed, origin, counts, precision, pictures }
    }

    /// The reason why it cannot be done, if so.
    fn missing(&self, plan: &Plan) -> Option<String> {
        let source = &self.task.source;
        let there = source.is_empty() || plan.data.as_ref().is_some_and(|data| data.join(source).exists());
        (!there).then(|| {
            format!(
                "{source} is missing; download it with 'bilevel data fetch {source}' and give its folder with --data \
                DIR"
            )
        })
    }
}

/// The study.
pub(super) struct ImplicitRepresentationStudy;

impl Study for ImplicitRepresentationStudy {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Initialisations of networks that represent images and scenes"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let mut items = vec![];
        for experiment in experiments(plan).iter().filter(|experiment| experiment.missing(plan).is_none()) {
            for seed in 0..experiment.seeds {
                let adaptation = experiment.adaptation(plan, Origin::Random, seed);
                items.push(Item::measure(experiment.judged("random", seed), adaptation));
            }
            for way in &experiment.ways {
                for seed in 0..way.seeds {
                    items.push(Item::run(experiment.learning(way, seed), way.run(plan, experiment, seed)?));
                }
            }
        }
        Ok(items)
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let mut items = vec![];
        for experiment in experiments(plan).iter().filter(|experiment| experiment.missing(plan).is_none()) {
            for way in &experiment.ways {
                for seed in 0..way.seeds {
                    let run = done.run(&experiment.learning(way, seed))?;
                    if !run.arrived() || done.get(&experiment.judged(way.key, seed)).is_some() {
                        continue;
                    }
                    let weights = || Weights(run.lambda.clone());
                    let mut judge = |name: &str, origin: Origin| {
                        let adaptation = experiment.adaptation(plan, origin, seed);
                        items.push(Item::measure(experiment.judged(name, seed), adaptation));
                    };
                    judge(way.key, Origin::Learned(weights()));
                    if way.key == "reptile" && seed == 0 {
                        judge(show::MATCHED, Origin::Matched(weights(), experiment.matching));
                        judge(show::SHUFFLED, Origin::Shuffled(weights()));
                    }
                }
            }
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        show::findings(plan, done)
    }
}
