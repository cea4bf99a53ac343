//! CRC-32C, and the mask that TFRecord files put on it.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            // Castagnoli's polynomial, bits reversed.
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// CRC-32C of the bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8))
}

/// Rotated and shifted, so that a checksum of data that hold checksums is still good.
pub(crate) fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_values_of_the_standard() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283); // the check value in catalogues of checksums
        assert_eq!(super::crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
    }
}
