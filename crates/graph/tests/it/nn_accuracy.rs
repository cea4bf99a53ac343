//! The accuracy and the top-k accuracy against a sort of every row.

use bilevel_graph::conformance::Dice;
use bilevel_graph::{Array, DType, ErrorKind, Graph, Reference, gradient, nn};
use std::cmp::Reverse;

/// The place of every class of a row when its logits are sorted: NaN first, then from the largest, the first of equals first.
fn rank_of(row: &[f64], label: usize) -> usize {
    let mut order: Vec<usize> = (0..row.len()).collect();
    // Integers up to 2⁵³ sort as floats do; the logits of these tests are few whole numbers.
    order.sort_by_key(|&class| (Reverse((row[class].is_nan(), (row[class] * 4.0) as i64)), class));
    order.iter().position(|&class| class == label).unwrap()
}

fn shares(rows: &[Vec<f64>], labels: &[usize], dtype: DType) -> Vec<f64> {
    let (count, classes) = (rows.len(), rows[0].len());
    let g = Graph::new();
    let (logits, truth) = (g.input("logits", [count, classes], dtype), g.input("labels", [count], DType::I32));
    let mut outputs = vec![nn::accuracy(logits, truth)];
    outputs.extend((1..=classes).map(|k| nn::top_k_accuracy(logits, truth, k)));
    let point = [
        (logits, Array::from_values([count, classes], &rows.concat(), dtype).unwrap()),
        (truth, Array::from_i32([count], labels.iter().map(|&l| l as i32).collect()).unwrap()),
    ];
    let found = Reference::evaluate(&g, &point, &outputs).unwrap();
    assert!(found.iter().all(|share| share.dtype() == dtype));
    found.iter().map(|share| share.item().unwrap()).collect()
}

#[test]
fn a_label_is_right_if_a_sort_puts_it_among_the_first_k() {
    let mut dice = Dice::new(3);
    for dtype in [DType::F32, DType::F64] {
        for classes in [1, 2, 5] {
            // Of few values, so that many are equal; infinities are numbers like others.
            let value = |dice: &mut Dice| dice.pick(&[0.0, -0.0, 1.0, -1.0, 0.5, f64::INFINITY, f64::NEG_INFINITY]);
            let rows: Vec<Vec<f64>> = (0..64).map(|_| (0..classes).map(|_| value(&mut dice)).collect()).collect();
            let labels: Vec<usize> = rows.iter().map(|_| dice.below(classes)).collect();
            let found = shares(&rows, &labels, dtype);
            for (k, share) in found.iter().enumerate().skip(1) {
                let right = rows.iter().zip(&labels).filter(|(row, label)| rank_of(row, **label) < k).count();
                assert_eq!(*share, right as f64 / 64.0, "k = {k} of {classes} in {dtype}");
            }
            assert_eq!(found[0], found[1], "the accuracy is that of k = 1");
        }
    }
}

#[test]
fn a_nan_ranks_ahead_of_every_number_and_is_never_right() {
    let nan = f64::NAN;
    assert_eq!(shares(&[vec![nan, 2.0, 1.0]], &[1], DType::F32), [0.0, 0.0, 1.0, 1.0]);
    assert_eq!(shares(&[vec![nan, nan, nan]], &[0], DType::F64), [0.0; 4]);
    assert_eq!(shares(&[vec![0.0, nan, 1.0]], &[1], DType::F64), [0.0; 4]);
}

#[test]
fn leading_axes_are_rows_and_one_row_is_enough() {
    let g = Graph::new();
    let logits = g.iota([2, 3, 4], 2, DType::F64);
    let last = g.constant(3.0, [2, 3], DType::I32);
    let one = nn::accuracy(g.iota([4], 0, DType::F64), g.scalar(2.0, DType::I32));
    let found = Reference::evaluate(&g, &[], &[nn::accuracy(logits, last), one]).unwrap();
    assert_eq!((found[0].item(), found[1].item()), (Some(1.0), Some(0.0)));
}

#[test]
fn a_label_outside_the_classes_fails_the_run_and_nothing_is_derived() {
    let g = Graph::new();
    let (logits, labels) = (g.input("logits", [1, 3], DType::F64), g.input("labels", [1], DType::I32));
    let share = nn::accuracy(logits, labels);
    assert!(gradient(share, &[logits]).unwrap()[0].is_none());
    for label in [-1, 3] {
        let point =
            [(logits, Array::full([1, 3], 0.0, DType::F64)), (labels, Array::from_i32([1], vec![label]).unwrap())];
        let error = Reference::evaluate(&g, &point, &[share]).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::IndexOutOfRange { limit: 3, .. }), "{error}");
    }
}
