//! Metrics of runs as one table of named columns, and its files.

mod csv;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet_absent.rs"]
mod parquet;
mod table;

pub use self::csv::csv;
pub use self::parquet::parquet;
pub use table::{Cell, Kind, Metrics};
