//! A compiled program of a problem: data set once, places of inputs and outputs looked up once.

use crate::problem::Problem;
use crate::{Error, Result};
use bilevel_graph::{Array, DataMut, Executor, Port, Program, Runnable};
use std::ops::Range;

/// Places of inputs or outputs named `prefix.0`, `prefix.1`, …; `None` for one the program does not use.
type Groups = Vec<(String, Vec<Option<usize>>)>;

/// A program of a problem, compiled: what a new method runs. Data is set once; λ, θ and the key are set by what they are,
/// other inputs and outputs by the group they belong to: `z.0`, `z.1`, … is the group `z`.
///
/// ```
/// use bilevel::graph::{Graph, Program, gradient_or_zeros};
/// use bilevel::{Cpu, Leaf, Problem, Routine, State, Trace, Variable};
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
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
/// let mut descend = Routine::new(&program, &problem, &Cpu::with_threads(1))?;
/// let state = State::initial(&problem, [0, 0])?;
/// descend.set_point(&state.lambda, &state.theta, [0, 0])?;
/// descend.run(0..2)?;
/// assert_eq!(descend.theta()?[0].item(), Some(1.5)); // 0, then halfway to 2, then halfway again
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct Routine {
    run: Box<dyn Runnable>,
    lambda: Vec<Option<usize>>,
    theta: Vec<Option<usize>>,
    inputs: Groups,
    outputs: Groups,
    /// The key's place, and an array to set it from.
    key: Option<usize>,
    key_array: Array,
    /// The places of γ and the noise's size, and an array to set them from.
    step_sizes: [Option<usize>; 2],
    number: Array,
}

impl Routine {
    /// Compiles a program made from a [`Trace`](crate::Trace) of this problem, and gives it the data.
    pub fn new(program: &Program, problem: &Problem, executor: &dyn Executor) -> Result<Self> {
        let place = |name: &str| program.inputs.iter().position(|port| port.name == name);
        let mut run = executor.compile(program)?;
        for (name, array) in &problem.data {
            if let Some(input) = place(&format!("data.{name}")) {
                run.set(input, array)?;
            }
        }
        Ok(Routine {
            run,
            lambda: problem.lambda.iter().map(|(name, _)| place(&format!("lambda.{name}"))).collect(),
            theta: problem.theta.iter().map(|(name, _)| place(&format!("theta.{name}"))).collect(),
            inputs: groups(&program.inputs),
            outputs: groups(&program.outputs),
            key: place("key"),
            key_array: Array::from_i32([2], vec![0, 0])?,
            step_sizes: ["gamma", "noise"].map(place),
            number: Array::scalar(0.0, problem.dtype),
        })
    }

    /// Sets λ.
    pub fn set_lambda(&mut self, lambda: &[Array]) -> Result<()> {
        fits("λ", &self.lambda, lambda)?;
        set_each(&mut *self.run, &self.lambda, lambda)
    }

    /// Sets θ.
    pub fn set_theta(&mut self, theta: &[Array]) -> Result<()> {
        fits("θ", &self.theta, theta)?;
        set_each(&mut *self.run, &self.theta, theta)
    }

    /// Sets λ, θ and the key of what is random.
    pub fn set_point(&mut self, lambda: &[Array], theta: &[Array], key: [i32; 2]) -> Result<()> {
        self.set_lambda(lambda)?;
        self.set_theta(theta)?;
        self.set_key(key)
    }

    /// Sets the key of what is random.
    pub fn set_key(&mut self, key: [i32; 2]) -> Result<()> {
        let Some(input) = self.key else { return Ok(()) };
        if let DataMut::I32(values) = self.key_array.data_mut() {
            values.copy_from_slice(&key);
        }
        Ok(self.run.set(input, &self.key_array)?)
    }

    /// Sets the inner step γ and the size κ·√(2τγ) of its noise, where the program has them as inputs.
    pub fn set_step_sizes(&mut self, gamma: f64, noise: f64) -> Result<()> {
        for (place, value) in self.step_sizes.into_iter().zip([gamma, noise]) {
            let Some(input) = place else { continue };
            set_number(&mut self.number, value);
            self.run.set(input, &self.number)?;
        }
        Ok(())
    }

    /// Sets the inputs of a group made by `Trace::inputs_like`, one value for each. A program has only the inputs that something
    /// depends on; one that is to be set whether or not it matters is kept with
    /// [`keep_input`](bilevel_graph::ProgramBuilder::keep_input).
    pub fn set_all(&mut self, prefix: &str, values: &[Array]) -> Result<()> {
        let places = whole(&self.inputs, prefix, "input")?;
        count(prefix, places.len(), values.len())?;
        places.zip(values).try_for_each(|(input, value)| Ok(self.run.set(input?, value)?))
    }

