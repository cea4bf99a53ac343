//! Augmentation against plain loops, and its draws inside a problem.

use bilevel::graph::{Graph, Reference};
use bilevel::prelude::*;
use bilevel_data::augment;

#[test]
fn a_crop_is_what_loops_cut_out() {
    let (count, channels, height, width, padding) = (10, 2, 3, 4, 2);
    let pixel = |i: usize, c: usize, y: i64, x: i64| {
        let inside = (0..height as i64).contains(&y) && (0..width as i64).contains(&x);
        if inside { (1 + ((i * channels + c) * height + y as usize) * width + x as usize) as f64 } else { 0.0 }
    };
    let each = |value: &dyn Fn(usize, usize, i64, i64) -> f64| -> Vec<f64> {
        let places = (0..count).flat_map(|i| (0..channels).map(move |c| (i, c)));
        let places = places.flat_map(|(i, c)| (0..height as i64).map(move |y| (i, c, y)));
        places
            .flat_map(|(i, c, y)| (0..width as i64).map(move |x| (i, c, y, x)))
            .map(|(i, c, y, x)| value(i, c, y, x))
            .collect()
    };
    let (tops, lefts): (Vec<i32>, Vec<i32>) = (0..count as i32).map(|i| (i % 5, (i * 3) % 5)).unzip();
    let g = Graph::new();
    let x = g.input("x", [count, channels, height, width], DType::F64);
    let [top, left] = ["top", "left"].map(|name| g.input(name, [count], DType::I32));
    let values = [
        (x, Array::from_f64(x.shape(), each(&pixel)).unwrap()),
        (top, Array::from_i32([count], tops.clone()).unwrap()),
        (left, Array::from_i32([count], lefts.clone()).unwrap()),
    ];
    let found = Reference::evaluate(&g, &values, &[augment::crop_at(x, padding, top, left)]).unwrap();
    let moved = |from: &[i32], i: usize| i64::from(from[i]) - padding as i64;
    let expected = each(&|i, c, y, x| pixel(i, c, y + moved(&tops, i), x + moved(&lefts, i)));
    assert_eq!(found[0].to_f64(), expected);
}

/// What becomes of images in the first step of a training: θ ← θ − ∂/∂θ ½‖θ − augmented‖² from θ = 0 is what was drawn.
fn augmented(images: Array, seed: u64, dtype: DType, augment: fn(&Scope, Tensor) -> Tensor) -> Vec<f64> {
    let theta = Variable::constant(images.shape(), 0.0);
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(theta))
        .dtype(dtype)
        .data("images", images)
        .inner(move |s, l, t| {
            (t.0 - augment(s, s.data("images")) - l.0 * 0.0).square().sum_all() * 0.5 + l.0 * t.0.sum_all()
        })
        .outer(|_, _, t| t.0.square().sum_all())
        .build()
        .unwrap();
    let (method, inner) = (Rmd::default(), InnerLoop::new(1.0, 1));
    Driver::new(&problem, method).inner(inner).iterations(1).seed(seed).run().unwrap().theta.0.to_f64()
}

/// Images of 3 × 3 with one bright pixel in the middle of each.
fn dots(count: usize) -> Array {
    let values = (0..count * 9).map(|place| f64::from(u8::from(place % 9 == 4))).collect();
    Array::from_f64([count, 1, 3, 3], values).unwrap()
}

#[test]
fn every_place_of_a_random_crop_is_equally_likely() {
    let count = 9000;
    for dtype in [DType::F32, DType::F64] {
        let found = augmented(dots(count), 1, dtype, |s, images| augment::random_crop(s, images, 1));
        let mut seen = [0; 9];
        for image in found.chunks(9) {
            let bright: Vec<usize> = (0..9).filter(|place| image[*place] != 0.0).collect();
            assert_eq!((bright.len(), image[bright[0]]), (1, 1.0));
            seen[bright[0]] += 1;
        }
        // 1000 each, with a standard deviation of 30.
        assert!(seen.iter().all(|times| (870..1130).contains(times)), "{seen:?}");
    }
}

#[test]
fn half_of_the_images_are_turned_and_another_half_from_another_seed() {
    let images = || Array::from_f64([4000, 1, 1, 2], [1.0, 2.0].repeat(4000)).unwrap();
    let found = [1, 2].map(|seed| augmented(images(), seed, DType::F32, augment::random_flip));
    let turned = found.each_ref().map(|found| found.chunks(2).filter(|image| *image == [2.0, 1.0]).count());
    assert!(found.iter().flatten().all(|pixel| [1.0, 2.0].contains(pixel)));
    // 2000, with a standard deviation of 32.
    assert!(turned.iter().all(|count| (1860..2140).contains(count)), "{turned:?}");
    assert_ne!(found[0], found[1]);
}
