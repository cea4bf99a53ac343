//! The inputs of a loss besides λ and θ: data, minibatches and noise.

use crate::compiled::purpose::{Caller, Purpose};
use crate::generalisation::rows::Part;
use crate::generalisation::tables::RowTable;
use crate::problem::classes::{Episode, Shots};
use crate::problem::feeding::epochs::Places;
use crate::problem::feeding::finite_sum::FiniteSum;
use crate::problem::feeding::permutation::{WORDS, first_of, row_at};
use crate::problem::feeding::sources::Sources;
use crate::problem::feeding::stream::At;
use crate::{Error, Result};
use bilevel_graph::{DType, Graph, RandomKind, Tensor};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The step of draws that are made once for a whole hypergradient, which no loop reaches.
const NEVER: i32 = i32::MAX;
/// Up to this many rows are shuffled by exchanges, so that all orders are equally likely.
const FEW: usize = 16;
/// Rows are numbered in 32-bit integers.
const MOST_ROWS: usize = i32::MAX as usize;

/// The argument of a loss, through which it reads data and draws random numbers. A draw belongs to one step: all
/// derivatives of that step use the same draw, and another step has another.
pub struct Scope<'a> {
    graph: &'a Graph,
    sources: &'a Sources,
    key: Tensor,
    counter: Tensor,
    /// The counter of epochs, or 0 for draws that are made once.
    step: Tensor,
    dtype: DType,
    /// The function that draws, and the number of its next draw.
    caller: Caller,
    draws: Rc<Cell<u32>>,
    /// The number of the next draw that is made once for a whole hypergradient.
    episode_draws: Rc<Cell<u32>>,
    /// The first request that cannot be met.
    complaint: Rc<RefCell<Option<Error>>>,
    training: bool,
    /// The rows of tables that it sees.
    part: Part,
    /// One block of these rows, of this many blocks.
    block: Option<(usize, usize)>,
    /// The index among several trainings side by side, which selects its rows.
    fold: Option<usize>,
    /// Statistics and their new values.
    updates: Rc<RefCell<Vec<(Tensor, Tensor)>>>,
    /// The draws so far, as a mean over minibatches.
    sum: Rc<RefCell<FiniteSum>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        sources: &'a Sources,
        (key, counter): (Tensor, Tensor),
        dtype: DType,
        caller: Caller,
    ) -> Self {
        let part = match caller {
            Caller::Inner | Caller::Start | Caller::Episode => Part::Train,
            Caller::Outer | Caller::Measure(_) => sources.outer_part,
        };
        let (draws, episode_draws) = (Rc::default(), Rc::default());
        let (complaint, updates, sum) = (Rc::default(), Rc::default(), Rc::default());
        Scope {
            graph,
            sources,
            key,
            counter,
            step: counter,
            dtype,
            caller,
            draws,
            episode_draws,
            complaint,
            training: caller == Caller::Inner,
            part,
            block: None,
            fold: None,
            updates,
            sum,
        }
    }

    /// The graph, for constants.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// Returns true in the inner loss, false in the outer loss, in measures and in θ⁰(λ). A batch normalisation uses
    /// the statistics of the batch in the inner loss, and running statistics elsewhere.
    pub fn training(&self) -> bool {
        self.training
    }

    /// Sets the next value of a leaf of θ that is a [statistic](crate::Variable::statistic). Without training it has no
    /// effect.
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// #[derive(Clone, Tree)]
    /// struct Net<T> { weight: T, mean: T }
    /// let problem = Problem::builder(
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
    /// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.01, 3)).iterations(1).run()?;
    /// assert_eq!(outcome.theta.mean.item(), Some(1.75)); // half, three quarters, seven eighths of the way to 2
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    #[track_caller]
    pub fn update(&self, statistic: Tensor, value: Tensor) {
        if self.training {
            self.updates.borrow_mut().push((statistic, value));
        }
    }

    /// The new value of each of these statistics; an update of another tensor is refused.
    pub(crate) fn updated(&self, statistics: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let mut found = vec![None; statistics.len()];
        for (leaf, value) in self.updates.borrow().iter() {
            let value = value.check()?;
            let Some(number) = statistics.iter().position(|statistic| statistic.is_some_and(|s| s.is_same_node(*leaf)))
            else {
                let reason = "only a leaf of θ that is a statistic can be updated; declare it with .statistic()";
                return Err(Error::Loss { reason: reason.into() });
            };
            if value.shape() != leaf.shape() || value.dtype() != leaf.dtype() {
                if value.dtype() != leaf.dtype() {
                    let reason = format!("a statistic of type {} cannot become one of {}", leaf.dtype(), value.dtype());
                    return Err(Error::Loss { reason });
                }
                let (found, expected) = (value.shape().to_vec(), leaf.shape().to_vec());
                return Err(Error::Shape { what: "the update of a statistic".into(), found, expected });
            }
            found[number] = Some(value.stop_gradient());
        }
        Ok(found)
    }

    /// The problem's floating-point type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A data set by its name, or the batch that a [`Stream`](crate::data::Stream) of this name has for this step. An
    /// unknown name is an error when the problem is built.
    #[track_caller]
    pub fn data(&self, name: &str) -> Tensor {
        if let Some(data) = self.sources.data_set(name) {
            return data;
        }
        if self.sources.is_table(name) {
            return self.rows_of_table(name);
        }
        match (self.sources.stream(name), self.read_at()) {
            (Some(stream), Some(at)) => {
                self.sum.borrow_mut().refuse("reads a stream");
                return self.sources.batch(self.graph, stream, at);
            }
            (Some(_), None) => self.complain(|| {
                format!("the stream '{name}' can be read only at the step of the loop or at a fixed step")
            }),
            (None, _) => self.refuse(|| Error::unknown("data set", name, self.sources.names())),
        }
        // Any tensor will do: the error names the missing data.
        self.graph.scalar(0.0, self.dtype)
    }

    /// The rows of a table that this scope sees.
    fn rows_of_table(&self, name: &str) -> Tensor {
        let Some(rows) = self.sources.data_set(&RowTable::part_name(name, self.part, self.fold)) else {
            self.complain(|| format!("the table '{name}' has no {} rows; add some to its split", self.part));
            return self.graph.scalar(0.0, self.dtype);
        };
        let Some((block, blocks)) = self.block else { return rows };
        let bound = |block: usize| block * rows.dim(0) / blocks;
        rows.slice(0, bound(block), bound(block + 1))
    }

    /// The same scope with the rows of this part of every [table](crate::ProblemBuilder::table), for example for a
    /// metric on test rows. By default, the inner loss sees training rows, and the outer loss and metrics see
    /// validation rows.
    ///
    /// ```
    /// use bilevel::splits::{Part, Rows};
    /// use bilevel::{Array, Leaf, Problem, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .table("y", Array::from_f64([3], vec![1.0, 2.0, 4.0])?, &Rows::given([0], [1]).with_test([2]))
    ///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    ///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
    ///     .measure("test", |s, _, t| (s.part(Part::Test).data("y") - t.0).square().mean_all())
    ///     .build()?;
    /// let zero = Leaf(Array::from_f64([], vec![0.0])?);
    /// let trained = problem.train(&zero).theta(&zero).steps(0).run()?;
    /// assert_eq!((trained.inner_loss, trained.outer_loss, trained.measures.get("test")), (1.0, 4.0, Some(&16.0)));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn part(&self, part: Part) -> Scope<'a> {
        self.seeing(part, None)
    }

    /// The same scope with one block of a part's rows, or all.
    pub(crate) fn seeing(&self, part: Part, block: Option<(usize, usize)>) -> Scope<'a> {
        Scope { part, block, ..self.again() }
    }

    /// The same scope, which sees the rows of this fold.
    pub(crate) fn in_fold(&self, fold: usize) -> Scope<'a> {
        Scope { fold: Some(fold), ..self.again() }
    }

    /// Another handle to this scope.
    fn again(&self) -> Scope<'a> {
        Scope {
            draws: self.draws.clone(),
            episode_draws: self.episode_draws.clone(),
            complaint: self.complaint.clone(),
            updates: self.updates.clone(),
            sum: self.sum.clone(),
            ..*self
        }
    }

    /// The step at which streams are read.
    fn read_at(&self) -> Option<At> {
        match self.counter.constant_value() {
            Some(step) => Some(At::Fixed(step as u32)),
            None => self.counter.is_same_node(self.graph.step()).then_some(At::Step),
        }
    }

    /// The key and the step that draws of the host must follow from.
    pub(crate) fn host_draw(&self) -> [Tensor; 2] {
        self.sum.borrow_mut().refuse("uses an oracle that draws by itself");
        [self.key, self.counter]
    }

    /// The draws so far, as a mean over minibatches.
    pub(crate) fn finite_sum(&self) -> FiniteSum {
        *self.sum.borrow()
    }

    fn refuse(&self, error: impl FnOnce() -> Error) {
        self.complaint.borrow_mut().get_or_insert_with(error);
    }

    fn complain(&self, reason: impl FnOnce() -> String) {
        self.refuse(|| Error::Loss { reason: reason() });
    }

    /// Refuses requests that cannot be met.
    pub(crate) fn check(&self) -> Result<()> {
        self.complaint.borrow().as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// A scope whose draws are made once for a whole hypergradient and are the same in the inner loss, the outer loss,
    /// the start and the measures. The n-th draw is the same everywhere, for any number of such scopes. Use it to
    /// choose a task if every outer iteration trains and validates on one task; with
    /// [`Chains`](crate::methods::Chains), each chain has its own task.
    ///
    /// ```
    /// use bilevel::methods::Reptile;
    /// use bilevel::{Cpu, Driver, InnerLoop, Leaf, Problem, Variable};
    /// // Tasks are targets; the best start is in their middle.
    /// let target = |s: &bilevel::Scope| s.episode().uniform([], 0.0, 4.0);
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .inner(move |s, _, t| (t.0 - target(s)).square())
    ///     .outer(move |s, _, t| (t.0 - target(s)).square())
    ///     .start(|_, l| *l)
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Reptile::default()).inner(InnerLoop::new(0.1, 5)).rate(0.05).iterations(500).run()?;
    /// assert!((outcome.lambda.0.item().unwrap() - 2.0).abs() < 0.5);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn episode(&self) -> Scope<'a> {
        self.sum.borrow_mut().refuse("draws a task for every hypergradient");
        let number = |value: i32| self.graph.scalar(value as f64, DType::I32);
        Scope {
            counter: number(NEVER),
            step: number(0),
            caller: Caller::Episode,
            draws: self.episode_draws.clone(),
            episode_draws: self.episode_draws.clone(),
            complaint: self.complaint.clone(),
            updates: self.updates.clone(),
            sum: self.sum.clone(),
            ..*self
        }
    }

    /// The key of all random numbers of this hypergradient, for your own draws ([`Tensor::random`]) with a separate
    /// [stream](Self::stream).
    pub fn key(&self) -> Tensor {
        self.sum.borrow_mut().refuse("draws random numbers in every step");
        self.key
    }

    /// The counter of draws: the step, or a constant for draws that are made once.
    pub fn counter(&self) -> Tensor {
        self.counter
    }

    /// The number of a random stream that no other draw of the problem has. The n-th call is the n-th stream in every trace of the
    /// loss, so the same draws are made in all derivatives.
    pub fn stream(&self) -> u32 {
        self.next_stream()
    }

    fn draw(&self, kind: RandomKind, shape: &[usize]) -> Tensor {
        self.sum.borrow_mut().refuse("draws random numbers in every step");
        self.key.random(self.counter, kind, self.next_stream(), shape, self.dtype)
    }

    fn next_stream(&self) -> u32 {
        let draw = self.draws.get();
        if draw < self.caller.max_draws() {
            self.draws.set(draw + 1);
            return Purpose::Draw(self.caller, draw).stream();
        }
        self.complain(|| {
            format!("a loss or metric makes more than {draw} random draws; draw larger tensors, fewer of them")
        });
        Purpose::Draw(self.caller, 0).stream()
    }

    /// New standard normal numbers at every step.
    pub fn normal(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.draw(RandomKind::Normal, shape.as_ref())
    }

    /// New numbers at every step, uniform between two bounds.
    pub fn uniform(&self, shape: impl AsRef<[usize]>, low: f64, high: f64) -> Tensor {
        self.draw(RandomKind::Uniform, shape.as_ref()) * (high - low) + low
    }

    /// `size` row numbers drawn from `0..rows`, with replacement: use them with [`Tensor::take`]. For minibatches in which every
    /// row comes up equally often, see [`epochs`](Self::epochs).
    ///
    /// Every row can be drawn, and no row is more likely than another by more than 2⁻⁵³ × `rows`. A minibatch that is empty or
    /// larger than the data is an error when the problem is built, and so are more than 2³¹ − 1 rows.
    pub fn minibatch(&self, rows: usize, size: usize) -> Tensor {
        if !self.fits(rows, size) {
            return self.graph.constant(0.0, [size], DType::I32);
        }
        self.sum.borrow_mut().refuse("draws minibatches with replacement");
        let uniform = self.key.random(self.counter, RandomKind::Uniform, self.next_stream(), [size], DType::F64);
        // u < 1 has 53 bits and the rows fewer than 32, so the product stays below the number of rows when it is rounded.
        (uniform * rows as f64).floor().convert(DType::I32).over_ranks(0)
    }

    /// `size` row numbers of `0..rows` in epochs: every row exactly once in each, in a different order in every epoch.
    /// Use them with [`Tensor::take`].
    ///
    /// The steps of a hypergradient use one minibatch after the other. If `size` does not divide `rows`, a minibatch
    /// holds the last rows of an epoch and the first of the next. Order and place follow only from the key of the
    /// hypergradient and the step, so a repeated step has the same rows. [`episode`](Self::episode) gives `size`
    /// different rows for the whole hypergradient. Errors are those of [`minibatch`](Self::minibatch).
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// // The mean of 12 numbers, by gradient descent on three at a time: after four steps all have been seen.
    /// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
    ///     .data("x", Array::from_f64([12], (0..12).map(f64::from).collect())?)
    ///     .inner(|s, l, t| l.0 * t.0 * s.data("x").take(s.epochs(12, 3)).mean_all())
    ///     .outer(|_, _, t| t.0)
    ///     .build()?;
    /// let (method, inner) = (Rmd::default(), InnerLoop::new(0.25, 4));
    /// let outcome = Driver::new(&problem, method).inner(inner).rate(0.1).iterations(1).run()?;
    /// assert_eq!(outcome.theta.0.item(), Some(-5.5), "the mean of all, whatever the order");
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn epochs(&self, rows: usize, size: usize) -> Tensor {
        if !self.fits(rows, size) {
            return self.graph.constant(0.0, [size], DType::I32);
        }
        self.sum.borrow_mut().epochs(rows, size);
        let Places { epoch, place, next } = Places::new(self.graph, self.step, rows, size);
        let stream = self.next_stream();
        let draw = |epoch: Tensor| {
            if rows <= FEW {
                let uniform = self.key.random(epoch, RandomKind::Uniform, stream, [rows], DType::F64);
                return first_of(uniform, uniform.constant_like(rows as f64, [rows]));
            }
            self.key.random(epoch, RandomKind::Bits, stream, [WORDS], DType::I32)
        };
        let (this, after) = (draw(epoch), next.map(|next| (next, draw(epoch + 1.0))));
        let row = if rows <= FEW {
            let place = place.convert(DType::I32);
            after.map_or(this.take(place), |(next, after)| next.select(after.take(place), this.take(place)))
        } else {
            row_at(place, rows, |i| {
                let this = this.index(0, i);
                after.map_or(this, |(next, after)| next.convert(DType::I32).select(after.index(0, i), this))
            })
        };
        row.convert(DType::I32).over_ranks(0)
    }

    /// An N-way K-shot episode: `ways` different classes, and of each `support` + `query` different rows, all equally likely.
    /// The classes are those the problem was given by this name, with [`ProblemBuilder::classes`](crate::ProblemBuilder::classes).
    ///
    /// It is drawn once for a hypergradient, and is the same in the inner loss, the outer loss, the start and the
    /// measures. With [`Chains`](crate::methods::Chains), each chain has its own episode. More ways than classes, or a
    /// class with too few rows, is an error when the problem is built.
    ///
    /// ```
    /// use bilevel::data::{Classes, Shots};
    /// use bilevel::graph::nn::cross_entropy;
    /// use bilevel::prelude::*;
    /// // Forty points of eight classes, each class around a point of its own.
    /// let label = |row: usize| row % 8;
    /// let x = (0..80).map(|i| ((label(i / 2) * (1 + i % 2) * 7) % 8) as f64 / 4.0 - 1.0 + 0.01 * (i / 16) as f64).collect();
    /// let labels: Vec<i32> = (0..40).map(|row| label(row) as i32).collect();
    /// let shots = Shots { ways: 3, support: 1, query: 2 };
    /// let loss = |s: &Scope, weights: bilevel::Tensor, rows, labels| cross_entropy(s.data("x").take(rows).matmul(weights), labels).mean_all();
    /// // Where should a classifier of three unknown classes start?
    /// let start = || Leaf(Variable::constant([2, 3], 0.0));
    /// let problem = Problem::builder(start(), start())
    ///     .data("x", Array::from_f64([40, 2], x)?)
    ///     .classes("points", Classes::from_labels(&labels)?)
    ///     .start(|_, l| *l)
    ///     .inner(move |s, _, t| {
    ///         let episode = s.shots("points", shots);
    ///         loss(s, t.0, episode.support, episode.support_labels)
    ///     })
    ///     .outer(move |s, _, t| {
    ///         let episode = s.shots("points", shots);
    ///         loss(s, t.0, episode.query, episode.query_labels)
    ///     })
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.5, 5)).rate(0.1).iterations(20).run()?;
    /// assert!(outcome.lambda.0.to_f64().iter().all(|weight| weight.is_finite()));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn shots(&self, classes: &str, shots: Shots) -> Episode {
        self.draw_shots(classes, shots, &[])
    }

    /// Like [`shots`](Self::shots), for several independent episodes: all arrays of the [`Episode`] have a first axis
    /// of episodes. In this way the tasks of a meta-batch train together.
    ///
    /// ```
    /// use bilevel::data::{Classes, Shots};
    /// use bilevel::graph::nn::cross_entropy;
    /// use bilevel::prelude::*;
    /// let (x, labels) = ((0..60).map(|i| (i % 6) as f64).collect(), (0..60).map(|i| i % 6).collect::<Vec<i32>>());
    /// let shots = Shots { ways: 3, support: 1, query: 2 };
    /// // Sixteen classifiers of three unknown classes, all from one start.
    /// let loss = |s: &Scope, weights: Tensor, rows: Tensor, labels| {
    ///     cross_entropy(s.data("x").take(rows).matmul(weights), labels).mean_all()
    /// };
    /// let problem = Problem::builder(Leaf(Variable::constant([1, 3], 0.0)), Leaf(Variable::constant([16, 1, 3], 0.0)))
    ///     .data("x", Array::from_f64([60, 1], x)?)
    ///     .classes("points", Classes::from_labels(&labels)?)
    ///     .start(|_, l| Leaf(l.0.broadcast_to([16, 1, 3])))
    ///     .inner(move |s, _, t| {
    ///         let tasks = s.shots_of("points", shots, 16);
    ///         loss(s, t.0, tasks.support, tasks.support_labels) * 16.0
    ///     })
    ///     .outer(move |s, _, t| {
    ///         let tasks = s.shots_of("points", shots, 16);
    ///         loss(s, t.0, tasks.query, tasks.query_labels)
    ///     })
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.1, 2)).rate(0.1).iterations(3).run()?;
    /// assert!(outcome.lambda.0.to_f64().iter().all(|weight| weight.is_finite()));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn shots_of(&self, classes: &str, shots: Shots, episodes: usize) -> Episode {
        self.draw_shots(classes, shots, &[episodes])
    }

    fn draw_shots(&self, classes: &str, shots: Shots, before: &[usize]) -> Episode {
        let Some((place, found, tables)) = self.sources.classes(classes) else {
            self.refuse(|| Error::unknown("class set", classes, self.sources.class_names()));
            return Episode::none(self.graph, shots, before);
        };
        if let Some(reason) = found.refuse(classes, shots) {
            self.complain(|| reason);
            return Episode::none(self.graph, shots, before);
        }
        if before.contains(&0) {
            self.complain(|| "the number of episodes is 0; use at least one".into());
            return Episode::none(self.graph, shots, before);
        }
        self.sum.borrow_mut().refuse("draws a task for every hypergradient");
        let never = self.graph.scalar(NEVER as f64, DType::I32);
        let draw = |purpose: Purpose, shape: &[usize]| {
            self.key.random(never, RandomKind::Uniform, purpose.stream(), [before, shape].concat(), DType::F64)
        };
        let classes = place as u32;
        let rows = [shots.ways, shots.support + shots.query];
        let draws = [draw(Purpose::Ways(classes), &[shots.ways]), draw(Purpose::Rows(classes), &rows)];
        let episode = Episode::draw(self.graph, shots, found.names().len(), tables, draws);
        if before.is_empty() { episode } else { episode.over_ranks() }
    }

    /// Checks whether minibatches of this size are possible.
    fn fits(&self, rows: usize, size: usize) -> bool {
        let fits = size > 0 && size <= rows && rows <= MOST_ROWS;
        if !fits {
            self.complain(|| match size {
                0 => "a minibatch has 0 rows; it needs at least one".into(),
                _ if rows > MOST_ROWS => format!(
                    "a minibatch cannot be drawn from {rows} rows, because row numbers are 32-bit integers; draw from \
                        at most {MOST_ROWS}, or read them as a stream"
                ),
                _ => format!(
                    "a minibatch of {size} rows is larger than the {rows} rows it is drawn from; use fewer, or all \
                        the data"
                ),
            });
        }
        fits
    }
}
