//! The report of a run, or of several on one page.

use crate::config::text::to_toml;
use crate::errors::{CliError, Result};
use crate::pages::lambda;
use crate::pages::plots::{self, Figure, PNG_WIDTH};
use crate::run::folder::{RunFolder, write_whole};
use crate::run::provenance::{self, VERSION};
use crate::run::record::RunRecord;
use crate::terminal::readable::{count, counted, duration, number, number_or_dash};
use bilevel::Precision;
use bilevel::methods::Oracles;
use bilevel::splits::{BaselineRow, Baselines, Paired};
use bilevel_report::{Column, Report, Section, Table};
use bilevel_run::{Config, Device, Registry};
use std::io::ErrorKind;

/// Everything a page shows, with the figures apart so that they can be kept as files too.
struct Page {
    title: String,
    subtitle: String,
    before: Vec<Section>,
    /// Losses and measures, λ, hypergradient and diagnosis.
    figures: Vec<Figure>,
    after: Vec<Section>,
    footer: String,
}

impl Page {
    fn html(self) -> String {
        let Page { title, subtitle, before, figures, after, footer } = self;
        let sections = before.into_iter().chain(figures.into_iter().map(Figure::section)).chain(after).collect();
        Report { title, subtitle, sections, footer }.html()
    }
}

/// All figures of runs with these names.
fn figures(runs: &[lambda::Named]) -> Vec<Figure> {
    let histories: Vec<plots::Named> = runs.iter().map(|(name, run)| (*name, &run.history)).collect();
    let mut all = plots::losses_and_measures(&histories);
    // For a single run, λ follows the losses, so that it is easy to find.
    let at = if runs.len() == 1 { all.len().min(1) } else { all.len() };
    all.splice(at..at, lambda::figures(runs));
    all.extend(plots::hypergradient(&histories, &returned(runs)));
    all.extend(plots::diagnostics(&histories));
    all
}

fn page_of_one(run: &RunRecord, registry: &Registry) -> Page {
    let config = &run.config;
    let method = registry.known_method(run.method()).map_or("", |method| method.info.summary);
    let time = run.seconds().map_or(String::new(), |s| format!(" in {}", duration(s)));
    let done = counted(u64::from(run.iterations()), "outer iteration");
    let about = format!("The task: {}.\n\nThe method: {method}.", run.task.summary());
    // Text between backticks is set as code, and a note may contain a single one.
    let note = config.about.note.replace('`', "'");
    let about = if note.is_empty() { about } else { format!("{about}\n\n{note}") };
    let called = std::iter::once(&config.about.name).chain(&config.about.tags).filter(|word| !word.is_empty());
    let called: String = called.map(|word| format!("{word} · ")).collect();
    let mut before = vec![
        Section::Text { title: String::new(), text: about },
        Section::Warnings(run.warnings()),
        Section::Table(numbers(run)),
    ];
    before.extend(run.result.iter().filter_map(|result| result.baselines.as_ref()).map(compared).map(Section::Table));
    before.extend(lambda::table(&[("", run)]).map(Section::Table));
    Page {
        title: format!("{} by {}", run.task.name(), run.method()),
        subtitle: format!("{called}seed {}{} · {done}{time} · {}", config.seed, where_and_how(config), run.state()),
        before,
        figures: figures(&[("", run)]),
        after: run
            .task
            .show(&run.lambda, &config.context())
            .into_iter()
            .chain([
                Section::Table(costs(run)),
                Section::Code { title: "Configuration".into(), text: to_toml(registry, config) },
            ])
            .collect(),
        footer: provenance::footer(run.folder.path()),
    }
}

/// The device and the precision of products, if they are not the usual ones.
fn where_and_how(config: &Config) -> String {
    let device = if config.device == Device::Cpu { String::new() } else { format!(" · on {}", config.device) };
    let rounded = config.precision != Precision::Full;
    device + &if rounded { format!(" · products in {}", config.precision) } else { String::new() }
}

/// The results of a run, one number per row.
fn numbers(run: &RunRecord) -> Table {
    let mut rows = vec![];
    let mut row = |name: &str, value: String| rows.push(vec![name.into(), value]);
    row("outer loss", number_or_dash(run.outer_loss()));
    let best = run.best_outer_loss();
    if best != run.outer_loss() {
        row("lowest outer loss", number_or_dash(best));
    }
    row("inner loss", number_or_dash(run.inner_loss()));
    if let Some(best) = run.result.as_ref().and_then(|result| result.best.as_ref()) {
        let measure = if ["inner", "outer"].contains(&&best.measure[..]) { " loss" } else { "" };
        row(&format!("{}{measure} of iteration {}, returned", best.measure, best.iteration), number(best.value));
    }
    for name in run.measures() {
        row(name, number_or_dash(run.measure(name)));
    }
    let norm = number_or_dash(run.hypergradient_norm());
    let error = run.standard_error().map_or(String::new(), |error| format!(" ± {}", number(error)));
    row(&format!("norm of the {}", run.config.method.output()), norm + &error);
    let columns = vec![Column::text("quantity"), Column::numeric("at the end")];
    Table { columns, rows, caption: "Results".into() }
}

