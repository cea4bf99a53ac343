//! Benchmarks of the engine.
fn main() {}
