//! Benchmarks of the engine.

mod cases;
mod derivatives;
mod losses;
mod sgld;
mod timing;
mod values;

use bilevel_cpu::Cpu;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cpu = Cpu::with_threads(2);
    match args.first().map(String::as_str) {
        Some("profile") => cases::profile(&args[1], &cpu).unwrap_or_else(|e| eprintln!("{e}")),
        _ => {
            let names: Vec<&str> =
                if args.len() > 1 { args[1..].iter().map(String::as_str).collect() } else { cases::NAMES.to_vec() };
            for name in names {
                match cases::run(name, &cpu, 9) {
                    Ok(lines) => lines.iter().for_each(|l| println!("{}", l.json())),
                    Err(error) => eprintln!("{name}: {error}"),
                }
            }
        }
    }
}
