//! Several independent chains in one hypergradient, run side by side and averaged.
//!
//!   h = (1/K)·Σₖ hₖ,  standard error of each number = √( Σₖ (hₖ − h)² / (K·(K−1)) )
//!
//! Each chain has its own θ, its own memory and its own noise; all see the same λ. If several ranks compute together
//! and there is a chain for each, every rank runs some of the chains alone. The states and hypergradients of all chains
//! go to all ranks.

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::shares::Shares;
use crate::compiled::state::State;
use crate::compiled::trace::Trace;
use crate::error::require;
use crate::health::diagnostics::Diagnostics;
use crate::health::final_losses::FinalLosses;
use crate::health::probe::PreparedMethod;
use crate::hypergradient::forwarding::forward_answers;
use crate::hypergradient::loop_use::{LoopUse, Output};
use crate::hypergradient::paths::Path;
use crate::hypergradient::registry::all;
use crate::hypergradient::scale::Scale;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Oracles};
use crate::inner::inner_loop::InnerLoop;
use crate::methods::claims::Claims;
use crate::problem::AnyProblem;
use crate::{Error, Result};
use bilevel_graph::{DType, Executor, Graph, Meta, Program, Tensor};
use std::time::{Duration, Instant};

/// Runs a method several times, with independent noise, and averages.
///
/// ```
/// use bilevel::methods::{Chains, LangevinAdjoint};
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .build()?;
/// let method = Chains::new(LangevinAdjoint::default(), 8);
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session, &InnerLoop::default().at_temperature(0.1))?;
/// let mut state = session.state(Key::from_seed(1))?;
/// let h = estimator.estimate(&mut state, Key::from_seed(2))?;
/// assert!(h.standard_error.unwrap()[0].item().unwrap() > 0.0);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chains<M> {
    /// The method each chain runs.
    pub method: M,
    /// Number of chains, at least 2.
    pub count: usize,
}

impl<M> Chains<M> {
    /// This many chains of a method.
    pub fn new(method: M, count: usize) -> Self {
        Chains { method, count }
    }
}

/// Chains that take less than this together are not worth a thread.
const BRIEF: Duration = Duration::from_micros(300);

struct Prepared {
    session: Session,
    averaging: Routine,
    count: usize,
    /// Those that this rank runs.
    chains: Vec<FinalLosses>,
    shares: Shares,
    workers: usize,
    /// The last call took no longer than it takes to start threads.
    brief: bool,
}

#[deny(clippy::missing_trait_methods)]
impl<M: Method> Method for Chains<M> {
    /// "chains of rmd" and the like, which no method of the command line is named; for a user's own method, "chains".
    fn name(&self) -> &'static str {
        all().iter().find(|info| info.name == self.method.name()).map_or("chains", |info| info.in_chains)
    }

    fn settings(&self) -> SettingsRecord {
        self.method.settings().with("chains", self.count)
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        require(self.count >= 2, "count", self.count, "at least 2")?;
        let (shares, own) = Shares::new(self.count, session);
        let chains = shares.own().map(|_| FinalLosses::new(&self.method, &own, inner)).collect::<Result<_>>()?;
        let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let averaging = average_program(self.count, session)?;
        let (session, count) = (session.clone(), self.count);
        Ok(Box::new(Prepared { session, averaging, count, chains, shares, workers, brief: false }))
    }

    // Chains are diagnosed as one method, independently of the diagnosis of their method alone.
    fn prepare(&self, problem: &AnyProblem, executor: &dyn Executor, inner: &InnerLoop) -> Result<PreparedMethod> {
        self.prepare_in(&Session::new(problem, executor)?, inner)
    }

    fn prepare_in(&self, session: &Session, inner: &InnerLoop) -> Result<PreparedMethod> {
        // Each chain reduces its own γ.
        let all = FinalLosses::around(self.compile(session, inner)?, inner.steps, session)?;
        PreparedMethod::around(self, all, session, inner)
    }

    forward_answers!(self => self.method, self.method);
}

/// The first chain draws as the method alone would.
fn chain_key(key: Key, number: usize) -> Key {
    if number == 0 { key } else { key.fold_in(number as u32) }
}

/// The type and shape of the label at the head of the memory, which identifies its owner: an empty array of shape
/// \[chains, leaves of memory of each, 0\].
fn label(chains: usize, memory: usize) -> Meta {
    Meta { dtype: DType::I32, shape: vec![chains, memory, 0] }
}

