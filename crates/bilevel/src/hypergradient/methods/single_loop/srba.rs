//! SRBA (Dagréou, Moreau, Vaiter and Ablin, "A lower bound and a near-optimal algorithm for bilevel empirical risk minimization",
//! AISTATS 2024): SOBA whose directions are corrected by differences, as in SARAH.
//!
//!   D = (∇θL_T, H·v − f_θ, f_λ − vᵀ·C) at u = (λ, θ, v)
//!   every p steps: D of all minibatches;   else D ← D + D_ij(u) − D_ij(u of the step before), with one draw of minibatches i and j
//!   h = D_λ,   θ ← θ − γ·D_θ,   v ← v − γ·D_v,   T times
//!
//! It needs no table, only θ, v, D and u of the step before. As λ, θ and v settle, differences go to 0 and with them
//! the variance of the estimates. It applies if both losses draw their rows from [epochs](crate::Scope::epochs), or
//! draw nothing.

use crate::hypergradient::parts::minibatches::Minibatches;
use crate::hypergradient::parts::penalty::carry;
use crate::hypergradient::parts::single_loop::{Products, step_of_v};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;

/// Settings of SRBA.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::Srba;
/// use bilevel::{Array, Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) is λ times the mean of x, 2.5; f = ½θ², so the hypergradient is 6.25λ whatever the minibatches.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .data("x", Array::from_f64([4], vec![1.0, 2.0, 3.0, 4.0])?)
///     .inner(|s, l, t| (t.0 - l.0 * s.data("x").take(s.epochs(4, 1))).square().mean_all() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Srba { period: 8 }.prepare_in(&session, &InnerLoop::new(0.2, 10))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let found = (0..50).map(|k| estimator.estimate(&mut state, Key::from_seed(k))).last().unwrap()?;
/// assert!((found.value[0].item()? - 12.5).abs() < 1e-9);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Srba {
    /// Steps p between passes over all minibatches; 0, the default, for the number of minibatches of both losses.
    pub period: usize,
}

struct Prepared {
    inner: InnerLoop,
    period: usize,
    minibatches: Minibatches,
    start: InnerStart,
    by_inner: Routine,
    by_outer: Routine,
    moving: Routine,
    /// v, D of θ, of v and of λ, the θ, v and λ of the step before, and the steps so far.
    warm: Warm<8>,
}

/// The groups of D.
const DIRECTION: [&str; 3] = ["d_theta", "d_v", "d_lambda"];

impl Method for Srba {
    named!("srba");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let minibatches = Minibatches::of(self.name(), session.problem())?;
        let (theta, lambda) = (Like::Theta, Like::Lambda);
        Ok(Box::new(Prepared {
            inner: *inner,
            period: if self.period == 0 { minibatches.inner + minibatches.outer } else { self.period },
            minibatches,
            start: InnerStart::new(session)?,
            by_inner: part_program(session, true)?,
            by_outer: part_program(session, false)?,
            moving: moving_program(inner, session)?,
            warm: Warm::new(session, [theta, theta, theta, lambda, theta, theta, lambda, Like::Number]),
        }))
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        Minibatches::of(self.name(), problem).map(|_| ())
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 1)
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, minibatches: true, ..Claims::default() }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

/// Adds `weight.0` times the estimate of the minibatch `batch.0` of one loss to D; the loss itself is an output.
fn part_program(session: &Session, inner: bool) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let v = trace.inputs_like("v", &trace.theta);
    let likes = [&trace.theta, &trace.theta, &trace.lambda];
    let [d_theta, d_v, d_lambda] = std::array::from_fn(|i| trace.inputs_like(DIRECTION[i], likes[i]));
    let batch = graph.input("batch.0", [], DType::I32);
    let weight = graph.input("weight.0", [], session.problem().dtype);
    let found = Products::new(&trace, &v, (batch, batch))?;
    let mut builder = Program::builder(&graph).keep_input(batch);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    // H·v − f_θ and f_λ − vᵀ·C: each loss has its part.
    let parts = match inner {
        true => vec![(&d_theta, &found.slope, 1.0), (&d_v, &found.hessian, 1.0), (&d_lambda, &found.mixed, -1.0)],
        false => vec![(&d_v, &found.f_theta, -1.0), (&d_lambda, &found.f_lambda, 1.0)],
    };
    for (d, said, sign) in parts {
        for (d, said) in d.iter().zip(said) {
            builder = builder.carry(*d, *d + *said * (weight * sign));
        }
    }
    Routine::new(&builder.build()?, session)
}

