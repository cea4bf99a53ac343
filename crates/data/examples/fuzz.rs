//! The long attack on the readers: damaged files by the million, with a row of results per reader.
//!
//!     cargo run --release -p bilevel-data --example fuzz -- --inputs 10000000 [--only NAME] [--threads T]

#[path = "../tests/fuzzing/mod.rs"]
mod fuzzing;

use std::process::ExitCode;
use std::time::Instant;

struct Arguments {
    inputs: u64,
    only: Option<String>,
    threads: usize,
}

fn arguments() -> Result<Arguments, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = Arguments { inputs: 10_000, only: None, threads };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = |what: &str| value.parse().map_err(|_| format!("{what} needs a number, not '{value}'"));
        match word.as_str() {
            "--inputs" => found.inputs = number("--inputs")?,
            "--threads" => found.threads = number("--threads")?.max(1) as usize,
            "--only" => found.only = Some(value),
            other => return Err(format!("there is no option {other}; the options are --inputs, --only and --threads")),
        }
    }
    Ok(found)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(complaint) => {
            eprintln!("{complaint}");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    println!(
        "{:16} {:>12} {:>12} {:>12} {:>8} {:>8} {:>9}",
        "reader", "inputs", "accepted", "refused", "panics", "giants", "seconds"
    );
    for target in fuzzing::targets() {
        if arguments.only.as_ref().is_some_and(|only| only != target.name) {
            continue;
        }
        if let Err(error) = target.sound() {
            println!("{}: a valid file is refused: {error}", target.name);
            failed = true;
        }
        let begun = Instant::now();
        let tally = target.run(arguments.inputs, arguments.threads);
        println!(
            "{:16} {:>12} {:>12} {:>12} {:>8} {:>8} {:>9.1}",
            target.name,
            arguments.inputs,
            tally.accepted,
            tally.refused,
            tally.panics.len(),
            tally.giants.len(),
            begun.elapsed().as_secs_f64()
        );
        for number in tally.panics.iter().take(5) {
            println!("  panic at input {number}");
        }
        for (number, bytes) in tally.giants.iter().take(5) {
            println!("  {bytes} bytes at once at input {number}, or one next to it");
        }
        failed |= !(tally.panics.is_empty() && tally.giants.is_empty());
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
