use super::learner::{Adapted, Batch, Learned};
use super::*;
use bilevel::graph::{Graph, Program, Reference};
use bilevel::methods::{Imaml, Rmd, RmdFo};
use bilevel::programs::Trace;
use bilevel::{Cpu, InnerLoop, Method, Tensor, Tree};
use bilevel_data::{Images, LabelledImages};
use bilevel_run::{Recipe, Registry};

/// Small enough for differences.
fn small(learner: Learner) -> FewShot {
    FewShot {
        classes: 6,
        ways: 3,
        shots: 2,
        queries: 1,
        width: 2,
        particles: 3,
        prior: 1e-3,
        test_tasks: 0,
        learner,
        ..FewShot::default()
    }
}

/// Numbers that look random, of the size of 1.
fn wave(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * i + 3 * i) as f64 * 0.7 + 1.0).sin()).collect()
}

/// The numbers of some leaves, moved by so much along a direction.
fn moved(leaves: &[Array], by: f64) -> Vec<Array> {
    let one = |leaf: &Array| {
        let along = wave(leaf.len());
        let values = leaf.to_f64().iter().zip(along).map(|(value, along)| value + by * along).collect();
        Array::from_f64(leaf.shape(), values).unwrap()
    };
    leaves.iter().map(one).collect()
}

fn along(slopes: &[Vec<f64>]) -> f64 {
    slopes.iter().map(|leaf| leaf.iter().zip(wave(leaf.len())).map(|(slope, along)| slope * along).sum::<f64>()).sum()
}

/// Rectifiers and pools have kinks, so the step is small enough to cross none.
const APART: f64 = 1e-7;

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 2e-5 * (1.0 + expected.abs()), "{what}: {found} {expected}");
}

#[test]
fn hypergradients_and_inner_gradients_of_every_learner_agree_with_differences_in_double_precision() {
    for learner in [Learner::Network, Learner::Distribution, Learner::Prototypes, Learner::Particles] {
        let problem = small(learner).build(&Context::default()).unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let (key, (step, steps)) = (Key::from_seed(3), small(learner).loop_of());
        let what = format!("{learner:?}");
        let trained = session.state(key).unwrap();
        let inner = InnerLoop::new(step, steps);
        Trainer::new(&session, inner).unwrap().train(&trained, key).unwrap();

        // Particles move along no gradient: through their training there is nothing to hold against.
        if learner != Learner::Particles {
            let mut estimator = Rmd::default().prepare_in(&session, &inner).unwrap();
            let mut at = |by: f64| {
                let mut state = session.state(key).unwrap();
                let lambda = state.lambda.arrays().unwrap();
                state.lambda.write(&moved(&lambda, by)).unwrap();
                let found = estimator.estimate(&mut state, key).unwrap();
                let slopes: Vec<Vec<f64>> = found.value.arrays().unwrap().iter().map(Array::to_f64).collect();
                (found.outer_loss, along(&slopes))
            };
            let difference = (at(APART).0 - at(-APART).0) / (2.0 * APART);
            assert_near(at(0.0).1, difference, &what);

            let graph = Graph::new();
            let trace = Trace::new(&graph, &problem).unwrap();
            let loss = trace.inner(&trace.theta, graph.step()).unwrap();
            let mut builder = Program::builder(&graph).output("loss", loss);
            for (i, slope) in bilevel::graph::gradient_or_zeros(loss, &trace.theta).unwrap().into_iter().enumerate() {
                builder = builder.output(format!("slope.{i}"), slope);
            }
            let mut routine = bilevel::programs::Routine::new(&builder.build().unwrap(), &session).unwrap();
            let slopes = routine.outputs("slope").unwrap();
            let theta = trained.theta.arrays().unwrap();
            let mut at = |by: f64| {
                trained.theta.write(&moved(&theta, by)).unwrap();
                routine.bind_point(&trained.lambda, &trained.theta, key).unwrap();
                routine.run(0..1).unwrap();
                let slopes: Vec<Vec<f64>> = slopes.arrays().unwrap().iter().map(Array::to_f64).collect();
                (routine.number("loss").unwrap(), along(&slopes))
            };
            let difference = (at(APART).0 - at(-APART).0) / (2.0 * APART);
            assert_near(at(0.0).1, difference, &format!("{what}, inner loss"));
            trained.theta.write(&theta).unwrap();
        }

        // f as a function of θ.
        let mut evaluator = session.evaluator().unwrap();
        let theta = trained.theta.arrays().unwrap();
        let mut at = |by: f64| {
            trained.theta.write(&moved(&theta, by)).unwrap();
            evaluator.at(&trained, key).unwrap()[1]
        };
        let difference = (at(APART) - at(-APART)) / (2.0 * APART);
        trained.theta.write(&theta).unwrap();
        let graph = Graph::new();
        let trace = Trace::new(&graph, &problem).unwrap();
        let outer = trace.outer(&trace.theta, graph.step()).unwrap();
        let mut builder = Program::builder(&graph);
        for (i, slope) in bilevel::graph::gradient_or_zeros(outer, &trace.theta).unwrap().into_iter().enumerate() {
            builder = builder.output(format!("slope.{i}"), slope);
        }
        let mut routine = bilevel::programs::Routine::new(&builder.build().unwrap(), &session).unwrap();
        routine.bind_point(&trained.lambda, &trained.theta, key).unwrap();
        let slopes = routine.outputs("slope").unwrap();
        routine.run(0..1).unwrap();
        let slopes: Vec<Vec<f64>> = slopes.arrays().unwrap().iter().map(Array::to_f64).collect();
        assert_near(along(&slopes), difference, &format!("{what}, outer loss"));
    }
}

