//! (FG)²U (Shen, Wang, Yang, Li, Wang, Zhang, Scarlett, Zhu and Kawaguchi, "Memory-efficient gradient unrolling for large-scale
//! bi-level optimization", NeurIPS 2024): forward mode along a few random directions.
//!
//!   s⁰ = J0·e,   s ← s − γ·(H(θᵗ)·s + C(θᵗ)·e),   a = f_λ(θᵀ)·e + f_θ(θᵀ)·sᵀ
//!   h = mean over N directions e of a·e,   E\[e·eᵀ\] = I
//!
//! a is the exact derivative of f after T steps along e, in memory that does not grow with T. So h is an unbiased
//! estimate of the result of [`Rmd`](crate::methods::Rmd) and [`Fmd`](crate::methods::Fmd). With signs for directions,
//! its variance is the sum of the squares of all other numbers of the hypergradient, over N. With coordinates, drawn
//! without repetition, it vanishes if N is their number: then h is exactly that of forward mode.
//! Directions are shared out over ranks, which exchange one number for each.

use crate::compiled::purpose::Purpose;
use crate::compiled::shares::Shares;
use crate::hypergradient::methods::search::es::{ending_program, sums};
use crate::hypergradient::methods::unrolled::fmd;
use crate::hypergradient::parts::unit_vectors::{distinct, unit};
use crate::hypergradient::vocabulary::*;
use bilevel_graph::RandomKind;

/// The distribution of the directions of [`Fg2u`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// Every number is 1 or −1.
    #[default]
    Signs,
    /// One number of λ each, drawn without repetition.
    Coordinates,
}

/// Settings of (FG)²U.
///
/// ```
/// use bilevel::methods::Fg2u;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // One step from θ = 0 on ½(θ−λ)² goes to γλ, and f = θ there. With one number in λ, one sign says all.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let (method, inner) = (Fg2u { directions: 1, ..Fg2u::default() }, InnerLoop::new(0.25, 1));
/// let h = method.prepare_in(&session, &inner)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert_eq!(h.value[0].item()?, 0.25);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fg2u {
    /// Directions N, at least 1; for coordinates, at most the number of elements of λ.
    pub directions: usize,
    /// Their distribution.
    pub draw: Directions,
}

impl Default for Fg2u {
    fn default() -> Self {
        Fg2u { directions: 10, draw: Directions::Signs }
    }
}

struct Prepared {
    directions: usize,
    draw: Directions,
    forward: fmd::Prepared,
    drawing: Routine,
    gather: Routine,
    ending: Routine,
    session: Session,
    shares: Shares,
    /// θ at the start of every loop, and the direction.
    work: Option<[Leaves; 2]>,
}

impl Method for Fg2u {
    named!("fg2u");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        let Fg2u { directions, draw } = *self;
        require((1..=u32::MAX as usize).contains(&directions), "directions", directions, "at least 1 and below 2³²")?;
        inner.check_for(self)?;
        let directions = match draw {
            Directions::Signs => directions,
            Directions::Coordinates => directions.min(session.problem().sizes().0),
        };
        let (shares, session) = &Shares::new(directions, session);
        Ok(Box::new(Prepared {
            directions,
            shares: shares.clone(),
            draw,
            forward: fmd::Prepared::new(session, inner)?,
            drawing: drawing_program(draw, session)?,
            gather: gather_program(session)?,
            ending: ending_program(directions, session)?,
            session: session.clone(),
            work: None,
        }))
    }

    fn converge(&mut self, _: &Scale) {
        self.directions = Scale::DIRECTIONS;
    }

    fn claims(&self) -> Claims {
        Claims { training: true, minimum: true, singular: true, minibatches: true, ..Claims::default() }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

/// The direction of the step's number, or of the input `number.0`, as outputs `e.i`.
fn drawing_program(draw: Directions, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let e: Vec<Tensor> = match draw {
        Directions::Signs => {
            let sign = |(leaf, l): (usize, &Tensor)| {
                let stream = Purpose::Direction(leaf as u32).stream();
                let uniform = trace.key.random(graph.step(), RandomKind::Uniform, stream, l.shape(), DType::F64);
                uniform.less(0.5).select(-1.0, uniform.ones_like()).convert(l.dtype())
            };
            trace.lambda.iter().enumerate().map(sign).collect()
        }
        Directions::Coordinates => unit(&graph, &trace.lambda, graph.input("number.0", [], DType::I32)),
    };
    let builder =
        e.into_iter().enumerate().fold(Program::builder(&graph), |builder, (i, e)| builder.output(format!("e.{i}"), e));
    Routine::new(&builder.build()?, session)
}

/// Adds weight·e and its square to the sums.
fn gather_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let weight = graph.input("weight.0", [], DType::F64);
    let [sum, square] = sums(&trace);
    let mut builder = Program::builder(&graph);
    for (i, e) in trace.inputs_like("e", &trace.lambda).into_iter().enumerate() {
        let sample = weight * e.convert(DType::F64);
        builder = builder.carry(sum[i], sum[i] + sample).carry(square[i], square[i] + sample * sample);
    }
    Routine::new(&builder.build()?, session)
}

