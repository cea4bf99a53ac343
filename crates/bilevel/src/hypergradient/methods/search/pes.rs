//! Persistent evolution strategies (Vicol, Metz and Sohl-Dickstein, "Unbiased gradient estimation in unrolled computation graphs with
//! persistent evolution strategies", ICML 2021): evolutionary search window by window, without the bias of truncation.
//!
//!   every hypergradient is one window of K steps, and W windows are a training
//!   z ~ N(0, I),   a ← a + z,   θ± ← K steps from θ± at λ ± σz        for each of N pairs, which keep a and θ± between windows
//!   h = mean over pairs of a·\[f(θ⁺) − f(θ⁻)\]/(2σ)
//!   after W windows all θ return to the start of training, and a to 0
//!
//! The sum a over the perturbations of all windows so far accounts for the effect of λ in earlier windows, which
//! evolutionary search from one θ per window misses. For a fixed λ, the mean of h over the windows of a training is
//! unbiased. It estimates the derivative of f, averaged over the ends of the windows and smoothed by σ. It needs no
//! derivative with respect to λ. Its variance grows with the number of windows.
//! Pairs are shared out over ranks.

use crate::compiled::shares::Shares;
use crate::hypergradient::methods::search::es::{directions, ending_program, move_program, sums};
use crate::hypergradient::parts::warm::{Kept, each};
use crate::hypergradient::paths::must_have_outer_loss;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{not_applicable, outer_loss};

/// Settings of persistent evolution strategies.
///
/// ```
/// use bilevel::methods::Pes;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // Two windows of a step of ½ from θ = 0 end at λ/2 and 3λ/4, whose mean has the derivative 5/8.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Pes { windows: 2, directions: 1000, ..Pes::default() }.prepare_in(&session, &InnerLoop::new(0.5, 1))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let mut window = |seed| estimator.estimate(&mut state, Key::from_seed(seed))?.value[0].item().map_err(bilevel::Error::from);
/// assert!(((window(1)? + window(2)?) / 2.0 - 0.625).abs() < 0.1);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pes {
    /// Size of a perturbation σ, above 0.
    pub sigma: f64,
    /// Pairs N, at least 1.
    pub directions: usize,
    /// Windows W of a training, at least 1; with 1 it is evolutionary search.
    pub windows: usize,
}

impl Default for Pes {
    fn default() -> Self {
        Pes { sigma: 0.001, directions: 20, windows: 5 }
    }
}

struct Prepared {
    settings: Pes,
    inner: InnerLoop,
    forward: Routine,
    outer: Routine,
    moving: Routine,
    gather: Routine,
    ending: Routine,
    /// θ at the start of training, θ± of all pairs, a of all pairs, and the windows so far.
    warm: Warm<4>,
    shares: Shares,
}

impl Method for Pes {
    named!("pes");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        let Pes { sigma, directions, windows } = *self;
        positive("sigma", sigma)?;
        require((1..=u32::MAX as usize).contains(&directions), "directions", directions, "at least 1 and below 2³²")?;
        count("windows", windows, 1)?;
        inner.check_for(self)?;
        self.applies(session.problem())?;
        let groups = [Like::Theta, Like::ManyTheta(2 * directions), Like::ManyLambda(directions), Like::Number];
        let (shares, session) = &Shares::new(directions, session);
        Ok(Box::new(Prepared {
            settings: *self,
            inner: *inner,
            shares: shares.clone(),
            forward: inner.walk(session)?,
            outer: outer_loss(session)?,
            moving: move_program(session)?,
            gather: gather_program(session)?,
            ending: ending_program(directions, session)?,
            warm: Warm::new(session, groups),
        }))
    }

    /// It uses no derivative with respect to λ, so none need exist.
    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        if problem.starts_from_lambda() {
            let reason = "it continues from the last window, but here training starts from λ for every hypergradient; \
                use es, whose only window is the whole training";
            return not_applicable(self.name(), reason);
        }
        must_have_outer_loss(self.name(), problem)
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { any_optimizer: false, windows: self.windows, ..LoopUse::PLAIN }
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 20)
    }

    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        InnerLoop { steps: task.steps.div_ceil(self.windows.max(1)), ..self.loop_use().adapt(task) }
    }

    fn converge(&mut self, _: &Scale) {
        self.directions = Scale::DIRECTIONS;
    }

    fn claims(&self) -> Claims {
        Claims { training: true, minimum: true, singular: true, minibatches: true, ..Claims::default() }
    }
}

