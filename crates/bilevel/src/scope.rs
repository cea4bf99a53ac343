//! What a loss sees besides λ and θ: data, minibatches and noise.

use crate::{Error, Result};
use bilevel_graph::{DType, Graph, RandomKind, Tensor};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// First random stream of what is drawn once for a whole hypergradient.
const EPISODE_STREAM: u32 = 6_000;

/// Given to a loss when it is traced. Everything random drawn through it belongs to one step: all derivatives of that step
/// see the same draw, and another step sees another.
pub struct Scope<'a> {
    graph: &'a Graph,
    data: &'a [(String, Tensor)],
    key: Tensor,
    counter: Tensor,
    dtype: DType,
    stream: Rc<Cell<u32>>,
    /// The next stream of what is drawn once for a whole hypergradient.
    episode_stream: Rc<Cell<u32>>,
    /// The first thing that was asked for and cannot be.
    complaint: Rc<RefCell<Option<String>>>,
    training: bool,
    /// Statistics and what they become.
    updates: Rc<RefCell<Vec<(Tensor, Tensor)>>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        data: &'a [(String, Tensor)],
        (key, counter): (Tensor, Tensor),
        dtype: DType,
        (first_stream, training): (u32, bool),
    ) -> Self {
        let counting = |first| Rc::new(Cell::new(first));
        let (stream, episode_stream) = (counting(first_stream), counting(EPISODE_STREAM));
        let (complaint, updates) = (Rc::default(), Rc::default());
        Scope { graph, data, key, counter, dtype, stream, episode_stream, complaint, training, updates }
    }

    /// The graph, for constants.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// True in the inner loss, false in the outer loss, in measures and in θ⁰(λ): a batch normalisation takes the statistics of
    /// the batch in the one and running statistics in the others.
    pub fn training(&self) -> bool {
        self.training
    }

    /// What a leaf of θ that is a [statistic](crate::Variable::statistic) becomes with this step of training. Where nothing is
    /// trained it does nothing.
    ///
    /// ```
    /// use bilevel::{Array, Cpu, Driver, Leaf, Problem, Rmd, Tree, Variable};
    /// #[derive(Clone, Tree)]
    /// struct Net<T> { weight: T, mean: T }
    /// let problem = Problem::new(
    ///     Leaf(Variable::constant([], 0.0)),
    ///     Net { weight: Variable::constant([], 0.0), mean: Variable::constant([], 0.0).statistic() },
    /// )
    /// .data("x", Array::from_f64([2], vec![1.0, 3.0])?)
    /// .inner(|s, l, net| {
    ///     let mean = s.data("x").mean_all();
    ///     s.update(net.mean, net.mean * 0.5 + mean * 0.5);
    ///     (net.weight - l.0).square() + mean * 0.0
    /// })
    /// .outer(|_, _, net| (net.weight - net.mean).square())
    /// .build()?;
    /// let outcome = Driver::new(&problem, Rmd { steps: 3, ..Rmd::default() }).iterations(1).run()?;
    /// assert_eq!(outcome.state.theta.numbers()?[1], 1.75); // half, three quarters, seven eighths of the way to 2
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    #[track_caller]
    pub fn update(&self, statistic: Tensor, value: Tensor) {
        if self.training {
            self.updates.borrow_mut().push((statistic, value));
        }
    }

    /// What each of these statistics becomes; an update of anything else is refused.
    pub(crate) fn updated(&self, statistics: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let mut found = vec![None; statistics.len()];
        for (leaf, value) in self.updates.borrow().iter() {
            let value = value.check()?;
            let Some(number) = statistics.iter().position(|statistic| *statistic == Some(*leaf)) else {
                let reason = "only a leaf of θ that is a statistic can be updated; declare it with .statistic()";
                return Err(Error::Problem { reason: reason.into() });
            };
            if value.shape() != leaf.shape() || value.dtype() != leaf.dtype() {
                let reason =
                    format!("a statistic of shape {:?} cannot become one of {:?}", leaf.shape(), value.shape());
                return Err(Error::Problem { reason });
            }
            found[number] = Some(value.stop_gradient());
        }
        Ok(found)
    }

    /// The problem's floating-point type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A data set by its name; a name that does not exist is an error when the problem is built.
    #[track_caller]
    pub fn data(&self, name: &str) -> Tensor {
        match self.data.iter().find(|(known, _)| known == name) {
            Some((_, tensor)) => *tensor,
            None => {
                self.complain(|| self.missing(name));
                // Any tensor will do: the name is what the error tells.
                self.graph.scalar(0.0, self.dtype)
            }
        }
    }

    fn complain(&self, reason: impl FnOnce() -> String) {
        self.complaint.borrow_mut().get_or_insert_with(reason);
    }

    /// Refuses what was asked for and cannot be.
    pub(crate) fn check(&self) -> Result<()> {
        self.complaint.borrow().as_ref().map_or(Ok(()), |reason| Err(Error::Problem { reason: reason.clone() }))
    }

    fn missing(&self, name: &str) -> String {
        let known = || self.data.iter().map(|(known, _)| known.as_str());
        match (crate::nearest(name, known()), self.data.len()) {
            (Some(near), _) => format!("there is no data '{name}'; did you mean '{near}'?"),
            (None, 0) => format!("there is no data '{name}', nor any other; give it with .data(\"{name}\", array)"),
            (None, _) => format!("there is no data '{name}'; there is {}", known().collect::<Vec<_>>().join(", ")),
        }
    }

    /// A scope whose draws are made once for a whole hypergradient and are the same in the inner loss, the outer loss, the
    /// start and the measures: the n-th draw from it here is the n-th draw from it there, however often it is asked for. It is how a task is chosen, when
    /// every outer iteration trains on one task and is judged on the same; with [`Chains`](crate::Chains), each chain has
    /// a task of its own.
    ///
    /// ```
    /// use bilevel::{Cpu, Driver, Leaf, Problem, Reptile, Variable};
    /// // Tasks are targets; the best start is in their middle.
    /// let target = |s: &bilevel::Scope| s.episode().uniform([], 0.0, 4.0);
    /// let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .inner(move |s, _, t| (t.0 - target(s)).square())
    ///     .outer(move |s, _, t| (t.0 - target(s)).square())
    ///     .start(|_, l| *l)
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Reptile { step: 0.1, steps: 5 }).rate(0.05).iterations(500).run()?;
    /// assert!((outcome.state.lambda[0].item().unwrap() - 2.0).abs() < 0.5);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn episode(&self) -> Scope<'a> {
        let never = self.graph.scalar(i32::MAX as f64, DType::I32);
        Scope {
            counter: never,
            stream: self.episode_stream.clone(),
            episode_stream: self.episode_stream.clone(),
            complaint: self.complaint.clone(),
            updates: self.updates.clone(),
            ..*self
        }
    }

    fn draw(&self, kind: RandomKind, shape: &[usize]) -> Tensor {
        let stream = self.stream.get();
        self.stream.set(stream + 1);
        self.key.random(self.counter, kind, stream, shape, self.dtype)
    }

    /// Fresh standard normal numbers.
    pub fn normal(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.draw(RandomKind::Normal, shape.as_ref())
    }

    /// Fresh numbers uniform between two bounds.
    pub fn uniform(&self, shape: impl AsRef<[usize]>, low: f64, high: f64) -> Tensor {
        self.draw(RandomKind::Uniform, shape.as_ref()) * (high - low) + low
    }

    /// `size` row numbers drawn from `0..rows`, with replacement: use them with [`Tensor::take`]. A minibatch that is empty or
    /// larger than the data is an error when the problem is built.
    pub fn minibatch(&self, rows: usize, size: usize) -> Tensor {
        if size == 0 || size > rows {
            self.complain(|| match size {
                0 => "a minibatch of no rows was asked for; take at least one".into(),
                _ => format!(
                    "a minibatch of {size} rows is larger than the {rows} rows it is drawn from; take fewer, or all \
                              the data as it is"
                ),
            });
        }
        let last = rows.saturating_sub(1) as f64;
        (self.draw(RandomKind::Uniform, &[size]) * rows as f64).floor().minimum(last).convert(DType::I32)
    }
}
