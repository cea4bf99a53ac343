//! The study for people: sentences, errors side by side, the ablation, λ by layer, times.

use super::rows::{Found, collapse};
use super::work::{Errors, Learned};
use super::{Scale, entries};
use crate::spread::Spread;
use crate::studies::deep::said_once;
use crate::tasks::l1_regularisation::{LayerPenalties, layer_plot, layer_table};
use crate::{Context, Plan, Series, figure};
use bilevel::DType;
use bilevel_report::{Column, Section, Table};

/// HPO-SGLD as the other rows have it.
const MAIN: (&str, &str) = ("HPO-SGLD", "(0.001, 1e-6)");

/// What came out; every number is from this study.
pub(super) fn sentences(found: &Found) -> Vec<String> {
    let mean =
        |errors: &[Errors], pick: fn(&Errors) -> f64| Spread::of(&errors.iter().map(pick).collect::<Vec<_>>()).mean;
    let none = found.shared(0.0);
    let tuned: Vec<Errors> = found.tuned().iter().map(|(_, errors)| *errors).collect();
    let mut said = vec![];
    if let Some((_, runs)) = found.entry(MAIN.0, MAIN.1) {
        let learned = Found::errors(runs);
        said.push(format!(
            "A penalty for every weight, learned by HPO-SGLD, comes to {:.1} % on validation and {:.1} % on test pictures; one \
             shared penalty from a grid to {:.1} % and {:.1} %, none to {:.1} % and {:.1} %.",
            mean(&learned, |e| e.validation),
            mean(&learned, |e| e.test),
            mean(&tuned, |e| e.validation),
            mean(&tuned, |e| e.test),
            mean(&none, |e| e.validation),
            mean(&none, |e| e.test),
        ));
        let retrained: Vec<Errors> = runs.iter().filter_map(|run| run.retrained).collect();
        if !retrained.is_empty() {
            said.push(format!(
                "With λ as HPO-SGLD found it and training from the warm-up again, on training pictures alone, the test error is \
                 {:.1} %.",
                mean(&retrained, |e| e.test)
            ));
        }
    }
    let runs = found.entry(MAIN.0, MAIN.1).map_or(&[][..], |(_, runs)| &runs[..]);
    let pairs =
        found.both.iter().zip(runs).filter_map(|(both, run)| Some((both.shared.first()?.1?.test, run.errors?.test)));
    said.extend(use_of_validation_pictures(&pairs.collect::<Vec<_>>()));
    let at = |samples: usize, rest: &str| {
        let (_, runs) = found.entry("HPO-SGLD", &format!("M = {samples}, {rest}"))?;
        Some(Found::errors(runs).first()?.test)
    };
    let change = |rest: &str| Some(at(9, rest)? - at(1, rest)?);
    if let Some((more, same)) = change("B = 5").zip(change("B + M = 10")) {
        said.push(format!(
            "From M = 1 to M = 9 the test error of HPO-SGLD changes by {more:+.1} points with B = 5, where there are also more inner \
             steps, and by {same:+.1} points with B + M = 10."
        ));
    }
    let best = found.learned.iter().filter_map(|(entry, runs)| {
        let errors = Found::errors(runs);
        (!errors.is_empty()).then(|| (mean(&errors, |e| e.test), format!("{} {}", entry.method, entry.setting)))
    });
    if let Some((error, name)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) {
        said.push(format!("The least test error of all learned penalties is {error:.1} %, by {name}."));
    }
    said
}

/// Whether the validation pictures are worth more in training or in learning penalties: from the test errors, seed by seed, of a network
/// trained on them without a penalty, and of one with the penalties that HPO-SGLD learned from them.
fn use_of_validation_pictures(errors: &[(f64, f64)]) -> Option<String> {
    let (trained, learned): (Vec<f64>, Vec<f64>) = errors.iter().copied().unzip();
    if errors.is_empty() {
        return None;
    }
    let worth = if Spread::of_differences(&learned, &trained).is_above_zero() {
        "The validation pictures are worth more in training than in learning penalties"
    } else if Spread::of_differences(&trained, &learned).is_above_zero() {
        "The validation pictures are worth more in learning penalties than in training"
    } else {
        "Whether the validation pictures are worth more in training or in learning penalties is not decided by these seeds"
    };
    let [trained, learned] = [trained, learned].map(|errors| Spread::of(&errors).fixed(1));
    Some(format!(
        "{worth}: the test error is {trained} % of a network trained on them without a penalty, and {learned} % with the \
         penalties that HPO-SGLD learned from them."
    ))
}

