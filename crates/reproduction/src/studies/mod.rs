//! The studies, one file each, in the order of the paper.

mod deep;
pub mod digits;
mod digits_equal_cost;
mod finite_temperature;
mod first_order;
mod generalisation;
mod ijcnn1;
mod invariance;
mod long_run;
mod represented;
mod retrained;
pub mod synthetic;
mod taylor_glo;
mod toy_polynomial;
mod truth;
mod unseen_classes;
mod until;
mod wall_clock;
mod warm_up;
pub mod wrong_labels;

use bilevel_run::Registry;
use bilevel_run::manifest::Manifest;
use long_run::LongRun;

/// A study whose tables are in a file of the folder `studies`, by its name.
macro_rules! manifest {
    ($name:literal) => {
        Manifest::parse(
            $name,
            concat!($name, ".toml").as_ref(),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/studies/", $name, ".toml")),
        )
    };
}

/// Adds all studies, in the order of the paper; they need the tasks of `bilevel_tasks`.
pub fn register(registry: Registry) -> Registry {
    registry
        .measure("lila", invariance::Lila::of)
        .measure("clock", warm_up::Clock::of)
        .measure("l1-warm-up", warm_up::WarmUp::of)
        .measure("line-search", synthetic::LineSearch::of)
        .measure("represented", represented::Represented::of)
        .measure("retrained", retrained::Retrained::of)
        .measure("seed-runs", crate::runs::SeedRuns::of)
        .measure("taylor-glo", taylor_glo::TaylorGlo::of)
        .measure("unseen-classes", unseen_classes::UnseenClasses::of)
        .measure("until", until::Until::of)
        .study(toy_polynomial::ToyPolynomial)
        .study(manifest!("synth1d"))
        .study(manifest!("inner-iterations"))
        .study(manifest!("chain-length"))
        .study(manifest!("noisy-synth1d"))
        .study(first_order::FirstOrder)
        .study(manifest!("quadratics"))
        .study(manifest!("amigo"))
        .study(manifest!("evolutionary-search"))
        .study(wall_clock::WallClock)
        .study(manifest!("invariance"))
        .study(manifest!("few-shot"))
        .study(manifest!("l1-regularisation"))
        .study(manifest!("learned-loss"))
        .study(manifest!("implicit-representation"))
        .study(finite_temperature::FiniteTemperature)
        .study(truth::Truth)
        .study(generalisation::Generalisation)
        .study(manifest!("hyper-cleaning"))
        .study(manifest!("hyper-cleaning-mlp"))
        .study(manifest!("data-cleaning"))
        .study(ijcnn1::Ijcnn1)
        .study(manifest!("layer-rates"))
        .study(LongRun::MillionWeights)
        .study(LongRun::Penalties)
        .study(LongRun::Loss)
        .study(digits::DigitsStudy::default())
        .study(digits_equal_cost::DigitsEqualCost)
        .study(wrong_labels::WrongLabels::default())
}
