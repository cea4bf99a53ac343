//! The draws of a random node, to the bit: the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011)
//! and its transforms to uniform and normal numbers.
//!
//! Everything here is integer arithmetic and IEEE +, −, ×, ÷, √, each rounded on its own (never fused), so any machine
//! can give the same bits. This is the specification; an executor may compute it in any other order of elements.
//!
//! Element i of a draw with key (k₀, k₁), counter c and stream s is read from the block
//! philox([b mod 2³², b ÷ 2³², c, s], [k₀, k₁]) of four 32-bit words. For f32 and bits b = i ÷ 4, with one word per
//! element; for f64 b = i ÷ 2, with two words per element, low word first.

/// The multipliers of the two halves of a round.
pub const MULTIPLIERS: [u32; 2] = [0xD2511F53, 0xCD9E8D57];
/// The increments of the key after each round.
pub const KEY_STEPS: [u32; 2] = [0x9E3779B9, 0xBB67AE85];
/// Number of rounds.
pub const ROUNDS: usize = 10;

/// One block of the generator: a keyed bijection of 128 bits.
///
/// ```
/// use bilevel_graph::random::philox4x32;
/// assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k, mut l]) = (counter, key);
    for _ in 0..ROUNDS {
        let p = MULTIPLIERS[0] as u64 * a as u64;
        let q = MULTIPLIERS[1] as u64 * c as u64;
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ k, q as u32, (p >> 32) as u32 ^ d ^ l, p as u32);
        (k, l) = (k.wrapping_add(KEY_STEPS[0]), l.wrapping_add(KEY_STEPS[1]));
    }
    [a, b, c, d]
}

