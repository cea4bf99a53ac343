//! Every experiment in quick mode, once, compared with the numbers of the protocol.

use bilevel::Cpu;
use bilevel_report::{Plot, Section};
use bilevel_run::{Findings, Finished, Place, Plan, Registry, Row, Scale, Verdict, Work, in_memory, row_table};
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS, Split};
use std::sync::{LazyLock, OnceLock};

/// All studies, and what each comes to.
static STUDIES: LazyLock<(Registry, Vec<OnceLock<Findings>>)> = LazyLock::new(|| {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    let found = registry.studies().iter().map(|_| OnceLock::new()).collect();
    (registry, found)
});

/// What a study comes to. It runs once, when a test first asks for it, beside those that other tests ask for.
fn report(name: &str) -> &'static Findings {
    let (registry, found) = &*STUDIES;
    let number = registry.studies().iter().position(|study| study.name() == name).unwrap();
    found[number].get_or_init(|| {
        let (plan, place) =
            (Plan { scale: Scale::Quick, ..Plan::new(registry) }, Place::new(registry, Cpu::with_threads(1)));
        in_memory(&*registry.studies()[number], &plan, &place).unwrap()
    })
}

fn plots(name: &str) -> Vec<&'static Plot> {
    let plot = |section: &'static Section| if let Section::Plot(plot) = section { Some(plot) } else { None };
    report(name).sections.iter().filter_map(plot).collect()
}

fn row<'a>(name: &str, method: &str, setting: &str, metric: &str) -> &'a Row {
    let rows = &report(name).rows;
    let found = rows.iter().find(|r| r.method == method && r.setting == setting && r.metric == metric);
    found.unwrap_or_else(|| panic!("{method} {setting} {metric} is not among\n{}", row_table(rows).0.text(200)))
}

fn four(number: Option<f64>) -> String {
    format!("{:.4}", number.unwrap())
}

#[test]
fn the_deterministic_rows_of_the_synthetic_table_come_out_to_the_printed_digits() {
    let rows = report("synth1d").rows.iter().filter(|r| r.seeds == 1 && r.reference.is_some());
    let mut count = 0;
    for row in rows {
        assert_eq!(four(row.ours), four(row.reference), "{row:?}");
        assert_eq!(row.verdict, Verdict::Reproduced, "{row:?}");
        count += 1;
    }
    assert_eq!(count, 20, "the optimum and nine methods, λ and θ each");
}

#[test]
fn hpo_sgld_as_printed_misses_the_paper_where_the_protocol_says_and_the_report_says_so() {
    let printed = row("synth1d", "HPO-SGLD", "as printed", "λ");
    assert!((printed.ours.unwrap() - 0.7369).abs() < 3e-4, "{printed:?}");
    assert!(matches!(&printed.verdict, Verdict::NotReproduced(why) if why.contains("not consistent")));
    for setting in ["γ = 0.01", "B = M = 100"] {
        let row = row("synth1d", "HPO-SGLD", setting, "λ");
        assert!((row.ours.unwrap() - 0.7489).abs() < 3e-4, "{row:?}");
    }
}

#[test]
fn the_errors_over_inner_iterations_are_those_of_the_protocol() {
    for row in report("inner-iterations").rows.iter().filter(|r| r.reference.is_some()) {
        let spread = 3.0 * 2.5e-4 / (row.seeds as f64).sqrt();
        assert!((row.ours.unwrap() - row.reference.unwrap()).abs() < spread, "{row:?}");
    }
    let same = |method| row("inner-iterations", method, "T = 1000", "|λ − λ*|").ours.unwrap();
    assert!((same("RMD") - same("FMD")).abs() < 1e-12);
}

#[test]
fn the_adjoint_is_right_at_every_chain_length_and_the_others_have_their_known_bias() {
    for row in &report("chain-length").rows {
        let (ours, expected) = (row.ours.unwrap(), row.reference.unwrap());
        let allowed = if row.method == "Langevin adjoint" { 3e-5 } else { 1e-4 };
        assert!((ours - expected).abs() < allowed, "{row:?}");
    }
}

