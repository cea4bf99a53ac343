//! The study for people: rows with a verdict for each, curves, spread over signals, and pictures of signals that were
//! held out.

use super::work::Found;
use super::{Experiment, NAME, experiments};
use bilevel::Result;
use bilevel_report::{Column, Photograph, Photographs, Section, Table};
use bilevel_run::spread::Spread;
use bilevel_run::{Findings, Finished, Plan, Row, Verdict, figure};

/// Random weights, in labels.
const RANDOM: &str = "random";
/// A network with the outputs of Reptile's, in labels.
pub(super) const MATCHED: &str = "matched";
/// Reptile's weights in another order, in labels.
pub(super) const SHUFFLED: &str = "shuffled";

/// Results of an independent program after each number of steps, by experiment and way.
const REFERENCE: [(&str, &str, [Option<f64>; 3]); 9] = [
    ("images", RANDOM, [Some(12.6), Some(21.4), Some(29.0)]),
    ("images", "reptile", [Some(14.4), Some(15.8), Some(25.6)]),
    ("images", "fo-maml", [Some(20.1), Some(29.0), Some(32.4)]),
    ("images", "maml", [Some(32.1), Some(38.9), Some(46.1)]),
    ("lamps", RANDOM, [Some(13.9), Some(14.1), Some(15.4)]),
    ("lamps", "reptile", [Some(16.7), Some(18.7), Some(19.8)]),
    ("lamps", "hpo-sgld-extra", [Some(18.1), Some(19.6), Some(21.1)]),
    ("lamps", "hpo-sgld-tenfold", [Some(18.1), Some(19.6), Some(21.1)]),
    ("lamps", "hpo-sgld", [Some(13.3), None, None]),
];

/// The paper's final numbers for ShapeNet's lamps.
const PAPER: [(&str, f64); 6] = [
    (RANDOM, 15.47),
    (MATCHED, 20.79),
    (SHUFFLED, 13.88),
    ("reptile", 22.35),
    ("hpo-sgld-extra", 22.73),
    ("hpo-sgld-tenfold", 22.73),
];

/// The PSNR that MAML should reach on images after two steps.
const GOAL: f64 = 30.0;
/// Two PSNRs this near are the same, given other images, other lamps and other draws.
const NEAR: f64 = 2.0;

/// All that is known of one way.
struct Scored {
    key: &'static str,
    name: String,
    iterations: u32,
    /// By seed.
    found: Vec<Found>,
    cost: f64,
    seconds: f64,
    failed: Option<String>,
}

impl Scored {
    /// The PSNR after the n-th number of steps, over seeds: each the mean over signals; `None` if one was lost.
    fn psnr(&self, n: usize) -> Option<Spread> {
        let seed = |found: &Found| {
            let all = found.adapted[n + 1].psnr.iter().copied().collect::<Option<Vec<f64>>>()?;
            Some(Spread::of(&all).mean)
        };
        let seeds = self.found.iter().map(seed).collect::<Option<Vec<f64>>>()?;
        (!seeds.is_empty()).then(|| Spread::of(&seeds))
    }
}

fn scored(experiment: &Experiment, done: &Finished) -> Result<Vec<Scored>> {
    let judged = |key: &str, seeds: u64| -> Result<Vec<Found>> {
        let labels = (0..seeds).map(|seed| experiment.judged(key, seed));
        labels.filter(|label| done.get(label).is_some()).map(|label| done.measured(&label)).collect()
    };
    let mut all = vec![Scored {
        key: RANDOM,
        name: "random weights".into(),
        iterations: 0,
        found: judged(RANDOM, experiment.seeds)?,
        cost: 0.0,
        seconds: 0.0,
        failed: None,
    }];
    for way in &experiment.ways {
        let runs = (0..way.seeds).map(|seed| done.run(&experiment.learning(way, seed))).collect::<Result<Vec<_>>>()?;
        let mean = |values: Vec<f64>| Spread::of(&values).mean;
        let lost = runs.iter().filter(|run| !run.arrived()).count();
        let failed = (lost > 0).then(|| format!("{lost} of {} runs diverged", runs.len()));
        let (cost, seconds) =
            (mean(runs.iter().map(|run| run.price).collect()), mean(runs.iter().map(|run| run.seconds).collect()));
        let score = |key: &'static str, name: String| -> Result<Scored> {
            let (iterations, found) = (way.iterations, judged(key, way.seeds)?);
            Ok(Scored { key, name, iterations, found, cost, seconds, failed: failed.clone() })
        };
        all.push(score(way.key, way.name.into())?);
        if way.key == "reptile" {
            all.push(score(MATCHED, "Reptile + output matching".into())?);
            all.push(score(SHUFFLED, "Reptile + weight shuffling".into())?);
        }
    }
    Ok(all)
}

