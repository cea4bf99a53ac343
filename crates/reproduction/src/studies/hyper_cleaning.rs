//! Hyper-cleaning on MNIST: a weight for each of 5000 training digits, half of them with labels drawn again, by every method.
//!
//! Published elsewhere (Shen and Chen, "On penalty-based bilevel gradient descent method", ICML 2023) are the test accuracy and an F1.
//! The code published with them defines this F1: of the kept digits, those with λ ≥ 0, against those whose labels were
//! not redrawn. The F1 of the redrawn labels is smaller; both are rows here.
//!
//! All methods train with one inner step, full batch or, for the network, in minibatches of 100. They keep θ warm, and
//! move λ by Adam. The iterate called best is that of the least loss on the clean digits. In print, the penalty methods
//! judge their own second set of parameters, which is also fitted to the clean digits. Its counterpart here is a
//! classifier retrained on the kept and the clean digits.
//!
//! In the published code λ moves by a few hundredths in total, so every weight stays near ½ and only the sign of λ
//! counts. Then θ remains a classifier of all labels, including redrawn ones. It gives a label about p/2 + 1/20 if y,
//! pulled by the clean digits, gives it p. So y does better than θ, and λ rises, if p is above 1/10, that is, if the
//! label is more likely right than redrawn. A λ that moves far changes θ, and with it this threshold. The rows with λ
//! near its start have the published penalty and such a λ.

use bilevel::methods::{F2sa, Rmd, Storage, VPbgd};
use bilevel::optimizers::InnerOptimizer;
use bilevel::{InnerLoop, Result};
use bilevel_run::run::IterationRow;
use bilevel_run::spread::Spread;
use bilevel_run::{
    Config, Findings, Finished, FinishedRun, Item, Measure, Place, Plan, Recipe, Row, Series, Settings, Study, Verdict,
    figure, label,
};
use bilevel_tasks::digits::DigitSource;
use bilevel_tasks::{HyperCleaning, Retraining};
use serde::Serialize;

/// F²SA with a λ that stays near its start, over several draws of the digits and their labels.
const NEAR: &str = "f2sa, σ = 0.2, λ near its start";
/// How many draws.
const DRAWS: u64 = 3;
/// A classifier trained on the clean digits and no others.
const CLEAN: &str = "clean digits alone";
const ACCURACY: &str = "test accuracy";
const KEPT: &str = "F1 of digits kept";
/// How the classifier was trained that a run is judged by.
const ANEW: &str = "trained anew on digits kept and clean";
/// How a threshold is chosen that no λ can be expected to beat.
const KNOWN: &str = "best threshold on the classifier's probabilities, which takes knowing the truth";
const REDRAWN: &str = "F1 of redrawn labels";

/// A published row: the method's name here, with accuracy and F1 of the linear classifier and the network.
struct Published {
    ours: &'static str,
    linear: [f64; 2],
    network: [f64; 2],
}

/// There they are RHG, T-RHG, G-PBGD and V-PBGD.
const PUBLISHED: [Published; 4] = [
    Published { ours: "rmd", linear: [0.846, 0.896], network: [0.848, 0.893] },
    Published { ours: "rmd, truncated", linear: [0.846, 0.891], network: [0.848, 0.894] },
    Published { ours: "g-pbgd", linear: [0.898, 0.806], network: [0.924, 0.908] },
    Published { ours: "v-pbgd", linear: [0.901, 0.917], network: [0.915, 0.921] },
];

/// Methods whose hypergradient of thousands of hyperparameters costs a training for each of them, or for many directions.
const DEAR: [&str; 5] = ["fmd", "es", "pes", "fg2u", "covariance"];
const QUICK: [&str; 4] = ["langevin-adjoint", "amigo-cg", "rmd", "v-pbgd"];

/// Accuracy on test digits of a classifier trained on the digits kept by a run and the clean ones.
#[derive(Serialize)]
struct Again {
    task: HyperCleaning,
    seed: u64,
    inner: InnerLoop,
    lambda: Vec<f64>,
}

