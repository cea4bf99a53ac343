//! All tasks, studies, methods and optimizers that a command knows, as a value: users add their own.

use crate::price::Passes;
use crate::task::schema_of;
use crate::words::words_of_setting;
use crate::{AnyTask, Config, Settings, Study, Task};
use bilevel::{AnyMethod, Error, InnerOptimizer, Method, MethodInfo, Optimizer, Result, Suited};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;

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
    /// What to know when choosing it.
    pub info: MethodInfo,
    /// How its second-order products are priced.
    pub passes: Passes,
    usual: Settings,
    suited: Arc<dyn Fn(&Suited) -> Settings + Send + Sync>,
    read: Read<dyn Method>,
    meanings: Vec<(String, String)>,
    /// Settings that are one of a few words.
    words: Vec<(String, &'static [&'static str])>,
}

impl KnownMethod {
    /// Its default settings for any task.
    pub fn usual(&self) -> &Settings {
        &self.usual
    }

    /// The words that one of its settings can be; none if it is not one of a few.
    ///
    /// ```
    /// let registry = bilevel_tasks::Registry::everything();
    /// assert_eq!(registry.known_method("ift-cg")?.words("curvature"), ["hessian", "gauss-newton"]);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn words(&self, key: &str) -> &'static [&'static str] {
        self.words.iter().find(|(known, _)| known == key).map_or(&[], |(_, words)| words)
    }

    /// The meaning of one of its own settings; empty for those of the library's methods.
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

/// Everything that a command knows.
///
/// ```
/// use bilevel_tasks::Registry;
/// let registry = Registry::everything();
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
    optimizers: Vec<KnownOptimizer>,
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
            suited: {
                let name = info.name;
                Arc::new(move |inner| {
                    let suited = |mut method: AnyMethod| {
                        method.suit(inner);
                        Settings::of_method(method)
                    };
                    AnyMethod::named(name).map(suited).unwrap_or_default()
                })
            },
            read: Arc::new(|settings| {
                let table = Value::Object(settings.table().clone());
                let method: AnyMethod = serde_json::from_value(table)
                    .map_err(|error| Error::Problem { reason: format!("{}: {error}", settings.name()) })?;
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
                    .map_err(|error| Error::Problem { reason: format!("{}: {error}", settings.name()) })?;
                Ok(Box::new(optimizer) as Box<dyn Optimizer>)
            }),
        };
        Registry {
            tasks: vec![],
            studies: vec![],
            methods: bilevel::methods().iter().map(method).collect(),
            optimizers: crate::optimizers().iter().map(optimizer).collect(),
        }
    }

    /// All tasks and studies of this crate.
    pub fn everything() -> Self {
        crate::studies::register(crate::tasks::register(Self::new()))
    }

    /// With one more task; one of the same name gives way.
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

    /// With one more study; one of the same name gives way.
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
        self.methods.push(KnownMethod {
            info,
            passes: Passes::of_method(&M::default()),
            usual: Settings::new(info.name, &M::default()),
            suited: Arc::new(move |inner| {
                let mut method = M::default();
                method.suit(inner);
                Settings::new(info.name, &method)
            }),
            read: Arc::new(|settings| Ok(Box::new(settings.read::<M>()?) as Box<dyn Method>)),
            meanings: meanings(&schema_of::<M>()),
            words: words(&Settings::new(info.name, &M::default()), |key| words_of_setting::<M>(None, key)),
        });
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
        found.ok_or_else(|| unknown("task", name, self.tasks.iter().map(|known| known.name)))
    }

    /// The study of this name.
    pub fn known_study(&self, name: &str) -> Result<&Arc<dyn Study>> {
        let found = self.studies.iter().find(|known| known.name() == name);
        found.ok_or_else(|| unknown("study", name, self.studies.iter().map(|known| known.name())))
    }

    /// The method of this name.
    pub fn known_method(&self, name: &str) -> Result<&KnownMethod> {
        let found = self.methods.iter().find(|known| known.info.name == name);
        found.ok_or_else(|| unknown("method", name, self.methods.iter().map(|known| known.info.name)))
    }

    /// The optimizer of this name.
    pub fn known_optimizer(&self, name: &str) -> Result<&KnownOptimizer> {
        let found = self.optimizers.iter().find(|known| known.name == name);
        found.ok_or_else(|| unknown("optimizer", name, self.optimizers.iter().map(|known| known.name)))
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

    /// The settings of a method that suit a task.
    ///
    /// ```
    /// let registry = bilevel_tasks::Registry::everything();
    /// let task = registry.known_task("synth1d")?.usual();
    /// let rmd = registry.suited(&*task, "rmd")?;
    /// assert_eq!((rmd.get("step").unwrap().as_f64(), rmd.get("steps").unwrap().as_u64()), (Some(0.005), Some(100)));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn suited(&self, task: &dyn AnyTask, method: &str) -> Result<Settings> {
        let mut settings = (self.known_method(method)?.suited)(&task.defaults().inner);
        task.suit(&mut settings);
        Ok(settings)
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

/// Of each setting that is a string, the words it can be, where they are few.
fn words(
    settings: &Settings,
    of: impl for<'a> Fn(&'a str) -> &'static [&'static str],
) -> Vec<(String, &'static [&'static str])> {
    let strings = settings.table().iter().filter(|(key, value)| value.is_string() && *key != "name");
    strings.map(|(key, _)| (key.clone(), of(key))).filter(|(_, words)| !words.is_empty()).collect()
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let plural = if let Some(stem) = what.strip_suffix('y') { format!("{stem}ies") } else { format!("{what}s") };
    let reason = match bilevel::nearest(name, known.iter().copied()) {
        Some(near) => format!("there is no {what} '{name}'; did you mean {near}?"),
        None if known.is_empty() => format!("there is no {what} '{name}'; there are no {plural}"),
        None => format!("there is no {what} '{name}'; the {plural} are {}", known.join(", ")),
    };
    Error::Problem { reason }
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