/// a ← a + z with the direction of the step's number, and slope·a and its square added to the sums.
fn gather_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let slope = graph.input("slope.0", [], DType::F64);
    let [sum, square] = sums(&trace);
    let mut builder = Program::builder(&graph);
    for (i, (a, z)) in trace.inputs_like("a", &trace.lambda).into_iter().zip(directions(&trace)).enumerate() {
        let next = a.convert(DType::F64) + z;
        let sample = slope * next;
        builder = builder.carry(a, next.convert(a.dtype()));
        builder = builder.carry(sum[i], sum[i] + sample).carry(square[i], square[i] + sample * sample);
    }
    Routine::new(&builder.build()?, session)
}

impl Prepared {
    /// f after one window from this θ, which is left at its end.
    fn window(&mut self, lambda: &Leaves, theta: &Leaves, (key, gamma): (Key, f64)) -> Result<f64> {
        self.inner.place(&mut self.forward, gamma)?;
        self.forward.bind_point(lambda, theta, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        self.outer.bind_point(lambda, theta, key)?;
        self.outer.run(self.inner.last())?;
        self.outer.number("outer")
    }

    /// Resets all θ to the start of a training.
    fn begin(&self, state: &State, kept: &Kept<4>, origin: &Leaves) -> Result<()> {
        let [_, pairs, a, _] = &kept.groups;
        state.theta.copy_from(origin)?;
        each(pairs, origin).iter().try_for_each(|theta| theta.copy_from(origin))?;
        a.zero()
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let Pes { sigma, directions, windows } = self.settings;
        let kept = self.warm.of(state)?;
        let [origin, pairs, a, so_far] = &kept.groups;
        let done = number(so_far)?;
        if kept.fresh {
            origin.copy_from(&state.theta)?;
        }
        if done % windows as f64 == 0.0 {
            self.begin(state, &kept, origin)?;
        }
        let (sum, square) = (self.gather.zeroed("sum")?, self.gather.zeroed("square")?);
        self.gather.set_key(key)?;
        self.moving.set_key(key)?;
        self.moving.bind_lambda(&state.lambda)?;
        let moved = self.moving.outputs("moved")?;
        let particles = each(pairs, &state.theta);
        let slopes = self.shares.clone().numbers_of(|sample| {
            let mut ends = [0.0; 2];
            for ((end, theta), by) in ends.iter_mut().zip(&particles[2 * sample..]).zip([sigma, -sigma]) {
                self.moving.set_numbers("by", [by])?;
                self.moving.run(sample as u32..sample as u32 + 1)?;
                *end = self.window(&moved, theta, (key, gamma))?;
            }
            Ok([(ends[0] - ends[1]) / (2.0 * sigma)])
        })?;
        self.shares.fill(&each(pairs, &particles.iter().take(2).flat_map(|theta| theta.iter().cloned()).collect()))?;
        for (sample, (slope, a)) in (0..).zip(slopes.into_iter().zip(each(a, &state.lambda))) {
            self.gather.bind("a", &a)?;
            self.gather.set_numbers("slope", slope)?;
            self.gather.run(sample..sample + 1)?;
        }
        self.ending.bind("sum", &sum)?;
        self.ending.bind("square", &square)?;
        let (value, error) = (self.ending.fresh_outputs("mean")?, self.ending.fresh_outputs("error")?);
        self.ending.run(0..1)?;
        let outer_loss = self.window(&state.lambda.clone(), &state.theta.clone(), (key, gamma))?;
        self.shares.as_on_the_first(&state.theta)?;
        set_number(so_far, done + 1.0)?;
        let loops = 2 * directions as u64 + 1;
        let oracles = Oracles { inner_gradients: loops * self.inner.steps as u64, losses: loops, ..Oracles::default() };
        let found = Hypergradient::new(value, oracles).with_outer_loss(outer_loss);
        let standard_error = (directions > 1).then_some(error);
        Ok(Hypergradient { standard_error, ..found.blaming(Cause::SearchTooWide) })
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        let kept = self.warm.of(state)?;
        kept.groups[0].copy_from(theta)?;
        set_number(&kept.groups[3], 0.0)?;
        state.theta.copy_from(theta)
    }
}
