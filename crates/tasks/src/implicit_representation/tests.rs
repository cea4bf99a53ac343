//! Derivatives, identities, held-out signals, and what is refused.

use super::adapt::Conditions;
use super::family::Family;
use super::*;
use bilevel::methods::{Reptile, Rmd, RmdFo};
use bilevel::parts::InnerStart;
use bilevel::{InnerLoop, Method, Session};
use bilevel_run::Registry;
use std::path::Path;

fn images(network: Kind) -> ImplicitRepresentation {
    let frequency = if network == Kind::Siren { 3.0 } else { 0.7 };
    ImplicitRepresentation {
        network,
        width: 5,
        features: 3,
        frequency,
        signals: 6,
        held_out: 3,
        tasks: 2,
        ..ImplicitRepresentation::default()
    }
}

fn lamps() -> ImplicitRepresentation {
    ImplicitRepresentation {
        width: 6,
        layers: 2,
        features: 2,
        frequency: 1.0,
        signals: 3,
        held_out: 2,
        tasks: 2,
        steps: 3,
        views: 6,
        rays: 7,
        samples: 5,
        ..ImplicitRepresentation::lamps(9)
    }
}

/// One hypergradient in 64 bits.
fn hypergradient(task: &ImplicitRepresentation, (method, inner): (impl Method, InnerLoop)) -> Vec<f64> {
    let problem = task.build(&Context::default()).unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let mut state = session.state(Key::from_seed(3)).unwrap();
    let mut estimator = method.prepare_in(&session, &inner).unwrap();
    estimator.estimate(&mut state, Key::from_seed(4)).unwrap().value.numbers().unwrap()
}

#[test]
fn derivatives_of_both_losses_of_a_smooth_network_agree_with_differences() {
    // The extra term is not among them, as it holds θ fixed: its derivative is in the test after the next.
    let problem = images(Kind::Siren).build(&Context::default()).unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    // Where training starts, but for λ, which it has left.
    let (state, other) = (session.state(Key::from_seed(3)).unwrap(), session.state(Key::from_seed(5)).unwrap());
    InnerStart::new(&session).unwrap().place(&other.lambda, &state.theta, Key::from_seed(0)).unwrap();
    let check = problem.check().executor(Cpu::with_threads(1)).at(state.snapshot().unwrap());
    let report = check.run().unwrap();
    assert!(report.passed(1e-6), "{report}");
}

#[test]
fn hypergradients_of_all_networks_agree_with_differences_of_whole_trainings() {
    for task in [images(Kind::Siren), images(Kind::Fourier), lamps()] {
        let problem = task.build(&Context::default()).unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let inner = InnerLoop::new(task.learning_rate, task.steps);
        let mut estimator = Rmd::default().prepare_in(&session, &inner).unwrap();
        let start = session.state(Key::from_seed(3)).unwrap().lambda.arrays().unwrap();
        // Biases start at 0, where a unit that sees nothing is at the kink of its rectifier.
        let off = |i: usize| 0.1 * (0.5 + i as f64).cos();
        // So small a step that no rectifier changes sides.
        let (size, key) = (1e-6, Key::from_seed(4));
        let wave = |leaf: usize, i: usize| ((7 * leaf + 3 * i) as f64).sin();
        let mut at = |factor: f64| {
            let mut state = session.state(Key::from_seed(3)).unwrap();
            let moved = start.iter().enumerate().map(|(leaf, array)| {
                let numbers =
                    array.to_f64().into_iter().enumerate().map(|(i, n)| n + off(i) + factor * size * wave(leaf, i));
                Array::from_f64(array.shape(), numbers.collect()).unwrap()
            });
            state.lambda.write(&moved.collect::<Vec<_>>()).unwrap();
            let found = estimator.estimate(&mut state, key).unwrap();
            (found.outer_loss, found.value.arrays().unwrap())
        };
        let ((above, _), (below, _), (_, h)) = (at(1.0), at(-1.0), at(0.0));
        let along = h
            .iter()
            .enumerate()
            .flat_map(|(leaf, array)| array.to_f64().into_iter().enumerate().map(move |(i, h)| h * wave(leaf, i)));
        let (found, expected) = (along.sum::<f64>(), (above - below) / (2.0 * size));
        assert!((found - expected).abs() < 1e-7 * (1.0 + expected.abs()), "{task:?}: {found} but {expected}");
        assert!(expected.abs() > 1e-4, "{task:?}: {expected}");
    }
}