/// The tensors of a problem at the λ and θ it starts from, in double precision.
fn at_start(problem: &Problem, of: impl Fn(&Trace) -> Vec<Tensor>) -> Vec<Vec<f64>> {
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem).unwrap();
    let mut builder = Program::builder(&graph);
    for (i, tensor) in of(&trace).into_iter().enumerate() {
        builder = builder.output(format!("out.{i}"), tensor);
    }
    let mut routine = bilevel::programs::Routine::new(&builder.build().unwrap(), &session).unwrap();
    let key = Key::from_seed(5);
    let state = session.state(key).unwrap();
    let mut trainer = Trainer::new(&session, InnerLoop::new(0.1, 0)).unwrap();
    trainer.train(&state, key).unwrap();
    routine.bind_point(&state.lambda, &state.theta, key).unwrap();
    let found = routine.outputs("out").unwrap();
    routine.run(0..1).unwrap();
    found.arrays().unwrap().iter().map(Array::to_f64).collect()
}

#[test]
fn one_step_of_size_1_makes_prototypes_the_means_of_their_classes() {
    let task = small(Learner::Prototypes);
    let problem = task.build(&Context::default()).unwrap();
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let trained = |steps| {
        let state = session.state(Key::from_seed(1)).unwrap();
        let inner = InnerLoop::new(1.0, steps);
        Trainer::new(&session, inner).unwrap().train(&state, Key::from_seed(2)).unwrap();
        state.theta.numbers().unwrap()
    };
    let (once, again) = (trained(1), trained(3));
    assert!(once.iter().any(|x| x.abs() > 1e-3));
    assert!(once.iter().zip(&again).all(|(a, b)| (a - b).abs() < 1e-12), "the minimum stays where it is");
}

