//! Few-shot learning: MAML and its kin, Bayesian ones, prototypes, and HPO-SGLD, on characters and on photographs.
//!
//! Every method learns λ by a run of the driver. Then 600 tasks of unseen classes are learned from λ, with the number
//! of steps of the method's own paper, and judged on 15 images of each class. Batch norms use the statistics of the
//! current images, so the queries of a task help each other, as in MAML and Reptile's published numbers.

mod plan;
mod show;

use bilevel::optimizers::{InnerOptimizer, Optimizer, ScheduleSettings, Shape};
use bilevel::{Precision, Result};
use bilevel_run::{Config, Device, Findings, Finished, Item, LambdaLeaf, Measure, Place, Plan, Settings, Study, label};
use bilevel_tasks::few_shot::{Adaptation, FewShot, ImageSet, Judgement};
use plan::{Entry, Setup, setups};
use serde::Serialize;

/// Its name.
const NAME: &str = "few-shot";
/// Points of a curve.
const POINTS: u32 = 40;

/// A test of λ on tasks it has never seen.
#[derive(Serialize)]
struct Test {
    task: FewShot,
    lambda: Vec<Vec<f32>>,
    #[serde(skip)]
    shapes: Vec<(String, Vec<usize>)>,
    how: Adaptation,
    tests: usize,
    seed: u64,
    #[serde(with = "bilevel::diagnostics::precision_name")]
    precision: Precision,
}

impl Measure for Test {
    type Found = Judgement;

    fn take(&self, place: &Place) -> Result<Judgement> {
        let leaf = |((name, shape), values): (&(String, Vec<usize>), &Vec<f32>)| LambdaLeaf {
            name: name.clone(),
            shape: shape.clone(),
            values: values.iter().map(|value| f64::from(*value)).collect(),
        };
        let lambda: Vec<LambdaLeaf> = self.shapes.iter().zip(&self.lambda).map(leaf).collect();
        self.task.test(&lambda, &self.how, (self.tests, self.seed), self.precision, place)
    }
}

impl Setup {
    /// Why it cannot be run here, if so.
    fn missing(&self, plan: &Plan) -> Option<String> {
        let name = match self.dataset {
            ImageSet::Omniglot => return None,
            ImageSet::TinyImagenet => "tiny-imagenet",
            ImageSet::MiniImagenet => "mini-imagenet",
            ImageSet::TieredImagenet => "tiered-imagenet",
        };
        match &plan.data {
            None => Some(format!(
                "it reads {name}: give its folder with --data DIR; 'bilevel data fetch {name}' downloads it, or \
                explains how"
            )),
            Some(data) if !data.join(name).exists() => {
                Some(format!("{name} is not among the data; 'bilevel data fetch {name}' gets it, or says how"))
            }
            Some(_) => None,
        }
    }
}

impl Entry {
    /// The label of its training.
    fn label(&self, setup: &Setup) -> String {
        label(&format!("{} {} {}", self.shares.unwrap_or(&setup.name), self.name, self.detail))
    }

    fn test_label(&self, setup: &Setup) -> String {
        label(&format!("{} {} {} test", setup.name, self.name, self.detail))
    }

    fn config(&self, plan: &Plan) -> Result<Config> {
        let (optimizer, rate, iterations) = &self.outer;
        let mut config = plan.run(&self.task)?.by(self.method.clone());
        config.precision = precision(plan);
        config.outer.iterations = *iterations;
        config.outer.rate = *rate;
        config.outer.optimizer = Settings::new(InnerOptimizer::kind(optimizer), optimizer);
        config.outer.schedule = ScheduleSettings::from(Shape::Cosine { over: *iterations, last: 0.0 });
        config.metrics.every = (*iterations / POINTS).max(1);
        config.metrics.diagnose = 0;
        config.checkpoint.every = (*iterations / 5).max(1);
        Ok(config)
    }

