//! The tasks that read pictures: what they refuse, and that they read the layouts they promise to.

use bilevel::methods::RmdFo;
use bilevel::{Array, Cpu, DType, Error, InnerLoop, Key, Method, Session, Tree};
use bilevel_models::{AlexNetConfig, EfficientNetConfig, Weights};
use bilevel_run::{Context, Task};
use bilevel_tasks::l1_regularisation::{Granularity, Network};
use bilevel_tasks::learned_loss::{SmallNetwork, SmallPictures};
use bilevel_tasks::{L1Regularisation, LearnedLoss, PictureSet};
use std::path::Path;

/// A picture of one colour.
fn picture(folder: &Path, name: &str, shade: u8) {
    std::fs::create_dir_all(folder).unwrap();
    image::RgbImage::from_pixel(6, 6, image::Rgb([shade, shade / 2, 255 - shade])).save(folder.join(name)).unwrap();
}

/// So many pictures of each of these classes, in `FOLDER/PART/CLASS/`.
fn pictures(data: &Path, folder: &str, part: &str, classes: &[&str], count: usize) {
    for (class, name) in classes.iter().enumerate() {
        for number in 0..count {
            let shade = (40 * class + 7 * number) as u8;
            picture(&data.join(folder).join(part).join(name), &format!("{number}.png"), shade);
        }
    }
}

fn context(data: &Path) -> Context {
    Context { seed: 1, data: Some(data.into()), dtype: DType::F32, ..Context::default() }
}

/// A perceptron on flowers of 6 × 6 pixels.
fn flowers() -> L1Regularisation {
    let (pictures, network) = (PictureSet::Flowers102, Network::Mlp);
    let task =
        L1Regularisation { pictures, network, train: 2, validation: 1, second: 1, side: 6, ..Default::default() };
    L1Regularisation { hidden: 3, warm_up: 20, ..task }
}

#[track_caller]
fn said(task: &impl Task, context: &Context) -> String {
    match task.build(context) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{task:?} is taken"),
    }
}

#[test]
fn a_missing_dataset_says_how_to_get_it() {
    let empty = tempfile::tempdir().unwrap();
    let pets = L1Regularisation { pictures: PictureSet::Pets, ..flowers() };
    let without = Context::default();
    assert!(said(&pets, &without).contains("--data DIR"), "{}", said(&pets, &without));
    let text = said(&pets, &context(empty.path()));
    assert!(
        text.contains("there is no folder 'oxford-pets'") && text.contains("bilevel data fetch oxford-pets"),
        "{text}"
    );
    let text = said(&flowers(), &context(empty.path()));
    assert!(text.contains("flowers102/train/CLASS/NAME.jpg"), "{text}");
    let cifar = LearnedLoss { pictures: SmallPictures::Cifar10, ..LearnedLoss::default() };
    let text = said(&cifar, &context(empty.path()));
    assert!(text.contains("there is no folder 'cifar10'") && text.contains("bilevel data fetch cifar10"), "{text}");
}

#[test]
fn a_class_with_too_few_pictures_and_one_that_is_not_tested_are_named() {
    let data = tempfile::tempdir().unwrap();
    pictures(data.path(), "flowers102", "train", &["rose", "tulip"], 4);
    pictures(data.path(), "flowers102", "test", &["rose", "tulip"], 2);
    assert_eq!(flowers().build(&context(data.path())).unwrap().sizes().0, 108 * 3 + 3 + 3 * 2 + 2);
    let text = said(&L1Regularisation { train: 9, ..flowers() }, &context(data.path()));
    assert!(text.contains("the class 'rose' has 4 pictures, which is too few for 9 + 1 + 1"), "{text}");

    let other = tempfile::tempdir().unwrap();
    pictures(other.path(), "flowers102", "train", &["rose", "tulip"], 4);
    pictures(other.path(), "flowers102", "test", &["rose"], 2);
    let text = said(&flowers(), &context(other.path()));
    assert!(text.contains("have 2 classes and the test pictures 1; 'tulip' is not in both"), "{text}");
}

