//! Descriptions by which cuDNN's graphs are built and asked: made, filled attribute by attribute, finished.

use cudarc::cudnn::{CudnnError, sys};
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendDescriptorType_t as Kind;

/// What a call of the library answers.
pub(crate) type CudnnResult<T> = Result<T, CudnnError>;

/// A description of the library's, given back when it is dropped.
pub(crate) struct Descriptor(pub sys::cudnnBackendDescriptor_t);

// SAFETY: a description belongs to the library, not to a thread. It holds a pointer and so is not `Sync`: one thread
// has it at a time.
unsafe impl Send for Descriptor {}

impl Descriptor {
    /// One of a kind, with nothing in it.
    pub fn new(kind: Kind) -> CudnnResult<Self> {
        let mut made = std::ptr::null_mut();
        // SAFETY: there is room for what is made.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut made).result()? };
        Ok(Descriptor(made))
    }

    /// Sets an attribute to these values, which must be of the Rust type that stands for `kind`.
    pub fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> CudnnResult<()> {
        // SAFETY: as many values as is said; the library copies them.
        unsafe {
            sys::cudnnBackendSetAttribute(self.0, name, kind, values.len() as i64, values.as_ptr().cast()).result()
        }
    }

    /// Sets an attribute to other descriptions.
    pub fn refer(&self, name: Name, others: &[&Descriptor]) -> CudnnResult<()> {
        let others: Vec<_> = others.iter().map(|other| other.0).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &others)
    }

    /// Reads an attribute into these values, and says how many there are.
    pub fn get<T>(&self, name: Name, kind: Type, into: &mut [T]) -> CudnnResult<usize> {
        let mut count = 0;
        let room = into.len() as i64;
        // SAFETY: there is room for as many values as are asked for.
        unsafe {
            sys::cudnnBackendGetAttribute(self.0, name, kind, room, &mut count, into.as_mut_ptr().cast()).result()?;
        }
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Descriptions that an attribute refers to, the first this many of them.
    pub fn referred(&self, name: Name, kind: Kind, most: usize) -> CudnnResult<Vec<Descriptor>> {
        let mut found = (0..most).map(|_| Descriptor::new(kind)).collect::<CudnnResult<Vec<_>>>()?;
        let mut filled: Vec<_> = found.iter().map(|description| description.0).collect();
        let count = self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut filled)?;
        found.truncate(count);
        Ok(found)
    }

    /// The same, complete: it can be referred to and asked.
    pub fn finished(self) -> CudnnResult<Self> {
        // SAFETY: made in `new`.
        unsafe { sys::cudnnBackendFinalize(self.0).result()? };
        Ok(self)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and used by nobody else.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
