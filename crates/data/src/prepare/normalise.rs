//! Normalisation by channel: y = (x − mean)/deviation.

use crate::error::{Error, Result};
use bilevel::graph::{Data, DataMut};
use bilevel::{Array, DType};

/// Mean and deviation of every channel, or column, which is axis 1 of an array.
///
/// ```
/// use bilevel::Array;
/// use bilevel_data::prepare::Normalisation;
/// let table = Array::from_f64([2, 2], vec![1.0, 10.0, 3.0, 10.0])?;
/// let normalisation = Normalisation::fit(&table)?;
/// assert_eq!((&*normalisation.mean, &*normalisation.deviation), (&[2.0, 10.0][..], &[1.0, 1.0][..]));
/// assert_eq!(normalisation.apply(table)?.to_f64(), [-1.0, 0.0, 1.0, 0.0]);
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Normalisation {
    /// The mean to subtract, one number per channel.
    pub mean: Vec<f64>,
    /// The divisor after that, one number per channel.
    pub deviation: Vec<f64>,
}

/// A compensated sum (Kahan 1965): with tens of millions of pixels, most of them equal, a plain sum is wrong from the
/// tenth digit on.
#[derive(Clone, Copy, Default)]
struct Sum {
    total: f64,
    excess: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let wanted = value - self.excess;
        let next = self.total + wanted;
        self.excess = (next - self.total) - wanted;
        self.total = next;
    }
}

impl Normalisation {
    /// The usual normalisation of MNIST's pixels, scaled to 0 … 1.
    pub fn mnist() -> Self {
        Normalisation { mean: vec![0.1307], deviation: vec![0.3081] }
    }

    /// Mean and standard deviation of the channels of an array `[n, c, ..]`: fit it to training data and apply it to
    /// all data. A constant channel is divided by 1.
    pub fn fit(array: &Array) -> Result<Self> {
        let (channels, inner) = layout(array.shape())?;
        let (mut sums, mut squares) = (vec![Sum::default(); channels], vec![Sum::default(); channels]);
        let rows = array.shape()[0];
        if rows * inner == 0 {
            return Err(Error::request("there are no numbers to average"));
        }
        let count = (rows * inner) as f64;
        each(array, inner, channels, |channel, value| sums[channel].add(value));
        let mean: Vec<f64> = sums.iter().map(|sum| sum.total / count).collect();
        each(array, inner, channels, |channel, value| squares[channel].add((value - mean[channel]).powi(2)));
        let deviation = squares.iter().map(|square| (square.total / count).sqrt()).zip(&mean);
        // A constant's deviation is only rounding.
        let deviation = deviation.map(|(s, mean)| if s > 1e-9 * mean.abs() { s } else { 1.0 }).collect();
        Ok(Normalisation { mean, deviation })
    }

    /// The array of floats `[n, c, ..]`, normalised.
    pub fn apply(&self, mut array: Array) -> Result<Array> {
        let (channels, inner) = layout(array.shape())?;
        if [self.mean.len(), self.deviation.len()] != [channels, channels] {
            let reason = format!("the array has {channels} channels but the normalisation has {}", self.mean.len());
            return Err(Error::request(reason));
        }
        if array.dtype() == DType::I32 {
            return Err(Error::request("integers cannot be normalised; convert them to floats first"));
        }
        let channel = |place: usize| place / inner.max(1) % channels;
        match array.data_mut() {
            DataMut::F32(values) => values.iter_mut().enumerate().for_each(|(place, value)| {
                *value = ((f64::from(*value) - self.mean[channel(place)]) / self.deviation[channel(place)]) as f32;
            }),
            DataMut::F64(values) => values.iter_mut().enumerate().for_each(|(place, value)| {
                *value = (*value - self.mean[channel(place)]) / self.deviation[channel(place)];
            }),
            DataMut::I32(_) => {}
        }
        Ok(array)
    }
}

/// The number of channels, and how many consecutive numbers belong to one.
fn layout(shape: &[usize]) -> Result<(usize, usize)> {
    match shape {
        [_, channels, inner @ ..] if *channels > 0 => Ok((*channels, inner.iter().product())),
        _ => Err(Error::request(format!("expected an array [n, channels, ..], but this one has the shape {shape:?}"))),
    }
}

fn each(array: &Array, inner: usize, channels: usize, mut visit: impl FnMut(usize, f64)) {
    let mut at = |place: usize, value: f64| visit(place / inner % channels, value);
    match array.data() {
        Data::F32(values) => values.iter().enumerate().for_each(|(place, value)| at(place, f64::from(*value))),
        Data::F64(values) => values.iter().enumerate().for_each(|(place, value)| at(place, *value)),
        Data::I32(values) => values.iter().enumerate().for_each(|(place, value)| at(place, f64::from(*value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millions_of_equal_numbers_do_not_wear_the_sums_out() {
        // As pixels are: most of them background, whose squares are rounded in the same direction again and again.
        let (count, bright) = (4_000_000, 5);
        let values = (0..count).map(|i| if i % bright == 0 { 0.7 } else { 0.0 }).collect();
        let found = Normalisation::fit(&Array::from_f32([count, 1], values).unwrap()).unwrap();
        let (value, share) = (f64::from(0.7f32), 1.0 / bright as f64);
        let (mean, deviation) = (value * share, value * (share * (1.0 - share)).sqrt());
        assert!((found.mean[0] / mean - 1.0).abs() < 1e-15, "{} {mean}", found.mean[0]);
        assert!((found.deviation[0] / deviation - 1.0).abs() < 1e-15, "{} {deviation}", found.deviation[0]);
    }
}
