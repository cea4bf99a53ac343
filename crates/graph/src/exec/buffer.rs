//! A tensor's memory on the executor that computes with it.

use crate::ir::infer::Meta;
use crate::{Array, DType, Error, ErrorKind, Result};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Memory of an executor that holds one tensor: on the CPU a block of bytes, on a GPU memory of the device. A program is
/// bound to buffers and works in them; nothing is copied to the host except on request.
///
/// A buffer is a handle: its clones are the same memory. [`duplicate`](crate::Executor::duplicate) makes a copy.
///
/// ```
/// use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};
/// let g = Graph::new();
/// let x = g.input("x", [2], DType::F64);
/// let program = Program::builder(&g).carry(x, x * 2.0).build()?;
///
/// let buffer = Reference.upload(&Array::from_f64([2], vec![1.0, 3.0])?)?;
/// let mut run = Reference.compile(&program)?;
/// run.bind_input(0, &buffer)?;
/// run.run(0..3)?;
/// assert_eq!(buffer.to_array()?.to_f64(), [8.0, 24.0]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
}

struct Inner {
    meta: Meta,
    id: u64,
    /// How often it was written; a result computed from it can tell whether it is still valid.
    version: AtomicU64,
    /// −1 during a write, otherwise the number of readers.
    users: AtomicI32,
    /// A run that should have filled it failed.
    failed: AtomicBool,
    /// The memory is somebody else's.
    read_only: bool,
    storage: Box<dyn Storage>,
}

/// How a run uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads it; others may also read it.
    Read,
    /// It writes it, alone.
    Write,
}

/// The memory of a [`Buffer`], provided by an executor.
pub trait Storage: Any + Send + Sync {
    /// Overwrites the bytes from this one on with these.
    ///
    /// # Safety
    /// There must be no other use of the storage meanwhile, and the last byte written must be one of the buffer's.
    unsafe fn write(&self, first: usize, bytes: &[u8]) -> Result<()>;

    /// Copies the bytes from this one on, as many as there is room for.
    ///
    /// # Safety
    /// There must be no write to the storage meanwhile, and the last byte read must be one of the buffer's.
    unsafe fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()>;

    /// Takes a stretch of the bytes of another storage of the same executor, type and shape; false if the other one is
    /// of another executor.
    ///
    /// # Safety
    /// Meanwhile there must be no other use of this storage, and no write to the other; the last byte must be one of
    /// the buffers'.
    unsafe fn copy_from(&self, other: &dyn Storage, stretch: Range<usize>) -> Result<bool>;

    /// Sets every element to 0.
    ///
    /// # Safety
    /// There must be no other use of the storage meanwhile.
    unsafe fn zero(&self) -> Result<()>;

    /// The storage as its own type, for the executor it belongs to.
    fn as_any(&self) -> &dyn Any;
}

impl Buffer {
    /// A buffer on this storage, for executors.
    pub fn new(meta: Meta, storage: Box<dyn Storage>) -> Self {
        Self::made(meta, storage, false)
    }

    /// As [`new`](Self::new), of memory that belongs to somebody else: it is never written.
    pub fn read_only(meta: Meta, storage: Box<dyn Storage>) -> Self {
        Self::made(meta, storage, true)
    }

    fn made(meta: Meta, storage: Box<dyn Storage>, read_only: bool) -> Self {
        static BUFFERS: AtomicU64 = AtomicU64::new(0);
        let id = BUFFERS.fetch_add(1, Relaxed);
        let (version, users, failed) = (AtomicU64::new(0), AtomicI32::new(0), AtomicBool::new(false));
        Buffer { inner: Arc::new(Inner { meta, id, version, users, failed, read_only, storage }) }
    }

    /// Type and shape.
    pub fn meta(&self) -> &Meta {
        &self.inner.meta
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.inner.meta.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.inner.meta.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        crate::shape::element_count(self.shape())
    }

    /// Returns true when it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its elements.
    pub fn byte_count(&self) -> usize {
        self.len() * self.dtype().size()
    }

