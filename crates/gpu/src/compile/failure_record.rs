//! The record of failed index checks, as kernels write it and the host reads it.
//!
//!   word 0      the number of the first operation that failed
//!   word 1 + n  the first index out of range of operation n, after its position: position·2³² + index
//!
//! Operations are numbered in execution order. All words start as [`NO_ERROR`], and kernels only lower them
//! (`failure_record.cu`), so the record does not depend on the order of threads. There is one word per operation, so
//! any number of operations fits. No failure is encoded as `NO_ERROR`: operation numbers are below the number of words,
//! and positions end at `LAST_PLACE`.

/// A word that no failure has lowered: all bits are set, so that it can be written byte by byte.
pub const NO_ERROR: u64 = u64::MAX;
/// The byte that fills [`NO_ERROR`].
pub const NO_ERROR_BYTE: u8 = u8::MAX;
/// Bytes of a word.
pub const WORD: usize = size_of::<u64>();
/// The bits of an index, below those of its position.
const INDEX_BITS: u32 = i32::BITS;
/// The last position that is distinguished from later ones; one more could not be distinguished from [`NO_ERROR`].
const LAST_PLACE: u64 = u32::MAX as u64 - 1;

/// Returns the bytes of the record for this many operations.
pub fn bytes(operations: usize) -> usize {
    (1 + operations) * WORD
}

/// Returns the first failed operation from word 0; `None` if there is none.
pub fn operation(word: u64) -> Option<usize> {
    (word != NO_ERROR).then_some(word as usize)
}

/// Returns the byte offset of an operation's word.
pub fn offset(operation: usize) -> usize {
    (1 + operation) * WORD
}

/// Returns the index out of range from the word of a failed operation.
pub fn index(word: u64) -> i32 {
    word as u32 as i32
}

/// Returns the definitions that `failure_record.cu` needs.
pub fn constants() -> String {
    format!("#define NO_ERROR {NO_ERROR}ull\n#define LAST_PLACE {LAST_PLACE}ull\n#define INDEX_BITS {INDEX_BITS}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::conformance::Dice;
    use std::process::Command;

    /// Returns the word of an operation as a kernel writes it.
    fn encoded(place: u64, index: i32) -> u64 {
        place.min(LAST_PLACE) << INDEX_BITS | u64::from(index as u32)
    }

    const PLACES: [u64; 9] = [0, 1, (1 << 22) - 1, 1 << 22, LAST_PLACE - 1, LAST_PLACE, 1 << 32, 1 << 40, u64::MAX];
    const INDICES: [i32; 7] = [-1, i32::MIN, i32::MAX, 0, 1, -2, 1023];
    const OPERATIONS: [usize; 7] = [0, 1, 1022, 1023, 1024, 1025, usize::MAX / WORD - 1];

    #[test]
    fn every_extreme_is_read_back_and_none_is_read_as_no_error() {
        for (place, found) in PLACES.iter().flat_map(|&place| INDICES.map(|index| (place, index))) {
            assert_ne!(encoded(place, found), NO_ERROR);
            assert_eq!(index(encoded(place, found)), found);
        }
        for number in OPERATIONS {
            assert_eq!(operation(number as u64), Some(number));
        }
        assert_eq!(operation(NO_ERROR), None);
        assert_eq!(NO_ERROR.to_ne_bytes(), [NO_ERROR_BYTE; WORD]);
    }

    #[test]
    fn an_earlier_place_is_a_smaller_word_whatever_its_index_is() {
        let mut dice = Dice::new(1);
        let mut draw = || (dice.below(1 << 33) as u64, dice.below(1 << 32) as u32 as i32);
        for _ in 0..10_000 {
            let ((place, index), (other, other_index)) = (draw(), draw());
            if place.min(LAST_PLACE) < other.min(LAST_PLACE) {
                assert!(encoded(place, index) < encoded(other, other_index));
            }
        }
    }

    /// The record after these failures of (operation, place, index), in this order.
    fn recorded(operations: usize, failures: &[(usize, u64, i32)]) -> Vec<u64> {
        let mut words = vec![NO_ERROR; bytes(operations) / WORD];
        for &(number, place, index) in failures {
            words[0] = words[0].min(number as u64);
            let own = &mut words[offset(number) / WORD];
            *own = (*own).min(encoded(place, index));
        }
        words
    }

    #[test]
    fn the_first_failure_in_program_order_is_read_whatever_the_order_of_threads() {
        let mut dice = Dice::new(2);
        for _ in 0..200 {
            let mut failures: Vec<(usize, u64, i32)> = (0..dice.below(20) + 1)
                .map(|_| (dice.below(3000), dice.below(1 << 23) as u64, -1 - dice.below(5) as i32))
                .collect();
            let words = recorded(3000, &failures);
            let &(number, place, _) = failures.iter().min().unwrap();
            let first = operation(words[0]).unwrap();
            assert_eq!(first, number);
            let found = index(words[offset(first) / WORD]);
            assert!(failures.contains(&(number, place, found)));
            failures.reverse();
            assert_eq!(recorded(3000, &failures), words);
        }
    }

    /// Compiles `failure_record.cu` for the host, with a function call for each thread.
    #[test]
    fn kernels_write_the_record_that_the_host_reads() {
        let mut cases: Vec<(usize, u64, i32)> = vec![];
        for (number, &operation) in OPERATIONS[..6].iter().enumerate() {
            let places = PLACES.iter().enumerate().skip(number % 2);
            cases.extend(places.map(|(n, &place)| (operation, place, INDICES[(n + number) % INDICES.len()])));
        }
        let calls: String = cases
            .iter()
            .map(|(operation, place, index)| format!("    show({operation}, {place}ull, (int){index}ll);\n"))
            .collect();
        let words = bytes(1026) / WORD;
        let text = format!(
            "#include <stdbool.h>\n#include <stdio.h>\ntypedef unsigned int u32;\ntypedef unsigned long long u64;\n\
             #define DEVICE static inline\n\
             static void ATOMIC_MIN(u64* word, u64 value) {{ if (value < *word) *word = value; }}\n\
             {}{}static void show(u64 operation, u64 place, int index) {{\n    static u64 words[{words}];\n    \
             for (int i = 0; i < {words}; ++i) words[i] = NO_ERROR;\n    int before = has_failed(words);\n    \
             report(words, operation, place, index);\n    \
             printf(\"%d %d %llu %llu\\n\", before, (int)has_failed(words), words[0], words[1 + operation]);\n}}\n\
             int main(void) {{\n{calls}    return 0;\n}}\n",
            constants(),
            include_str!("../codegen/library/failure_record.h"),
        );
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("errors.c"), folder.path().join("errors"));
        std::fs::write(&source, text).unwrap();
        // The compiler that links Rust programs.
        let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap();
        assert!(compiled.success());
        let output = Command::new(&program).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let expected: String = cases
            .iter()
            .map(|&(operation, place, index)| format!("0 1 {operation} {}\n", encoded(place, index)))
            .collect();
        assert_eq!(lines, expected);
    }
}
