//! The experiments, one file each, in the order of the paper.

mod amigo;
mod chain_length;
mod digits_equal_cost;
mod evolutionary_search;
mod finite_temperature;
mod first_order;
mod inner_iterations;
pub mod noisy_synth1d;
mod quadratics;
mod synth1d;
mod toy_polynomial;
mod wall_clock;

use crate::Experiment;

/// All of them.
pub(crate) const ALL: &[Experiment] = &[
    Experiment {
        name: "toy-polynomial",
        title: "Toy polynomial: one inner optimum or all of them",
        work: toy_polynomial::work,
    },
    Experiment { name: "synth1d", title: "Synthetic 1-D: where 200 outer iterations end", work: synth1d::work },
    Experiment {
        name: "inner-iterations",
        title: "Synthetic 1-D: errors over the inner iterations",
        work: inner_iterations::work,
    },
    Experiment {
        name: "chain-length",
        title: "Beyond the paper: synthetic 1-D at outer convergence, errors over γT",
        work: chain_length::work,
    },
    Experiment { name: "noisy-synth1d", title: "Noisy synthetic 1-D, over seeds", work: noisy_synth1d::work },
    Experiment { name: "first-order", title: "Goodness of the first-order approximation", work: first_order::work },
    Experiment { name: "quadratics", title: "Convergence on quadratics", work: quadratics::work },
    Experiment { name: "amigo", title: "AmIGO on synthetic 1-D", work: amigo::work },
    Experiment {
        name: "evolutionary-search",
        title: "Evolutionary search on synthetic 1-D",
        work: evolutionary_search::work,
    },
    Experiment { name: "wall-clock", title: "Time of an outer iteration of synthetic 1-D", work: wall_clock::work },
    Experiment {
        name: "finite-temperature",
        title: "Beyond the paper: hypergradients at finite temperature",
        work: finite_temperature::work,
    },
    Experiment {
        name: "digits-equal-cost",
        title: "Beyond the paper: a penalty for each weight of a digit classifier, at equal cost",
        work: digits_equal_cost::work,
    },
];
