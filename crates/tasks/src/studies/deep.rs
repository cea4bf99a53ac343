//! What the studies of networks share: the methods of their tables, and an outer loop that is watched.

use crate::statistics::median;
use crate::{Device, Place, Settings};
use bilevel::{
    AnyMethod, Array, CurvatureProduct, Driver, Error, IftCg, IftNeumann, InnerOptimizer, Iteration, LangevinAdjoint,
    Named, Outcome, Precision, Problem, Recorder, Result, Rmd, StopReason,
};

/// Inner steps of an outer iteration, as in the paper.
pub(super) const STEPS: usize = 10;

/// How many seeds a row is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeds {
    /// All.
    All,
    /// The first.
    One,
}

impl Seeds {
    /// The seeds of a row, given the number of seeds of the study.
    pub fn range(self, first: u64, all: u64) -> std::ops::Range<u64> {
        first..first + if self == Seeds::All { all } else { 1 }
    }
}

/// IFT-Neumann with α and i; the paper's sum comes without the final factor α.
pub(super) fn neumann(step: f64, alpha: f64, terms: usize) -> AnyMethod {
    IftNeumann { step, steps: STEPS, alpha, terms, final_alpha: false, ..IftNeumann::default() }.into()
}

/// IFT-CG with γ and i.
pub(super) fn cg(step: f64, regularisation: f64, iterations: usize) -> AnyMethod {
    IftCg { step, steps: STEPS, regularisation, iterations, ..IftCg::default() }.into()
}

/// The same with Gauss-Newton products, whose curvature is not negative where the loss is convex in the outputs of the network.
pub(super) fn safe_cg(step: f64, regularisation: f64, iterations: usize) -> AnyMethod {
    let curvature = CurvatureProduct::GaussNewton;
    IftCg { step, steps: STEPS, regularisation, iterations, curvature, ..IftCg::default() }.into()
}

/// RMD through this many steps.
pub(super) fn rmd(step: f64, steps: usize) -> AnyMethod {
    Rmd { step, steps, ..Rmd::default() }.into()
}

/// The Langevin adjoint at HPO-SGLD's τ and with its κ of 1e-6.
pub(super) fn adjoint(step: f64, temperature: f64) -> LangevinAdjoint {
    let noise_scale = 1e-6;
    LangevinAdjoint { burn_in: 0, samples: STEPS, step, temperature, noise_scale, ..LangevinAdjoint::default() }
}

/// Plain descent on λ.
pub(super) fn sgd() -> Settings {
    Settings::new("sgd", &InnerOptimizer::Sgd)
}

/// Products are rounded where that makes them faster.
pub(super) fn precision_on(device: Device) -> Precision {
    if device == Device::Cpu { Precision::Full } else { Precision::Tf32 }
}

/// An outer loop.
pub(super) struct OuterLoop<'a> {
    pub method: &'a Settings,
    pub optimizer: &'a Settings,
    pub rate: f64,
    pub iterations: u32,
    /// How often measures are taken on the way.
    pub looks: u32,
    /// θ starts anew in every iteration.
    pub cold: bool,
    pub seed: u64,
    /// Where θ starts, if not where the problem says.
    pub theta: Option<&'a Named<Array>>,
}

/// What an outer loop came to.
pub(super) enum Ran {
    /// It ended.
    Over {
        outcome: Box<Outcome>,
        iterations: Vec<Iteration>,
        /// Why, where it diverged.
        diverged: Option<String>,
    },
    /// The method cannot work on this problem, for this reason.
    Refused(String),
}

impl OuterLoop<'_> {
    /// Runs it.
    pub fn run(self, problem: &Problem, place: &Place) -> Result<Ran> {
        let (recorder, iterations, progress) = (Recorder::new(), self.iterations, place.progress.clone());
        let mut driver = Driver::new(problem, place.registry.read_method(self.method)?)
            .boxed_executor(place.boxed_executor())
            .optimizer(place.registry.read_optimizer(self.optimizer)?)
            .rate(self.rate)
            .seed(self.seed)
            .cold(self.cold)
            .iterations(iterations)
            .measure_every((iterations / self.looks.max(1)).max(1))
            .diagnose_every(0)
            .stop_signal(place.signal.clone())
            .observe(recorder.clone())
            .on_iteration(move |iteration: &Iteration, _: &_| {
                progress(f64::from(iteration.number) / f64::from(iterations));
            });
        if let Some(theta) = self.theta {
            driver = driver.theta(theta);
        }
        let outcome = match driver.run() {
            Err(error @ Error::NotApplicable { .. }) => return Ok(Ran::Refused(format!("could not begin: {error}"))),
            outcome => Box::new(outcome?),
        };
        let diverged = matches!(outcome.reason, StopReason::Diverged(_)).then(|| outcome.reason.to_string());
        Ok(Ran::Over { outcome, iterations: recorder.iterations(), diverged })
    }
}

/// The median time of an iteration in milliseconds, those in which something was measured aside; nothing for fewer than two.
pub(super) fn milliseconds(iterations: &[Iteration]) -> Option<f64> {
    let pairs = iterations.windows(2).filter(|pair| pair[1].measures.is_empty() && pair[0].measures.is_empty());
    let times: Vec<f64> = pairs.map(|pair| 1e3 * (pair[1].elapsed - pair[0].elapsed).as_secs_f64()).collect();
    (!times.is_empty()).then(|| median(&times))
}

/// Rows that went wrong, each with what happened to it, in sentences. Rows with reasons that differ in their numbers alone share one.
pub(super) fn said_once(place: &str, lost: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    // An "e" on its own is of an exponent.
    let words = |why: &str| -> Vec<String> {
        why.split(|c: char| !c.is_alphabetic()).filter(|word| !["", "e"].contains(word)).map(String::from).collect()
    };
    let mut groups: Vec<(Vec<String>, String, Vec<String>)> = vec![];
    for (name, why) in lost {
        let kind = words(&why);
        match groups.iter_mut().find(|(other, _, _)| *other == kind) {
            Some((_, _, others)) => others.push(name),
            None => groups.push((kind, format!("{place}{name} {why}."), vec![])),
        }
    }
    let sentence = |(_, first, others): (Vec<String>, String, Vec<String>)| match others.split_last() {
        None => first,
        Some((last, [])) => format!("{first} It was the same with {last}."),
        Some((last, rest)) => format!("{first} It was the same with {} and {last}.", rest.join(", ")),
    };
    groups.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_in_the_same_way_is_said_once() {
        let lost = |name: &str, why: &str| (name.to_string(), why.to_string());
        let said = said_once(
            "On pets, ",
            [
                lost("IFT-CG (1)", "diverged at iteration 3: the series grew 2e7 times"),
                lost("RMD", "ruins the network"),
                lost("IFT-CG (2)", "diverged at iteration 12: the series grew 5.5e-3 times"),
                lost("IFT-CG (3)", "diverged at iteration 1: the series grew 9 times"),
            ],
        );
        let series = "On pets, IFT-CG (1) diverged at iteration 3: the series grew 2e7 times. It was the same with \
                      IFT-CG (2) and IFT-CG (3).";
        assert_eq!(said, [series, "On pets, RMD ruins the network."]);
        assert!(said_once("", []).is_empty());
    }
}