#[test]
fn the_extra_term_adds_twice_what_reptile_moves_by() {
    for plain in [images(Kind::Siren), lamps()] {
        let (step, steps) = (plain.learning_rate, plain.steps);
        let extra = ImplicitRepresentation { extra: 0.7, ..plain.clone() };
        let first_order = (RmdFo::default(), InnerLoop::new(step, steps));
        let reptile = hypergradient(&plain, (Reptile::default(), InnerLoop::new(step, steps)));
        let (with, without) = (hypergradient(&extra, first_order), hypergradient(&plain, first_order));
        for ((with, without), reptile) in with.iter().zip(&without).zip(&reptile) {
            assert!((with - without - 2.0 * 0.7 * reptile).abs() < 1e-12);
        }
    }
}

#[test]
fn signals_side_by_side_have_the_mean_of_their_hypergradients() {
    // With as many tasks as signals all of them are there, in whatever order.
    let (all, method) =
        (ImplicitRepresentation { tasks: 6, ..images(Kind::Siren) }, (Rmd::default(), InnerLoop::new(0.01, 2)));
    let together = hypergradient(&all, method);
    let mut mean = vec![0.0; together.len()];
    let family = Family::read(&all, &Context::default()).unwrap();
    let size = family.learn.colours.len() / 6;
    for signal in 0..6 {
        let mut one = family.clone();
        one.task.tasks = 1;
        one.learn.count = 1;
        one.learn.colours = family.learn.colours[signal * size..(signal + 1) * size].to_vec();
        let problem = one.learning(DType::F64).unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let mut state = session.state(Key::from_seed(3)).unwrap();
        let found = method.0.prepare_in(&session, &method.1).unwrap().estimate(&mut state, Key::from_seed(4)).unwrap();
        mean.iter_mut().zip(found.value.numbers().unwrap()).for_each(|(sum, h)| *sum += h / 6.0);
    }
    for (together, mean) in together.iter().zip(&mean) {
        assert!((together - mean).abs() < 1e-12);
    }
}

/// Held-out signals from where a run of a seed starts.
fn adapted(task: &ImplicitRepresentation, counts: &[usize]) -> (Family, Vec<adapt::Adapted>) {
    let family = Family::read(task, &Context::default()).unwrap();
    let (executor, signal, key) = (Cpu::with_threads(1), StopSignal::new(), Key::from_seed(0));
    let problem = family.adapting(DType::F32).unwrap();
    let lambda = Session::new(&problem, &executor).unwrap().state(key).unwrap().lambda.arrays().unwrap();
    let precision = Precision::Full;
    let conditions = Conditions { executor: &executor, signal: &signal, key, precision, pictures: 1 };
    let found = family.adapt(&lambda, counts, &conditions).unwrap();
    (family, found)
}

#[test]
fn held_out_signals_are_represented_better_step_by_step() {
    for (task, counts) in [(images(Kind::Siren), [0, 20, 400]), (lamps(), [0, 20, 100])] {
        let (family, found) = adapted(&task, &counts);
        let mean = |n: usize| found[n].psnr.iter().map(|psnr| psnr.unwrap()).sum::<f64>() / found[n].psnr.len() as f64;
        assert!(mean(0) < mean(1) && mean(1) < mean(2), "{:?}", found.iter().map(|f| &f.psnr).collect::<Vec<_>>());
        let pixels = task.side * task.side * family.channels;
        assert!(found.iter().all(|f| f.pictures.len() == 1 && f.pictures[0].len() == pixels));
    }
}

#[test]
fn images_of_fourier_features_start_as_even_grey() {
    let task = ImplicitRepresentation { width: 64, layers: 3, features: 64, ..images(Kind::Fourier) };
    let (family, found) = adapted(&task, &[0]);
    for (psnr, truth) in found[0].psnr.iter().zip(family.truth()) {
        let error = truth.iter().map(|value| (f64::from(*value) - 0.5).powi(2)).sum::<f64>() / truth.len() as f64;
        let (found, grey) = (psnr.unwrap(), family::psnr(error));
        assert!((found - grey).abs() < 0.1, "{found} dB, but grey has {grey}");
    }
}

