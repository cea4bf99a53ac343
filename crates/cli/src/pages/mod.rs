//! What runs and studies look like on a page.

mod calm;
mod lambda;
pub mod own;
pub mod plots;
pub mod run;
pub mod study;
