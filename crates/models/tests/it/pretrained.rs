//! The published weights of EfficientNet-Lite0. The environment variable `BILEVEL_DATA` names the folder with
//! `efficientnet-lite0/efficientnet-lite0.safetensors` and `oxford-pets/pets37_128px.zip`.
//!
//!     BILEVEL_DATA=DIR cargo test --release -p bilevel-models --test it pretrained -- --ignored --nocapture

use bilevel::{Cpu, Variable};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Runnable, Tree};
use bilevel_models::{EfficientNet, EfficientNetConfig, Statistics, Weights, inputs};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

const SIDE: usize = 224;

/// A file among the data.
fn data(path: &str) -> PathBuf {
    let folder = std::env::var_os("BILEVEL_DATA").expect("BILEVEL_DATA names the folder of the published files");
    let found = PathBuf::from(folder).join(path);
    assert!(found.is_file(), "there is no {}", found.display());
    found
}

fn pretrained() -> EfficientNet<Variable> {
    let path = data("efficientnet-lite0/efficientnet-lite0.safetensors");
    let model = EfficientNetConfig::lite0(1000).build().unwrap();
    Weights::of(&model).named(|leaf| model.pytorch_name(leaf)).load(path).unwrap()
}

/// Features of batches of images, and their logits.
struct Features {
    run: Box<dyn Runnable>,
    images: usize,
}

impl Features {
    fn new(model: &EfficientNet<Variable>, batch: usize) -> Self {
        let g = Graph::new();
        let leaves = inputs(model, &g, DType::F32);
        let images = g.input("images", [batch, 3, SIDE, SIDE], DType::F32);
        let features = leaves.features(images, Statistics::Running);
        let logits = leaves.head.forward(features);
        let program = Program::builder(&g).output("features", features).output("logits", logits).build().unwrap();
        let mut run = Cpu::new().compile(&program).unwrap();
        for (name, leaf) in model.names().iter().zip(model.leaves()) {
            let bilevel::data::Start::Fixed(array) = leaf.start() else { panic!("{name} was not loaded") };
            run.set(program.input(name).unwrap(), array).unwrap();
        }
        Features { run, images: program.input("images").unwrap() }
    }

    fn of(&mut self, images: Vec<f32>) -> [Vec<f64>; 2] {
        let batch = images.len() / (3 * SIDE * SIDE);
        let images = Array::from_f32([batch, 3, SIDE, SIDE], images).unwrap();
        self.run.set(self.images, &images).unwrap();
        self.run.run(0..1).unwrap();
        [0, 1].map(|output| self.run.output(output).unwrap().to_f64())
    }
}

/// A JPEG as 224×224, bilinear between the centres of pixels, as the network wants it: (x − 127)/128, `[3, h, w]`.
fn prepared(jpeg: &[u8]) -> Vec<f32> {
    let picture = image::load_from_memory(jpeg).unwrap().to_rgb8();
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let place = |i: usize, length: usize| {
        let at = ((i as f32 + 0.5) * length as f32 / SIDE as f32 - 0.5).clamp(0.0, length as f32 - 1.0);
        let below = at.floor() as usize;
        (below, (below + 1).min(length - 1), at - at.floor())
    };
    let mut out = Vec::with_capacity(3 * SIDE * SIDE);
    for channel in 0..3 {
        for y in 0..SIDE {
            let (top, bottom, down) = place(y, height);
            for x in 0..SIDE {
                let (left, right, across) = place(x, width);
                let at = |y: usize, x: usize| f32::from(picture.get_pixel(x as u32, y as u32).0[channel]);
                let along = |y: usize| at(y, left) * (1.0 - across) + at(y, right) * across;
                let value = along(top) * (1.0 - down) + along(bottom) * down;
                out.push((value - 127.0) / 128.0);
            }
        }
    }
    out
}

#[test]
#[ignore = "needs the files of BILEVEL_DATA"]
fn the_published_weights_of_efficientnet_lite0_load_and_give_finite_features() {
    let model = pretrained();
    let mut features = Features::new(&model, 1);
    let grey = vec![0.0; 3 * SIDE * SIDE];
    let [found, logits] = features.of(grey);
    assert!(found.iter().chain(&logits).all(|v| v.is_finite()));
    assert!(found.iter().all(|v| (0.0..=6.0).contains(v)), "means of what relu6 leaves");
    assert_eq!((found.len(), logits.len()), (1280, 1000));
}

#[test]
#[ignore = "needs the files of BILEVEL_DATA, and minutes for 1480 images"]
fn frozen_features_tell_breeds_of_pets_apart_by_the_nearest_centroid() {
    let (model, pets) = (pretrained(), data("oxford-pets/pets37_128px.zip"));
    let mut archive = zip::ZipArchive::new(std::fs::File::open(pets).unwrap()).unwrap();
    let mut images: BTreeMap<(String, String), Vec<Vec<f32>>> = BTreeMap::new();
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).unwrap();
        let name = entry.name().unwrap().into_owned();
        let [split, class, file] = name.split('/').collect::<Vec<_>>()[..] else { continue };
        if file.ends_with(".jpg") {
            let mut jpeg = vec![];
            entry.read_to_end(&mut jpeg).unwrap();
            images.entry((split.into(), class.into())).or_default().push(prepared(&jpeg));
        }
    }
    let mut features = Features::new(&model, 20);
    let mut found: BTreeMap<(String, String), Vec<Vec<f64>>> = BTreeMap::new();
    for (key, images) in images {
        assert_eq!(images.len(), 20, "{key:?}");
        let [of_class, _] = features.of(images.concat());
        found.insert(key, of_class.chunks(1280).map(<[f64]>::to_vec).collect());
    }
    for normalised in [false, true] {
        let scaled = |row: &Vec<f64>| {
            let norm = if normalised { row.iter().map(|v| v * v).sum::<f64>().sqrt() } else { 1.0 };
            row.iter().map(|v| v / norm).collect::<Vec<f64>>()
        };
        let of_split = |split: &str| -> BTreeMap<String, Vec<Vec<f64>>> {
            let rows = found.iter().filter(|((s, _), _)| s.starts_with(split));
            rows.map(|((_, class), rows)| (class.clone(), rows.iter().map(scaled).collect())).collect()
        };
        let centroids: Vec<(String, Vec<f64>)> = (of_split("train").into_iter())
            .map(|(class, rows)| {
                let mean = |i: usize| rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64;
                (class, (0..1280).map(mean).collect())
            })
            .collect();
        assert_eq!(centroids.len(), 37);
        let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let nearest = |row: &Vec<f64>| {
            let by = |a: &&(String, Vec<f64>), b: &&(String, Vec<f64>)| apart(&a.1, row).total_cmp(&apart(&b.1, row));
            centroids.iter().min_by(by).map(|(class, _)| class.clone())
        };
        let (mut right, mut all) = (0, 0);
        for (class, rows) in of_split("test") {
            right += rows.iter().filter(|row| nearest(row).as_ref() == Some(&class)).count();
            all += rows.len();
        }
        let accuracy = 100.0 * f64::from(right as u32) / f64::from(all as u32);
        println!("nearest centroid of {} features: {accuracy:.2} %", if normalised { "normalised" } else { "plain" });
        assert!(accuracy >= 78.0, "{accuracy:.2} %");
    }
}
