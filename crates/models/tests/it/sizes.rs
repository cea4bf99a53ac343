//! Numbers of parameters, and configs that make no model.

use bilevel::Variable;
use bilevel_graph::Tree;
use bilevel_models::alexnet::LayerConfig;
use bilevel_models::{
    AlexNetConfig, Conv4Config, EfficientNetConfig, FourierMlpConfig, MlpConfig, NerfConfig, SirenConfig, VitConfig,
    WideResNetConfig, logistic, parameter_count,
};

fn count<S: Tree<Leaf = Variable>>(model: bilevel_models::Result<S>) -> usize {
    parameter_count(&model.unwrap())
}

#[test]
fn models_have_the_published_numbers_of_parameters() {
    assert_eq!(count(VitConfig::small(16, 1000).build()), 22_050_664);
    assert_eq!(count(VitConfig::base(16, 1000).build()), 86_567_656);
    assert_eq!(count(VitConfig::large(16, 1000).build()), 304_326_632);
    assert_eq!(count(VitConfig::giant(14, 1000).build()), 1_012_611_432);
    assert_eq!(count(WideResNetConfig::new(28, 10, 10).build()), 36_479_194);
    assert_eq!(count(WideResNetConfig::new(28, 10, 100).build()), 36_536_884);
    assert_eq!(count(WideResNetConfig::new(16, 4, 10).build()), 2_748_890);
    assert_eq!(count(AlexNetConfig::for_32x32(10).build()), 2_472_266);
    assert_eq!(count(Conv4Config { image: [28, 28], channels: 1, ..Conv4Config::default() }.build()), 112_005);
    assert_eq!(count(MlpConfig::tanh([784, 1000, 10]).build()), 795_010);
    assert_eq!(count(logistic(64, 10)), 650);
    assert_eq!(count(EfficientNetConfig::lite0(1000).build()), 4_652_008);
    assert_eq!(count(SirenConfig::default().build()), 198_915);
    // 6·20 encoded coordinates, six layers of 256, colour and density.
    assert_eq!(count(NerfConfig::default().build()), 121 * 256 + 5 * 257 * 256 + 257 * 4);
    assert_eq!(count(FourierMlpConfig::default().build()), 513 * 256 + 2 * 257 * 256 + 257 * 3);
}

#[test]
fn the_peers_alexnet_with_small_kernels_has_a_classifier_of_4096() {
    let net = AlexNetConfig::with_small_kernels(10).build().unwrap();
    assert_eq!(net.classifier.layers[0].weight.shape(), [4096, 1024]);
    assert_eq!(net.features.iter().map(|l| l.conv.weight.shape()[0]).collect::<Vec<_>>(), [64, 192, 384, 256, 256]);
}

#[test]
fn configs_that_make_no_model_say_why() {
    let said = |error: Option<bilevel_models::ModelError>| error.unwrap().to_string();
    let vit = VitConfig::base(16, 10);
    let error = VitConfig { image: [224, 230], ..vit.clone() }.build().err();
    assert_eq!(said(error), "ViT: patches of 16×16 do not tile 224×230 images");
    let error = VitConfig { heads: 7, ..vit.clone() }.build().err();
    assert_eq!(said(error), "ViT: a width of 768 cannot be divided among 7 heads");
    assert_eq!(said(VitConfig { patch: 0, ..vit }.build().err()), "ViT: patch is 0; it must be between 1 and 2^20");
    let error = WideResNetConfig::new(20, 4, 10).build().err();
    assert_eq!(said(error), "Wide-ResNet: a depth of 20 is not 6·n + 4; take 10, 16, 22, 28 or more");
    let error = Conv4Config { image: [28, 15], ..Conv4Config::default() }.build().err();
    assert_eq!(said(error), "Conv4: images must be at least 16×16, so that they can be halved four times");
    let error = AlexNetConfig { image: [7, 7], ..AlexNetConfig::for_32x32(10) }.build().err();
    assert_eq!(said(error), "AlexNet: convolution 1 leaves nothing of 1×1 images");
    let stuck = LayerConfig { stride: 0, ..LayerConfig::same(4, 3, false) };
    let error = AlexNetConfig { features: vec![stuck], ..AlexNetConfig::for_32x32(10) }.build().err();
    assert_eq!(said(error), "AlexNet: a stride is 0; it must be between 1 and 2^20");
    assert_eq!(
        said(MlpConfig::relu([3]).build().err()),
        "MLP: it needs at least the widths of the input and the \
         output"
    );
    assert_eq!(said(MlpConfig::relu([3, 0]).build().err()), "MLP: a width is 0; it must be between 1 and 2^31");
    assert!(logistic(0, 3).is_err());
    let error = SirenConfig { frequency: 0.0, ..SirenConfig::default() }.build().err();
    assert_eq!(said(error), "SIREN: frequencies must be positive, not 30 and 0");
    assert!(FourierMlpConfig { deviation: f64::NAN, ..FourierMlpConfig::default() }.build().is_err());
    assert!(FourierMlpConfig { features: 1 << 20, inputs: 2, ..FourierMlpConfig::default() }.build().is_err());
    assert!(NerfConfig { highest: f64::INFINITY, ..NerfConfig::default() }.build().is_err());
    assert!(EfficientNetConfig { stem: 0, ..EfficientNetConfig::lite0(10) }.build().is_err());
}
