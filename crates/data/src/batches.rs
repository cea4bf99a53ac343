//! Images as streams: they stay in memory as bytes, a quarter of their size as floats, and are converted batch by
//! batch.

use crate::error::{Error, Result};
use crate::images::LabelledImages;
use crate::prepare::{Normalisation, shuffled};
use bilevel::data::{Stream, StreamResult};
use bilevel::{Array, DType, Key};
use std::sync::{Arc, Mutex, PoisonError};

/// Minibatches in epochs: every image once per epoch, in a new order each time, which follows from the key of the
/// hypergradient. If the size does not divide the number of images, a batch holds the last of an epoch and
/// the first of the next. Images and labels of one step belong together.
///
/// ```
/// use bilevel::graph::nn::cross_entropy;
/// use bilevel::prelude::*;
/// use bilevel_data::{Batches, Images, LabelledImages};
/// let images = Images::new([4, 1, 1, 2], vec![255, 0, 0, 255, 250, 5, 5, 250])?;
/// let set = LabelledImages::new(images, vec![0, 1, 0, 1], vec!["left".into(), "right".into()])?;
/// let batches = Batches::new(set, 2)?;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.1)), Leaf(Variable::constant([2, 2], 0.0)))
///     .stream("x", batches.shape(), DType::F32, batches.images())
///     .stream("y", [2], DType::I32, batches.labels())
///     .inner(|s, l, t| {
///         let logits = s.data("x").reshape([2, 2]).matmul(t.0);
///         cross_entropy(logits, s.data("y")).mean_all() + l.0 * t.0.square().sum_all()
///     })
///     .outer(|s, _, t| cross_entropy(s.data("x").reshape([2, 2]).matmul(t.0), s.data("y")).mean_all())
///     .build()?;
/// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.5, 20)).iterations(3).run()?;
/// assert!(outcome.best_outer_loss.unwrap() < 0.6);
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batches {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    set: LabelledImages,
    size: usize,
    normalisation: Option<Normalisation>,
    identity: String,
    /// The orders of the latest epochs. They follow from key and epoch, but take long to compute.
    orders: Mutex<Vec<Order>>,
}

#[derive(Clone, Debug)]
struct Order {
    key: Key,
    epoch: u64,
    rows: Arc<Vec<usize>>,
}

/// Orders to keep: the two epochs a batch can touch, for a few keys at a time.
const KEPT: usize = 8;

impl Batches {
    /// Batches of this many images.
    pub fn new(set: LabelledImages, size: usize) -> Result<Self> {
        if size == 0 || size > set.count() {
            let reason = format!("a batch of {size} is larger than the {} images", set.count());
            return Err(Error::request(reason));
        }
        let labels: Vec<u8> = set.labels.iter().flat_map(|label| label.to_le_bytes()).collect();
        let identity = format!("{} {}", crate::sha256(set.images.pixels()), crate::sha256(&labels));
        let shared = Shared { set, size, normalisation: None, identity, orders: Mutex::default() };
        Ok(Batches { shared: Arc::new(shared) })
    }

    /// Normalises the pixels, scaled to 0 … 1, by channel.
    pub fn normalised(self, normalisation: Normalisation) -> Result<Self> {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        let channels = shared.set.images.shape()[1];
        if [normalisation.mean.len(), normalisation.deviation.len()] != [channels; 2] {
            let reason =
                format!("the images have {channels} channels but the normalisation has {}", normalisation.mean.len());
            return Err(Error::request(reason));
        }
        shared.identity = format!("{} {normalisation:?}", shared.identity);
        shared.normalisation = Some(normalisation);
        Ok(Batches { shared: Arc::new(shared) })
    }

    /// The shape of a batch, `[size, c, h, w]`.
    pub fn shape(&self) -> [usize; 4] {
        let [_, channels, height, width] = self.shared.set.images.shape();
        [self.shared.size, channels, height, width]
    }

    /// The images of each step, as 32-bit floats from 0 to 1 or normalised.
    pub fn images(&self) -> impl Stream + 'static {
        Part { shared: self.shared.clone(), read: Shared::images }
    }

    /// The labels of each step, `i32[size]`.
    pub fn labels(&self) -> impl Stream + 'static {
        Part { shared: self.shared.clone(), read: Shared::labels }
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Shared {
            set: self.set.clone(),
            size: self.size,
            normalisation: self.normalisation.clone(),
            identity: self.identity.clone(),
            orders: Mutex::default(),
        }
    }
}

