//! Accuracy of the math kernels, in units of the last place, and their special values, for every instruction set.

use crate::kernels::*;

/// Bit patterns spread over the whole type, a dense band around the interesting range, and the special values.
fn samples32(count: usize) -> Vec<f32> {
    let mut x: Vec<f32> = (0..count).map(|i| f32::from_bits((i as u64 * 4294967291 / count as u64) as u32)).collect();
    let mut state = 1u64;
    for i in 0..2 * count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let u = (state >> 40) as f32 / 16777216.0 * 2.0 - 1.0;
        x.push(u * [1.0, 10.0, 100.0, 10000.0][i % 4]);
        x.push(1.0 + u * 0.5);
    }
    let special = [0.0, 1.0, f32::INFINITY, f32::MIN_POSITIVE, 1e-45, 1e-40, f32::MAX, 88.72284, 103.97, 0.5, 2.0];
    x.extend(special.iter().flat_map(|&s| [s, -s]));
    x.push(f32::NAN);
    x
}

/// The same for f64.
fn samples64(count: usize) -> Vec<f64> {
    let mut x: Vec<f64> = (0..count as u64).map(|i| f64::from_bits(i.wrapping_mul(u64::MAX / count as u64))).collect();
    let mut state = 1u64;
    for i in 0..2 * count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let u = (state >> 11) as f64 / 9007199254740992.0 * 2.0 - 1.0;
        x.push(u * [1.0, 10.0, 700.0, 10000.0][i % 4]);
        x.push(1.0 + u * 0.5);
    }
    let special =
        [0.0, 1.0, f64::INFINITY, f64::MIN_POSITIVE, 5e-324, 1e-310, f64::MAX, 709.782712893384, 745.133, 0.5, 2.0];
    x.extend(special.iter().flat_map(|&s| [s, -s]));
    x.push(f64::NAN);
    x
}

