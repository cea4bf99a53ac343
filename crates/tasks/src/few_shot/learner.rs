//! The learners of a task: four inner problems with one outer loss.
//!
//!   network        θ⁰ = λ,   L = Σ over tasks of the cross entropy on the support                       MAML and its kin
//!   distribution   θ = (μ, log σ), θ⁰ = λ,   L = Σ cross entropy at μ + σ·ξ + ρ·KL(θ ‖ λ)               amortised Bayesian (ABML)
//!   particles      θ⁰ = λ for each of P,   θᵢ ← θᵢ + γ·(Stein direction)ᵢ                                Bayesian MAML (BMAML)
//!   prototypes     L = ½·Σ over tasks and classes of the mean of ‖θ_c − φ_λ(x)‖² over the support of c   ProtoNet
//!
//!   f = −ln p(label) on the queries, mean over queries and tasks, p the mean over the networks of a task
//!
//! Prototypes are the minimum of a quadratic with curvature 1, so one step of size 1 reaches it, and reverse mode
//! through it is the gradient of ProtoNet. All tasks of a batch are one θ with a leading axis of tasks. Batch norms use
//! the statistics of the task's own images, in training and in the test, which makes the test transductive, as MAML's
//! is.

use super::svgd;
use bilevel::data::{Episode, Shots, Start};
use bilevel::graph::{gradient_or_zeros, nn};
use bilevel::{DType, Result, Scope, Tensor, Tree, Variable};
use bilevel_models::{Conv4, Conv4Config, for_tasks, same_for_tasks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The start of log σ of a distribution over weights.
const LOG_SPREAD: f64 = -4.0;

/// The learner of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// A network that starts at λ.
    #[default]
    Network,
    /// Means and deviations of a network's weights, held near λ.
    Distribution,
    /// Several networks that attract and repel each other, each with its own start.
    Particles,
    /// The mean embedding of each class, by a network whose weights are λ.
    Prototypes,
}

/// λ, learned from many tasks.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
pub(crate) struct Learned<T> {
    pub network: Conv4<T>,
    pub log_spread: Option<Conv4<T>>,
}

/// θ, learned from one task, for all tasks.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
pub(crate) struct Adapted<T> {
    pub network: Option<Conv4<T>>,
    pub log_spread: Option<Conv4<T>>,
    pub prototypes: Option<T>,
}

/// The tasks of one hypergradient, or of one part of a test.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The name of its images and classes among the data.
    pub set: &'static str,
    /// Tasks side by side.
    pub tasks: usize,
    /// Networks of each task, whose predictions are averaged.
    pub copies: usize,
    /// The size of a task.
    pub shots: Shots,
    /// Images of each inner step; 0 is all that there are.
    pub minibatch: usize,
    /// Its learner.
    pub learner: Learner,
    /// Its network; of prototypes, that of the embedding.
    pub network: Conv4Config,
    /// The weight ρ of the divergence from λ, for a distribution.
    pub prior: f64,
    /// The weight of a proximal term that holds a network near λ; 0 if the method has its own.
    pub proximal: f64,
}

/// The images of a batch with their labels, in the axes `[task, image, ..]`.
struct Seen {
    images: Tensor,
    labels: Tensor,
}

impl Batch {
    /// λ as it starts.
    pub fn lambda(&self) -> Result<Learned<Variable>> {
        let network = self.network.build()?;
        Ok(match self.learner {
            Learner::Network | Learner::Prototypes => Learned { network, log_spread: None },
            Learner::Distribution => {
                let spread = network.map(|leaf| Variable::constant(leaf.shape(), LOG_SPREAD));
                Learned { network, log_spread: Some(spread) }
            }
            Learner::Particles => {
                let each = |leaf: &Variable| {
                    let shape = [&[self.copies], leaf.shape()].concat();
                    match *leaf.start() {
                        Start::Uniform(low, high) => Variable::uniform(shape, low, high),
                        Start::Normal(deviation) => Variable::normal(shape, deviation),
                        Start::Constant(value) => Variable::constant(shape, value),
                        Start::Fixed(_) => Variable::constant(shape, 0.0),
                    }
                };
                Learned { network: network.map(each), log_spread: None }
            }
        })
    }

    /// θ, whose numbers follow from λ if it starts there.
    pub fn theta(&self) -> Result<Adapted<Variable>> {
        let network = for_tasks(&self.network.build()?, self.tasks * self.copies);
        Ok(match self.learner {
            Learner::Network | Learner::Particles => {
                Adapted { network: Some(network), log_spread: None, prototypes: None }
            }
            Learner::Distribution => {
                Adapted { network: Some(network.clone()), log_spread: Some(network), prototypes: None }
            }
            Learner::Prototypes => {
                let prototypes = Variable::constant([self.tasks, self.shots.ways, self.network.classes], 0.0);
                Adapted { network: None, log_spread: None, prototypes: Some(prototypes) }
            }
        })
    }

    /// Whether θ starts at λ.
    pub fn starts_at_lambda(&self) -> bool {
        self.learner != Learner::Prototypes
    }

