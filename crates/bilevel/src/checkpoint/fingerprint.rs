//! The identity of a run, by which a checkpoint of another run is refused.

use crate::compiled::trace::Trace;
use crate::hypergradient::settings::SettingsRecord;
use crate::problem::AnyProblem;
use crate::problem::variable::{Start, Variable};
use bilevel_graph::{Graph, Precision, Program};
use serde::{Deserialize, Serialize};

/// Names and shapes.
type Leaves = [(String, Vec<usize>)];

/// Names, shapes, types and precision of a problem, with checksums of its data, its variables and its losses.
///
/// ```
/// use bilevel::checkpoints::Fingerprint;
/// use bilevel::{Leaf, Problem, Variable};
/// let problem = |size: usize| {
///     Problem::builder(Leaf(Variable::constant([size], 0.0)), Leaf(Variable::constant([size], 0.0)))
///         .inner(|_, l, t| (t.0 - l.0).square().sum_all())
///         .outer(|_, _, t| t.0.sum_all())
///         .build()
///         .unwrap()
/// };
/// let (two, three) = (Fingerprint::of(&problem(2)), Fingerprint::of(&problem(3)));
/// assert_eq!(two.difference(&two), None);
/// assert_eq!(two.difference(&three).unwrap(), "λ has the leaves [2] there and [3] here");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    dtype: String,
    /// Absent from checkpoints written before there was a choice.
    #[serde(default, with = "crate::health::precision_name")]
    precision: Precision,
    lambda: Vec<(String, Vec<usize>)>,
    theta: Vec<(String, Vec<usize>)>,
    data: Vec<(String, String, Vec<usize>)>,
    data_checksum: u32,
    /// Name, type, shape and identity of each stream.
    #[serde(default)]
    streams: Vec<(String, String, Vec<usize>, String)>,
    starts_from_lambda: bool,
    /// Bounds and starts of the variables, as code.
    variables_checksum: u32,
    /// Both losses, operation by operation.
    losses_checksum: u32,
}

/// The checksum of both losses as programs; that of an empty text if they cannot be traced.
fn losses_checksum(problem: &AnyProblem) -> u32 {
    let dump = || -> crate::Result<String> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let (inner, outer) = (trace.inner(&trace.theta, graph.step())?, trace.outer(&trace.theta, graph.step())?);
        let mut builder = Program::builder(&graph).output("inner", inner).output("outer", outer);
        for (i, start) in trace.start()?.into_iter().flatten().enumerate() {
            builder = builder.output(format!("start.{i}"), start);
        }
        Ok(builder.build()?.dump(false))
    };
    crc32fast::hash(dump().unwrap_or_default().as_bytes())
}