#[test]
fn the_psnr_of_an_image_is_that_of_its_inner_loss() {
    let (family, found) = adapted(&ImplicitRepresentation { held_out: 1, ..images(Kind::Fourier) }, &[0]);
    let problem = family.adapting(DType::F32).unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let state = session.state(Key::from_seed(0)).unwrap();
    InnerStart::new(&session).unwrap().place(&state.lambda, &state.theta, Key::from_seed(0)).unwrap();
    let inner = session.evaluator().unwrap().at(&state, Key::from_seed(0)).unwrap()[0];
    assert!((found[0].psnr[0].unwrap() - family::psnr(inner)).abs() < 1e-4);
}

#[test]
fn a_network_can_be_trained_to_the_outputs_of_another_and_its_weights_put_in_another_order() {
    let family = Family::read(&images(Kind::Siren), &Context::default()).unwrap();
    let executor = Cpu::with_threads(1);
    let session = Session::new(&family.adapting(DType::F32).unwrap(), &executor).unwrap();
    let [one, other] = [0, 1].map(|seed| session.state(Key::from_seed(seed)).unwrap().lambda.arrays().unwrap());
    let by = || (Cpu::with_threads(1), StopSignal::new());
    let apart = |steps| {
        let (executor, signal) = by();
        family.matched([&one, &other], steps, (executor, &signal), 0).unwrap().1
    };
    assert!(apart(600) < 0.1 * apart(1));
    let shuffled = matching::shuffled_leaves(&one, Key::from_seed(0)).unwrap();
    let sorted = |arrays: &[Array]| -> Vec<Vec<f64>> {
        let one = |array: &Array| {
            let mut numbers = array.to_f64();
            numbers.sort_by(f64::total_cmp);
            numbers
        };
        arrays.iter().map(one).collect()
    };
    assert_ne!(one, shuffled);
    assert_eq!(sorted(&one), sorted(&shuffled), "every leaf keeps its numbers");
}

#[test]
fn a_run_shows_held_out_signals_learned_from_what_it_found() {
    for task in [images(Kind::Siren), lamps()] {
        let registry = crate::register(Registry::new());
        let mut config = registry.config(&task).unwrap();
        config.outer.iterations = 1;
        let problem = config.problem(&registry).unwrap();
        let driver = config.driver(&registry, &problem, Box::new(Cpu::with_threads(1))).unwrap();
        let lambda = LambdaLeaf::all(&driver.run().unwrap().lambda);
        let shown = task.show(&lambda, &config.context());
        let [Section::Photographs(shown)] = &shown[..] else { panic!("{shown:?}") };
        assert!(!shown.rows.is_empty() && shown.rows.iter().all(|(_, images)| images.len() == shown.columns.len()));
        let wrong = task.show(&lambda[1..], &config.context());
        assert!(matches!(&wrong[..], [Section::Text { text, .. }] if text.contains("leaves")), "{wrong:?}");
    }
}

fn refused(task: &ImplicitRepresentation, data: Option<&Path>) -> String {
    let context = Context { data: data.map(Path::to_path_buf), ..Context::default() };
    task.build(&context).map(|_| "it is taken".to_string()).unwrap_or_else(|error| error.to_string())
}

/// A folder of its own for a test, empty.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("bilevel-implicit-{name}-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn settings_that_do_not_go_together_are_refused_in_one_sentence() {
    let wrong = ImplicitRepresentation { network: Kind::Nerf, ..images(Kind::Siren) };
    assert_eq!(refused(&wrong, None), "task.network is nerf, but task.signal is images, which take siren or fourier");
    let many = ImplicitRepresentation { signals: 1800, ..images(Kind::Siren) };
    assert_eq!(
        refused(&many, None),
        "there are 1797 signals, but task.signals and task.held_out need 1800 + 3; reduce one of them"
    );
    let folder = ImplicitRepresentation { source: "pets".into(), ..images(Kind::Siren) };
    assert!(refused(&folder, None).contains("--data DIR"));
    let large = ImplicitRepresentation { side: 16, ..images(Kind::Siren) };
    assert!(refused(&large, None).contains("8, as the digits have"), "{}", refused(&large, None));
}

