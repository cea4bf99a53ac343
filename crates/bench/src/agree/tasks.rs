//! The tasks of the deep experiments as they are built for a run: both losses of each, with few images and the largest
//! network that embedded data allow. With `--data`, the networks of the paper.

use crate::error::Result;
use bilevel::parts::InnerStart;
use bilevel::programs::{Losses, Snapshot};
use bilevel::{Cpu, Key, Problem, Session};
use bilevel_graph::{Array, DType, Graph};
use bilevel_run::{Context, Task};
use bilevel_tasks::PictureSet;
use bilevel_tasks::few_shot::Learner;
use bilevel_tasks::invariance::{Dataset, Transformation};
use bilevel_tasks::l1_regularisation::{Granularity, Network};
use bilevel_tasks::learned_loss::{SmallNetwork, SmallPictures};
use bilevel_tasks::{FewShot, ImplicitRepresentation, Invariance, Kind, L1Regularisation, LearnedLoss};

use crate::cases::case;
use crate::cases::values;

/// A task with its settings here.
pub struct TaskCase {
    /// Its name, and that of its function in the peer.
    pub name: &'static str,
    /// Its distinction, in words.
    pub about: &'static str,
    /// Whether it reads files.
    pub reads_data: bool,
    build: fn(&Context) -> bilevel::Result<Problem>,
}

/// All of them, those that read files last.
pub const TASKS: [TaskCase; 15] = [
    TaskCase { name: "invariance", about: "digits, 1000 units, 31 views", reads_data: false, build: invariance },
    TaskCase { name: "l1_by_weight", about: "digits, MLP", reads_data: false, build: l1_by_weight },
    TaskCase { name: "l1_by_filter", about: "digits, MLP", reads_data: false, build: l1_by_filter },
    TaskCase { name: "learned_loss", about: "digits, MLP", reads_data: false, build: learned_loss },
    TaskCase { name: "few_shot", about: "Omniglot, Conv4 of 64: MAML", reads_data: false, build: few_shot },
    TaskCase { name: "few_shot_abml", about: "Omniglot, Conv4 of 64", reads_data: false, build: few_shot_abml },
    TaskCase { name: "few_shot_bmaml", about: "Omniglot, Conv4 of 64", reads_data: false, build: few_shot_bmaml },
    TaskCase { name: "few_shot_protonet", about: "Omniglot, Conv4 of 64", reads_data: false, build: few_shot_protonet },
    TaskCase { name: "images_siren", about: "digits, 5 × 256, ω = 60", reads_data: false, build: images_siren },
    TaskCase { name: "images_fourier", about: "digits, 3 × 256", reads_data: false, build: images_fourier },
    TaskCase { name: "views_nerf", about: "lamps, 6 × 256, 64 samples", reads_data: false, build: views_nerf },
    TaskCase {
        name: "invariance_mnist",
        about: "MNIST, 1000 units, 31 views",
        reads_data: true,
        build: invariance_mnist,
    },
    TaskCase { name: "l1_efficientnet", about: "pets, EfficientNet-Lite0", reads_data: true, build: l1_efficientnet },
    TaskCase {
        name: "learned_loss_alexnet",
        about: "CIFAR-10, AlexNet",
        reads_data: true,
        build: learned_loss_alexnet,
    },
    TaskCase { name: "learned_loss_wrn", about: "CIFAR-10, WRN-28-10", reads_data: true, build: learned_loss_wrn },
];

/// A task by its name.
pub fn find(name: &str) -> Option<&'static TaskCase> {
    TASKS.iter().find(|task| task.name == name)
}

fn invariance(context: &Context) -> bilevel::Result<Problem> {
    Invariance { draws: 31, hidden: 1000, batch: 8, test: 4, ..Invariance::default() }.build(context)
}

fn invariance_mnist(context: &Context) -> bilevel::Result<Problem> {
    let paper = Invariance::paper(Transformation::Rotated180);
    Invariance { dataset: Dataset::Mnist, batch: 4, test: 4, ..paper }.build(context)
}

fn l1(granularity: Granularity, context: &Context) -> bilevel::Result<Problem> {
    L1Regularisation { granularity, warm_up: 0, ..L1Regularisation::default() }.build(context)
}

fn l1_by_weight(context: &Context) -> bilevel::Result<Problem> {
    l1(Granularity::Weight, context)
}

fn l1_by_filter(context: &Context) -> bilevel::Result<Problem> {
    l1(Granularity::Filter, context)
}

