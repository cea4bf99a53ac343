//! The random kernels against their specification, bit for bit.

use crate::kernels::*;
use bilevel_graph::random as spec;

const KEY: [u32; 2] = [0xdeadbeef, 0x01234567];

/// Compares one kind of draw for all lengths, starts and instruction sets.
macro_rules! same_bits {
    ($test:ident, $elem:ty, $kind:expr, $dtype:expr, $spec:ident) => {
        #[test]
        fn $test() {
            for isa in Isa::available() {
                let kernel = random(isa, $kind, $dtype).unwrap();
                for first in [0, 1, 2, 3, 5, 30, 31, (1 << 34) - 7, u64::MAX / 2] {
                    for n in (0..70).chain([1000]) {
                        let mut want = vec![<$elem>::default(); n];
                        spec::$spec(KEY, 77, 3, first, &mut want);
                        let mut got = vec![<$elem>::default(); n + 1];
                        kernel!(kernel(got[1..].as_mut_ptr().cast(), KEY, 77, 3, first, n));
                        let same = want.iter().zip(&got[1..]).all(|(a, b)| a.to_ne_bytes() == b.to_ne_bytes());
                        assert!(same && got[0] == <$elem>::default(), "{isa:?} first {first} n {n}");
                    }
                }
            }
        }
    };
}
same_bits!(normal_f32, f32, RandomKind::Normal, DType::F32, fill_normal_f32);
same_bits!(normal_f64, f64, RandomKind::Normal, DType::F64, fill_normal_f64);
same_bits!(uniform_f32, f32, RandomKind::Uniform, DType::F32, fill_uniform_f32);
same_bits!(uniform_f64, f64, RandomKind::Uniform, DType::F64, fill_uniform_f64);
same_bits!(bits, i32, RandomKind::Bits, DType::I32, fill_bits);

#[test]
fn a_long_draw_has_the_specified_bits() {
    let n = 300_000;
    let mut want = vec![0f32; n];
    spec::fill_normal_f32(KEY, 1, 2, 0, &mut want);
    let mut double = vec![0f64; n];
    spec::fill_normal_f64(KEY, 1, 2, 0, &mut double);
    for isa in Isa::available() {
        let mut got = vec![0f32; n];
        kernel!(random(isa, RandomKind::Normal, DType::F32).unwrap()(got.as_mut_ptr().cast(), KEY, 1, 2, 0, n));
        assert!(want.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()));
        let mut got = vec![0f64; n];
        kernel!(random(isa, RandomKind::Normal, DType::F64).unwrap()(got.as_mut_ptr().cast(), KEY, 1, 2, 0, n));
        assert!(double.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