    /// θ⁰: copies of λ; prototypes may start anywhere.
    pub fn start(&self, s: &Scope, lambda: &Learned<Tensor>) -> Adapted<Tensor> {
        let all = self.tasks * self.copies;
        match self.learner {
            Learner::Network => {
                Adapted { network: Some(same_for_tasks(&lambda.network, all)), log_spread: None, prototypes: None }
            }
            Learner::Distribution => {
                let log_spread = lambda.log_spread.as_ref().map(|spread| same_for_tasks(spread, all));
                Adapted { network: Some(same_for_tasks(&lambda.network, all)), log_spread, prototypes: None }
            }
            Learner::Particles => {
                let each = |leaf: &Tensor| {
                    let own = leaf.shape();
                    leaf.broadcast_to([&[self.tasks], &own[..]].concat()).reshape([&[all], &own[1..]].concat())
                };
                Adapted { network: Some(lambda.network.map(each)), log_spread: None, prototypes: None }
            }
            Learner::Prototypes => {
                let anywhere = s.normal([self.tasks, self.shots.ways, self.network.classes]);
                Adapted { network: None, log_spread: None, prototypes: Some(anywhere) }
            }
        }
    }

    fn episode(&self, s: &Scope) -> Episode {
        s.shots_of(self.set, self.shots, self.tasks)
    }

    /// Images of the tasks, once for every network of a task.
    fn seen(&self, s: &Scope, rows: Tensor, labels: Tensor) -> Seen {
        let images = s.data(self.set).take(rows);
        if self.copies == 1 {
            return Seen { images, labels };
        }
        let again = |x: Tensor| {
            let shape = x.shape();
            let spread = [&shape[..1], &[self.copies], &shape[1..]].concat();
            x.unsqueeze([1]).broadcast_to(spread).reshape([&[self.tasks * self.copies], &shape[1..]].concat())
        };
        Seen { images: again(images), labels: again(labels) }
    }

    /// The support of each task, or as much of it as a step sees, drawn with replacement.
    fn drawn_support(&self, s: &Scope, episode: Episode) -> (Tensor, Tensor) {
        let (rows, labels) = (episode.support, episode.support_labels);
        if self.minibatch == 0 {
            return (rows, labels);
        }
        let each = rows.dim(1);
        let places = (s.uniform([self.tasks, self.minibatch], 0.0, 1.0) * each as f64).floor();
        // A uniform number in single precision may round up to 1.
        let places = places.minimum(each as f64 - 1.0).convert(DType::I32);
        let first = places.iota_like(0) * each as f64;
        let of = |x: Tensor| x.reshape([self.tasks * each]).take(places + first);
        (of(rows), of(labels))
    }

