//! Sorting, segment maxima and dense factorisations: values by their definitions, and derivatives.

use crate::common::*;
use bilevel_graph::{Array, DType, ErrorKind, Graph, Reference, Tensor, gradient};

fn f32s(values: &[f64]) -> Array {
    Array::from_values([values.len()], values, DType::F32).unwrap()
}

#[test]
fn sorting_is_stable_and_puts_nan_last_along_every_axis() {
    let g = Graph::new();
    let x = g.input("x", [8], DType::F32);
    let at = f32s(&[1.0, f64::NAN, -0.0, f64::INFINITY, 0.0, 1.0, f64::NAN, f64::NEG_INFINITY]);
    let found = Reference::evaluate(&g, &[(x, at)], &[x.argsort(0), x.sort(0)]).unwrap();
    assert_eq!(found[0].to_f64(), [7.0, 2.0, 4.0, 0.0, 5.0, 3.0, 1.0, 6.0]);
    let sorted = found[1].to_f64();
    assert!(sorted[1].is_sign_negative() && !sorted[2].is_sign_negative(), "zeros keep their order");
    assert!(sorted[6].is_nan() && sorted[7].is_nan());

    let z = g.input("z", [4, 5, 3], DType::F64);
    let values = numbers(1, &[4, 5, 3]);
    for axis in 0..3 {
        let sorted = z.sort(axis);
        let n = z.dim(axis);
        let rises = sorted.slice(axis, 0, n - 1).less_equal(sorted.slice(axis, 1, n)).sum_all();
        // The same numbers: equal sums of powers, but for the order of their terms.
        let sums =
            [1.0, 2.0, 3.0].map(|power| (sorted.pow(power).sum([axis]) - z.pow(power).sum([axis])).abs().sum_all());
        let found = Reference::evaluate(&g, &[(z, values.clone())], &[&[rises], &sums[..]].concat()).unwrap();
        assert_eq!(found[0].item(), Some((60 / n * (n - 1)) as f64));
        assert!(found[1..].iter().all(|sum| sum.item().unwrap() < 1e-13));
    }
}

#[test]
fn the_derivative_of_sorting_goes_to_where_an_element_came_from() {
    check(&[separated(2, &[3, 4])], KINKED, |g, x| x[0].sort(1) * (g.iota([3, 4], 1, DType::F64) + 1.0) * x[0]);
    check(&[separated(3, &[5, 2])], KINKED, |_, x| x[0].sort(0).sin().cumsum(0));
}

#[test]
fn a_segment_maximum_is_the_largest_of_its_updates_and_its_derivative_goes_to_the_first() {
    let g = Graph::new();
    let (x, at) = (g.input("x", [6, 2], DType::F64), g.input("at", [6], DType::I32));
    let largest = x.scatter_max(at, 0, 4);
    let dx = gradient(largest.slice(0, 0, 3).sum_all(), &[x]).unwrap()[0].unwrap();
    let values = f64s(&[6, 2], &[1.0, 9.0, 4.0, 9.0, 4.0, 2.0, f64::NAN, 0.0, 7.0, 1.0, -1.0, 1.0]);
    let places = Array::from_i32([6], vec![0, 0, 0, 2, 2, 1]).unwrap();
    let found = Reference::evaluate(&g, &[(x, values), (at, places)], &[largest, dx]).unwrap();
    let values = found[0].to_f64();
    assert_eq!(values[..4], [4.0, 9.0, -1.0, 1.0]);
    assert!(values[4].is_nan() && values[5] == 1.0, "a NaN is the largest");
    assert_eq!(values[6..], [f64::NEG_INFINITY; 2], "no update");
    assert_eq!(found[1].to_f64(), [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    check(&[separated(4, &[2, 5, 3])], KINKED, |g, x| {
        let at = g.iota([2, 5], 1, DType::I32) - g.iota([2, 5], 0, DType::I32);
        x[0].scatter_max(at.maximum(0.0).minimum(2.0), 1, 3).sin()
    });
}

#[test]
fn a_segment_maximum_refuses_an_index_out_of_range() {
    let g = Graph::new();
    let (x, at) = (g.input("x", [2], DType::F64), g.input("at", [2], DType::I32));
    let values = [(x, f64s(&[2], &[1.0, 2.0])), (at, Array::from_i32([2], vec![0, 3]).unwrap())];
    let error = Reference::evaluate(&g, &values, &[x.scatter_max(at, 0, 3)]).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::IndexOutOfRange { index: 3, limit: 3, .. }), "{error}");
}

/// A positive definite matrix of some numbers, and the numbers in a triangle with a large diagonal.
fn definite(x: Tensor) -> Tensor {
    x.matmul(x.t()) * 0.5 + x.iota_like(x.rank() - 2).equal(x.iota_like(x.rank() - 1))
}

