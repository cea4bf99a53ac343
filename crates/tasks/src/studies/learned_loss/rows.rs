//! What came out, beside the paper and the reference, and for people.

use super::entries::{CROSS_ENTROPY, Entry, RMD_FO, TAYLOR_GLO, entries};
use super::work::{Coefficients, Learned, Scores, Searched};
use super::{COLD_STEPS, Fixed, NAME, SEARCH, Scale, afresh, entry_label, fixed_label};
use crate::spread::Spread;
use crate::studies::deep::{STEPS, said_once};
use crate::tasks::learned_loss::{SmallPictures, loss_plot, loss_table, slopes, steepest};
use crate::{Findings, Finished, Plan, Row, Series, Verdict, figure};
use bilevel::Result;
use bilevel_report::{Column, Section, Table};

/// A gain over cross entropy that differs from the paper's by less is the same, in points.
const TOLERANCE: f64 = 1.5;

/// A run whose network ends this many points above training with the first loss has ruined it.
const COLLAPSE: f64 = 8.0;

/// The looks of a training: steps done, and scores.
type Looks = Vec<(usize, Scores)>;

type Metric = (&'static str, fn(&Scores) -> f64);

const METRICS: [Metric; 2] = [("test error in %", |s| s.test), ("validation error in %", |s| s.validation)];

/// The row of pictures that are not there.
pub(super) fn not_run(scale: &Scale, plan: &Plan) -> Row {
    let why = scale.task.pictures.missing(plan.data.as_deref()).to_string();
    Row::new(NAME, "all", METRICS[0].0, f64::NAN).verdict(Verdict::NotRun(why))
}

/// The paper's second column.
pub(super) fn large(pictures: SmallPictures) -> Row {
    let why = "50 000 outer iterations of a Wide-ResNet 28-10 take days; 'bilevel run learned-loss --set \
               task.network=wide-resnet' begins with them";
    let row = Row::new(NAME, "all", METRICS[0].0, f64::NAN).setting(format!("WRN-28-10, {pictures:?}"));
    row.paper(17.20).verdict(Verdict::NotRun(why.into()))
}

/// The scores of trainings after this many steps.
fn after(trainings: &[Looks], steps: usize) -> Vec<Scores> {
    let at = |looks: &Looks| looks.iter().find(|(done, _)| *done == steps).map(|(_, scores)| *scores);
    trainings.iter().filter_map(at).collect()
}

fn mean_test(scores: &[Scores]) -> Option<f64> {
    let tests: Vec<f64> = scores.iter().map(|scores| scores.test).collect();
    (!tests.is_empty()).then(|| Spread::of(&tests).mean)
}

/// Two rows of the same scores.
fn rows(method: &str, setting: &str, scores: &[Scores], cost: f64) -> [Row; 2] {
    METRICS.map(|(metric, pick)| {
        let spread = Spread::of(&scores.iter().map(pick).collect::<Vec<_>>());
        let row = Row::new(NAME, method, metric, spread.mean).setting(setting).cost(cost);
        if scores.len() > 1 { row.over(spread.sd, spread.count as u32) } else { row }
    })
}

/// All of it.
pub(super) fn findings(scale: &Scale, plan: &Plan, done: &Finished) -> Result<Findings> {
    let trainings = |fixed: Fixed| -> Result<Vec<Looks>> {
        scale.seeds(plan, fixed.seeds()).map(|seed| done.measured(&fixed_label(fixed, seed))).collect()
    };
    let held = |number: f64| (!plan.quick).then_some(number);
    let entropy = trainings(Fixed::CrossEntropy)?;
    let [short, long] = [scale.short, scale.long].map(|iterations| STEPS * iterations as usize);
    let last = scale.retrained / short * short;
    let mut all: Vec<Row> = vec![];
    for steps in [short, long, last] {
        let setting = format!("{steps} steps");
        let [test, validation] = rows("cross entropy", &setting, &after(&entropy, steps), steps as f64);
        let full = steps == last;
        all.push(test.paper(held(CROSS_ENTROPY).filter(|_| full)).reference(held(29.3).filter(|_| full)));
        all.push(validation);
    }
    let expansion = trainings(Fixed::Expansion)?;
    for fixed in Fixed::ALL.into_iter().filter(|fixed| *fixed != Fixed::CrossEntropy) {
        let (trainings, is_start) = (trainings(fixed)?, fixed == Fixed::Expansion);
        let what = if is_start { "which keeps λ where it starts, " } else { "" };
        for steps in [short, last] {
            let scores = after(&trainings, steps);
            let [test, validation] = rows(&fixed.name(), &format!("{what}{steps} steps"), &scores, steps as f64);
            let paper = held(RMD_FO).filter(|_| is_start && steps == last);
            let verdict = gain(&after(&entropy, steps), test.ours, paper);
            all.push(lost(test.paper(paper).verdict(verdict), steps));
            // Pictures that are trained on say nothing of pictures that are not.
            all.extend(Some(validation).filter(|row| fixed != Fixed::Both && row.ours.is_some()));
        }
    }
    let mut findings = Findings::default();
    let mut losses: Vec<(String, Coefficients)> =
        vec![("where λ starts".into(), scale.task.first.coefficients(scale.task.classes()))];
    let (mut lines, mut ruined) = (vec![], vec![]);
    for entry in entries(&scale.task) {
        let seeds = scale.seeds(plan, entry.seeds);
        let runs = seeds.map(|seed| done.measured(&entry_label(&entry, seed))).collect::<Result<Vec<Learned>>>()?;
        let steps = STEPS * scale.iterations(&entry) as usize;
        let name = format!("{} {}", entry.method, entry.setting);
        let collapse = collapse(scale, &entry, &runs, &after(&expansion, steps));
        all.extend(of_entry(&entry, &runs, &after(&entropy, steps), collapse.as_deref(), plan.quick));
        let diverged = runs.iter().find_map(|run| run.diverged.as_deref());
        ruined.extend(diverged.or(collapse.as_deref()).map(|why| (name.clone(), why.to_string())));
        lines.push(line(&entry, &runs));
        let label = afresh(&entry_label(&entry, plan.seed));
        if done.get(&label).is_some() {
            let looks: Looks = done.measured(&label)?;
            let setting = format!("{}, retrained with λ for {last} steps", entry.setting);
            let kept = rows(entry.method, &setting, &after(&[looks], last), last as f64);
            all.extend(kept.into_iter().map(|row| lost(row, last)));
        }
        losses.extend(runs[0].loss().filter(|_| entry.retrain).map(|loss| (name, loss)));
    }
    let searched: Searched = done.measured(SEARCH)?;
    let looks: Looks = done.measured(&afresh(SEARCH))?;
    let [population, generations, steps] = scale.search;
    let cost = (population * generations * steps) as f64;
    let [test, validation] = rows("TaylorGLO", &format!("CMA-ES, {last} steps afresh"), &after(&[looks], last), cost);
    let verdict = gain(&after(&entropy, last), test.ours, held(TAYLOR_GLO));
    all.extend([test.paper(held(TAYLOR_GLO)).verdict(verdict), validation]);
    losses.push(("TaylorGLO by CMA-ES".into(), searched.coefficients));
    if !plan.quick {
        all.push(large(SmallPictures::Cifar100));
    }
    findings.warnings = said_once("", ruined);
    findings.said = sentences(&all, last);
    findings.sections = sections(scale, &entropy, &searched, &losses, lines);
    findings.rows = all;
    Ok(findings)
}

/// A training that has no scores after this many steps was given up before.
fn lost(row: Row, steps: usize) -> Row {
    match row.ours {
        Some(_) => row,
        None => row.verdict(Verdict::NotReproduced(format!("with this loss training diverges within {steps} steps"))),
    }
}

fn of_entry(entry: &Entry, runs: &[Learned], entropy: &[Scores], collapse: Option<&str>, quick: bool) -> Vec<Row> {
    let scores: Vec<Scores> = runs.iter().filter_map(|run| run.scores).collect();
    let cost = Spread::of(&runs.iter().map(|run| run.price).collect::<Vec<_>>()).mean;
    let [test, validation] = rows(entry.method, &entry.setting, &scores, cost);
    let (paper, reference) = (entry.paper.filter(|_| !quick), entry.reference.filter(|_| !quick));
    let lost: Vec<&str> = runs.iter().filter_map(|run| run.diverged.as_deref()).collect();
    let verdict = match (lost.first(), entry.cold) {
        (Some(why), _) => Verdict::NotReproduced(format!("{} of {} runs {why}", lost.len(), runs.len())),
        // Its network has always just begun; what its λ is worth is in the row of the retrained network.
        (None, true) => Verdict::NotClaimed,
        (None, false) => match (gain(entropy, test.ours, paper), collapse) {
            (Verdict::NotReproduced(why), Some(collapse)) => Verdict::NotReproduced(format!("{why}; it {collapse}")),
            (verdict, _) => verdict,
        },
    };
    let mut found = vec![test.paper(paper).reference(reference).verdict(verdict)];
    if !scores.is_empty() {
        found.push(validation);
    }
    found
}

/// What became of a network whose run did not diverge, but ends far above training with the loss that λ starts from: how much steeper
/// the loss became, which is a larger inner step, and whether it still falls with the probability of the right class.
fn collapse(scale: &Scale, entry: &Entry, runs: &[Learned], start: &[Scores]) -> Option<String> {
    let scores: Vec<Scores> = runs.iter().filter_map(|run| run.scores).collect();
    if entry.cold || mean_test(&scores)? < mean_test(start)? + COLLAPSE {
        return None;
    }
    let classes = scale.task.classes();
    let loss = runs.iter().find_map(Learned::loss)?;
    let times = steepest(&loss, classes) / steepest(&entry.task.first.coefficients(classes), classes);
    let found = slopes(&loss, classes);
    let rises = found.iter().filter(|slope| **slope > 0.0).count();
    let wrong = match rises {
        0 => String::new(),
        _ => format!(" and rises with the probability of the right class at {rises} of 90 places"),
    };
    Some(format!("ruins the network: the loss it found is {times:.1} times as steep as the one it started from{wrong}"))
}

/// Trainings are shorter than the paper's, so it is the gain over cross entropy that is held against the paper's gain.
fn gain(entropy: &[Scores], ours: Option<f64>, paper: Option<f64>) -> Verdict {
    let (Some(entropy), Some(ours), Some(paper)) = (mean_test(entropy), ours, paper) else {
        return Verdict::NotClaimed;
    };
    let (gain, claimed) = (entropy - ours, CROSS_ENTROPY - paper);
    if gain > claimed + TOLERANCE {
        return Verdict::Better;
    }
    let why = format!(
        "beside cross entropy after as many steps it changes the error by {:+.1} points here and by {:+.1} in the paper",
        -gain, -claimed
    );
    Verdict::when((gain - claimed).abs() <= TOLERANCE, why)
}

/// What came out; every number is from this study.
fn sentences(rows: &[Row], last: usize) -> Vec<String> {
    let tests = || rows.iter().filter(|row| row.metric == METRICS[0].0);
    let entropy = tests().find(|row| row.method == "cross entropy" && row.setting == format!("{last} steps"));
    let Some(entropy) = entropy.and_then(|row| row.ours) else { return vec![] };
    let mut said = vec![format!("Cross entropy comes to a test error of {entropy:.1} % after {last} steps.")];
    let end = format!("{last} steps");
    let tuned = tests().filter(|row| row.method.ends_with("times the step") && row.setting == end);
    if let Some((error, row)) = tuned.filter_map(|row| Some((row.ours?, row))).min_by(|a, b| a.0.total_cmp(&b.0)) {
        said.push(format!("With one number tuned, its step, it comes to {error:.1} % ({}).", row.method));
    }
    let retrained = tests().filter(|row| row.setting.contains("retrained")).filter_map(|row| Some((row.ours?, row)));
    if let Some((error, row)) = retrained.clone().min_by(|a, b| a.0.total_cmp(&b.0)) {
        let better = match retrained.clone().filter(|(error, _)| *error < entropy).count() {
            0 => "none does better when a network is retrained with it".to_string(),
            1 => "one does better when a network is retrained with it".to_string(),
            many => format!("{many} do better when a network is retrained with them"),
        };
        said.push(format!(
            "Of {} losses that were found, {better}; the best is that of {} \
             ({}), with {error:.1} %.",
            retrained.count(),
            row.method,
            row.setting
        ));
    }
    said
}

fn line(entry: &Entry, runs: &[Learned]) -> Vec<String> {
    let over =
        |pick: &dyn Fn(&Learned) -> Option<f64>| Spread::of(&runs.iter().filter_map(pick).collect::<Vec<_>>()).fixed(1);
    vec![
        entry.method.into(),
        entry.setting.clone(),
        over(&|run| Some(run.scores?.validation)),
        over(&|run| Some(run.scores?.test)),
        over(&|run| run.milliseconds),
    ]
}

fn sections(
    scale: &Scale,
    entropy: &[Looks],
    searched: &Searched,
    losses: &[(String, Coefficients)],
    lines: Vec<Vec<String>>,
) -> Vec<Section> {
    let text = format!(
        "A network is trained with a polynomial in its probabilities whose eight coefficients λ are learned meanwhile by the cross \
         entropy of validation pictures, {STEPS} steps to an outer iteration, {} outer iterations for the rows over {} seeds and {} for \
         the others; where the network starts from scratch in every iteration there are {} iterations of {COLD_STEPS} steps. With the λ found a \
         network is then retrained. Errors are held against cross entropy after as many steps.",
        scale.long, scale.seeds, scale.short, scale.cold
    );
    let columns = vec![
        Column::text("method"),
        Column::text("setting"),
        Column::numeric("validation error, %"),
        Column::numeric("test error, %"),
        Column::numeric("ms per iteration"),
    ];
    let caption = "While λ is learned: validation and test side by side".to_string();
    let generations: Series = (
        "least validation error".into(),
        searched.way.iter().enumerate().map(|(number, error)| (number as f64 + 1.0, *error)).collect(),
    );
    let curve: Series = (
        "cross entropy".into(),
        entropy.first().into_iter().flatten().map(|(steps, scores)| (*steps as f64, scores.test)).collect(),
    );
    vec![
        Section::Text { title: "How it was done".into(), text },
        Section::Plot(loss_plot("Learned losses beside cross entropy", scale.task.classes(), losses)),
        Section::Table(loss_table(scale.task.classes(), losses)),
        Section::Table(Table { columns, rows: lines, caption }),
        Section::Plot(figure("Cross entropy", "steps", "test error, %", vec![curve])),
        Section::Plot(figure("TaylorGLO's search", "generation", "error, %", vec![generations])),
    ]
}