/// How the hyperparameters compare with simpler ones.
fn compared(baselines: &Baselines) -> Table {
    let row = |row: &BaselineRow| {
        let Paired { mean, standard_error } = row.difference;
        let against = if mean == 0.0 { "–".into() } else { format!("{mean:+.4} ± {standard_error:.4}") };
        vec![row.name.clone(), row.rows.to_string(), format!("{:.4}", row.loss), against]
    };
    let columns = vec![
        Column::text("λ and training data"),
        Column::numeric("rows"),
        Column::numeric(format!("{} loss", baselines.part)),
        Column::numeric("against one tuned value"),
    ];
    let caption =
        "The same training with simpler hyperparameters: mean and standard error of paired differences".into();
    Table { columns, rows: baselines.rows.iter().map(row).collect(), caption }
}

/// The output of these runs' methods, in words.
fn returned(runs: &[lambda::Named]) -> String {
    let mut names: Vec<String> = vec![];
    for (_, run) in runs {
        let name = run.config.method.output().to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" or ")
}

/// Counts with names for people.
pub fn named(oracles: &Oracles) -> [(&'static str, u64); 5] {
    [
        ("inner gradients", oracles.inner_gradients),
        ("outer gradients", oracles.outer_gradients),
        ("Hessian products", oracles.hessian_products),
        ("mixed products", oracles.mixed_products),
        ("losses alone", oracles.losses),
    ]
}

/// The costs of a run.
fn costs(run: &RunRecord) -> Table {
    let mut rows = vec![];
    let mut row = |name: &str, value: String| rows.push(vec![name.into(), value]);
    let all = run.config.outer.iterations;
    row("outer iterations", format!("{} of {}", count(run.iterations().into()), count(all.into())));
    row("stopped because", run.state());
    row("time", run.seconds().map_or("–".into(), duration));
    for (name, times) in named(&run.oracles()).into_iter().filter(|(_, times)| *times > 0) {
        row(name, count(times));
    }
    let columns = vec![Column::text("quantity"), Column::numeric("in all")];
    Table { columns, rows, caption: "Cost".into() }
}

fn page_of_many(runs: &[(String, RunRecord)]) -> Page {
    let named: Vec<lambda::Named> = runs.iter().map(|(name, run)| (name.as_str(), run)).collect();
    let warnings =
        runs.iter().flat_map(|(name, run)| run.warnings().into_iter().map(move |warning| format!("{name}: {warning}")));
    let mut experiments: Vec<&str> = vec![];
    for (_, run) in runs {
        if !experiments.contains(&run.task.name()) {
            experiments.push(run.task.name());
        }
    }
    let mut before = vec![];
    if let [_] = experiments[..] {
        let text = format!("The task: {}.", runs[0].1.task.summary());
        before.push(Section::Text { title: String::new(), text });
    }
    before.push(Section::Warnings(warnings.collect()));
    before.push(Section::Table(numbers_of_many(runs)));
    before.extend(lambda::table(&named).map(Section::Table));
    let folders: Vec<String> =
        runs.iter().map(|(name, run)| format!("{name}: {}", run.folder.path().display())).collect();
    Page {
        title: experiments.join(", "),
        subtitle: format!("{} compared", counted(runs.len() as u64, "run")),
        before,
        figures: figures(&named),
        after: vec![Section::Code { title: "Folders".into(), text: folders.join("\n") }],
        footer: format!("bilevel {VERSION}"),
    }
}

/// One run per row.
fn numbers_of_many(runs: &[(String, RunRecord)]) -> Table {
    let mut measures: Vec<&str> = vec![];
    for name in runs.iter().flat_map(|(_, run)| run.measures()) {
        if !measures.contains(&name) {
            measures.push(name);
        }
    }
    let mut columns = vec![Column::text("run"), Column::numeric("outer loss"), Column::numeric("inner loss")];
    columns.extend(measures.iter().map(|name| Column::numeric(*name)));
    let returned = returned(&runs.iter().map(|(name, run)| (name.as_str(), run)).collect::<Vec<_>>());
    columns.push(Column::numeric(returned));
    columns.extend(["iterations", "time", "inner gradients"].map(Column::numeric));
    columns.push(Column::text("state"));
    let row = |(name, run): &(String, RunRecord)| {
        let mut row = vec![name.clone(), number_or_dash(run.outer_loss()), number_or_dash(run.inner_loss())];
        row.extend(measures.iter().map(|name| number_or_dash(run.measure(name))));
        row.push(number_or_dash(run.hypergradient_norm()));
        row.push(count(run.iterations().into()));
        row.push(run.seconds().map_or("–".into(), duration));
        row.push(count(run.oracles().inner_gradients));
        row.push(run.state_word().into());
        row
    };
    Table { columns, rows: runs.iter().map(row).collect(), caption: "Results of the runs".into() }
}

/// Short names that distinguish runs: method and seed if these differ, or else their folders.
fn names(runs: &[RunRecord]) -> Vec<String> {
    let unique = |names: &Vec<String>| names.iter().enumerate().all(|(i, name)| !names[..i].contains(name));
    let each = |name: &dyn Fn(&RunRecord) -> String| runs.iter().map(name).collect::<Vec<String>>();
    let last = |run: &RunRecord| {
        let path = run.folder.path();
        path.file_name().map_or(path.display().to_string(), |name| name.to_string_lossy().into_owned())
    };
    let same_task = runs.iter().all(|run| run.task.name() == runs[0].task.name());
    let mut candidates = vec![];
    if same_task {
        candidates.push(each(&|run| run.method().into()));
        candidates.push(each(&|run| format!("seed {}", run.config.seed)));
        candidates.push(each(&|run| format!("{}, seed {}", run.method(), run.config.seed)));
    }
    if runs.iter().all(|run| !run.config.about.name.is_empty()) {
        candidates.push(each(&|run| run.config.about.name.clone()));
    }
    candidates.push(each(&last));
    let paths = each(&|run| run.folder.path().display().to_string());
    // A part that all names share says nothing, and a name must not hide further differences between two runs.
    let silent = |names: &Vec<String>| {
        let same_seed = runs.iter().all(|run| run.config.seed == runs[0].config.seed);
        let same_method = runs.iter().all(|run| run.method() == runs[0].method());
        (names == &candidates[0] && same_task && !same_seed) || (same_task && names == &candidates[1] && !same_method)
    };
    let found = candidates.iter().find(|names| unique(names) && !silent(names));
    found.cloned().unwrap_or_else(|| {
        let numbered =
            |(i, path): (usize, &String)| if unique(&paths) { path.clone() } else { format!("{}. {path}", i + 1) };
        paths.iter().enumerate().map(numbered).collect()
    })
}

/// The sections of a page on these runs, without the tasks' own drawings. One run has its numbers, figures, cost and
/// configuration; several have a table and a curve each.
pub fn sections(runs: Vec<(String, RunRecord)>, registry: &Registry) -> Vec<Section> {
    let named: Vec<lambda::Named> = match &runs[..] {
        [(_, run)] => vec![("", run)],
        _ => runs.iter().map(|(name, run)| (name.as_str(), run)).collect(),
    };
    let mut all = match &runs[..] {
        [(_, run)] => {
            let compared = run.result.iter().filter_map(|result| result.baselines.as_ref()).map(compared);
            std::iter::once(numbers(run)).chain(compared).map(Section::Table).collect()
        }
        _ => vec![Section::Table(numbers_of_many(&runs))],
    };
    all.extend(lambda::table(&named).map(Section::Table));
    all.extend(figures(&named).into_iter().map(Figure::section));
    if let [(_, run)] = &runs[..] {
        all.push(Section::Table(costs(run)));
        all.push(Section::Code { title: "Configuration".into(), text: to_toml(registry, &run.config) });
    }
    all
}

/// Writes the report of one run into its folder, with its figures as files. Figures of an earlier report that this one does not
/// have are taken away.
pub fn write_one(folder: &RunFolder, registry: &Registry) -> Result<()> {
    let run = RunRecord::read(folder, registry)?;
    let page = page_of_one(&run, registry);
    folder.clean()?;
    let plots = folder.plots();
    std::fs::create_dir_all(&plots).map_err(|error| CliError::file("make", &plots, &error))?;
    for figure in &page.figures {
        let keep = |ending: &str, bytes: &[u8]| write_whole(&plots.join(format!("{}.{ending}", figure.stem)), bytes);
        keep("svg", figure.drawing.svg().as_bytes())?;
        let pixels = figure.drawing.png(PNG_WIDTH).map_err(|error| CliError::File {
            action: "draw",
            path: plots.join(format!("{}.png", figure.stem)),
            reason: error.to_string(),
        })?;
        keep("png", &pixels)?;
    }
    let not_drawn = |stem: &String| page.figures.iter().all(|figure| figure.stem != *stem);
    for stem in plots::possible_stems(&run.history).into_iter().filter(not_drawn) {
        for ending in ["svg", "png"] {
            let left = plots.join(format!("{stem}.{ending}"));
            match std::fs::remove_file(&left) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(CliError::file("remove", &left, &error));
                }
                _ => {}
            }
        }
    }
    write_whole(&folder.report_file(), page.html().as_bytes())
}

/// The page of these runs.
pub fn html(folders: &[RunFolder], registry: &Registry) -> Result<String> {
    let mut runs = folders.iter().map(|folder| RunRecord::read(folder, registry)).collect::<Result<Vec<_>>>()?;
    if runs.len() == 1 {
        return Ok(page_of_one(&runs.remove(0), registry).html());
    }
    let names = if runs.is_empty() { vec![] } else { names(&runs) };
    Ok(page_of_many(&names.into_iter().zip(runs).collect::<Vec<_>>()).html())
}