/// A key from a seed, by the finaliser of SplitMix64: neighbouring seeds give unrelated keys.
pub fn seed_key(seed: u64) -> [i32; 2] {
    let mut z = seed.wrapping_add(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
    z ^= z >> 31;
    [z as u32 as i32, (z >> 32) as u32 as i32]
}

/// The n-th key derived from a key. The block used is one no draw reaches: its element number would be above 2⁶⁴.
pub fn fold_in(key: [i32; 2], n: u32) -> [i32; 2] {
    let words = philox4x32([n, u32::MAX, 0, 0], key.map(|k| k as u32));
    [words[0] as i32, words[1] as i32]
}

/// Coefficients of the f32 transforms, lowest first.
pub mod single {
    /// ln 2 as a head, exact when multiplied by an exponent, and a tail.
    pub const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    /// R(z)/z of the logarithm.
    pub const LOG: [f32; 4] = [0.666_666_7, 0.400_001_26, 0.285_504_43, 0.233_407_1];
    /// sin(2πf)/f in f².
    pub const SIN: [f32; 5] = [6.283_185_5, -41.341_7, 81.605_21, -76.697_87, 41.472_83];
    /// (cos(2πf) − 1)/f² in f².
    pub const COS: [f32; 5] = [-19.739_208, 64.939_39, -85.456_79, 60.240_45, -26.119_22];
}

/// Coefficients of the f64 transforms, lowest first.
pub mod double {
    /// ln 2 as a head, exact when multiplied by an exponent, and a tail.
    pub const LN2: [f64; 2] = [0.6931471805601177, -1.7239444525614835e-13];
    /// R(z)/z of the logarithm.
    pub const LOG: [f64; 7] = [
        0.666666666666667,
        0.3999999999989391,
        0.28571428628500795,
        0.2222221072440129,
        0.18182918892943603,
        0.15330736526779515,
        0.14628571557283904,
    ];
    /// sin(2πf)/f in f².
    pub const SIN: [f64; 8] = [
        std::f64::consts::TAU,
        -41.34170224039976,
        81.60524927607493,
        -76.70585975299814,
        42.05869392898878,
        -15.094640403891546,
        3.8197881201632113,
        -0.7116358090781666,
    ];
    /// (cos(2πf) − 1)/f² in f².
    pub const COS: [f64; 8] = [
        -19.739208802178716,
        64.9393940226683,
        -85.45681720669369,
        60.24464137185456,
        -26.4262567778174,
        7.90353561233896,
        -1.714333269420992,
        0.2797407860657504,
    ];
}

/// The transforms of one float type; they differ in widths and constants alone.
macro_rules! transforms {
    ($radius:ident, $turn:ident, $poly:ident, $float:ident, $int:ident, $constants:ident, $stored:literal,
     $bias:literal, $drawn:literal) => {
        /// (c₀ + w·(c₂ + w·(c₄ + …))) + z·(c₁ + w·(c₃ + …)) with w = z²: two short chains instead of a long one.
        #[inline(always)]
        fn $poly<const N: usize>(z: $float, c: &[$float; N]) -> $float {
            let w = z * z;
            // chains[0] ends at the last coefficient, chains[1] at the one before it.
            let mut chains = [c[N - 1], c[N - 2]];
            for k in (0..N - 2).rev() {
                chains[(N - 1 - k) % 2] = chains[(N - 1 - k) % 2] * w + c[k];
            }
            if N % 2 == 1 { chains[0] + z * chains[1] } else { chains[1] + z * chains[0] }
        }

        /// √(−2 ln u) for 0 < u ≤ 1
        ///
        /// u = 2ᵉ·(1 + f) with 1 + f in [√½, √2), s = f/(2 + f):
        /// ln u = e·ln 2 + (f − (f²/2 − s·(f²/2 + R(s²))))
        #[inline(always)]
        fn $radius(u: $float) -> $float {
            let one = (1.0 as $float).to_bits();
            let border = std::$float::consts::FRAC_1_SQRT_2.to_bits();
            let field = (u.to_bits() + (one - border)) >> $stored;
            let f = $float::from_bits(u.to_bits() + one - (field << $stored)) - 1.0;
            let e = (field as i32 - $bias) as $float;
            let half = 0.5 * f * f;
            let s = f / (2.0 + f);
            let z = s * s;
            let r = z * $poly(z, &$constants::LOG);
            let [head, tail] = $constants::LN2;
            let ln = e * head + (f - (half - (s * (half + r) + e * tail)));
            (-2.0 * ln).sqrt()
        }

        /// (cos 2πu, sin 2πu) for u = k·2⁻ᴮ, k < 2ᴮ, B the number of bits drawn
        ///
        /// u = q/4 + f with |f| ≤ 1/8, both exact; q says which of ±cos 2πf, ±sin 2πf is meant.
        #[inline(always)]
        fn $turn(k: $int) -> ($float, $float) {
            let q = (k + (1 << ($drawn - 3))) >> ($drawn - 2);
            let f = (k as i64 - ((q as i64) << ($drawn - 2))) as $float * (1.0 / (1u64 << $drawn) as $float);
            let z = f * f;
            let sin = f * $poly(z, &$constants::SIN);
            let cos = 1.0 + z * $poly(z, &$constants::COS);
            let (x, y) = if q & 1 == 0 { (cos, sin) } else { (sin, cos) };
            (if (q + 1) & 2 == 0 { x } else { -x }, if q & 2 == 0 { y } else { -y })
        }
    };
}
transforms!(radius32, turn32, poly32, f32, u32, single, 23, 127, 24);
transforms!(radius64, turn64, poly64, f64, u64, double, 52, 1023, 53);

/// Two normal numbers from two words (Box and Muller): √(−2 ln u)·(cos 2πv, sin 2πv) with
/// u = (⌊a/2⌋ + 1)·2⁻³¹, where ⌊a/2⌋ is rounded to f32 first, and v the top 24 bits of b.
#[inline(always)]
fn normal_pair_f32(a: u32, b: u32) -> [f32; 2] {
    let r = radius32(((a >> 1) as i32 as f32 + 1.0) * (1.0 / 2147483648.0));
    let (x, y) = turn32(b >> 8);
    [r * x, r * y]
}

/// Two normal numbers from two double words: u = (top 53 bits of a + 1)·2⁻⁵³, v the top 53 bits of b.
#[inline(always)]
fn normal_pair_f64(a: u64, b: u64) -> [f64; 2] {
    let r = radius64(((a >> 11) + 1) as f64 * (1.0 / 9007199254740992.0));
    let (x, y) = turn64(b >> 11);
    [r * x, r * y]
}

/// Joins the words of a block two by two, low word first.
#[inline(always)]
fn double_words(w: [u32; 4]) -> [u64; 2] {
    [w[0] as u64 | (w[1] as u64) << 32, w[2] as u64 | (w[3] as u64) << 32]
}

/// Writes elements first, first + 1, … of a draw whose blocks of N elements are given by `all` from the block's words, or
/// one by one by `one` from the words and the place in the block.
#[inline(always)]
fn fill<T: Copy, const N: usize>(
    key: [u32; 2],
    counter: u32,
    stream: u32,
    first: u64,
    dst: &mut [T],
    all: impl Fn([u32; 4]) -> [T; N],
    one: impl Fn([u32; 4], usize) -> T,
) {
    let words = |block: u64| philox4x32([block as u32, (block >> 32) as u32, counter, stream], key);
    let mut block = first / N as u64;
    let mut skip = (first % N as u64) as usize;
    // A draw of one number is common (the noise of a scalar) and worth a special case.
    if let [only] = dst {
        *only = one(words(block), skip);
        return;
    }
    let mut rest = dst;
    while !rest.is_empty() {
        let values = all(words(block));
        let take = rest.len().min(N - skip);
        let (now, later) = rest.split_at_mut(take);
        if take == N {
            now.copy_from_slice(&values);
        } else {
            now.iter_mut().zip(&values[skip..]).for_each(|(d, v)| *d = *v);
        }
        (rest, skip, block) = (later, 0, block.wrapping_add(1));
    }
}

/// The double word of element i of a block.
#[inline(always)]
fn double_word(w: [u32; 4], i: usize) -> u64 {
    if i == 0 { double_words(w)[0] } else { double_words(w)[1] }
}

/// Standard normal f32, from element `first` of the draw on.
#[inline]
pub fn fill_normal_f32(key: [u32; 2], counter: u32, stream: u32, first: u64, dst: &mut [f32]) {
    let all = |w: [u32; 4]| {
        let ([a, b], [c, d]) = (normal_pair_f32(w[0], w[1]), normal_pair_f32(w[2], w[3]));
        [a, b, c, d]
    };
    let one = |w: [u32; 4], i: usize| {
        let (a, b) = if i < 2 { (w[0], w[1]) } else { (w[2], w[3]) };
        let [x, y] = normal_pair_f32(a, b);
        if i & 1 == 0 { x } else { y }
    };
    fill(key, counter, stream, first, dst, all, one);
}

/// Standard normal f64, from element `first` of the draw on.
#[inline]
pub fn fill_normal_f64(key: [u32; 2], counter: u32, stream: u32, first: u64, dst: &mut [f64]) {
    let all = |w| {
        let [a, b] = double_words(w);
        normal_pair_f64(a, b)
    };
    let one = |w, i| {
        let [x, y] = all(w);
        if i == 0 { x } else { y }
    };
    fill(key, counter, stream, first, dst, all, one);
}

/// Uniform f32 on [0, 1): the top 24 bits of a word.
#[inline]
pub fn fill_uniform_f32(key: [u32; 2], counter: u32, stream: u32, first: u64, dst: &mut [f32]) {
    let of = |w: u32| (w >> 8) as f32 * (1.0 / 16777216.0);
    fill(key, counter, stream, first, dst, |w| w.map(of), |w, i| of(w[i]));
}

/// Uniform f64 on [0, 1): the top 53 bits of a double word.
#[inline]
pub fn fill_uniform_f64(key: [u32; 2], counter: u32, stream: u32, first: u64, dst: &mut [f64]) {
    let of = |w: u64| (w >> 11) as f64 * (1.0 / 9007199254740992.0);
    fill(key, counter, stream, first, dst, |w| double_words(w).map(of), |w, i| of(double_word(w, i)));
}

/// Random bits: the words themselves.
#[inline]
pub fn fill_bits(key: [u32; 2], counter: u32, stream: u32, first: u64, dst: &mut [i32]) {
    fill(key, counter, stream, first, dst, |w| w.map(|w| w as i32), |w, i| w[i] as i32);
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u32; 2] = [0x12345678, 0x9abcdef0];

    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox4x32([!0; 4], [!0; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn transforms_are_accurate() {
        let mut state = 1u64;
        for i in 0..200_000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let k = if i < 1000 { i } else { state >> 11 };
            let u = (k + 1) as f64 / 9007199254740992.0;
            let want = (-2.0 * u.ln()).sqrt();
            assert!((radius64(u) - want).abs() <= 2e-15 * want, "{u}");
            let want = (-2.0 * (u as f32 as f64).ln()).sqrt();
            assert!((radius32(u as f32) as f64 - want).abs() <= 3e-7 * want, "{u}");
            let angle = |v: f64| (v * std::f64::consts::TAU).sin_cos();
            let ((s, c), (x, y)) = (angle(k as f64 / 9007199254740992.0), turn64(k));
            assert!((x - c).abs() < 1e-15 && (y - s).abs() < 1e-15, "{k}");
            let k = (k >> 29) as u32;
            let ((s, c), (x, y)) = (angle(k as f64 / 16777216.0), turn32(k));
            assert!((x as f64 - c).abs() < 1.2e-7 && (y as f64 - s).abs() < 1.2e-7, "{k}");
        }
        assert_eq!(radius64(1.0), 0.0);
        assert_eq!(radius32(1.0), 0.0);
    }

    #[test]
    fn a_draw_is_the_same_however_it_is_cut() {
        let mut whole = [0f32; 41];
        fill_normal_f32(KEY, 3, 5, 0, &mut whole);
        let mut doubles = [0f64; 41];
        fill_normal_f64(KEY, 3, 5, 0, &mut doubles);
        for first in 0..41 {
            for end in first..=41 {
                let mut part = vec![0f32; end - first];
                fill_normal_f32(KEY, 3, 5, first as u64, &mut part);
                assert_eq!(part, whole[first..end]);
                let mut part = vec![0f64; end - first];
                fill_normal_f64(KEY, 3, 5, first as u64, &mut part);
                assert_eq!(part, doubles[first..end]);
            }
        }
    }

    /// Mean, variance, excess kurtosis, share beyond 4, correlation of neighbours.
    fn moments(x: &[f64]) -> [f64; 5] {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let power = |k: i32| x.iter().map(|v| (v - mean).powi(k)).sum::<f64>() / n;
        let variance = power(2);
        let tail = x.iter().filter(|v| v.abs() > 4.0).count() as f64 / n;
        let pairs = x.windows(2).map(|p| (p[0] - mean) * (p[1] - mean)).sum::<f64>() / n / variance;
        [mean, variance, power(4) / variance.powi(2) - 3.0, tail, pairs]
    }

    #[test]
    fn normals_have_the_moments_of_a_normal() {
        let n = 1_000_000;
        let mut single = vec![0f32; n];
        fill_normal_f32(KEY, 0, 0, 0, &mut single);
        let mut double = vec![0f64; n];
        fill_normal_f64(KEY, 1, 0, 0, &mut double);
        for x in [single.iter().map(|&x| x as f64).collect::<Vec<_>>(), double] {
            let [mean, variance, kurtosis, tail, pairs] = moments(&x);
            // Four standard errors each: 1e-3, 1.4e-3, 4.9e-3, 8e-6, 1e-3.
            assert!(mean.abs() < 4e-3 && (variance - 1.0).abs() < 5.7e-3 && kurtosis.abs() < 2e-2);
            assert!((tail - 6.33e-5).abs() < 3.2e-5 && pairs.abs() < 4e-3);
            // The two numbers of a pair are independent, in their sizes too.
            let squares: f64 = x.chunks(2).map(|p| (p[0] * p[0] - 1.0) * (p[1] * p[1] - 1.0)).sum();
            assert!(squares.abs() / (n as f64 / 2.0) < 4.0 * 2.0 / (n as f64 / 2.0).sqrt());
        }
    }

    #[test]
    fn uniforms_fill_the_interval() {
        let n = 1_000_000;
        let mut x = vec![0f32; n];
        fill_uniform_f32(KEY, 0, 0, 0, &mut x);
        let mut y = vec![0f64; n];
        fill_uniform_f64(KEY, 0, 1, 0, &mut y);
        for x in [x.iter().map(|&x| x as f64).collect::<Vec<_>>(), y] {
            assert!(x.iter().all(|&v| (0.0..1.0).contains(&v)));
            let mut counts = [0f64; 64];
            x.iter().for_each(|v| counts[(v * 64.0) as usize] += 1.0);
            let expected = n as f64 / 64.0;
            let chi: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            assert!((20.0..120.0).contains(&chi), "{chi}");
            assert!(moments(&x)[4].abs() < 4e-3);
        }
    }

    #[test]
    fn streams_counters_and_keys_are_unrelated() {
        let n = 100_000;
        let draw = |key, counter, stream| {
            let mut x = vec![0f64; n];
            fill_normal_f64(key, counter, stream, 0, &mut x);
            x
        };
        let [a, b] = fold_in(seed_key(0), 1).map(|k| k as u32);
        let [c, d] = seed_key(1).map(|k| k as u32);
        let base = draw(seed_key(0).map(|k| k as u32), 0, 0);
        for other in [
            draw(seed_key(0).map(|k| k as u32), 1, 0),
            draw(seed_key(0).map(|k| k as u32), 0, 1),
            draw([a, b], 0, 0),
            draw([c, d], 0, 0),
        ] {
            let correlation: f64 = base.iter().zip(&other).map(|(x, y)| x * y).sum::<f64>() / n as f64;
            assert!(correlation.abs() < 4.0 / (n as f64).sqrt());
        }
    }

    #[test]
    fn derived_keys_differ() {
        let mut keys: Vec<_> = (0..1000).map(|n| fold_in(seed_key(7), n)).chain((0..1000).map(seed_key)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 2000);
    }
}
