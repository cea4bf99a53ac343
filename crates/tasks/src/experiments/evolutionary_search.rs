//! Evolutionary search on the synthetic and the noisy synthetic 1-D problem: errors of λ and θ.

use super::amigo::error_rows;
use super::noisy_synth1d::runs;
use crate::experiment::{Effort, Progress, Report};
use crate::runs::ends;
use crate::synthetic::{self, OUTER};
use bilevel::{Result, Variable};

const NAME: &str = "evolutionary-search";

pub(crate) fn work(effort: Effort, progress: &mut Progress) -> Result<Report> {
    let problem = synthetic::problem(0.1, 0.0)?;
    let seeds = effort.choose(8, 100);
    let mut rows = vec![];
    // λ of the paper's problem lies in \[0, 1\]; the plain form is so noisy that it leaves it.
    let bounded = synthetic::problem_with(Variable::constant([], 0.1).at_least(0.0).at_most(1.0), 0.1, 0.0)?;
    let printed = (Some(0.0275), Some(0.0169));
    let known = (Some(0.050), Some(0.051));
    for (setting, antithetic, problem, paper, expected) in [
        ("as printed", false, &problem, printed, (None, None)),
        ("as printed, λ kept in [0, 1]", false, &bounded, printed, known),
        ("antithetic pairs", true, &problem, (None, None), (Some(0.0127), Some(0.0141))),
    ] {
        let method = synthetic::es(antithetic);
        let seeds = if antithetic { seeds / 4 } else { seeds };
        progress(&format!("{setting} over {seeds} seeds"));
        let found = ends(problem, &method, OUTER, 1..1 + seeds)?;
        rows.extend(error_rows(NAME, ("Evolutionary search", setting), &found, paper, expected));
    }
    progress(&format!("noisy, over {} seeds", seeds / 2));
    let found = runs(&synthetic::es(false), 0.1, seeds / 2)?;
    let paper = (Some(0.0041), Some(0.0173));
    rows.extend(error_rows(NAME, ("Evolutionary search", "noisy"), &found, paper, (None, None)));
    Ok(Report { rows, figures: vec![] })
}
