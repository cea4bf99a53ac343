//! A compiled program of a problem: bound to the data once, and to λ, θ and its other values by name.

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::session::Session;
use crate::compiled::stretches::Stretches;
use crate::problem::feeding::feed::{Feed, Outlet};
use crate::problem::feeding::stream::At;
use crate::{Error, Result};
use bilevel_graph::{Buffer, Port, Precision, Program, Runnable};
use std::ops::Range;
use std::sync::Arc;

/// Places of inputs or outputs named `prefix.0`, `prefix.1`, …; `None` for one the program does not use.
type Groups = Vec<(String, Vec<Option<usize>>)>;

/// A compiled program of a problem, the unit that a new method runs. It works in the buffers it is bound to, so carried
/// values, for example θ, are updated in place. λ, θ and the key have their own functions to bind them; other inputs
/// and outputs are bound by their group: `z.0`, `z.1`, … is the group `z`.
///
/// ```
/// use bilevel::graph::{Graph, Program, gradient_or_zeros};
/// use bilevel::programs::{Routine, Trace};
/// use bilevel::{Cpu, Key, Leaf, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| t.0)
///     .build()?;
/// // One step of gradient descent, carried from one to the next.
/// let graph = Graph::new();
/// let trace = Trace::new(&graph, &problem)?;
/// let loss = trace.inner(&trace.theta, graph.step())?;
/// let slope = gradient_or_zeros(loss, &trace.theta)?;
/// let program = Program::builder(&graph).carry(trace.theta[0], trace.theta[0] - slope[0] * 0.25).build()?;
///
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut descend = Routine::new(&program, &session)?;
/// let state = session.state(Key::from_seed(0))?;
/// descend.bind_point(&state.lambda, &state.theta, Key::from_seed(0))?;
/// descend.run(0..2)?;
/// assert_eq!(state.theta.numbers()?, [1.5]); // 0, then halfway to 2, then halfway again
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Routine {
    run: Box<dyn Runnable>,
    stretches: Stretches,
    lambda: Vec<Option<usize>>,
    theta: Vec<Option<usize>>,
    inputs: Groups,
    outputs: Groups,
    key: Option<Buffer>,
    /// The key of the random draws, if streams are read with it.
    drawn_with: Option<Key>,
    feed: Option<Feed>,
    /// γ and the size of the noise.
    step_sizes: [Option<Buffer>; 2],
    executor: Arc<dyn bilevel_graph::Executor>,
}

impl Routine {
    /// Compiles a program made from a [`Trace`](crate::programs::Trace) of the session's problem, in the problem's precision, and
    /// binds it to the data.
    pub fn new(program: &Program, session: &Session) -> Result<Self> {
        // Derivatives are in it by now, so all products of a run round alike.
        let rounded;
        let program = match session.problem().precision() {
            Precision::Full => program,
            precision => {
                rounded = program.clone().with_precision(precision);
                &rounded
            }
        };
        let place = |name: &str| program.inputs.iter().position(|port| port.name == name);
        let mut run = session.executor().compile(program)?;
        for (name, buffer) in session.data() {
            if let Some(input) = place(name) {
                run.bind_input(input, buffer)?;
            }
        }
        let mut own = |name: &str| -> Result<Option<Buffer>> {
            let Some(input) = place(name) else { return Ok(None) };
            let buffer = session.executor().buffer(&program.inputs[input].meta)?;
            run.bind_input(input, &buffer)?;
            Ok(Some(buffer))
        };
        let (key, gamma, noise) = (own("key")?, own("gamma")?, own("noise")?);
        let mut outlets = vec![];
        for (input, port) in program.inputs.iter().enumerate() {
            let Some((at, stream)) = At::of_port(&port.name) else { continue };
            let Some(loader) = session.loader(stream) else { continue };
            // A separate buffer: another routine may be at another step.
            let buffer = session.executor().buffer(&port.meta)?;
            run.bind_input(input, &buffer)?;
            outlets.push(Outlet::new(loader.clone(), at, buffer));
        }
        let problem = session.problem();
        Ok(Routine {
            run,
            stretches: Stretches::new(session.stop().clone(), session.executor().link().cloned()),
            lambda: problem.lambda.iter().map(|(name, _)| place(&format!("lambda.{name}"))).collect(),
            theta: problem.theta.iter().map(|(name, _)| place(&format!("theta.{name}"))).collect(),
            inputs: groups(&program.inputs),
            outputs: groups(&program.outputs),
            key,
            drawn_with: None,
            feed: Feed::new(outlets, session.stop_of_one_rank()),
            step_sizes: [gamma, noise],
            executor: session.executor().share(),
        })
    }

