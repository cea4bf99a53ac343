//! Accuracy of the special functions, against a table of values to 32 digits and against identities.

use bilevel_graph::{BinaryOp, DType, UnaryOp, scalar};

/// The table that `data/special_functions.py` prints: name, order of a polygamma, argument, and the value as a sum of two.
fn table() -> Vec<(&'static str, f64, f64, [f64; 2])> {
    let rows = include_str!("../data/special_functions.tsv").lines();
    let row = |line: &'static str| {
        let mut fields = line.split('\t');
        let (name, x, value, rest) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (name, order) = name.split_once(' ').unwrap_or((name, "0"));
        Some((name, order.parse().ok()?, x.parse().ok()?, [value.parse().ok()?, rest.parse().ok()?]))
    };
    rows.map(|line| row(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn value(name: &str, order: f64, x: f64, dtype: DType) -> f64 {
    match UnaryOp::ALL.into_iter().find(|op| op.name() == name) {
        Some(op) => scalar::unary(op, x, dtype),
        None => scalar::binary(BinaryOp::Polygamma, order, x, dtype),
    }
}

/// The distance in units of the last place of the type.
fn ulps(found: f64, [exact, rest]: [f64; 2], dtype: DType) -> f64 {
    let step = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let least = if dtype == DType::F32 { -126 } else { -1022 };
    let exponent = (exact.abs().log2().floor() as i32).max(least);
    ((found - exact) - rest).abs() / (2f64.powi(exponent) * step)
}

/// The functions, with the largest error in f64 where the argument is positive and where it is negative. Near a zero on the
/// negative axis the error is one of the last place of the terms that cancel, which the bound for negative arguments allows for.
/// In f32, the value is computed in f64 and rounded once.
const BOUNDS: [(&str, f64, f64); 5] =
    [("erfc", 1.7, 0.5), ("atan", 0.5, 0.5), ("ln_gamma", 1.5, 0.0), ("digamma", 2.3, 50.0), ("polygamma", 4.1, 2.3)];

#[test]
fn the_functions_are_accurate_to_a_few_units_in_the_last_place() {
    let mut failures = vec![];
    for (name, positive, negative) in BOUNDS {
        let rows: Vec<_> = table().into_iter().filter(|(of, ..)| *of == name).collect();
        assert!(rows.len() > 100, "{name}: {}", rows.len());
        for (dtype, bounds) in [(DType::F64, [positive, negative]), (DType::F32, [0.51, 0.51])] {
            let mut worst = [(0.0, 0.0, 0.0); 2];
            for &(_, order, x, exact) in &rows {
                // In f32, a value too small for the type counts in units of its smallest number.
                if dtype == DType::F32 && exact[0].abs() > f64::from(f32::MAX) {
                    continue;
                }
                let error = ulps(value(name, order, x, dtype), exact, dtype);
                let side = &mut worst[usize::from(x < 0.0)];
                if error > side.0 {
                    *side = (error, order, x);
                }
            }
            println!("{name} in {dtype}: {:?} where positive, {:?} where negative", worst[0], worst[1]);
            let holds = worst[0].0 <= bounds[0] && worst[1].0 <= bounds[1];
            failures.extend((!holds).then(|| format!("{name} {dtype} {worst:?}")));
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn the_functions_have_their_values_at_the_edges() {
    let of = |op: UnaryOp, x: f64| scalar::unary(op, x, DType::F64);
    let polygamma = |n: f64, x: f64| scalar::binary(BinaryOp::Polygamma, n, x, DType::F64);
    let infinity = f64::INFINITY;
    assert_eq!([0.0, infinity, -infinity].map(|x| of(UnaryOp::Erfc, x)), [1.0, 0.0, 2.0]);
    assert_eq!([0.0, -2.0, infinity, -infinity].map(|x| of(UnaryOp::LnGamma, x)), [infinity; 4]);
    assert_eq!([1.0, 2.0].map(|x| of(UnaryOp::LnGamma, x)), [0.0; 2]);
    assert_eq!([0.0, -0.0, infinity].map(|x| of(UnaryOp::Digamma, x)), [-infinity, infinity, infinity]);
    assert!([-1.0, -7.0, -infinity, f64::NAN].iter().all(|&x| of(UnaryOp::Digamma, x).is_nan()));
    assert_eq!([0.0, -0.0, -3.0].map(|x| polygamma(1.0, x)), [infinity; 3]);
    assert_eq!([0.0, -0.0, infinity].map(|x| polygamma(2.0, x)), [-infinity, infinity, 0.0]);
    assert!(polygamma(2.0, -3.0).is_nan(), "the signs of both sides differ");
    assert!([-1.0, 0.5, 171.0, f64::NAN].iter().all(|&n| polygamma(n, 1.5).is_nan()));
    assert_eq!(polygamma(0.0, 2.5), of(UnaryOp::Digamma, 2.5));
}

#[test]
fn polygamma_satisfies_its_recurrence_at_high_orders() {
    // ψ⁽ⁿ⁾(x + 1) = ψ⁽ⁿ⁾(x) + (−1)ⁿ n!/xⁿ⁺¹
    for n in [1, 2, 5, 9, 30, 60, 100] {
        for x in [0.4, 0.9, 1.7, 6.2] {
            let factorial: f64 = (1..=n).map(f64::from).product();
            let step = if n % 2 == 0 { 1.0 } else { -1.0 } * factorial * f64::powi(x, -n - 1);
            let of = |x: f64| scalar::binary(BinaryOp::Polygamma, n.into(), x, DType::F64);
            let (left, right) = (of(x + 1.0), of(x) + step);
            assert!((left - right).abs() <= 1e-13 * of(x).abs(), "{n} {x}: {left} {right}");
        }
    }
}
