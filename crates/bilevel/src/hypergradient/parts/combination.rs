//! Implicit differentiation as a combination: a linear solver × a warm start × a tolerance × a curvature.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times or until ‖∇θL_T‖ ≤ ε_k
//!   q ≈ A⁻¹·f_θ by the solver, from 0 or from the last q, at most to ‖A·q − f_θ‖ ≤ ε_k      A = H + reg·I
//!   h = f_λ − qᵀ·C
//!
//! H is the Hessian or the Gauss-Newton matrix. With a proximal term (ρ/2)·‖θ−θ⁰(λ)‖² in the inner loop, A = I + (H + reg·I)/ρ and
//! h = f_λ + qᵀ·J0 − qᵀ·C/ρ, with J0 = ∂θ⁰/∂λ. A warm start keeps q from one hypergradient to the next, and a tolerance
//! keeps k.
//!
//! Every published method of this kind is a name for a combination ([`NamedCombination`]): its file has its formula and its settings.

use crate::hypergradient::parts::implicit::{CurvatureProduct, Ending, Implicit};
use crate::hypergradient::parts::neumann::{NeumannSeries, StochasticSeries};
use crate::hypergradient::parts::nystrom::NystromSolver;
use crate::hypergradient::parts::solve::{ConjugateGradients, LinearSolver, Matrix, Richardson};
use crate::hypergradient::paths;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{not_applicable, starts_at_copies_of_lambda};
use serde::de::DeserializeOwned;

/// A solver of A·q = f_θ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Solver {
    /// Conjugate gradients.
    ConjugateGradients {
        /// At most this many iterations, at least 1.
        iterations: usize,
        /// Added to every eigenvalue of H, at least 0.
        regularisation: f64,
    },
    /// Richardson's iteration, q ← q − β·(H·q − f_θ).
    Richardson {
        /// The step β, above 0.
        beta: f64,
        /// Iterations, at least 1.
        iterations: usize,
    },
    /// A truncated Neumann series, q = α·Σ over j = 0 … i of (I − αH)ʲ·f_θ.
    Neumann {
        /// The step α, above 0.
        alpha: f64,
        /// Terms i after the first.
        terms: usize,
        /// Whether the sum is multiplied by α, as the inverse needs.
        final_alpha: bool,
    },
    /// The Neumann series with a separate draw for the H of every factor.
    StochasticNeumann {
        /// The step α, above 0.
        alpha: f64,
        /// Terms i after the first.
        terms: usize,
    },
    /// (H_K + ρI)⁻¹·f_θ, with the Nyström approximation H_K of H from some of its columns.
    Nystrom {
        /// Columns, at least 1; all of them if θ has fewer numbers.
        columns: usize,
        /// ρ, above 0.
        regularisation: f64,
    },
}

/// The tolerance ε_k of the k-th hypergradient, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// ε₁, above 0.
    pub first: f64,
    /// How it falls.
    pub fall: Fall,
}

/// How a tolerance falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fall {
    /// As 1/k².
    #[default]
    Quadratic,
    /// As 1/k³.
    Cubic,
    /// As 0.9ᵏ⁻¹.
    Exponential,
}

impl Tolerance {
    fn at(self, k: f64) -> f64 {
        self.first
            * match self.fall {
                Fall::Quadratic => k.powi(-2),
                Fall::Cubic => k.powi(-3),
                Fall::Exponential => 0.9f64.powf(k - 1.0),
            }
    }
}

/// A combination, which is a method itself: for one that has no name.
///
/// ```
/// use bilevel::methods::{AmigoCg, Combination, NamedCombination, Solver};
/// use bilevel::prelude::*;
/// // AmIGO with conjugate gradients is the one with a warm start.
/// let solver = Solver::ConjugateGradients { iterations: 10, regularisation: 0.0 };
/// assert_eq!(AmigoCg::default().combination(), Combination { warm_start: true, ..Combination::new(solver) });
///
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ, and λ goes to 0.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let warm = Combination { warm_start: true, ..Combination::new(Solver::Richardson { beta: 0.5, iterations: 3 }) };
/// let outcome = Driver::new(&problem, warm).inner(InnerLoop::new(0.5, 20)).rate(0.1).iterations(200).run()?;
/// assert!(outcome.lambda.0.item().unwrap().abs() < 1e-6);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combination {
    /// How the linear system is solved.
    pub solver: Solver,
    /// Whether the solve starts from the last solution: by conjugate gradients or by Richardson's iteration.
    #[serde(default)]
    pub warm_start: bool,
    /// A tolerance that ends training, and conjugate gradients, before the last step; `None` to take all steps.
    #[serde(default)]
    pub tolerance: Option<Tolerance>,
    /// The curvature matrix in the linear system.
    #[serde(default)]
    pub curvature: CurvatureProduct,
    /// ρ of a proximal term that keeps θ near λ, the initial θ; with conjugate gradients.
    #[serde(default)]
    pub proximal: Option<f64>,
}