    /// L_T, the sum over the tasks, so that each moves by its own gradient.
    pub fn inner(&self, s: &Scope, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> Tensor {
        let episode = self.episode(s);
        let all = (self.tasks * self.copies) as f64;
        let loss = |network: &Conv4<Tensor>| {
            let (rows, labels) = self.drawn_support(s, episode);
            let Seen { images, labels } = self.seen(s, rows, labels);
            nn::cross_entropy(network.forward_tasks(images), labels) * all
        };
        match (self.learner, &theta.network, theta.prototypes) {
            (Learner::Network, Some(network), _) if self.proximal == 0.0 => loss(network),
            (Learner::Network, Some(network), _) => {
                let pairs = lambda.network.leaves().into_iter().zip(network.leaves());
                let away = pairs.map(|(start, now)| (*now - start.unsqueeze([0])).square().sum_all());
                away.fold(loss(network), |sum, away| sum + away * (0.5 * self.proximal))
            }
            (Learner::Distribution, Some(network), _) => {
                loss(&self.drawn(s, network, &theta.log_spread)) + self.divergence(lambda, theta) * self.prior
            }
            (Learner::Particles, Some(network), _) => {
                let leaves: Vec<Tensor> = network.leaves().into_iter().copied().collect();
                let value = loss(network);
                match gradient_or_zeros(value, &leaves) {
                    Ok(slopes) => svgd::loss(value, &leaves, &slopes, (self.tasks, self.copies)),
                    // A tensor that could not be made carries its error, and so does the loss computed from it.
                    Err(_) => value,
                }
            }
            (_, _, Some(prototypes)) => {
                let Shots { ways, support, .. } = self.shots;
                let own = self.embedded(s, lambda, episode).slice(1, 0, ways * support);
                let own = own.reshape([self.tasks, ways, support, self.network.classes]);
                (prototypes.unsqueeze([2]) - own).square().sum_all() * (0.5 / support as f64)
            }
            // θ has the parts that its learner needs.
            _ => s.graph().scalar(0.0, s.dtype()),
        }
    }

    /// A network of every task: its own, or one drawn from its distribution.
    fn drawn(&self, s: &Scope, mean: &Conv4<Tensor>, log_spread: &Option<Conv4<Tensor>>) -> Conv4<Tensor> {
        let Some(log_spread) = log_spread else { return mean.clone() };
        let mut spreads = log_spread.leaves().into_iter();
        mean.map(|mean| spreads.next().map_or(*mean, |spread| *mean + spread.exp() * s.normal(mean.shape())))
    }

    /// KL(θ ‖ λ) of independent normal numbers, summed over all.
    fn divergence(&self, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> Tensor {
        let pair = |learned: &Conv4<Tensor>, adapted: &Conv4<Tensor>| -> Vec<(Tensor, Tensor)> {
            learned.leaves().into_iter().copied().zip(adapted.leaves().into_iter().copied()).collect()
        };
        let (mut means, mut spreads) = (vec![], vec![]);
        if let (Some(network), Some(spread), Some(prior)) = (&theta.network, &theta.log_spread, &lambda.log_spread) {
            (means, spreads) = (pair(&lambda.network, network), pair(prior, spread));
        }
        let one = |((mean0, mean), (spread0, spread)): (&(Tensor, Tensor), &(Tensor, Tensor))| {
            let (mean0, spread0) = (mean0.unsqueeze([0]), spread0.unsqueeze([0]));
            let square = (*spread * 2.0).exp() + (*mean - mean0).square();
            (square * (spread0 * -2.0).exp() * 0.5 + spread0 - *spread - 0.5).sum_all()
        };
        let terms: Vec<Tensor> = means.iter().zip(&spreads).map(one).collect();
        terms.into_iter().reduce(|a, b| a + b).unwrap_or_else(|| lambda.network.head.weight.zeros_like().sum_all())
    }

    /// All images of the tasks as the network sees them, support first: `[tasks, images, features]`.
    fn embedded(&self, s: &Scope, lambda: &Learned<Tensor>, episode: Episode) -> Tensor {
        let rows = episode.support.concat(&[episode.query], 1);
        same_for_tasks(&lambda.network, self.tasks).forward_tasks(s.data(self.set).take(rows))
    }

    /// The logits of each network of a task for its queries, and their labels: `[tasks · networks, queries, ways]`.
    fn logits(&self, s: &Scope, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> (Tensor, Tensor) {
        let episode = self.episode(s);
        if let Some(prototypes) = theta.prototypes {
            let Shots { ways, support, query } = self.shots;
            let all = self.embedded(s, lambda, episode);
            let queries = all.slice(1, ways * support, ways * (support + query));
            let away = queries.unsqueeze([2]) - prototypes.unsqueeze([1]);
            return (-away.square().sum([3]), episode.query_labels);
        }
        let Seen { images, labels } = self.seen(s, episode.query, episode.query_labels);
        // All measures use one draw. θ has a network if it has no prototypes.
        let network = theta.network.as_ref().map(|network| self.drawn(&s.episode(), network, &theta.log_spread));
        (network.map_or(images, |network| network.forward_tasks(images)), labels)
    }

    /// ln p of every class for every query, `[tasks, queries, ways]`, p averaged over the networks of a task.
    pub fn log_predictions(&self, s: &Scope, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> (Tensor, Tensor) {
        let (logits, _) = self.logits(s, lambda, theta);
        let each = nn::log_softmax(logits, 2);
        let labels = self.episode(s).query_labels;
        if self.copies == 1 {
            return (each, labels);
        }
        let [queries, ways] = [each.dim(1), each.dim(2)];
        let each = each.reshape([self.tasks, self.copies, queries, ways]);
        (nn::logsumexp(each, 1) - (self.copies as f64).ln(), labels)
    }

    /// f.
    pub fn outer(&self, s: &Scope, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> Tensor {
        if self.copies == 1 {
            let (logits, labels) = self.logits(s, lambda, theta);
            return nn::cross_entropy(logits, labels);
        }
        let (log_p, labels) = self.log_predictions(s, lambda, theta);
        let chosen = log_p * nn::one_hot(labels, self.shots.ways, s.dtype());
        -chosen.sum_all() / labels.len() as f64
    }

    /// The share of queries that each task gets right, `[tasks]`.
    pub fn accuracies(&self, s: &Scope, lambda: &Learned<Tensor>, theta: &Adapted<Tensor>) -> Tensor {
        let (log_p, labels) = self.log_predictions(s, lambda, theta);
        log_p.argmax(2).equal(labels).convert(s.dtype()).mean([1])
    }

    /// The mean accuracy after this many plain steps of this size from λ: training that a measure can look into.
    pub fn accuracy_after(&self, s: &Scope, lambda: &Learned<Tensor>, (step, steps): (f64, usize)) -> Tensor {
        let mut theta = self.start(s, lambda);
        for _ in 0..steps {
            let leaves: Vec<Tensor> = theta.leaves().into_iter().copied().collect();
            // A tensor that could not be made carries its error, and so does the accuracy computed from it.
            let Ok(slopes) = gradient_or_zeros(self.inner(s, lambda, &theta), &leaves) else { break };
            let mut slopes = slopes.into_iter();
            theta = theta.map(|leaf| slopes.next().map_or(*leaf, |slope| *leaf - slope * step));
        }
        self.accuracies(s, lambda, &theta).mean_all()
    }
}