#[test]
fn the_noisy_means_are_within_three_standard_errors_of_two_thousand_seeds_or_of_the_optimum() {
    let mut count = 0;
    for row in report("noisy-synth1d").rows.iter().filter(|r| r.reference.is_some()) {
        let error = row.spread.unwrap() / (row.seeds as f64).sqrt();
        assert!((row.ours.unwrap() - row.reference.unwrap()).abs() < 3.0 * error, "{row:?}");
        count += 1;
    }
    // Two numbers of two methods have no seeds to be compared with, and are at the optimum.
    assert_eq!(count, 15 + 4);
}

#[test]
fn a_diverged_run_is_counted_and_not_averaged() {
    let lost = row("noisy-synth1d", "IFT-Neumann", "start 0.1", "runs diverged");
    let kept = row("noisy-synth1d", "IFT-Neumann", "start 0.1", "λ");
    assert!(lost.ours.unwrap() >= 4.0, "{lost:?}");
    assert_eq!(lost.ours.unwrap() as u32 + kept.seeds, lost.seeds);
    assert!(matches!(kept.verdict, Verdict::NotReproduced(_)));
    assert_eq!(row("noisy-synth1d", "IFT-Neumann", "start 0.7", "λ").verdict, Verdict::Reproduced);
}

#[test]
fn the_first_order_errors_are_those_of_the_protocol() {
    for row in &report("first-order").rows {
        let (ours, expected) = (row.ours.unwrap(), row.reference.unwrap());
        assert!((ours - expected).abs() < 0.01 + 3.0 * row.spread.unwrap() / (row.seeds as f64).sqrt(), "{row:?}");
    }
    let plots = plots("first-order");
    assert_eq!(plots[0].curves.len(), 2, "both curves");
    assert!(plots[0].curves.iter().all(|curve| curve.points.len() == 100));
}

#[test]
fn the_toy_polynomial_gives_the_papers_numbers() {
    let rows = &report("toy-polynomial").rows;
    assert_eq!((four(rows[0].ours), four(rows[1].ours)), ("0.0083".into(), "0.3833".into()));
    assert_eq!(format!("{:.3}", rows[2].ours.unwrap()), "0.178");
    assert!(rows.iter().all(|r| r.verdict == Verdict::Reproduced));
}

#[test]
fn quadratics_of_condition_ten_take_what_the_protocol_says_within_a_tenth() {
    for row in report("quadratics").rows.iter().filter(|r| r.reference.is_some()) {
        let ratio = row.ours.unwrap() / row.reference.unwrap();
        assert!((ratio - 1.0).abs() < 0.1, "{row:?}");
    }
    let direct = row("quadratics", "HPO-SGLD, τ = 0", "condition 10, direct term", "iterations to 1e-5");
    assert!(direct.ours.is_none() && matches!(direct.verdict, Verdict::NotReproduced(_)));
    let adjoint = row("quadratics", "Langevin adjoint", "condition 10, direct term", "iterations to 1e-5");
    assert!(adjoint.ours.is_some());
}

