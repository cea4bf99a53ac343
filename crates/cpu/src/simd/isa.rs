//! Instruction sets of this machine, detected once for all kernels.

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// Any machine.
    Portable,
}

impl Isa {
    /// All instruction sets, the best first.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// Returns true if this machine can run it. A kernel of another one must not be called.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The instruction sets that this machine can run, best first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The best instruction set of this machine.
    pub fn detect() -> Isa {
        Isa::ALL.into_iter().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }
}