#[test]
fn factors_and_solutions_satisfy_their_equations_to_rounding() {
    for dtype in [DType::F64, DType::F32] {
        let unit = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        for n in [1, 2, 7, 40] {
            let g = Graph::new();
            let (x, b) = (g.input("x", [2, n, n], dtype), g.input("b", [2, n, 3], dtype));
            let at = |seed, shape: &[usize]| Array::from_values(shape, &numbers(seed, shape).to_f64(), dtype).unwrap();
            let values = [(x, at(5, &[2, n, n])), (b, at(6, &[2, n, 3]))];
            let a = definite(x);
            let l = a.cholesky();
            let above = x.iota_like(1).less(x.iota_like(2)).select(l, 0.0);
            let mut residuals = vec![(l.matmul(l.t()) - a).abs().max([0, 1, 2]), above.abs().max([0, 1, 2])];
            for (lower, transposed) in [(true, false), (true, true), (false, false), (false, true)] {
                let (row, column) = (x.iota_like(1), x.iota_like(2));
                let kept = if lower { column.less_equal(row) } else { row.less_equal(column) };
                let t = kept.select(a, 0.0);
                let y = a.triangular_solve(b, lower, transposed);
                residuals.push((if transposed { t.t() } else { t }.matmul(y) - b).abs().max([0, 1, 2]));
            }
            let found = Reference::evaluate(&g, &values, &residuals).unwrap();
            let scale = 4.0 * n as f64 * unit;
            for (number, residual) in found.iter().enumerate() {
                assert!(residual.item().unwrap() <= scale, "{dtype} {n} {number}: {residual:?}");
            }
            assert_eq!(found[1].item(), Some(0.0));
        }
    }
}

#[test]
fn factorisations_have_their_derivatives() {
    check(&[numbers(7, &[3, 3])], SMOOTH, |_, x| definite(x[0]).cholesky());
    // Of the lower triangle alone, and in batches.
    check(&[numbers(8, &[2, 2, 2])], SMOOTH, |_, x| {
        let a = x[0] * 0.3 + x[0].iota_like(1).equal(x[0].iota_like(2)) * 2.0;
        a.cholesky() * x[0]
    });
    for (lower, transposed) in [(true, false), (true, true), (false, false), (false, true)] {
        check(&[numbers(9, &[2, 3, 3]), numbers(10, &[2, 3, 2])], SMOOTH, |_, x| {
            let a = x[0] * 0.3 + x[0].iota_like(1).equal(x[0].iota_like(2)) * 2.0;
            a.triangular_solve(x[1], lower, transposed)
        });
    }
}

#[test]
fn the_derivative_of_a_log_determinant_is_the_inverse() {
    let g = Graph::new();
    let x = g.input("x", [3, 3], DType::F64);
    let l = x.cholesky();
    let eye = x.iota_like(0).equal(x.iota_like(1));
    let log_determinant = (eye * l + (1.0 - eye)).log().sum_all() * 2.0;
    let slope = gradient(log_determinant, &[x]).unwrap()[0].unwrap();
    // By the lower triangle, each element off the diagonal stands for two.
    let inverse = l.triangular_solve(l.triangular_solve(eye, true, false), true, true);
    let twice = x.iota_like(1).less(x.iota_like(0)).select(inverse * 2.0, inverse * eye);
    let at = f64s(&[3, 3], &[4.0, 0.0, 0.0, 1.0, 3.0, 0.0, 0.5, -0.7, 2.0]);
    let found = Reference::evaluate(&g, &[(x, at)], &[slope, twice]).unwrap();
    for (found, exact) in found[0].to_f64().iter().zip(found[1].to_f64()) {
        assert!((found - exact).abs() < 1e-15, "{found} {exact}");
    }
}

#[test]
fn a_matrix_that_is_not_positive_definite_gives_nan_from_that_column_on() {
    let g = Graph::new();
    let x = g.input("x", [3, 3], DType::F64);
    let at = f64s(&[3, 3], &[4.0, 0.0, 0.0, 2.0, 1.0, 0.0, 2.0, 3.0, 9.0]);
    let found = Reference::evaluate(&g, &[(x, at)], &[x.cholesky()]).unwrap()[0].to_f64();
    assert_eq!(found[..3], [2.0, 0.0, 0.0]);
    assert!(found[3] == 1.0 && found[4].is_nan() && found[5] == 0.0, "{found:?}");
    assert!(found[6] == 1.0 && found[7].is_nan() && found[8].is_nan(), "{found:?}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let g = Graph::new();
    let (x, v, i) = (g.input("x", [2, 3], DType::F64), g.input("v", [3], DType::F64), g.input("i", [3], DType::I32));
    let square = g.input("square", [3, 3], DType::F64);
    let refused = [
        (x.cholesky(), "must be equal"),
        (v.cholesky(), "at least 2 axes"),
        (square.convert(DType::I32).cholesky(), "needs floats"),
        (square.triangular_solve(x, true, false), "the right side"),
        (square.triangular_solve(square.convert(DType::F32), true, false), "one type"),
        (v.argsort(1), "no axis 1"),
        (g.scalar(1.0, DType::F64).sort(0), "no axis 0"),
        (x.scatter_max(i, 0, 4), "first axes"),
        (v.scatter_max(v, 0, 4), "i32"),
    ];
    for (tensor, reason) in refused {
        let error = tensor.check().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
