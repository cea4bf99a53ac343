//! All methods by name: the purpose of each, its defaults, and one type that can hold any of them.

use crate::compiled::session::Session;
use crate::health::probe::PreparedMethod;
use crate::hypergradient::forwarding::forward_method;
use crate::hypergradient::loop_use::{LoopUse, Output};
use crate::hypergradient::paths::Path;
use crate::hypergradient::scale::Scale;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Method};
use crate::inner::inner_loop::InnerLoop;
use crate::methods::claims::Claims;
use crate::problem::AnyProblem;
use crate::{Error, Result};
use bilevel_graph::Executor;
use serde::{Deserialize, Serialize};

/// The description of a method, for choosing one.
///
/// ```
/// let adjoint = bilevel::methods::all().iter().find(|m| m.name == "langevin-adjoint").unwrap();
/// assert!(adjoint.memory.contains("flat"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodInfo {
    /// Its name.
    pub name: &'static str,
    /// The method in a few words.
    pub summary: &'static str,
    /// The cost of T inner steps.
    pub cost: &'static str,
    /// Its memory.
    pub memory: &'static str,
    /// When to choose it.
    pub when: &'static str,
    /// The name of [`Chains`](crate::methods::Chains) of it.
    pub in_chains: &'static str,
    /// Its own settings, by name, with their meaning.
    pub settings: &'static [(&'static str, &'static str)],
}

impl MethodInfo {
    /// The entry of a user's own method; the other fields are empty.
    pub const fn new(name: &'static str, in_chains: &'static str, summary: &'static str) -> Self {
        MethodInfo { name, summary, cost: "", memory: "", when: "", in_chains, settings: &[] }
    }
}

/// One line registers a method: `family::file::Type name: summary; cost; memory; when`, and then, for each setting that no method before
/// it has, `; setting = meaning`.
macro_rules! register {
    ($($family:ident::$file:ident::$method:ident $name:literal:
        $summary:literal; $cost:literal; $memory:literal; $when:literal $(; $setting:ident = $meaning:literal)*)*) => {
        $(use crate::hypergradient::methods::$family::$file::$method;)*

        /// The settings of every method, re-exported by the crate.
        pub mod registered {
            $(pub use crate::hypergradient::methods::$family::$file::$method;)*
        }

        /// Any of the methods with its settings, as in a configuration file.
        ///
        /// ```
        /// use bilevel::Method;
        /// use bilevel::methods::AnyMethod;
        /// let method = AnyMethod::named("ift-cg")?;
        /// assert_eq!(method.name(), "ift-cg");
        /// let error = AnyMethod::named("ift-gc").unwrap_err();
        /// assert!(error.to_string().contains("did you mean ift-cg?"));
        /// # Ok::<(), bilevel::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum AnyMethod {
            $(#[doc = $summary] #[serde(rename = $name)] $method($method),)*
        }

        const METHODS: &[MethodInfo] =
            &[$(MethodInfo {
                name: $name,
                summary: $summary,
                cost: $cost,
                memory: $memory,
                when: $when,
                in_chains: concat!("chains of ", $name),
                settings: &[$((stringify!($setting), $meaning)),*],
            }),*];

        impl AnyMethod {
            /// The method of this name with its default settings; a name that is not known is an error with the nearest
            /// one that is.
            pub fn named(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok(AnyMethod::$method(Default::default())),)*
                    _ => Err(Error::unknown("method", name, all().iter().map(|method| method.name))),
                }
            }

            fn inner(&self) -> &dyn Method {
                match self {
                    $(AnyMethod::$method(method) => method,)*
                }
            }

            fn inner_mut(&mut self) -> &mut dyn Method {
                match self {
                    $(AnyMethod::$method(method) => method,)*
                }
            }
        }

        $(impl From<$method> for AnyMethod {
            fn from(method: $method) -> Self {
                AnyMethod::$method(method)
            }
        })*
    };
}

