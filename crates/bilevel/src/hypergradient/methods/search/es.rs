//! Evolutionary search: the derivative of a Gaussian-smoothed F, with F(λ) the value of f after the inner loop.
//!
//!   antithetic:  h = mean over z of z·\[F(λ + σz) − F(λ − σz)\]/(2σ)
//!   plain:       h = mean over z of z·F(λ + σz)/σ              z ~ N(0, I)
//!
//! Both have the same expectation. The plain form has a variance of F²/σ² per direction, which explodes for small σ.
//! Every inner loop of one hypergradient starts at the same θ, or at θ⁰ of the loop's λ, and uses the same draws.
//! Directions and sums are in 64-bit floats for every type of λ: otherwise differences of sums would lose digits, and
//! directions would depend on the type.
//! Directions are shared out over ranks, which exchange one number for each.

use crate::compiled::purpose::Purpose;
use crate::compiled::shares::Shares;
use crate::hypergradient::paths::must_have_outer_loss;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{InnerStart, outer_loss};
use bilevel_graph::RandomKind;

/// Settings of evolutionary search.
///
/// ```
/// use bilevel::methods::Es;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // F(λ) = λ, so every antithetic pair says z² and their mean is about 1.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let (method, inner) = (Es::default(), InnerLoop::new(1.0, 1));
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = method.prepare_in(&session, &inner).unwrap();
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0)).unwrap();
/// assert!((h.value[0].item().unwrap() - 1.0).abs() < 0.6);
/// assert_eq!(h.oracles.losses, 201, "two for each of 100 directions, one at λ itself");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Es {
    /// Size of a perturbation σ, above 0.
    pub sigma: f64,
    /// Directions z, at least 1; an antithetic one costs two inner loops.
    pub directions: usize,
    /// Look both ways along every direction (the default), or one way.
    pub antithetic: bool,
}

impl Default for Es {
    fn default() -> Self {
        Es { sigma: 0.001, directions: 100, antithetic: true }
    }
}

struct Prepared {
    settings: Es,
    inner: InnerLoop,
    start: InnerStart,
    forward: Routine,
    outer: Routine,
    moving: Routine,
    gather: Routine,
    ending: Routine,
    session: Session,
    shares: Shares,
    /// θ of the loops at other λ.
    work: Option<Leaves>,
}

impl Method for Es {
    named!("es");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        let Es { sigma, directions, .. } = *self;
        require(sigma > 0.0 && sigma.is_finite(), "sigma", sigma, "above 0")?;
        require((1..=u32::MAX as usize).contains(&directions), "directions", directions, "at least 1 and below 2³²")?;
        inner.check_for(self)?;
        let (shares, session) = &Shares::new(directions, session);
        Ok(Box::new(Prepared {
            settings: *self,
            inner: *inner,
            shares: shares.clone(),
            start: InnerStart::new(session)?,
            forward: inner.walk(session)?,
            outer: outer_loss(session)?,
            moving: move_program(session)?,
            gather: gather_program(session)?,
            ending: ending_program(directions, session)?,
            session: session.clone(),
            work: None,
        }))
    }

    /// It uses no derivative with respect to λ, so none need exist.
    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        must_have_outer_loss(self.name(), problem)
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { any_optimizer: false, ..LoopUse::PLAIN }
    }

    fn converge(&mut self, _: &Scale) {
        self.directions = Scale::DIRECTIONS;
    }

    fn claims(&self) -> Claims {
        Claims { training: true, minimum: true, singular: true, minibatches: true, ..Claims::default() }
    }
}

/// λ + by·z with z the direction of the step's number, as outputs `moved.i`.
pub(crate) fn move_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let by = graph.input("by.0", [], DType::F64);
    let mut builder = Program::builder(&graph);
    for (i, (l, z)) in trace.lambda.iter().zip(directions(&trace)).enumerate() {
        builder = builder.output(format!("moved.{i}"), (l.convert(DType::F64) + by * z).convert(l.dtype()));
    }
    Routine::new(&builder.build()?, session)
}

/// Adds slope·z and its square to the sums.
fn gather_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let slope = graph.input("slope.0", [], DType::F64);
    let [sum, square] = sums(&trace);
    let mut builder = Program::builder(&graph);
    for (i, z) in directions(&trace).into_iter().enumerate() {
        let sample = slope * z;
        builder = builder.carry(sum[i], sum[i] + sample).carry(square[i], square[i] + sample * sample);
    }
    Routine::new(&builder.build()?, session)
}

