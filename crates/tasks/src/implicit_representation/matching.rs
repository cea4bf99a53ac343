//! Controls of an initialisation: another network trained to the same outputs, and the same weights in another order
//! (Tancik et al. 2021).

use super::Signal;
use super::family::Family;
use super::network::Network;
use bilevel::graph::Executor;
use bilevel::graph::nn::mse;
use bilevel::observers::StopSignal;
use bilevel::optimizers::Adam;
use bilevel::{Array, DType, Key, Problem, Result, Tensor, Tree, Variable};
use bilevel_data::prepare::shuffled;
use bilevel_models::{for_tasks, same_for_tasks};

/// Places at which outputs are compared in a step.
const PLACES: usize = 4096;
/// The rate of Adam.
const RATE: f64 = 3e-4;

impl Family {
    /// Another network, from `start`, after this many steps of Adam on the squared difference between its outputs and
    /// those at λ. The points are all pixels of an image, or random points of the cube of a scene. Also returns the
    /// final mean squared difference.
    pub fn matched(
        &self,
        [lambda, start]: [&[Array]; 2],
        steps: usize,
        (executor, signal): (impl Executor + 'static, &StopSignal),
        seed: u64,
    ) -> Result<(Vec<Array>, f64)> {
        let (images, reach) = (self.task.signal == Signal::Images, (self.task.far - self.task.near) / 2.0);
        let mut builder = Problem::builder(self.network.clone(), for_tasks(&self.network, 1)).dtype(DType::F32);
        builder = builder.data("coordinates", self.coordinate_array()?);
        if let Some(frequencies) = &self.frequencies {
            builder = builder.data("frequencies", frequencies.clone());
        }
        let fixed = self.frequencies.is_some();
        let apart = move |s: &bilevel::Scope, lambda: &Network<Tensor>, net: &Network<Tensor>| {
            let places = if images { s.data("coordinates") } else { s.uniform([PLACES, 3], -reach, reach) };
            let frequencies = fixed.then(|| s.data("frequencies"));
            let wanted = same_for_tasks(lambda, 1).outputs(1, places, frequencies).stop_gradient();
            mse(net.outputs(1, places, frequencies), wanted)
        };
        let problem = builder.inner(apart).outer(apart).build()?;
        let tree = |arrays: &[Array], axis: &[usize]| -> Result<Network<Array>> {
            let one = |array: &Array| shaped(array, &[axis, array.shape()].concat());
            let arrays = arrays.iter().map(one).collect::<Result<Vec<_>>>()?;
            let network: &Network<Variable> = &self.network;
            network.rebuild(arrays).map_err(bilevel::Error::other)
        };
        let (lambda, start) = (tree(lambda, &[])?, tree(start, &[1])?);
        let training =
            problem.train(&lambda).theta(&start).optimizer(Adam::default()).step(RATE).steps(steps).seed(seed);
        let trained = training.executor(executor).stop_signal(signal.clone()).run()?;
        let own = |array: &Array| shaped(array, &array.shape()[1..]);
        Ok((trained.theta.leaves().into_iter().map(own).collect::<Result<_>>()?, trained.outer_loss))
    }
}

/// The same numbers in another shape.
fn shaped(array: &Array, shape: &[usize]) -> Result<Array> {
    Ok(Array::from_f32(shape, array.to_f64().into_iter().map(|number| number as f32).collect())?)
}

/// λ with the numbers of every leaf in a random order.
pub fn shuffled_leaves(lambda: &[Array], key: Key) -> Result<Vec<Array>> {
    let one = |(leaf, array): (usize, &Array)| {
        let numbers = array.to_f64();
        let order = shuffled(numbers.len(), key.fold_in(leaf as u32));
        Ok(Array::from_f32(array.shape(), order.into_iter().map(|place| numbers[place] as f32).collect())?)
    };
    lambda.iter().enumerate().map(one).collect()
}
