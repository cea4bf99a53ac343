//! Data for bilevel problems: readers, splits, normalisation, label noise, augmentation, and a registry of datasets.
//!
//! Use it if your data is in files (CSV, LIBSVM, NumPy, safetensors, IDX, CIFAR, pictures), or if you want a known dataset.
//! It returns arrays for a [`Problem`](bilevel::Problem). A program that builds its arrays itself does not need it.
//!
//! ```no_run
//! use bilevel::{DType, Key};
//! use bilevel_data::{datasets::mnist, prepare};
//! let (train, test) = mnist::load("data")?;
//! let parts = prepare::split_by_class(&train.labels, &[0.8, 0.2], Key::from_seed(0))?;
//! let pixels = train.take(&parts[0])?.images.to_array(DType::F32)?;
//! let pixels = prepare::Normalisation::mnist().apply(pixels)?;
//! # let _ = (pixels, test);
//! # Ok::<(), bilevel_data::Error>(())
//! ```
//!
//! Nothing here panics on the contents of a file, and nothing is allocated by declared sizes alone: these are first
//! compared with the actual sizes and with [`Limits`].
//!
//! # Features
//!
//! Both are on by default. `download` is for `registry::fetch`; `images` decodes PNG and JPEG, and without it a picture is an
//! error.

#![forbid(unsafe_code)]

pub mod augment;
mod batches;
pub mod datasets;
mod digest;
mod element;
mod error;
mod images;
mod input;
mod limits;
mod numbers;
pub mod prepare;
pub mod readers;
pub mod registry;
mod table;

pub use batches::Batches;
pub use digest::sha256;
pub use error::{Error, Result};
pub use images::{Images, LabelledImages};
pub use input::Input;
pub use limits::Limits;
pub use numbers::{Elements, Numbers};
pub use table::Table;
