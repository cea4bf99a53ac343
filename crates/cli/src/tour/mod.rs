//! A tour of the engine in three parts.

mod formula;
mod network;
mod page;
mod synthetic;

pub use page::TourPage;

/// The outcome of a part of the tour, which fails with an error of the engine or of its output.
pub type Outcome = crate::errors::Result<()>;

/// Runs the three parts, one after another.
pub fn tour(page: &mut TourPage) -> Outcome {
    page.line(concat!("bilevel ", env!("CARGO_PKG_VERSION")))?;
    page.line("A tour of the engine: write a loss, differentiate it, run it. Nothing is downloaded or written.")?;
    formula::show(page)?;
    synthetic::show(page)?;
    network::show(page)
}