/// Runs that diverged or ruined their network, each with its diagnosis.
pub(super) fn warnings(scale: &Scale, found: &Found) -> Vec<String> {
    let constant = found.shared(scale.task(found.view).start);
    let lost = found.learned.iter().filter_map(|(entry, runs)| {
        let diverged = runs.iter().find_map(|run| run.diverged.clone());
        let why = diverged.or_else(|| Some(format!("ruins the network: {}", collapse(&constant, runs)?)))?;
        Some((format!("{} {}", entry.method, entry.setting), why))
    });
    said_once(&format!("On {}, ", found.view.name()), lost)
}

/// All that stands on the page for one set of pictures.
pub(super) fn sections(scale: &Scale, found: &Found) -> Vec<Section> {
    let mut sections = vec![Section::Table(side_by_side(found))];
    sections.extend(way(found).map(Section::Plot));
    if scale.is_main(found.view) {
        sections.extend(ablation(found).map(Section::Plot));
    }
    let shown = [MAIN, ("IFT-CG", "(0.01, 3), Gauss-Newton, rate 5e-4"), ("Langevin adjoint", "rate 5e-4")];
    let layers: Vec<(String, &[LayerPenalties])> = shown
        .iter()
        .filter_map(|(method, setting)| found.entry(method, setting))
        .filter_map(|(entry, runs)| {
            let run = runs.iter().find(|run| run.diverged.is_none())?;
            Some((format!("{}, {}", entry.method, entry.setting), &run.layers[..]))
        })
        .collect();
    sections.extend(layer_plot(&format!("Penalties by layer, {}", found.view.name()), &layers).map(Section::Plot));
    for (name, layers) in layers.iter().take(1) {
        let caption = format!("Penalties of {name}, by layer, {}", found.view.name());
        sections.push(Section::Table(Table { caption, ..layer_table(layers) }));
    }
    sections
}

/// Errors on all parts, one line for each row that was learned.
fn side_by_side(found: &Found) -> Table {
    let numbers =
        ["training", "validation", "second validation", "test", "test, retrained", "λ = 0, %", "held at 0, %"];
    let columns = [Column::text("method"), Column::text("setting")].into_iter();
    let columns = columns.chain(numbers.map(Column::numeric)).chain([Column::numeric("ms per iteration")]);
    let mut rows = vec![];
    let mut plain = |name: String, errors: &[Errors]| {
        let parts: [fn(&Errors) -> f64; 4] = [|e| e.train, |e| e.validation, |e| e.second, |e| e.test];
        let cells = parts.map(|part| Spread::of(&errors.iter().map(part).collect::<Vec<_>>()).fixed(1));
        let none = std::iter::repeat_n("–".to_string(), 4);
        rows.push([name, String::new()].into_iter().chain(cells).chain(none).collect::<Vec<_>>());
    };
    plain("warm-up".into(), &found.plain.iter().filter_map(|plain| plain.warm).collect::<Vec<_>>());
    for (penalty, _) in found.plain.first().map_or(&[][..], |plain| &plain.shared) {
        plain(format!("λ = {penalty} for all weights"), &found.shared(*penalty));
    }
    let both: Vec<Errors> = found.both.iter().filter_map(|plain| plain.shared.first()?.1).collect();
    plain("trained on the validation pictures too".into(), &both);
    rows.extend(found.learned.iter().map(|(entry, runs)| line(entry, runs)));
    let caption = format!("Errors in %, {}: validation and test side by side", found.view.name());
    Table { columns: columns.collect(), rows, caption }
}

fn line(entry: &entries::Entry, runs: &[Learned]) -> Vec<String> {
    let over = |pick: &dyn Fn(&Learned) -> Option<f64>, decimals: usize| {
        Spread::of(&runs.iter().filter_map(pick).collect::<Vec<_>>()).fixed(decimals)
    };
    let zeros = |run: &Learned| {
        let all: usize = run.layers.iter().map(|layer| layer.count).sum();
        let zeros: usize = run.layers.iter().map(|layer| layer.zeros).sum();
        Some(100.0 * zeros as f64 / all.max(1) as f64).filter(|_| run.diverged.is_none())
    };
    vec![
        entry.method.into(),
        match runs.iter().filter(|run| run.diverged.is_some()).count() {
            0 => entry.setting.clone(),
            lost => format!("{} ({lost} of {} diverged)", entry.setting, runs.len()),
        },
        over(&|run| Some(run.errors?.train), 1),
        over(&|run| Some(run.errors?.validation), 1),
        over(&|run| Some(run.errors?.second), 1),
        over(&|run| Some(run.errors?.test), 1),
        over(&|run| Some(run.retrained?.test), 1),
        over(&zeros, 1),
        over(&|run| run.held.filter(|_| run.diverged.is_none()), 1),
        over(&|run| run.milliseconds, 1),
    ]
}

