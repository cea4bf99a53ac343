//! The studies, one file each, in the order of the paper.

mod deep;
pub mod digits;
mod digits_equal_cost;
mod few_shot;
mod finite_temperature;
mod first_order;
mod generalisation;
mod hyper_cleaning;
mod ijcnn1;
mod implicit_representation;
mod invariance;
mod layer_rates;
mod long_run;
mod noisy_synth1d;
mod quadratics;
pub mod synthetic;
mod taylor_glo;
mod toy_polynomial;
mod truth;
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
        .measure("seed-runs", crate::runs::SeedRuns::of)
        .measure("taylor-glo", taylor_glo::TaylorGlo::of)
        .study(toy_polynomial::ToyPolynomial)
        .study(manifest!("synth1d"))
        .study(manifest!("inner-iterations"))
        .study(manifest!("chain-length"))
        .study(noisy_synth1d::NoisySynth1d)
        .study(first_order::FirstOrder)
        .study(quadratics::QuadraticsRace)
        .study(manifest!("amigo"))
        .study(manifest!("evolutionary-search"))
        .study(wall_clock::WallClock)
        .study(manifest!("invariance"))
        .study(few_shot::FewShotStudy)
        .study(manifest!("l1-regularisation"))
        .study(manifest!("learned-loss"))
        .study(implicit_representation::ImplicitRepresentationStudy)
        .study(finite_temperature::FiniteTemperature)
        .study(truth::Truth)
        .study(generalisation::Generalisation)
        .study(hyper_cleaning::HyperCleaningTable { hidden: 0 })
        .study(hyper_cleaning::HyperCleaningTable { hidden: 300 })
        .study(manifest!("data-cleaning"))
        .study(ijcnn1::Ijcnn1)
        .study(layer_rates::LayerRatesTable)
        .study(LongRun::MillionWeights)
        .study(LongRun::Penalties)
        .study(LongRun::Loss)
        .study(digits::DigitsStudy::default())
        .study(digits_equal_cost::DigitsEqualCost)
        .study(wrong_labels::WrongLabels::default())
}