impl Combination {
    /// This solver with the Hessian, from 0, after all inner steps.
    pub const fn new(solver: Solver) -> Self {
        let curvature = CurvatureProduct::Hessian;
        Combination { solver, warm_start: false, tolerance: None, curvature, proximal: None }
    }

    /// Refuses numbers outside their range, and combinations that the solver does not support.
    fn check(&self, inner: &InnerLoop) -> Result<()> {
        match self.solver {
            Solver::ConjugateGradients { iterations, regularisation } => {
                at_least_0("regularisation", regularisation)?;
                count("iterations", iterations, 1)?;
            }
            Solver::Richardson { beta, iterations } => {
                positive("beta", beta)?;
                count("iterations", iterations, 1)?;
            }
            Solver::Neumann { alpha, terms, .. } => {
                positive("alpha", alpha)?;
                count("terms", terms, 0)?;
            }
            // Every term is a separate step, after those of the inner loop.
            Solver::StochasticNeumann { alpha, terms } => {
                positive("alpha", alpha)?;
                count("terms", terms.saturating_add(inner.steps).saturating_add(1), 0)?;
            }
            Solver::Nystrom { columns, regularisation } => {
                positive("regularisation", regularisation)?;
                require(columns > 0, "columns", columns, "at least 1")?;
            }
        }
        let by_gradients = matches!(self.solver, Solver::ConjugateGradients { .. });
        let iterates = by_gradients || matches!(self.solver, Solver::Richardson { .. });
        require(iterates || !self.warm_start, "warm_start", true, "false with a solver that does not iterate")?;
        if let Some(tolerance) = self.tolerance {
            positive("tolerance", tolerance.first)?;
            require(by_gradients, "tolerance", tolerance.first, "absent with a solver other than conjugate gradients")?;
        }
        if let Some(rho) = self.proximal {
            positive("rho", rho)?;
            require(by_gradients, "rho", rho, "absent with a solver other than conjugate gradients")?;
        }
        Ok(())
    }

    /// How vᵀC and vᵀ·J0 enter the hypergradient.
    fn ending(&self) -> Ending {
        let scale = match (self.solver, self.proximal) {
            (_, Some(rho)) => 1.0 / rho,
            (Solver::Neumann { alpha, final_alpha: true, .. } | Solver::StochasticNeumann { alpha, .. }, _) => alpha,
            _ => 1.0,
        };
        Ending { scale, proximal: self.proximal }
    }

    fn compile_solver(
        &self,
        name: &'static str,
        session: &Session,
        inner: &InnerLoop,
    ) -> Result<Box<dyn LinearSolver>> {
        let curvature = self.curvature;
        Ok(match self.solver {
            Solver::ConjugateGradients { iterations, regularisation } => {
                let matrix = match self.proximal {
                    Some(rho) => Matrix { hessian: 1.0 / rho, identity: 1.0 + regularisation / rho },
                    None => Matrix { hessian: 1.0, identity: regularisation },
                };
                let how = (iterations, self.warm_start);
                Box::new(ConjugateGradients::with_curvature(session, inner, curvature, matrix, how)?)
            }
            Solver::Richardson { beta, iterations } => {
                Box::new(Richardson::with_curvature(session, inner, curvature, (beta, beta), iterations)?)
            }
            Solver::Neumann { alpha, terms, .. } => {
                Box::new(NeumannSeries::new(name, session, inner, curvature, (alpha, terms))?)
            }
            Solver::StochasticNeumann { alpha, terms } => {
                Box::new(StochasticSeries::new(session, inner, curvature, (alpha, terms))?)
            }
            Solver::Nystrom { columns, regularisation } => {
                Box::new(NystromSolver::new(session, inner, curvature, (columns, regularisation))?)
            }
        })
    }

    /// The combination's use of the inner loop.
    fn loop_use(&self) -> LoopUse {
        let noise = match self.solver {
            Solver::StochasticNeumann { .. } | Solver::Nystrom { .. } => Noise::Never,
            _ => Noise::Allowed,
        };
        let used = match self.proximal {
            Some(rho) => LoopUse { noise, fewest_samples: 0, added_curvature: rho, ..LoopUse::PLAIN },
            None => LoopUse { noise, ..LoopUse::MINIMUM },
        };
        match self.tolerance {
            Some(_) => LoopUse {
                noise: Noise::Never,
                any_optimizer: false,
                fewest_samples: 1,
                stops_at_tolerance: true,
                ..used
            },
            None => used,
        }
    }