/// Validation and test errors on the way of HPO-SGLD.
fn way(found: &Found) -> Option<bilevel_report::Plot> {
    let (_, runs) = found.entry(MAIN.0, MAIN.1)?;
    let run = runs.iter().find(|run| run.way.len() > 1)?;
    let curve = |name: &str, pick: fn(&Errors) -> f64| -> Series {
        (name.into(), run.way.iter().map(|(iteration, errors)| (f64::from(*iteration), pick(errors))).collect())
    };
    let curves = vec![
        curve("validation", |e| e.validation),
        curve("second validation", |e| e.second),
        curve("test", |e| e.test),
    ];
    let title = format!("HPO-SGLD on the way, {}", found.view.name());
    Some(figure(title, "outer iteration", "error, %", curves))
}

/// Test errors over M.
fn ablation(found: &Found) -> Option<bilevel_report::Plot> {
    let curve = |end: &str, name: &str| -> Series {
        let points = found
            .learned
            .iter()
            .filter(|(entry, _)| entry.setting.ends_with(end))
            .filter_map(|(entry, runs)| Some((entry.ablation? as f64, Found::errors(runs).first()?.test)));
        (name.into(), points.collect())
    };
    let curves = vec![curve(", B = 5", "B = 5"), curve("B + M = 10", "B + M = 10")];
    let title = format!("HPO-SGLD over the number of samples, {}", found.view.name());
    Some(figure(title, "samples M", "test error, %", curves))
        .filter(|plot| plot.curves.iter().any(|c| !c.points.is_empty()))
}

/// Times of the large network beside the paper's.
pub(super) fn clock(scale: &Scale, plan: &Plan, found: &[(String, f64)]) -> Vec<Section> {
    let paper = |name: &str| match name.split([' ', ',']).next() {
        Some("HPO-SGLD") => "2325",
        Some("IFT-Neumann") => "2175",
        Some("IFT-CG") => "1976",
        Some("RMD") => "1069",
        _ => "–",
    };
    let row = |(name, time): &(String, f64)| vec![name.clone(), paper(name).into(), format!("{time:.1}")];
    let columns = vec![Column::text("method"), Column::numeric("paper, V100"), Column::numeric("ours")];
    let caption = "Milliseconds of an outer iteration, ViT-B/16, 86 million penalties".to_string();
    let task = scale.vit();
    let context = Context { seed: plan.seed, data: plan.data.clone(), dtype: DType::F32 };
    let text = format!("ViT-B/16 was timed with {}.", task.provenance(&context));
    vec![
        Section::Text { title: "Times of ViT-B/16".into(), text },
        Section::Table(Table { columns, rows: found.iter().map(row).collect(), caption }),
    ]
}

#[cfg(test)]
mod tests {
    use super::use_of_validation_pictures;

    #[test]
    fn what_the_validation_pictures_are_worth_follows_from_the_test_errors() {
        let said = |errors: &[(f64, f64)]| use_of_validation_pictures(errors).unwrap();
        let training = said(&[(20.0, 25.0), (21.0, 25.5), (19.5, 25.2)]);
        assert!(training.starts_with("The validation pictures are worth more in training than"), "{training}");
        assert!(training.contains("20.2 ± 0.8 % of a network trained on them"), "{training}");
        let penalties = said(&[(25.0, 20.0), (25.5, 21.0), (25.2, 19.5)]);
        assert!(
            penalties.starts_with("The validation pictures are worth more in learning penalties than"),
            "{penalties}"
        );
        for undecided in [&[(20.0, 25.0)][..], &[(20.0, 25.0), (25.0, 20.5)]] {
            assert!(said(undecided).starts_with("Whether the validation pictures"), "{undecided:?}");
        }
        assert_eq!(use_of_validation_pictures(&[]), None);
    }
}
