//! Held-out signals, learned from an initialisation step by step: how well each is represented after this many steps,
//! and its picture.

use super::Signal;
use super::family::{Family, psnr};
use super::network::Network;
use bilevel::graph::{Executor, Graph, Program, Runnable};
use bilevel::observers::StopSignal;
use bilevel::parts::InnerStart;
use bilevel::programs::Leaves;
use bilevel::{Array, DType, InnerLoop, Key, Precision, Result, Session, Tree};
use bilevel_models::nerf::depths;
use bilevel_models::{for_tasks, inputs};
use serde::{Deserialize, Serialize};

/// Views of a scene, after the one it is learned from, by which it is judged.
const JUDGED: usize = 4;
/// Coordinates of all scenes in one call of a program.
const PLACES: usize = 1 << 17;

/// Signals after this many steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adapted {
    /// The steps.
    pub steps: usize,
    /// The PSNR of each signal; `None` if it is not finite.
    pub psnr: Vec<Option<f64>>,
    /// The first signals, or the first view they are judged by: channel by channel within a pixel, in 256 levels.
    pub pictures: Vec<Vec<u8>>,
}

impl Adapted {
    /// The PSNR of a signal, for people.
    pub fn caption(&self, signal: usize) -> String {
        self.psnr.get(signal).copied().flatten().map_or("not finite".into(), |psnr| format!("{psnr:.1} dB"))
    }
}

/// The conditions of the adaptation.
pub struct Conditions<'a> {
    /// Runs the programs.
    pub executor: &'a dyn Executor,
    /// Interrupts them.
    pub signal: &'a StopSignal,
    /// The key of the inner loop's draws.
    pub key: Key,
    /// The precision of the operands of products.
    pub precision: Precision,
    /// So many signals are also shown.
    pub pictures: usize,
}

impl Family {
    /// The held-out signals after each of these numbers of steps, which rise, from λ.
    pub fn adapt(&self, lambda: &[Array], counts: &[usize], conditions: &Conditions) -> Result<Vec<Adapted>> {
        let problem = self.adapting(DType::F32)?.in_precision(conditions.precision)?;
        let session = Session::new(&problem, conditions.executor)?.stopped_by(conditions.signal.clone());
        let state = session.state(conditions.key)?;
        state.lambda.write(lambda)?;
        let inner = InnerLoop::new(self.task.learning_rate, counts.iter().copied().max().unwrap_or(0));
        let mut walk = inner.walk(&session)?;
        inner.place(&mut walk, inner.step)?;
        InnerStart::new(&session)?.place(&state.lambda, &state.theta, conditions.key)?;
        walk.bind_point(&state.lambda, &state.theta, conditions.key)?;
        let mut look = Look::new(self, conditions, &state.theta)?;
        let (mut done, mut found) = (0, vec![]);
        for &steps in counts {
            walk.run(done..steps as u32)?;
            done = steps as u32;
            found.push(self.judged(steps, look.values(self, conditions.executor)?, conditions.pictures));
        }
        Ok(found)
    }

    /// The held-out signals themselves, in the order of `Look::values`.
    pub fn truth(&self) -> Vec<Vec<f32>> {
        let size = self.task.side * self.task.side * self.channels;
        let scene = |number: usize| match self.task.signal {
            Signal::Images => self.held_out.colours[number * size..(number + 1) * size].to_vec(),
            Signal::Views => {
                let from = (number * self.task.views + 1) * size;
                self.held_out.colours[from..from + self.judged_views() * size].to_vec()
            }
        };
        (0..self.held_out.count).map(scene).collect()
    }

    /// How many views a scene is judged by.
    pub fn judged_views(&self) -> usize {
        JUDGED.min(self.task.views - 1)
    }

    fn judged(&self, steps: usize, values: Vec<Vec<f32>>, pictures: usize) -> Adapted {
        let one = |(truth, values): (Vec<f32>, &Vec<f32>)| {
            let squares = truth.iter().zip(values).map(|(a, b)| f64::from(a - b).powi(2));
            let error = squares.sum::<f64>() / truth.len() as f64;
            error.is_finite().then(|| psnr(error))
        };
        let psnr = self.truth().into_iter().zip(&values).map(one).collect();
        let shown = values.iter().take(pictures).map(|values| self.picture(values));
        Adapted { steps, psnr, pictures: shown.collect() }
    }

