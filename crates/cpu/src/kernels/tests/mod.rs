//! Tests of the kernels: accuracy, random draws, tiles of every length, and speed.

/// Calls a kernel in a test.
macro_rules! kernel {
    ($call:expr) => {
        // SAFETY: tests ask only for instruction sets that are available, and their buffers hold the elements that the call names.
        unsafe { $call }
    };
}

mod math;
mod random;
mod speed;
mod tiles;
