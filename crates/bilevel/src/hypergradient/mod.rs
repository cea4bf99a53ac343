//! The contract of every method: its settings, its declarations, and its estimator.

pub(crate) mod chains;
pub mod claims;
pub(crate) mod forwarding;
pub(crate) mod loop_use;
pub(crate) mod methods;
pub(crate) mod parts;
pub(crate) mod paths;
pub(crate) mod ranges;
pub(crate) mod registry;
pub(crate) mod scale;
pub(crate) mod settings;
pub(crate) mod vocabulary;

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::diagnostics::Cause;
use crate::health::diagnostics::Diagnostics;
use crate::health::probe::PreparedMethod;
use crate::hypergradient::loop_use::{LoopUse, Output};
use crate::hypergradient::paths::Path;
use crate::hypergradient::scale::Scale;
use crate::hypergradient::settings::SettingsRecord;
use crate::inner::inner_loop::InnerLoop;
use crate::methods::claims::Claims;
use crate::problem::AnyProblem;
use bilevel_graph::Executor;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// A method with its own settings, before it meets a problem and an inner loop. Its settings are checked when it is prepared, and are part
/// of a checkpoint's identity. The inner loop belongs to the run: a method declares how it uses it ([`loop_use`](Method::loop_use)).
pub trait Method: std::fmt::Debug + Send + Sync {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// The settings as a checkpoint holds them, so that a run continues only with the settings it began with. By default their
    /// `Debug` text; a method whose settings are `Serialize` and `Deserialize` returns
    /// [`SettingsRecord::of(self.name(), self)`](SettingsRecord::of), which a new setting with a default leaves equal.
    fn settings(&self) -> SettingsRecord {
        SettingsRecord::text(self.name(), self)
    }

    /// Checks the settings, the inner loop ([`InnerLoop::check_for`]) and whether the method applies, and compiles its
    /// programs. A new method implements this. γ is not compiled: it is an argument of every hypergradient.
    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>>;

    /// Whether the method differentiates along this path from λ to the outer loss.
    fn sees(&self, path: Path) -> bool {
        !(self.loop_use().assumes_minimum && path == Path::Start)
    }

    /// Checks whether the method can work on this problem at all, without compiling anything; the error names an
    /// alternative.
    ///
    /// ```
    /// use bilevel::prelude::*;
    /// // λ is where training starts and nothing else.
    /// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
    ///     .inner(|_, _, t| t.0.square())
    ///     .outer(|_, _, t| (t.0 - 1.0).square())
    ///     .start(|_, l| *l)
    ///     .build()?;
    /// assert!(Rmd::default().applies(&problem).is_ok());
    /// let error = IftCg::default().applies(&problem).unwrap_err().to_string();
    /// assert!(error.contains("λ acts only through θ⁰"), "{error}");
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        paths::must_see(self.name(), problem, |path| self.sees(path))
    }

    /// How the method uses the inner loop.
    fn loop_use(&self) -> LoopUse {
        LoopUse::PLAIN
    }

    /// The inner loop of a run that is given none: [`InnerLoop::default`], or that of the publication.
    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::default()
    }

    /// Fits the method to a task, so that all methods can be compared on the same one. Chooses the settings of its
    /// solver for an inner loss of about this largest curvature, and returns the method's loop for a task with this
    /// one.
    ///
    /// ```
    /// use bilevel::methods::{AmigoSgd, HpoSgld};
    /// use bilevel::{InnerLoop, Method};
    /// let (mut amigo, task) = (AmigoSgd::default(), InnerLoop::new(0.1, 20).at_temperature(1e-6));
    /// assert_eq!(amigo.tune(task, 4.0), InnerLoop::new(0.1, 20));
    /// assert_eq!(amigo.beta, 0.25);
    /// assert_eq!(HpoSgld::default().tune(task, 4.0), InnerLoop { burn_in: 10, ..task });
    /// ```
    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        self.loop_use().adapt(task)
    }

    /// The meaning of [`Hypergradient::value`].
    fn output(&self) -> Output {
        Output::Hypergradient
    }

    /// Chooses settings with which its solver converges on a problem of this scale, at any cost, for comparisons with a
    /// known answer. By default it changes nothing.
    fn converge(&mut self, _scale: &Scale) {}

    /// Whether H·v and vᵀ·C of a step come from one reverse pass, so that both together cost one product.
    fn shares_passes(&self) -> bool {
        false
    }

    /// The conditions under which the method is correct, given suitable settings: the claims of its documentation as
    /// data, which the truth suite checks (the crate `bilevel-truth`). By default there are none.
    fn claims(&self) -> Claims {
        Claims::default()
    }

    /// Compiles the method for a problem and an inner loop. This is the entry point for users. Its hypergradients come
    /// with a diagnosis, which costs one outer gradient, one second derivative along it and one inner loss each; the
    /// oracle counts are the method's own, without these.
    fn prepare(&self, problem: &AnyProblem, executor: &dyn Executor, inner: &InnerLoop) -> Result<PreparedMethod> {
        self.prepare_in(&Session::new(problem, executor)?, inner)
    }

    /// As [`prepare`](Self::prepare), sharing a session's data with everything else compiled for it.
    fn prepare_in(&self, session: &Session, inner: &InnerLoop) -> Result<PreparedMethod> {
        PreparedMethod::new(self, session, inner)
    }
}

