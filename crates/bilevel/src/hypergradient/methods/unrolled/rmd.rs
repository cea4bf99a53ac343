//! Reverse-mode differentiation through the unrolled inner loop, exact for that loop.
//!
//!   θᵗ⁺¹ = θᵗ − γ·∇θL_T(θᵗ) + κ·√(2τγ)·ξᵗ,   t = 0 … T−1
//!   h = f_λ(θᵀ),  a = f_θ(θᵀ)
//!   for t = T−1 … 0:   h ← h − γ·aᵀ·C(θᵗ),   a ← a − γ·H(θᵗ)·a      (one reverse pass over ⟨∇θL_T, a⟩)
//!   h ← h + aᵀ·J0
//!
//! Every step draws with its own counter, so noise and minibatches are the same when a stretch is run again. With θ⁰ = λ
//! this is MAML.

use crate::hypergradient::vocabulary::*;
use crate::inner::growth;
use crate::inner::walk::{InnerStart, SLOTS, add_through_start, outer_gradient, through_start};
use bilevel_graph::{gradient, vjp};

/// The storage of the inner loop in reverse mode.
///
/// ```
/// use bilevel::InnerLoop;
/// use bilevel::methods::{Rmd, Storage};
/// // Ten thousand steps in the memory of two hundred.
/// let (method, inner) = (Rmd { storage: Storage::Checkpoints }, InnerLoop::new(0.01, 10_000));
/// assert_eq!(method.storage, Storage::Checkpoints);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Storage {
    /// Every θ: memory O(T).
    #[default]
    All,
    /// A θ at every √T-th step, with the steps between two of them recomputed: memory O(√T), less than twice the inner
    /// gradients, the same result to the bit.
    Checkpoints,
    /// Only the last K steps are differentiated, K at least 1: memory O(K). The hypergradient ignores the earlier steps
    /// and θ⁰(λ). K of T or more is exact.
    Truncated(usize),
}

/// Settings of reverse mode.
///
/// ```
/// use bilevel::methods::Rmd;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // One step from θ = 0 on ½(θ−λ)² goes to γλ, and f = θ there.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let (method, inner) = (Rmd::default(), InnerLoop::new(0.25, 1));
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = method.prepare_in(&session, &inner).unwrap();
/// let mut state = session.state(Key::from_seed(0)).unwrap();
/// let h = estimator.estimate(&mut state, Key::from_seed(0)).unwrap();
/// assert_eq!(h.value[0].item().unwrap(), 0.25);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rmd {
    /// The storage of the inner loop.
    pub storage: Storage,
}

/// Reverse mode prepared for one problem: an [`Estimator`] that also reports its memory of the inner loop.
///
/// ```
/// use bilevel::methods::{Rmd, Storage};
/// use bilevel::{Cpu, Estimator, InnerLoop, Key, Leaf, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([5], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square().sum_all())
///     .outer(|_, _, t| t.0.sum_all())
///     .build()
///     .unwrap();
/// let (method, inner) = (Rmd { storage: Storage::Checkpoints }, InnerLoop::new(0.01, 900));
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut rmd = method.prepare_rmd(&session, &inner).unwrap();
/// rmd.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0), inner.step).unwrap();
/// assert_eq!(rmd.stored_bytes(), (30 + 30) * 5 * 8);
/// ```
pub struct PreparedRmd {
    settings: Rmd,
    inner: InnerLoop,
    session: Session,
    start: InnerStart,
    forward: Routine,
    outer: Routine,
    backward: Routine,
    through: Option<Routine>,
    /// θ at the first step of every stretch, and at every step of the stretch being walked back.
    marks: Vec<Leaves>,
    tape: Vec<Leaves>,
    /// θ and the optimizer's state in the forward pass.
    work: Leaves,
}

impl Rmd {
    /// First of so many steps walked back, and the length of the stretches from there on.
    fn stretches(&self, steps: usize) -> (usize, usize) {
        match self.storage {
            Storage::All => (0, steps),
            Storage::Checkpoints => {
                let root = steps.isqrt();
                (0, if root * root < steps { root + 1 } else { root })
            }
            Storage::Truncated(last) => (steps.saturating_sub(last), last.min(steps)),
        }
    }