#[test]
fn the_adjoint_agrees_with_quadrature_at_finite_temperature() {
    let mut count = 0;
    for row in report("finite-temperature").rows.iter().filter(|r| r.method == "Langevin adjoint") {
        assert_eq!((&row.verdict, row.word()), (&Verdict::Reproduced, "agrees with the reference"), "{row:?}");
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn amigo_and_evolutionary_search_have_the_papers_errors() {
    for row in report("amigo").rows.iter().filter(|r| r.seeds == 1) {
        assert_eq!(four(row.ours), four(row.paper), "{row:?}");
    }
    // Antithetic pairs follow the derivative through the inner loop, so they end where RMD does.
    let pairs = row("evolutionary-search", "Evolutionary search", "antithetic pairs", "|λ − λ*|");
    let unrolled = row("amigo", "RMD", "", "|λ − λ*|");
    // They scatter around it: the directions are drawn.
    assert!((pairs.ours.unwrap() - unrolled.ours.unwrap()).abs() < 1e-4, "{pairs:?} {unrolled:?}");
}

#[test]
fn the_embedded_digits_are_all_there() {
    let digits = Digits::all();
    assert_eq!((digits.len(), digits.pixels.len()), (1797, 1797 * PIXELS));
    assert!(digits.pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    // How often scikit-learn has each digit.
    let mut counts = [0; CLASSES];
    digits.labels.iter().for_each(|label| counts[*label as usize] += 1);
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
}

#[test]
fn the_parts_of_a_split_are_disjoint_and_together_are_all_digits() {
    let sorted = |parts: &[&Digits]| {
        let rows = parts.iter().flat_map(|part| part.pixels.chunks(PIXELS).zip(&part.labels));
        let mut rows: Vec<(Vec<u32>, i32)> =
            rows.map(|(pixels, label)| (pixels.iter().map(|pixel| pixel.to_bits()).collect(), *label)).collect();
        rows.sort();
        rows
    };
    for seed in 0..3 {
        let Split { train, validation, test } = Split::new(seed);
        assert_eq!(sorted(&[&train, &validation, &test]), sorted(&[&Digits::all()]), "seed {seed}");
    }
}

#[test]
fn every_method_has_a_row_on_the_digits_or_says_why_not() {
    let rows = &report("digits-equal-cost").rows;
    let learned = [
        "hpo-sgld",
        "langevin-adjoint",
        "langevin-adjoint, f_θ once",
        "amigo-cg",
        "amigo-sgd",
        "ift-cg",
        "ift-neumann",
        "rmd",
        "es",
        "covariance",
    ];
    let find = |method: &str, metric: &str| rows.iter().find(|r| r.method == method && r.metric == metric).unwrap();
    for method in learned {
        assert!(["validation loss", "test loss", "test accuracy"].iter().all(|m| find(method, m).ours.is_some()));
    }
    let none = "does not apply";
    for (method, reason) in [("fmd", "costs 19221"), ("imaml", none), ("reptile", none), ("rmd-fo", "exactly 0")] {
        let row = find(method, "validation loss");
        assert!(matches!(&row.verdict, Verdict::NotRun(why) if why.contains(reason)), "{row:?}");
    }
    let [plot] = plots("digits-equal-cost")[..] else { panic!("one figure") };
    assert_eq!(plot.curves.len(), learned.len());
    for curve in &plot.curves {
        assert!(curve.points.last().unwrap().0 <= 4000.0, "{} keeps to the budget", curve.name);
    }
}

#[test]
fn penalties_learned_on_the_digits_are_better_than_none_or_one() {
    let loss = |method: &str| {
        let rows = report("digits-equal-cost").rows.iter();
        let mut rows = rows.filter(|r| r.method == method && r.metric == "validation loss");
        rows.next().unwrap().ours.unwrap()
    };
    for method in ["langevin-adjoint", "langevin-adjoint, f_θ once", "amigo-cg", "amigo-sgd", "ift-cg"] {
        assert!(loss(method) < 0.9 * loss("no penalty").min(loss("one penalty")), "{method}: {}", loss(method));
    }
}

#[test]
fn the_truth_suite_finds_no_claim_broken_and_says_where_no_hypergradient_exists() {
    let found = report("truth");
    assert!(found.said[0].contains("keeps what its documentation claims"), "{:?}", found.said);
    assert!(found.rows.iter().all(|row| !matches!(row.verdict, Verdict::NotReproduced(_))));
    let [methods, digits] = &found.tables[..] else { panic!("two tables") };
    assert!(methods.rows.iter().any(|row| row[0] == "langevin-adjoint"));
    assert_eq!(digits.rows.len(), 4, "one for each inner step");
    assert!(found.sections.iter().any(|section| matches!(section, Section::Pictures(_))), "the heat map");
}

#[test]
fn every_few_shot_method_learns_tasks_and_is_judged_on_all_their_queries() {
    let found = report("few-shot");
    let methods =
        ["MAML", "FO-MAML", "iMAML", "Reptile", "ProtoNet", "BMAML", "ABML", "Exact Langevin adjoint", "HPO-SGLD"];
    for method in methods {
        let row = |metric: &str| found.rows.iter().find(|r| r.method == method && r.metric == metric).unwrap();
        let accuracy = row("accuracy, %");
        assert!((15.0..=100.0).contains(&accuracy.ours.unwrap()), "{accuracy:?}");
        assert_eq!(accuracy.verdict, Verdict::NotClaimed, "so few iterations claim nothing");
        assert!((0.0..=100.0).contains(&row("expected calibration error, %").ours.unwrap()));
    }
    let accuracy = |method: &str| row("few-shot", method, "Omniglot, 5-way 1-shot", "accuracy, %").ours.unwrap();
    for method in ["MAML", "FO-MAML", "iMAML"] {
        assert!(accuracy(method) > 30.0, "guessing has 20, {method} {}", accuracy(method));
    }
    assert_eq!(plots("few-shot").len(), 2, "losses, and a reliability diagram");
    let unequal = found.said.iter().find(|said| said.contains("not compared at equal cost")).unwrap();
    assert!(unequal.contains("10 iterations of 4 tasks, ") && unequal.contains(" gradients, "), "{unequal}");
}

#[test]
fn hyper_cleaning_has_both_iterates_of_every_method_it_runs_and_a_classifier_trained_anew() {
    for study in ["hyper-cleaning", "hyper-cleaning-mlp"] {
        for method in ["langevin-adjoint", "amigo-cg", "rmd", "rmd, truncated", "f2sa, σ = 0.3"] {
            for setting in ["last iterate", "least loss on clean digits"] {
                assert!(row(study, method, setting, "F1 of redrawn labels").ours.is_some());
            }
            assert!(row(study, method, "trained anew on digits kept and clean", "test accuracy").ours.is_some());
        }
    }
    // Half of the labels are drawn again; whoever keeps all digits has an F1 of 2/3.
    let kept = row("hyper-cleaning", "amigo-cg", "last iterate", "F1 of digits kept").ours.unwrap();
    assert!(kept > 0.8, "{kept}");
}

#[test]
fn hyper_cleaning_with_a_weight_near_its_start_is_drawn_three_times_and_tells_redrawn_labels_from_others() {
    for (study, least) in [("hyper-cleaning", 0.88), ("hyper-cleaning-mlp", 0.7)] {
        let method = "f2sa, σ = 0.2, λ near its start";
        let kept = row(study, method, "last iterate, 3 draws", "F1 of digits kept");
        assert!(kept.seeds == 3 && kept.spread.is_some() && kept.ours.unwrap() > least, "{kept:?}");
        let accuracy = row(study, method, "trained anew on digits kept and clean, 3 draws", "test accuracy");
        assert!(accuracy.seeds == 3 && accuracy.ours.unwrap() > least, "{accuracy:?}");
    }
}

#[test]
fn cleaning_in_minibatches_is_better_than_trusting_every_label() {
    for method in ["soba", "f2sa", "langevin-adjoint"] {
        for share in ["50 % redrawn", "70 % redrawn", "90 % redrawn"] {
            let row = row("data-cleaning", method, share, "test error, last iterate");
            assert!(row.ours < row.reference, "{row:?}");
        }
    }
}

#[test]
fn single_loops_descend_on_the_norm_of_the_exact_gradient_and_every_method_has_its_curve() {
    let [plot] = plots("ijcnn1")[..] else { panic!("one figure") };
    assert_eq!(plot.curves.len(), 8);
    // Penalties begin high, and the gradient grows before it falls: what the others reach in so short a run is not below the start.
    for curve in plot.curves.iter().filter(|curve| ["soba", "saba", "srba"].contains(&curve.name.as_str())) {
        let ends = (curve.points[0].1, curve.points.last().unwrap().1);
        assert!(ends.1 < ends.0, "{}: {ends:?}", curve.name);
    }
}

#[test]
fn rates_learned_per_layer_are_held_against_one_rate() {
    let learned = row("layer-rates", "rmd", "least validation loss", "validation loss");
    let first = plots("layer-rates")[0].curves[0].points[0].1;
    assert!(learned.reference.is_some() && learned.ours.unwrap() < first, "{learned:?}");
}

#[test]
fn the_adjoint_goes_on_to_its_end_on_networks_and_at_the_price_of_hpo_sgld() {
    for study in ["million-weights", "l1-regularisation-long", "learned-loss-long"] {
        let rows = &report(study).rows;
        assert_eq!(
            (rows[0].metric.as_str(), &rows[0].verdict),
            ("outer iterations without divergence", &Verdict::Reproduced)
        );
        // Theirs has whole iterations only.
        let (ours, theirs) = (rows[0].cost.unwrap(), rows[2].cost.unwrap());
        assert!(theirs <= ours && theirs > 0.95 * ours, "{study}: {ours} {theirs}");
    }
}

#[test]
fn without_pictures_a_long_run_says_how_to_get_them() {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    for (study, how) in [("l1-regularisation-long", "oxford-pets"), ("learned-loss-long", "cifar10")] {
        let study = registry.known_study(study).unwrap();
        let plan = Plan::new(&registry);
        assert!(study.items(&plan).unwrap().is_empty());
        let found = study.findings(&plan, &Finished::default()).unwrap();
        let why = found.rows[0].verdict.why();
        assert!(why.contains(&format!("'bilevel data fetch {how}' downloads them")), "{why}");
    }
}

#[test]
fn times_are_ratios_to_reverse_mode() {
    let rows = &report("wall-clock").rows;
    assert_eq!(rows[0].ours, Some(1.0));
    assert!(rows.iter().all(|r| r.ours.unwrap() > 0.0 && r.metric == "time ÷ RMD's"));
}

#[test]
fn every_row_is_one_line_of_json_and_one_line_of_the_table() {
    for name in STUDIES.0.studies().iter().map(|study| study.name()) {
        let found = report(name);
        assert!(!found.rows.is_empty(), "{name}");
        let (table, _) = row_table(&found.rows);
        assert_eq!(table.rows.len(), found.rows.len());
        for (row, cells) in found.rows.iter().zip(&table.rows) {
            assert_eq!(row.study, name);
            let verdict = cells.last().unwrap();
            assert!(verdict.starts_with(row.word()), "{cells:?}");
            // A row without a number of the paper is not said to reproduce it, or to be better than it.
            let of_the_paper = ["reproduced", "not reproduced", "better than the paper", "not compared"];
            // The truth suite compares with truths of its own.
            let has_number = row.paper.is_some() || (row.word() == "reproduced" && name == "truth");
            assert!(has_number || !of_the_paper.contains(&row.word()), "{cells:?}");
            let json = row.to_json();
            assert!(json.starts_with('{') && json.ends_with('}') && !json.contains('\n') && !json.contains("NaN"));
        }
        assert!(plots(name).iter().all(|plot| plot.curves.iter().all(|curve| !curve.points.is_empty())), "{name}");
    }
}

#[test]
fn json_escapes_what_it_must() {
    let row = Row::new("x", "a \"b\" \\ \n", "m", f64::NAN);
    assert!(row.to_json().contains(r#""method":"a \"b\" \\ \n""#), "{}", row.to_json());
    assert!(row.to_json().contains("\"ours\":null"));
}

#[test]
fn an_unknown_study_is_answered_with_the_nearest() {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    let said = |name: &str| registry.known_study(name).err().unwrap().to_string();
    assert_eq!(said("quadratic"), "there is no study 'quadratic'; did you mean quadratics?");
    assert!(said("zzz").starts_with("there is no study 'zzz'; the studies are toy-polynomial, "), "{}", said("zzz"));
}

#[test]
fn the_runs_of_a_study_name_the_data_folder_only_where_they_read_it_so_that_their_configurations_can_be_run() {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    // Whether files are there is known from their folders.
    let data = tempfile::tempdir().unwrap();
    for folder in ["mnist", "cifar10", "oxford-pets", "dtd10", "flowers102", "tiny-imagenet"] {
        std::fs::create_dir(data.path().join(folder)).unwrap();
    }
    let plan = Plan { data: Some(data.path().to_path_buf()), ..Plan::new(&registry) };
    let named_folder = data.path().to_string_lossy().into_owned();
    let mut named = 0;
    for item in registry.studies().iter().flat_map(|study| study.items(&plan).unwrap()) {
        if let Work::Run(config) = &item.work {
            let reads = registry.read_task(&config.task).unwrap().reads_data();
            assert_eq!(reads, config.data == named_folder, "{}", item.label);
            named += usize::from(reads);
        }
    }
    assert!(named > 50, "{named}");
}

/// What the bare command prints, held to 2 %, and the order of the methods.
#[test]
fn the_headline_digits_table_has_its_losses_and_the_order_of_its_methods() {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    let study = registry.known_study("digits").unwrap();
    let place = Place::new(&registry, Cpu::with_threads(1));
    let found = in_memory(&**study, &Plan::new(&registry), &place).unwrap();
    let loss = |method: &str, metric: &str| {
        found.rows.iter().find(|row| row.method == method && row.metric == metric).unwrap().ours.unwrap()
    };
    let known = [
        ("no regularisation", [0.016, 0.268, 0.247]),
        ("one tuned weight", [0.030, 0.264, 0.246]),
        ("hpo-sgld", [0.072, 0.168, 0.211]),
        ("langevin-adjoint", [0.056, 0.107, 0.169]),
        ("amigo-cg", [0.074, 0.129, 0.177]),
    ];
    for (method, losses) in known {
        for (metric, known) in ["training loss", "validation loss", "test loss"].into_iter().zip(losses) {
            let ours = loss(method, metric);
            // The table has three decimals.
            assert!((ours - known).abs() <= 0.02 * known + 0.0005, "{method}, {metric}: {ours}, not {known}");
        }
    }
    let test = |method: &str| loss(method, "test loss");
    let order = ["langevin-adjoint", "amigo-cg", "hpo-sgld", "one tuned weight", "no regularisation"];
    assert!(order.windows(2).all(|two| test(two[0]) < test(two[1])), "{:?}", order.map(test));
    let both = test("one tuned weight, trained on validation digits too");
    assert!((both - 0.135).abs() <= 0.02 * 0.135 + 0.0005 && both < test("langevin-adjoint"), "{both}");
}

#[test]
fn learned_starts_represent_held_out_signals_better_than_random_ones_and_the_extra_term_carries_hpo_sgld() {
    let name = "implicit-representation";
    let psnr = |method: &str, setting: &str, steps: usize| {
        row(name, method, setting, &format!("PSNR after {steps} steps")).ours.unwrap()
    };
    let digits = |method: &str, iterations: &str| psnr(method, &format!("digits, 8 px{iterations}"), 2);
    let random = digits("random weights", "");
    for (method, iterations) in
        [("Reptile", ", 100 iterations"), ("FO-MAML", ", 100 iterations"), ("MAML", ", 300 iterations")]
    {
        assert!(digits(method, iterations) > random + 2.0, "{method}");
    }
    let fourier =
        |method: &str, iterations: &str| psnr(method, &format!("digits, 8 px, Fourier features{iterations}"), 2);
    let random = fourier("random weights", "");
    let maml = fourier("MAML", ", 300 iterations");
    assert!(maml > random + 5.0, "{maml} against {random}");
    for method in ["Reptile", "FO-MAML", "HPO-SGLD"] {
        assert!(fourier(method, ", 100 iterations") > random + 1.0, "{method}");
    }
    let lamps = |method: &str| psnr(method, "lamps from one view, 16 px, 20 iterations", 128);
    let (reptile, extra) = (lamps("Reptile"), lamps("HPO-SGLD + ‖λ − sg(θ*)‖²"));
    assert!(reptile > psnr("random weights", "lamps from one view, 16 px", 128));
    assert!(lamps("Reptile + weight shuffling") < lamps("Reptile + output matching"));
    assert!(lamps("Reptile + output matching") < reptile);
    assert!(lamps("HPO-SGLD") < reptile && reptile < extra);
    let photographs = report(name).sections.iter().filter(|section| matches!(section, Section::Photographs(_))).count();
    assert_eq!(photographs, 6, "two signals of every family, and images by two networks");
}

#[test]
fn without_the_pets_the_full_study_says_how_to_get_them_and_learns_from_lamps_alone() {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    let plan = Plan::new(&registry);
    let study = registry.known_study("implicit-representation").unwrap();
    let items = study.items(&plan).unwrap();
    assert!(!items.is_empty() && items.iter().all(|item| item.label.starts_with("lamps")));
}

#[test]
fn lila_finds_the_rotation_alone_by_training_images() {
    let of = |metric: &str| row("invariance", "LILA", "Rot-90", metric).ours.unwrap();
    let (rotation, other) = (of("range of the rotation"), of("largest other range"));
    assert!(rotation > 0.7 && other < 0.2 * rotation, "{rotation} {other}");
}
