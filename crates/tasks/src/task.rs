//! A task: a bi-level problem with a name, and settings with which every method works on it out of the box.

use bilevel::{AnyMethod, DType, Method, Problem, Result, Suited};
use std::path::PathBuf;

/// What a task may be told before it is set up.
///
/// ```
/// use bilevel_tasks::TaskOptions;
/// let options = TaskOptions { seed: 3, ..TaskOptions::default() };
/// assert!(options.data_dir.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskOptions {
    /// Decides whatever is random about the task itself: a split of the data, wrong labels.
    pub seed: u64,
    /// Where files of data lie, for tasks that need some.
    pub data_dir: Option<PathBuf>,
    /// The floating-point type, where it should not be the task's own.
    pub dtype: Option<DType>,
}

/// Which optimizer moves λ, with its usual settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Plain descent.
    Sgd,
    /// Heavy ball.
    Momentum,
    /// Adam.
    Adam,
}

/// The inner loop that suits a task, whichever method runs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InnerLoop {
    /// Inner step γ.
    pub step: f64,
    /// Inner steps T of one hypergradient.
    pub steps: usize,
    /// Temperature τ of the methods that are made for noise; the others take gradient steps without it.
    pub temperature: f64,
    /// Roughly the largest curvature of the inner loss. Linear systems are solved with steps of 1 over it.
    pub curvature: f64,
}

/// The outer loop that suits a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// The method to begin with.
    pub method: &'static str,
    /// Settings shared by all methods.
    pub inner: InnerLoop,
    /// What moves λ.
    pub optimizer: OptimizerKind,
    /// Outer learning rate.
    pub rate: f64,
    /// The rate falls to 0 along half a cosine.
    pub cosine: bool,
    /// Outer iterations.
    pub iterations: u32,
    /// θ starts anew in every outer iteration.
    pub cold: bool,
    /// The floating-point type.
    pub dtype: DType,
}

/// How a leaf of λ is seen as images.
///
/// ```
/// use bilevel_tasks::Picture;
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

/// A task that is ready to run.
pub struct Setup {
    /// The problem, with measures on data no loss has seen, where there are any.
    pub problem: Problem,
    /// Settings to begin with.
    pub defaults: Defaults,
    /// How to look at λ, where it can be looked at.
    pub picture: Option<Picture>,
}

/// A named bi-level problem. All of them: [`tasks`](crate::tasks()).
///
/// ```
/// use bilevel::Driver;
/// use bilevel_tasks::{TaskOptions, task};
/// let synth = task("synth1d")?;
/// let setup = synth.setup(&TaskOptions::default())?;
/// let outcome = Driver::new(&setup.problem, synth.method("ift-cg")?).iterations(10).run()?;
/// assert!(!outcome.reason.is_failure());
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Debug)]
pub struct Task {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// What is learned, in one line.
    pub summary: &'static str,
    /// Settings to begin with.
    pub defaults: Defaults,
    /// How to look at λ, where it can be looked at.
    pub picture: Option<Picture>,
    pub(crate) problem: fn(&TaskOptions, DType) -> Result<Problem>,
}

impl Task {
    /// The problem with its defaults.
    pub fn setup(&self, options: &TaskOptions) -> Result<Setup> {
        let problem = (self.problem)(options, options.dtype.unwrap_or(self.defaults.dtype))?;
        Ok(Setup { problem, defaults: self.defaults, picture: self.picture })
    }

    /// The method of this name with settings that suit this task: all methods run the same inner loop.
    ///
    /// ```
    /// use bilevel::AnyMethod;
    /// let AnyMethod::Rmd(rmd) = bilevel_tasks::task("synth1d")?.method("rmd")? else { panic!() };
    /// assert_eq!((rmd.step, rmd.steps), (0.005, 100));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn method(&self, name: &str) -> Result<AnyMethod> {
        let InnerLoop { step, steps, temperature, curvature } = self.defaults.inner;
        let mut method = AnyMethod::named(name)?;
        method.suit(&Suited { step, steps, temperature, curvature });
        Ok(method)
    }
}
