//! A checkpoint as bytes: all that a run needs to go on as if nothing had happened.
//!
//!   8 bytes   "BILEVEL" and a zero
//!   4 bytes   format version
//!   8 bytes   length of the whole file
//!   4 bytes   length of the header
//!   …         the header, JSON: which run this is, the iteration, counters, the watch
//!   …         the arrays, a safetensors file: λ, θ, the method's memory, the optimizer's
//!   4 bytes   CRC-32 of everything before
//!
//! Numbers are little-endian. The version comes first and stays there, so that an old library can tell a newer file from a
//! damaged one.

use crate::checkpoint_error::CheckpointError;
use crate::diagnostics::Diagnostics;
use crate::divergence::Watch;
use crate::estimator::Oracles;
use crate::fingerprint::{Fingerprint, Identity};
use crate::leaves::Leaves;
use crate::measures::{Aim, Best, Followed};
use crate::observer::{Iteration, OraclesFields};
use crate::progress::{Numbers, Progress};
use crate::session::Session;
use crate::state::{Snapshot, State};
use bilevel_graph::{Array, DType, Data};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The format written, and the newest that is read.
///
/// ```
/// assert_eq!(bilevel::FORMAT_VERSION, 2);
/// ```
pub const FORMAT_VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"BILEVEL\0";
/// Bytes before the header.
const FRONT: usize = 24;
/// Bytes of the checksum at the end.
const BACK: usize = 4;

type Result<T> = std::result::Result<T, CheckpointError>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    library: String,
    identity: Identity,
    iteration: u32,
    #[serde(with = "OraclesFields")]
    oracles: Oracles,
    best: Option<f64>,
    mark: Option<f64>,
    since_best: u32,
    #[serde(default)]
    followed: Option<Followed>,
    #[serde(default)]
    kept: Option<Kept>,
    last: Option<Iteration>,
    #[serde(default)]
    looked: Diagnostics,
    lambda_norm: f64,
    watch: Watch,
    elapsed: Duration,
    /// How many arrays the method keeps.
    memory: usize,
    /// Names of the optimizer's vectors.
    slots: Vec<String>,
}

/// What is known of the state at which a measure was best; its arrays are named `best.lambda.…` and `best.theta.…`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    aim: Aim,
    value: f64,
    iteration: u32,
}

