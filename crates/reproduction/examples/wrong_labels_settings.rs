//! The tables from which the settings of the study of wrong labels were taken: `cargo run --release -p bilevel-reproduction --example
//! wrong_labels_settings`

use bilevel::methods::{IftCg, LangevinAdjoint};
use bilevel::{Cpu, InnerLoop, Result};
use bilevel_reproduction::studies::wrong_labels::{Choice, Comparison, KINDS, Learning, SplitTrials, Trial, Way};
use bilevel_run::{Measure, Place, Registry};

/// All ways on splits from 101 on, which the study does not show, for both kinds of mistakes.
fn compare(choice: &Choice, splits: u64) -> Result<Vec<Vec<SplitTrials>>> {
    let registry = Registry::new();
    let place = Place::new(&registry, Cpu::with_threads(1));
    let of = |kind: usize| {
        let one = |split| {
            let Choice { confusions, weights, decays } = choice.clone();
            Comparison { split, mistakes: KINDS[kind], confusions, weights, decays: decays[kind] }.take(&place)
        };
        (101..101 + splits).map(one).collect()
    };
    (0..KINDS.len()).map(of).collect()
}

/// Mean loss and accuracy, in percent, of a way on digits that no way sees.
fn others(trials: &[SplitTrials], way: Way) -> String {
    let mean = |pick: fn(&Trial) -> f64| {
        let all = trials.iter().flat_map(|split| &split.trials).filter(|trial| trial.way == way).map(pick);
        all.sum::<f64>() / trials.len() as f64
    };
    format!("{:.4} {:.1} %", mean(|trial| trial.others.loss), 100.0 * mean(|trial| trial.others.accuracy))
}

fn learning() -> Result<()> {
    println!("loss and accuracy on digits that no way sees, systematic and random mistakes, by settings of learning");
    let Choice { confusions: usual, .. } = Choice::default();
    let adjoint = Learning {
        method: LangevinAdjoint::default().into(),
        inner: InnerLoop::new(0.5, 30).at_temperature(1e-6),
        ..usual.clone()
    };
    let undamped = Learning { method: IftCg { iterations: 20, ..IftCg::default() }.into(), ..usual.clone() };
    let mut all = vec![("langevin-adjoint", adjoint), ("ift-cg, not regularised", undamped)];
    for steps in [20, 40] {
        let inner = InnerLoop { steps, ..usual.inner };
        all.push(("ift-cg, fewer steps", Learning { inner, ..usual.clone() }));
    }
    for decay in [1e-3, 3e-3, 1e-2] {
        for iterations in [30, 60, 120] {
            all.push(("ift-cg", Learning { iterations, decay, ..usual.clone() }));
        }
    }
    for (name, learning) in all {
        let choice = Choice { confusions: learning.clone(), weights: learning.clone(), ..Choice::default() };
        let found = compare(&choice, 10)?;
        let of = |way| format!("{} | {}", others(&found[0], way), others(&found[1], way));
        let (confusions, weights) = (of(Way::Confusions), of(Way::Weights));
        println!(
            "{name:24} decay {:<6} {:3} iterations of {:2} steps: confusions {confusions}; weights {weights}",
            learning.decay, learning.iterations, learning.inner.steps
        );
    }
    Ok(())
}

fn decays() -> Result<()> {
    println!("loss on digits that no way sees, by the decay of each way's classifier");
    for decay in [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2] {
        let found = compare(&Choice { decays: [[decay; Way::ALL.len()]; 2], ..Choice::default() }, 5)?;
        for (kind, trials) in KINDS.iter().zip(&found) {
            for way in Way::ALL {
                println!("{kind:?} {decay:<6} {:40} {}", way.name(), others(trials, way));
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("learning") => learning(),
        Some("decays") => decays(),
        _ => learning().and_then(|()| decays()),
    }
}