#[test]
fn folders_without_signals_and_broken_files_are_refused_in_one_sentence() {
    let data = folder("broken");
    let pictures = ImplicitRepresentation { source: "pictures".into(), ..images(Kind::Siren) };
    let missing = refused(&pictures, Some(&data));
    assert!(missing.contains("pictures"), "{missing}");
    std::fs::create_dir(data.join("pictures")).unwrap();
    let empty = refused(&pictures, Some(&data));
    assert!(empty.contains("has no PNG or JPEG files in it"), "{empty}");
    std::fs::write(data.join("pictures/one.png"), b"no picture").unwrap();
    let broken = refused(&pictures, Some(&data));
    assert!(broken.contains("one.png"), "{broken}");

    let scenes = ImplicitRepresentation { source: "scenes".into(), ..lamps() };
    assert!(refused(&scenes, Some(&data)).contains("cannot read the folder"));
    std::fs::create_dir_all(data.join("scenes")).unwrap();
    let empty = refused(&scenes, Some(&data));
    assert!(empty.contains("has no views in it"), "{empty}");
    std::fs::create_dir(data.join("scenes/lamp")).unwrap();
    let without = refused(&scenes, Some(&data));
    assert!(without.contains("has no transforms.json in it"), "{without}");
    std::fs::write(data.join("scenes/lamp/transforms.json"), b"{}").unwrap();
    let broken = refused(&scenes, Some(&data));
    assert!(broken.contains("transforms.json"), "{broken}");
    std::fs::remove_dir_all(data).unwrap();
}

/// A scene of this many views with one colour each, as NeRF's own are stored.
fn write_scene(folder: &Path, description: &str, views: usize) {
    std::fs::create_dir_all(folder).unwrap();
    let mut frames = vec![];
    for view in 0..views {
        let levels = [[51 * view as u8, 102, 255]; 16].concat();
        let png = Photograph { caption: String::new(), columns: 4, colours: true, levels }.png().unwrap();
        std::fs::write(folder.join(format!("r_{view}.png")), png).unwrap();
        let pose = format!("[[1,0,0,{view}],[0,1,0,0],[0,0,1,4],[0,0,0,1]]");
        frames.push(format!("{{\"file_path\":\"./r_{view}\",\"transform_matrix\":{pose}}}"));
    }
    let text = format!("{{\"camera_angle_x\":0.7,\"frames\":[{}]}}", frames.join(","));
    std::fs::write(folder.join(description), text).unwrap();
}

#[test]
fn scenes_are_read_from_folders_of_posed_views_in_the_size_asked_for() {
    let data = folder("scenes");
    let of = |source: &str, views: usize| ImplicitRepresentation {
        source: source.into(),
        side: 2,
        signals: 1,
        held_out: 1,
        tasks: 1,
        views,
        ..lamps()
    };
    let context = Context { data: Some(data.clone()), ..Context::default() };
    write_scene(&data.join("two/a"), "transforms.json", 3);
    write_scene(&data.join("two/b"), "transforms_train.json", 3);
    let family = Family::read(&of("two", 3), &context).unwrap();
    for part in [&family.learn, &family.held_out] {
        assert_eq!((part.count, part.cameras.len(), part.colours.len()), (1, 3, 3 * 4 * 3));
        assert_eq!(part.colours[12..15], [0.2, 0.4, 1.0]);
        assert_eq!(part.cameras[1].origin, [1.0, 0.0, 4.0]);
    }
    assert!(
        refused(&of("two", 4), Some(&data)).contains("a scene with 3 views instead of 4; set task.views to at most 3")
    );

    // One scene alone is taken for two, by turns.
    write_scene(&data.join("one"), "transforms.json", 4);
    let family = Family::read(&of("one", 2), &context).unwrap();
    let places = |cameras: &[views::Camera]| cameras.iter().map(|camera| camera.origin[0]).collect::<Vec<_>>();
    assert_eq!((places(&family.held_out.cameras), places(&family.learn.cameras)), (vec![0.0, 2.0], vec![1.0, 3.0]));
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_camera_looks_along_the_rays_of_the_reader() {
    let data = folder("rays");
    write_scene(&data, "transforms.json", 1);
    let read = bilevel_data::readers::views::read(&data, "transforms.json").unwrap();
    let task = ImplicitRepresentation { side: 4, signals: 1, held_out: 1, tasks: 1, ..lamps() };
    let family = Family::read(&task, &Context::default()).unwrap();
    let camera = views::Camera {
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        origin: [0.0, 0.0, 4.0],
        slope: 0.35f64.tan(),
    };
    for (place, (origin, direction)) in family.coordinates().into_iter().zip(read.rays(0)) {
        assert_eq!(origin, camera.origin);
        let own = camera.direction(place);
        assert!(own.iter().zip(direction).all(|(a, b)| (a - b).abs() < 1e-12), "{own:?} {direction:?}");
    }
    std::fs::remove_dir_all(data).unwrap();
}
