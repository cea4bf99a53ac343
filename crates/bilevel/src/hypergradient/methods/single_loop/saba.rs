//! SABA: SOBA with a table of the last estimate of every minibatch. From Dagréou, Ablin, Vaiter and Moreau, "A
//! framework for bilevel optimization that enables stochastic and global variance reduction algorithms", NeurIPS 2022.
//!
//!   q̂ = q_i(λ, θ, v) − table_i + mean of table,   table_i ← q_i(λ, θ, v)        for each q of the five below, as in SAGA
//!   mean ← mean + (q_i − table_i)/n                                            with n rows, of which a step touches one
//!   inner minibatch i: ∇θL_T, H·v and vᵀ·C;   outer minibatch j: f_θ and f_λ
//!   h = f_λ − vᵀ·C,   θ ← θ − γ·∇θL_T,   v ← v − γ·(H·v − f_θ)                 all from the q̂, T times
//!
//! The first hypergradient fills the table from every minibatch. As λ, θ and v settle, so does the table, and the
//! variance of the estimates goes to 0 at a constant step, unlike that of SOBA. θ, v and the table are kept: one θ and
//! λ per minibatch. A running mean accumulates rounding, which would be a bias. It is recomputed from the whole table
//! after as many steps as both losses have minibatches, so the cost of a step is still that of a few rows. It applies
//! if both losses draw their rows from [epochs](crate::Scope::epochs), or draw nothing.

use crate::hypergradient::parts::minibatches::Minibatches;
use crate::hypergradient::parts::penalty::carry;
use crate::hypergradient::parts::single_loop::{Products, less, step_of_v};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;

/// Settings of SABA.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::Saba;
/// use bilevel::{Array, Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) is λ times the mean of x, 2.5; f = ½θ², so the hypergradient is 6.25λ whatever the minibatches.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .data("x", Array::from_f64([4], vec![1.0, 2.0, 3.0, 4.0])?)
///     .inner(|s, l, t| (t.0 - l.0 * s.data("x").take(s.epochs(4, 1))).square().mean_all() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Saba::default().prepare_in(&session, &InnerLoop::new(0.2, 10))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let found = (0..50).map(|k| estimator.estimate(&mut state, Key::from_seed(k))).last().unwrap()?;
/// assert!((found.value[0].item()? - 12.5).abs() < 1e-9);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Saba {}

struct Prepared {
    inner: InnerLoop,
    minibatches: Minibatches,
    start: InnerStart,
    fill: Routine,
    average: Routine,
    step: Routine,
    warm: Warm<12>,
    /// The tables of the inner and of the outer loss.
    tables: [MemoryTable; 2],
}

/// The groups of the memory after v, which the programs carry: by the minibatches of the inner and of the outer loss.
const TABLES: [&str; 5] = ["slope", "hessian", "mixed", "f_theta", "f_lambda"];
/// How many of them are the inner loss's.
const INNER: usize = 3;
/// The groups after those, each the mean of a table; the last is the number of steps since they were taken.
const MEANS: [&str; 5] = ["mean_slope", "mean_hessian", "mean_mixed", "mean_f_theta", "mean_f_lambda"];