/// A checkpoint that was read: its contents are whole, whether or not they belong to the run at hand.
///
/// ```
/// use bilevel::{Checkpoint, Checkpoints, Driver, HpoSgld, Leaf, Problem, Variable};
/// let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
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
/// assert!(checkpoint.method().starts_with("HpoSgld { burn_in: 50"));
/// assert_eq!(checkpoint.optimizer(), "Sgd");
/// assert_eq!(checkpoint.state().lambda, outcome.state.lambda.arrays()?);
/// assert_eq!(checkpoint.last().unwrap().outer_loss, outcome.last.unwrap().outer_loss);
/// assert_eq!(checkpoint.problem().difference(&bilevel::Fingerprint::of(&problem)), None);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    header: Header,
    state: Snapshot,
    /// Where a measure was best; λ and θ are empty where none is followed.
    best: Snapshot,
    slots: Vec<Vec<Array>>,
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

    /// The method with its settings, in code.
    pub fn method(&self) -> &str {
        &self.header.identity.method
    }

    /// The optimizer with its settings, in code.
    pub fn optimizer(&self) -> &str {
        &self.header.identity.optimizer
    }

    /// The problem it belongs to.
    pub fn problem(&self) -> &Fingerprint {
        &self.header.identity.problem
    }

    /// λ, θ and what the method keeps warm.
    pub fn state(&self) -> &Snapshot {
        &self.state
    }

    /// The numbers of the last iteration.
    pub fn last(&self) -> Option<&Iteration> {
        self.header.last.as_ref()
    }

    pub(crate) fn new(identity: &Identity, progress: &Progress, slots: &[&str]) -> crate::Result<Self> {
        let Numbers { iteration, oracles, best, mark, since_best, followed, last, lambda_norm, looked, watch, elapsed } =
            progress.numbers.clone();
        let kept = |best: &Best| Kept { aim: best.aim.clone(), value: best.value, iteration: best.iteration };
        let header = Header {
            library: env!("CARGO_PKG_VERSION").into(),
            identity: identity.clone(),
            iteration,
            oracles,
            best,
            mark,
            since_best,
            followed,
            kept: progress.best.as_ref().map(kept),
            last,
            lambda_norm,
            looked,
            watch,
            elapsed,
            memory: progress.state.memory.len(),
            slots: slots.iter().map(|s| s.to_string()).collect(),
        };
        let slots = progress.slots.iter().map(Leaves::arrays).collect::<crate::Result<_>>()?;
        let best = progress.best.as_ref().map_or_else(|| State::default().snapshot(), |best| best.state.snapshot())?;
        Ok(Checkpoint { header, state: progress.state.snapshot()?, best, slots })
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.header.identity
    }

    pub(crate) fn slot_names(&self) -> &[String] {
        &self.header.slots
    }

    pub(crate) fn into_progress(self, session: &Session) -> crate::Result<Progress> {
        let Header {
            iteration,
            oracles,
            best,
            mark,
            since_best,
            followed,
            last,
            lambda_norm,
            looked,
            watch,
            elapsed,
            kept,
            ..
        } = self.header;
        let executor = session.executor();
        let slots = self.slots.iter().map(|slot| Leaves::upload(executor, slot)).collect::<crate::Result<_>>()?;
        let numbers =
            Numbers { iteration, oracles, best, mark, since_best, followed, last, lambda_norm, looked, watch, elapsed };
        let state = State::from_snapshot(&self.best, executor)?;
        let best = kept.map(|Kept { aim, value, iteration }| Best { aim, value, iteration, state });
        Ok(Progress { state: State::from_snapshot(&self.state, executor)?, slots, best, numbers })
    }

    /// Reads one file. Never panics, whatever is in it.
    ///
    /// ```
    /// use bilevel::{Checkpoint, CheckpointError};
    /// assert!(matches!(Checkpoint::read("no/such/file"), Err(CheckpointError::Io { .. })));
    /// ```
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |error: std::io::Error| CheckpointError::io("read", path, &error);
        // Before opening: to open a pipe may wait for ever.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(CheckpointError::NotACheckpoint { path: path.to_path_buf() });
        }
        Self::decode(&std::fs::read(path).map_err(failed)?).map_err(|error| error.at(path))
    }

    /// The bytes of a file.
    ///
    /// ```
    /// # use bilevel::{Checkpoint, Checkpoints, Driver, HpoSgld, Leaf, Problem, Variable};
    /// # let problem = Problem::new(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
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
        let bytes: Vec<(String, &Array, Vec<u8>)> =
            self.named().into_iter().map(|(name, array)| (name, array, little_endian(array))).collect();
        let mut views = vec![];
        for (name, array, data) in &bytes {
            let dtype = match array.dtype() {
                DType::F32 => Dtype::F32,
                DType::F64 => Dtype::F64,
                DType::I32 => Dtype::I32,
            };
            let view = TensorView::new(dtype, array.shape().to_vec(), data);
            views.push((name, view.map_err(|e| CheckpointError::damaged(e.to_string()))?));
        }
        let arrays = safetensors::serialize(views, None).map_err(|e| CheckpointError::damaged(e.to_string()))?;
        let header = serde_json::to_vec(&self.header).map_err(|e| CheckpointError::damaged(e.to_string()))?;
        let length = FRONT + header.len() + arrays.len() + BACK;
        let mut file = Vec::with_capacity(length);
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        file.extend_from_slice(&(length as u64).to_le_bytes());
        file.extend_from_slice(&(header.len() as u32).to_le_bytes());
        file.extend_from_slice(&header);
        file.extend_from_slice(&arrays);
        file.extend_from_slice(&crc32fast::hash(&file).to_le_bytes());
        Ok(file)
    }

    /// From the bytes of a file. Never panics, whatever they are.
    ///
    /// ```
    /// use bilevel::{Checkpoint, CheckpointError};
    /// assert!(matches!(Checkpoint::decode(b""), Err(CheckpointError::Damaged { .. })));
    /// assert!(matches!(Checkpoint::decode(b"BILEVEL\0\xff\0\0\0"), Err(CheckpointError::NewerVersion { .. })));
    /// ```
    pub fn decode(file: &[u8]) -> Result<Self> {
        let damaged = |reason: &str| Err(CheckpointError::damaged(reason));
        if file.is_empty() {
            return damaged("the file is empty");
        }
        let start = file.len().min(MAGIC.len());
        if file[..start] != MAGIC[..start] {
            return Err(CheckpointError::NotACheckpoint { path: PathBuf::new() });
        }
        let Some(version) = file.get(8..12).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else {
            return damaged("it ends before its version");
        };
        if version > FORMAT_VERSION {
            return Err(CheckpointError::NewerVersion { path: PathBuf::new(), found: version, known: FORMAT_VERSION });
        }
        if version == 0 {
            return damaged("there is no format 0");
        }
        let Some(length) = file.get(12..20).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes) else {
            return damaged("it ends before its length");
        };
        if length != file.len() as u64 || file.len() < FRONT + BACK {
            return damaged(&format!("it has {} bytes and should have {length}", file.len()));
        }
        let (body, checksum) = file.split_at(file.len() - BACK);
        if crc32fast::hash(body).to_le_bytes() != checksum {
            return damaged("its contents do not match its checksum");
        }
        // What follows is as it was written, unless somebody forged the checksum; even then nothing may panic.
        let header_length = body[20..24].iter().rev().fold(0usize, |n, &b| n << 8 | b as usize);
        let Some((header, arrays)) = body[FRONT..].split_at_checked(header_length) else {
            return damaged("its header is longer than the file");
        };
        let header: Header = match serde_json::from_slice(header) {
            Ok(header) => header,
            Err(error) => return damaged(&format!("its header cannot be read: {error}")),
        };
        if !header.watch.is_sound() || !(header.lambda_norm >= 0.0 && header.lambda_norm.is_finite()) {
            return damaged("its header holds sizes below 0");
        }
        let mut found = read_arrays(arrays)?;
        let mut take = |name: String, shape: Option<&[usize]>, dtype: Option<DType>| {
            let array = found.remove(&name).ok_or_else(|| CheckpointError::damaged(format!("'{name}' is missing")))?;
            let fits = shape.is_none_or(|s| s == array.shape()) && dtype.is_none_or(|d| d == array.dtype());
            match fits && all_finite(&array) {
                true => Ok(array),
                false => Err(CheckpointError::damaged(format!("'{name}' has the wrong shape, type or values"))),
            }
        };
        let problem = &header.identity.problem;
        let dtype = Some(if problem.is_single() { DType::F32 } else { DType::F64 });
        let (lambda, theta) = problem.leaves();
        let state = Snapshot {
            lambda: lambda.iter().map(|(n, s)| take(format!("lambda.{n}"), Some(s), dtype)).collect::<Result<_>>()?,
            theta: theta.iter().map(|(n, s)| take(format!("theta.{n}"), Some(s), dtype)).collect::<Result<_>>()?,
            memory: (0..header.memory).map(|i| take(format!("memory.{i}"), None, None)).collect::<Result<_>>()?,
        };
        let mut best = Snapshot { lambda: vec![], theta: vec![], memory: vec![] };
        if header.kept.is_some() {
            let mut kept = |of: &str, leaves: &[(String, Vec<usize>)]| {
                leaves.iter().map(|(n, s)| take(format!("best.{of}.{n}"), Some(s), dtype)).collect::<Result<_>>()
            };
            (best.lambda, best.theta) = (kept("lambda", lambda)?, kept("theta", theta)?);
        }
        let mut slots = vec![];
        for slot in &header.slots {
            let name = |leaf: &str| format!("optimizer.{slot}.{leaf}");
            slots.push(lambda.iter().map(|(n, s)| take(name(n), Some(s), dtype)).collect::<Result<_>>()?);
        }
        if let Some(name) = found.keys().next() {
            return damaged(&format!("it holds '{name}', which nothing asks for"));
        }
        Ok(Checkpoint { header, state, best, slots })
    }

    /// All arrays with the names they are stored under.
    fn named(&self) -> Vec<(String, &Array)> {
        let (lambda, theta) = self.header.identity.problem.leaves();
        let mut all = vec![];
        let Checkpoint { state, best, .. } = self;
        for (prefix, leaves, arrays) in [
            ("lambda", lambda, &state.lambda),
            ("theta", theta, &state.theta),
            ("best.lambda", lambda, &best.lambda),
            ("best.theta", theta, &best.theta),
        ] {
            all.extend(leaves.iter().zip(arrays).map(|((name, _), array)| (format!("{prefix}.{name}"), array)));
        }
        all.extend(self.state.memory.iter().enumerate().map(|(i, array)| (format!("memory.{i}"), array)));
        for (slot, arrays) in self.header.slots.iter().zip(&self.slots) {
            all.extend(lambda.iter().zip(arrays).map(|((leaf, _), a)| (format!("optimizer.{slot}.{leaf}"), a)));
        }
        all
    }
}