    /// Correct at the minimum that it assumes. With random rows, this requires an average over products of independent
    /// draws; with columns of H, all columns and ρ → 0.
    fn claims(&self) -> Claims {
        let averages = match self.solver {
            Solver::StochasticNeumann { .. } => true,
            Solver::Richardson { .. } => self.warm_start,
            _ => false,
        };
        let columns = matches!(self.solver, Solver::Nystrom { .. });
        Claims {
            minimum: self.proximal.is_none(),
            proximal: self.proximal.is_some(),
            minibatches: averages,
            only: columns.then_some(Condition::FewParameters),
            ..Claims::default()
        }
    }

    fn compile_as(&self, name: &'static str, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        let nothing = Like::ManyTheta(0);
        let q = if self.warm_start { Like::Theta } else { nothing };
        let k = if self.tolerance.is_some() { Like::Number } else { nothing };
        Ok(Box::new(Prepared {
            combination: *self,
            implicit: Implicit::stopping(session, *inner, self.ending(), self.tolerance.is_some())?,
            solver: self.compile_solver(name, session, inner)?,
            memory: Warm::new(session, [q, k]),
            norm: LazyNorm::new(session.executor()),
        }))
    }
}

/// A method that is a name for a combination.
pub trait NamedCombination: std::fmt::Debug + Send + Sync + Serialize + DeserializeOwned {
    /// Its name, as on the command line.
    const NAME: &'static str;

    /// The combination that it is, with these settings.
    fn combination(&self) -> Combination;

    /// [`Method::usual_loop`].
    fn published_loop(&self) -> InnerLoop {
        InnerLoop::default()
    }

    /// Chooses the settings of the solver for an inner loss whose largest curvature is about this ([`Method::tune`]).
    fn fit_curvature(&mut self, _curvature: f64) {}

    /// Chooses the settings of the solver with which it converges ([`Method::converge`]).
    fn until_converged(&mut self, _scale: &Scale) {}
}

impl NamedCombination for Combination {
    const NAME: &'static str = "combination";

    fn combination(&self) -> Combination {
        *self
    }
}

impl<N: NamedCombination> Method for N {
    named!(N::NAME);

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        let combination = self.combination();
        combination.check(inner)?;
        if combination.proximal.is_some() {
            self.applies(session.problem())?;
        }
        inner.check_for(self)?;
        combination.compile_as(N::NAME, session, inner)
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        match self.combination().proximal {
            None => paths::must_see(N::NAME, problem, |path| self.sees(path)),
            Some(_) if starts_at_copies_of_lambda(problem)? => Ok(()),
            Some(_) => {
                let reason = "it needs θ⁰ = λ, leaf by leaf, or copies of λ: add .start(…) with the identity to the \
                    problem, or use rmd, which works for any θ⁰(λ)";
                not_applicable(N::NAME, reason)
            }
        }
    }

    fn loop_use(&self) -> LoopUse {
        self.combination().loop_use()
    }

    fn usual_loop(&self) -> InnerLoop {
        self.published_loop()
    }

    fn tune(&mut self, task: InnerLoop, curvature: f64) -> InnerLoop {
        self.fit_curvature(curvature);
        Method::loop_use(self).adapt(task)
    }

    fn converge(&mut self, scale: &Scale) {
        self.until_converged(scale);
    }

    fn claims(&self) -> Claims {
        self.combination().claims()
    }
}

struct Prepared {
    combination: Combination,
    implicit: Implicit,
    solver: Box<dyn LinearSolver>,
    memory: Warm<2>,
    norm: LazyNorm,
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let [q, count] = self.memory.of(state)?.groups;
        let (k, tolerance) = match self.combination.tolerance {
            Some(tolerance) => {
                let k = number(&count)? + 1.0;
                (k, Some(tolerance.at(k)))
            }
            None => (0.0, None),
        };
        let (point, steps) = self.implicit.descend_to(state, key, gamma, tolerance)?;
        let warm = self.combination.warm_start;
        let before = if warm { self.norm.of(&q)? } else { 0.0 };
        let solution = self.solver.solve_for(&point, warm.then_some(&q), tolerance)?;
        let cause = self.solver.cause();
        let mut found = self.implicit.finish(point, &solution.q, solution.products, cause)?;
        found.oracles.inner_gradients = steps as u64;
        found.diagnostics = solution.diagnostics;
        match tolerance {
            Some(_) => set_number(&count, k)?,
            // Without a tolerance, the growth of q tells whether the solves follow the inner problem.
            None if warm => {
                let Diagnostics { solve_residual, least_curvature, .. } = solution.diagnostics;
                let seen = adjoint(before, self.norm.of(&q)?);
                found.diagnostics = Diagnostics { solve_residual, least_curvature, ..seen };
            }
            None => {}
        }
        Ok(found)
    }
}