register! {
    langevin::hpo_sgld::HpoSgld "hpo-sgld": "Langevin chain with the paper's forward recursion (Kim and Hospedales)";
        "T inner + T outer gradients, T mixed products"; "flat: θ and λ, for any T";
        "to reproduce the paper; its bias depends on γ·T·curvature"
    langevin::langevin_adjoint::LangevinAdjoint "langevin-adjoint": "Langevin chain with an adjoint that is correct at finite \
                                                           temperature";
        "T inner + T outer gradients, T products"; "flat: θ and λ, for any T";
        "the first to try, and the one for noisy or non-convex inner losses";
        warm = "keep the adjoint from one hypergradient to the next";
        outer_every_step = "compute the outer gradient at every inner step, or once";
        trust = "reset the adjoint if it grows beyond the bound that holds under contraction";
        horizon = "inner steps after which the adjoint decays, 0 for never"
    implicit::amigo_cg::AmigoCg "amigo-cg": "warm-started conjugate gradients on the inner Hessian";
        "T inner gradients, i Hessian products"; "a few θ";
        "well-conditioned, nearly deterministic inner losses: the fastest there";
        curvature = "the curvature in the linear solve: hessian or gauss-newton";
        regularisation = "added to the curvature in the linear solve";
        iterations = "iterations of the linear solve"
    implicit::amigo_sgd::AmigoSgd "amigo-sgd": "warm-started gradient steps on the linear system";
        "T inner gradients, i Hessian products"; "a few θ"; "as amigo-cg, with minibatches";
        beta = "step of the linear solve"
    implicit::ift_cg::IftCg "ift-cg": "implicit differentiation by conjugate gradients from zero";
        "T inner gradients, i Hessian products"; "a few θ"; "an inner loss trained to its minimum"
    implicit::ift_neumann::IftNeumann "ift-neumann": "implicit differentiation by a Neumann series";
        "T inner gradients, i Hessian products"; "a few θ"; "as ift-cg, if curvature is well below 1/α";
        alpha = "step of the Neumann series";
        terms = "terms of the Neumann series after the first";
        final_alpha = "multiply the Neumann series by alpha, as the inverse needs"
    implicit::imaml::Imaml "imaml": "implicit MAML: a proximal term keeps θ near λ";
        "T inner gradients, i Hessian products"; "a few θ"; "learned initialisations with long training";
        rho = "strength of the pull towards the start"
    unrolled::rmd::Rmd "rmd": "reverse mode through the unrolled inner loop; MAML if θ⁰ = λ";
        "T inner gradients, T products"; "T θ, or √T with checkpoints"; "short inner loops, and if θ⁰ depends on λ";
        storage = "storage of the inner loop: all, checkpoints or { truncated = STEPS }"
    unrolled::rmd_fo::RmdFo "rmd-fo": "reverse mode without second derivatives; first-order MAML if θ⁰ = λ";
        "T inner gradients"; "one θ"; "a cheap baseline for learned initialisations"
    unrolled::fmd::Fmd "fmd": "forward mode through the unrolled inner loop";
        "dim λ × (T inner gradients and products)"; "flat: one column at a time"; "a handful of hyperparameters, exactly"
    search::es::Es "es": "evolutionary search: differences along random directions";
        "N × T inner gradients"; "one θ"; "losses that cannot be differentiated with respect to λ";
        sigma = "size of a perturbation";
        directions = "number of random directions";
        antithetic = "use both signs of every direction"
    langevin::covariance::Covariance "covariance": "the score-function identity from chain samples";
        "T inner gradients, losses"; "flat: θ and a few λ"; "finite temperature without second derivatives; noisy"
    langevin::evidence::Evidence "evidence": "the marginal likelihood of the training rows, by first derivatives along a Langevin chain";
        "T inner gradients"; "flat: two θ and a few λ"; "λ of a normalised prior, or of the model itself: no validation rows, no \
                                                        second derivatives"
    unrolled::reptile::Reptile "reptile": "λ moves towards the end of training";
        "T inner gradients"; "one θ"; "learned initialisations at the lowest cost"
    single_loop::soba::Soba "soba": "one step each for θ, the linear system and λ";
        "T inner + T outer gradients, T products"; "a few θ"; "minibatches and many cheap outer iterations"
    single_loop::ma_soba::MaSoba "ma-soba": "soba with a moving average of its directions";
        "T inner + T outer gradients, T products"; "a few θ and λ"; "as soba, if minibatches are small";
        weight = "weight of the newest direction in the moving average"
    single_loop::saba::Saba "saba": "soba with a table of the last result of every minibatch";
        "T inner + T outer gradients, T products"; "a few θ and λ for every minibatch"; "data in epochs, converging to \
                                                                                         the exact optimum"
    single_loop::srba::Srba "srba": "soba with its directions corrected by differences";
        "2T inner + 2T outer gradients, 2T products"; "a few θ and λ"; "as saba, if a table is too large";
        period = "steps between passes over all minibatches, 0 for as many as there are minibatches"
    implicit::stocbio::StocBio "stocbio": "a Neumann series with a separate minibatch for every factor";
        "T inner gradients, i Hessian products"; "a few θ"; "as ift-neumann, with minibatches"
    penalty::f2sa::F2sa "f2sa": "gradients only: a second θ under a growing penalty";
        "2T inner + T outer gradients"; "two θ"; "if second derivatives cost too much";
        penalty = "weight of the inner loss relative to the outer one; the bias is proportional to its inverse";
        growth = "added to the penalty after each hypergradient"
    penalty::v_pbgd::VPbgd "v-pbgd": "gradients only: a fixed penalty on the gap between the inner loss and its minimum";
        "T inner gradients, one outer"; "two θ"; "as f2sa, cheaper but with more lag"
    penalty::g_pbgd::GPbgd "g-pbgd": "a fixed penalty on the slope of the inner loss";
        "T inner + T outer gradients, T products"; "one θ"; "well-conditioned inner losses, without a solve"
    penalty::bome::Bome "bome": "gradients only: f decreases as fast as a barrier on the inner loss allows";
        "T inner gradients, one outer"; "two θ"; "as v-pbgd, without a penalty to choose";
        barrier = "required rate of decrease of the inner loss, relative to its squared gradient"
    penalty::meha::Meha "meha": "gradients only: a penalty on the gap between the inner loss and its Moreau envelope";
        "2T inner + T outer gradients"; "two θ"; "as v-pbgd, for inner losses that are not convex";
        power = "growth of the penalty, as a power of the number of hypergradients"
    implicit::nystrom::Nystrom "nystrom": "implicit differentiation with a few columns of the Hessian";
        "T inner gradients, k Hessian products"; "k θ"; "a Hessian with few large eigenvalues, or one for which no \
                                                         solve converges";
        columns = "columns of the Hessian"
    implicit::sama::Sama "sama": "gradients only: the derivative through one more step of the inner optimizer";
        "T + 3 inner gradients, one outer"; "a few θ"; "large networks trained with Adam, at the lowest cost";
        radius = "step of the finite difference in the parameters"
    implicit::hoag::Hoag "hoag": "training and the linear solve to a decreasing tolerance";
        "at most T inner gradients and i Hessian products"; "a few θ"; "deterministic inner losses: cheap at first, exact in the end";
        tolerance = "tolerance of training and of the solve, as the norm of the residual";
        fall = "how the tolerance decreases: quadratic, cubic or exponential"
    implicit::d_tfbo::DTfbo "d-tfbo": "training, the linear solve and λ with step sizes derived from past gradients";
        "at most T inner gradients and i Hessian products"; "a few θ"; "if no step size is known; use plain outer \
        steps at rate 1"
    unrolled::fg2u::Fg2u "fg2u": "forward mode along random directions";
        "N × (T inner gradients and products)"; "flat: a few θ and λ"; "long inner loops and many hyperparameters, unbiased; noisy";
        draw = "distribution of the directions: signs or coordinates"
    search::pes::Pes "pes": "evolutionary search window by window, without the bias of truncation";
        "2N × T inner gradients"; "2N θ"; "as es, if training is long and λ should move before it ends";
        windows = "windows of inner steps in a whole training"
}

