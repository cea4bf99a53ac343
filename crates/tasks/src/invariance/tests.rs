//! Views against views of one image at a time, losses against differences, and what is refused.

use super::images::{Images, seen};
use super::*;
use bilevel::graph::{Graph, Reference};
use bilevel::methods::Rmd;
use bilevel::{Cpu, InnerLoop, Key, Method, Session};

fn small() -> Invariance {
    Invariance { draws: 2, hidden: 3, batch: 4, test: 4, ..Invariance::default() }
}

fn f64s() -> Context {
    Context { dtype: DType::F64, ..Context::default() }
}

#[test]
fn a_view_is_the_image_seen_through_the_exponential_of_its_generators() {
    let side = 5;
    let image: Vec<f32> = (0..side * side).map(|i| ((i * 7) % 11) as f32 / 11.0).collect();
    for ranges in [[0.3, -0.2, 0.9, 0.1, -0.3, 0.2], [0.0, 0.0, 3.0, 0.0, 0.0, 0.0], [0.5, 0.1, 0.0, 0.6, 0.6, 0.0]] {
        let g = Graph::new();
        let pixels = Array::from_f64([1, 1, side, side], image.iter().map(|p| f64::from(*p)).collect()).unwrap();
        let x = g.input("x", [1, 1, side, side], DType::F64);
        let lambda = g.input("λ", [6], DType::F64);
        // Draws of 1 and −1: both ends of all ranges at once.
        let sign = g.constant(0.0, [6, 1, 2], DType::F64).iota_like(2) * -2.0 + 1.0;
        let given = [(x, pixels), (lambda, Array::from_f64([6], ranges.to_vec()).unwrap())];
        let found = Reference::evaluate(&g, &given, &[views(x, lambda, sign)]).unwrap()[0].to_f64();
        for (view, sign) in found.chunks_exact(side * side).zip([1.0, -1.0]) {
            let expected = seen(&image, side, show::exponential(ranges.map(|range| sign * range)));
            for (found, expected) in view.iter().zip(expected) {
                assert!((found - f64::from(expected)).abs() < 1e-6, "{ranges:?}: {found} {expected}");
            }
        }
    }
}

#[test]
fn the_hypergradient_is_the_difference_of_outer_losses() {
    for judge in [Judge::Validation, Judge::Training] {
        let task = |start: f64| Invariance { judge, start, ..small() };
        let of = |start: f64| {
            let problem = task(start).build(&f64s()).unwrap();
            let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
            let mut estimator = Rmd::default().prepare_in(&session, &InnerLoop::new(0.1, 2)).unwrap();
            let mut state = session.state(Key::from_seed(3)).unwrap();
            estimator.estimate(&mut state, Key::from_seed(5)).unwrap()
        };
        // Interpolation has kinks where a pixel meets the grid: so short a step crosses none, and rounding stays below 1e-9.
        let step = 1e-7;
        let slope: f64 = of(0.3).value[0].to_array().unwrap().to_f64().iter().sum();
        let difference = (of(0.3 + step).outer_loss - of(0.3 - step).outer_loss) / (2.0 * step);
        assert!((slope - difference).abs() < 1e-7 * slope.abs().max(1.0), "{slope} {difference}");
        assert!(slope.abs() > 1e-4, "{slope}");
    }
}

#[test]
fn ranges_that_are_given_stay() {
    let task = Invariance { views: Views::Given, ranges: [0.0, 0.0, 1.5, 0.0, 0.0, 0.0], ..small() };
    let problem = task.build(&f64s()).unwrap();
    let outcome = bilevel::Driver::new(&problem, bilevel::methods::RmdFo::default())
        .inner(InnerLoop::new(0.1, 2))
        .iterations(3)
        .run()
        .unwrap();
    assert_eq!(outcome.lambda.iter().next().unwrap().1.to_f64(), [0.0, 0.0, 1.5, 0.0, 0.0, 0.0]);
}

#[test]
fn settings_that_make_no_experiment_are_refused_in_one_sentence() {
    let refused = |task: Invariance| task.build(&f64s()).err().unwrap().to_string();
    assert!(refused(Invariance { draws: 0, ..small() }).contains("draws"));
    assert!(refused(Invariance { held_out: 0.0, ..small() }).contains("held_out"));
    assert!(refused(Invariance { batch: 100_000, ..small() }).contains("100000"));
    let wrong = Invariance { views: Views::Given, ranges: [0.0, 0.0, f64::INFINITY, 0.0, 0.0, 0.0], ..small() };
    assert!(refused(wrong).contains("ranges is"));
    let mnist = Invariance { dataset: Dataset::Mnist, ..small() };
    assert!(refused(mnist.clone()).contains("--data DIR"));
    let nowhere = Context { data: Some("no/such/folder".into()), ..f64s() };
    assert!(mnist.build(&nowhere).err().unwrap().to_string().contains("bilevel data fetch mnist"));
}

#[test]
fn images_are_split_by_the_seed_and_transformed_alike_in_all_splits() {
    let parts = |seed| {
        let context = Context { seed, ..f64s() };
        Parts::of(Dataset::Digits, Transformation::Rotated90, 0.2, [0, 0], &context).unwrap()
    };
    let (one, other) = (parts(0), parts(1));
    assert_eq!([&one.train, &one.validation, &one.test].map(Images::count), [958, 239, 600]);
    assert_eq!(one.test, other.test);
    assert_ne!(one.train, other.train);
}

#[test]
fn a_picture_shows_every_generator_at_five_places_and_ten_views() {
    let leaf = LambdaLeaf { name: "ranges".into(), shape: vec![6], values: vec![0.1; 6] };
    let sections = Task::show(&small(), &[leaf], &f64s());
    let counts: Vec<usize> = sections
        .iter()
        .map(|section| match section {
            Section::Pictures(pictures) => pictures.panels.len(),
            _ => 0,
        })
        .collect();
    assert_eq!(counts, [30, 10]);
    // A λ of another form has no picture, and is no reason to panic.
    let other = LambdaLeaf { name: "ranges".into(), shape: vec![2], values: vec![0.1; 2] };
    assert!(Task::show(&small(), &[other], &f64s()).is_empty());
}
