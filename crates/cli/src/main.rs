//! The `bilevel` command.

fn main() -> std::process::ExitCode {
    bilevel_cli::main(&bilevel_cli::everything())
}