    /// As [`Method::compile`], with the type that tells its memory.
    pub fn prepare_rmd(&self, session: &Session, inner: &InnerLoop) -> Result<PreparedRmd> {
        inner.check_for(self)?;
        if let Storage::Truncated(last) = self.storage {
            require(last > 0, "storage", last, "Truncated to at least 1 step")?;
        }
        let problem = session.problem();
        let theta_bytes = problem.sizes().1 as u128 * problem.dtype.size() as u128;
        let held =
            theta_bytes * if self.storage == Storage::Checkpoints { 0 } else { self.stretches(inner.steps).1 as u128 };
        let must = "few enough to store θ of every step in memory; otherwise set storage to checkpoints, which stores \
            √T of them";
        require(
            session.executor().free_bytes().is_none_or(|free| held <= free as u128),
            "steps",
            inner.steps as f64,
            must,
        )?;
        let reaches_start = self.stretches(inner.steps).0 == 0;
        Ok(PreparedRmd {
            settings: *self,
            inner: *inner,
            session: session.clone(),
            start: InnerStart::new(session)?,
            forward: inner.walk(session)?,
            outer: outer_gradient(session)?,
            backward: backward_program(inner, session)?,
            through: if reaches_start { through_start(session)? } else { None },
            marks: vec![],
            tape: vec![],
            work: Leaves::default(),
        })
    }
}

impl Method for Rmd {
    named!("rmd");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(self.prepare_rmd(session, inner)?))
    }

    fn claims(&self) -> Claims {
        Claims { training: true, minimum: true, singular: true, minibatches: true, ..Claims::default() }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

/// One backward step through θ and the optimizer's state: with Φ the step, (h, a, b) ← (h, 0, 0) + (a, b)ᵀ·∂Φ/∂(λ, θ,
/// slots). For plain descent that is h ← h − γ·aᵀ·C, a ← a − γ·H·a.
fn backward_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta) = (&trace.lambda, &trace.theta);
    let InnerLoss { loss, updates } = trace.inner_loss(theta, graph.step())?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let step = inner.one_step(&trace, &slope, &updates, graph.step());
    let (slots, slots_next): (Vec<Tensor>, Vec<Tensor>) = step.slots.iter().copied().unzip();
    let (h, a) = (trace.inputs_like("h", lambda), trace.inputs_like("a", theta));
    let b = trace.inputs_like("b", &slots);
    let from = [&lambda[..], theta, &slots].concat();
    let back = or_zeros(vjp(&[step.next(), slots_next].concat(), &[&a[..], &b].concat(), &from)?, &from);
    let mut builder = Program::builder(&graph);
    for &input in theta.iter().chain(&slots) {
        builder = builder.keep_input(input);
    }
    let (by_lambda, rest) = back.split_at(lambda.len());
    for i in 0..lambda.len() {
        builder = builder.carry(h[i], h[i] + by_lambda[i]);
    }
    let all = [&a[..], &b].concat();
    let counts = graph.scalar(1.0, DType::F64);
    builder = growth::carry(builder, &trace, growth::stretch_to(&trace, &a, rest), counts);
    for (input, next) in all.iter().zip(rest) {
        builder = builder.carry(*input, *next);
    }
    Routine::new(&builder.build()?, session)
}

/// Splits a list into θ and the optimizer's state.
fn parts(all: &Leaves, theta: usize) -> (Leaves, Leaves) {
    let (theta, slots) = all.split_at(theta);
    (theta.iter().cloned().collect(), slots.iter().cloned().collect())
}

impl PreparedRmd {
    /// Bytes of all θ it holds to walk back: 0 before the first estimate, and then the most it ever held.
    pub fn stored_bytes(&self) -> usize {
        self.marks.iter().chain(&self.tape).flat_map(|leaves| leaves.iter()).map(|leaf| leaf.byte_count()).sum()
    }

