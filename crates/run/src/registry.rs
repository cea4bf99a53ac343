//! All tasks, studies, methods and optimizers of a command, as a value: users add their own.

use crate::manifest::Taken;
use crate::price::Passes;
use crate::task::schema_of;
use crate::words::words_of_setting;
use crate::{AnyMeasure, AnyTask, Config, Measure, PLAIN, Plain, Recipe, Settings, Study, Task};
use bilevel::methods::{AnyMethod, MethodInfo};
use bilevel::optimizers::{InnerOptimizer, Optimizer};
use bilevel::{Error, InnerLoop, Method, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::sync::Arc;

/// The method and its inner loop for a task whose own loop and largest curvature are these; the task may tune the
/// method further.
type Tuned = dyn Fn(InnerLoop, f64, Option<&dyn AnyTask>) -> Recipe + Send + Sync;
type Read<T> = Arc<dyn Fn(&Settings) -> Result<Box<T>> + Send + Sync>;

/// A task that is known.
#[derive(Clone)]
pub struct KnownTask {
    /// Its name.
    pub name: &'static str,
    /// A summary, in one line.
    pub summary: &'static str,
    usual: fn() -> Box<dyn AnyTask>,
    read: fn(&Settings) -> Result<Box<dyn AnyTask>>,
    schema: fn() -> Value,
}

impl KnownTask {
    /// With its usual settings.
    pub fn usual(&self) -> Box<dyn AnyTask> {
        (self.usual)()
    }

    /// The JSON schema of its settings: names, types, words and meanings.
    pub fn schema(&self) -> Value {
        (self.schema)()
    }
}

/// A method that is known.
#[derive(Clone)]
pub struct KnownMethod {
    /// Its description, for choosing a method.
    pub info: MethodInfo,
    /// How its second-order products are priced.
    pub passes: Passes,
    usual: Settings,
    tuned: Arc<Tuned>,
    read: Read<dyn Method>,
    meanings: Vec<(String, String)>,
    /// Settings that are one of a few words.
    words: Vec<(String, &'static [&'static str])>,
}

impl KnownMethod {
    /// A method that is not in the library.
    fn of<M>(info: MethodInfo) -> Self
    where
        M: Method + Default + Serialize + DeserializeOwned + JsonSchema + 'static,
    {
        KnownMethod {
            info,
            passes: Passes::of_method(&M::default()),
            usual: Settings::new(info.name, &M::default()),
            tuned: Arc::new(move |inner, curvature, _| {
                let mut method = M::default();
                let inner = method.tune(inner, curvature);
                Recipe { method: Settings::new(info.name, &method), inner }
            }),
            read: Arc::new(|settings| Ok(Box::new(settings.read::<M>()?) as Box<dyn Method>)),
            meanings: meanings(&schema_of::<M>()),
            words: words(&Settings::new(info.name, &M::default()), |key| words_of_setting::<M>(None, key)),
        }
    }

    /// Its default settings for any task.
    pub fn usual(&self) -> &Settings {
        &self.usual
    }

    /// The recipe with the solver's settings and the loop that suit an inner loss of this curvature, given the loop of
    /// other methods.
    pub fn tuned(&self, inner: InnerLoop, curvature: f64) -> Recipe {
        (self.tuned)(inner, curvature, None)
    }

    /// The words that one of its settings can be; none if it is not one of a few.
    ///
    /// ```
    /// let registry = bilevel_tasks::register(bilevel_run::Registry::new());
    /// assert_eq!(registry.known_method("ift-cg")?.words("curvature"), ["hessian", "gauss-newton"]);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn words(&self, key: &str) -> &'static [&'static str] {
        self.words.iter().find(|(known, _)| known == key).map_or(&[], |(_, words)| words)
    }

    /// The meaning of one of its settings; empty for those of the library's methods.
    pub fn meaning(&self, key: &str) -> &str {
        self.meanings.iter().find(|(known, _)| known == key).map_or("", |(_, meaning)| meaning)
    }
}

/// An optimizer of λ that is known.
#[derive(Clone)]
pub struct KnownOptimizer {
    /// Its name.
    pub name: &'static str,
    usual: Settings,
    read: Read<dyn Optimizer>,
}

impl KnownOptimizer {
    /// Its usual settings.
    pub fn usual(&self) -> &Settings {
        &self.usual
    }
}

/// Makes a measure of the configuration of an item and of the measure's own settings.
type Build = dyn Fn(&Config, &Map<String, Value>) -> Result<Box<dyn AnyMeasure>> + Send + Sync;

/// A measure that a manifest can name instead of a run.
#[derive(Clone)]
pub struct KnownMeasure {
    /// Its name.
    pub name: &'static str,
    pub(crate) build: Arc<Build>,
}

