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
    /// What is subtracted, one number per channel.
    pub mean: Vec<f64>,
    /// The divisor after that, one number per channel.
    pub deviation: Vec<f64>,
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
        let (mut sums, mut squares) = (vec![0.0; channels], vec![0.0; channels]);
        let rows = array.shape()[0];
        if rows * inner == 0 {
            return Err(Error::request("there are no numbers to take the mean of"));
        }
        let count = (rows * inner) as f64;
        each(array, inner, channels, |channel, value| sums[channel] += value);
        let mean: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
        each(array, inner, channels, |channel, value| squares[channel] += (value - mean[channel]).powi(2));
        let deviation = squares.iter().map(|square| (square / count).sqrt()).zip(&mean);
        // A constant's deviation is what rounding leaves of it.
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
        _ => Err(Error::request(format!(
            "an array [n, channels, ..] was expected, but this one has the shape {shape:?}"
        ))),
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
