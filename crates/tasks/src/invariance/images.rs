//! Digits, each transformed once by the invariance to learn.

use super::{Dataset, Transformation};
use crate::digits::Digits;
use bilevel::graph::random::fill_uniform_f64;
use bilevel::{Array, Error, Key, Result};
use bilevel_data::datasets::mnist;
use bilevel_run::Context;
use bilevel_run::Kept;
use std::f64::consts::{LN_2, PI};
use std::sync::Arc;

/// Grey images with labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// Height and width of an image.
    pub side: usize,
    /// From 0 to 1, image by image.
    pub pixels: Vec<f32>,
    /// From 0 to 9.
    pub labels: Vec<i32>,
}

/// The images of a run.
pub struct Parts {
    /// For the inner loss.
    pub train: Images,
    /// For the outer loss.
    pub validation: Images,
    /// For the accuracy.
    pub test: Images,
}

impl Images {
    /// The number of images.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    fn image(&self, number: usize) -> &[f32] {
        let size = self.side * self.side;
        &self.pixels[number * size..(number + 1) * size]
    }

    fn take(&self, rows: &[usize]) -> Self {
        let mut pixels = Vec::with_capacity(rows.len() * self.side * self.side);
        rows.iter().for_each(|row| pixels.extend_from_slice(self.image(*row)));
        Images { side: self.side, pixels, labels: rows.iter().map(|row| self.labels[*row]).collect() }
    }

    /// The pixels: `[n, 1, side, side]`.
    pub fn x(&self) -> Result<Array> {
        Ok(Array::from_f32([self.count(), 1, self.side, self.side], self.pixels.clone())?)
    }

    /// The labels: `[n]`.
    pub fn y(&self) -> Result<Array> {
        Ok(Array::from_i32([self.count()], self.labels.clone())?)
    }

    /// Mean and deviation of all pixels, as [`bilevel_data::prepare::Normalisation`] has them.
    pub fn normalisation(&self) -> Result<(f64, f64)> {
        let found = bilevel_data::prepare::Normalisation::fit(&self.x()?)?;
        Ok((found.mean[0], found.deviation[0]))
    }

    fn square(set: bilevel_data::LabelledImages) -> Result<Self> {
        let [_, _, height, width] = set.images.shape();
        if height != width {
            let reason = format!("MNIST's images are square, but these are {height} x {width}");
            return Err(Error::other(reason));
        }
        let pixels = set.images.pixels().iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
        Ok(Images { side: height, pixels, labels: set.labels })
    }

    /// Each image transformed once. How does not depend on a run's seed: it belongs to the dataset.
    fn transformed(&self, transformation: Transformation, stream: u32) -> Self {
        let mut draws = vec![0.0; 2 * self.count()];
        fill_uniform_f64(Key::from_seed(1).words(), 0, stream, 0, &mut draws);
        let one = |(number, draws): (usize, &[f64])| {
            let [first, second] = [draws[0], draws[1]].map(|draw| 2.0 * draw - 1.0);
            seen(self.image(number), self.side, transformation.affine(first, second))
        };
        let pixels = draws.chunks_exact(2).enumerate().flat_map(one).collect();
        Images { pixels, ..self.clone() }
    }
}

impl Parts {
    /// The images of these settings, this many labelled and this many to test on (0 is all), split as the context's seed decides.
    pub fn of(
        dataset: Dataset,
        transformation: Transformation,
        held_out: f64,
        [images, test]: [usize; 2],
        context: &Context,
    ) -> Result<Self> {
        let whole = Whole::of(dataset, transformation, context)?;
        let (all, judged) = (&whole.train, &whole.test);
        let rows = bilevel_data::prepare::shuffled(all.count(), Key::from_seed(context.seed));
        let at_most = |asked: usize, count: usize| if asked == 0 { count } else { asked.min(count) };
        let rows = &rows[..at_most(images, all.count())];
        let kept = ((1.0 - held_out) * rows.len() as f64).round() as usize;
        let test = at_most(test, judged.count());
        Ok(Parts {
            train: all.take(&rows[..kept]),
            validation: all.take(&rows[kept..]),
            test: judged.take(&(0..test).collect::<Vec<_>>()),
        })
    }
}

/// All images of a dataset, each transformed once.
struct Whole {
    train: Images,
    test: Images,
}