/// All of it.
pub(super) fn findings(plan: &Plan, done: &Finished) -> Result<Findings> {
    let mut findings = Findings::default();
    for experiment in experiments(plan) {
        if let Some(why) = experiment.missing(plan) {
            let row = Row::new(NAME, "all", "PSNR", f64::NAN).setting(experiment.name.clone());
            findings.rows.push(row.verdict(Verdict::NotRun(why)));
            continue;
        }
        let all = scored(&experiment, done)?;
        for scored in &all {
            findings.rows.extend((0..3).map(|n| row(plan, &experiment, &all, scored, n)));
        }
        findings.said.extend(said(&experiment, &all));
        findings.sections.push(curves(&experiment, &all));
        findings.sections.extend(history(&experiment, done));
        findings.sections.push(Section::Table(over_signals(&experiment, &all)));
        findings.sections.extend(photographs(&experiment, &all).into_iter().map(Section::Photographs));
    }
    Ok(findings)
}

fn row(plan: &Plan, experiment: &Experiment, all: &[Scored], scored: &Scored, n: usize) -> Row {
    let steps = experiment.counts[n];
    let psnr = scored.psnr(n);
    let lamps = experiment.key == "lamps";
    let reference = REFERENCE.iter().find(|(part, key, _)| *part == experiment.key && *key == scored.key);
    let paper = PAPER.iter().find(|(key, _)| lamps && n == 2 && *key == scored.key).map(|(_, paper)| *paper);
    let setting = match scored.iterations {
        0 => experiment.name.clone(),
        iterations => format!("{}, {iterations} iterations", experiment.name),
    };
    let row =
        Row::new(NAME, &scored.name, format!("PSNR after {steps} steps"), psnr.map_or(f64::NAN, |psnr| psnr.mean));
    let row = row.setting(setting).cost(scored.cost).took(scored.seconds);
    let row = psnr.map_or(row.clone(), |psnr| row.over(psnr.sd, psnr.count as u32));
    if plan.is_quick() {
        return row;
    }
    let reference = reference.and_then(|(_, _, after)| after[n]);
    row.paper(paper).reference(reference).verdict(verdict(experiment, all, scored, (n, reference)))
}

/// The verdict on a way. The paper's numbers are of other lamps, so only the order of its rows is compared.
fn verdict(experiment: &Experiment, all: &[Scored], scored: &Scored, (n, reference): (usize, Option<f64>)) -> Verdict {
    let of = |key: &str| all.iter().find(|other| other.key == key).and_then(|other| Some(other.psnr(n)?.mean));
    let exploding = experiment.key == "images" && scored.key.starts_with("hpo-sgld");
    let Some(ours) = scored.psnr(n).map(|psnr| psnr.mean) else {
        let why = scored.failed.clone().unwrap_or_else(|| "a signal was no longer finite".into());
        return if exploding { Verdict::Reproduced } else { Verdict::NotReproduced(why) };
    };
    let below = |key: &str, name: &str| {
        let other = of(key).unwrap_or(f64::NAN);
        Verdict::when(ours < other, format!("it should be below {name}, and is {:.1} dB above", ours - other))
    };
    match (experiment.key, scored.key) {
        ("images", "maml") if n == 0 => {
            Verdict::when(ours >= GOAL, format!("{:.1} dB below the {GOAL} dB that MAML should reach", GOAL - ours))
        }
        ("images", "hpo-sgld" | "hpo-sgld-extra") => {
            let learned = ours - of(RANDOM).unwrap_or(f64::NAN);
            let why = format!("it should explode, and is {learned:.1} dB above random weights");
            Verdict::when(learned < NEAR, why)
        }
        ("lamps", MATCHED) => below("reptile", "Reptile"),
        ("lamps", SHUFFLED) => below(MATCHED, "output matching"),
        ("lamps", "hpo-sgld") => below("reptile", "Reptile"),
        ("lamps", "hpo-sgld-extra" | "hpo-sgld-tenfold" | "hpo-sgld-tenfold-long") => {
            let reptile = if scored.key.ends_with("long") { of("reptile-long") } else { of("reptile") };
            let behind = reptile.unwrap_or(f64::NAN) - ours;
            let why = match scored.key {
                "hpo-sgld-extra" => " as the recursion outweighs the term; see the row with ten times its weight",
                _ => "",
            };
            Verdict::when(behind < 0.0, format!("it should be above Reptile, and is {behind:.1} dB below{why}"))
        }
        _ => match reference {
            None => Verdict::NotClaimed,
            Some(reference) if (ours - reference).abs() <= NEAR => Verdict::Reproduced,
            Some(reference) if ours > reference && scored.key != RANDOM => Verdict::Better,
            Some(reference) => {
                let why =
                    format!("{:.1} dB away from the reference, whose draws and rates are not known", ours - reference);
                Verdict::NotReproduced(why)
            }
        },
    }
}

