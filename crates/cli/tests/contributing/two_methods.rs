//! Where two methods end on synthetic 1-D.

use crate::tasks::{OPTIMUM, Synth1d};
use crate::{Findings, Finished, Item, Plan, Row, Study, Verdict};
use bilevel::{AnyMethod, IftCg, Result, Rmd};

const NAME: &str = "two-methods";

fn methods() -> [(&'static str, AnyMethod); 2] {
    let (step, steps) = (0.005, 100);
    [
        ("rmd", Rmd { step, steps, ..Rmd::default() }.into()),
        ("ift-cg", IftCg { step, steps, ..IftCg::default() }.into()),
    ]
}

/// The study.
pub(super) struct TwoMethods;

impl Study for TwoMethods {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Two methods on synthetic 1-D"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let item = |(name, method)| {
            let mut config = plan.run(&Synth1d::default())?.by(method);
            config.outer.iterations = plan.choose(20, 500);
            Ok(Item::run(name, config))
        };
        methods().into_iter().map(item).collect()
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let row = |(name, _)| {
            let run = done.run(name)?;
            let ours = run.lambda[0].values[0];
            let row = Row::new(NAME, name, "λ", ours).reference(OPTIMUM.0).cost(run.price).took(run.seconds);
            Ok(row.verdict(Verdict::NotClaimed))
        };
        Ok(Findings::new(methods().into_iter().map(row).collect::<Result<_>>()?, []))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Place, Registry, in_memory};
    use bilevel::Cpu;

    #[test]
    fn added_study_has_a_row_for_each_method() {
        let registry = Registry::everything();
        assert!(registry.known_study(NAME).is_ok());
        let (plan, place) = (Plan { quick: true, ..Plan::new(&registry) }, Place::new(&registry, Cpu::with_threads(1)));
        assert_eq!(in_memory(&TwoMethods, &plan, &place).unwrap().rows.len(), 2);
    }
}
