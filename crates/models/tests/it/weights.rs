//! Weights under the names of other libraries.

use crate::common::numbers;
use bilevel::Error;
use bilevel::files::{TreeFileError, load_arrays, save_tree};
use bilevel_graph::{Array, DType, Tree};
use bilevel_models::{AlexNetConfig, EfficientNetConfig, VitConfig, Weights};
use std::path::PathBuf;

/// A file of its own, taken away at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("bilevel-models-{}-{name}.safetensors", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sizes of timm's ViT-B/16 that its shapes are made of.
struct Sizes {
    width: usize,
    hidden: usize,
    patch: usize,
    tokens: usize,
    classes: usize,
    depth: usize,
}

const BASE: Sizes = Sizes { width: 768, hidden: 3072, patch: 16, tokens: 197, classes: 1000, depth: 12 };

/// Names and shapes in timm's vit_base_patch16_224, in its order.
fn timm_vit(s: &Sizes) -> Vec<(String, Vec<usize>)> {
    let (d, h) = (s.width, s.hidden);
    let mut all: Vec<(String, Vec<usize>)> = vec![
        ("cls_token".into(), vec![1, 1, d]),
        ("pos_embed".into(), vec![1, s.tokens, d]),
        ("patch_embed.proj.weight".into(), vec![d, 3, s.patch, s.patch]),
        ("patch_embed.proj.bias".into(), vec![d]),
    ];
    for block in 0..s.depth {
        let of_block = [
            ("norm1.weight", vec![d]),
            ("norm1.bias", vec![d]),
            ("attn.qkv.weight", vec![3 * d, d]),
            ("attn.qkv.bias", vec![3 * d]),
            ("attn.proj.weight", vec![d, d]),
            ("attn.proj.bias", vec![d]),
            ("norm2.weight", vec![d]),
            ("norm2.bias", vec![d]),
            ("mlp.fc1.weight", vec![h, d]),
            ("mlp.fc1.bias", vec![h]),
            ("mlp.fc2.weight", vec![d, h]),
            ("mlp.fc2.bias", vec![d]),
        ];
        all.extend(of_block.map(|(name, shape)| (format!("blocks.{block}.{name}"), shape)));
    }
    all.extend([("norm.weight".into(), vec![d]), ("norm.bias".into(), vec![d])]);
    all.extend([("head.weight".into(), vec![s.classes, d]), ("head.bias".into(), vec![s.classes])]);
    all
}

/// As in a file: the numbers of a `[rows, columns]` matrix are row + column/100.
fn of_file(shape: &[usize]) -> Array {
    let columns = shape.last().copied().unwrap_or(1);
    let value = |i: usize| (i / columns) as f64 + (i % columns) as f64 / 100.0;
    let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
    Array::from_values(shape, &values, DType::F32).unwrap()
}

#[test]
fn timms_names_and_shapes_of_vit_b16_are_the_models() {
    let model = VitConfig::base(16, 1000).build().unwrap();
    let ours: Vec<(String, Vec<usize>)> = (model.names().into_iter().zip(model.leaves()))
        .map(|(name, leaf)| {
            let mut shape = leaf.shape().to_vec();
            if shape.len() == 2 {
                shape.reverse();
            }
            (name, shape)
        })
        .collect();
    let timm = timm_vit(&BASE);
    assert_eq!(timm.len(), 152);
    assert_eq!(ours, timm);
}

#[test]
fn a_file_with_timms_names_loads_with_matrices_transposed() {
    let sizes = Sizes { width: 6, hidden: 8, patch: 2, tokens: 7, classes: 5, depth: 2 };
    let config = VitConfig { image: [4, 6], width: 6, hidden: 8, heads: 2, depth: 2, ..VitConfig::base(2, 5) };
    let file = Scratch::new("timm");
    let arrays = timm_vit(&sizes).into_iter().map(|(name, shape)| (name, of_file(&shape)));
    save_tree(&arrays.collect::<bilevel::Named<Array>>(), &file.0).unwrap();
    let model = Weights::of(&config.build().unwrap()).load(&file.0).unwrap();
    let values = numbers(&model);
    let qkv = &values.blocks[1].attn.qkv;
    assert_eq!(qkv.weight.shape(), [6, 18]);
    // In the file: output 11, input 4.
    assert_eq!(qkv.weight.to_f64()[4 * 18 + 11], f64::from(11.04f32));
    assert_eq!(values.pos_embed, of_file(&[1, 7, 6]));
    assert_eq!(values.patch_embed.proj.weight, of_file(&[6, 3, 2, 2]));

    // And back to the same file.
    let back = Scratch::new("back");
    Weights::of(&model).save(&values, &back.0).unwrap();
    assert_eq!(load_arrays(&back.0).unwrap(), load_arrays(&file.0).unwrap());
}