    /// Fills the tape with θ of every step of a stretch, from the mark at its first; also makes the last step if θᵀ is
    /// needed. Returns the number of steps made.
    fn record(&mut self, mark: usize, from: usize, to: usize, finish: bool) -> Result<usize> {
        while self.tape.len() < to - from {
            self.tape.push(self.marks[mark].zeros_like(self.session.executor())?);
        }
        self.work.copy_from(&self.marks[mark])?;
        for t in from..to {
            self.tape[t - from].copy_from(&self.work)?;
            if t + 1 < to || finish {
                self.forward.run(t as u32..t as u32 + 1)?;
            }
        }
        Ok(to - from - 1 + finish as usize)
    }
}

impl Estimator for PreparedRmd {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let steps = self.inner.steps;
        let (first, length) = self.settings.stretches(steps);
        let starts: Vec<usize> = (first..steps).step_by(length).collect();

        let executor = self.session.executor();
        let leaves = state.theta.len();
        self.inner.place(&mut self.forward, gamma)?;
        self.inner.place(&mut self.backward, gamma)?;
        if self.work.is_empty() {
            let slots = if self.inner.has_slots() { self.forward.inputs(SLOTS)? } else { Leaves::default() };
            self.work = state.theta.zeros_like(executor)?.iter().chain(slots.iter()).cloned().collect();
        }
        let (theta, slots) = parts(&self.work, leaves);
        self.start.place(&state.lambda, &state.theta, key)?;
        theta.copy_from(&state.theta)?;
        slots.zero()?;
        self.forward.bind_point(&state.lambda, &theta, key)?;
        if self.inner.has_slots() {
            self.forward.bind(SLOTS, &slots)?;
            self.backward.zeroed("b")?;
        }
        self.forward.run(0..first as u32)?;
        let mut made = first;
        for (mark, &from) in starts.iter().enumerate() {
            if self.marks.len() == mark {
                self.marks.push(self.work.zeros_like(executor)?);
            }
            self.marks[mark].copy_from(&self.work)?;
            if mark + 1 < starts.len() {
                self.forward.run(from as u32..(from + length) as u32)?;
                made += length;
            }
        }

        let mut outer_loss = f64::NAN;
        self.backward.bind_lambda(&state.lambda)?;
        self.backward.set_key(key)?;
        // The backward pass starts from the derivatives of f and overwrites them.
        let (mut value, a) = (self.outer.fresh_outputs("direct")?, self.outer.outputs("f_theta")?);
        self.backward.bind("h", &value)?;
        self.backward.bind("a", &a)?;
        growth::begin(&mut self.backward)?;
        for (mark, &from) in starts.iter().enumerate().rev() {
            let (to, last) = ((from + length).min(steps), mark + 1 == starts.len());
            made += self.record(mark, from, to, last)?;
            if last {
                state.theta.copy_from(&theta)?;
                self.outer.bind_point(&state.lambda, &state.theta, key)?;
                self.outer.run(self.inner.last())?;
                outer_loss = self.outer.number("outer")?;
            }
            for t in (from..to).rev() {
                let (theta, slots) = parts(&self.tape[t - from], leaves);
                self.backward.bind_theta(&theta)?;
                if self.inner.has_slots() {
                    self.backward.bind(SLOTS, &slots)?;
                }
                self.backward.run(t as u32..t as u32 + 1)?;
            }
        }
        self.backward.unbind("h")?;
        if let Some(through) = &mut self.through {
            value = add_through_start(through, (&state.lambda, key), &value, &a)?;
        }
        let back = (steps - first) as u64;
        let oracles = Oracles {
            inner_gradients: made as u64,
            outer_gradients: 1,
            hessian_products: back,
            mixed_products: back,
            losses: 0,
        };
        let mut found = Hypergradient::new(value, oracles).with_outer_loss(outer_loss).blaming(Cause::AdjointGrowing);
        let plain = (!self.inner.has_slots()).then_some(gamma);
        growth::read(&self.backward, plain, &mut found.diagnostics)?;
        Ok(found)
    }
}
