//! A checkpoint as a file, written and read as a stream: for a state of any size, the host holds one chunk of it.
//!
//!   8 bytes   "BILEVEL" and a zero
//!   4 bytes   format version
//!   8 bytes   length of the whole file
//!   4 bytes   length of the header
//!   …         the header, JSON: which run this is, the iteration, counters, the watch
//!   …         the tensors, a safetensors file: λ, θ, the method's memory, the optimizer's
//!   4 bytes   CRC-32 of everything before
//!
//! Numbers are little-endian. The version comes first and stays there, so that an old library can tell a newer file from a
//! damaged one. A reader passes over the file twice: once to verify length and checksum, before any content is used,
//! and once, tensor by tensor, for the content.

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::header::{Header, NamedTensor};
use bilevel_graph::{Array, Buffer, DType, Meta};
use crc32fast::Hasher;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The format written, and the only one that is read.
///
/// ```
/// assert_eq!(bilevel::checkpoints::FORMAT_VERSION, 4);
/// ```
pub const FORMAT_VERSION: u32 = 4;

/// Bytes of a file that are on the host at once.
pub(crate) const CHUNK: usize = 16 << 20;

const MAGIC: &[u8; 8] = b"BILEVEL\0";
/// Bytes before the header.
const FRONT: usize = 24;
/// Bytes of the checksum at the end.
const BACK: usize = 4;
/// Bytes of the length that safetensors begin with, which is also the alignment of their header.
const TENSORS_FRONT: usize = 8;
/// A chunk holds at least one element.
const SMALLEST_CHUNK: usize = 8;

/// A tensor to be written, wherever it lies.
#[derive(Clone, Copy)]
pub(crate) enum Tensor<'a> {
    /// A tensor on the host.
    Array(&'a Array),
    /// A tensor on an executor.
    Buffer(&'a Buffer),
}

impl Tensor<'_> {
    fn info(&self) -> (DType, &[usize]) {
        match self {
            Tensor::Array(array) => (array.dtype(), array.shape()),
            Tensor::Buffer(buffer) => (buffer.dtype(), buffer.shape()),
        }
    }

    fn byte_count(&self) -> usize {
        match self {
            Tensor::Array(array) => array.bytes().len(),
            Tensor::Buffer(buffer) => buffer.byte_count(),
        }
    }

    fn read(&self, first: usize, into: &mut [u8]) -> io::Result<()> {
        match self {
            Tensor::Array(array) => into.copy_from_slice(&array.bytes()[first..first + into.len()]),
            Tensor::Buffer(buffer) => buffer.read_part(first, into).map_err(io::Error::other)?,
        }
        Ok(())
    }
}

/// Writes a checkpoint: its header, and all tensors of the header in their order, through one chunk of at most this
/// many bytes.
pub(crate) fn write(header: &Header, tensors: &[Tensor], chunk: usize, sink: &mut dyn Write) -> io::Result<()> {
    let (named, given) = (header.tensors().count(), tensors.len());
    if named != given {
        return Err(io::Error::other(format!("there are {given} tensors for {named} names")));
    }
    // As safetensors has them: the widest types first, so that all are aligned, and then by name.
    let mut all: Vec<(String, Dtype, Tensor)> =
        header.tensors().zip(tensors).map(|(n, t)| (n.name, stored(t.info().0), *t)).collect();
    all.sort_by(|(name, dtype, _), (other, others, _)| others.cmp(dtype).then(name.cmp(other)));
    let (mut infos, mut end) = (vec![], 0);
    for (name, dtype, tensor) in &all {
        let first = end;
        end += tensor.byte_count();
        let shape = tensor.info().1.to_vec();
        infos.push((name.clone(), TensorInfo { dtype: *dtype, shape, data_offsets: (first, end) }));
    }
    let mut names = serde_json::to_vec(&Metadata::new(None, infos).map_err(io::Error::other)?)?;
    names.resize(names.len().next_multiple_of(TENSORS_FRONT), b' ');
    let header = serde_json::to_vec(header)?;
    let header_length = u32::try_from(header.len()).map_err(io::Error::other)?;
    let length = FRONT + header.len() + TENSORS_FRONT + names.len() + end + BACK;

    let chunk = vec![0; chunk.min(length).max(SMALLEST_CHUNK)];
    let mut out = Out { sink, checksum: Hasher::new(), chunk, filled: 0 };
    out.put(MAGIC)?;
    out.put(&FORMAT_VERSION.to_le_bytes())?;
    out.put(&(length as u64).to_le_bytes())?;
    out.put(&header_length.to_le_bytes())?;
    out.put(&header)?;
    out.put(&(names.len() as u64).to_le_bytes())?;
    out.put(&names)?;
    // Ranks with parts of the tensors read the same stretches of them, whatever the length of their headers.
    out.flush()?;
    all.iter().try_for_each(|(_, _, tensor)| out.put_tensor(tensor))?;
    out.finish()
}

