//! Serialised names of convolution algorithms for the tuning store.

use crate::conv::cudnn::engine::EngineName;
use crate::conv::im2col::Arrangement;

/// The stored name of a convolution algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConvAlgoKey {
    /// The legacy call, with the library's algorithm.
    Call,
    /// An engine of the graph API.
    Engine(EngineName),
    /// im2col and a GEMM.
    Im2col(Arrangement),
    /// The first engine that the library proposes, stored with its compiled kernels.
    Compiled,
}

impl ConvAlgoKey {
    /// Serialises the name.
    pub fn numbers(&self) -> Vec<u64> {
        match self {
            ConvAlgoKey::Call => vec![0],
            ConvAlgoKey::Engine(EngineName(numbers)) => [1].iter().chain(numbers).copied().collect(),
            ConvAlgoKey::Im2col(Arrangement::Together) => vec![2, 0],
            ConvAlgoKey::Im2col(Arrangement::ByImage) => vec![2, 1],
            ConvAlgoKey::Compiled => vec![3],
        }
    }

    /// Deserialises a name; `None` if it is damaged.
    pub fn read(numbers: &[u64]) -> Option<Self> {
        match numbers {
            [0] => Some(ConvAlgoKey::Call),
            // The engine's number, and two numbers per knob.
            [1, name @ ..] if name.len() % 2 == 1 => Some(ConvAlgoKey::Engine(EngineName(name.to_vec()))),
            [2, 0] => Some(ConvAlgoKey::Im2col(Arrangement::Together)),
            [2, 1] => Some(ConvAlgoKey::Im2col(Arrangement::ByImage)),
            [3] => Some(ConvAlgoKey::Compiled),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written_and_a_damaged_one_is_none() {
        let engine = |numbers: &[u64]| ConvAlgoKey::Engine(EngineName(numbers.to_vec()));
        let own = [Arrangement::Together, Arrangement::ByImage].map(ConvAlgoKey::Im2col);
        let library = [ConvAlgoKey::Call, ConvAlgoKey::Compiled, engine(&[34]), engine(&[0, 2, 5, 7, u64::MAX])];
        for name in library.into_iter().chain(own) {
            assert_eq!(ConvAlgoKey::read(&name.numbers()), Some(name));
        }
        for damaged in [&[][..], &[0, 0], &[1], &[1, 34, 2], &[2], &[2, 34], &[2, 0, 0], &[3, 0], &[u64::MAX]] {
            assert_eq!(ConvAlgoKey::read(damaged), None, "{damaged:?}");
        }
    }
}