    /// Works on this λ from now on.
    pub fn bind_lambda(&mut self, lambda: &Leaves) -> Result<()> {
        bind_each(&mut *self.run, "λ", &self.lambda, lambda)
    }

    /// Binds this θ; if the program carries θ, it is updated in place.
    pub fn bind_theta(&mut self, theta: &Leaves) -> Result<()> {
        bind_each(&mut *self.run, "θ", &self.theta, theta)
    }

    /// Binds this λ and θ, and the key of the random draws.
    pub fn bind_point(&mut self, lambda: &Leaves, theta: &Leaves, key: Key) -> Result<()> {
        self.bind_lambda(lambda)?;
        self.bind_theta(theta)?;
        self.set_key(key)
    }

    /// Sets the key of the random draws.
    pub fn set_key(&mut self, key: Key) -> Result<()> {
        self.drawn_with = Some(key);
        let Some(buffer) = &self.key else { return Ok(()) };
        let [a, b] = key.values().map(i32::to_ne_bytes);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&a);
        bytes[4..].copy_from_slice(&b);
        Ok(buffer.write_bytes(&bytes)?)
    }

    /// Sets the inner step γ and the size κ·√(2τγ) of its noise, if the program has them as inputs.
    pub fn set_step_sizes(&mut self, gamma: f64, noise: f64) -> Result<()> {
        for (buffer, value) in self.step_sizes.iter().zip([gamma, noise]) {
            if let Some(buffer) = buffer {
                buffer.set_item(value)?;
            }
        }
        Ok(())
    }

    /// Binds the inputs of a group made by `Trace::inputs_like`, one buffer for each. A program has only the inputs that
    /// something depends on; one that is to be bound whether or not it matters is kept with
    /// [`keep_input`](bilevel_graph::ProgramBuilder::keep_input).
    pub fn bind(&mut self, prefix: &str, leaves: &Leaves) -> Result<()> {
        let places = whole(&self.inputs, prefix, "input")?;
        count(prefix, places.len(), leaves.len())?;
        places.zip(leaves.iter()).try_for_each(|(input, buffer)| Ok(self.run.bind_input(input?, buffer)?))
    }

    /// Binds the outputs of a group, one buffer for each.
    pub fn bind_outputs(&mut self, prefix: &str, leaves: &Leaves) -> Result<()> {
        let places = whole(&self.outputs, prefix, "output")?;
        count(prefix, places.len(), leaves.len())?;
        places.zip(leaves.iter()).try_for_each(|(output, buffer)| Ok(self.run.bind_output(output?, buffer)?))
    }

    /// The buffers of a group of inputs, created with zeros if it has none.
    pub fn inputs(&mut self, prefix: &str) -> Result<Leaves> {
        self.own_inputs(prefix, |_| false)
    }

    /// As [`inputs`](Self::inputs), all zeros.
    pub fn zeroed(&mut self, prefix: &str) -> Result<Leaves> {
        let leaves = self.inputs(prefix)?;
        leaves.zero()?;
        Ok(leaves)
    }

    /// As [`inputs`](Self::inputs), for buffers that are given away: if the previous ones are still in use, they are
    /// left alone and replaced by new ones. Their contents are undefined: the program must initialise or ignore them.
    pub fn fresh(&mut self, prefix: &str) -> Result<Leaves> {
        self.own_inputs(prefix, Buffer::is_shared)
    }

    fn own_inputs(&mut self, prefix: &str, replace: impl Fn(&Buffer) -> bool) -> Result<Leaves> {
        let places = whole(&self.inputs, prefix, "input")?.collect::<Result<Vec<usize>>>()?;
        let mut leaves = vec![];
        for input in places {
            let bindings = self.run.bindings();
            let buffer = match &bindings.inputs()[input] {
                Some(buffer) if !replace(buffer) => buffer.clone(),
                _ => {
                    let buffer = self.executor.buffer(&bindings.program().inputs[input].meta)?;
                    self.run.bind_input(input, &buffer)?;
                    buffer
                }
            };
            leaves.push(buffer);
        }
        Ok(leaves.into_iter().collect())
    }

    /// The buffers that the outputs of a group are written to by every run from now on.
    pub fn outputs(&mut self, prefix: &str) -> Result<Leaves> {
        let places = whole(&self.outputs, prefix, "output")?.collect::<Result<Vec<usize>>>()?;
        places.into_iter().map(|output| Ok(self.run.output_buffer(output)?)).collect()
    }

    /// As [`outputs`](Self::outputs), for buffers that are given away: if those of the last run are still in use, they
    /// are left alone and replaced by new ones.
    pub fn fresh_outputs(&mut self, prefix: &str) -> Result<Leaves> {
        let places = whole(&self.outputs, prefix, "output")?.collect::<Result<Vec<usize>>>()?;
        for &output in &places {
            let bindings = self.run.bindings();
            if bindings.outputs()[output].as_ref().is_some_and(Buffer::is_shared) {
                let buffer = self.executor.buffer(&bindings.program().outputs[output].meta)?;
                self.run.bind_output(output, &buffer)?;
            }
        }
        places.into_iter().map(|output| Ok(self.run.output_buffer(output)?)).collect()
    }

    /// Releases the inputs of a group, so that their other owners see that they are no longer in use.
    pub fn unbind(&mut self, prefix: &str) -> Result<()> {
        for input in whole(&self.inputs, prefix, "input")? {
            self.run.unbind_input(input?);
        }
        Ok(())
    }

    /// Sets the inputs of a group of single numbers.
    pub fn set_numbers<const N: usize>(&mut self, prefix: &str, values: [f64; N]) -> Result<()> {
        let places = whole(&self.inputs, prefix, "input")?;
        count(prefix, places.len(), N)?;
        for (input, value) in places.zip(values) {
            let input = input?;
            let bindings = self.run.bindings();
            match &bindings.inputs()[input] {
                Some(buffer) => buffer.set_item(value)?,
                None => {
                    let buffer = self.executor.buffer(&bindings.program().inputs[input].meta)?;
                    buffer.set_item(value)?;
                    self.run.bind_input(input, &buffer)?;
                }
            }
        }
        Ok(())
    }

    /// The carried inputs of a group of single numbers.
    pub fn carried_numbers<const N: usize>(&self, prefix: &str) -> Result<[f64; N]> {
        let places = whole(&self.inputs, prefix, "input")?;
        count(prefix, places.len(), N)?;
        let mut numbers = [f64::NAN; N];
        for (number, input) in numbers.iter_mut().zip(places) {
            if let Some(buffer) = &self.run.bindings().inputs()[input?] {
                *number = buffer.item()?;
            }
        }
        Ok(numbers)
    }

    /// Runs the program for these step numbers, which are also the counters of the random draws. A program that reads a
    /// [`Stream`](crate::data::Stream) is run step by step, each with its batch.
    pub fn run(&mut self, steps: Range<u32>) -> Result<()> {
        self.run_with(steps, true)
    }

    /// As [`run`](Self::run), but for carried values only: outputs are not computed, and have no value until
    /// [`run`](Self::run) is called again.
    ///
    /// ```
    /// use bilevel::graph::{Graph, Program};
    /// use bilevel::programs::{Routine, Trace};
    /// use bilevel::{Cpu, Key, Leaf, Problem, Session, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 1.0)))
    ///     .inner(|_, l, t| (t.0 - l.0).square())
    ///     .outer(|_, _, t| t.0)
    ///     .build()?;
    /// let graph = Graph::new();
    /// let theta = Trace::new(&graph, &problem)?.theta[0];
    /// let program = Program::builder(&graph).carry(theta, theta * 3.0).output("square", theta.square()).build()?;
    /// let session = Session::new(&problem, &Cpu::with_threads(1))?;
    /// let mut triple = Routine::new(&program, &session)?;
    /// let state = session.state(Key::from_seed(0))?;
    /// triple.bind_theta(&state.theta)?;
    /// triple.advance(0..2)?;
    /// assert_eq!(state.theta.numbers()?, [9.0]);
    /// assert!(triple.number("square").is_err());
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn advance(&mut self, steps: Range<u32>) -> Result<()> {
        self.run_with(steps, false)
    }

    fn run_with(&mut self, steps: Range<u32>, shown: bool) -> Result<()> {
        let Some(feed) = &mut self.feed else { return Ok(self.stretches.run(&mut *self.run, steps, shown)?) };
        let Some(key) = self.drawn_with else {
            let reason =
                "this program reads a stream, whose batches depend on a key; set a key with set_key or bind_point";
            return Err(Error::Program { reason: reason.into() });
        };
        for stretch in feed.stretches(steps.clone()) {
            feed.fill(key, stretch.start, &steps)?;
            self.stretches.run(&mut *self.run, stretch, shown)?;
        }
        Ok(())
    }

    /// A scalar output of the last step.
    pub fn number(&self, name: &str) -> Result<f64> {
        let output = self.run.program().output(name)?;
        match &self.run.bindings().outputs()[output] {
            Some(buffer) if self.run.bindings().has_run() => Ok(buffer.item()?),
            _ => Ok(self.run.output(output).map(|array| array.item().unwrap_or(f64::NAN))?),
        }
    }

    /// All numbers of an output of the last step.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        Ok(self.run.output(self.run.program().output(name)?)?.to_f64())
    }
}

