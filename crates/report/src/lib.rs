//! Reports: plots, pictures and tables of plain data, on self-contained pages.
//!
//! The command uses it for its reports; it depends on no other crate of the project, so you can use it for your own.
//!
//! A [`Plot`] of curves, [`Pictures`] of matrices and a [`Table`] can be rendered as SVG, PNG, HTML, Markdown or
//! aligned text. A [`Report`] puts them on one self-contained page. [`events`] writes scalars for TensorBoard. Nothing
//! here panics on odd data. Values that cannot be drawn (a NaN, a negative value on a logarithmic axis) are skipped,
//! and an empty plot has a note.
//!
//! ```
//! use bilevel_report::{Axis, Curve, Plot, Report, Section};
//! let plot = Plot {
//!     title: "Outer loss".into(),
//!     x: Axis::linear("outer iteration"),
//!     y: Axis::logarithmic("loss"),
//!     curves: vec![Curve::new("Langevin adjoint", (0..100).map(|i| (i as f64, (-0.1 * i as f64).exp())))],
//! };
//! assert!(plot.svg().starts_with("<svg"));
//! let report = Report { title: "A run".into(), sections: vec![Section::Plot(plot)], ..Report::default() };
//! assert!(report.html().starts_with("<!doctype html>"));
//! ```

#![forbid(unsafe_code)]

mod axis;
mod checksum;
mod error;
pub mod events;
mod file_stem;
mod number;
mod page;
mod pictures;
mod plot;
mod scene;

pub use error::ReportError;
pub use file_stem::file_stem;
pub use number::{count, number};
pub use page::table::{Column, Table};
pub use page::{Report, Section, fragment, script, style};
pub use pictures::photographs::{Photograph, Photographs};
pub use pictures::{Panel, Pictures};
pub use plot::{Axis, Curve, Plot};