#[test]
fn all_that_is_missing_extra_or_misshapen_is_listed_at_once() {
    let config = VitConfig { image: [4, 4], width: 4, hidden: 4, heads: 1, depth: 1, ..VitConfig::base(2, 3) };
    let sizes = Sizes { width: 4, hidden: 4, patch: 2, tokens: 5, classes: 3, depth: 1 };
    let file = Scratch::new("damaged");
    let mut arrays: Vec<(String, Array)> =
        timm_vit(&sizes).into_iter().map(|(name, shape)| (name, of_file(&shape))).collect();
    arrays.retain(|(name, _)| name != "norm.bias" && name != "head.bias");
    arrays.push(("dist_token".into(), of_file(&[1, 1, 4])));
    arrays.iter_mut().filter(|(name, _)| name == "pos_embed").for_each(|(_, array)| *array = of_file(&[1, 6, 4]));
    let kind = |(name, array): &mut (String, Array)| {
        if name == "norm.weight" {
            *array = Array::from_i32([4], vec![1; 4]).unwrap();
        }
    };
    arrays.iter_mut().for_each(kind);
    save_tree(&arrays.into_iter().collect::<bilevel::Named<Array>>(), &file.0).unwrap();
    let model = config.build().unwrap();
    match Weights::of(&model).load(&file.0).unwrap_err() {
        Error::TreeFile(TreeFileError::Unlike { missing, extra, misshapen, .. }) => {
            assert_eq!(missing, ["norm.bias", "head.bias"]);
            assert_eq!(extra, ["dist_token"]);
            let shapes = "has the shape [1, 6, 4] and must have [1, 5, 4]";
            let integers = "holds integers and must hold floats";
            assert_eq!(misshapen, [("pos_embed".into(), shapes.into()), ("norm.weight".into(), integers.into())]);
        }
        other => panic!("{other}"),
    }
    // Without the head the rest of the complaint stays; a part of a word excepts nothing.
    match Weights::of(&model).except("head").except("nor").load(&file.0).unwrap_err() {
        Error::TreeFile(TreeFileError::Unlike { missing, .. }) => assert_eq!(missing, ["norm.bias"]),
        other => panic!("{other}"),
    }
}

#[test]
fn counters_of_batches_are_passed_over_whatever_their_type() {
    let model = EfficientNetConfig { stages: vec![], ..EfficientNetConfig::lite0(3) }.build().unwrap();
    let file = Scratch::new("counters");
    let (values, bytes) = (numbers(&model), 7i64.to_le_bytes());
    let named: Vec<(String, Array)> =
        (values.names().iter().map(|leaf| model.timm_name(leaf))).zip(values.leaves().into_iter().cloned()).collect();
    let flat: Vec<(String, Vec<u8>, Vec<usize>)> = named
        .iter()
        .map(|(name, array)| {
            let shape = if name == "classifier.weight" { vec![3, 1280] } else { array.shape().to_vec() };
            (name.clone(), array.to_f64().iter().flat_map(|v| v.to_le_bytes()).collect(), shape)
        })
        .collect();
    let float = safetensors::Dtype::F64;
    let mut views: Vec<(String, safetensors::tensor::TensorView)> = (flat.iter())
        .map(|(name, data, shape)| {
            (name.clone(), safetensors::tensor::TensorView::new(float, shape.clone(), data).unwrap())
        })
        .collect();
    let counter = safetensors::tensor::TensorView::new(safetensors::Dtype::I64, vec![], &bytes).unwrap();
    views.push(("bn1.num_batches_tracked".into(), counter));
    std::fs::write(&file.0, safetensors::serialize(views, None).unwrap()).unwrap();
    let loaded = Weights::of(&model).named(|leaf| model.timm_name(leaf)).load(&file.0).unwrap();
    assert!(loaded.stem.norm.running_mean.as_ref().unwrap().is_statistic(), "roles stay");
    assert_eq!(numbers(&loaded).top.norm.running_var, values.top.norm.running_var);
}

#[test]
fn efficientnet_lite0_has_timms_names() {
    let model = EfficientNetConfig::lite0(1000).build().unwrap();
    let names: Vec<String> = model.names().iter().map(|leaf| model.timm_name(leaf)).collect();
    assert_eq!(names.len(), 247);
    let expected = [
        "conv_stem.weight",
        "bn1.running_mean",
        "blocks.0.0.conv_dw.weight",
        "blocks.0.0.bn1.bias",
        "blocks.0.0.conv_pw.weight",
        "blocks.0.0.bn2.running_var",
        "blocks.5.3.conv_pw.weight",
        "blocks.5.3.bn1.weight",
        "blocks.5.3.conv_dw.weight",
        "blocks.5.3.bn2.weight",
        "blocks.5.3.conv_pwl.weight",
        "blocks.5.3.bn3.weight",
        "conv_head.weight",
        "bn2.weight",
        "classifier.weight",
    ];
    for name in expected {
        assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name}");
    }
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
}

#[test]
fn alexnet_has_the_names_of_torchvisions_layers() {
    let model = AlexNetConfig::for_32x32(10).build().unwrap();
    let names: Vec<String> = model.names().iter().map(|leaf| model.torchvision_name(leaf)).collect();
    let weights: Vec<&String> = names.iter().filter(|name| name.ends_with("weight")).collect();
    let expected = ["features.0", "features.3", "features.6", "features.8", "features.10", "classifier"];
    assert_eq!(weights, expected.map(|layer| format!("{layer}.weight")).iter().collect::<Vec<_>>());
    let deep = AlexNetConfig { hidden: vec![64, 32], ..AlexNetConfig::for_32x32(10) }.build().unwrap();
    let last = deep.names().iter().map(|leaf| deep.torchvision_name(leaf)).next_back();
    assert_eq!(last, Some("classifier.6.bias".to_string()));
}