impl Measure for Again {
    /// The accuracy, and the F1 by the best threshold on its probabilities.
    type Found = (f64, f64);

    fn take(&self, place: &Place) -> Result<(f64, f64)> {
        let context = bilevel_run::Context {
            seed: self.seed,
            data: place.data.clone(),
            dtype: bilevel::DType::F32,
            ..bilevel_run::Context::default()
        };
        let (executor, signal) = (place.executor.clone(), place.signal.clone());
        let training = Retraining { inner: self.inner, seed: self.seed, executor, signal };
        self.task.retrained(&self.lambda, &context, training)
    }
}

/// The study, of a linear classifier or of a network.
pub(super) struct HyperCleaningTable {
    pub hidden: usize,
}

impl HyperCleaningTable {
    fn task(&self, plan: &Plan) -> HyperCleaning {
        let full = match self.hidden {
            0 => HyperCleaning::mnist(0),
            // The decay is, of 5e-4, 1e-4 and 0, the one with which a network trained without some of the clean digits does best on those.
            hidden => HyperCleaning { decay: 1e-4, batch: 100, ..HyperCleaning::mnist(hidden) },
        };
        let quick = HyperCleaning { source: DigitSource::Digits, train: 599, clean: 599, test: 599, ..full.clone() };
        plan.choose(HyperCleaning { hidden: self.hidden.min(16), ..quick }, full)
    }

    /// Inner step and steps.
    fn inner(&self, plan: &Plan) -> (f64, usize) {
        match self.hidden {
            0 => (0.4, plan.choose(10, 50)),
            // The output of a sigmoid is not centred, so the curvature grows with the number of units and the step must
            // fall.
            _ => (plan.choose(2.0, 0.3), 20),
        }
    }

    /// Outer iterations. A minibatch has one digit in fifty, and each of them should have its turn several times.
    fn iterations(&self, plan: &Plan) -> u32 {
        plan.choose(10, if self.hidden == 0 { 60 } else { 300 })
    }

    /// All variants with their names here: every method with settings that suit the task, and further variants of some.
    fn variants(&self, plan: &Plan) -> Result<Vec<(String, Config)>> {
        let task = self.task(plan);
        let (step, steps) = self.inner(plan);
        let run = |method: Option<Recipe>, name: &str| -> Result<Config> {
            let recipe = match method {
                Some(recipe) => recipe,
                None => {
                    let Recipe { method, inner } = plan.registry.suited(&task, name)?;
                    Recipe { method, inner: InnerLoop { step, steps, burn_in: 0, ..inner } }
                }
            };
            let mut config = plan.run(&task)?.by(recipe);
            (config.outer.iterations, config.outer.rate) = (self.iterations(plan), 0.2);
            (config.metrics.every, config.metrics.diagnose) = (plan.choose(2, self.iterations(plan) / 12), 0);
            Ok(config)
        };
        let mut all = vec![];
        for method in plan.registry.methods() {
            let name = method.info.name;
            if !DEAR.contains(&name) && (!plan.is_quick() || QUICK.contains(&name)) {
                all.push((name.to_string(), run(None, name)?));
            }
        }
        let truncated = (Rmd { storage: Storage::Truncated((steps / 2).max(1)) }, InnerLoop::new(step, steps));
        all.push(("rmd, truncated".into(), run(Some(truncated.into()), "rmd")?));
        // With a small penalty the clean digits move y far, and their judgement of a label is hardly local.
        let (penalty, growth) = (0.3, 0.0);
        let f2sa = (F2sa { penalty, growth }, InnerLoop::new(step * 0.25, steps));
        all.push(("f2sa, σ = 0.3".into(), run(Some(f2sa.into()), "f2sa")?));
        // A λ that moves for long overfits the clean digits instead of separating wrong labels from right ones.
        let mut early = run(Some(f2sa.into()), "f2sa")?;
        early.outer.iterations /= 4;
        all.push(("f2sa, σ = 0.3, stopped early".into(), early));
        // Its second set of parameters takes one step per outer iteration: many short iterations, at a lower rate.
        let v_pbgd = (VPbgd { penalty: 1.0 }, InnerLoop::new(step * 0.5, (steps / 10).max(1)));
        let mut short = run(Some(v_pbgd.into()), "v-pbgd")?;
        (short.outer.iterations, short.outer.rate) = (short.outer.iterations * 10, short.outer.rate / 10.0);
        short.metrics.every *= 10;
        all.push(("v-pbgd, σ = 1, short loops".into(), short));
        // The step that the clean digits pull y by is the inner step of all others, and λ stays within a hundredth of 0.
        let penalty = 0.2;
        let mut near =
            run(Some((F2sa { penalty, growth: 0.0 }, InnerLoop::new(step * penalty, steps)).into()), "f2sa")?;
        (near.outer.optimizer, near.outer.rate) = (Settings::new("sgd", &InnerOptimizer::Sgd), 1.0);
        near.outer.iterations = plan.choose(10, if self.hidden == 0 { 25 } else { 600 });
        all.push((NEAR.into(), near));
        Ok(all)
    }