/// The state of each chain. The first chain's θ is the state's own. The others are in the state's memory after the
/// label, chain by chain, so that a checkpoint of the state covers all chains. Before the first call all have the same
/// start. A state of a single method, or of another number of chains, is refused, because its leaves might fit by
/// accident.
fn split(state: &State, chains: usize, executor: &dyn Executor) -> Result<Vec<State>> {
    let leaves = state.theta.len();
    let Some((head, rest)) = state.memory.split_first() else {
        let alike = |chain: usize| {
            let theta = if chain == 0 { state.theta.clone() } else { state.theta.duplicate(executor)? };
            Ok(State { lambda: state.lambda.clone(), theta, memory: Leaves::default() })
        };
        return (0..chains).map(alike).collect();
    };
    let memory = rest.len().saturating_sub((chains - 1) * leaves) / chains;
    let whole = rest.len() == (chains - 1) * leaves + chains * memory;
    if *head.meta() != label(chains, memory) || !whole {
        let reason = format!("this state is not from {chains} chains; start with State::initial");
        return Err(Error::ForeignState { reason });
    }
    let mut rest = rest.iter();
    let mut take = |count: usize| rest.by_ref().take(count).cloned().collect::<Leaves>();
    let states = (0..chains)
        .map(|chain| State {
            lambda: state.lambda.clone(),
            theta: if chain == 0 { state.theta.clone() } else { take(leaves) },
            memory: take(memory),
        })
        .collect();
    Ok(states)
}

fn join(state: &mut State, chains: &[State], executor: &dyn Executor) -> Result<()> {
    let mut memory = vec![executor.buffer(&label(chains.len(), chains[0].memory.len()))?];
    for (number, chain) in chains.iter().enumerate() {
        if number > 0 {
            memory.extend(chain.theta.iter().cloned());
        }
        memory.extend(chain.memory.iter().cloned());
    }
    state.memory = memory.into_iter().collect();
    Ok(())
}

/// Mean and standard error of the chains' hypergradients `h<chain>.<leaf>`, as outputs `mean` and `error`.
fn average_program(chains: usize, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let all: Vec<Vec<Tensor>> = (0..chains).map(|k| trace.inputs_like(&format!("h{k}"), &trace.lambda)).collect();
    let count = chains as f64;
    let mut builder = Program::builder(&graph);
    for i in 0..trace.lambda.len() {
        let zero = trace.lambda[i].zeros_like();
        let mean = all.iter().fold(zero, |sum, h| sum + h[i]) / count;
        let spread = all.iter().fold(zero, |sum, h| sum + (h[i] - mean).square());
        builder = builder.output(format!("mean.{i}"), mean);
        builder = builder.output(format!("error.{i}"), (spread / (count * (count - 1.0))).sqrt());
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let executor = self.session.executor().share();
        let mut states = split(state, self.count, &*executor)?;
        let own = self.shares.own();
        let found = self.run(&mut states[own.clone()], own.start, (key, gamma));
        let found = self.shares.agree(found)?;
        self.exchange(&mut states, &*executor)?;
        join(state, &states, &*executor)?;
        let found = exchanged(found, &states, &self.shares, &*executor)?;
        self.average(&found)
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        let executor = self.session.executor().share();
        let mut states = split(state, self.count, &*executor)?;
        let own = self.shares.own();
        let restart = |(chain, state): (&mut FinalLosses, &mut State)| chain.restart(state, theta);
        self.shares.agree(self.chains.iter_mut().zip(&mut states[own]).try_for_each(restart))?;
        self.exchange(&mut states, &*executor)?;
        join(state, &states, &*executor)
    }
}

/// Numbers of a hypergradient in addition to its value: losses, oracles, and diagnostics, each with a mark of its
/// presence.
const NUMBERS: usize = 27;

fn numbers(h: &Hypergradient) -> [f64; NUMBERS] {
    let Oracles { inner_gradients, outer_gradients, hessian_products, mixed_products, losses } = h.oracles;
    let counts = [inner_gradients, outer_gradients, hessian_products, mixed_products, losses].map(|n| n as f64);
    let seen = seen(&mut h.diagnostics.clone()).map(|seen| *seen);
    let mut all = [h.inner_loss, h.outer_loss].into_iter().chain(counts);
    let mut seen = seen.iter().flat_map(|seen| [f64::from(u8::from(seen.is_some())), seen.unwrap_or(0.0)]);
    std::array::from_fn(|_| all.next().or_else(|| seen.next()).unwrap_or(0.0))
}

/// The diagnostics of the chains themselves.
fn seen(d: &mut Diagnostics) -> [&mut Option<f64>; 10] {
    [
        &mut d.adjoint_norm,
        &mut d.adjoint_growth,
        &mut d.trust_exits,
        &mut d.growth_rate,
        &mut d.growth_steps,
        &mut d.calm_step,
        &mut d.reduced_step,
        &mut d.effective_samples,
        &mut d.solve_residual,
        &mut d.least_curvature,
    ]
}

fn of_numbers(value: Leaves, numbers: &[f64; NUMBERS]) -> Hypergradient {
    let [inner_gradients, outer_gradients, hessian_products, mixed_products, losses] =
        std::array::from_fn(|i| numbers[2 + i] as u64);
    let oracles = Oracles { inner_gradients, outer_gradients, hessian_products, mixed_products, losses };
    let mut h = Hypergradient::new(value, oracles).with_inner_loss(numbers[0]).with_outer_loss(numbers[1]);
    for (seen, pair) in seen(&mut h.diagnostics).into_iter().zip(numbers[7..].as_chunks::<2>().0) {
        *seen = (pair[0] != 0.0).then_some(pair[1]);
    }
    h
}