impl Method for Saba {
    named!("saba");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let minibatches = Minibatches::of(self.name(), session.problem())?;
        let Minibatches { inner: n, outer: m } = minibatches;
        let layout = [
            Like::Theta,
            Like::RowsOfTheta(n),
            Like::RowsOfTheta(n),
            Like::RowsOfLambda(n),
            Like::RowsOfTheta(m),
            Like::RowsOfLambda(m),
            Like::Theta,
            Like::Theta,
            Like::Lambda,
            Like::Theta,
            Like::Lambda,
            Like::Number,
        ];
        let (theta, lambda) = (session.problem().theta.len(), session.problem().lambda.len());
        // As in the layout: after v two tables of θ and one of λ, then one of each.
        let outer = theta + 2 * theta + lambda;
        let tables = [theta..outer, outer..outer + theta + lambda];
        Ok(Box::new(Prepared {
            inner: *inner,
            minibatches,
            start: InnerStart::new(session)?,
            fill: step_program(inner, minibatches, session, false)?,
            average: average_program(minibatches, session)?,
            step: step_program(inner, minibatches, session, true)?,
            warm: Warm::new(session, layout),
            tables: tables.map(|leaves| MemoryTable { leaves, changed: vec![] }),
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

/// The input that holds the table of a leaf.
fn table_of(graph: &Graph, name: &str, leaf: usize, like: Tensor, rows: usize) -> Tensor {
    graph.input(format!("{name}.{leaf}"), [vec![rows], like.shape()].concat(), like.dtype())
}

/// Enters the estimates of the minibatches `batch.0` and `batch.1` into the tables. If θ and v move, they use the
/// variance-reduced estimates, and h is an output.
fn step_program(inner: &InnerLoop, count: Minibatches, session: &Session, moves: bool) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let v = trace.inputs_like("v", &trace.theta);
    let [i, j] = ["batch.0", "batch.1"].map(|name| graph.input(name, [], DType::I32));
    let found = Products::new(&trace, &v, (i, j))?;
    let said = [&found.slope, &found.hessian, &found.mixed, &found.f_theta, &found.f_lambda];
    let mut builder = Program::builder(&graph).keep_input(i).keep_input(j);
    let mut reduced: Vec<Vec<Tensor>> = vec![];
    for (group, said) in said.into_iter().enumerate() {
        let (number, rows) = if group < INNER { (i, count.inner) } else { (j, count.outer) };
        let means = trace.inputs_like(MEANS[group], said);
        let mut all = vec![];
        for (leaf, (&said, mean)) in said.iter().zip(means).enumerate() {
            let table = table_of(&graph, TABLES[group], leaf, said, rows);
            let change = said - table.take(number);
            builder = builder.carry(table, table + change.scatter_add(number, 0, rows));
            if moves {
                builder = builder.carry(mean, mean + change * (1.0 / rows as f64));
            }
            all.push(change + mean);
        }
        reduced.push(all);
    }
    let [slope, hessian, mixed, f_theta, f_lambda] = &reduced[..] else {
        return Routine::new(&builder.build()?, session);
    };
    if moves {
        builder = inner.one_step(&trace, slope, &found.updates, graph.step()).carry(builder);
        builder = carry(builder, &v, &step_of_v(&trace, &v, &less(hessian, f_theta)));
        for (leaf, h) in less(f_lambda, mixed).into_iter().enumerate() {
            builder = builder.output(format!("h.{leaf}"), h);
        }
    } else {
        builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    }
    Routine::new(&builder.build()?, session)
}

/// Takes the means of the tables.
fn average_program(count: Minibatches, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, lambda) = (&trace.theta, &trace.lambda);
    let mut builder = Program::builder(&graph);
    for (group, like) in [theta, theta, lambda, theta, lambda].into_iter().enumerate() {
        let rows = if group < INNER { count.inner } else { count.outer };
        for (leaf, mean) in trace.inputs_like(MEANS[group], like).into_iter().enumerate() {
            builder = builder.carry(mean, table_of(&graph, TABLES[group], leaf, mean, rows).mean([0]));
        }
    }
    Routine::new(&builder.build()?, session)
}

fn bind(routine: &mut Routine, groups: &[(&str, &Leaves)]) -> Result<()> {
    groups.iter().try_for_each(|(name, group)| routine.bind(name, group))
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let kept = self.warm.of(state)?;
        let [v, memory @ .., since] = &kept.groups;
        let groups: Vec<(&str, &Leaves)> = TABLES.into_iter().chain(MEANS).zip(memory).collect();
        self.start.place(&state.lambda, &state.theta, key)?;
        let Minibatches { inner: n, outer: m } = self.minibatches;
        self.tables.iter_mut().for_each(|table| table.changed.clear());
        let mut looks = 0;
        if kept.fresh {
            self.fill.bind_point(&state.lambda, &state.theta, Minibatches::key())?;
            self.fill.bind("v", v)?;
            bind(&mut self.fill, &groups[..TABLES.len()])?;
            looks = n.max(m);
            self.tables.iter_mut().zip([n, m]).for_each(|(table, rows)| table.changed.extend(0..rows));
            for number in 0..looks {
                self.fill.set_numbers("batch", [(number % n) as f64, (number % m) as f64])?;
                self.fill.run(0..1)?;
            }
        }
        bind(&mut self.average, &groups)?;
        self.inner.place(&mut self.step, gamma)?;
        self.step.bind_point(&state.lambda, &state.theta, Minibatches::key())?;
        self.step.bind("v", v)?;
        bind(&mut self.step, &groups)?;
        let value = self.step.fresh_outputs("h")?;
        let mut steps_since = if kept.fresh { (n + m) as f64 } else { number(since)? };
        for step in 0..self.inner.steps as u32 {
            if steps_since >= (n + m) as f64 {
                self.average.run(0..1)?;
                steps_since = 0.0;
            }
            let batches = self.minibatches.draw(key, step);
            self.tables.iter_mut().zip(batches).for_each(|(table, row)| table.changed.push(row));
            self.step.set_numbers("batch", batches.map(|number| number as f64))?;
            self.step.run(step..step + 1)?;
            steps_since += 1.0;
        }
        set_number(since, steps_since)?;
        let looks = (looks + self.inner.steps) as u64;
        let oracles = Oracles {
            inner_gradients: looks,
            outer_gradients: looks,
            hessian_products: looks,
            mixed_products: looks,
            losses: 0,
        };
        Ok(Hypergradient::new(value, oracles).blaming(Cause::AdjointGrowing))
    }

    fn tables(&self) -> &[MemoryTable] {
        &self.tables
    }
}
