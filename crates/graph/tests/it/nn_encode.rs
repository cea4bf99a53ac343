//! Embeddings, one-hot vectors, positional encodings and random draws.

use crate::nn_support::{SMOOTH, array, ask, assert_close, evaluate, noise, value};
use bilevel_graph::{Array, DType, ErrorKind, Graph, Reference, hessian_vector, nn, vjp};

#[test]
fn embedding_takes_rows_and_adds_up_what_comes_back() {
    let point = [noise(&[4, 3], 1), Array::from_i32([2, 2], vec![3, 0, 3, 1]).unwrap()];
    let table = point[0].to_f64();
    let expected: Vec<f64> = [3, 0, 3, 1].iter().flat_map(|&i| table[i * 3..i * 3 + 3].to_vec()).collect();
    let found = value(&point, |t| nn::embedding(t[0], t[1]));
    assert_eq!((found.shape(), found.to_f64()), (&[2, 2, 3][..], expected));
    ask("embedding", &SMOOTH, &point, |t| nn::embedding(t[0], t[1]));
}

#[test]
fn an_index_out_of_range_is_a_typed_error_of_the_run() {
    let g = Graph::new();
    let (table, indices) = (g.input("table", [4, 3], DType::F64), g.input("indices", [2], DType::I32));
    for (output, limit) in [(nn::embedding(table, indices), 4), (nn::one_hot(indices, 5, DType::F64), 5)] {
        for wrong in [-1, limit as i32] {
            let given = [(table, noise(&[4, 3], 1)), (indices, Array::from_i32([2], vec![1, wrong]).unwrap())];
            let error = Reference::evaluate(&g, &given, &[output]).unwrap_err();
            let ErrorKind::IndexOutOfRange { index, limit: found, .. } = error.kind else { panic!("{error}") };
            assert_eq!((index, found), (wrong as i64, limit));
        }
    }
}

