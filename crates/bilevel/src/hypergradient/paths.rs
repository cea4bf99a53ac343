//! On which paths λ acts on the outer loss, and whether a method sees them.
//!
//!   d f(λ, θ(λ))/dλ:   f_λ directly,   C = ∂²L_T/∂θ∂λ through training,   J0 = dθ⁰/dλ through the start
//!
//! A method that ignores all existing paths would find a hypergradient of exactly 0 and never move λ.

use crate::compiled::trace::Trace;
use crate::problem::AnyProblem;
use crate::{Error, Result};
use bilevel_graph::{Graph, gradient, mixed_vector, vjp};

/// A way in which λ can act on the outer loss.
///
/// ```
/// use bilevel::Method;
/// use bilevel::methods::{IftCg, Path, Rmd, RmdFo};
/// assert!(Rmd::default().sees(Path::Training) && Rmd::default().sees(Path::Start));
/// assert!(!IftCg::default().sees(Path::Start), "a minimum does not depend on where training began");
/// assert!(!RmdFo::default().sees(Path::Training), "which takes second derivatives");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The outer loss is a function of λ itself.
    Direct,
    /// The gradient that θ is trained with depends on λ.
    Training,
    /// θ starts at a function of λ.
    Start,
}

impl Path {
    const ALL: [Path; 3] = [Path::Direct, Path::Training, Path::Start];

    fn name(self) -> &'static str {
        match self {
            Path::Direct => "the outer loss itself",
            Path::Training => "the inner loss",
            Path::Start => "θ⁰",
        }
    }
}

/// The paths of each leaf of λ. The answer is the graph's, not that of numbers.
pub(crate) fn of(problem: &AnyProblem) -> Result<&[Vec<Path>]> {
    if let Some(known) = problem.paths.get() {
        return Ok(known);
    }
    let found = find(problem)?;
    Ok(problem.paths.get_or_init(|| found))
}

fn find(problem: &AnyProblem) -> Result<Vec<Vec<Path>>> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let counter = graph.step();
    let direct = gradient(trace.outer(&trace.theta, counter)?, &trace.lambda)?;
    let vector = trace.inputs_like("vector", &trace.theta);
    let mixed = mixed_vector(trace.inner(&trace.theta, counter)?, &trace.theta, &vector, &trace.lambda)?;
    let start = match trace.start()? {
        Some(start) => vjp(&start, &vector, &trace.lambda)?,
        None => vec![None; trace.lambda.len()],
    };
    let there = |leaf: usize| [direct[leaf].is_some(), mixed[leaf].is_some(), start[leaf].is_some()];
    let paths =
        |leaf| Path::ALL.into_iter().zip(there(leaf)).filter(|(_, there)| *there).map(|(path, _)| path).collect();
    Ok((0..trace.lambda.len()).map(paths).collect())
}

/// Returns an error for a problem that uses the evidence.
pub(crate) fn must_have_outer_loss(method: &'static str, problem: &AnyProblem) -> Result<()> {
    if !problem.judged_by_evidence {
        return Ok(());
    }
    let reason = "this problem uses the evidence and has no outer loss; use the method evidence, or add an outer loss with \
            .outer(…)";
    Err(Error::NotApplicable { method, reason: reason.into() })
}

/// Refuses a method that sees no path on which λ acts.
pub(crate) fn must_see(method: &'static str, problem: &AnyProblem, sees: impl Fn(Path) -> bool) -> Result<()> {
    must_have_outer_loss(method, problem)?;
    let paths: Vec<Path> = of(problem)?.concat();
    if paths.iter().any(|&path| sees(path)) {
        return Ok(());
    }
    let reason = match paths.is_empty() {
        true => {
            "its hypergradient would be exactly 0, as no differentiable path leads from λ to the outer loss; use λ in a loss, or use es"
                .to_string()
        }
        false => format!(
            "its hypergradient would be exactly 0, because λ acts only through {}, which this method does not \
             differentiate; use rmd, which does",
            names(&paths)
        ),
    };
    Err(Error::NotApplicable { method, reason })
}

fn names(paths: &[Path]) -> String {
    let found: Vec<&str> = Path::ALL.iter().filter(|path| paths.contains(path)).map(|path| path.name()).collect();
    found.join(" and ")
}

/// A sentence on each leaf of λ that acts on paths this method does not see.
pub(crate) fn overlooked(
    method: &'static str,
    problem: &AnyProblem,
    sees: impl Fn(Path) -> bool,
) -> Result<Vec<String>> {
    let leaves = problem.lambda.iter().zip(of(problem)?);
    let blind = leaves.filter(|(_, paths)| !paths.is_empty() && !paths.iter().any(|&path| sees(path)));
    Ok(blind
        .map(|((name, _), paths)| {
            let through = names(paths);
            let leaf = crate::problem::leaf_name("λ", name);
            format!(
                "{leaf} acts only through {through}, which {method} does not differentiate, so it will not change; \
                    use rmd"
            )
        })
        .collect())
}