fn l1_efficientnet(context: &Context) -> bilevel::Result<Problem> {
    let photographs = L1Regularisation::photographs(PictureSet::Pets);
    let few = L1Regularisation { train: 1, validation: 1, second: 0, test: 1, side: 64, batch: 2, ..photographs };
    L1Regularisation { network: Network::EfficientNetLite0, warm_up: 0, ..few }.build(context)
}

fn learned_loss(context: &Context) -> bilevel::Result<Problem> {
    LearnedLoss { train: 100, test: 10, ..LearnedLoss::default() }.build(context)
}

fn cifar(network: SmallNetwork, context: &Context) -> bilevel::Result<Problem> {
    let few = LearnedLoss { train: 40, test: 10, batch: 4, ..LearnedLoss::cifar10() };
    LearnedLoss { pictures: SmallPictures::Cifar10, network, ..few }.build(context)
}

fn learned_loss_alexnet(context: &Context) -> bilevel::Result<Problem> {
    cifar(SmallNetwork::Alexnet, context)
}

fn learned_loss_wrn(context: &Context) -> bilevel::Result<Problem> {
    cifar(SmallNetwork::WideResnet, context)
}

fn omniglot(learner: Learner, context: &Context) -> bilevel::Result<Problem> {
    FewShot { learner, width: 64, shots: 2, particles: 3, test_tasks: 0, ..FewShot::default() }.build(context)
}

fn few_shot(context: &Context) -> bilevel::Result<Problem> {
    omniglot(Learner::Network, context)
}

fn few_shot_abml(context: &Context) -> bilevel::Result<Problem> {
    omniglot(Learner::Distribution, context)
}

fn few_shot_bmaml(context: &Context) -> bilevel::Result<Problem> {
    omniglot(Learner::Particles, context)
}

fn few_shot_protonet(context: &Context) -> bilevel::Result<Problem> {
    omniglot(Learner::Prototypes, context)
}

/// With the paper's extra term.
fn digits(network: ImplicitRepresentation, context: &Context) -> bilevel::Result<Problem> {
    ImplicitRepresentation { width: 256, signals: 8, held_out: 1, tasks: 2, extra: 0.5, ..network }.build(context)
}

fn images_siren(context: &Context) -> bilevel::Result<Problem> {
    digits(ImplicitRepresentation { layers: 5, frequency: 60.0, ..Default::default() }, context)
}

fn images_fourier(context: &Context) -> bilevel::Result<Problem> {
    let network = ImplicitRepresentation { network: Kind::Fourier, layers: 3, features: 256, ..Default::default() };
    digits(network, context)
}

fn views_nerf(context: &Context) -> bilevel::Result<Problem> {
    let paper = ImplicitRepresentation::lamps(16);
    ImplicitRepresentation { signals: 2, held_out: 1, tasks: 2, views: 5, rays: 6, extra: 0.5, ..paper }.build(context)
}

/// The distance of λ and θ from the start of a run, so that no number is exactly 0 and no two networks are the same.
const AWAY: f64 = 0.02;

impl TaskCase {
    /// Both losses at a point near the start of a run, as tensors of this graph.
    pub fn losses(&self, graph: &Graph, cpu: &Cpu, context: &Context) -> Result<Losses> {
        let problem = (self.build)(context)?;
        let session = Session::new(&problem, cpu)?;
        let key = Key::from_seed(context.seed);
        let state = session.state(key)?;
        InnerStart::new(&session)?.place(&state.lambda, &state.theta, key)?;
        let Snapshot { lambda, theta, memory } = state.snapshot()?;
        let near = |from: u32, arrays: Vec<Array>| -> Result<Vec<Array>> {
            let numbered = (from..).zip(arrays);
            numbered.map(|(number, array)| moved(&array, (number, context.seed as u32))).collect()
        };
        let here = Snapshot { lambda: near(0, lambda)?, theta: near(5000, theta)?, memory };
        Ok(problem.losses(graph, &here, key)?)
    }
}

/// An array with a small number added to each element.
fn moved(array: &Array, draw: (u32, u32)) -> Result<Array> {
    let shift = values::array(array.shape(), DType::F64, case::Start::Uniform(AWAY), draw)?;
    let sum: Vec<f64> = array.to_f64().iter().zip(shift.to_f64()).map(|(a, b)| a + b).collect();
    Ok(Array::from_f64(array.shape(), sum)?)
}