#[test]
fn a_picture_that_cannot_be_decoded_is_named() {
    let data = tempfile::tempdir().unwrap();
    pictures(data.path(), "dtd10", "", &["banded", "dotted"], 6);
    let dtd = L1Regularisation { pictures: PictureSet::Dtd10, ..flowers() };
    // Without folders for a test, what is left over is for testing.
    dtd.build(&context(data.path())).unwrap();
    let broken = tempfile::tempdir().unwrap();
    pictures(broken.path(), "dtd10", "", &["banded", "dotted"], 6);
    std::fs::write(broken.path().join("dtd10/dotted/broken.png"), b"\x89PNG\r\n\x1a\nnothing").unwrap();
    let text = said(&dtd, &context(broken.path()));
    assert!(text.contains("broken.png"), "{text}");
}

#[test]
fn the_published_split_of_pets_is_read() {
    let data = tempfile::tempdir().unwrap();
    let pets = data.path().join("oxford-pets");
    let lists = pets.join("unpacked-annotations/annotations");
    std::fs::create_dir_all(&lists).unwrap();
    for (part, from) in [("trainval", 0), ("test", 5)] {
        let mut list = String::new();
        for (class, breed) in ["Abyssinian", "american_bulldog"].iter().enumerate() {
            for number in from..from + 5 {
                image::RgbImage::from_pixel(6, 6, image::Rgb([(20 * number) as u8, 9, class as u8]))
                    .save({
                        std::fs::create_dir_all(pets.join("unpacked-images/images")).unwrap();
                        pets.join(format!("unpacked-images/images/{breed}_{number}.jpg"))
                    })
                    .unwrap();
                list += &format!("{breed}_{number} {} 1 1\n", class + 1);
            }
        }
        std::fs::write(lists.join(format!("{part}.txt")), list).unwrap();
    }
    let task = L1Regularisation { pictures: PictureSet::Pets, ..flowers() };
    task.build(&context(data.path())).unwrap();
    std::fs::remove_file(lists.join("test.txt")).unwrap();
    // Another folder, as the pictures of this one are known.
    let moved = tempfile::tempdir().unwrap();
    std::fs::rename(&pets, moved.path().join("oxford-pets")).unwrap();
    let text = said(&task, &context(moved.path()));
    assert!(text.contains("test.txt"), "{text}");
}

#[test]
fn weights_of_another_model_and_weights_that_are_not_there_are_refused() {
    let data = tempfile::tempdir().unwrap();
    pictures(data.path(), "flowers102", "train", &["rose", "tulip"], 4);
    pictures(data.path(), "flowers102", "test", &["rose", "tulip"], 2);
    let task = L1Regularisation { network: Network::EfficientNetLite0, warm_up: 0, side: 32, ..flowers() };
    let text = said(&task, &context(data.path()));
    assert!(text.contains("there are no weights of EfficientNet-Lite0"), "{text}");

    let other = AlexNetConfig::for_32x32(2).build().unwrap();
    let path = data.path().join("alexnet.safetensors");
    Weights::of(&other).save(&other.map(|leaf| Array::zeros(leaf.shape(), DType::F32)), &path).unwrap();
    let text =
        said(&L1Regularisation { weights: path.to_string_lossy().into(), ..task.clone() }, &context(data.path()));
    assert!(text.contains("_conv_stem.weight") && text.contains("features.0.conv.weight"), "{text}");

    let right = EfficientNetConfig::lite0(5).build().unwrap();
    let path = data.path().join("efficientnet-lite0/efficientnet-lite0.safetensors");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let values = right.map(|leaf| Array::full(leaf.shape(), 0.01, DType::F32));
    Weights::of(&right).named(|leaf| right.pytorch_name(leaf)).except("head").save(&values, &path).unwrap();
    let problem = task.build(&context(data.path())).unwrap();
    assert!(problem.lambda_names().contains(&"stem.conv.weight"));
}