/// The mean E\[x\] of the samples and its standard error √((E\[x²\] − E\[x\]²)/(N − 1)), from the sums.
pub(crate) fn ending_program(samples: usize, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let samples = samples as f64;
    let [sum, square] = sums(&trace);
    let mut builder = Program::builder(&graph);
    for i in 0..sum.len() {
        let mean = sum[i] / samples;
        let spread = (square[i] / samples - mean * mean).maximum(0.0);
        let error = (spread / (samples - 1.0).max(1.0)).sqrt();
        for (name, value) in [("mean", mean), ("error", error)] {
            builder = builder.output(format!("{name}.{i}"), value.convert(trace.lambda[i].dtype()));
        }
    }
    Routine::new(&builder.build()?, session)
}

/// The sums of the samples and of their squares.
pub(crate) fn sums(trace: &Trace) -> [Vec<Tensor>; 2] {
    ["sum", "square"].map(|name| {
        let input = |(i, l): (usize, &Tensor)| trace.graph.input(format!("{name}.{i}"), l.shape(), DType::F64);
        trace.lambda.iter().enumerate().map(input).collect()
    })
}

/// A standard normal direction in the shapes of λ, by the number of the step.
pub(crate) fn directions(trace: &Trace) -> Vec<Tensor> {
    let draw = |(leaf, l): (usize, &Tensor)| {
        let stream = Purpose::Direction(leaf as u32).stream();
        trace.key.random(trace.graph.step(), RandomKind::Normal, stream, l.shape(), DType::F64)
    };
    trace.lambda.iter().enumerate().map(draw).collect()
}

impl Prepared {
    /// F(λ): f after the inner loop from the state's θ, which is left at the end of the loop.
    fn value(&mut self, lambda: &Leaves, theta: &Leaves, (key, gamma): (Key, f64)) -> Result<f64> {
        self.start.place(lambda, theta, key)?;
        self.inner.place(&mut self.forward, gamma)?;
        self.forward.bind_point(lambda, theta, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        self.outer.bind_point(lambda, theta, key)?;
        self.outer.run(self.inner.last())?;
        self.outer.number("outer")
    }

    /// F at λ + by·z, on a separate θ.
    fn value_at(&mut self, state: &State, work: &Leaves, (sample, by): (u32, f64), with: (Key, f64)) -> Result<f64> {
        self.moving.bind_lambda(&state.lambda)?;
        self.moving.set_key(with.0)?;
        self.moving.set_numbers("by", [by])?;
        let moved = self.moving.outputs("moved")?;
        self.moving.run(sample..sample + 1)?;
        work.copy_from(&state.theta)?;
        self.value(&moved, work, with)
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let Es { sigma, directions, antithetic } = self.settings;
        let work = match &self.work {
            Some(work) => work.clone(),
            None => self.work.insert(state.theta.zeros_like(self.session.executor())?).clone(),
        };
        let (sum, square) = (self.gather.zeroed("sum")?, self.gather.zeroed("square")?);
        self.gather.set_key(key)?;
        let slopes = self.shares.clone().numbers_of(|sample| {
            let mut value = |by: f64| self.value_at(state, &work, (sample as u32, by), (key, gamma));
            let ahead = value(sigma)?;
            Ok([if antithetic { (ahead - value(-sigma)?) / (2.0 * sigma) } else { ahead / sigma }])
        })?;
        for (sample, slope) in (0..).zip(slopes) {
            self.gather.set_numbers("slope", slope)?;
            self.gather.run(sample..sample + 1)?;
        }
        self.ending.bind("sum", &sum)?;
        self.ending.bind("square", &square)?;
        let (value, error) = (self.ending.fresh_outputs("mean")?, self.ending.fresh_outputs("error")?);
        self.ending.run(0..1)?;
        let lambda = state.lambda.clone();
        let outer_loss = self.value(&lambda, &state.theta, (key, gamma))?;
        self.shares.as_on_the_first(&state.theta)?;
        let loops = (directions * if antithetic { 2 } else { 1 } + 1) as u64;
        let oracles = Oracles { inner_gradients: loops * self.inner.steps as u64, losses: loops, ..Oracles::default() };
        let found = Hypergradient::new(value, oracles).with_outer_loss(outer_loss);
        let standard_error = (directions > 1).then_some(error);
        Ok(Hypergradient { standard_error, ..found.blaming(Cause::SearchTooWide) })
    }
}
