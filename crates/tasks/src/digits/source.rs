//! Digits in three parts, from the embedded set or from MNIST's training file.

use super::{PIXELS, Split};
use bilevel::{Array, Error, Key, Result};
use bilevel_data::datasets::mnist;
use bilevel_data::prepare::shuffled;
use bilevel_run::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source of the digits.
///
/// ```
/// use bilevel_run::Context;
/// use bilevel_tasks::digits::DigitSource;
/// let [train, validation, _] = DigitSource::Digits.parts([500, 100, 599], &Context::default())?;
/// assert_eq!((train.x.shape(), validation.labels.len()), (&[500, 64][..], 100));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DigitSource {
    /// 1797 embedded digits of 8 × 8 pixels
    #[default]
    Digits,
    /// the 60 000 digits of 28 × 28 pixels in MNIST's training file, which `--data` must have
    Mnist,
}

/// Some digits: a row of pixels from 0 to 1 for each, and its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// `[digits, pixels]`.
    pub x: Array,
    /// From 0 to 9.
    pub labels: Vec<i32>,
}

impl Part {
    /// The labels as an array.
    pub fn y(&self) -> Result<Array> {
        Ok(Array::from_i32([self.labels.len()], self.labels.clone())?)
    }
}

/// Width and height of a digit of MNIST whose pixels are averaged four by four.
const SMALL_SIDE: usize = 7;

/// The first 6000 digits of MNIST's training file at 7 by 7 pixels from 0 to 1, row by row, and their labels.
pub(crate) fn small_mnist(context: &Context, task: &str) -> Result<(usize, Vec<f64>, Vec<i32>)> {
    let (all, _) = mnist::load(context.data_dir(task)?)?;
    let some = all.take(&(0..6000.min(all.count())).collect::<Vec<_>>())?;
    let (pixels, cell, side) = (some.images.pixels(), 28 / SMALL_SIDE, SMALL_SIDE);
    let mean = |(image, y, x): (usize, usize, usize)| {
        let inside = (0..cell * cell).map(|k| image * 784 + (cell * y + k / cell) * 28 + cell * x + k % cell);
        inside.map(|place| f64::from(pixels[place])).sum::<f64>() / (255 * cell * cell) as f64
    };
    let places = (0..some.count()).flat_map(|image| (0..side * side).map(move |k| (image, k / side, k % side)));
    Ok((side * side, places.map(mean).collect(), some.labels))
}

impl DigitSource {
    /// Pixels of a digit.
    pub fn pixels(self) -> usize {
        match self {
            DigitSource::Digits => PIXELS,
            DigitSource::Mnist => 28 * 28,
        }
    }

    /// Three disjoint parts of these sizes, in an order given by the seed. The embedded digits are split into thirds,
    /// so that no part has more than 599 of them. A size that is not available is refused as one of `train`, `clean`
    /// and `test`.
    pub fn parts(self, sizes: [usize; 3], context: &Context) -> Result<[Part; 3]> {
        let most = match self {
            DigitSource::Digits => 599,
            DigitSource::Mnist => 20_000,
        };
        for (name, size) in ["train", "clean", "test"].into_iter().zip(sizes) {
            if !(1..=most).contains(&size) {
                let must = if most == 599 { "from 1 to 599" } else { "from 1 to 20000" };
                return Err(Error::setting(name, size, must));
            }
        }
        match self {
            DigitSource::Digits => {
                let Split { train, validation, test } = Split::new(context.seed);
                let [a, b, c] = sizes;
                let part = |digits: super::Digits| Ok::<_, Error>(Part { x: digits.x()?, labels: digits.labels });
                Ok([part(train.first(a))?, part(validation.first(b))?, part(test.first(c))?])
            }
            DigitSource::Mnist => {
                let (all, _) = mnist::load(context.data_dir("MNIST")?)?;
                let order = shuffled(all.count(), Key::from_seed(context.seed));
                let mut from = 0;
                let mut part = |size: usize| {
                    let rows = all.take(order.get(from..from + size).unwrap_or_default())?;
                    from += size;
                    let pixels = rows.images.pixels().iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
                    let x = Array::from_f32([size, self.pixels()], pixels)?;
                    Ok::<_, Error>(Part { x, labels: rows.labels })
                };
                Ok([part(sizes[0])?, part(sizes[1])?, part(sizes[2])?])
            }
        }
    }
}