#[test]
fn digits_are_for_the_perceptron_and_settings_out_of_range_are_refused() {
    let without = Context::default();
    let task = L1Regularisation { network: Network::VitB16, ..L1Regularisation::default() };
    assert!(said(&task, &without).contains("which only the mlp takes"));
    let task = LearnedLoss { network: SmallNetwork::Alexnet, ..LearnedLoss::default() };
    assert!(said(&task, &without).contains("which only the mlp takes"));
    let task = L1Regularisation { start: -1.0, ..L1Regularisation::default() };
    assert!(matches!(task.build(&without), Err(Error::Setting { name: "start", .. })));
    let task = LearnedLoss { validation: 1.0, ..LearnedLoss::default() };
    assert!(matches!(task.build(&without), Err(Error::Setting { name: "validation", .. })));
    let task = LearnedLoss { train: 1, ..LearnedLoss::default() };
    assert!(said(&task, &without).contains("increase task.train"));
}

#[test]
fn first_order_reverse_mode_cannot_move_a_penalty_or_a_loss_that_the_outer_loss_does_not_name() {
    for problem in [
        L1Regularisation::default().build(&Context::default()).unwrap(),
        LearnedLoss::default().build(&Context::default()).unwrap(),
    ] {
        let refused = RmdFo::default().applies(&problem).unwrap_err();
        assert!(matches!(refused, Error::NotApplicable { .. }), "{refused}");
    }
}

#[test]
fn fewer_penalties_are_shared_by_more_weights() {
    let count = |granularity| {
        let task = L1Regularisation { granularity, warm_up: 0, ..L1Regularisation::default() };
        task.build(&Context::default()).unwrap().sizes().0
    };
    let found = [Granularity::Weight, Granularity::Filter, Granularity::Layer, Granularity::One].map(count);
    assert_eq!(found, [64 * 32 + 32 + 32 * 10 + 10, 32 + 32 + 10 + 10, 4, 1]);
}

/// The hypergradient of a method on the digits, in 64 bits.
fn hypergradient(task: &LearnedLoss, method: impl Method, inner: InnerLoop) -> Vec<f64> {
    let problem = task.build(&Context { seed: 2, ..Context::default() }).unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut state = session.state(Key::from_seed(3)).unwrap();
    let mut estimator = method.prepare_in(&session, &inner).unwrap();
    estimator.estimate(&mut state, Key::from_seed(4)).unwrap().value.numbers().unwrap()
}

#[test]
fn the_second_coefficient_is_dead_under_softmax_and_forward_mode_is_reverse_mode() {
    let task = LearnedLoss { hidden: 4, batch: 8, ..LearnedLoss::default() };
    let reverse = hypergradient(&task, bilevel::methods::Rmd::default(), InnerLoop::new(0.02, 4));
    let forward = hypergradient(&task, bilevel::methods::Fmd::default(), InnerLoop::new(0.02, 4));
    let largest = reverse.iter().fold(0f64, |most, number| most.max(number.abs()));
    assert!(largest > 0.0 && reverse[2].abs() < 1e-12 * largest, "{reverse:?}");
    assert!(reverse.iter().zip(&forward).all(|(a, b)| (a - b).abs() < 1e-12 * largest), "{reverse:?} {forward:?}");
}

#[test]
fn without_noise_the_temperature_of_hpo_sgld_cannot_matter() {
    let task = LearnedLoss { hidden: 4, batch: 8, ..LearnedLoss::default() };
    let at = |temperature| {
        let noisy = InnerLoop::new(0.02, 4).at_temperature(temperature);
        let inner = InnerLoop { burn_in: 2, noise_scale: 1e-6, ..noisy };
        hypergradient(&task, bilevel::methods::HpoSgld::default(), inner)
    };
    let (hot, cold) = (at(0.1), at(0.001));
    let largest = cold.iter().fold(0f64, |most, number| most.max(number.abs()));
    assert!(hot.iter().zip(&cold).all(|(a, b)| (a - b).abs() < 1e-3 * largest), "{hot:?} {cold:?}");
}
