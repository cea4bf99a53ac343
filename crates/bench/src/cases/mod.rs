//! The programs that are timed, planned and compared.

pub mod case;
pub mod choices;
pub mod derivatives;
pub mod driven;
pub mod losses;
pub mod sgld;
pub mod timed;
pub mod values;
pub mod vision;
pub mod vit;
pub mod whole;
pub mod wide;