#[test]
fn particles_move_along_the_stein_direction() {
    // Two tasks with three particles of two numbers, in two leaves.
    let (tasks, particles, size) = (2, 3, 2);
    let graph = Graph::new();
    let leaf = |name: &str| graph.input(name, [tasks * particles, size], DType::F64);
    let leaves = [leaf("a"), leaf("b")];
    let pull = leaves.map(|leaf| leaf.tanh());
    let value = leaves[0].square().sum_all();
    let loss = svgd::loss(value, &leaves, &pull, (tasks, particles));
    let slopes = bilevel::graph::gradient_or_zeros(loss, &leaves).unwrap();
    let numbers = |seed: f64| -> Vec<f64> { (0..12).map(|i| ((i as f64 + seed) * 1.7).sin()).collect() };
    let values = [numbers(0.3), numbers(9.1)];
    let array = |of: &Vec<f64>| Array::from_f64([tasks * particles, size], of.clone()).unwrap();
    let given = [(leaves[0], array(&values[0])), (leaves[1], array(&values[1]))];
    let found = Reference::evaluate(&graph, &given, &[slopes[0], slopes[1], loss, value]).unwrap();
    assert_eq!(found[2].item(), found[3].item(), "the loss is that of the particles");
    for task in 0..tasks {
        let theta = |i: usize| -> Vec<f64> {
            values.iter().flat_map(|leaf| leaf[(task * particles + i) * size..][..size].to_vec()).collect()
        };
        let square = |i: usize, j: usize| theta(i).iter().zip(theta(j)).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let pairs = (0..particles).flat_map(|i| (0..particles).map(move |j| (i, j)));
        let mean = pairs.map(|(i, j)| square(i, j)).sum::<f64>() / 6.0;
        let h = mean / 3f64.ln();
        for i in 0..particles {
            let mut direction = vec![0.0; 2 * size];
            for j in 0..particles {
                let k = (-square(i, j) / h).exp();
                for (n, slot) in direction.iter_mut().enumerate() {
                    let repel = 2.0 / h * k * (theta(i)[n] - theta(j)[n]);
                    *slot += (repel - k * theta(j)[n].tanh()) / particles as f64;
                }
            }
            let slope: Vec<f64> = found[..2]
                .iter()
                .flat_map(|leaf| leaf.to_f64()[(task * particles + i) * size..][..size].to_vec())
                .collect();
            let error = slope.iter().zip(&direction).map(|(s, d)| (s + d).abs()).fold(0.0, f64::max);
            assert!(error < 1e-10, "task {task}, particle {i}: {slope:?} {direction:?}");
        }
    }
}

#[test]
fn a_distribution_starts_without_divergence_from_its_prior() {
    let task = |prior| FewShot { prior, ..small(Learner::Distribution) };
    let loss = |prior| {
        let problem = task(prior).build(&Context::default()).unwrap();
        at_start(&problem, |trace| vec![trace.inner(&trace.theta, trace.graph.step()).unwrap()])[0][0]
    };
    assert!((loss(0.0) - loss(1000.0)).abs() < 1e-9);
}

#[test]
fn what_is_known_of_one_network_holds_for_each_of_many() {
    // The predictions of copies that are alike are those of one.
    let task = small(Learner::Network);
    let parts = Parts::of(&task, &Context::default()).unwrap();
    let predict = |samples: usize| {
        let batch = task.batch(LEARN, 2, samples);
        let judged = batch.clone();
        let problem = task
            .losses(&batch, DType::F64)
            .unwrap()
            .data(LEARN, pixels(&parts.learn, DType::F64).unwrap())
            .classes(LEARN, parts.learn.to_classes().unwrap())
            .measure("sum", move |s, l: &Learned<Tensor>, t: &Adapted<Tensor>| {
                judged.log_predictions(s, l, t).0.square().sum_all()
            })
            .build()
            .unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let key = Key::from_seed(4);
        let state = session.state(key).unwrap();
        let inner = InnerLoop::new(0.1, 3);
        Trainer::new(&session, inner).unwrap().train(&state, key).unwrap();
        session.evaluator().unwrap().at(&state, key).unwrap()
    };
    let (one, three) = (predict(1), predict(3));
    assert!((one[1] - three[1]).abs() < 1e-10 && (one[2] - three[2]).abs() < 1e-8, "{one:?} {three:?}");
    assert!((3.0 * one[0] - three[0]).abs() < 1e-10, "the inner loss is a sum over all networks");
}

#[test]
fn minibatches_are_drawn_from_the_images_of_their_own_task() {
    let task = FewShot { minibatch: 4, shots: 3, ..small(Learner::Network) };
    let problem = task.build(&Context::default()).unwrap();
    let outcome = |method: Recipe| {
        let config = crate::register(Registry::new()).config(&task).unwrap().by(method);
        let driver =
            config.driver(&crate::register(Registry::new()), &problem, Box::new(Cpu::with_threads(1))).unwrap();
        driver.iterations(2).run().unwrap()
    };
    for method in [(RmdFo::default(), InnerLoop::new(0.1, 2)).into(), (Imaml::default(), InnerLoop::default()).into()] {
        assert!(!outcome(method).reason.is_failure());
    }
}