/// A method compiled for one problem and one inner loop.
pub trait Estimator: Send {
    /// The hypergradient at `state.lambda`, starting the inner loop at `state.theta` with steps of γ; leaves the inner
    /// loop's last θ, and the method's memory, in the state. The same state, key and γ give the same result, to the
    /// bit. After an error, do not rely on the state.
    ///
    /// If θ starts from λ, every call starts there and ignores `state.theta`.
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient>;

    /// Resets θ to a cold start, in every part of the state.
    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        state.theta.copy_from(theta)
    }

    /// The tables in the method's memory, with the rows that the last hypergradient changed. The outer loop copies only
    /// these rows in every iteration, never a whole table. It checks the rest of the memory for growth and for numbers
    /// that are not finite, so every value of a table must show there too. By default there are none, and all of the
    /// memory may have changed.
    fn tables(&self) -> &[MemoryTable] {
        &[]
    }
}

/// Leaves of a method's memory that are tables with a row for each index of their first axis.
///
/// ```
/// // The memory is a vector and a table, of which the last hypergradient changed two rows.
/// let table = bilevel::methods::MemoryTable { leaves: 1..2, changed: vec![3, 17] };
/// assert!(table.leaves.contains(&1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    /// The range of leaves.
    pub leaves: Range<usize>,
    /// The rows that were changed, in any order; one may be named twice.
    pub changed: Vec<usize>,
}

/// How often each kind of derivative was computed: the cost of a method, independent of hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Oracles {
    /// ∇θ L_T.
    pub inner_gradients: u64,
    /// f_θ (with f_λ).
    pub outer_gradients: u64,
    /// H·v.
    pub hessian_products: u64,
    /// vᵀ·C.
    pub mixed_products: u64,
    /// f or L_T without a derivative.
    pub losses: u64,
}

impl std::ops::AddAssign for Oracles {
    fn add_assign(&mut self, other: Self) {
        self.inner_gradients += other.inner_gradients;
        self.outer_gradients += other.outer_gradients;
        self.hessian_products += other.hessian_products;
        self.mixed_products += other.mixed_products;
        self.losses += other.losses;
    }
}

/// An estimate of d E\[f\]/dλ, with its diagnostics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hypergradient {
    /// The estimate, leaf by leaf of λ.
    pub value: Leaves,
    /// Standard error of each number of the estimate, if the method computes it: [`Chains`](crate::methods::Chains) and
    /// [`Es`](crate::methods::Es) do.
    pub standard_error: Option<Leaves>,
    /// L_T at the θ that is left in the state, with the draw of step T of this hypergradient's key, where T is the number of inner
    /// steps ([`InnerLoop::steps`]). For [`Chains`](crate::methods::Chains), the mean
    /// over the chains. NaN if the method has not evaluated it there; a method that was [prepared](Method::prepare) always reports it.
    pub inner_loss: f64,
    /// f at the same θ with the same draw.
    pub outer_loss: f64,
    /// Its cost.
    pub oracles: Oracles,
    /// The diagnostics of the hypergradient.
    pub diagnostics: Diagnostics,
    /// Names of λ's leaves that cannot influence the outer loss.
    pub idle: Arc<[String]>,
    /// The likely cause if the estimate or the method's memory is not finite although θ is.
    pub blame: Cause,
}

impl Hypergradient {
    /// A value with its cost, for new methods. Its losses are evaluated at the θ that the method leaves.
    pub fn new(value: Leaves, oracles: Oracles) -> Self {
        let (diagnostics, idle, blame) = (Diagnostics::default(), Arc::from([]), Cause::InnerStepTooLarge);
        let (inner_loss, outer_loss) = (f64::NAN, f64::NAN);
        Hypergradient { value, standard_error: None, inner_loss, outer_loss, oracles, diagnostics, idle, blame }
    }

    /// Sets the inner loss, for a method that has evaluated it at the θ it leaves in the state, with the draw of step
    /// T.
    pub fn with_inner_loss(self, inner_loss: f64) -> Self {
        Hypergradient { inner_loss, ..self }
    }

    /// Sets the outer loss, for a method that has evaluated it at the θ it leaves in the state, with the draw of step
    /// T.
    pub fn with_outer_loss(self, outer_loss: f64) -> Self {
        Hypergradient { outer_loss, ..self }
    }

    /// Sets the likely cause in case it is not finite.
    pub fn blaming(self, cause: Cause) -> Self {
        Hypergradient { blame: cause, ..self }
    }

    /// The observation in words, and the likely cause, if something is not finite: from the norms of θ, of the method's
    /// memory and of the estimate.
    pub(crate) fn fault(&self, method: &str, theta: f64, memory: f64, value: f64) -> Option<(String, Cause)> {
        // From the inside out: the first that is wrong explains those after it.
        if !theta.is_finite() {
            return Some(lost_theta(method));
        }
        let all = [("the method's memory", memory), ("the hypergradient", value)];
        let (what, _) = all.into_iter().find(|(_, norm)| !norm.is_finite())?;
        Some((lost(method, what), self.blame))
    }
}

fn lost(method: &str, what: &str) -> String {
    format!("{method}: {what} is no longer finite")
}

/// The observation, and the likely cause, if θ is not finite.
pub(crate) fn lost_theta(method: &str) -> (String, Cause) {
    (lost(method, "θ"), Cause::InnerStepTooLarge)
}
