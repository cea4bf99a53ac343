//! Forward-mode differentiation through the unrolled inner loop, a column of dθ/dλ at a time.
//!
//!   sⱼ⁰ = J0·eⱼ,   sⱼ ← sⱼ − γ·(H(θᵗ)·sⱼ + C(θᵗ)·eⱼ),   hⱼ = f_λ(θᵀ)·eⱼ + f_θ(θᵀ)·sⱼᵀ
//!
//! One jvp of ∇θL_T along (sⱼ, eⱼ) gives both products. The inner loop is repeated for every number of λ, with the same
//! draws. The memory does not grow with the steps and the cost grows with λ: it is for a handful of hyperparameters.
//!
//! The first of these runs also carries a tangent without a hyperparameter, v ← v − γ·H·v from a random start: its
//! length shows how fast sensitivities grow (`growth.rs`). This costs one more product per step of the first run.

use crate::compiled::purpose::Purpose;
use crate::hypergradient::vocabulary::*;
use crate::inner::growth;
use crate::inner::walk::{InnerStart, outer_gradient};
use bilevel_graph::{Array, RandomKind, gradient, jvp};

/// Settings of forward mode.
///
/// ```
/// use bilevel::methods::Fmd;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // One step from θ = 0 on ½(θ−λ)² goes to γλ, and f = θ there.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let (method, inner) = (Fmd::default(), InnerLoop::new(0.25, 1));
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = method.prepare_in(&session, &inner).unwrap();
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0)).unwrap();
/// assert_eq!(h.value[0].item().unwrap(), 0.25);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fmd {}

/// The unrolled loop with its tangent, compiled.
pub(crate) struct Prepared {
    pub(crate) inner: InnerLoop,
    pub(crate) start: InnerStart,
    /// J0·e, if θ⁰ depends on λ.
    start_column: Option<Routine>,
    /// The loop with a tangent of λ, and the same with the tangent that measures growth.
    pub(crate) chain: Routine,
    first: Routine,
    pub(crate) outer: Routine,
    pub(crate) along: Routine,
    session: Session,
}

impl Method for Fmd {
    named!("fmd");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        Ok(Box::new(Prepared::new(session, inner)?))
    }

    fn claims(&self) -> Claims {
        Claims { training: true, minimum: true, singular: true, minibatches: true, ..Claims::default() }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

/// J0·e from inputs `e.i`, as outputs `s.i`.
fn start_column(session: &Session) -> Result<Option<Routine>> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let Some(start) = trace.start()? else { return Ok(None) };
    let e = trace.inputs_like("e", &trace.lambda);
    let column = or_zeros(jvp(&start, &trace.lambda, &e)?, &trace.theta);
    let mut builder = e.iter().fold(Program::builder(&graph), |builder, &e| builder.keep_input(e));
    for (i, s) in column.into_iter().enumerate() {
        builder = builder.output(format!("s.{i}"), s);
    }
    Ok(Some(Routine::new(&builder.build()?, session)?))
}

/// The tangent that measures growth is kept within the range of numbers by these factors.
const SMALLER: f64 = 1e-12;
const LARGER: f64 = 1e12;

fn chain_program(inner: &InnerLoop, session: &Session, measured: bool) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let (s, e) = (trace.inputs_like("s", theta), trace.inputs_like("e", lambda));
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let walk = inner.one_step(&trace, &slope, &updates, step);
    let (slots, slots_next): (Vec<Tensor>, Vec<Tensor>) = walk.slots.iter().copied().unzip();
    // The tangents of the optimizer's state accompany that of θ.
    let r = trace.inputs_like("r", &slots);
    let (from, along) = ([&theta[..], &slots, lambda].concat(), [&s[..], &r, &e].concat());
    let next = [walk.next(), slots_next].concat();
    let turn = or_zeros(jvp(&next, &from, &along)?, &next);
    let mut builder = walk.carry(Program::builder(&graph));
    // If λ acts only through the start, nothing in the loop depends on its tangent.
    builder = e.iter().fold(builder, |builder, &e| builder.keep_input(e));
    for (input, next) in s.iter().chain(&r).zip(turn) {
        builder = builder.carry(*input, next);
    }
    if measured {
        let from = [&theta[..], &slots].concat();
        // The optimizer's state starts at 0 for every θ⁰.
        let draw = |(i, t): (usize, &Tensor)| match i < theta.len() {
            true => {
                let stream = Purpose::Growth(i as u32).stream();
                trace.key.random(graph.scalar(0.0, DType::I32), RandomKind::Normal, stream, t.shape(), t.dtype())
            }
            false => t.zeros_like(),
        };
        let drawn: Vec<Tensor> = from.iter().enumerate().map(draw).collect();
        let carried = trace.inputs_like("v", &from);
        let v: Vec<Tensor> = carried.iter().zip(&drawn).map(|(v, draw)| step.equal(0.0).select(*draw, *v)).collect();
        let turn = or_zeros(jvp(&next, &from, &v)?, &next);
        let along = growth::stretch_to(&trace, &v, &turn);
        builder = growth::carry(builder, &trace, along, graph.scalar(1.0, DType::F64));
        let factor = along.xx.greater(LARGER).select(SMALLER, along.xx.less(SMALLER).select(LARGER, 1.0));
        let factor = factor.convert(session.problem().dtype);
        for (input, next) in carried.into_iter().zip(turn) {
            builder = builder.carry(input, next * factor);
        }
    }
    Routine::new(&builder.build()?, session)
}

