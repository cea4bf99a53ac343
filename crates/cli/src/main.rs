//! The `bilevel` command.

fn main() -> std::process::ExitCode {
    bilevel_cli::run(std::env::args_os()).into()
}