    /// The test of a run's λ; `None` if it is lost.
    fn test(&self, setup: &Setup, plan: &Plan, lambda: &[LambdaLeaf]) -> Option<Test> {
        let finite = lambda.iter().all(|leaf| leaf.values.iter().all(|value| value.is_finite()));
        finite.then(|| Test {
            task: self.tested.clone(),
            lambda: lambda.iter().map(|leaf| leaf.values.iter().map(|value| *value as f32).collect()).collect(),
            shapes: lambda.iter().map(|leaf| (leaf.name.clone(), leaf.shape.clone())).collect(),
            how: self.how,
            tests: setup.tests,
            seed: plan.seed,
            precision: precision(plan),
        })
    }
}

/// Products of a GPU in its fast format for single precision, which costs these networks nothing that can be seen.
fn precision(plan: &Plan) -> Precision {
    if plan.device == Device::Cpu { Precision::Full } else { Precision::Tf32 }
}

/// The study.
pub struct FewShotStudy;

impl Study for FewShotStudy {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Few-shot learning: MAML and its kin, Bayesian learners, prototypes and HPO-SGLD on classes never seen before"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        self.next(plan, &Finished::default())
    }

    /// The tests of all that is trained, and all other trainings.
    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let (mut tests, mut trainings) = (vec![], vec![]);
        for setup in setups(plan).iter().filter(|setup| setup.missing(plan).is_none()) {
            for entry in &setup.entries {
                let (training, label) = (entry.label(setup), entry.test_label(setup));
                if done.get(&training).is_none() && entry.shares.is_none() {
                    trainings.push(Item::run(training, entry.config(plan)?));
                } else if let (Ok(run), None) = (done.run(&training), done.get(&label)) {
                    tests.extend(entry.test(setup, plan, &run.lambda).map(|test| Item::measure(label, test)));
                }
            }
        }
        tests.extend(trainings);
        Ok(tests)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        show::findings(plan, &setups(plan), done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_run::{Registry, Scale, Verdict};

    #[test]
    fn photographs_that_are_not_there_are_not_run_and_the_rows_say_how_to_get_them() {
        let registry = crate::register(bilevel_tasks::register(Registry::new()));
        let plan = Plan::new(&registry);
        let items = FewShotStudy.items(&plan).unwrap();
        assert_eq!(items.len(), 23, "all trainings on characters: ten, nine and twice two");
        let found = FewShotStudy.findings(&plan, &Finished::default()).unwrap();
        let not_run = |metric: &str, how: &str| {
            let rows = found.rows.iter().filter(|row| row.setting.starts_with(metric));
            let why: Vec<&Verdict> = rows.map(|row| &row.verdict).collect();
            assert!(!why.is_empty() && why.iter().all(|why| matches!(why, Verdict::NotRun(why) if why.contains(how))));
        };
        not_run("tiny ImageNet", "give its folder with --data DIR; 'bilevel data fetch tiny-imagenet' downloads it");
        not_run("miniImageNet", "'bilevel data fetch mini-imagenet'");
        not_run("tieredImageNet", "'bilevel data fetch tiered-imagenet'");
        let elsewhere = Plan { data: Some("no/such/folder".into()), ..plan };
        let found = FewShotStudy.findings(&elsewhere, &Finished::default()).unwrap();
        assert!(found.rows.iter().any(|row| row.verdict.why().starts_with("tiny-imagenet is not among the data")));
    }

    #[test]
    fn every_training_and_every_test_of_the_full_plan_has_a_name_of_its_own() {
        let registry = crate::register(bilevel_tasks::register(Registry::new()));
        for scale in Scale::ALL {
            let plan = Plan { scale, ..Plan::new(&registry) };
            let all = setups(&plan);
            let pairs = || all.iter().flat_map(|setup| setup.entries.iter().map(move |entry| (setup, entry)));
            let own = pairs().filter(|(_, entry)| entry.shares.is_none()).map(|(setup, entry)| entry.label(setup));
            let mut names: Vec<String> = own.chain(pairs().map(|(setup, entry)| entry.test_label(setup))).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
            for (setup, entry) in pairs() {
                let config = entry.config(&plan).unwrap();
                assert!(config.outer.check().is_ok() && config.method(&registry).is_ok(), "{}", entry.label(setup));
                let trained =
                    pairs().any(|(other, known)| known.shares.is_none() && known.label(other) == entry.label(setup));
                assert!(trained, "{} is trained somewhere", entry.label(setup));
            }
        }
    }
}