/// The best after the fewest and after the most steps.
fn said(experiment: &Experiment, all: &[Scored]) -> Vec<String> {
    let best = |n: usize| {
        let known = all.iter().filter_map(|scored| Some((scored, scored.psnr(n)?.mean)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let say = |n: usize| {
        best(n).map(|(scored, psnr)| {
            let steps = experiment.counts[n];
            format!("Best on {} after {steps} steps: {}, with {psnr:.1} dB.", experiment.name, scored.name)
        })
    };
    let matched = all.iter().find(|scored| scored.key == MATCHED).and_then(|scored| scored.found.first()?.apart);
    let matched = matched.map(|apart| {
        format!(
            "On {} the outputs of Reptile's network are matched up to a root mean square difference of {:.1e}.",
            experiment.name,
            apart.sqrt()
        )
    });
    [say(0), say(2), matched, twice(all)].into_iter().flatten().collect()
}

/// The remaining advantage of the extra term if Reptile moves equally far.
fn twice(all: &[Scored]) -> Option<String> {
    let at_the_end = |key: &str| Some(all.iter().find(|scored| scored.key == key)?.psnr(2)?.mean);
    let [reptile, twice] = [at_the_end("reptile")?, at_the_end("reptile-twice")?];
    let beside = |(key, with): (&str, &str)| {
        let ours = at_the_end(key)?;
        Some(format!(
            "HPO-SGLD with {with} is at {:+.1} dB from Reptile and at {:+.1} dB from Reptile at twice the rate",
            ours - reptile,
            ours - twice
        ))
    };
    let both: Vec<String> = [("hpo-sgld-extra", "it"), ("hpo-sgld-tenfold", "ten times its weight")]
        .into_iter()
        .filter_map(beside)
        .collect();
    Some(format!("The derivative of the extra term is twice Reptile's step. In the end {}.", both.join("; ")))
}

fn title_of(scored: &Scored) -> String {
    let long = scored.key.ends_with("long");
    if long { format!("{}, {} iterations", scored.name, scored.iterations) } else { scored.name.clone() }
}

fn curves(experiment: &Experiment, all: &[Scored]) -> Section {
    let line = |scored: &Scored| {
        let points = (0..3).filter_map(|n| Some((experiment.counts[n] as f64, scored.psnr(n)?.mean)));
        (title_of(scored), points.collect())
    };
    let title = format!("Held-out signals: {}", experiment.name);
    Section::Plot(figure(title, "steps from the initialisation", "PSNR, dB", all.iter().map(line).collect()))
}

/// How the PSNR of held-out signals grows while λ is learned, if runs measure it.
fn history(experiment: &Experiment, done: &Finished) -> Option<Section> {
    let name = "PSNR of held-out images";
    let line = |way: &super::Way| {
        let run = done.run(&experiment.learning(way, 0)).ok()?;
        let points = run.history.measure(name);
        (points.len() > 1).then(|| (way.name.to_string(), points))
    };
    let series: Vec<_> = experiment.ways.iter().filter_map(line).collect();
    let title = format!("After {} steps, while λ is learned: {}", experiment.task.steps, experiment.name);
    (!series.is_empty()).then(|| Section::Plot(figure(title, "outer iteration", "PSNR, dB", series)))
}

/// Mean and deviation over signals, from the first seed.
fn over_signals(experiment: &Experiment, all: &[Scored]) -> Table {
    let line = |scored: &Scored| {
        let cell = |n: usize| match scored.found.first() {
            Some(found) => {
                let psnr: Vec<f64> = found.adapted[n + 1].psnr.iter().flatten().copied().collect();
                let lost = found.adapted[n + 1].psnr.len() - psnr.len();
                let lost = if lost > 0 { format!(" ({lost} lost)") } else { String::new() };
                Spread::of(&psnr).fixed(1) + &lost
            }
            None => scored.failed.clone().unwrap_or("–".into()),
        };
        std::iter::once(title_of(scored)).chain((0..3).map(cell)).collect()
    };
    let after = experiment.counts.map(|steps| Column::numeric(format!("{steps} steps")));
    Table {
        columns: std::iter::once(Column::text("start")).chain(after).collect(),
        rows: all.iter().map(line).collect(),
        caption: format!("PSNR in dB, mean ± sd over signals, first seed: {}", experiment.name),
    }
}

/// One grid for each of the first signals: ways by numbers of steps.
fn photographs(experiment: &Experiment, all: &[Scored]) -> Vec<Photographs> {
    let side = experiment.task.side;
    let image = |caption: String, levels: &[u8]| Photograph {
        caption,
        columns: side,
        colours: levels.len() == 3 * side * side,
        levels: levels.to_vec(),
    };
    let Some(truth) = all.first().and_then(|scored| scored.found.first()).map(|found| &found.truth) else {
        return vec![];
    };
    let grid = |(signal, truth): (usize, &Vec<u8>)| {
        let mut rows = vec![("truth".to_string(), vec![image(String::new(), truth)])];
        for scored in all {
            let Some(found) = scored.found.first() else { continue };
            let shown = found.adapted.iter().filter(|adapted| signal < adapted.pictures.len());
            let images = shown.map(|adapted| image(adapted.caption(signal), &adapted.pictures[signal]));
            rows.push((title_of(scored), images.collect()));
        }
        let after = experiment.counts.iter().map(|steps| format!("{steps} steps"));
        Photographs {
            title: format!("Held-out signal {}: {}", signal + 1, experiment.name),
            columns: std::iter::once("0 steps".to_string()).chain(after).collect(),
            rows,
        }
    };
    truth.iter().enumerate().map(grid).collect()
}