#[test]
fn one_hot_is_right() {
    let point = [Array::from_i32([2, 2], vec![1, 0, 2, 1]).unwrap()];
    let found = value(&point, |t| nn::one_hot(t[0], 3, DType::F32));
    assert_eq!((found.shape(), found.dtype()), (&[2, 2, 3][..], DType::F32));
    assert_eq!(found.to_f64(), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
}

#[test]
fn sine_encoding_is_right() {
    let point = [noise(&[2, 3], 2)];
    let mut expected = vec![];
    for row in point[0].to_f64().chunks(3) {
        for band in 0..4 {
            let factor = 2f64.powi(band);
            expected.extend(row.iter().map(|x| (factor * x).sin()));
            expected.extend(row.iter().map(|x| (factor * x).cos()));
        }
    }
    let found = value(&point, |t| nn::sine_encoding(t[0], 4));
    assert_eq!(found.shape(), [2, 24]);
    assert_close(&found.to_f64(), &expected, 1e-15);
    ask("sine_encoding", &SMOOTH, &point, |t| nn::sine_encoding(t[0], 3));
    ask("sine_encoding of a vector", &SMOOTH, &[noise(&[3], 2)], |t| nn::sine_encoding(t[0], 1));
}

#[test]
fn position_table_is_right() {
    let g = Graph::new();
    let (length, width) = (5, 6);
    let found = evaluate(&g, &[], &[], &[nn::position_table(&g, length, width, DType::F64)]).remove(0);
    let mut expected = vec![];
    for p in 0..length {
        for column in 0..width {
            let angle = p as f64 / 10000f64.powf((column / 2 * 2) as f64 / width as f64);
            expected.push(if column % 2 == 0 { angle.sin() } else { angle.cos() });
        }
    }
    assert_eq!(found.shape(), [length, width]);
    assert_close(&found.to_f64(), &expected, 1e-14);
}

#[test]
fn dropout_is_linear_and_its_own_transpose() {
    let g = Graph::new();
    let (x, u) = (g.input("x", [4, 3], DType::F64), g.input("u", [4, 3], DType::F64));
    let key = g.input("key", [2], DType::I32);
    let stream = g.fresh_stream();
    let y = nn::dropout(x, 0.25, key, g.step(), stream);
    let pulled = vjp(&[y], &[u], &[x]).unwrap()[0].unwrap();
    assert!(pulled.is_same_node(nn::dropout(u, 0.25, key, g.step(), stream)), "the same mask and the same factor");
    let other = nn::dropout(x, 0.25, key, g.step(), g.fresh_stream());
    assert!(!other.is_same_node(y), "another stream is another draw");
    assert!(hessian_vector(y.sum_all(), &[x], &[u]).unwrap()[0].is_none());
}

#[test]
fn draws_have_their_distributions_and_depend_on_key_counter_and_stream() {
    let g = Graph::new();
    let (key, counter) = (g.input("key", [2], DType::I32), g.input("counter", [], DType::I32));
    let shape = [40, 100];
    let normal = nn::normal(key, counter, 1, shape, DType::F64);
    let uniform = nn::uniform(key, counter, 2, shape, DType::F64);
    let coin = nn::bernoulli(key, counter, 3, 0.3, shape, DType::F64);
    let dropped = nn::dropout(normal.ones_like(), 0.25, key, counter, 4);
    let other = nn::normal(key, counter, 5, shape, DType::F64);
    let run = |k: [i32; 2], c: i32| {
        let given =
            [(key, Array::from_i32([2], k.to_vec()).unwrap()), (counter, Array::from_i32([], vec![c]).unwrap())];
        Reference::evaluate(&g, &given, &[normal, uniform, coin, dropped, other]).unwrap()
    };
    let first = run([1, 2], 0);
    let values: Vec<Vec<f64>> = first.iter().map(|a| a.to_f64()).collect();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let spread = |v: &[f64]| v.iter().map(|x| (x - mean(v)).powi(2)).sum::<f64>() / v.len() as f64;
    assert!(mean(&values[0]).abs() < 0.1 && (spread(&values[0]) - 1.0).abs() < 0.1);
    assert!((mean(&values[1]) - 0.5).abs() < 0.03 && (spread(&values[1]) - 1.0 / 12.0).abs() < 0.01);
    assert!(values[1].iter().all(|u| (0.0..1.0).contains(u)));
    assert!((mean(&values[2]) - 0.3).abs() < 0.04 && values[2].iter().all(|&c| c == 0.0 || c == 1.0));
    assert!((mean(&values[3]) - 1.0).abs() < 0.05 && values[3].iter().all(|&d| d == 0.0 || d == 1.0 / 0.75));
    assert_ne!(values[0], values[4], "another stream");
    assert_eq!(run([1, 2], 0), first, "the same draw");
    assert_ne!(run([1, 3], 0)[0], first[0], "another key");
    assert_ne!(run([1, 2], 1)[0], first[0], "another counter");
}

#[test]
fn dropout_has_right_derivatives() {
    let point = [noise(&[4, 3], 3), Array::from_i32([2], vec![5, 6]).unwrap()];
    ask("dropout", &SMOOTH, &point, |t| {
        let counter = t[1].index(0, 0);
        nn::dropout(t[0].tanh(), 0.4, t[1], counter, 7)
    });
}

#[test]
fn dropout_without_a_rate_is_the_identity() {
    let g = Graph::new();
    let (x, key) = (g.input("x", [3], DType::F64), g.input("key", [2], DType::I32));
    let y = nn::dropout(x, 0.0, key, g.step(), 0);
    let given = [(x, array(&[3], &[1.0, 2.0, 3.0])), (key, Array::from_i32([2], vec![1, 2]).unwrap())];
    let found = Reference::evaluate(&g, &given, &[y]).unwrap();
    assert_eq!(found[0].to_f64(), [1.0, 2.0, 3.0]);
}