/// Σ over all leaves of direct·e + f_θ·s, as output `along`.
fn along_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let pairs = [("direct", "e", &trace.lambda), ("f_theta", "s", &trace.theta)];
    let mut sum = graph.scalar(0.0, session.problem().dtype);
    for (a, b, like) in pairs {
        for (a, b) in trace.inputs_like(a, like).into_iter().zip(trace.inputs_like(b, like)) {
            sum = sum + (a * b).sum_all();
        }
    }
    Routine::new(&Program::builder(&graph).output("along", sum).build()?, session)
}

impl Prepared {
    pub(crate) fn new(session: &Session, inner: &InnerLoop) -> Result<Self> {
        Ok(Prepared {
            inner: *inner,
            start: InnerStart::new(session)?,
            start_column: start_column(session)?,
            chain: chain_program(inner, session, false)?,
            first: chain_program(inner, session, true)?,
            outer: outer_gradient(session)?,
            along: along_program(session)?,
            session: session.clone(),
        })
    }

    /// Runs the inner loop from the start with the tangent of λ along `e`; θᵀ is then in the state, and dθᵀ/dλ·e comes back.
    pub(crate) fn column(
        &mut self,
        state: &State,
        (start, e): (&Leaves, &Leaves),
        (key, gamma): (Key, f64),
        first: bool,
    ) -> Result<Leaves> {
        state.theta.copy_from(start)?;
        let chain = if first { &mut self.first } else { &mut self.chain };
        chain.bind_point(&state.lambda, &state.theta, key)?;
        let s = match &mut self.start_column {
            Some(routine) => {
                let s = chain.inputs("s")?;
                routine.bind_lambda(&state.lambda)?;
                routine.set_key(key)?;
                routine.bind("e", e)?;
                routine.bind_outputs("s", &s)?;
                routine.run(0..1)?;
                s
            }
            None => chain.zeroed("s")?,
        };
        if self.inner.has_slots() {
            chain.zeroed("r")?;
        }
        if first {
            chain.zeroed("v")?;
            growth::begin(chain)?;
        }
        self.inner.place(chain, gamma)?;
        chain.bind("e", e)?;
        chain.run(0..self.inner.steps as u32)?;
        Ok(s)
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let executor = self.session.executor();
        self.start.place(&state.lambda, &state.theta, key)?;
        let start = state.theta.duplicate(executor)?;
        let e = self.along.zeroed("e")?;
        let value = state.lambda.zeros_like(executor)?;
        let (direct, f_theta) = (self.outer.outputs("direct")?, self.outer.outputs("f_theta")?);
        self.along.bind("direct", &direct)?;
        self.along.bind("f_theta", &f_theta)?;
        let mut first = true;
        for (leaf, place) in e.iter().zip(value.iter()) {
            let mut numbers = vec![0.0; leaf.len()];
            for j in 0..numbers.len() {
                let mut one = vec![0.0; numbers.len()];
                one[j] = 1.0;
                leaf.write(&Array::from_values(leaf.shape(), &one, leaf.dtype())?)?;
                let s = self.column(state, (&start, &e), (key, gamma), first)?;
                if std::mem::take(&mut first) {
                    // θᵀ is the same for every column.
                    self.outer.bind_point(&state.lambda, &state.theta, key)?;
                    self.outer.run(self.inner.last())?;
                }
                self.along.bind("s", &s)?;
                self.along.run(0..1)?;
                numbers[j] = self.along.number("along")?;
            }
            leaf.zero()?;
            place.write(&Array::from_values(place.shape(), &numbers, place.dtype())?)?;
        }
        let steps = self.inner.steps as u64;
        let columns = state.lambda.iter().map(|l| l.len() as u64).sum::<u64>() * steps;
        let oracles = Oracles {
            inner_gradients: columns,
            outer_gradients: 1,
            hessian_products: columns + steps,
            mixed_products: columns,
            losses: 0,
        };
        let mut found = Hypergradient::new(value, oracles).with_outer_loss(self.outer.number("outer")?);
        let plain = (!self.inner.has_slots()).then_some(gamma);
        growth::read(&self.first, plain, &mut found.diagnostics)?;
        Ok(found)
    }
}
