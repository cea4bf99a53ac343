//! `bilevel digits`, which is also `bilevel` alone: what a regularisation weight for every parameter is worth.

use crate::arguments::Digits;
use crate::board::Board;
use crate::digits::{Study, files, page, tables, words};
use crate::errors::{CliError, Result};
use crate::folder::write_whole;
use crate::interrupt::stop_on_interrupt;
use bilevel_tasks::digits::study::Plan;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs the command.
pub fn digits(arguments: &Digits, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let folder = folder(arguments.out.as_deref())?;
    let board = Board::stderr(quiet);
    board.say(&words::wrapped(&words::opening(&plan)));
    let began = Instant::now();
    let study = Study::run(&plan, &stop_on_interrupt()?, &board)?;
    let seconds = began.elapsed().as_secs_f64();
    std::fs::create_dir_all(&folder).map_err(|error| CliError::file("make", &folder, &error))?;
    let json = files::json(&study);
    write_whole(&folder.join("lambda.safetensors"), &files::lambda(&study, &folder)?)?;
    write_whole(&folder.join("result.json"), json.as_bytes())?;
    write_whole(&folder.join("report.html"), page::page(&study).html().as_bytes())?;
    if arguments.json {
        write!(out, "{json}")?;
    } else if !quiet {
        write!(out, "{}", tables::text(&study))?;
        writeln!(out)?;
        for sentence in words::warnings(&study).iter().chain(&words::outcome(&study)) {
            writeln!(out, "{}", words::wrapped(sentence))?;
        }
        writeln!(out, "\nTook {seconds:.1} s. The report is {}", folder.join("report.html").display())?;
        write!(out, "\nTo try next:\n{}", words::next(words::program()))?;
    }
    Ok(())
}

/// Where the user says, or `runs/digits`, with a number where that is taken.
fn folder(out: Option<&Path>) -> Result<PathBuf> {
    let Some(path) = out else {
        let name = |n: u32| if n == 1 { "digits".to_string() } else { format!("digits-{n}") };
        let mut free = (1..).map(|n| Path::new("runs").join(name(n)));
        return free.find(|path| !path.exists()).ok_or_else(|| CliError::Occupied("runs/digits".into()));
    };
    let taken = std::fs::read_dir(path).is_ok_and(|mut files| files.next().is_some()) || path.is_file();
    match taken {
        true => Err(CliError::Usage(format!(
            "{} is there already and is not empty; choose another folder with --out",
            path.display()
        ))),
        false => Ok(path.to_path_buf()),
    }
}