impl Whole {
    /// A study uses the same images many times in a row, and reading them takes longer than some of its runs.
    fn of(dataset: Dataset, transformation: Transformation, context: &Context) -> Result<Arc<Self>> {
        static LAST: Kept<Whole> = Kept::new(1);
        let name = format!("{dataset:?} {transformation:?} {:?}", context.data);
        LAST.get(name, || Whole::read(dataset, transformation, context))
    }

    fn read(dataset: Dataset, transformation: Transformation, context: &Context) -> Result<Self> {
        let (train, test) = match dataset {
            Dataset::Digits => {
                let digits = Digits::all();
                let all = Images { side: 8, pixels: digits.pixels, labels: digits.labels };
                let rows = bilevel_data::prepare::shuffled(all.count(), Key::from_seed(0));
                (all.take(&rows[600..]), all.take(&rows[..600]))
            }
            Dataset::Mnist => {
                let (train, test) = mnist::load(context.data_dir("invariance on mnist")?).map_err(missing)?;
                (Images::square(train)?, Images::square(test)?)
            }
        };
        Ok(Whole { train: train.transformed(transformation, 0), test: test.transformed(transformation, 1) })
    }
}

/// Returns an error that explains how to get the missing data.
fn missing(error: bilevel_data::Error) -> Error {
    match error {
        bilevel_data::Error::Io { .. } => Error::MissingData {
            reason: error.to_string(),
            remedy: "get the images with 'bilevel data fetch mnist', or name their folder with --data".into(),
        },
        other => other.into(),
    }
}

/// Two rows of a matrix that maps places of the view to places of the image.
pub(super) type Matrix = [[f64; 3]; 2];

impl Transformation {
    /// The map of two draws in ±1.
    fn affine(self, first: f64, second: f64) -> Matrix {
        let turned = |angle: f64| [[angle.cos(), -angle.sin(), 0.0], [angle.sin(), angle.cos(), 0.0]];
        match self {
            Transformation::None => turned(0.0),
            Transformation::Rotated180 => turned(PI * first),
            Transformation::Rotated90 => turned(0.5 * PI * first),
            Transformation::Scaled => {
                let factor = (LN_2 * first).exp();
                [[factor, 0.0, 0.0], [0.0, factor, 0.0]]
            }
            Transformation::Shifted => [[1.0, 0.0, SHIFT * first], [0.0, 1.0, SHIFT * second]],
        }
    }

    /// The ranges it was made with, in the order of the generators.
    pub fn ranges(self) -> [f64; 6] {
        match self {
            Transformation::None => [0.0; 6],
            Transformation::Rotated180 => [0.0, 0.0, PI, 0.0, 0.0, 0.0],
            Transformation::Rotated90 => [0.0, 0.0, 0.5 * PI, 0.0, 0.0, 0.0],
            Transformation::Scaled => [0.0, 0.0, 0.0, LN_2, LN_2, 0.0],
            Transformation::Shifted => [SHIFT, SHIFT, 0.0, 0.0, 0.0, 0.0],
        }
    }
}

/// Eight of 28 pixels, for image coordinates from −1 to 1.
const SHIFT: f64 = 8.0 / 14.0;

/// An image at the places of a map, bilinear, zero outside: one view, as [`views`](super::views()) has it.
pub(super) fn seen(image: &[f32], side: usize, [across, down]: Matrix) -> Vec<f32> {
    let centre = |number: usize| (2.0 * number as f64 + 1.0) / side as f64 - 1.0;
    let pixel = |row: f64, column: f64| {
        let inside = |place: f64| place >= 0.0 && place < side as f64;
        if inside(row) && inside(column) { f64::from(image[row as usize * side + column as usize]) } else { 0.0 }
    };
    let place = |[a, b, shift]: [f64; 3], x: f64, y: f64| ((a * x + b * y + shift + 1.0) * side as f64 - 1.0) / 2.0;
    let mut view = Vec::with_capacity(side * side);
    for (i, j) in (0..side).flat_map(|i| (0..side).map(move |j| (i, j))) {
        let (column, row) = (place(across, centre(j), centre(i)), place(down, centre(j), centre(i)));
        let (left, top) = (column.floor(), row.floor());
        let (u, v) = (column - left, row - top);
        let line = |row: f64| (1.0 - u) * pixel(row, left) + u * pixel(row, left + 1.0);
        view.push(((1.0 - v) * line(top) + v * line(top + 1.0)) as f32);
    }
    view
}
