//! The `bilevel` command: its arguments, and a tour of the engine in three parts.

mod arguments;
mod formula;
mod network;
mod page;
mod synthetic;

pub use arguments::{Command, help, parse, version};
pub use page::Page;

/// What a part of the tour can fail with: an error of the engine, or of the place it writes to.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs the three parts, one after another.
pub fn tour(page: &mut Page) -> Outcome {
    page.line(&version())?;
    page.line("A tour of the engine: write a loss, derive it, run it. Nothing is downloaded or written.")?;
    formula::show(page)?;
    synthetic::show(page)?;
    network::show(page)
}

/// The example in the project's README, compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