/// The output of a file, chunk by chunk, with a running checksum.
struct Out<'s> {
    sink: &'s mut dyn Write,
    checksum: Hasher,
    chunk: Vec<u8>,
    filled: usize,
}

impl Out<'_> {
    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(self.chunk.len() - self.filled));
            self.chunk[self.filled..][..part.len()].copy_from_slice(part);
            self.filled += part.len();
            bytes = rest;
            if !bytes.is_empty() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn put_tensor(&mut self, tensor: &Tensor) -> io::Result<()> {
        let (size, end) = (tensor.info().0.size(), tensor.byte_count());
        let mut first = 0;
        while first < end {
            // Whole elements only, whose bytes may have to be turned round.
            let room = (self.chunk.len() - self.filled) / size * size;
            if room == 0 {
                self.flush()?;
                continue;
            }
            let part = &mut self.chunk[self.filled..][..room.min(end - first)];
            tensor.read(first, part)?;
            turn_round(part, size);
            self.filled += part.len();
            first += part.len();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = &self.chunk[..self.filled];
        self.checksum.update(chunk);
        self.filled = 0;
        self.sink.write_all(chunk)
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.sink.write_all(&self.checksum.finalize().to_le_bytes())
    }
}

/// Machine order to little-endian, or back.
fn turn_round(bytes: &mut [u8], size: usize) {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::I32 => Dtype::I32,
    }
}

type Result<T> = std::result::Result<T, CheckpointError>;

/// A file whose length, checksum, header and list of tensors are right.
pub(crate) struct Opened<S> {
    source: S,
    header: Header,
    /// The tensors of the header, in its order.
    places: Vec<TensorPlace>,
    chunk: Vec<u8>,
}

/// The position of a tensor in the file.
struct TensorPlace {
    name: String,
    meta: Meta,
    first: u64,
    bytes: usize,
}

impl Opened<File> {
    /// Opens one file. Never panics on any content.
    pub fn file(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| CheckpointError::io("read", path, error);
        // Before opening: to open a pipe may wait for ever.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(CheckpointError::NotACheckpoint { path: path.to_path_buf() });
        }
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Self::new(file, length, CHUNK).map_err(|error| error.at(path))
    }
}

