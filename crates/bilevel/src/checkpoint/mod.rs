//! A checkpoint that was read, for inspection.

pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod fingerprint;
pub(crate) mod folder;
pub(crate) mod header;
pub(crate) mod saving;
pub mod whole_file;

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::file::{CHUNK, Opened, Tensor};
use crate::checkpoint::fingerprint::Fingerprint;
use crate::checkpoint::header::Header;
use crate::compiled::state::Snapshot;
use crate::hypergradient::settings::SettingsRecord;
use crate::outer::observer::Iteration;
use bilevel_graph::Array;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

type Result<T> = std::result::Result<T, CheckpointError>;

/// A checkpoint that was read: its contents are whole, whether or not they belong to the run at hand.
///
/// ```
/// use bilevel::checkpoints::{Checkpoint, Checkpoints};
/// use bilevel::prelude::*;
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|_, _, t| (t.0 - 1.0).square())
///     .build()?;
/// let folder = std::env::temp_dir().join(format!("bilevel-doc-checkpoint-{}", std::process::id()));
/// let driver = Driver::new(&problem, HpoSgld::default()).seed(7).iterations(5);
/// let outcome = driver.checkpoints(Checkpoints::new(&folder)).run()?;
///
/// let newest = Checkpoints::new(&folder).newest()?.unwrap();
/// let checkpoint = Checkpoint::read(&newest.path)?;
/// assert_eq!((checkpoint.iteration(), checkpoint.seed()), (5, 7));
/// assert_eq!(checkpoint.method().name(), "hpo-sgld");
/// assert_eq!(checkpoint.optimizer().name(), "sgd");
/// assert_eq!(checkpoint.state().lambda, outcome.state.lambda.arrays()?);
/// assert_eq!(checkpoint.last().unwrap().outer_loss, outcome.last.unwrap().outer_loss);
/// assert_eq!(checkpoint.problem().difference(&bilevel::checkpoints::Fingerprint::of(&problem)), None);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    header: Header,
    state: Snapshot,
    slots: Vec<Vec<Array>>,
    /// λ and θ at which a measure and the held-out rows were best; empty if none are kept.
    best: Vec<Array>,
}

impl Checkpoint {
    /// Iterations behind it.
    ///
    /// See [`Checkpoint`] for an example; so for the others below.
    pub fn iteration(&self) -> u32 {
        self.header.iteration
    }

    /// The run's seed.
    pub fn seed(&self) -> u64 {
        self.header.identity.seed
    }

    /// The method with its settings.
    pub fn method(&self) -> &SettingsRecord {
        &self.header.identity.method
    }

    /// The optimizer with its settings.
    pub fn optimizer(&self) -> &SettingsRecord {
        &self.header.identity.optimizer
    }

    /// The problem it belongs to.
    pub fn problem(&self) -> &Fingerprint {
        &self.header.identity.problem
    }

    /// λ, θ and the method's memory.
    pub fn state(&self) -> &Snapshot {
        &self.state
    }

    /// The numbers of the last iteration.
    pub fn last(&self) -> Option<&Iteration> {
        self.header.last.as_ref()
    }

    /// Reads one file. Never panics on any content.
    ///
    /// ```
    /// use bilevel::checkpoints::{Checkpoint, CheckpointError};
    /// assert!(matches!(Checkpoint::read("no/such/file"), Err(CheckpointError::Io { .. })));
    /// ```
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Opened::file(path).and_then(|file| Self::inspect(file).map_err(|error| error.at(path)))
    }

    /// The bytes of a file.
    ///
    /// ```
    /// # use bilevel::checkpoints::{Checkpoint, Checkpoints};
    /// # use bilevel::prelude::*;
    /// # let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    /// #     .inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build()?;
    /// # let folder = std::env::temp_dir().join(format!("bilevel-doc-encode-{}", std::process::id()));
    /// # Driver::new(&problem, HpoSgld::default()).iterations(1).checkpoints(Checkpoints::new(&folder)).run()?;
    /// let newest = Checkpoints::new(&folder).newest()?.unwrap();
    /// let checkpoint = Checkpoint::read(&newest.path)?;
    /// assert_eq!(checkpoint.encode()?, std::fs::read(&newest.path).unwrap());
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn encode(&self) -> Result<Vec<u8>> {
        let Snapshot { lambda, theta, memory } = &self.state;
        let arrays = lambda.iter().chain(theta).chain(memory).chain(self.slots.iter().flatten()).chain(&self.best);
        let tensors: Vec<Tensor> = arrays.map(Tensor::Array).collect();
        let mut bytes = vec![];
        let written = file::write(&self.header, &tensors, CHUNK, &mut bytes);
        written.map(|()| bytes).map_err(|error| CheckpointError::damaged(error.to_string()))
    }

    /// Decodes the bytes of a file. Never panics on any bytes.
    ///
    /// ```
    /// use bilevel::checkpoints::{Checkpoint, CheckpointError};
    /// assert!(matches!(Checkpoint::decode(b""), Err(CheckpointError::Damaged { .. })));
    /// assert!(matches!(Checkpoint::decode(b"BILEVEL\0\xff\0\0\0"), Err(CheckpointError::NewerVersion { .. })));
    /// ```
    pub fn decode(file: &[u8]) -> Result<Self> {
        Self::inspect(Opened::new(Cursor::new(file), file.len() as u64, CHUNK)?)
    }

    /// All that is in a file, on the host.
    pub(crate) fn inspect(mut file: Opened<impl Read + Seek>) -> Result<Self> {
        let header = file.header().clone();
        let (lambda, theta) = header.identity.problem.leaves();
        let mut numbers = 0..;
        let mut take = |count: usize| -> Result<Vec<Array>> {
            numbers.by_ref().take(count).map(|number| file.array(number)).collect()
        };
        let state = Snapshot { lambda: take(lambda.len())?, theta: take(theta.len())?, memory: take(header.memory)? };
        let slots = header.slots.iter().map(|_| take(lambda.len())).collect::<Result<_>>()?;
        let best = take(header.kept_states() * (lambda.len() + theta.len()))?;
        Ok(Checkpoint { header, state, slots, best })
    }
}
