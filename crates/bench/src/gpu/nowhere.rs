//! An executor without a machine: buffers hold nothing, numbers read as zeros, and a program does nothing when it runs.
//! Only the host's work of a run remains. Results as large as a network cannot be read, so a run ends with an error
//! after its iterations.

use bilevel_graph::{Bindings, Buffer, Error, ErrorKind, Executor, Meta, Program, Result, Runnable, Storage};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes that can be read at once.
const MOST: usize = 1 << 16;

/// The executor.
#[derive(Clone, Copy)]
pub struct Nowhere;

struct Idle(Bindings);

struct Zeros;

impl Executor for Nowhere {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        Ok(Box::new(Idle(Bindings::new(program.clone()))))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        Ok(Buffer::new(meta.clone(), Box::new(Zeros)))
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(*self)
    }
}

impl Runnable for Idle {
    fn bindings(&self) -> &Bindings {
        &self.0
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.0
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        Nowhere.buffer(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        buffer.storage().as_any().is::<Zeros>()
    }

    // Unsafe only by the trait: nothing is touched.
    unsafe fn execute(&mut self, _: Range<u32>) -> Result<()> {
        Ok(())
    }
}

// As above.
impl Storage for Zeros {
    unsafe fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    unsafe fn read(&self, _: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() > MOST {
            let what = "no machine could have computed the values to read".into();
            return Err(Error::new(ErrorKind::Device { what }));
        }
        bytes.fill(0);
        Ok(())
    }

    unsafe fn copy_from(&self, other: &dyn Storage, _: Range<usize>) -> Result<bool> {
        Ok(other.as_any().is::<Zeros>())
    }

    unsafe fn zero(&self) -> Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
