//! `bilevel digits`, which is also `bilevel` alone: what a regularisation weight for every parameter is worth.

use crate::arguments::Digits;
use crate::board::Board;
use crate::device::Device;
use crate::digits::{Study, files, page, tables, words};
use crate::errors::{CliError, Result};
use crate::folder::{is_taken, write_whole};
use crate::interrupt::stop_on_interrupt;
use crate::marked_folder::MarkedFolder;
use crate::readable::escaped_path;
use bilevel_tasks::digits::study::Plan;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terminal_size::{Height, Width, terminal_size_of};

/// What the mark of its folder says.
const COMMAND: &str = "digits";

/// Runs the command.
pub fn digits(arguments: &Digits, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let device = Device::asked(arguments.device.as_deref())?.unwrap_or_default().settled(quiet)?;
    let folder = folder(arguments.out.as_deref())?;
    // What cannot be kept is better known before the work than after it.
    let marked = MarkedFolder::begin(&folder, COMMAND)?;
    let board = Board::stderr(quiet);
    let stderr = std::io::stderr();
    let width = columns(stderr.is_terminal(), terminal_size_of(&stderr));
    board.say(&words::wrapped(&words::opening(&plan), width));
    let began = Instant::now();
    let study = match stop_on_interrupt().and_then(|signal| Study::run(&plan, device, &signal, &board)) {
        Ok(study) => study,
        Err(error) => {
            marked.give_up();
            return Err(error);
        }
    };
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
    marked.done()?;
    if !arguments.json && !quiet {
        writeln!(out, "\nTook {seconds:.1} s. The report is {}", escaped_path(&folder.join("report.html")))?;
        write!(out, "\nTo try next:\n{}", words::next(words::program()))?;
    }
    Ok(())
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
    match is_taken(path) && !MarkedFolder::was_left(path, COMMAND) {
        true => Err(CliError::Usage(format!(
            "{} is there already and is not empty; choose another folder with --out",
            escaped_path(path)
        ))),
        false => Ok(path.to_path_buf()),
    }
}
