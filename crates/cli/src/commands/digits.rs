//! `bilevel digits`, which is also `bilevel` alone: what a regularisation weight for every parameter is worth.

use crate::arguments::Digits;
use crate::board::Board;
use crate::digits::{Study, files, page, tables, words};
use crate::errors::{CliError, Result};
use crate::folder::write_whole;
use crate::interrupt::stop_on_interrupt;
use bilevel_tasks::digits::study::Plan;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terminal_size::{Height, Width, terminal_size_of};

/// Runs the command.
pub fn digits(arguments: &Digits, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let folder = folder(arguments.out.as_deref())?;
    // What cannot be kept is better known before the work than after it.
    make(&folder)?;
    let board = Board::stderr(quiet);
    let stderr = std::io::stderr();
    let width = columns(stderr.is_terminal(), terminal_size_of(&stderr));
    board.say(&words::wrapped(&words::opening(&plan), width));
    let began = Instant::now();
    let study = stop_on_interrupt().and_then(|signal| Study::run(&plan, &signal, &board)).inspect_err(|_| {
        // Only a folder with nothing in it can be removed so.
        let _ = std::fs::remove_dir(&folder);
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let json = files::json(&study);
    if arguments.json {
        write!(out, "{json}")?;
    } else if !quiet {
        let stdout = std::io::stdout();
        let width = columns(stdout.is_terminal(), terminal_size_of(&stdout));
        write!(out, "{}", tables::text(&study))?;
        writeln!(out)?;
        for sentence in words::warnings(&study).iter().chain(&words::outcome(&study)) {
            writeln!(out, "{}", words::wrapped(sentence, width))?;
        }
        out.flush()?;
    }
    write_whole(&folder.join("lambda.safetensors"), &files::lambda(&study, &folder)?)?;
    write_whole(&folder.join("result.json"), json.as_bytes())?;
    write_whole(&folder.join("report.html"), page::page(&study).html().as_bytes())?;
    if !arguments.json && !quiet {
        writeln!(out, "\nTook {seconds:.1} s. The report is {}", folder.join("report.html").display())?;
        write!(out, "\nTo try next:\n{}", words::next(words::program()))?;
    }
    Ok(())
}

/// Makes the folder and sees that it can be written to.
fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| CliError::file("make", folder, &error))?;
    let probe = folder.join("result.json.unfinished");
    let written = std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(&probe));
    written.map_err(|error| CliError::file("write", folder, &error))
}

/// How long a line may be: as the terminal is wide, or 80 where it does not say, but no longer than is easily read.
fn columns(is_terminal: bool, size: Option<(Width, Height)>) -> usize {
    match size {
        Some((width, _)) => usize::from(width.0).clamp(20, words::LONGEST),
        None if is_terminal => 80,
        None => words::LONGEST,
    }
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