    /// Returns true if both are the same memory.
    pub fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// A number that no other buffer has or had. Together with the [`version`](Self::version) it identifies the
    /// elements.
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Executor, Reference};
    /// let [a, b] = [1.0, 2.0].map(|x| Reference.upload(&Array::scalar(x, DType::F64)).unwrap());
    /// assert!(a.id() != b.id() && a.id() == a.clone().id());
    /// ```
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// How often it was written.
    pub fn version(&self) -> u64 {
        self.inner.version.load(Relaxed)
    }

    /// Its storage, for the executor it belongs to.
    pub fn storage(&self) -> &dyn Storage {
        &*self.inner.storage
    }

    /// Overwrites it with an array of its type and shape.
    pub fn write(&self, value: &Array) -> Result<()> {
        self.check(value)?;
        self.write_bytes(value.bytes())
    }

    /// Overwrites it with the bytes of its elements in machine order, as [`Array::bytes`] gives them.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.check_bytes(bytes.len())?;
        self.write_part(0, bytes)
    }

    /// Overwrites a stretch of its bytes, in machine order, from this one on, for content that does not fit into memory
    /// at once.
    ///
    /// ```
    /// use bilevel_graph::{Array, Executor, Reference};
    /// let buffer = Reference.upload(&Array::from_f32([3], vec![1.0, 2.0, 3.0])?)?;
    /// buffer.write_part(4, &5f32.to_ne_bytes())?;
    /// assert_eq!(buffer.to_array()?.to_f64(), [1.0, 5.0, 3.0]);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn write_part(&self, first: usize, bytes: &[u8]) -> Result<()> {
        self.check_part(first, bytes.len())?;
        // SAFETY: the access is held, and the stretch was checked.
        self.writing(bytes.len(), || unsafe { self.inner.storage.write(first, bytes) })
    }

    /// Copies its elements into an array of its type and shape.
    pub fn read(&self, into: &mut Array) -> Result<()> {
        self.check(into)?;
        self.read_bytes(into.bytes_mut())
    }

    /// As [`read`](Self::read), into an array whose type and shape are known to be the buffer's.
    pub(crate) fn read_fitting(&self, into: &mut Array) -> Result<()> {
        debug_assert!(self.check(into).is_ok(), "whoever calls has checked it");
        // SAFETY: the access is held, and an array of the same type and shape has as many bytes.
        self.reading(|| unsafe { self.inner.storage.read(0, into.bytes_mut()) })
    }

    /// Copies the bytes of its elements, in machine order.
    pub fn read_bytes(&self, into: &mut [u8]) -> Result<()> {
        self.check_bytes(into.len())?;
        self.read_part(0, into)
    }

    /// Copies a stretch of its bytes, in machine order, from this one on.
    ///
    /// ```
    /// use bilevel_graph::{Array, Executor, Reference};
    /// let buffer = Reference.upload(&Array::from_f32([3], vec![1.0, 2.0, 3.0])?)?;
    /// let mut last = [0; 4];
    /// buffer.read_part(8, &mut last)?;
    /// assert_eq!(f32::from_ne_bytes(last), 3.0);
    /// assert!(buffer.read_part(9, &mut last).is_err());
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn read_part(&self, first: usize, into: &mut [u8]) -> Result<()> {
        self.check_part(first, into.len())?;
        // SAFETY: the access is held, and the stretch was checked.
        self.reading(|| unsafe { self.inner.storage.read(first, into) })
    }

    /// A copy of its elements on the host.
    pub fn to_array(&self) -> Result<Array> {
        let mut array = Array::zeros(self.shape(), self.dtype());
        self.read(&mut array)?;
        Ok(array)
    }

    /// The number in a buffer of one element, such as a loss, as a 64-bit float.
    pub fn item(&self) -> Result<f64> {
        let mut bytes = [0; 8];
        self.read_bytes(&mut bytes[..self.dtype().size()])?;
        let [a, b, c, d, ..] = bytes;
        Ok(match self.dtype() {
            DType::F64 => f64::from_ne_bytes(bytes),
            DType::F32 => f32::from_ne_bytes([a, b, c, d]) as f64,
            DType::I32 => i32::from_ne_bytes([a, b, c, d]) as f64,
        })
    }

    /// Sets the number in a buffer of one element, rounded to its type.
    pub fn set_item(&self, value: f64) -> Result<()> {
        match self.dtype() {
            DType::F64 => self.write_bytes(&value.to_ne_bytes()),
            DType::F32 => self.write_bytes(&(value as f32).to_ne_bytes()),
            DType::I32 => self.write_bytes(&(value as i32).to_ne_bytes()),
        }
    }

    /// Returns true if there is another handle to the same memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Takes the elements of another buffer of the same executor, type and shape, without the host.
    pub fn copy_from(&self, other: &Buffer) -> Result<()> {
        self.copy_part_from(other, 0..self.byte_count())
    }

    /// As [`copy_from`](Self::copy_from), a stretch of the bytes alone: for a table of which few rows have changed.
    ///
    /// ```
    /// use bilevel_graph::{Array, Executor, Reference};
    /// let [a, b] = [[1.0, 2.0], [3.0, 4.0]].map(|x| Reference.upload(&Array::from_f32([2], x.to_vec()).unwrap()).unwrap());
    /// a.copy_part_from(&b, 4..8)?;
    /// assert_eq!(a.to_array()?.to_f64(), [1.0, 4.0]);
    /// assert!(a.copy_part_from(&b, 4..9).is_err());
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn copy_part_from(&self, other: &Buffer, stretch: Range<usize>) -> Result<()> {
        self.check_part(stretch.start, stretch.len())?;
        if self.is_same(other) {
            return Ok(());
        }
        if self.meta() != other.meta() {
            let (expected, found) = (self.meta().clone(), other.meta().clone());
            return Err(wrong("the buffer", &expected, (found.dtype, found.shape)));
        }
        let bytes = stretch.len();
        // SAFETY: both accesses are held, and the stretch was checked.
        let copy = || unsafe { self.inner.storage.copy_from(&*other.inner.storage, stretch) };
        let copied = other.reading(|| self.writing(bytes, copy))?;
        if copied { Ok(()) } else { Err(Error::new(ErrorKind::ForeignBuffer { name: "a copy".into() })) }
    }

    /// Sets every element to 0.
    pub fn zero(&self) -> Result<()> {
        // SAFETY: the access is held.
        self.writing(self.byte_count(), || unsafe { self.inner.storage.zero() })
    }

    /// Acquires the buffer. It is an error to acquire a buffer during another's write, to write it during a read, or to
    /// read it if a failed run should have filled it. Every acquisition must be released.
    pub fn acquire(&self, access: Access) -> Result<()> {
        self.permit(access)?;
        let begun = match access {
            Access::Write => self.inner.users.compare_exchange(0, -1, Acquire, Relaxed),
            Access::Read => self.inner.users.fetch_update(Acquire, Relaxed, |n| (n >= 0).then_some(n + 1)),
        };
        begun.map_err(|_| Error::new(ErrorKind::BufferBusy))?;
        if access == Access::Read && self.inner.failed.load(Relaxed) {
            self.inner.users.fetch_sub(1, Release);
            return Err(Error::new(ErrorKind::RunFailed));
        }
        Ok(())
    }

    /// Ends a use that was acquired; `good` tells whether the written elements are valid.
    ///
    /// # Safety
    /// Once for every [`acquire`](Self::acquire) that succeeded, when the use has ended.
    pub unsafe fn release(&self, access: Access, good: bool) {
        match access {
            Access::Read => {
                self.inner.users.fetch_sub(1, Release);
            }
            Access::Write => {
                // Only the one writer changes these, and the next user sees them by the order of `users`.
                self.inner.failed.store(!good, Relaxed);
                self.inner.version.store(self.inner.version.load(Relaxed) + 1, Relaxed);
                self.inner.users.store(0, Release);
            }
        }
    }

    /// Returns true if there is no other handle, so that there is no other use of the memory while it is borrowed.
    fn is_alone(&mut self) -> bool {
        let alone = !self.is_shared();
        // All uses of the last other handle happened before its drop.
        fence(Acquire);
        alone
    }

    /// As [`acquire`](Self::acquire); without another handle no lock is needed, which is much cheaper.
    pub(crate) fn acquire_mut(&mut self, access: Access) -> Result<()> {
        if !self.is_alone() {
            return self.acquire(access);
        }
        self.permit(access)?;
        let users = self.inner.users.load(Relaxed);
        let (free, after) = match access {
            Access::Write => (users == 0, -1),
            Access::Read => (users >= 0, users + 1),
        };
        if !free {
            return Err(Error::new(ErrorKind::BufferBusy));
        }
        if access == Access::Read && self.inner.failed.load(Relaxed) {
            return Err(Error::new(ErrorKind::RunFailed));
        }
        self.inner.users.store(after, Relaxed);
        Ok(())
    }

    /// As [`release`](Self::release), with the handle in hand.
    ///
    /// # Safety
    /// As for [`release`](Self::release).
    pub(crate) unsafe fn release_mut(&mut self, access: Access, good: bool) {
        if access == Access::Read && self.is_alone() {
            return self.inner.users.store(self.inner.users.load(Relaxed) - 1, Release);
        }
        // SAFETY: the caller's promise.
        unsafe { self.release(access, good) };
    }

    /// As [`write`](Self::write), with the handle in hand, of an array whose type and shape are known to be the buffer's.
    pub(crate) fn write_fitting(&mut self, value: &Array) -> Result<()> {
        debug_assert!(self.check(value).is_ok(), "whoever calls has checked it");
        self.acquire_mut(Access::Write)?;
        // SAFETY: the access is held, and an array of the same type and shape has as many bytes.
        let done = unsafe { self.inner.storage.write(0, value.bytes()) };
        // SAFETY: acquired above, and the work has ended.
        unsafe { self.release_mut(Access::Write, done.is_ok()) };
        done
    }

    /// Refuses to write what belongs to somebody else.
    fn permit(&self, access: Access) -> Result<()> {
        match (access, self.inner.read_only) {
            (Access::Write, true) => Err(Error::new(ErrorKind::ReadOnlyBuffer)),
            _ => Ok(()),
        }
    }

    fn reading<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.acquire(Access::Read)?;
        let done = work();
        // SAFETY: acquired above, and the work has ended.
        unsafe { self.release(Access::Read, true) };
        done
    }

    /// Work that writes this many bytes.
    fn writing<R>(&self, bytes: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.acquire(Access::Write)?;
        let done = work();
        // A part that is right does not make up for another that a run left in no particular state.
        let whole = bytes == self.byte_count();
        let good = done.is_ok() && (whole || !self.inner.failed.load(Relaxed));
        // SAFETY: acquired above, and the work has ended.
        unsafe { self.release(Access::Write, good) };
        done
    }

    fn check(&self, value: &Array) -> Result<()> {
        if value.dtype() != self.dtype() || !value.shape().iter().eq(self.shape()) {
            return Err(wrong("the buffer", self.meta(), (value.dtype(), value.shape().to_vec())));
        }
        Ok(())
    }

    fn check_bytes(&self, found: usize) -> Result<()> {
        if found != self.byte_count() {
            let shape = self.shape().to_vec();
            return Err(Error::new(ErrorKind::WrongLength { shape, found: found / self.dtype().size() }));
        }
        Ok(())
    }

    fn check_part(&self, first: usize, bytes: usize) -> Result<()> {
        let (whole, end) = (self.byte_count(), first.saturating_add(bytes));
        if end > whole {
            return Err(Error::new(ErrorKind::BeyondBuffer { first, end, bytes: whole }));
        }
        Ok(())
    }
}

fn wrong(name: &str, expected: &Meta, found: (DType, Vec<usize>)) -> Error {
    let expected = (expected.dtype, expected.shape.clone());
    Error::new(ErrorKind::WrongValue { name: name.into(), expected, found })
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}{:?})", self.dtype(), self.shape())
    }
}
