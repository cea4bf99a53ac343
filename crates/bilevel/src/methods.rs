//! All methods by name: what each is for, its defaults, and one type that can hold any of them.

use crate::estimator::{Estimator, Method};
use crate::estimators::{
    AmigoCg, AmigoSgd, Covariance, Es, Fmd, HpoSgld, IftCg, IftNeumann, Imaml, LangevinAdjoint, Reptile, Rmd, RmdFo,
};
use crate::paths::Path;
use crate::probe::InnerTime;
use crate::problem::AnyProblem;
use crate::session::Session;
use crate::truth::Claims;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a person choosing a method wants to know of it.
///
/// ```
/// let adjoint = bilevel::methods().iter().find(|m| m.name == "langevin-adjoint").unwrap();
/// assert!(adjoint.memory.contains("flat"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub summary: &'static str,
    /// What T inner steps cost.
    pub cost: &'static str,
    /// What it holds in memory.
    pub memory: &'static str,
    /// When to choose it.
    pub when: &'static str,
    /// What [`Chains`](crate::Chains) of it are called.
    pub in_chains: &'static str,
}

/// One line registers a method: `Type name: summary; cost; memory; when`.
macro_rules! register {
    ($($method:ident $name:literal: $summary:literal; $cost:literal; $memory:literal; $when:literal)*) => {
        /// Any of the methods, with its settings: what a configuration file holds.
        ///
        /// ```
        /// use bilevel::{AnyMethod, Method};
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
            }),*];

        impl AnyMethod {
            /// The method of this name with its default settings; a name that is not known is an error with the nearest
            /// one that is.
            pub fn named(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok(AnyMethod::$method(Default::default())),)*
                    _ => Err(Error::UnknownMethod { name: name.into() }),
                }
            }

            fn inner(&self) -> &dyn Method {
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
    HpoSgld "hpo-sgld": "Langevin chain with the paper's forward recursion (Kim and Hospedales)";
        "T inner + T outer gradients, T mixed products"; "flat: θ and λ, whatever T is";
        "to reproduce the paper; its bias depends on γ·T·curvature"
    LangevinAdjoint "langevin-adjoint": "Langevin chain with an adjoint that is right at finite temperature";
        "T inner + T outer gradients, T products"; "flat: θ and λ, whatever T is";
        "the first to try, and the one for noisy or non-convex inner losses"
    AmigoCg "amigo-cg": "warm-started conjugate gradients on the inner Hessian";
        "T inner gradients, i Hessian products"; "a few θ";
        "well-conditioned, nearly deterministic inner losses: the fastest there"
    AmigoSgd "amigo-sgd": "warm-started gradient steps on the linear system";
        "T inner gradients, i Hessian products"; "a few θ"; "as amigo-cg, with minibatches"
    IftCg "ift-cg": "implicit differentiation by conjugate gradients from zero";
        "T inner gradients, i Hessian products"; "a few θ"; "an inner loss trained to its minimum"
    IftNeumann "ift-neumann": "implicit differentiation by a Neumann series";
        "T inner gradients, i Hessian products"; "a few θ"; "as ift-cg, where curvature is well below 1/α"
    Imaml "imaml": "implicit MAML: the inner loss is held near λ by a proximal term";
        "T inner gradients, i Hessian products"; "a few θ"; "learned initialisations with long training"
    Rmd "rmd": "reverse mode through the unrolled inner loop; MAML where θ⁰ = λ";
        "T inner gradients, T products"; "T θ, or √T with checkpoints"; "short inner loops, and where θ⁰ depends on λ"
    RmdFo "rmd-fo": "reverse mode without second derivatives; first-order MAML where θ⁰ = λ";
        "T inner gradients"; "one θ"; "a cheap baseline for learned initialisations"
    Fmd "fmd": "forward mode through the unrolled inner loop";
        "dim λ × (T inner gradients and products)"; "flat: one column at a time"; "a handful of hyperparameters, exactly"
    Es "es": "evolutionary search: differences along random directions";
        "N × T inner gradients"; "one θ"; "losses without derivatives by λ"
    Covariance "covariance": "the score-function identity from chain samples";
        "T inner gradients, losses"; "flat: θ and a few λ"; "finite temperature without second derivatives; noisy"
    Reptile "reptile": "λ moves towards where training ends";
        "T inner gradients"; "one θ"; "learned initialisations, as cheap as can be"
}

/// All methods, in the order a newcomer should read them.
///
/// ```
/// assert_eq!(bilevel::methods()[0].name, "hpo-sgld");
/// ```
pub fn methods() -> &'static [MethodInfo] {
    METHODS
}

/// The methods that apply to a problem, in the same order: what advice may name.
///
/// ```
/// use bilevel::{Leaf, Problem, Variable, methods_for};
/// let problem = Problem::new(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| t.0.square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .start(|_, l| *l)
///     .build()?;
/// let names: Vec<&str> = methods_for(&problem)?.iter().map(|info| info.name).collect();
/// assert_eq!(names, ["hpo-sgld", "imaml", "rmd", "rmd-fo", "fmd", "es", "reptile"]);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn methods_for(problem: &AnyProblem) -> Result<Vec<&'static MethodInfo>> {
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

impl Method for AnyMethod {
    fn name(&self) -> &'static str {
        self.inner().name()
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        self.inner().compile(session)
    }

    fn sees(&self, path: Path) -> bool {
        self.inner().sees(path)
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        self.inner().applies(problem)
    }

    fn inner_time(&self) -> Option<InnerTime> {
        self.inner().inner_time()
    }

    fn claims(&self) -> Claims {
        self.inner().claims()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_the_name_it_is_registered_under_and_survives_writing_down() {
        for info in methods() {
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
