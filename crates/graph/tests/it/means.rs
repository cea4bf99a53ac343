//! Means of integers are floats, and a number that no integer can hold is refused beside integers.

use bilevel_graph::{Array, DType, ErrorKind, Graph, Reference, Tensor, nn};

fn run(g: &Graph, input: Tensor, value: Array, output: Tensor) -> Array {
    Reference::evaluate(g, &[(input, value)], &[output]).unwrap().remove(0)
}

#[test]
fn the_mean_of_an_integer_comparison_is_the_share_of_ones() {
    let g = Graph::new();
    let labels = g.input("labels", [4], DType::I32);
    let right = labels.equal(g.iota([4], 0, DType::I32)).mean_all();
    let found = run(&g, labels, Array::from_i32([4], vec![0, 1, 7, 3]).unwrap(), right);
    assert_eq!((found.dtype(), found.item()), (DType::F32, Some(0.75)));
}

#[test]
fn the_mean_of_integers_over_an_axis_is_a_float_of_the_graphs_type() {
    for dtype in [DType::F32, DType::F64] {
        let g = Graph::new();
        g.set_float_type(dtype).unwrap();
        let x = g.input("x", [2, 3], DType::I32);
        let value = || Array::from_i32([2, 3], vec![1, 2, 4, -1, 0, -1]).unwrap();
        let rows = run(&g, x, value(), x.mean([1]) * g.scalar(3.0, dtype));
        assert_eq!((rows.dtype(), rows.to_f64()), (dtype, vec![7.0, -2.0]));
        assert_eq!(run(&g, x, value(), x.mean([0])).to_f64(), [0.0, 1.0, 1.5]);
        assert_eq!(run(&g, x, value(), x.mean([])).dtype(), dtype);
    }
}

#[test]
fn the_mean_of_any_number_of_ones_is_one() {
    let g = Graph::new();
    g.set_float_type(DType::F64).unwrap();
    // 49·(1/49) is not 1.
    let ones = g.iota([49, 1], 1, DType::I32).equal(0.0);
    let right = nn::accuracy(g.iota([49, 2], 1, DType::F64), g.constant(1.0, [49], DType::I32));
    for share in Reference::evaluate(&g, &[], &[ones.mean_all(), right]).unwrap() {
        assert_eq!(share.item(), Some(1.0));
    }
}

#[test]
fn the_mean_of_large_integers_does_not_wrap() {
    let g = Graph::new();
    let x = g.input("x", [3], DType::I32);
    let value = Array::from_i32([3], vec![i32::MAX - 127; 3]).unwrap();
    assert_eq!(run(&g, x, value, x.mean_all()).item(), Some((i32::MAX - 127) as f64));
}

#[test]
fn integers_are_not_the_float_type_of_a_graph() {
    let error = Graph::new().set_float_type(DType::I32).unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::Operation { ref operation, .. } if operation == "set_float_type"),
        "{error}"
    );
}

#[test]
fn a_number_that_is_not_an_integer_is_refused_beside_integers() {
    let g = Graph::new();
    let x = g.input("x", [3], DType::I32);
    let refused: [(&str, Tensor); 9] = [
        ("mul", x * 0.5),
        ("mul", (1.0 / 3.0) * x),
        ("sub", 0.5 - x),
        ("less", x.less(0.5)),
        ("greater", x.greater(f64::NAN)),
        ("maximum", x.maximum(3e9)),
        ("select", x.select(x, 0.1)),
        ("constant", g.scalar(0.5, DType::I32)),
        ("constant", x.constant_like(f64::INFINITY, [2])),
    ];
    for (operation, tensor) in refused {
        let error = tensor.check().unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("{operation}: ")) && text.contains("is not a 32-bit integer"), "{text}");
        assert!(error.location.unwrap().file().ends_with("means.rs"), "{text}");
    }
    assert!((x * 3.0 - 2.0).maximum(-1.0).check().is_ok());
}
