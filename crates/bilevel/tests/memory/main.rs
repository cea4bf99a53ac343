//! The tests that count bytes: one program with an allocator of its own, and one test at a time.

mod data;
mod fall_back;
mod peak;
mod postmortem;
mod streaming;
mod unrolled;

#[path = "../../../cpu/tests/common/counting.rs"]
#[allow(dead_code)] // Some of it is for tests of the executor.
mod counting;

#[path = "../it/with.rs"]
mod with;

use std::sync::Mutex;

/// Held by each test: bytes are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