fn all_finite(array: &Array) -> bool {
    match array.data() {
        Data::F32(v) => v.iter().all(|x| x.is_finite()),
        Data::F64(v) => v.iter().all(|x| x.is_finite()),
        Data::I32(_) => true,
    }
}

fn little_endian(array: &Array) -> Vec<u8> {
    match array.data() {
        Data::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::F64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::I32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn read_arrays(bytes: &[u8]) -> Result<BTreeMap<String, Array>> {
    let failed =
        |error: &dyn std::fmt::Display| CheckpointError::damaged(format!("its arrays cannot be read: {error}"));
    let file = SafeTensors::deserialize(bytes).map_err(|e| failed(&e))?;
    let mut all = BTreeMap::new();
    for (name, view) in file.iter() {
        let data = view.data();
        // A chunk has the length asked for, so the copy is whole.
        let four = data.chunks_exact(4).map(|c| <[u8; 4]>::try_from(c).unwrap_or_default());
        let eight = data.chunks_exact(8).map(|c| <[u8; 8]>::try_from(c).unwrap_or_default());
        let data = match view.dtype() {
            Dtype::F32 => Data::F32(four.map(f32::from_le_bytes).collect()),
            Dtype::F64 => Data::F64(eight.map(f64::from_le_bytes).collect()),
            Dtype::I32 => Data::I32(four.map(i32::from_le_bytes).collect()),
            other => return Err(failed(&format!("'{name}' has the type {other:?}"))),
        };
        all.insert(name.to_string(), Array::new(view.shape(), data).map_err(|e| failed(&e))?);
    }
    Ok(all)
}
