//! Serialised convolutions and their algorithms, for the tuning store.

use crate::autotune::store::Tunable;
use crate::conv::canonical::{ConvPass, Geometry};
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

/// The kind of stored choices. Change it if candidates or selection change.
const CONVOLUTION: &str = "convolution by cuDNN or patches, timed beside others";
/// The same for bf16.
const BF16: &str = "convolution in two bytes by any engine or patches, timed beside others";

impl Tunable for Geometry {
    type Choice = ConvAlgoKey;

    fn kind(&self) -> &'static str {
        if self.is_bf16() { BF16 } else { CONVOLUTION }
    }

    fn descriptor(&self) -> Vec<u64> {
        let Geometry { pass, x, w, y, stride, padding, dilation, groups, .. } = *self;
        let pass = match pass {
            ConvPass::Fprop => 0,
            ConvPass::Dgrad => 1,
            ConvPass::Wgrad => 2,
        };
        let lengths = [&x[..], &w, &y, &stride, &padding, &dilation, &[groups]].concat();
        let flags = [self.rounds(), self.channels_last(), self.is_bf16()].map(u64::from);
        [pass].into_iter().chain(lengths.into_iter().map(|length| length as u64)).chain(flags).collect()
    }

    fn write(choice: &ConvAlgoKey) -> Vec<u64> {
        match choice {
            ConvAlgoKey::Call => vec![0],
            ConvAlgoKey::Engine(EngineName(numbers)) => [1].iter().chain(numbers).copied().collect(),
            ConvAlgoKey::Im2col(Arrangement::Together) => vec![2, 0],
            ConvAlgoKey::Im2col(Arrangement::ByImage) => vec![2, 1],
            ConvAlgoKey::Compiled => vec![3],
        }
    }

    fn read(numbers: &[u64]) -> Option<ConvAlgoKey> {
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
    use crate::conv::canonical::ImageLayout;
    use crate::conv::im2col::tests::example;
    use bilevel_graph::Precision;
    use bilevel_plan::StorageType;

    #[test]
    fn a_name_is_read_as_it_was_written_and_a_damaged_one_is_none() {
        let engine = |numbers: &[u64]| ConvAlgoKey::Engine(EngineName(numbers.to_vec()));
        let own = [Arrangement::Together, Arrangement::ByImage].map(ConvAlgoKey::Im2col);
        let library = [ConvAlgoKey::Call, ConvAlgoKey::Compiled, engine(&[34]), engine(&[0, 2, 5, 7, u64::MAX])];
        for name in library.into_iter().chain(own) {
            assert_eq!(Geometry::read(&Geometry::write(&name)), Some(name));
        }
        for damaged in [&[][..], &[0, 0], &[1], &[1, 34, 2], &[2], &[2, 34], &[2, 0, 0], &[3, 0], &[u64::MAX]] {
            assert_eq!(Geometry::read(damaged), None, "{damaged:?}");
        }
    }

    /// Later versions must read what earlier ones have stored, or name another kind.
    #[test]
    fn a_geometry_has_the_same_descriptor_in_every_version() {
        let geometry = example(ConvPass::Wgrad, [32, 192, 384, 8]);
        let lengths = [2, 32, 192, 8, 8, 384, 192, 3, 3, 32, 384, 8, 8, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!(geometry.descriptor(), [&lengths[..], &[1, 0, 0]].concat());
        let others = [
            Geometry { pass: ConvPass::Dgrad, ..geometry },
            Geometry { layout: ImageLayout::Nhwc, ..geometry },
            Geometry { precision: Precision::Full, ..geometry },
            Geometry { x: [16, 192, 8, 8], y: [16, 384, 8, 8], ..geometry },
            Geometry { padding: [0, 1], ..geometry },
            Geometry { layout: ImageLayout::Nhwc, storage: StorageType::Bf16, ..geometry },
        ];
        assert!(others.iter().all(|other| other.descriptor() != geometry.descriptor()));
        assert_ne!(others[5].kind(), geometry.kind());
    }
}
