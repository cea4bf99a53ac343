//! CIFAR-10 as a pretrained network sees it: random directions of the features of EfficientNet-Lite0, with the labels that people gave.

use bilevel::graph::random::fill_normal_f64;
use bilevel::graph::{Executor, Graph, Program};
use bilevel::{Array, Cpu, DType, Error, Key, Result, Tree, Variable};
use bilevel_data::LabelledImages;
use bilevel_data::datasets::cifar10::{self, HumanLabels};
use bilevel_models::{EfficientNet, EfficientNetConfig, Statistics, Weights};
use bilevel_run::Kept;
use std::path::Path;
use std::sync::Arc;

/// Images of the training file that are used, the first ones.
const IMAGES: usize = 2000;
/// Images that go through the network at a time.
const AT_ONCE: usize = 50;
/// How much larger images are for the network, which was made for larger ones.
const ENLARGED: usize = 2;
/// Random directions of the features.
const WIDTH: usize = 64;
const WEIGHTS: &str = "efficientnet-lite0/efficientnet-lite0.safetensors";

/// Features of images, row by row, and labels.
pub(super) struct Seen {
    pub width: usize,
    pub features: Vec<f64>,
    pub labels: HumanLabels,
}

/// The first images of CIFAR-10 from the data folder. A study uses them many times in a row.
pub(super) fn cifar(data: &Path) -> Result<Arc<Seen>> {
    static LAST: Kept<Seen> = Kept::new(1);
    LAST.get(data.display().to_string(), || seen(data))
}

fn seen(data: &Path) -> Result<Seen> {
    let (images, labels) = (cifar10::load_first(data)?, cifar10::human_labels(data)?);
    let count = IMAGES.min(images.count());
    let features = projected(&images.take(&(0..count).collect::<Vec<_>>())?, &network(data)?)?;
    let first = |all: &[i32]| all[..count].to_vec();
    let random = [&labels.random[0], &labels.random[1], &labels.random[2]].map(|all| first(all));
    let labels = HumanLabels {
        clean: first(&labels.clean),
        aggregate: first(&labels.aggregate),
        random,
        worst: first(&labels.worst),
    };
    if labels.clean != images.labels[..count] {
        return Err(Error::other("the labels of CIFAR-10N are not those of the images; fetch both files again"));
    }
    Ok(Seen { width: WIDTH, features, labels })
}

fn network(data: &Path) -> Result<EfficientNet<Variable>> {
    let path = data.join(WEIGHTS);
    if !path.exists() {
        return Err(Error::MissingData {
            reason: format!("there are no weights of EfficientNet-Lite0 at {}", path.display()),
            remedy: "put the safetensors file there, or choose another task.source".into(),
        });
    }
    let net = EfficientNetConfig::lite0(1).build()?;
    Weights::of(&net).named(|leaf| net.pytorch_name(leaf)).except("head").load(path)
}

/// Features in [`WIDTH`] random directions.
fn projected(images: &LabelledImages, net: &EfficientNet<Variable>) -> Result<Vec<f64>> {
    let graph = Graph::new();
    graph.set_float_type(DType::F32)?;
    let batch = graph.input("x", [AT_ONCE, 3, 32, 32], DType::F32);
    let leaf = |name: &str, variable: &Variable| graph.input(name, variable.shape(), DType::F32);
    let weights = net.map_named(|name, variable| leaf(name, variable));
    // Every pixel becomes a square; pixels are (x − 127)/128 for x up to 255.
    let wide = [AT_ONCE, 3, 32, ENLARGED, 32, ENLARGED];
    let large = batch.broadcast([0, 1, 2, 4], wide).reshape([AT_ONCE, 3, 32 * ENLARGED, 32 * ENLARGED]);
    let features = weights.features((large * 255.0 - 127.0) * (1.0 / 128.0), Statistics::Running);
    let program = Program::builder(&graph).output("features", features).build()?;
    let mut run = Cpu::new().compile(&program)?;
    for (name, variable) in net.names().into_iter().zip(net.leaves()) {
        if let (Ok(place), bilevel::data::Start::Fixed(array)) = (program.input(&name), variable.start()) {
            run.set(place, &Array::from_values(variable.shape(), &array.to_f64(), DType::F32)?)?;
        }
    }
    let pixels = images.images.to_array(DType::F32)?.to_f64();
    let (size, top) = (3 * 32 * 32, features.dim(1));
    let mut directions = vec![0.0; top * WIDTH];
    fill_normal_f64(Key::from_seed(7).words(), 0, 0, 0, &mut directions);
    let mut found = Vec::with_capacity(images.count() * WIDTH);
    for rows in pixels.chunks(AT_ONCE * size) {
        let mut padded = rows.to_vec();
        padded.resize(AT_ONCE * size, 0.0);
        run.set(program.input("x")?, &Array::from_values([AT_ONCE, 3, 32, 32], &padded, DType::F32)?)?;
        run.run(0..1)?;
        let features = run.output(program.output("features")?)?.to_f64();
        for row in features.chunks_exact(top).take(rows.len() / size) {
            let along =
                |k: usize| row.iter().zip(directions[k..].iter().step_by(WIDTH)).map(|(a, b)| a * b).sum::<f64>();
            found.extend((0..WIDTH).map(along));
        }
    }
    Ok(found)
}