impl Prepared {
    /// Writes one direction down.
    fn draw(&mut self, sample: usize, coordinates: &[usize]) -> Result<()> {
        if let Some(&number) = coordinates.get(sample) {
            self.drawing.set_numbers("number", [number as f64])?;
        }
        self.drawing.run(sample as u32..sample as u32 + 1)
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let executor = self.session.executor();
        let [start, e] = match &self.work {
            Some(work) => work.clone(),
            None => self.work.insert([state.theta.zeros_like(executor)?, state.lambda.zeros_like(executor)?]).clone(),
        };
        self.forward.start.place(&state.lambda, &state.theta, key)?;
        start.copy_from(&state.theta)?;
        self.forward.chain.bind_point(&state.lambda, &state.theta, key)?;
        let (direct, f_theta) = (self.forward.outer.outputs("direct")?, self.forward.outer.outputs("f_theta")?);
        self.forward.along.bind("direct", &direct)?;
        self.forward.along.bind("f_theta", &f_theta)?;
        self.forward.along.bind("e", &e)?;
        self.gather.bind("e", &e)?;
        let (sum, square) = (self.gather.zeroed("sum")?, self.gather.zeroed("square")?);
        // One coordinate stands for as many as there are.
        let share = match self.draw {
            Directions::Signs => 1.0,
            Directions::Coordinates => self.session.problem().sizes().0 as f64,
        };
        self.drawing.set_key(key)?;
        self.drawing.bind_outputs("e", &e)?;
        let coordinates = match self.draw {
            Directions::Signs => vec![],
            Directions::Coordinates => {
                distinct(key, Purpose::Coordinates, self.session.problem().sizes().0, self.directions)
            }
        };
        let mut first = true;
        let weights = self.shares.clone().numbers_of(|sample| {
            self.draw(sample, &coordinates)?;
            let forward = &mut self.forward;
            let s = forward.column(state, (&start, &e), (key, gamma), false)?;
            if std::mem::take(&mut first) {
                // θᵀ is the same for every direction.
                forward.outer.bind_point(&state.lambda, &state.theta, key)?;
                forward.outer.run(forward.inner.last())?;
            }
            forward.along.bind("s", &s)?;
            forward.along.run(0..1)?;
            Ok([share * forward.along.number("along")?])
        })?;
        for (sample, weight) in weights.into_iter().enumerate() {
            self.draw(sample, &coordinates)?;
            self.gather.set_numbers("weight", weight)?;
            self.gather.run(0..1)?;
        }
        self.shares.as_on_the_first(&state.theta)?;
        self.ending.bind("sum", &sum)?;
        self.ending.bind("square", &square)?;
        let (value, error) = (self.ending.fresh_outputs("mean")?, self.ending.fresh_outputs("error")?);
        self.ending.run(0..1)?;
        let products = (self.directions * self.forward.inner.steps) as u64;
        let oracles = Oracles {
            inner_gradients: products,
            outer_gradients: 1,
            hessian_products: products,
            mixed_products: products,
            losses: 0,
        };
        let found = Hypergradient::new(value, oracles).with_outer_loss(self.forward.outer.number("outer")?);
        // Coordinates without repetition are not independent samples.
        let standard_error = (self.directions > 1 && self.draw == Directions::Signs).then_some(error);
        Ok(Hypergradient { standard_error, ..found })
    }
}
