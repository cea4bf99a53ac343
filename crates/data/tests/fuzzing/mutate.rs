//! Damage: bits flipped, numbers made extreme, parts cut out, doubled, exchanged.

/// Words that text formats meet.
const WORDS: [&[u8]; 14] = [
    b"nan",
    b"inf",
    b"1e999",
    b"-0",
    b"4294967295:1",
    b"4294967296:1",
    b"0:1",
    b":",
    b",",
    b"\"",
    b"\n",
    b"\0",
    b"{",
    b"[[[[",
];
/// Numbers at which sizes overflow.
const EXTREMES: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// The damaged file of a number: one of the seeds, with one to six things done to it.
pub fn damaged(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(6) {
        damage(&mut random, &mut bytes, seeds);
    }
    bytes
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
    }
    // Headers are short and come first; half of the damage goes there.
    let reach = if random.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
    let place = random.below(reach);
    let length = 1 + random.below((bytes.len() - place).min(64));
    match random.below(9) {
        0 => bytes[place] ^= 1 << random.below(8),
        1 => bytes[place] = random.next() as u8,
        2 => {
            let (extreme, width) = (EXTREMES[random.below(EXTREMES.len())], 1 << random.below(4));
            let number = if random.below(2) == 0 { extreme.to_le_bytes() } else { extreme.swap_bytes().to_le_bytes() };
            let number = &number[if random.below(2) == 0 { 0..width } else { 8 - width..8 }];
            bytes.iter_mut().skip(place).zip(number).for_each(|(byte, new)| *byte = *new);
        }
        3 => bytes.truncate(place),
        4 => drop(bytes.drain(place..place + length)),
        5 => {
            let part = bytes[place..place + length].to_vec();
            let times = 1 + random.below(8);
            drop(bytes.splice(place..place, part.repeat(times)));
        }
        6 => drop(bytes.splice(place..place, WORDS[random.below(WORDS.len())].iter().copied())),
        7 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let part = other[from..(from + length).min(other.len())].to_vec();
            drop(bytes.splice(place..place + length, part));
        }
        _ => {
            // ASCII digits become others, in sizes written as text.
            let digit = bytes.iter().skip(place).position(u8::is_ascii_digit);
            if let Some(found) = digit {
                bytes[place + found] = b'0' + random.below(10) as u8;
            }
        }
    }
}
