//! Models inside problems: where they start, statistics that follow training, frozen parts, a hyperparameter for every
//! weight.

use crate::common::noise;
use bilevel::methods::{HpoSgld, Rmd};
use bilevel::{Array, Cpu, DType, Driver, InnerLoop, Key, Leaf, Problem, Session, Variable};
use bilevel_graph::{Tensor, Tree, nn};
use bilevel_models::{
    AlexNetConfig, BatchNorm, Conv4Config, EfficientNetConfig, SirenConfig, Statistics, VitConfig, WideResNetConfig,
    with_frozen_statistics,
};

fn zero() -> Leaf<Variable> {
    Leaf(Variable::constant([], 0.0))
}

fn labels(values: &[i32]) -> Array {
    Array::from_i32([values.len()], values.to_vec()).unwrap()
}

fn deviation(array: &Array) -> f64 {
    let values = array.to_f64();
    (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt()
}

/// Where a model starts in a run with this seed.
fn start<S: Tree<Leaf = Variable> + Clone + Send + Sync + 'static>(model: &S, seed: u64) -> S::With<Array> {
    let problem = Problem::builder(zero(), model.clone())
        .dtype(DType::F32)
        .inner(|s, _, net| {
            let zero = s.graph().scalar(0.0, s.dtype());
            net.leaves().into_iter().fold(zero, |sum, leaf| sum + leaf.square().sum_all())
        })
        .outer(|_, _, net| net.leaves()[0].square().sum_all())
        .build()
        .unwrap();
    let session = Session::new(&problem, &Cpu::new()).unwrap();
    problem.theta_of(&session.state(Key::from_seed(seed)).unwrap().theta).unwrap()
}

#[test]
fn weights_are_drawn_from_the_seed_of_the_run_as_large_as_the_papers_have_them() {
    let config = VitConfig { image: [32, 32], depth: 2, ..VitConfig::small(8, 10) };
    let model = config.build().unwrap();
    let vit = start(&model, 1);
    let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.05, "{found} {expected}");
    near(deviation(&vit.blocks[1].attn.qkv.weight), 0.02);
    near(deviation(&vit.head.weight), 0.02);
    near(deviation(&vit.pos_embed), 0.02);
    assert!(deviation(&vit.cls_token) < 2e-6);
    // Uniform in ±1/√192 has the deviation of a third of its square.
    near(deviation(&vit.patch_embed.proj.weight), (1.0 / 192.0 / 3.0f64).sqrt());
    assert_eq!(deviation(vit.blocks[0].mlp.fc1.bias.as_ref().unwrap()), 0.0);
    assert_eq!(vit.norm.weight.to_f64(), [1.0; 384]);
    assert_eq!(start(&model, 1).head.weight, vit.head.weight);
    assert_ne!(start(&model, 2).head.weight, vit.head.weight);
    assert_ne!(vit.blocks[0].attn.qkv.weight, vit.blocks[1].attn.qkv.weight);

    let wide = start(&WideResNetConfig::new(10, 2, 10).build().unwrap(), 1);
    near(deviation(&wide.blocks[1].conv2.weight), (2.0 / (9.0 * 64.0f64)).sqrt());
    assert_eq!(wide.norm.running_var.as_ref().unwrap().to_f64(), [1.0; 128]);

    let siren = start(&SirenConfig::default().build().unwrap(), 1);
    near(deviation(&siren.layers[2].weight), (6.0 / 256.0f64).sqrt() / 30.0 / 3f64.sqrt());
    near(deviation(&siren.layers[0].weight), 0.5 / 3f64.sqrt());

    let alexnet = start(&AlexNetConfig::for_32x32(10).build().unwrap(), 1);
    near(deviation(&alexnet.features[2].conv.weight), (2.0 / (9.0 * 192.0f64)).sqrt());
}

#[test]
fn running_statistics_follow_training_and_serve_where_nothing_is_trained() {
    let model = WideResNetConfig { channels: 1, stem: 2, ..WideResNetConfig::new(10, 1, 3) }.build().unwrap();
    let problem = Problem::builder(zero(), model)
        .data("x", noise(&[6, 1, 8, 8], 1))
        .data("y", labels(&[0, 1, 2, 0, 1, 2]))
        .inner(|s, l, net| nn::cross_entropy(net.forward(s.data("x"), Statistics::Tracked(s)), s.data("y")) + l.0 * 0.0)
        .outer(|s, _, net| nn::cross_entropy(net.forward(s.data("x"), Statistics::Tracked(s)), s.data("y")))
        .measure("with running statistics", |s, _, net| {
            nn::cross_entropy(net.forward(s.data("x"), Statistics::Running), s.data("y"))
        })
        .measure("with the batch's", |s, _, net| {
            nn::cross_entropy(net.forward(s.data("x"), Statistics::Batch), s.data("y"))
        })
        .build()
        .unwrap();
    let lambda = Leaf(Array::scalar(0.0, DType::F64));
    let trained = problem.train(&lambda).step(0.05).steps(60).run().unwrap();
    let measured = |name: &str| *trained.measures.get(name).unwrap();
    assert_eq!(trained.outer_loss, measured("with running statistics"));
    assert_ne!(trained.outer_loss, measured("with the batch's"));
    let first: &BatchNorm<Array> = &trained.theta.blocks[0].norm1;
    assert!(first.running_mean.as_ref().unwrap().to_f64().iter().all(|mean| *mean != 0.0));
    assert!(first.running_var.as_ref().unwrap().to_f64().iter().all(|variance| *variance != 1.0 && *variance > 0.0));
    // After 60 steps the running ones are near those of the batch, which are the same in every step but for training.
    assert!((trained.outer_loss - measured("with the batch's")).abs() < 0.1, "{trained:?}");
}

