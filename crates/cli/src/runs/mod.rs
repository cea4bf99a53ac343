//! Many runs at once: found in folders, read without their data, filtered and sorted.

pub mod differences;
pub mod find;
pub mod overview;
pub mod select;
pub mod tail;

pub use find::find;
pub use overview::{Overview, Status};