/// The hypergradients of all chains, from those that this rank ran.
fn exchanged(
    found: Vec<Hypergradient>,
    states: &[State],
    shares: &Shares,
    executor: &dyn Executor,
) -> Result<Vec<Hypergradient>> {
    if !shares.is_shared_out() {
        return Ok(found);
    }
    let (own, blame) = (shares.own(), found[0].blame);
    let value = |chain: usize| match own.contains(&chain) {
        true => Ok(found[chain - own.start].value.clone()),
        false => states[chain].lambda.zeros_like(executor),
    };
    let values: Vec<Leaves> = (0..states.len()).map(value).collect::<Result<_>>()?;
    shares.fill(&values)?;
    let numbers = shares.numbers(found.iter().map(numbers).collect())?;
    Ok(values.into_iter().zip(&numbers).map(|(value, numbers)| of_numbers(value, numbers).blaming(blame)).collect())
}

impl Prepared {
    /// Runs the chains of this rank, of which this is the first, each from its state.
    fn run(&mut self, states: &mut [State], first: usize, (key, gamma): (Key, f64)) -> Result<Vec<Hypergradient>> {
        let began = Instant::now();
        let run = |(number, (chain, state)): (usize, (&mut FinalLosses, &mut State))| {
            chain.estimate(state, chain_key(key, first + number), gamma)
        };
        let mut work: Vec<_> = self.chains.iter_mut().zip(states).enumerate().collect();
        // Ranks that compute a chain together must take the chains in one order, and those that do not have the cores between them.
        let in_turn = self.brief || self.session.executor().link().is_some();
        let workers = if in_turn { 1 } else { self.workers.min(work.len()) };
        let share = work.len().div_ceil(workers);
        let found: Vec<Result<Hypergradient>> = std::thread::scope(|scope| {
            let mut others = vec![];
            while work.len() > share {
                let part = work.split_off(work.len() - share);
                others.push(scope.spawn(move || part.into_iter().map(run).collect::<Vec<_>>()));
            }
            let mut found: Vec<_> = work.into_iter().map(run).collect();
            for other in others.into_iter().rev() {
                // A chain that panicked would be a bug in a method; it is passed on, not hidden.
                found.extend(other.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)));
            }
            found
        });
        // This only assigns work to threads and never changes the result.
        self.brief = began.elapsed() < BRIEF;
        found.into_iter().collect()
    }

    /// Gives all ranks the states of all chains, whose memories are alike.
    fn exchange(&self, states: &mut [State], executor: &dyn Executor) -> Result<()> {
        if !self.shares.is_shared_out() {
            return Ok(());
        }
        let own = self.shares.own();
        let memory = states[own.start].memory.clone();
        for (_, state) in states.iter_mut().enumerate().filter(|(chain, _)| !own.contains(chain)) {
            if !state.memory.is_like(&memory) {
                state.memory = memory.zeros_like(executor)?;
            }
        }
        let all = |state: &State| state.theta.iter().chain(state.memory.iter()).cloned().collect();
        self.shares.fill(&states.iter().map(all).collect::<Vec<Leaves>>())
    }

    fn average(&mut self, found: &[Hypergradient]) -> Result<Hypergradient> {
        for (number, h) in found.iter().enumerate() {
            self.averaging.bind(&format!("h{number}"), &h.value)?;
        }
        let (value, error) = (self.averaging.fresh_outputs("mean")?, self.averaging.fresh_outputs("error")?);
        self.averaging.run(0..1)?;
        // The chains may use their memory for the next ones.
        (0..found.len()).try_for_each(|number| self.averaging.unbind(&format!("h{number}")))?;
        let mut oracles = Oracles::default();
        found.iter().for_each(|h| oracles += h.oracles);
        let count = found.len() as f64;
        let mean = |f: fn(&Hypergradient) -> f64| found.iter().map(f).sum::<f64>() / count;
        let mut all = Hypergradient::new(value, oracles)
            .with_inner_loss(mean(|h| h.inner_loss))
            .with_outer_loss(mean(|h| h.outer_loss))
            .blaming(found[0].blame);
        all.standard_error = Some(error);
        let most = |f: fn(&Diagnostics) -> Option<f64>| found.iter().filter_map(|h| f(&h.diagnostics)).reduce(f64::max);
        let least =
            |f: fn(&Diagnostics) -> Option<f64>| found.iter().filter_map(|h| f(&h.diagnostics)).reduce(f64::min);
        let samples = found.iter().map(|h| h.diagnostics.effective_samples).sum::<Option<f64>>();
        all.diagnostics = Diagnostics {
            adjoint_norm: most(|d| d.adjoint_norm),
            adjoint_growth: most(|d| d.adjoint_growth),
            trust_exits: most(|d| d.trust_exits),
            growth_rate: most(|d| d.growth_rate),
            growth_steps: most(|d| d.growth_steps),
            calm_step: least(|d| d.calm_step),
            reduced_step: least(|d| d.reduced_step),
            effective_samples: samples,
            solve_residual: most(|d| d.solve_residual),
            least_curvature: least(|d| d.least_curvature),
            ..Diagnostics::default()
        };
        Ok(all)
    }
}