/// |got − want| in units of the last place of an f32 near `want`; special values must be the same.
fn ulps32(got: f32, want: f64) -> f64 {
    let near = want as f32;
    if near.is_nan() || near.is_infinite() || got.is_nan() || got.is_infinite() {
        // A value between the largest float and the one after it may round either way.
        let same = got == near || (got.is_nan() && near.is_nan());
        return if same || (want.abs() - f32::MAX as f64).abs() < 2e31 { 0.0 } else { f64::INFINITY };
    }
    if near == 0.0 && want == 0.0 {
        return if got == 0.0 && got.is_sign_negative() == near.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    let exponent = ((near.to_bits() >> 23) & 255).max(1) as i32 - 127 - 23;
    (got as f64 - want).abs() / 2f64.powi(exponent)
}

/// The distance of two f64 in representable steps; special values must be the same.
fn ulps64(got: f64, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == 0.0 && want == 0.0 {
        return if got.is_sign_negative() == want.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    let order = |x: f64| {
        let b = x.to_bits() as i64;
        if b < 0 { i64::MIN - b } else { b }
    };
    (order(got) - order(want)).unsigned_abs() as f64
}

fn reference(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Expm1 => x.exp_m1(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Erf => libm::erf(x),
        _ => unreachable!(),
    }
}

/// The functions, with the largest error allowed in f32 and in f64. The f64 references are themselves off by one step.
const FUNCTIONS: [(UnaryOp, f64, f64); 12] = [
    (UnaryOp::Recip, 0.501, 0.0),
    (UnaryOp::Sqrt, 0.501, 0.0),
    (UnaryOp::Exp, 1.0, 2.0),
    (UnaryOp::Expm1, 2.0, 2.0),
    (UnaryOp::Log, 1.0, 2.0),
    (UnaryOp::Log1p, 1.5, 2.0),
    (UnaryOp::Sin, 2.5, 2.0),
    (UnaryOp::Cos, 2.5, 2.0),
    (UnaryOp::Tanh, 2.0, 4.0),
    (UnaryOp::Sigmoid, 2.0, 4.0),
    (UnaryOp::Erf, 2.0, 4.0),
    (UnaryOp::Floor, 0.0, 0.0),
];

fn worst32(isa: Isa, op: UnaryOp, x: &[f32]) -> (f64, f32) {
    let mut y = vec![0f32; x.len()];
    kernel!(unary(isa, op, DType::F32).unwrap()(y.as_mut_ptr().cast(), x.as_ptr().cast(), x.len()));
    x.iter()
        .zip(&y)
        .map(|(&x, &y)| (ulps32(y, if op == UnaryOp::Floor { x.floor() as f64 } else { reference(op, x as f64) }), x))
        .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
}

fn worst64(isa: Isa, op: UnaryOp, x: &[f64]) -> (f64, f64) {
    let mut y = vec![0f64; x.len()];
    kernel!(unary(isa, op, DType::F64).unwrap()(y.as_mut_ptr().cast(), x.as_ptr().cast(), x.len()));
    x.iter()
        .zip(&y)
        .map(|(&x, &y)| (ulps64(y, if op == UnaryOp::Floor { x.floor() } else { reference(op, x) }), x))
        .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
}

#[test]
fn functions_stay_within_bounds() {
    let (x32, x64) = (samples32(20_000), samples64(20_000));
    for isa in Isa::available() {
        for (op, bound32, bound64) in FUNCTIONS {
            let (e, x) = worst32(isa, op, &x32);
            assert!(e <= bound32, "{isa:?} {op:?} f32: {e} ulp at {x:e}");
            let (e, x) = worst64(isa, op, &x64);
            assert!(e <= bound64, "{isa:?} {op:?} f64: {e} steps at {x:e}");
        }
    }
}

/// Pairs for the power function: ordinary bases and exponents, and every special one with every other.
fn power_pairs(count: usize) -> (Vec<f64>, Vec<f64>) {
    let special = [
        0.0,
        1.0,
        2.0,
        3.0,
        0.5,
        1.5,
        5e-324,
        1e-310,
        f64::INFINITY,
        f64::NAN,
        f64::MAX,
        1.0000001,
        0.9999999,
        1e20,
        7.0,
        4503599627370497.0,
        1e-40,
        16777217.0,
    ];
    let special: Vec<f64> = special.iter().flat_map(|&x| [x, -x]).collect();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for &a in &special {
        for &b in &special {
            x.push(a);
            y.push(b);
        }
    }
    let mut state = 7u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / 9007199254740992.0
    };
    for i in 0..count {
        let base = match i % 4 {
            0 => draw() * 10.0,
            1 => 1.0 + (draw() - 0.5) * 0.01,
            2 => (draw() * 1400.0 - 700.0).exp(),
            _ => (draw() * 160.0 - 80.0).exp(),
        };
        let room = if i % 8 < 4 { 700.0 } else { 87.0 };
        x.push(base);
        y.push(if i % 3 == 0 {
            draw() * 20.0 - 10.0
        } else {
            (draw() * 2.0 - 1.0) * room / base.ln().abs().max(1e-10)
        });
    }
    (x, y)
}

fn worst_power(isa: Isa, count: usize) -> ((f64, f32, f32), (f64, f64, f64)) {
    let (x, y) = power_pairs(count);
    let mut z = vec![0f64; x.len()];
    let tile = Arity::Tile;
    let f = binary(isa, BinaryOp::Pow, DType::F64, tile, tile).unwrap();
    kernel!(f(z.as_mut_ptr().cast(), x.as_ptr().cast(), y.as_ptr().cast(), x.len()));
    let mut worst64 = (0.0, 0.0, 0.0);
    for i in 0..x.len() {
        let e = ulps64(z[i], x[i].powf(y[i]));
        if e > worst64.0 {
            worst64 = (e, x[i], y[i]);
        }
    }
    let (x, y): (Vec<f32>, Vec<f32>) = x.iter().zip(&y).map(|(&a, &b)| (a as f32, b as f32)).unzip();
    let mut z = vec![0f32; x.len()];
    let f = binary(isa, BinaryOp::Pow, DType::F32, tile, tile).unwrap();
    kernel!(f(z.as_mut_ptr().cast(), x.as_ptr().cast(), y.as_ptr().cast(), x.len()));
    let mut worst32 = (0.0, 0.0, 0.0);
    for i in 0..x.len() {
        let e = ulps32(z[i], (x[i] as f64).powf(y[i] as f64));
        if e > worst32.0 {
            worst32 = (e, x[i], y[i]);
        }
    }
    (worst32, worst64)
}

#[test]
fn powers_stay_within_bounds() {
    for isa in Isa::available() {
        let (single, double) = worst_power(isa, 20_000);
        assert!(single.0 <= 1.0, "{isa:?} f32: {single:?}");
        assert!(double.0 <= 2.0, "{isa:?} f64: {double:?}");
    }
}

#[test]
#[ignore = "prints the measured errors"]
fn report_errors() {
    let (x32, x64) = (samples32(4_000_000), samples64(2_000_000));
    for isa in Isa::available() {
        for (op, _, _) in FUNCTIONS {
            let (a, b) = (worst32(isa, op, &x32), worst64(isa, op, &x64));
            println!("{isa:?} {op:?}: f32 {:.3} ulp at {:e}, f64 {} steps at {:e}", a.0, a.1, b.0, b.1);
        }
        println!("{isa:?} Pow: {:?}", worst_power(isa, 4_000_000));
    }
}
