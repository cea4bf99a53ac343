//! The studies, one file each, in the order of the paper.

mod amigo;
mod chain_length;
mod data_cleaning;
mod deep;
pub mod digits;
mod digits_equal_cost;
mod evolutionary_search;
mod few_shot;
mod finite_temperature;
mod first_order;
mod hyper_cleaning;
mod ijcnn1;
mod implicit_representation;
mod inner_iterations;
mod invariance;
mod l1_regularisation;
mod layer_rates;
mod learned_loss;
mod long_run;
mod noisy_synth1d;
mod quadratics;
mod synth1d;
pub mod synthetic;
mod toy_polynomial;
mod truth;
mod wall_clock;

use crate::Registry;
use long_run::LongRun;

/// All studies, in the order of the paper.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .study(toy_polynomial::ToyPolynomial)
        .study(synth1d::Synth1dTable)
        .study(inner_iterations::InnerIterations)
        .study(chain_length::ChainLength)
        .study(noisy_synth1d::NoisySynth1d)
        .study(first_order::FirstOrder)
        .study(quadratics::QuadraticsRace)
        .study(amigo::Amigo)
        .study(evolutionary_search::EvolutionarySearch)
        .study(wall_clock::WallClock)
        .study(invariance::InvarianceTable)
        .study(few_shot::FewShotStudy)
        .study(l1_regularisation::L1RegularisationStudy)
        .study(learned_loss::LearnedLossStudy)
        .study(implicit_representation::ImplicitRepresentationStudy)
        .study(finite_temperature::FiniteTemperature)
        .study(truth::Truth)
        .study(hyper_cleaning::HyperCleaningTable { hidden: 0 })
        .study(hyper_cleaning::HyperCleaningTable { hidden: 300 })
        .study(data_cleaning::DataCleaning)
        .study(ijcnn1::Ijcnn1)
        .study(layer_rates::LayerRatesTable)
        .study(LongRun::MillionWeights)
        .study(LongRun::Penalties)
        .study(LongRun::Loss)
        .study(digits::DigitsStudy::default())
        .study(digits_equal_cost::DigitsEqualCost)
}
