//! A 64-bit digest of bytes, the same on every rank of one machine type: to notice a difference, not to resist one that is made.

/// A digest in the making.
#[derive(Clone, Copy)]
pub(crate) struct Digest(u64);

/// The odd multiplier of Knuth's generator MMIX.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Default for Digest {
    fn default() -> Self {
        Digest(0x9e37_79b9_7f4a_7c15)
    }
}

impl Digest {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }

    /// Adds bytes, and how many they are.
    pub fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|&byte| self.mix(u64::from(byte)));
        self.mix(bytes.len() as u64);
    }

    pub fn value(self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> u64 {
        let mut digest = Digest::default();
        parts.iter().for_each(|part| digest.add(part));
        digest.value()
    }

    #[test]
    fn a_changed_bit_an_exchange_or_another_cut_changes_it() {
        let bytes: Vec<u8> = (0..61).collect();
        let whole = of(&[&bytes]);
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert_ne!(of(&[&changed]), whole, "byte {place}");
        }
        let mut exchanged = bytes.clone();
        exchanged.swap(3, 40);
        assert_ne!(of(&[&exchanged]), whole);
        assert_ne!(of(&[&bytes[..8], &bytes[8..]]), whole);
        assert_eq!(of(&[&bytes]), whole);
    }
}
