//! The noisy synthetic 1-D problem: means and spreads over seeds; the paper has one draw.

use super::synthetic::{self, NOISE, STEP};
use crate::runs::over_seeds;
use bilevel::Result;
use bilevel_run::manifest::Taken;
use bilevel_run::statistics::mean_sd;
use bilevel_run::{Findings, Finished, Item, Plan, Recipe, Row, Study, Verdict, label};
use bilevel_tasks::{OPTIMUM, Synth1d};

const NAME: &str = "noisy-synth1d";

struct Case {
    method: &'static str,
    setting: &'static str,
    with: Recipe,
    start: f64,
    paper: Option<(f64, f64)>,
    expected: Option<(f64, f64)>,
    why: &'static str,
    /// A tenth of the seeds, because a run takes ten times as long.
    long: bool,
}

const BIAS: &str = "the printed recursion has the bias of the deterministic table here too; the paper's number is several \
                    standard deviations away";
const SERIES: &str = "near θ = 1 the drawn curvature reaches 3.8, but α = 0.99 is stable only up to 2.02, so many runs \
from 0.1 diverge; the mean is over the others. From 0.7, closer to the optimum, the result is the paper's number";

fn cases() -> Vec<Case> {
    let case = |method, setting, with: Recipe, paper, expected| Case {
        method,
        setting,
        with,
        start: 0.1,
        paper: Some(paper),
        expected,
        why: "a single draw this far off is unlikely",
        long: false,
    };
    let hpo = |setting, step, temperature, paper, expected| Case {
        why: BIAS,
        ..case("HPO-SGLD", setting, synthetic::hpo_sgld(100, step, temperature).into(), paper, expected)
    };
    let neumann = |setting, start| Case {
        start,
        why: SERIES,
        ..case(
            "IFT-Neumann",
            setting,
            synthetic::neumann(100, false).into(),
            (0.7640, 0.6203),
            (start > 0.5).then_some((0.7639, 0.6448)),
        )
    };
    vec![
        hpo("τ = 1e-2", STEP, 1e-2, (0.7495, 0.6516), None),
        hpo("τ = 1e-5", STEP, 1e-5, (0.7473, 0.6383), Some((0.7368, f64::NAN))),
        hpo("τ = 1e-10", STEP, 1e-10, (0.7468, 0.6411), None),
        Case { paper: None, ..hpo("τ = 1e-5, γ = 0.01", 0.01, 1e-5, (0.0, 0.0), None) },
        neumann("start 0.1", 0.1),
        neumann("start 0.7", 0.7),
        case("IFT-CG", "", synthetic::cg(100).into(), (0.7544, 0.6318), Some((0.7554, 0.6548))),
        case("RMD", "", synthetic::rmd(100).into(), (0.7363, 0.6779), Some((0.7360, 0.6769))),
        case("RMD-FO", "", synthetic::rmd_fo(100).into(), (0.6923, 0.7235), Some((0.6915, 0.7227))),
        case("FMD", "", synthetic::fmd(100).into(), (0.7364, 0.6778), Some((0.7360, 0.6769))),
        Case {
            long: true,
            ..case("RMD", "T = 1000", synthetic::rmd(1000).into(), (0.7517, 0.6484), Some((0.7489, 0.6636)))
        },
        Case { long: true, ..case("RMD-FO", "T = 1000", synthetic::rmd_fo(1000).into(), (0.6926, 0.7075), None) },
        Case {
            long: true,
            ..case("FMD", "T = 1000", synthetic::fmd(1000).into(), (0.7517, 0.6484), Some((0.7489, 0.6636)))
        },
        Case {
            paper: None,
            ..case("Langevin adjoint", "τ = 1e-5", synthetic::adjoint(STEP, 1e-5).into(), (0.0, 0.0), None)
        },
    ]
}

impl Case {
    fn label(&self) -> String {
        label(&format!("{} {}", self.method, self.setting))
    }

    /// The long runs (T = 1000) take a tenth of the seeds, at least 8.
    fn seeds(&self, plan: &Plan) -> u64 {
        let seeds: u64 = plan.choose(20, 400);
        if self.long { (seeds / 10).max(8) } else { seeds }
    }
}

/// The study.
pub(super) struct NoisySynth1d;

impl Study for NoisySynth1d {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Noisy synthetic 1-D, over seeds"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let item = |case: Case| {
            let task = Synth1d { noise: NOISE, start: case.start, ..Synth1d::default() };
            let run = synthetic::run_of(plan, &task)?.by(case.with.clone());
            Ok(over_seeds(case.label(), run, plan.seed..plan.seed + case.seeds(plan)))
        };
        cases().into_iter().map(item).collect()
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let mut rows = vec![];
        let mut by_temperature = vec![];
        for case in cases() {
            let count = case.seeds(plan);
            let ends: Taken = done.measured(&case.label())?;
            let arrived = ends.numbers["λ"].len() as u32;
            if case.setting == "τ = 1e-2" || case.setting == "τ = 1e-10" {
                by_temperature.push(ends.numbers["λ"].iter().map(|l| (l - OPTIMUM.0).abs()).collect::<Vec<_>>());
            }
            for (metric, values, pick) in
                [("λ", &ends.numbers["λ"], (|p| p.0) as fn((f64, f64)) -> f64), ("θ", &ends.numbers["θ"], |p| p.1)]
            {
                let (mean, sd) = mean_sd(values);
                let (paper, expected) = (case.paper.map(pick), case.expected.map(pick).filter(|e| e.is_finite()));
                let verdict = match paper {
                    _ if ends.diverged > 0 => Verdict::NotReproduced(case.why.into()),
                    Some(draw) => Verdict::when((draw - mean).abs() <= 3.0 * sd, case.why),
                    None => {
                        let near = (pick(OPTIMUM) - mean).abs() <= 3.0 * sd / (arrived as f64).sqrt();
                        Verdict::when(near, "more than three standard errors from the optimum")
                    }
                };
                // A method without a published number is compared with the optimum.
                let expected = expected.or_else(|| paper.is_none().then(|| pick(OPTIMUM)));
                let row =
                    Row::new(NAME, case.method, metric, mean).setting(case.setting).over(sd, arrived).cost(ends.cost);
                rows.push(row.paper(paper).reference(expected).verdict(verdict));
            }
            if ends.diverged > 0 {
                let why = format!("{} of {count} runs diverged; the paper mentions none", ends.diverged);
                let row = Row::new(NAME, case.method, "runs diverged", f64::from(ends.diverged)).setting(case.setting);
                rows.push(Row { seeds: count as u32, ..row.verdict(Verdict::NotReproduced(why)) });
            }
        }
        let [warm, cold] = [0, 1].map(|i| mean_sd(&by_temperature[i]));
        let seeds = plan.choose(20, 400);
        let error = ((warm.1.powi(2) + cold.1.powi(2)) / seeds as f64).sqrt();
        let row =
            Row::new(NAME, "HPO-SGLD", "|λ − λ*|: τ = 1e-2 minus τ = 1e-10", warm.0 - cold.0).paper(0.0008 - 0.0019);
        let why = "the claim that a larger τ is more accurate does not hold over seeds";
        rows.push(row.over(error, seeds).verdict(Verdict::when(warm.0 - cold.0 < -3.0 * error, why)));
        Ok(Findings::new(rows, []))
    }
}