impl Shared {
    /// The rows of a step: places step·size … step·size + size − 1 of all epochs, one after the other.
    fn rows(&self, key: Key, step: u32) -> Vec<usize> {
        let count = self.set.count() as u64;
        let first = u64::from(step) * self.size as u64;
        let places = first..first + self.size as u64;
        places.map(|place| self.order(key, place / count)[(place % count) as usize]).collect()
    }

    fn order(&self, key: Key, epoch: u64) -> Arc<Vec<usize>> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = orders.iter().find(|order| order.key == key && order.epoch == epoch) {
            return known.rows.clone();
        }
        let epoch_key = key.fold_in(epoch as u32).fold_in((epoch >> 32) as u32);
        let rows = Arc::new(shuffled(self.set.count(), epoch_key));
        orders.truncate(KEPT - 1);
        orders.insert(0, Order { key, epoch, rows: rows.clone() });
        rows
    }

    fn images(&self, key: Key, step: u32) -> Result<Array> {
        let array = self.set.images.take(&self.rows(key, step))?.to_array(DType::F32)?;
        match &self.normalisation {
            Some(normalisation) => normalisation.apply(array),
            None => Ok(array),
        }
    }

    fn labels(&self, key: Key, step: u32) -> Result<Array> {
        let labels = self.rows(key, step).into_iter().map(|row| self.set.labels[row]).collect();
        Ok(Array::from_i32([self.size], labels)?)
    }
}

/// One of the two streams.
struct Part {
    shared: Arc<Shared>,
    read: fn(&Shared, Key, u32) -> Result<Array>,
}

impl Stream for Part {
    fn batch(&self, key: Key, step: u32) -> StreamResult {
        Ok((self.read)(&self.shared, key, step)?)
    }

    fn identity(&self) -> String {
        self.shared.identity.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Images;

    fn batches(count: usize, size: usize) -> Batches {
        let images = Images::new([count, 1, 1, 1], (0..count as u8).collect()).unwrap();
        let labels = (0..count as i32).collect();
        let set = LabelledImages::new(images, labels, (0..count).map(|class| class.to_string()).collect()).unwrap();
        Batches::new(set, size).unwrap()
    }

    #[test]
    fn every_image_comes_once_per_epoch_with_its_label() {
        let (batches, key) = (batches(10, 4), Key::from_seed(5));
        let (images, labels) = (batches.images(), batches.labels());
        let mut seen: Vec<f64> = vec![];
        for step in 0..5 {
            let pixels = images.batch(key, step).unwrap().to_f64();
            let labels = labels.batch(key, step).unwrap().to_f64();
            assert!(pixels.iter().zip(&labels).all(|(pixel, label)| (pixel * 255.0 - label).abs() < 1e-4));
            seen.extend(labels);
        }
        // Five batches of four are two epochs of ten, in different orders.
        let (first, second) = seen.split_at(10);
        assert_ne!(first, second);
        for epoch in [first, second] {
            let mut sorted = epoch.to_vec();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(sorted, (0..10).map(f64::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_step_that_is_read_again_is_the_same_and_another_key_is_another() {
        let (batches, other) = (batches(10, 4), batches(10, 4));
        let read = |batches: &Batches, seed, step| batches.labels().batch(Key::from_seed(seed), step).unwrap();
        let late = read(&batches, 1, 1_000_000);
        (0..20).for_each(|step| drop(read(&batches, 2, step)));
        assert_eq!(late, read(&batches, 1, 1_000_000));
        assert_eq!(late, read(&other, 1, 1_000_000));
        assert_ne!(read(&batches, 1, 0), read(&batches, 2, 0));
        assert!(Batches::new(batches.shared.set.clone(), 11).is_err());
    }

    #[test]
    fn normalised_images_are_other_data_for_a_checkpoint() {
        let plain = batches(3, 3);
        let normalised = plain.clone().normalised(Normalisation { mean: vec![0.5], deviation: vec![0.5] }).unwrap();
        assert_ne!(plain.images().identity(), normalised.images().identity());
        let key = Key::from_seed(0);
        let (x, y) = (plain.images().batch(key, 0).unwrap(), normalised.images().batch(key, 0).unwrap());
        assert!(x.to_f64().iter().zip(y.to_f64()).all(|(x, y)| (x * 2.0 - 1.0 - y).abs() < 1e-6));
        assert!(plain.normalised(Normalisation { mean: vec![], deviation: vec![] }).is_err());
    }
}