    /// The first picture of some values, in 256 levels.
    pub fn picture(&self, values: &[f32]) -> Vec<u8> {
        let size = self.task.side * self.task.side * self.channels;
        values.iter().take(size).map(|value| (value.clamp(0.0, 1.0) * 255.0).round() as u8).collect()
    }
}

/// A program that evaluates the signals of all held-out networks.
struct Look {
    run: Box<dyn Runnable>,
    /// Rays of each scene that it looks along in one go; 0 for images.
    chunk: usize,
}

impl Look {
    fn new(family: &Family, conditions: &Conditions, theta: &Leaves) -> Result<Self> {
        let (task, tasks, executor) = (&family.task, family.held_out.count, conditions.executor);
        let graph = Graph::new();
        let nets: Network<_> = inputs(&for_tasks(&family.network, tasks), &graph, DType::F32);
        let chunk = match task.signal {
            Signal::Images => 0,
            Signal::Views => (PLACES / (tasks * task.samples)).clamp(1, task.side * task.side),
        };
        let seen = match task.signal {
            Signal::Images => {
                let input = |name: &str, shape: &[usize]| graph.input(name, shape, DType::F32);
                let coordinates = input("coordinates", &[task.side * task.side, 2]);
                let frequencies = family.frequencies.as_ref().map(|array| input("frequencies", array.shape()));
                nets.colours(tasks, coordinates, frequencies)
            }
            Signal::Views => {
                let input = |name: &str| graph.input(name, [tasks * chunk, 3], DType::F32);
                let (origins, directions) = (input("origins"), input("directions"));
                nets.seen(tasks, origins, directions, depths(origins, task.near, task.far, task.samples, None))
            }
        };
        let program = Program::builder(&graph).output("seen", seen.check()?).build()?;
        let program = program.with_precision(conditions.precision);
        let mut look = Look { run: executor.compile(&program)?, chunk };
        for (name, buffer) in nets.names().iter().zip(theta.iter()) {
            look.run.bind_input(program.input(name)?, buffer)?;
        }
        if task.signal == Signal::Images {
            look.give(executor, "coordinates", family.coordinate_array()?)?;
            if let Some(frequencies) = &family.frequencies {
                look.give(executor, "frequencies", frequencies.clone())?;
            }
        }
        Ok(look)
    }

    fn give(&mut self, executor: &dyn Executor, name: &str, array: Array) -> Result<()> {
        let input = self.run.program().input(name)?;
        let numbers = array.to_f64().into_iter().map(|number| number as f32).collect();
        let buffer = executor.upload(&Array::from_f32(array.shape(), numbers)?)?;
        Ok(self.run.bind_input(input, &buffer)?)
    }

    /// All values of every signal: the image, or the views it is judged by.
    fn values(&mut self, family: &Family, executor: &dyn Executor) -> Result<Vec<Vec<f32>>> {
        let mut all = vec![vec![]; family.held_out.count];
        let mut take = |run: &mut dyn Runnable, keep: usize| -> Result<()> {
            run.run(0..1)?;
            let seen = run.output(0)?.to_f64();
            let each = seen.len() / all.len().max(1);
            for (values, own) in all.iter_mut().zip(seen.chunks(each.max(1))) {
                values.extend(own.iter().take(keep).map(|value| *value as f32));
            }
            Ok(())
        };
        if self.chunk == 0 {
            take(&mut *self.run, usize::MAX)?;
            return Ok(all);
        }
        let (coordinates, views) = (family.coordinates(), family.task.views);
        for view in 1..=family.judged_views() {
            for from in (0..coordinates.len()).step_by(self.chunk) {
                let pixels = &coordinates[from..(from + self.chunk).min(coordinates.len())];
                let (mut origins, mut directions) = (vec![], vec![]);
                for camera in family.held_out.cameras.iter().skip(view).step_by(views) {
                    // The last rays are repeated if the pixels do not fill the program.
                    let places = pixels.iter().chain(std::iter::repeat(&pixels[pixels.len() - 1])).take(self.chunk);
                    for place in places {
                        origins.extend(camera.origin);
                        directions.extend(camera.direction(*place));
                    }
                }
                let shape = [origins.len() / 3, 3];
                self.give(executor, "origins", Array::from_f64(shape, origins)?)?;
                self.give(executor, "directions", Array::from_f64(shape, directions)?)?;
                take(&mut *self.run, 3 * pixels.len())?;
            }
        }
        Ok(all)
    }
}