fn bind_each(run: &mut dyn Runnable, name: &str, places: &[Option<usize>], leaves: &Leaves) -> Result<()> {
    if places.len() != leaves.len() {
        return Err(Error::LeafCount { what: name.into(), found: leaves.len(), expected: places.len() });
    }
    for (place, buffer) in places.iter().zip(leaves.iter()) {
        if let Some(input) = place {
            run.bind_input(*input, buffer)?;
        }
    }
    Ok(())
}

fn count(prefix: &str, wanted: usize, given: usize) -> Result<()> {
    if wanted == given {
        return Ok(());
    }
    Err(Error::LeafCount { what: format!("the group '{prefix}'"), found: given, expected: wanted })
}

/// The places of a group; a missing group or member is an error.
fn whole<'a>(
    groups: &'a Groups,
    prefix: &'a str,
    kind: &'a str,
) -> Result<impl ExactSizeIterator<Item = Result<usize>> + 'a> {
    let Some((_, places)) = groups.iter().find(|(name, _)| name == prefix) else {
        let known: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let kept = if kind == "input" {
            "; an input on which no output depends must be declared with \
            keep_input"
        } else {
            ""
        };
        let reason = format!("this program has no {kind}s {prefix}.0, {prefix}.1, …{kept}; its groups are: {known}");
        return Err(Error::Program { reason });
    };
    // One that is not there must not let the others move up.
    Ok(places.iter().enumerate().map(move |(number, place)| {
        let reason = || {
            format!(
                "leaf {number} of {prefix} is not an {kind} of this program; carry it, or declare it with keep_input"
            )
        };
        place.ok_or_else(|| Error::Program { reason: reason() })
    }))
}

fn groups(ports: &[Port]) -> Groups {
    let mut groups = Groups::new();
    for (place, port) in ports.iter().enumerate() {
        let Some((prefix, number)) = port.name.rsplit_once('.') else { continue };
        // Names given by users have their own places.
        if ["lambda.", "theta.", "data.", "frozen.", "stream."].iter().any(|own| port.name.starts_with(own)) {
            continue;
        }
        let Ok(number) = number.parse::<usize>() else { continue };
        let at = groups.iter().position(|(name, _)| name == prefix).unwrap_or_else(|| {
            groups.push((prefix.to_string(), vec![]));
            groups.len() - 1
        });
        let places = &mut groups[at].1;
        if places.len() <= number {
            places.resize(number + 1, None);
        }
        places[number] = Some(place);
    }
    groups
}
