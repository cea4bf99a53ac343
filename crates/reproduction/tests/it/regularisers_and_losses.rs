//! The studies of learned penalties and learned losses in quick mode, and what they say where there are no data.

use bilevel::Cpu;
use bilevel_report::Section;
use bilevel_run::{Findings, Place, Plan, Registry, Row, Scale, Verdict, in_memory};
use std::sync::OnceLock;

fn quick(name: &str) -> Findings {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    let (plan, place) =
        (Plan { scale: Scale::Quick, ..Plan::new(&registry) }, Place::new(&registry, Cpu::with_threads(1)));
    in_memory(&**registry.known_study(name).unwrap(), &plan, &place).unwrap()
}

fn penalties() -> &'static Findings {
    static FOUND: OnceLock<Findings> = OnceLock::new();
    FOUND.get_or_init(|| quick("l1-regularisation"))
}

fn losses() -> &'static Findings {
    static FOUND: OnceLock<Findings> = OnceLock::new();
    FOUND.get_or_init(|| quick("learned-loss"))
}

/// The test error of a row.
#[track_caller]
fn test_error(found: &Findings, method: &str, setting: &str) -> f64 {
    let is = |row: &&Row| row.method == method && row.setting == setting && row.metric == "test error in %";
    found.rows.iter().find(is).unwrap_or_else(|| panic!("there is no row {method} {setting}")).ours.unwrap()
}

#[test]
fn no_divergence_is_left_without_its_diagnosis() {
    for found in [penalties(), losses()] {
        for row in found.rows.iter().filter(|row| row.ours.is_none()) {
            assert!(row.verdict.why().len() > 20, "{row:?}");
        }
        let diverged = found.rows.iter().filter(|row| row.verdict.why().contains("diverged at iteration"));
        assert!(diverged.clone().count() > 0);
        for row in diverged {
            let name = format!("{} {}", row.method, row.setting.trim_start_matches("digits, "));
            assert!(found.warnings.iter().any(|text| text.contains(&name)), "{name}: {:?}", found.warnings);
        }
    }
}

#[test]
fn every_row_of_the_table_of_penalties_is_there() {
    let rows = &penalties().rows;
    let count = |method: &str| rows.iter().filter(|r| r.method == method && r.metric == "test error in %").count();
    assert!(count("IFT-Neumann") >= 8 && count("IFT-CG") >= 8 && count("RMD") >= 1 && count("HPO-SGLD") >= 8 + 9);
    for (method, times) in [("warm-up", 2), ("trained on the validation pictures too", 1), ("RMD-FO", 1)] {
        assert_eq!(count(method), times, "{method}");
    }
    // With the validation pictures trained on too, the error is below that of training alone.
    let both = test_error(penalties(), "trained on the validation pictures too", "digits");
    assert!(both < test_error(penalties(), "λ = 0 for all weights", "digits"), "{both}");
    for (method, setting) in [("HPO-SGLD, retrained", "digits, by layer"), ("IFT-CG, retrained", "digits, (0.01, 3)")] {
        assert!(rows.iter().any(|row| row.method == method && row.setting == setting), "{method} {setting}");
    }
}

#[test]
fn without_noise_the_temperature_makes_no_difference_to_learned_penalties() {
    let at = |tau: &str| test_error(penalties(), "HPO-SGLD", &format!("digits, ({tau}, 1e-6)"));
    assert!((at("0.01") - at("0.0001")).abs() < 1.0 && (at("0.005") - at("0.0001")).abs() < 1.0);
}

#[test]
fn every_row_of_the_table_of_losses_is_there_and_forward_mode_is_reverse_mode() {
    let rows = &losses().rows;
    let count = |method: &str| rows.iter().filter(|r| r.method == method && r.metric == "test error in %").count();
    // Four baselines, and training with larger steps.
    for (method, times) in [("cross entropy", 4 + 2), ("Brier's loss", 1), ("TaylorGLO, retrained", 1), ("RMD-FO", 1)] {
        assert_eq!(count(method), times, "{method}");
    }
    assert!(count("IFT-Neumann") >= 6 && count("IFT-CG") >= 6 && count("HPO-SGLD") >= 3);
    let near = test_error(losses(), "FMD", "10 steps") - test_error(losses(), "RMD", "10 steps");
    assert!(near.abs() < 1.0, "{near}");
}

#[test]
fn the_learned_losses_are_drawn_beside_cross_entropy_and_the_penalties_by_layer() {
    let plots = |found: &'static Findings| {
        found.sections.iter().filter_map(|section| if let Section::Plot(plot) = section { Some(plot) } else { None })
    };
    let drawn = plots(losses()).find(|plot| plot.title.contains("The learned loss")).unwrap();
    assert!(drawn.curves.len() == 3 && drawn.curves[0].name == "cross entropy");
    assert!(plots(penalties()).any(|plot| plot.title.contains("Penalties by layer")));
    for found in [penalties(), losses()] {
        let curves: usize =
            plots(found).filter(|plot| plot.x.label == "outer iteration").map(|plot| plot.curves.len()).sum();
        assert!(curves > 30, "every row has its curve over iterations: {curves}");
    }
    let tables = penalties().sections.iter().filter(|section| matches!(section, Section::Table(_)));
    assert!(tables.count() >= 2, "penalties by layer");
}

#[test]
fn the_full_plan_without_data_says_how_to_get_them() {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    let place = Place::new(&registry, Cpu::with_threads(1));
    for (name, folder) in [("l1-regularisation", "oxford-pets"), ("learned-loss", "cifar10")] {
        let found = in_memory(&**registry.known_study(name).unwrap(), &Plan::new(&registry), &place).unwrap();
        assert!(found.rows.iter().all(|row| matches!(row.verdict, Verdict::NotRun(_))), "{:?}", found.rows);
        let how = found.rows[0].verdict.why();
        assert!(how.contains(&format!("bilevel data fetch {folder}")), "{how}");
    }
}
