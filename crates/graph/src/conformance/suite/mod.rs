//! The programs of the suite, one file for each kind.

pub(crate) mod attention;
pub(crate) mod buffers;
pub(crate) mod carries;
pub(crate) mod convolutions;
pub(crate) mod differentiable;
pub(crate) mod heads;
pub(crate) mod learned;
pub(crate) mod long;
pub(crate) mod networks;
pub(crate) mod precisions;
pub(crate) mod primitives;
pub(crate) mod readers;
pub(crate) mod refusals;
pub(crate) mod rows;
pub(crate) mod varied;
