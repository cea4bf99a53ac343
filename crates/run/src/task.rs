//! A task: a bilevel problem with its own settings, and defaults with which every method works on it.

use crate::{LambdaLeaf, Settings};
use bilevel::graph::Executor;
use bilevel::methods::AnyMethod;
use bilevel::observers::StopSignal;
use bilevel::optimizers::{Adam, InnerOptimizer};
use bilevel::{DType, InnerLoop, Precision, Problem, Result};
use bilevel_report::Section;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// The data that a task needs to build its problem, besides its own settings.
///
/// ```
/// use bilevel_run::Context;
/// let context = Context { seed: 3, ..Context::default() };
/// assert!(context.data.is_none());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The seed of everything random in the task itself: a split of the data, wrong labels.
    pub seed: u64,
    /// The folder of data files (`--data`), for tasks that read some.
    pub data: Option<PathBuf>,
    /// The floating-point type.
    pub dtype: DType,
    /// Whether the criterion for λ is the evidence, by a method for it ([`Evidence`](bilevel::methods::Evidence)). A
    /// task with a normalised prior then builds a problem without an outer loss, and trains on all rows that have
    /// labels. Other tasks ignore it, and the method refuses their problems.
    pub evidence: bool,
}

impl Default for Context {
    fn default() -> Self {
        Context { seed: 0, data: None, dtype: DType::F64, evidence: false }
    }
}

/// The executor and settings of a training that is part of building a problem.
///
/// ```
/// use bilevel::observers::StopSignal;
/// use bilevel::{Cpu, Precision};
/// use bilevel_run::{BuiltOn, Context, Task};
/// use bilevel_tasks::L1Regularisation;
/// let (executor, signal) = (Cpu::with_threads(1), StopSignal::new());
/// let on = BuiltOn { executor: &executor, precision: Precision::Full, signal: &signal };
/// // The network of this task is trained without penalties first.
/// let problem = L1Regularisation::default().build_on(&Context::default(), &on)?;
/// assert_eq!(problem.lambda_names().len(), 4);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct BuiltOn<'a> {
    /// The executor of the run.
    pub executor: &'a dyn Executor,
    /// The precision of its products.
    pub precision: Precision,
    /// Set if the work should stop.
    pub signal: &'a StopSignal,
}

impl Context {
    /// The data folder, or an error with the option that sets it.
    ///
    /// ```
    /// let error = bilevel_run::Context::default().data_dir("pets").unwrap_err();
    /// assert_eq!(error.to_string(), "pets reads data files; give their folder with --data DIR ('bilevel data list' lists the datasets)");
    /// ```
    pub fn data_dir(&self, task: &str) -> Result<&Path> {
        self.data.as_deref().ok_or_else(|| bilevel::Error::MissingData {
            reason: format!("{task} reads data files"),
            remedy: "give their folder with --data DIR ('bilevel data list' lists the datasets)".into(),
        })
    }
}

/// The loops that suit a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// The method to begin with.
    pub method: &'static str,
    /// The inner loop, whichever method runs it. Its temperature is for methods that are made for noise.
    pub inner: InnerLoop,
    /// Roughly the largest curvature of the inner loss: linear systems are solved with steps of 1 over it.
    pub curvature: f64,
    /// The optimizer that moves λ.
    pub optimizer: InnerOptimizer,
    /// Outer learning rate.
    pub rate: f64,
    /// Outer iterations in which the rate grows to its full size.
    pub warm_up: u32,
    /// The rate falls to 0 along half a cosine, after the warm-up.
    pub cosine: bool,
    /// Outer iterations.
    pub iterations: u32,
    /// θ starts from scratch in every outer iteration.
    pub cold: bool,
    /// The floating-point type.
    pub dtype: DType,
}

impl Default for Defaults {
    /// The Langevin adjoint with Adam at a rate of 0.05 for 300 iterations, in 64-bit floats. The inner loop has 100
    /// steps of 0.01 at a temperature of 1e-6, for curvatures up to 10.
    fn default() -> Self {
        Defaults {
            method: "langevin-adjoint",
            inner: InnerLoop::default().at_temperature(1e-6),
            curvature: 10.0,
            optimizer: InnerOptimizer::Adam(Adam::default()),
            rate: 0.05,
            warm_up: 0,
            cosine: false,
            iterations: 300,
            cold: false,
            dtype: DType::F64,
        }
    }
}

/// How a leaf of λ is seen as images.
///
/// ```
/// use bilevel_run::Picture;
/// let picture = Picture { leaf: "weights", panels: 2, rows: 1, columns: 3, panels_last: true };
/// assert_eq!(picture.panel(&[1.0, 10.0, 2.0, 20.0, 3.0, 30.0], 1), [10.0, 20.0, 30.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Name of the leaf.
    pub leaf: &'static str,
    /// Number of images.
    pub panels: usize,
    /// Height of each.
    pub rows: usize,
    /// Width of each.
    pub columns: usize,
    /// The number of the image is the leaf's last axis; otherwise its first.
    pub panels_last: bool,
}

impl Picture {
    /// The pixels of one image, row by row.
    pub fn panel(&self, leaf: &[f64], number: usize) -> Vec<f64> {
        let pixels = self.rows * self.columns;
        let place = |pixel| if self.panels_last { pixel * self.panels + number } else { number * pixels + pixel };
        (0..pixels).map(|pixel| leaf.get(place(pixel)).copied().unwrap_or(f64::NAN)).collect()
    }
}