    /// All runs with their names: every variant, of which the one with λ near its start comes first and in several draws.
    fn runs(&self, plan: &Plan) -> Result<Vec<(String, Config)>> {
        let variants = self.variants(plan)?;
        let near = variants.iter().filter(|(name, _)| name == NEAR).flat_map(|(_, config)| {
            (0..DRAWS).map(move |draw| (drawn(draw), config.clone().seeded(config.seed + draw)))
        });
        let others = variants.iter().filter(|(name, _)| name != NEAR).cloned();
        Ok(near.chain(others).collect())
    }

    fn training(&self, plan: &Plan, seed: u64, lambda: Vec<f64>) -> Again {
        // After 600 steps the linear classifier's loss on clean digits that are left out of training no longer falls.
        let (part, full) = if self.hidden == 0 { (0.5, 600) } else { (0.25, 4000) };
        let inner = InnerLoop::new(self.inner(plan).0 * part, plan.choose(100, full));
        Again { task: self.task(plan), seed, inner, lambda }
    }

    fn again(name: &str) -> String {
        label(&format!("{name} again"))
    }

    /// The test accuracy of the retrained classifier, the F1 of kept digits, and the F1 by that classifier's best
    /// threshold.
    fn comes_to(done: &Finished, name: &str) -> Option<[f64; 3]> {
        let (accuracy, ceiling) = done.measured::<(f64, f64)>(&Self::again(name)).ok()?;
        Some([accuracy, done.run(&label(name)).ok()?.measure(KEPT)?, ceiling])
    }

    fn published(&self, name: &str) -> Option<[f64; 2]> {
        let row = PUBLISHED.iter().find(|row| row.ours == name)?;
        Some(if self.hidden == 0 { row.linear } else { row.network })
    }

    /// The largest published accuracy and F1.
    fn best_published(&self) -> [f64; 2] {
        let all = || PUBLISHED.iter().filter_map(|row| self.published(row.ours));
        [0, 1].map(|which| all().map(|row| row[which]).fold(0.0, f64::max))
    }
}

/// A draw of the runs with λ near its start.
fn drawn(draw: u64) -> String {
    if draw == 0 { NEAR.into() } else { format!("{NEAR}, draw {draw}") }
}

fn number(row: &IterationRow, name: &str) -> f64 {
    row.measures.get(name).and_then(|value| value.as_f64()).unwrap_or(f64::NAN)
}