#[test]
fn tasks_that_the_images_cannot_make_are_refused_in_one_sentence() {
    let refused = |task: FewShot| task.build(&Context::default()).err().unwrap().to_string();
    let few = refused(FewShot { shots: 15, queries: 6, ..FewShot::default() });
    assert!(few.contains("has 20 rows, but an episode needs 15 + 6 different rows of each class"), "{few}");
    let ways = refused(FewShot { ways: 61, ..FewShot::default() });
    assert!(ways.contains("an episode of 61 ways needs as many classes, but 'learn' has 60"), "{ways}");
    for dataset in [ImageSet::TinyImagenet, ImageSet::MiniImagenet, ImageSet::TieredImagenet] {
        let none = refused(FewShot { dataset, ..FewShot::default() });
        assert!(none.contains("--data DIR"), "{none}");
        let empty = Context { data: Some("no/such/folder".into()), ..Context::default() };
        let none = FewShot { dataset, ..FewShot::default() }.build(&empty).err().unwrap().to_string();
        assert!(none.contains("'bilevel data fetch t") || none.contains("'bilevel data fetch m"), "{none}");
    }
}

#[test]
fn a_lambda_of_another_network_is_refused() {
    let task = small(Learner::Network);
    let other = FewShot { width: 3, ..task.clone() };
    let lambda = other.batch(LEARN, 1, 1).lambda().unwrap();
    let zeros = |leaf: &Variable| LambdaLeaf {
        name: String::new(),
        shape: leaf.shape().to_vec(),
        values: vec![0.0; leaf.shape().iter().product()],
    };
    let lambda: Vec<LambdaLeaf> = lambda.leaves().into_iter().map(zeros).collect();
    let registry = crate::register(Registry::new());
    let place = Place::new(&registry, Cpu::with_threads(1));
    let how = Adaptation { inner: InnerLoop::new(0.1, 1), proximal: 0.0, samples: 1 };
    assert!(task.test(&lambda, &how, (2, 0), Precision::Full, &place).is_err());
    assert!(task.test(&lambda[1..], &how, (2, 0), Precision::Full, &place).is_err());
}

#[test]
fn a_test_counts_every_query_of_every_task_once_whoever_learns_it() {
    let registry = crate::register(Registry::new());
    let place = Place::new(&registry, Cpu::with_threads(1));
    for learner in [Learner::Network, Learner::Distribution, Learner::Particles, Learner::Prototypes] {
        let task = small(learner);
        let problem = task.build(&Context { dtype: DType::F32, ..Context::default() }).unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let leaves = session.state(Key::from_seed(0)).unwrap().lambda.arrays().unwrap();
        let lambda: Vec<LambdaLeaf> = leaves.iter().map(|leaf| LambdaLeaf::new("", leaf)).collect();
        let how = Adaptation { inner: InnerLoop::new(0.1, 2).at_temperature(1e-8), proximal: 0.5, samples: 2 };
        let found = task.test(&lambda, &how, (10, 7), Precision::Full, &place).unwrap();
        let counted: f64 = found.bins.iter().map(|bin| bin.count).sum();
        let right: f64 = found.bins.iter().map(|bin| bin.right).sum();
        assert_eq!((found.tasks, counted), (10, 30.0), "{learner:?}");
        assert!((right / 30.0 - found.accuracy()).abs() < 1e-6, "{learner:?} {found:?}");
        assert!(found.squares * 10.0 >= found.sum * found.sum - 1e-6, "one draw for all numbers: {found:?}");
        assert!((0.0..=1.0).contains(&found.calibration_error()), "{learner:?}");
        let confident = |(confidence, _): &(f64, f64)| (0.333..=1.001).contains(confidence);
        assert!(found.reliability().iter().all(confident), "{learner:?} {found:?}");
        assert_eq!(task.test(&lambda, &how, (10, 7), Precision::Full, &place).unwrap(), found, "{learner:?}");
    }
}