impl Fingerprint {
    /// The fingerprint of a problem.
    ///
    /// ```
    /// # use bilevel::checkpoints::Fingerprint;
    /// # use bilevel::{Leaf, Problem, Variable};
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0).build().unwrap();
    /// assert_eq!(Fingerprint::of(&problem), Fingerprint::of(&problem.clone()));
    /// ```
    pub fn of(problem: &AnyProblem) -> Self {
        let leaves = |all: &[(String, Variable)]| all.iter().map(|(n, v)| (n.clone(), v.shape.clone())).collect();
        let mut checksum = crc32fast::Hasher::new();
        problem.data.iter().for_each(|(_, array)| checksum.update(array.bytes()));
        problem.frozen.iter().for_each(|(_, _, array)| checksum.update(array.bytes()));
        Fingerprint {
            dtype: problem.dtype.to_string(),
            precision: problem.precision,
            lambda: leaves(&problem.lambda),
            theta: leaves(&problem.theta),
            data: problem
                .data
                .iter()
                .map(|(name, a)| (name.clone(), a.dtype().to_string(), a.shape().to_vec()))
                .collect(),
            data_checksum: checksum.finalize(),
            streams: problem
                .streams
                .iter()
                .map(|s| (s.name.clone(), s.declared.to_string(), s.shape.clone(), s.source.identity()))
                .collect(),
            starts_from_lambda: problem.starts_from_lambda(),
            variables_checksum: variables_checksum(problem),
            losses_checksum: losses_checksum(problem),
        }
    }

    /// The names of λ's leaves, in their order.
    ///
    /// ```
    /// # use bilevel::checkpoints::Fingerprint;
    /// # use bilevel::{Leaf, Problem, Variable};
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0).build().unwrap();
    /// assert_eq!(Fingerprint::of(&problem).lambda_names().collect::<Vec<_>>(), problem.lambda_names());
    /// ```
    pub fn lambda_names(&self) -> impl Iterator<Item = &str> {
        self.lambda.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn is_single(&self) -> bool {
        self.dtype == bilevel_graph::DType::F32.to_string()
    }

    /// Names and shapes of λ's and θ's leaves.
    pub(crate) fn leaves(&self) -> (&Leaves, &Leaves) {
        (&self.lambda, &self.theta)
    }

    /// How the problem here differs from this one, in words.
    ///
    /// ```
    /// # use bilevel::checkpoints::Fingerprint;
    /// # use bilevel::{DType, Leaf, Problem, Variable};
    /// # let problem = |dtype| Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .dtype(dtype).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0).build().unwrap();
    /// let (double, single) = (Fingerprint::of(&problem(DType::F64)), Fingerprint::of(&problem(DType::F32)));
    /// assert_eq!(double.difference(&single).unwrap(), "it uses f64 there and f32 here");
    /// ```
    pub fn difference(&self, here: &Fingerprint) -> Option<String> {
        let list = |leaves: &Leaves| {
            leaves.iter().map(|(name, shape)| format!("{name}{shape:?}")).collect::<Vec<_>>().join(", ")
        };
        if self.dtype != here.dtype {
            return Some(format!("it uses {} there and {} here", self.dtype, here.dtype));
        }
        if self.precision != here.precision {
            return Some(format!("the precision of products is {} there and {} here", self.precision, here.precision));
        }
        for (what, there, here) in [("λ", &self.lambda, &here.lambda), ("θ", &self.theta, &here.theta)] {
            if there != here {
                return Some(format!("{what} has the leaves {} there and {} here", list(there), list(here)));
            }
        }
        if self.data != here.data {
            return Some("the data sets differ in names, types or shapes".into());
        }
        if self.data_checksum != here.data_checksum {
            return Some("the data sets have the same shapes but different contents".into());
        }
        if self.streams != here.streams {
            let list = |streams: &[(String, String, Vec<usize>, String)]| {
                let one = |(name, dtype, shape, identity): &(String, String, Vec<usize>, String)| {
                    let of = if identity.is_empty() { String::new() } else { format!(" of {identity}") };
                    format!("'{name}' ({dtype}{shape:?}{of})")
                };
                let all: Vec<String> = streams.iter().map(one).collect();
                if all.is_empty() { "none".into() } else { all.join(", ") }
            };
            return Some(format!("the streams are {} there and {} here", list(&self.streams), list(&here.streams)));
        }
        if self.starts_from_lambda != here.starts_from_lambda {
            return Some("θ starts from λ in only one of them".into());
        }
        if self.variables_checksum != here.variables_checksum {
            return Some("the variables have different bounds or starting values".into());
        }
        (self.losses_checksum != here.losses_checksum).then(|| "the losses differ".into())
    }
}

/// The checksum of the start and bounds of every variable, from the bytes of the numbers.
fn variables_checksum(problem: &AnyProblem) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    for (name, variable) in problem.lambda.iter().chain(&problem.theta) {
        let mut numbers = |kind: u8, numbers: &[f64]| {
            checksum.update(&[kind]);
            numbers.iter().for_each(|number| checksum.update(&number.to_le_bytes()));
        };
        match &variable.start {
            Start::Fixed(_) => numbers(0, &[]),
            Start::Constant(value) => numbers(1, &[*value]),
            Start::Normal(deviation) => numbers(2, &[*deviation]),
            Start::Uniform(low, high) => numbers(3, &[*low, *high]),
        }
        let (low, high) = variable.bounds();
        numbers(4, &[low, high, variable.rate, variable.weight_decay]);
        numbers(variable.role as u8, &[]);
        if let Start::Fixed(array) = &variable.start {
            checksum.update(array.bytes());
        }
        checksum.update(name.as_bytes());
    }
    checksum.finalize()
}

/// All that has to agree before a run may continue from a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub method: SettingsRecord,
    pub optimizer: SettingsRecord,
    pub inner: SettingsRecord,
    /// Rates of the outer step.
    pub schedule: SettingsRecord,
    /// The largest norm of a hypergradient.
    pub clip: Option<f64>,
    pub seed: u64,
    pub cold: bool,
    /// The checksum of a λ or θ given as the start of the run.
    #[serde(default)]
    pub start: Option<u32>,
    pub problem: Fingerprint,
}

impl Identity {
    pub fn difference(&self, here: &Identity) -> Option<String> {
        let settings = [
            ("method", &self.method, &here.method),
            ("inner loop", &self.inner, &here.inner),
            ("optimizer", &self.optimizer, &here.optimizer),
            ("schedule", &self.schedule, &here.schedule),
        ];
        for (what, there, here) in settings {
            if let Some(difference) = there.difference(here) {
                return Some(format!("the {what} differs: {difference}"));
            }
        }
        if self.clip != here.clip {
            let shown = |clip: Option<f64>| clip.map_or("none".into(), |clip| clip.to_string());
            return Some(format!("the clip is {} there and {} here", shown(self.clip), shown(here.clip)));
        }
        if self.seed != here.seed {
            return Some(format!("the seed is {} there and {} here", self.seed, here.seed));
        }
        if self.cold != here.cold {
            return Some("θ starts cold in one of them and warm in the other".into());
        }
        if self.start != here.start {
            return Some("it has a different initial λ or θ".into());
        }
        self.problem.difference(&here.problem)
    }
}