impl<S: Read + Seek> Opened<S> {
    /// Opens a source of this many bytes, to be read in chunks of at most `chunk`.
    pub fn new(mut source: S, length: u64, chunk: usize) -> Result<Self> {
        let damaged = |reason: &str| Err(CheckpointError::damaged(reason));
        let mut chunk = vec![0; chunk.min(usize::try_from(length).unwrap_or(chunk)).max(SMALLEST_CHUNK)];
        verify(&mut source, length, &mut chunk)?;
        // The rest is as it was written, unless the checksum was forged; even then nothing may panic or allocate more
        // bytes than the file has.
        let mut rest = length - (FRONT + BACK) as u64;
        source.seek(SeekFrom::Start(FRONT as u64 - 4)).map_err(failed)?;
        let header_length = u32::from_le_bytes(array(&mut source)?);
        let Some(header) = portion(&mut source, header_length.into(), &mut rest)? else {
            return damaged("its header is longer than the file");
        };
        let header: Header = match serde_json::from_slice(&header) {
            Ok(header) => header,
            Err(error) => return damaged(&format!("its header cannot be read: {error}")),
        };
        if !header.is_sound() {
            return damaged("its header holds sizes below 0");
        }
        let unreadable = |error: &dyn std::fmt::Display| damaged(&format!("its arrays cannot be read: {error}"));
        if rest < TENSORS_FRONT as u64 {
            return unreadable(&"there are none");
        }
        rest -= TENSORS_FRONT as u64;
        let names_length = u64::from_le_bytes(array(&mut source)?);
        let Some(names) = portion(&mut source, names_length, &mut rest)? else {
            return unreadable(&"their list is longer than the file");
        };
        let listed: Metadata = match serde_json::from_slice(&names) {
            Ok(listed) => listed,
            Err(error) => return unreadable(&error),
        };
        if listed.data_len() as u64 != rest {
            return unreadable(&format!("it has {rest} bytes for {}", listed.data_len()));
        }
        let start = length - BACK as u64 - rest;
        let places = header.tensors().map(|tensor| TensorPlace::new(&listed, start, tensor));
        let places = places.collect::<Result<Vec<_>>>()?;
        let asked: HashSet<&str> = places.iter().map(|place| &place.name[..]).collect();
        if let Some(name) = listed.offset_keys().iter().find(|name| !asked.contains(&name[..])) {
            return damaged(&format!("it holds '{name}', which is unknown"));
        }
        Ok(Opened { source, header, places, chunk })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Type and shape of every tensor, in the order of the header.
    pub fn metas(&self) -> impl Iterator<Item = &Meta> {
        self.places.iter().map(|place| &place.meta)
    }

    /// Copies a tensor of the header to a buffer of its type and shape.
    pub fn read_to(&mut self, number: usize, buffer: &Buffer) -> crate::Result<()> {
        self.stream(number, |first, bytes| Ok(buffer.write_part(first, bytes)?))
    }

    /// A tensor of the header as an array on the host.
    pub fn array(&mut self, number: usize) -> Result<Array> {
        let Meta { dtype, shape } = &self.places[number].meta;
        let mut array = Array::zeros(shape, *dtype);
        self.stream(number, |first, bytes| {
            array.bytes_mut()[first..first + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        Ok(array)
    }

    /// Calls `take(first, bytes)` with one stretch after the other of a tensor's bytes in machine order.
    fn stream<E: From<CheckpointError>>(
        &mut self,
        number: usize,
        mut take: impl FnMut(usize, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Opened { source, places, chunk, .. } = self;
        let TensorPlace { name, meta, first, bytes } = &places[number];
        let size = meta.dtype.size();
        source.seek(SeekFrom::Start(*first)).map_err(failed)?;
        let mut done = 0;
        while done < *bytes {
            let room = (chunk.len() / size * size).min(bytes - done);
            let part = &mut chunk[..room];
            source.read_exact(part).map_err(failed)?;
            turn_round(part, size);
            if !all_finite(part, meta.dtype) {
                return Err(CheckpointError::damaged(format!("'{name}' holds numbers that are not finite")).into());
            }
            take(done, part)?;
            done += room;
        }
        Ok(())
    }
}

impl TensorPlace {
    /// The position of the tensor of this name in a list whose elements begin at `start`.
    fn new(listed: &Metadata, start: u64, NamedTensor { name, known }: NamedTensor) -> Result<Self> {
        let damaged = |what: &str| CheckpointError::damaged(format!("'{name}' {what}"));
        let info = listed.info(&name).ok_or_else(|| damaged("is missing"))?;
        let types = [DType::F32, DType::F64, DType::I32];
        let dtype = types.into_iter().find(|dtype| stored(*dtype) == info.dtype);
        let fits = |dtype| known.is_none_or(|known| known == (dtype, &info.shape[..]));
        let dtype = dtype.filter(|dtype| fits(*dtype)).ok_or_else(|| damaged("has the wrong shape or type"))?;
        let (first, end) = info.data_offsets;
        let meta = Meta { dtype, shape: info.shape.clone() };
        Ok(TensorPlace { name, meta, first: start + first as u64, bytes: end - first })
    }
}

/// Sees in one pass that a file begins as a checkpoint does and that its length and checksum are right.
fn verify(source: &mut (impl Read + Seek), length: u64, chunk: &mut [u8]) -> Result<()> {
    let damaged = |reason: &str| Err(CheckpointError::damaged(reason));
    if length == 0 {
        return damaged("the file is empty");
    }
    source.rewind().map_err(failed)?;
    let mut front = [0; FRONT];
    let there = front.len().min(usize::try_from(length).unwrap_or(FRONT));
    source.read_exact(&mut front[..there]).map_err(failed)?;
    let front = &front[..there];
    let start = there.min(MAGIC.len());
    if front[..start] != MAGIC[..start] {
        return Err(CheckpointError::NotACheckpoint { path: PathBuf::new() });
    }
    let Some(version) = front.get(8..12).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else {
        return damaged("it ends before its version");
    };
    if version > FORMAT_VERSION {
        return Err(CheckpointError::NewerVersion { path: PathBuf::new(), found: version, known: FORMAT_VERSION });
    }
    if version == 0 {
        return damaged("there is no format 0");
    }
    // Before format 4 the inner loop was part of the method's settings.
    if version < FORMAT_VERSION {
        return Err(CheckpointError::OlderVersion { path: PathBuf::new(), found: version, known: FORMAT_VERSION });
    }
    let Some(expected) = front.get(12..20).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes) else {
        return damaged("it ends before its length");
    };
    if expected != length || length < (FRONT + BACK) as u64 {
        return damaged(&format!("it has {length} bytes and should have {expected}"));
    }
    let mut checksum = Hasher::new();
    checksum.update(front);
    let mut rest = length - (FRONT + BACK) as u64;
    while rest > 0 {
        let room = chunk.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let part = &mut chunk[..room];
        source.read_exact(part).map_err(failed)?;
        checksum.update(part);
        rest -= part.len() as u64;
    }
    if checksum.finalize().to_le_bytes() != array::<BACK>(source)? {
        return damaged("its contents do not match its checksum");
    }
    Ok(())
}

/// Returns this many of the remaining bytes; `None` if there are fewer.
fn portion(source: &mut impl Read, bytes: u64, rest: &mut u64) -> Result<Option<Vec<u8>>> {
    let (Some(left), Ok(length)) = (rest.checked_sub(bytes), usize::try_from(bytes)) else { return Ok(None) };
    *rest = left;
    let mut found = vec![0; length];
    source.read_exact(&mut found).map_err(failed)?;
    Ok(Some(found))
}

fn array<const N: usize>(source: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn failed(error: io::Error) -> CheckpointError {
    CheckpointError::io("read", Path::new(""), error)
}

/// Returns true if every element, in machine order, is finite.
fn all_finite(bytes: &[u8], dtype: DType) -> bool {
    // A chunk has the requested length, so none is left out.
    let four = |b: &[u8]| <[u8; 4]>::try_from(b).is_ok_and(|b| f32::from_ne_bytes(b).is_finite());
    let eight = |b: &[u8]| <[u8; 8]>::try_from(b).is_ok_and(|b| f64::from_ne_bytes(b).is_finite());
    match dtype {
        DType::F32 => bytes.chunks_exact(4).all(four),
        DType::F64 => bytes.chunks_exact(8).all(eight),
        DType::I32 => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiled::session::Session;
    use crate::methods::HpoSgld;
    use crate::outer::progress::{Numbers, Progress};
    use crate::programs::Leaves;
    use crate::{Driver, Leaf, Problem, State, Variable};
    use bilevel_cpu::Cpu;
    use std::io::Cursor;

    fn problem() -> Problem {
        Problem::builder(Leaf(Variable::normal([37], 1.0)), Leaf(Variable::normal([5, 3], 1.0)))
            .dtype(DType::F32)
            .inner(|_, l, t| (t.0 - l.0.sum_all()).square().sum_all())
            .outer(|_, _, t| t.0.square().sum_all())
            .build()
            .unwrap()
            .erase()
    }

    /// Leaves of all types, and one without numbers.
    fn progress(session: &Session, seed: u64) -> Progress {
        let executor = session.executor();
        let State { lambda, theta, .. } = session.state(crate::Key::from_seed(seed)).unwrap();
        let values = |count: usize| (0..count).map(|i| i as f64 + seed as f64).collect::<Vec<_>>();
        let memory = [
            Array::from_f64([11], values(11)).unwrap(),
            Array::from_values([2, 7], &values(14), DType::I32).unwrap(),
            Array::zeros([0, 4], DType::F32),
            Array::from_values([], &[0.5], DType::F32).unwrap(),
        ];
        let slots = vec![lambda.duplicate(executor).unwrap()];
        let memory = Leaves::upload(executor, &memory).unwrap();
        Progress { state: State { lambda, theta, memory }, slots, best: None, guarded: None, numbers: Numbers::new() }
    }

    fn written(progress: &Progress, chunk: usize) -> Vec<u8> {
        let identity = Driver::new(&problem(), HpoSgld::default()).identity();
        let header = Header::new(&identity, progress, &["velocity"]);
        let tensors: Vec<Tensor> = progress.buffers().map(Tensor::Buffer).collect();
        let mut bytes = vec![];
        write(&header, &tensors, chunk, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_size_of_the_chunk_changes_nothing_that_is_written_or_read() {
        let session = Session::new(&problem(), &Cpu::with_threads(1)).unwrap();
        let from = progress(&session, 1);
        let bytes = written(&from, CHUNK);
        // Other tools read the tensors too.
        let header = u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
        let others = safetensors::SafeTensors::deserialize(&bytes[FRONT + header..bytes.len() - BACK]).unwrap();
        assert_eq!(others.tensor("theta.").unwrap().shape(), [5, 3]);
        for chunk in [0, 1, 8, 9, 12, 20, 64, 100, 1000, bytes.len() - 1, bytes.len(), CHUNK] {
            assert_eq!(written(&from, chunk), bytes, "in chunks of {chunk}");
            let mut to = progress(&session, 2);
            let mut file = Opened::new(Cursor::new(&bytes), bytes.len() as u64, chunk).unwrap();
            to.load(&mut file, &session).unwrap();
            let arrays = |progress: &Progress| progress.buffers().map(|b| b.to_array().unwrap()).collect::<Vec<_>>();
            assert_eq!(arrays(&to), arrays(&from), "in chunks of {chunk}");
            let alone = (0..to.buffers().count()).map(|number| file.array(number).unwrap());
            assert_eq!(alone.collect::<Vec<_>>(), arrays(&from), "in chunks of {chunk}");
        }
    }

    #[test]
    fn damage_in_any_chunk_is_noticed_before_anything_is_read() {
        let session = Session::new(&problem(), &Cpu::with_threads(1)).unwrap();
        let mut bytes = written(&progress(&session, 1), CHUNK);
        for place in 0..bytes.len() {
            bytes[place] ^= 1;
            assert!(Opened::new(Cursor::new(&bytes), bytes.len() as u64, 64).is_err(), "byte {place}");
            bytes[place] ^= 1;
        }
    }

    #[test]
    fn what_ends_while_it_is_read_is_an_error() {
        let session = Session::new(&problem(), &Cpu::with_threads(1)).unwrap();
        let bytes = written(&progress(&session, 1), CHUNK);
        let shorter = Cursor::new(&bytes[..bytes.len() - 100]);
        assert!(matches!(Opened::new(shorter, bytes.len() as u64, 64), Err(CheckpointError::Io { .. })));
    }

    #[test]
    fn a_header_that_promises_more_than_the_file_has_is_refused_at_once() {
        let session = Session::new(&problem(), &Cpu::with_threads(1)).unwrap();
        let bytes = written(&progress(&session, 1), CHUNK);
        let length = u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
        let header = String::from_utf8(bytes[FRONT..FRONT + length].to_vec()).unwrap();
        let forged = header.replace("\"memory\":4", "\"memory\":18446744073709551615");
        assert_ne!(header, forged);
        let mut forged = [&bytes[..20], &(forged.len() as u32).to_le_bytes(), forged.as_bytes()].concat();
        forged.extend_from_slice(&bytes[FRONT + length..bytes.len() - BACK]);
        let whole = forged.len() as u64 + BACK as u64;
        forged[12..20].copy_from_slice(&whole.to_le_bytes());
        forged.extend_from_slice(&crc32fast::hash(&forged).to_le_bytes());
        let error = Opened::new(Cursor::new(&forged), whole, CHUNK).err().unwrap();
        assert!(error.to_string().contains("'memory.4' is missing"), "{error}");
    }
}