/// θ and v move along D; a copy of the part of λ is h.
fn moving_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let v = trace.inputs_like("v", &trace.theta);
    let likes = [&trace.theta, &trace.theta, &trace.lambda];
    let [d_theta, d_v, d_lambda] = std::array::from_fn(|i| trace.inputs_like(DIRECTION[i], likes[i]));
    let none = vec![None; d_theta.len()];
    let mut builder = inner.one_step(&trace, &d_theta, &none, graph.step()).carry(Program::builder(&graph));
    builder = carry(builder, &v, &step_of_v(&trace, &v, &d_v));
    for (i, d) in d_lambda.into_iter().enumerate() {
        builder = builder.output(format!("h.{i}"), d);
    }
    Routine::new(&builder.build()?, session)
}

impl Prepared {
    /// Adds this factor times the estimate of a minibatch of each loss at (λ, θ, v); `None` adds nothing.
    fn add(&mut self, at: [&Leaves; 3], batches: [Option<usize>; 2], weights: [f64; 2]) -> Result<()> {
        let [lambda, theta, v] = at;
        for ((routine, batch), weight) in [&mut self.by_inner, &mut self.by_outer].into_iter().zip(batches).zip(weights)
        {
            let Some(batch) = batch else { continue };
            routine.bind_point(lambda, theta, Minibatches::key())?;
            routine.bind("v", v)?;
            routine.set_numbers("batch", [batch as f64])?;
            routine.set_numbers("weight", [weight])?;
            routine.run(0..1)?;
        }
        Ok(())
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let [v, d_theta, d_v, d_lambda, theta_before, v_before, lambda_before, so_far] = self.warm.of(state)?.groups;
        self.start.place(&state.lambda, &state.theta, key)?;
        let d = [d_theta, d_v, d_lambda];
        for (name, d) in DIRECTION.iter().zip(&d) {
            self.moving.bind(name, d)?;
            self.by_inner.bind(name, d)?;
        }
        self.by_outer.bind(DIRECTION[1], &d[1])?;
        self.by_outer.bind(DIRECTION[2], &d[2])?;
        let (n, m) = (self.minibatches.inner, self.minibatches.outer);
        let (mut inner_looks, mut outer_looks) = (0, 0);
        let mut done = number(&so_far)?;
        let here = [&state.lambda, &state.theta, &v];
        let before = [&lambda_before, &theta_before, &v_before];
        self.inner.place(&mut self.moving, gamma)?;
        self.moving.bind_point(&state.lambda, &state.theta, key)?;
        self.moving.bind("v", &v)?;
        let value = self.moving.fresh_outputs("h")?;
        for step in 0..self.inner.steps as u32 {
            if done % self.period as f64 == 0.0 {
                d.iter().try_for_each(Leaves::zero)?;
                let shares = [1.0 / n as f64, 1.0 / m as f64];
                for number in 0..n.max(m) {
                    self.add(here, [n, m].map(|count| (number < count).then_some(number)), shares)?;
                }
                (inner_looks, outer_looks) = (inner_looks + n, outer_looks + m);
            } else {
                let batches = self.minibatches.draw(key, step).map(Some);
                self.add(before, batches, [-1.0; 2])?;
                self.add(here, batches, [1.0; 2])?;
                (inner_looks, outer_looks) = (inner_looks + 2, outer_looks + 2);
            }
            for (before, here) in before.iter().zip(here) {
                before.copy_from(here)?;
            }
            self.moving.run(step..step + 1)?;
            done += 1.0;
        }
        set_number(&so_far, done)?;
        let oracles = Oracles {
            inner_gradients: inner_looks as u64,
            outer_gradients: outer_looks as u64,
            hessian_products: inner_looks as u64,
            mixed_products: inner_looks as u64,
            losses: 0,
        };
        Ok(Hypergradient::new(value, oracles).blaming(Cause::AdjointGrowing))
    }
}