#[test]
fn tasks_to_learn_from_and_to_test_on_share_no_character() {
    for split in [Split::Characters, Split::Alphabets] {
        let parts = Parts::of(&FewShot { split, classes: 0, ..FewShot::default() }, &Context::default()).unwrap();
        let sizes = (parts.learn.classes.len(), parts.test.classes.len());
        assert_eq!(sizes, if split == Split::Characters { (1200, 423) } else { (964, 659) });
        assert!(parts.learn.classes.iter().all(|class| !parts.test.classes.contains(class)));
    }
    let turned = FewShot { rotations: true, ..FewShot::default() };
    let parts = Parts::of(&turned, &Context::default()).unwrap();
    assert_eq!((parts.learn.classes.len(), parts.test.classes.len()), (240, 60));
}

/// Pictures of one colour for each class, in folders.
fn folders(root: &std::path::Path, classes: usize, each: usize) {
    for class in 0..classes {
        let folder = root.join(format!("n{class:03}"));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..each {
            // A small PGM would do, but only PNG and JPEG files are read.
            std::fs::write(folder.join(format!("{number}.png")), png((class * 20) as u8)).unwrap();
        }
    }
}

/// The smallest PNG of one grey pixel.
fn png(grey: u8) -> Vec<u8> {
    let pictures = bilevel_report::Pictures {
        title: String::new(),
        panels: vec![bilevel_report::Panel {
            title: String::new(),
            rows: 1,
            columns: 1,
            values: vec![f64::from(grey)],
        }],
    };
    pictures.png(64).unwrap()
}

#[test]
fn photographs_in_folders_make_tasks_in_colour() {
    let root = std::env::temp_dir().join(format!("bilevel-few-shot-{}", std::process::id()));
    folders(&root.join("tiny-imagenet"), 10, 4);
    let context = Context { data: Some(root.clone()), dtype: DType::F32, ..Context::default() };
    let task = FewShot {
        dataset: ImageSet::TinyImagenet,
        classes: 0,
        ways: 2,
        shots: 1,
        queries: 1,
        width: 2,
        ..FewShot::default()
    };
    let parts = Parts::of(&task, &context).unwrap();
    assert_eq!((parts.learn.classes.len(), parts.test.classes.len()), (6, 2));
    assert_eq!(parts.learn.images.shape(), [24, 3, 64, 64]);
    task.build(&context).unwrap();
    let many = FewShot { shots: 4, ..task.clone() }.build(&context).err().unwrap().to_string();
    assert!(many.contains("has 4 rows, but an episode needs 4 + 1"), "{many}");
    std::fs::write(root.join("tiny-imagenet/n000/broken.png"), b"not a picture").unwrap();
    let broken = task.build(&context).err().unwrap().to_string();
    assert!(broken.contains("broken.png"), "{broken}");
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn ink_is_1_and_paper_0_and_colours_are_centred() {
    let one = |channels: usize, pixels: Vec<u8>| {
        let images = Images::new([1, channels, 1, 1], pixels).unwrap();
        pixels_of(&LabelledImages::new(images, vec![0], vec!["a".into()]).unwrap())
    };
    assert_eq!(one(1, vec![0]), [1.0]);
    assert_eq!(one(1, vec![255]), [0.0]);
    let colours = one(3, vec![0, 115, 255]);
    assert!(colours[0] < -1.0 && colours[1].abs() < 0.01 && colours[2] > 1.0, "{colours:?}");
}

fn pixels_of(part: &LabelledImages) -> Vec<f64> {
    pixels(part, DType::F64).unwrap().to_f64()
}

#[test]
fn a_batch_says_what_its_learner_needs() {
    let shapes = |learner| {
        let batch: Batch = small(learner).batch(LEARN, 2, 1);
        (batch.lambda().unwrap().leaves().len(), batch.theta().unwrap().leaves()[0].shape().to_vec())
    };
    assert_eq!(shapes(Learner::Network), (14, vec![2, 2, 1, 3, 3]));
    assert_eq!(shapes(Learner::Distribution), (28, vec![2, 2, 1, 3, 3]));
    assert_eq!(shapes(Learner::Particles), (14, vec![6, 2, 1, 3, 3]));
    assert_eq!(shapes(Learner::Prototypes), (14, vec![2, 3, 2]));
}
