//! Backend descriptors of cuDNN's graph API: created, filled attribute by attribute, finalised.

use cudarc::cudnn::{CudnnError, sys};
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendDescriptorType_t as Kind;

/// The result of a cuDNN call.
pub(crate) type CudnnResult<T> = Result<T, CudnnError>;

/// A backend descriptor, destroyed when dropped.
pub(crate) struct Descriptor(pub sys::cudnnBackendDescriptor_t);

// SAFETY: a descriptor is not bound to a thread. It holds a pointer and so is not `Sync`: one thread uses it at a time.
unsafe impl Send for Descriptor {}

impl Descriptor {
    /// Creates an empty descriptor.
    pub fn new(kind: Kind) -> CudnnResult<Self> {
        let mut made = std::ptr::null_mut();
        // SAFETY: there is room for the pointer.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut made).result()? };
        Ok(Descriptor(made))
    }

    /// Sets an attribute to these values, which must be of the Rust type that corresponds to `kind`.
    pub fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> CudnnResult<()> {
        // SAFETY: the count is that of the values, which the library copies.
        unsafe {
            sys::cudnnBackendSetAttribute(self.0, name, kind, values.len() as i64, values.as_ptr().cast()).result()
        }
    }

    /// Sets an attribute to other descriptors.
    pub fn refer(&self, name: Name, others: &[&Descriptor]) -> CudnnResult<()> {
        let others: Vec<_> = others.iter().map(|other| other.0).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &others)
    }

    /// Reads an attribute into these values, and returns their number.
    pub fn get<T>(&self, name: Name, kind: Type, into: &mut [T]) -> CudnnResult<usize> {
        let mut count = 0;
        let room = into.len() as i64;
        // SAFETY: there is room for as many values as are requested.
        unsafe {
            sys::cudnnBackendGetAttribute(self.0, name, kind, room, &mut count, into.as_mut_ptr().cast()).result()?;
        }
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the descriptors that an attribute refers to, up to `most`.
    pub fn referred(&self, name: Name, kind: Kind, most: usize) -> CudnnResult<Vec<Descriptor>> {
        let mut found = (0..most).map(|_| Descriptor::new(kind)).collect::<CudnnResult<Vec<_>>>()?;
        let mut filled: Vec<_> = found.iter().map(|description| description.0).collect();
        let count = self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut filled)?;
        found.truncate(count);
        Ok(found)
    }

    /// Finalises the descriptor, so that it can be used.
    pub fn finished(self) -> CudnnResult<Self> {
        // SAFETY: created in `new`.
        unsafe { sys::cudnnBackendFinalize(self.0).result()? };
        Ok(self)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and owned by this value alone.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