/// All methods, in the order a newcomer should read them.
///
/// ```
/// assert_eq!(bilevel::methods::all()[0].name, "hpo-sgld");
/// ```
pub fn all() -> &'static [MethodInfo] {
    METHODS
}

/// The meaning of a method's own setting; `None` for an unknown one.
///
/// ```
/// assert!(bilevel::methods::setting_meaning("sigma").unwrap().contains("perturbation"));
/// assert_eq!(bilevel::methods::setting_meaning("sgima"), None);
/// ```
pub fn setting_meaning(name: &str) -> Option<&'static str> {
    let mut settings = METHODS.iter().flat_map(|info| info.settings);
    settings.find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

/// The methods that apply to a problem, in the same order.
///
/// ```
/// use bilevel::methods::applicable_to;
/// use bilevel::{Leaf, Problem, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| t.0.square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .start(|_, l| *l)
///     .build()?;
/// let names: Vec<&str> = applicable_to(&problem)?.iter().map(|info| info.name).collect();
/// assert!(names.contains(&"rmd") && names.contains(&"reptile"));
/// assert!(!names.contains(&"ift-cg"), "a minimum does not depend on where training began");
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn applicable_to(problem: &AnyProblem) -> Result<Vec<&'static MethodInfo>> {
    let mut found = vec![];
    for info in METHODS {
        match AnyMethod::named(info.name)?.applies(problem) {
            Ok(()) => found.push(info),
            Err(Error::NotApplicable { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[deny(clippy::missing_trait_methods)]
impl Method for AnyMethod {
    forward_method!(self => self.inner(), self.inner_mut());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_the_name_it_is_registered_under_and_survives_writing_down() {
        for info in all() {
            let method = AnyMethod::named(info.name).unwrap();
            assert_eq!(method.name(), info.name);
            let written = serde_json::to_string(&method).unwrap();
            assert_eq!(serde_json::from_str::<AnyMethod>(&written).unwrap(), method, "{written}");
        }
    }

    #[test]
    fn a_setting_that_does_not_exist_is_refused() {
        let found = serde_json::from_str::<AnyMethod>(r#"{"name": "rmd", "stps": 3}"#);
        assert!(found.unwrap_err().to_string().contains("unknown field `stps`"));
    }
}
