//! Runs the experiments and prints their tables.
//!
//! cargo run --release -p bilevel-tasks --example reproduce -- \[name|all\] \[--quick\] \[--json\]
//!
//! Tables go to the standard output and progress to the error output; with --json each row, and each figure, is one line.

use bilevel_tasks::{Effort, Experiment, experiments, find, table};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: reproduce [name|all] [--quick] [--json]";

fn main() -> ExitCode {
    let (mut effort, mut json, mut chosen) = (Effort::Full, false, Vec::<&Experiment>::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => effort = Effort::Quick,
            "--json" => json = true,
            "--help" | "-h" => {
                println!("{USAGE}\n");
                experiments().iter().for_each(|e| println!("  {:<20} {}", e.name, e.title));
                return ExitCode::SUCCESS;
            }
            "all" => chosen.extend(experiments()),
            flag if flag.starts_with('-') => {
                eprintln!("unknown option '{flag}'\n{USAGE}");
                return ExitCode::from(2);
            }
            name => match find(name) {
                Ok(experiment) => chosen.push(experiment),
                Err(near) => {
                    eprintln!("no experiment is called '{name}'; did you mean {}, or all?", near.join(", "));
                    return ExitCode::from(2);
                }
            },
        }
    }
    if chosen.is_empty() {
        chosen.extend(experiments());
    }
    let begin = Instant::now();
    for experiment in &chosen {
        let start = Instant::now();
        let report = match experiment.report(effort, &mut |line| eprintln!("{}: {line}", experiment.name)) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("{}: {error}", experiment.name);
                return ExitCode::FAILURE;
            }
        };
        if json {
            report.rows.iter().for_each(|row| println!("{}", row.to_json()));
            report.figures.iter().for_each(|figure| println!("{}", figure.to_json()));
        } else {
            println!("{} ({})\n{}", experiment.title, experiment.name, table(&report.rows));
        }
        eprintln!("{}: took {:.1} s", experiment.name, start.elapsed().as_secs_f64());
    }
    eprintln!("{} experiments took {:.1} s", chosen.len(), begin.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