#[test]
fn a_pretrained_backbone_stays_frozen_while_its_head_is_trained() {
    let mut config = EfficientNetConfig::lite0(2);
    config.stages.truncate(2);
    (config.stem, config.top) = (8, 16);
    let loaded = config.build().unwrap();
    // As if from a file: every leaf has numbers.
    let values = crate::common::numbers(&loaded);
    let fixed = loaded.zip_map(&values, |leaf, value| leaf.clone().starting_at(value.clone()).unwrap()).unwrap();
    let model =
        fixed.map_named(|name, leaf| if name.starts_with("head") { leaf.clone() } else { leaf.clone().frozen() });
    assert_eq!(bilevel_models::parameter_count(&model), 16 * 2 + 2);
    let problem = Problem::builder(zero(), model.clone())
        .data("x", noise(&[4, 3, 16, 16], 1))
        .data("y", labels(&[0, 1, 1, 0]))
        .inner(|s, l, net| nn::cross_entropy(net.forward(s.data("x"), Statistics::Running), s.data("y")) + l.0 * 0.0)
        .outer(|s, _, net| nn::cross_entropy(net.forward(s.data("x"), Statistics::Running), s.data("y")))
        .build()
        .unwrap();
    let lambda = Leaf(Array::scalar(0.0, DType::F64));
    let trained = problem.train(&lambda).step(0.5).steps(200).record_every(199).run().unwrap();
    assert!(trained.inner_loss < trained.losses[0].1, "{:?}", trained.losses);
    assert_eq!(trained.theta.stem, values.stem);
    assert_ne!(trained.theta.head, values.head);
}

#[test]
fn every_weight_of_a_vit_can_have_an_l1_weight() {
    let config = VitConfig { image: [8, 8], width: 8, heads: 2, hidden: 16, depth: 1, ..VitConfig::base(4, 3) };
    let model = config.build().unwrap();
    let weights = model.map(|leaf| Variable::constant(leaf.shape(), 1e-3).at_least(0.0));
    let penalty = |weights: Vec<&Tensor>, leaves: Vec<&Tensor>| {
        let terms = weights.into_iter().zip(leaves).map(|(weight, leaf)| (*weight * leaf.abs()).sum_all());
        terms.reduce(|a, b| a + b)
    };
    let problem = Problem::builder(weights, model)
        .dtype(DType::F32)
        .data("x", noise(&[6, 3, 8, 8], 1))
        .data("other x", noise(&[6, 3, 8, 8], 2))
        .data("y", labels(&[0, 1, 2, 0, 1, 2]))
        .inner(move |s, l, net| {
            let loss = nn::cross_entropy(net.forward(s.data("x")), s.data("y"));
            penalty(l.leaves(), net.leaves()).map_or(loss, |penalty| loss + penalty)
        })
        .outer(|s, _, net| nn::cross_entropy(net.forward(s.data("other x")), s.data("y")))
        .build()
        .unwrap();
    let inner = InnerLoop { burn_in: 5, noise_scale: 1e-6, ..InnerLoop::new(0.01, 10).at_temperature(0.001) };
    let outcome = Driver::new(&problem, HpoSgld::default()).inner(inner).rate(0.01).iterations(3).run().unwrap();
    let found = outcome.lambda.blocks[0].attn.qkv.weight.to_f64();
    assert_eq!(found.len(), 8 * 24);
    assert!(found.iter().all(|weight| *weight >= 0.0) && found.iter().any(|weight| *weight != 1e-3f32 as f64));
}

#[test]
fn the_start_of_a_conv4_can_be_learnt_over_tasks() {
    let config = Conv4Config { image: [16, 16], channels: 1, width: 4, classes: 2, normalised: true };
    let model = config.build().unwrap();
    let problem = Problem::builder(model.clone(), model)
        .data("x", noise(&[4, 1, 16, 16], 1))
        .data("query", noise(&[6, 1, 16, 16], 2))
        .data("y", labels(&[0, 1, 0, 1]))
        .data("query y", labels(&[0, 1, 0, 1, 0, 1]))
        .inner(|s, _, net| nn::cross_entropy(net.forward(s.data("x"), Statistics::Batch), s.data("y")))
        .outer(|s, _, net| nn::cross_entropy(net.forward(s.data("query"), Statistics::Batch), s.data("query y")))
        .start(|_, start| start.clone())
        .build()
        .unwrap();
    let losses = |iterations| {
        let driver = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.1, 5));
        driver.rate(0.1).iterations(iterations).run().unwrap().last.unwrap().outer_loss
    };
    let (first, last) = (losses(1), losses(30));
    assert!(last < 0.5 * first, "{first} {last}");
}

#[test]
fn freezing_statistics_leaves_all_else_trained() {
    let model = WideResNetConfig::new(10, 1, 3).build().unwrap();
    let frozen = with_frozen_statistics(&model);
    assert_eq!(bilevel_models::parameter_count(&frozen), bilevel_models::parameter_count(&model));
    assert!(frozen.leaves().iter().all(|leaf| !leaf.is_statistic()));
    assert!(model.leaves().iter().any(|leaf| leaf.is_statistic()));
}