/// All tasks, studies, methods and optimizers of a command.
///
/// ```
/// use bilevel_run::Registry;
/// let registry = bilevel_tasks::register(Registry::new());
/// let config = registry.usual("synth1d")?;
/// assert_eq!(config.method.name(), "langevin-adjoint");
/// let error = registry.usual("synht1d").unwrap_err();
/// assert_eq!(error.to_string(), "there is no task 'synht1d'; did you mean synth1d?");
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    tasks: Vec<KnownTask>,
    studies: Vec<Arc<dyn Study>>,
    methods: Vec<KnownMethod>,
    /// A run can name it as it names a method, but it learns nothing and is listed nowhere.
    plain: KnownMethod,
    optimizers: Vec<KnownOptimizer>,
    measures: Vec<KnownMeasure>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The library's methods and optimizers, and no task.
    pub fn new() -> Self {
        let method = |info: &MethodInfo| KnownMethod {
            info: *info,
            passes: Passes::of(info.name),
            usual: AnyMethod::named(info.name).map(Settings::of_method).unwrap_or_default(),
            tuned: {
                let name = info.name;
                Arc::new(move |inner, curvature, task| {
                    let tuned = |mut method: AnyMethod| {
                        let mut inner = method.tune(inner, curvature);
                        if let Some(task) = task {
                            task.tune(&mut method, &mut inner);
                        }
                        Recipe::from((method, inner))
                    };
                    AnyMethod::named(name).map(tuned).unwrap_or(Recipe { method: Settings::default(), inner })
                })
            },
            read: Arc::new(|settings| {
                let table = Value::Object(settings.table().clone());
                let method: AnyMethod = serde_json::from_value(table)
                    .map_err(|error| Error::other(format!("{}: {error}", settings.name())))?;
                Ok(Box::new(method) as Box<dyn Method>)
            }),
            meanings: vec![],
            words: words(&AnyMethod::named(info.name).map(Settings::of_method).unwrap_or_default(), |key| {
                words_of_setting::<AnyMethod>(Some(info.name), key)
            }),
        };
        let optimizer = |optimizer: &InnerOptimizer| KnownOptimizer {
            name: optimizer.kind(),
            usual: Settings::new(optimizer.kind(), optimizer),
            read: Arc::new(|settings| {
                let table = Value::Object(settings.table().clone());
                let optimizer: InnerOptimizer = serde_json::from_value(table)
                    .map_err(|error| Error::other(format!("{}: {error}", settings.name())))?;
                Ok(Box::new(optimizer) as Box<dyn Optimizer>)
            }),
        };
        Registry {
            tasks: vec![],
            studies: vec![],
            methods: bilevel::methods::all().iter().map(method).collect(),
            plain: KnownMethod::of::<Plain>(PLAIN),
            optimizers: crate::optimizers().iter().map(optimizer).collect(),
            measures: vec![],
        }
    }

    /// Adds a task, or replaces the one with the same name.
    pub fn task<T: Task>(mut self) -> Self {
        self.tasks.retain(|known| known.name != T::NAME);
        self.tasks.push(KnownTask {
            name: T::NAME,
            summary: T::SUMMARY,
            usual: || Box::new(T::default()),
            read: |settings| Ok(Box::new(settings.read::<T>()?)),
            schema: schema_of::<T>,
        });
        self
    }

    /// Adds a study, or replaces the one with the same name.
    pub fn study(mut self, study: impl Study + 'static) -> Self {
        self.studies.retain(|known| known.name() != study.name());
        self.studies.push(Arc::new(study));
        self
    }

    /// With one more method; `info` says when to choose it. The doc comments of its fields are the meanings of its
    /// settings.
    pub fn method<M>(mut self, info: MethodInfo) -> Self
    where
        M: Method + Default + Serialize + DeserializeOwned + JsonSchema + 'static,
    {
        self.methods.retain(|known| known.info.name != info.name);
        self.methods.push(KnownMethod::of::<M>(info));
        self
    }

    /// With one more optimizer of λ.
    pub fn optimizer<O>(mut self) -> Self
    where
        O: Optimizer + Default + Serialize + DeserializeOwned + 'static,
    {
        let usual = O::default();
        self.optimizers.retain(|known| known.name != usual.kind());
        self.optimizers.push(KnownOptimizer {
            name: usual.kind(),
            usual: Settings::new(usual.kind(), &usual),
            read: Arc::new(|settings| Ok(Box::new(settings.read::<O>()?) as Box<dyn Optimizer>)),
        });
        self
    }

    /// Adds a measure that rows of a manifest can name; its result is a [`Taken`](crate::manifest::Taken).
    pub fn measure<M: Measure<Found = Taken>>(
        mut self,
        name: &'static str,
        build: impl Fn(&Config, &Map<String, Value>) -> Result<M> + Send + Sync + 'static,
    ) -> Self {
        self.measures.retain(|known| known.name != name);
        let build: Arc<Build> = Arc::new(move |config, with| Ok(Box::new(build(config, with)?) as Box<dyn AnyMeasure>));
        self.measures.push(KnownMeasure { name, build });
        self
    }

    /// The measure of this name.
    pub fn known_measure(&self, name: &str) -> Result<&KnownMeasure> {
        let found = self.measures.iter().find(|known| known.name == name);
        found.ok_or_else(|| Error::unknown("measure", name, self.measures.iter().map(|known| known.name)))
    }

    /// The tasks, in the order they were added.
    pub fn tasks(&self) -> &[KnownTask] {
        &self.tasks
    }

    /// The studies, in the order they were added.
    pub fn studies(&self) -> &[Arc<dyn Study>] {
        &self.studies
    }

    /// The methods, those of the library first.
    pub fn methods(&self) -> &[KnownMethod] {
        &self.methods
    }

    /// The optimizers of λ.
    pub fn optimizers(&self) -> &[KnownOptimizer] {
        &self.optimizers
    }

    /// The task of this name.
    pub fn known_task(&self, name: &str) -> Result<&KnownTask> {
        let found = self.tasks.iter().find(|known| known.name == name);
        found.ok_or_else(|| Error::unknown("task", name, self.tasks.iter().map(|known| known.name)))
    }

    /// The study of this name.
    pub fn known_study(&self, name: &str) -> Result<&Arc<dyn Study>> {
        let found = self.studies.iter().find(|known| known.name() == name);
        found.ok_or_else(|| Error::unknown("study", name, self.studies.iter().map(|known| known.name())))
    }

    /// The method of this name.
    pub fn known_method(&self, name: &str) -> Result<&KnownMethod> {
        let found = self.methods.iter().chain([&self.plain]).find(|known| known.info.name == name);
        found.ok_or_else(|| Error::unknown("method", name, self.methods.iter().map(|known| known.info.name)))
    }

    /// The optimizer of this name.
    pub fn known_optimizer(&self, name: &str) -> Result<&KnownOptimizer> {
        let found = self.optimizers.iter().find(|known| known.name == name);
        found.ok_or_else(|| Error::unknown("optimizer", name, self.optimizers.iter().map(|known| known.name)))
    }

    /// The task with these settings.
    pub fn read_task(&self, settings: &Settings) -> Result<Box<dyn AnyTask>> {
        (self.known_task(settings.name())?.read)(settings)
    }

    /// The method with these settings.
    pub fn read_method(&self, settings: &Settings) -> Result<Box<dyn Method>> {
        (self.known_method(settings.name())?.read)(settings)
    }

    /// The optimizer with these settings.
    pub fn read_optimizer(&self, settings: &Settings) -> Result<Box<dyn Optimizer>> {
        (self.known_optimizer(settings.name())?.read)(settings)
    }

    /// A method with settings, and an inner loop, that suit a task.
    ///
    /// ```
    /// let registry = bilevel_tasks::register(bilevel_run::Registry::new());
    /// let task = registry.known_task("synth1d")?.usual();
    /// let inner = registry.suited(&*task, "rmd")?.inner;
    /// assert_eq!((inner.step, inner.steps, inner.temperature), (0.005, 100, 0.0));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn suited(&self, task: &dyn AnyTask, method: &str) -> Result<Recipe> {
        let defaults = task.defaults();
        Ok((self.known_method(method)?.tuned)(defaults.inner, defaults.curvature, Some(task)))
    }

    /// A run of a task with its usual settings.
    pub fn usual(&self, task: &str) -> Result<Config> {
        Config::of(self, &*self.known_task(task)?.usual())
    }

    /// A run of a task with these settings, with the loops that suit them.
    pub fn config(&self, task: &dyn AnyTask) -> Result<Config> {
        Config::of(self, task)
    }
}

/// The allowed words of each setting that is a string, if they are few.
fn words(
    settings: &Settings,
    of: impl for<'a> Fn(&'a str) -> &'static [&'static str],
) -> Vec<(String, &'static [&'static str])> {
    let strings = settings.table().iter().filter(|(key, value)| value.is_string() && *key != "name");
    strings.map(|(key, _)| (key.clone(), of(key))).filter(|(_, words)| !words.is_empty()).collect()
}

/// The description of every property of a schema.
pub fn meanings(schema: &Value) -> Vec<(String, String)> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let meaning = |value: &Value| value["description"].as_str().unwrap_or_default().replace('\n', " ");
    properties.map(|(name, value)| (name.clone(), meaning(value))).collect()
}

impl Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tasks: Vec<&str> = self.tasks.iter().map(|known| known.name).collect();
        write!(f, "Registry({} methods; tasks {})", self.methods.len(), tasks.join(", "))
    }
}
