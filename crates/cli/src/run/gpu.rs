//! GPUs, opened when a run needs them and kept open.

use crate::errors::Result;
use bilevel_cuda::Cuda;
use bilevel_graph::Executor;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// The executor of a GPU.
pub fn executor(number: usize) -> Result<Arc<dyn Executor>> {
    Ok(Arc::new(opened(number)?))
}

/// The name of a GPU.
pub fn name(number: usize) -> Result<String> {
    Ok(opened(number)?.info().name)
}

/// GPUs that were opened and that no thread has now. They stay open, so that kernels that were loaded can be used again.
static IDLE: Mutex<Vec<(usize, Cuda)>> = Mutex::new(vec![]);

/// The GPUs of one thread, which go back to [`IDLE`] when it ends.
#[derive(Default)]
struct Held(HashMap<usize, Cuda>);

impl Drop for Held {
    fn drop(&mut self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.drain());
    }
}

thread_local! {
    static HELD: RefCell<Held> = RefCell::default();
}

/// The GPU with this number, with one queue per thread, so that the work of several threads runs concurrently.
fn opened(number: usize) -> Result<Cuda> {
    let idle = || {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = idle.iter().position(|(other, _)| *other == number)?;
        Some(idle.swap_remove(place).1)
    };
    HELD.with_borrow_mut(|held| match held.0.entry(number) {
        Entry::Occupied(held) => Ok(held.get().clone()),
        Entry::Vacant(place) => Ok(place.insert(idle().map_or_else(|| Cuda::new(number), Ok)?).clone()),
    })
}