/// A bilevel problem with settings: its fields are the keys of `[task]` in a configuration, their doc comments the
/// comments next to them, and its `Default` their defaults. Fields are numbers, booleans, strings and enums of plain
/// words; a path that may be missing is an empty string.
///
/// ```
/// use bilevel::{InnerLoop, Leaf, Problem, Result, Variable};
/// use bilevel_run::{Context, Defaults, Registry, Task};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[serde(default, deny_unknown_fields)]
/// struct Decay {
///     /// what the parameter is trained towards
///     target: f64,
/// }
///
/// impl Default for Decay {
///     fn default() -> Self {
///         Decay { target: 2.0 }
///     }
/// }
///
/// impl Task for Decay {
///     const NAME: &'static str = "decay";
///     const SUMMARY: &'static str = "the weight decay with which training ends at 1";
///
///     fn build(&self, context: &Context) -> Result<Problem> {
///         let target = self.target;
///         Problem::builder(Leaf(Variable::constant([], 0.1).at_least(0.0)), Leaf(Variable::constant([], 0.0)))
///             .dtype(context.dtype)
///             .inner(move |_, l, t| (t.0 - target).square() + l.0 * t.0.square())
///             .outer(|_, _, t| (t.0 - 1.0).square())
///             .build()
///             .map(Problem::erase)
///     }
///
///     fn defaults(&self) -> Defaults {
///         let inner = InnerLoop::new(0.1, 20);
///         Defaults { method: "rmd", inner, curvature: 4.0, rate: 0.1, ..Defaults::default() }
///     }
/// }
///
/// let registry = Registry::new().task::<Decay>();
/// let config = registry.config(&Decay { target: 3.0 })?;
/// let problem = config.problem(&registry)?;
/// let outcome = config.driver(&registry, &problem, Box::new(bilevel::Cpu::with_threads(1)))?.run()?;
/// assert!((outcome.lambda.leaves()[0].item().unwrap() - 2.0).abs() < 0.1);
/// # use bilevel::Tree;
/// # Ok::<(), bilevel::Error>(())
/// ```
pub trait Task: Clone + Debug + Default + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Its name, as on the command line.
    const NAME: &'static str;
    /// A summary, in one line.
    const SUMMARY: &'static str;

    /// The problem with these settings. A setting outside its range is [`Error::Setting`](bilevel::Error::Setting).
    fn build(&self, context: &Context) -> Result<Problem>;

    /// The same problem, for a task that trains before a run can begin. It trains on the run's executor and in its
    /// precision, and stops when the signal is set.
    fn build_on(&self, context: &Context, _on: &BuiltOn) -> Result<Problem> {
        self.build(context)
    }

    /// The loops that suit these settings.
    fn defaults(&self) -> Defaults;

    /// Whether it reads files with these settings, so that `--data` applies.
    fn reads_data(&self) -> bool {
        false
    }

    /// λ as images, if one of its leaves can be shown that way.
    fn picture(&self) -> Option<Picture> {
        None
    }

    /// Other ways to show λ in the report: drawings, tables, a sentence.
    fn show(&self, _lambda: &[LambdaLeaf], _context: &Context) -> Vec<Section> {
        vec![]
    }

    /// Tunes a method of the library, and its inner loop, for this task beyond [`defaults`](Self::defaults).
    fn tune(&self, _method: &mut AnyMethod, _inner: &mut InnerLoop) {}
}

/// Any task, with its settings.
pub trait AnyTask: Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// A summary, in one line.
    fn summary(&self) -> &'static str;
    /// Its settings, with its name among them.
    fn settings(&self) -> Settings;
    /// See [`Task::build`].
    fn build(&self, context: &Context) -> Result<Problem>;
    /// See [`Task::build_on`].
    fn build_on(&self, context: &Context, on: &BuiltOn) -> Result<Problem>;
    /// See [`Task::defaults`].
    fn defaults(&self) -> Defaults;
    /// See [`Task::reads_data`].
    fn reads_data(&self) -> bool;
    /// See [`Task::picture`].
    fn picture(&self) -> Option<Picture>;
    /// See [`Task::show`].
    fn show(&self, lambda: &[LambdaLeaf], context: &Context) -> Vec<Section>;
    /// See [`Task::tune`].
    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop);
}

impl<T: Task> AnyTask for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn summary(&self) -> &'static str {
        T::SUMMARY
    }

    fn settings(&self) -> Settings {
        Settings::new(T::NAME, self)
    }

    fn build(&self, context: &Context) -> Result<Problem> {
        Task::build(self, context)
    }

    fn build_on(&self, context: &Context, on: &BuiltOn) -> Result<Problem> {
        Task::build_on(self, context, on)
    }

    fn defaults(&self) -> Defaults {
        Task::defaults(self)
    }

    fn reads_data(&self) -> bool {
        Task::reads_data(self)
    }

    fn picture(&self) -> Option<Picture> {
        Task::picture(self)
    }

    fn show(&self, lambda: &[LambdaLeaf], context: &Context) -> Vec<Section> {
        Task::show(self, lambda, context)
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        Task::tune(self, method, inner)
    }
}

/// The JSON schema of settings, with nothing defined elsewhere.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}