    /// Sets the inputs of a group of single numbers.
    pub(crate) fn set_numbers<const N: usize>(&mut self, prefix: &str, values: [f64; N]) -> Result<()> {
        let places = whole(&self.inputs, prefix, "input")?;
        count(prefix, places.len(), N)?;
        for (input, value) in places.zip(values) {
            set_number(&mut self.number, value);
            self.run.set(input?, &self.number)?;
        }
        Ok(())
    }

    /// The carried inputs of a group of single numbers.
    pub(crate) fn carried_numbers<const N: usize>(&mut self, prefix: &str) -> Result<[f64; N]> {
        let places = whole(&self.inputs, prefix, "input")?;
        count(prefix, places.len(), N)?;
        let mut numbers = [0.0; N];
        for (number, input) in numbers.iter_mut().zip(places) {
            self.run.read_input(input?, &mut self.number)?;
            *number = self.number.item().unwrap_or(f64::NAN);
        }
        Ok(numbers)
    }

    /// Runs the program for these step numbers, which are also the counters of what is random.
    pub fn run(&mut self, steps: Range<u32>) -> Result<()> {
        Ok(self.run.run(steps)?)
    }

    /// The carried inputs of a group after a run, all of them.
    pub fn carried_all(&self, prefix: &str) -> Result<Vec<Array>> {
        whole(&self.inputs, prefix, "input")?.map(|input| Ok(self.run.input(input?)?)).collect()
    }

    /// θ after a run that carries it: every leaf, or an error that names the one the program does not have.
    pub fn theta(&self) -> Result<Vec<Array>> {
        each("θ", &self.theta, "input").map(|input| Ok(self.run.input(input?)?)).collect()
    }

    /// Copies θ into arrays of its shapes.
    pub fn read_theta(&self, into: &mut [Array]) -> Result<()> {
        fits("θ", &self.theta, into)?;
        each("θ", &self.theta, "input")
            .zip(into)
            .try_for_each(|(input, array)| Ok(self.run.read_input(input?, array)?))
    }

    /// The outputs of a group after the last step, all of them.
    pub fn output_all(&self, prefix: &str) -> Result<Vec<Array>> {
        whole(&self.outputs, prefix, "output")?.map(|output| Ok(self.run.output(output?)?)).collect()
    }

    /// A scalar output of the last step.
    pub fn number(&self, name: &str) -> Result<f64> {
        let output = self.run.program().output(name)?;
        Ok(self.run.output(output)?.item().unwrap_or(f64::NAN))
    }
}

fn set_number(array: &mut Array, value: f64) {
    match array.data_mut() {
        DataMut::F32(number) => number[0] = value as f32,
        DataMut::F64(number) => number[0] = value,
        DataMut::I32(_) => {}
    }
}

fn fits(name: &str, places: &[Option<usize>], values: &[Array]) -> Result<()> {
    if places.len() == values.len() {
        return Ok(());
    }
    let reason = format!("{} arrays were given for {name}, which has {} leaves", values.len(), places.len());
    Err(Error::Problem { reason })
}

fn set_each(run: &mut dyn Runnable, places: &[Option<usize>], values: &[Array]) -> Result<()> {
    for (place, value) in places.iter().zip(values) {
        if let Some(input) = place {
            run.set(*input, value)?;
        }
    }
    Ok(())
}

fn count(prefix: &str, wanted: usize, given: usize) -> Result<()> {
    if wanted == given {
        return Ok(());
    }
    Err(Error::Problem { reason: format!("{given} values were given for the group '{prefix}', which has {wanted}") })
}

/// The places of a group; a group or a member that the program does not have is an error that says so.
fn whole<'a>(
    groups: &'a Groups,
    prefix: &'a str,
    kind: &'a str,
) -> Result<impl ExactSizeIterator<Item = Result<usize>> + 'a> {
    let Some((_, places)) = groups.iter().find(|(name, _)| name == prefix) else {
        let known: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let kept = if kind == "input" { "; nothing depends on it unless it is kept with keep_input" } else { "" };
        let reason = format!("this program has no {kind}s {prefix}.0, {prefix}.1, …{kept}; its groups are: {known}");
        return Err(Error::Problem { reason });
    };
    Ok(each(prefix, places, kind))
}

/// The places of leaves one by one; one that is not there must not let the others move up.
fn each<'a>(
    name: &'a str,
    places: &'a [Option<usize>],
    kind: &'a str,
) -> impl ExactSizeIterator<Item = Result<usize>> + 'a {
    places.iter().enumerate().map(move |(number, place)| {
        let reason =
            || format!("leaf {number} of {name} is no {kind} of this program; carry it, or keep it with keep_input");
        place.ok_or_else(|| Error::Problem { reason: reason() })
    })
}

fn groups(ports: &[Port]) -> Groups {
    let mut groups = Groups::new();
    for (place, port) in ports.iter().enumerate() {
        let Some((prefix, number)) = port.name.rsplit_once('.') else { continue };
        // Names that users give have places of their own.
        if ["lambda.", "theta.", "data."].iter().any(|own| port.name.starts_with(own)) {
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
