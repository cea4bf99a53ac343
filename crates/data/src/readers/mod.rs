//! One reader per format. Each takes anything that becomes an [`Input`](crate::Input): a path, or bytes; gzip, bzip2
//! and xz are unpacked on the way. A file that is truncated, damaged or larger than the [`Limits`](crate::Limits) allow
//! gives an error.

pub(crate) mod archive;
pub mod cifar;
pub mod csv;
pub mod idx;
pub mod libsvm;
pub mod npy;
pub mod pictures;
pub mod safetensors;
pub mod views;