/// The measured iteration with the least loss on clean digits, and the last.
fn iterates(run: &FinishedRun) -> [(&'static str, Option<&IterationRow>); 2] {
    let measured = || run.history.rows.iter().filter(|row| !row.measures.is_empty());
    let best = measured().min_by(|a, b| number(a, "clean loss").total_cmp(&number(b, "clean loss")));
    [("last iterate", measured().next_back()), ("least loss on clean digits", best)]
}

impl Study for HyperCleaningTable {
    fn name(&self) -> &str {
        if self.hidden == 0 { "hyper-cleaning" } else { "hyper-cleaning-mlp" }
    }

    fn title(&self) -> &str {
        if self.hidden == 0 {
            "Beyond the paper: wrong labels of MNIST, a linear classifier"
        } else {
            "Beyond the paper: wrong labels of MNIST, a network with 300 hidden units"
        }
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        // The row compared with the best of all published rows comes first; all others follow.
        let near = self.runs(plan)?.into_iter().take(DRAWS as usize);
        let runs = near.map(|(name, config)| Item::run(label(&name), config));
        // Without any of the training digits: the baseline that cleaning must beat.
        let none = Item::measure(label(CLEAN), self.training(plan, plan.seed, vec![-1.0; self.task(plan).train]));
        Ok(runs.chain([none]).collect())
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let mut items = vec![];
        for (name, config) in self.runs(plan)? {
            match done.get(&label(&name)) {
                None => items.push(Item::run(label(&name), config)),
                Some(bilevel_run::Done::Run(run)) if run.arrived() && done.get(&Self::again(&name)).is_none() => {
                    let lambda = run.lambda.iter().flat_map(|leaf| leaf.values.clone()).collect();
                    let again = self.training(plan, config.seed, lambda);
                    items.push(Item::measure(Self::again(&name), again));
                }
                Some(_) => {}
            }
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let (mut rows, mut series): (Vec<Row>, Vec<Series>) = (vec![], vec![]);
        let mut reached: Vec<(f64, f64, String)> = vec![];
        let judged = |ours: f64, published: Option<f64>| match published {
            _ if plan.is_quick() => Verdict::NotClaimed,
            Some(published) if ours > published => Verdict::Better,
            Some(_) => Verdict::NotReproduced("below the published number at these settings, the same for all".into()),
            None => Verdict::NotClaimed,
        };
        for (name, _) in self.variants(plan)? {
            let run = match done.get(&label(&name)) {
                Some(bilevel_run::Done::Run(run)) => run,
                Some(bilevel_run::Done::NotApplicable(why)) => {
                    let row = Row::new(self.name(), &name, ACCURACY, f64::NAN);
                    rows.push(row.without_runs(Verdict::NotRun(why.clone())));
                    continue;
                }
                _ => continue,
            };
            if !run.arrived() {
                let row = Row::new(self.name(), &name, ACCURACY, f64::NAN).cost(run.price).took(run.seconds);
                rows.push(row.without_runs(Verdict::NotReproduced(run.result.because.clone())));
            }
            let published = self.published(&name).filter(|_| !plan.is_quick());
            for (which, iterate) in iterates(run) {
                let Some(iterate) = iterate else { continue };
                let numbers = [(ACCURACY, Some(0)), (KEPT, Some(1)), (REDRAWN, None), ("F1 of wrong labels", None)];
                for (metric, place) in numbers {
                    let (ours, printed) = (number(iterate, metric), place.and_then(|at: usize| Some(published?[at])));
                    let row = Row::new(self.name(), &name, metric, ours).setting(which).paper(printed);
                    let row = row.cost(run.price).took(run.seconds).verdict(judged(ours, printed));
                    rows.push(row);
                }
            }
            if let Some([accuracy, kept, _]) = Self::comes_to(done, &name).filter(|_| name != NEAR) {
                let printed = published.map(|printed| printed[0]);
                reached.push((accuracy, kept, name.clone()));
                let row = Row::new(self.name(), &name, ACCURACY, accuracy).setting(ANEW);
                rows.push(row.paper(printed).verdict(judged(accuracy, printed)));
            }
            let points = |metric: &str| {
                let rows = run.history.rows.iter().filter(|row| !row.measures.is_empty());
                rows.map(|row| (f64::from(row.iteration), number(row, metric))).collect()
            };
            series.push((name.clone(), points(KEPT)));
        }
        let draws: Vec<[f64; 3]> = (0..DRAWS).filter_map(|draw| Self::comes_to(done, &drawn(draw))).collect();
        let over = [0, 1, 2].map(|which| Spread::of(&draws.iter().map(|draw| draw[which]).collect::<Vec<_>>()));
        let best = self.best_published();
        let ceiling = over[2].mean;
        let limit = format!(
            "the best threshold on probabilities, chosen with knowledge of the redrawn labels, has {ceiling:.4}"
        );
        let settings = [(ACCURACY, ANEW), (KEPT, "last iterate"), (KEPT, KNOWN)];
        for (at, (metric, setting)) in settings.into_iter().enumerate() {
            let printed = best.get(at).copied().filter(|_| !plan.is_quick());
            let row = Row::new(self.name(), NEAR, metric, over[at].mean).setting(format!("{setting}, {DRAWS} draws"));
            let verdict = match judged(over[at].mean, printed) {
                Verdict::NotReproduced(_) if at == 1 => Verdict::NotReproduced(limit.clone()),
                other => other,
            };
            rows.push(row.paper(printed).over(over[at].sd, over[at].count as u32).verdict(verdict));
        }
        reached.push((over[0].mean, over[1].mean, NEAR.into()));
        let (accuracy, ceiling) = done.measured::<(f64, f64)>(&label(CLEAN))?;
        rows.push(Row::new(self.name(), CLEAN, ACCURACY, accuracy));
        rows.push(Row::new(self.name(), CLEAN, KEPT, ceiling).setting(KNOWN));
        for name in DEAR.iter().filter(|_| !plan.is_quick()) {
            let why =
                "a hypergradient of thousands of hyperparameters takes a training for each direction it looks along";
            let row = Row::new(self.name(), *name, ACCURACY, f64::NAN);
            rows.push(row.without_runs(Verdict::NotRun(why.into())));
        }
        let [accuracy, f1] = best;
        let ahead: Vec<&str> =
            reached.iter().filter(|found| found.0 > accuracy && found.1 > f1).map(|found| found.2.as_str()).collect();
        let said = match (plan.is_quick(), ahead.is_empty()) {
            (true, _) => "Embedded digits stand for MNIST, so nothing is compared with published numbers.".to_string(),
            (false, true) => {
                format!("No method is ahead of the best published accuracy, {accuracy}, and F1, {f1}, at once.")
            }
            (false, false) => format!("Ahead of every published row in both numbers: {}.", ahead.join(", ")),
        };
        let title = "F1 of the digits kept over outer iterations";
        let found = Findings::new(rows, [figure(title, "outer iteration", KEPT, series)]);
        Ok(Findings { said: vec![said], ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_run::run::{History, RunResult};
    use bilevel_run::{Done, Registry};

    #[test]
    fn a_run_that_diverged_has_a_row_that_says_why() {
        let registry = crate::register(bilevel_tasks::register(Registry::new()));
        let plan = Plan::new(&registry);
        let table = HyperCleaningTable { hidden: 0 };
        let (name, config) = table.variants(&plan).unwrap().into_iter().find(|(name, _)| name == "amigo-cg").unwrap();
        let result = RunResult {
            task: config.task.name().into(),
            method: config.method.name().into(),
            seed: 0,
            config_hash: config.hash(),
            iterations: 24,
            stopped: "diverged".into(),
            because: "the adjoint grows".into(),
            inner_loss: None,
            outer_loss: None,
            best_outer_loss: None,
            hypergradient_norm: None,
            measures: Default::default(),
            best: None,
            guard: None,
            baselines: None,
            lambda: vec![],
            idle: vec![],
            oracles: Default::default(),
        };
        let (history, lambda, seconds, price) = (History::default(), vec![], 1.0, 2.0);
        let mut done = Finished::default();
        done.add(label(&name), Done::Run(Box::new(FinishedRun { config, result, history, lambda, seconds, price })));
        done.add(label(CLEAN), Done::Measured { value: serde_json::json!([0.9, 0.9]), seconds: 1.0 });
        let found = table.findings(&plan, &done).unwrap();
        let rows: Vec<&Row> = found.rows.iter().filter(|row| row.method == "amigo-cg").collect();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].verdict, Verdict::NotReproduced("the adjoint grows".into()));
    }
}
