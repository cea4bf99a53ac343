//! The parts of the device library that a kernel may use.

/// A part of the device library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Reductions across threads.
    Reduce,
    /// The index of the largest element.
    Argmax,
    /// Random draws.
    Random,
    /// 1 + erf(x).
    Erf,
    /// Digamma and polygamma.
    Gamma,
    /// Operations on whole rows or matrices.
    BlockOps,
    /// Rows gathered inside loops.
    InlineGather,
    /// The record of failed index checks.
    FailureRecord,
    /// Rounding to tf32 and bf16, and bf16 storage.
    Bf16,
    /// Scaled fp16.
    ScaledF16,
    /// Batched products by matrix instructions.
    BatchedMma,
    /// Fused attention.
    FusedAttention,
}

impl Part {
    /// All parts, each after those it uses.
    pub const ALL: [Part; 12] = [
        Part::Reduce,
        Part::Argmax,
        Part::Random,
        Part::Erf,
        Part::Gamma,
        Part::BlockOps,
        Part::InlineGather,
        Part::FailureRecord,
        Part::Bf16,
        Part::ScaledF16,
        Part::BatchedMma,
        Part::FusedAttention,
    ];

    /// Returns the part with those that it uses.
    fn closure(self) -> Parts {
        match self {
            Part::BatchedMma => Parts::of(self).with(Part::Bf16),
            Part::FusedAttention => Parts::of(self).with(Part::BatchedMma),
            _ => Parts::of(self),
        }
    }
}

/// A set of parts, closed under use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts(u16);

impl Parts {
    fn of(part: Part) -> Parts {
        Parts(1 << part as u16)
    }

    /// Returns the set with one more part, and those that it uses.
    #[must_use]
    pub fn with(self, part: Part) -> Parts {
        Parts(self.0 | part.closure().0)
    }

    /// Returns true if a part is in the set.
    pub fn has(self, part: Part) -> bool {
        self.0 & Parts::of(part).0 != 0
    }

    /// Returns the parts, each after those it uses.
    pub fn iter(self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |part| self.has(*part))
    }
}

impl FromIterator<Parts> for Parts {
    fn from_iter<I: IntoIterator<Item = Parts>>(sets: I) -> Self {
        Parts(sets.into_iter().fold(0, |all, set| all | set.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_comes_with_all_that_it_uses_and_after_it() {
        let parts: Vec<Part> = Parts::default().with(Part::FusedAttention).with(Part::Reduce).iter().collect();
        assert_eq!(parts, [Part::Reduce, Part::Bf16, Part::BatchedMma, Part::FusedAttention]);
        for (number, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, number);
        }
    }
}
