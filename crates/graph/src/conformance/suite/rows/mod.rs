//! Programs whose loops run over rows of several lengths.

pub(crate) mod columns;
pub(crate) mod parts;
pub(crate) mod short;
