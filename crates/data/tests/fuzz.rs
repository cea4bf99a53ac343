//! Damaged files of every format: errors, no panics, no giant allocations.

mod fuzzing;

/// Inputs per reader; `cargo run --release -p bilevel-data --example fuzz -- --inputs N` reads more.
const INPUTS: u64 = 2000;

#[test]
fn damaged_files_of_every_format_give_errors_and_never_a_panic_or_a_giant_allocation() {
    for target in fuzzing::targets() {
        target.sound().unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let tally = target.run(INPUTS, 1);
        assert!(tally.panics.is_empty(), "{}: panics at the inputs {:?}", target.name, tally.panics);
        assert!(tally.giants.is_empty(), "{}: large allocations at the inputs {:?}", target.name, tally.giants);
        assert_eq!(tally.accepted + tally.refused, INPUTS);
        assert!(tally.refused > INPUTS / 4, "{}: only {} were refused", target.name, tally.refused);
    }
}
