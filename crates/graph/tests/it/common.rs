//! What the derivative tests share: values to test at, and one function that holds a primitive's derivatives of first, second
//! and third order against differences, against their adjoints, and against those of the graph without simplification.

// Each test file is a crate of its own and uses a part of this.
use bilevel_graph::{
    Array, DType, Data, GradientCheck, Graph, Quantity, Reference, Tensor, gradient, gradient_or_zeros, hessian_vector,
    jvp, vjp,
};

/// The next number of splitmix64, in [0, 1).
pub fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Numbers of this shape between `low` and `high`; another seed gives others.
pub fn between(seed: u64, shape: &[usize], low: f64, high: f64) -> Array {
    let mut state = seed;
    let values = (0..shape.iter().product()).map(|_| low + (high - low) * uniform(&mut state)).collect();
    Array::from_f64(shape, values).unwrap()
}

/// Numbers of this shape between −1 and 1.
pub fn numbers(seed: u64, shape: &[usize]) -> Array {
    between(seed, shape, -1.0, 1.0)
}

/// Numbers of which no two are nearer than a quarter, in random order: a maximum stays where it is while differences are
/// taken.
pub fn separated(seed: u64, shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    let mut values: Vec<f64> = (0..count).map(|i| 0.25 * i as f64 - 0.125 * count as f64 + 0.06).collect();
    let mut state = seed;
    for i in (1..count).rev() {
        values.swap(i, (uniform(&mut state) * (i + 1) as f64) as usize);
    }
    Array::from_f64(shape, values).unwrap()
}

pub fn f64s(shape: &[usize], values: &[f64]) -> Array {
    Array::from_f64(shape, values.to_vec()).unwrap()
}

pub fn i32s(shape: &[usize], values: &[i32]) -> Array {
    Array::from_i32(shape, values.to_vec()).unwrap()
}

/// The largest difference, relative to the largest number of both.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = a.iter().chain(b).fold(1e-300, |m: f64, x| m.max(x.abs()));
    a.iter()
        .zip(b)
        .map(|(x, y)| if x == y { 0.0 } else { (x - y).abs() })
        .fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) })
        / scale
}

/// Σ wᵢ·sin(yᵢ + 0.3), with weights of both signs: a loss that is not linear in anything.
pub fn wavy(graph: &Graph, y: Tensor) -> Tensor {
    let w = (graph.iota([y.len()], 0, y.dtype()) * 0.7 + 0.4).cos().reshape(y.shape());
    ((y + 0.3).sin() * w).sum_all()
}

/// How well derivatives must agree with differences, and up to which order.
#[derive(Clone, Copy)]
pub struct Demand {
    pub tolerance: f64,
    pub third: bool,
}

/// Smooth functions of well-scaled numbers.
pub const SMOOTH: Demand = Demand { tolerance: 1e-8, third: true };
/// Functions with kinks somewhere (not at the point).
pub const KINKED: Demand = Demand { tolerance: 1e-8, third: false };

/// Checks y = build(inputs) at these values, on a graph that simplifies and on one that does not, which must agree. Integer
/// arrays become integer inputs.
pub fn check(values: &[Array], demand: Demand, build: impl Fn(&Graph, &[Tensor]) -> Tensor) {
    let simplified = check_on(&Graph::new(), values, demand, &build);
    let plain = check_on(&Graph::without_simplification(), values, demand, &build);
    assert_eq!(simplified.len(), plain.len());
    for ((what, a), (_, b)) in simplified.iter().zip(&plain) {
        assert!(distance(a, b) < 1e-12, "{what}: simplified {a:?}, as written {b:?}");
    }
}

/// One graph's share of [`check`]. Returns every derivative by name.
fn check_on(
    graph: &Graph,
    values: &[Array],
    demand: Demand,
    build: impl Fn(&Graph, &[Tensor]) -> Tensor,
) -> Vec<(String, Vec<f64>)> {
    let declare = |(i, v): (usize, &Array)| graph.input(format!("x{i}"), v.shape(), v.dtype());
    let inputs: Vec<Tensor> = values.iter().enumerate().map(declare).collect();
    let y = build(graph, &inputs).check().unwrap();
    let loss = wavy(graph, y);
    let x: Vec<Tensor> = inputs.iter().copied().filter(|t| t.dtype() == DType::F64).collect();
    let mut point: Vec<(Tensor, Array)> = inputs.iter().copied().zip(values.iter().cloned()).collect();

    let report = GradientCheck::new(graph, loss, &x, &point).run().unwrap();
    assert!(report.passed(demand.tolerance), "\n{report}");
    assert!(report.row(Quantity::Symmetry, "all").unwrap().max_relative_error < 1e-12, "\n{report}");

    // u, v: directions in the inputs; c: one in the output.
    let v: Vec<Tensor> =
        x.iter().enumerate().map(|(i, x)| graph.input(format!("v{i}"), x.shape(), DType::F64)).collect();
    for (i, v) in v.iter().enumerate() {
        point.push((*v, numbers(100 + i as u64, &v.shape())));
    }
    let c = graph.input("c", y.shape(), DType::F64);
    point.push((c, numbers(200, &y.shape())));
    adjoint(graph, &point, y, &x, &v, c);

    let hv = hessian_vector(loss, &x, &v).unwrap();
    let mut found = vec![("value".to_string(), y)];
    for (i, d) in gradient_or_zeros(loss, &x).unwrap().into_iter().enumerate() {
        found.push((format!("gradient {i}"), d));
    }
    for (i, d) in hv.iter().enumerate() {
        found.push((format!("Hessian product {i}"), d.unwrap_or_else(|| x[i].zeros_like())));
    }
    let curvature = hv.iter().zip(&v).filter_map(|(d, v)| d.map(|d| (d * *v).sum_all())).reduce(|a, b| a + b);
    if let (true, Some(curvature)) = (demand.third, curvature) {
        let report = GradientCheck::new(graph, curvature, &x, &point).coordinates(6).run().unwrap();
        // The differences of a second derivative have lost some digits to begin with.
        assert!(report.passed(demand.tolerance * 10.0), "third order\n{report}");
        for (i, d) in gradient(curvature, &x).unwrap().into_iter().enumerate() {
            found.push((format!("third derivative {i}"), d.unwrap_or_else(|| x[i].zeros_like())));
        }
    }
    let outputs: Vec<Tensor> = found.iter().map(|(_, t)| *t).collect();
    let arrays = Reference::evaluate(graph, &point, &outputs).unwrap();
    found.into_iter().zip(arrays).map(|((name, _), array)| (name, array.to_f64())).collect()
}

/// ⟨c, J·v⟩ = ⟨Jᵀ·c, v⟩ to 12 digits.
fn adjoint(graph: &Graph, point: &[(Tensor, Array)], y: Tensor, x: &[Tensor], v: &[Tensor], c: Tensor) {
    let forward = jvp(&[y], x, v).unwrap()[0];
    let backward = vjp(&[y], &[c], x).unwrap();
    let left = forward.map(|jv| jv * c);
    let right: Vec<Tensor> = backward.iter().zip(v).filter_map(|(d, v)| d.map(|d| d * *v)).collect();
    let terms = |tensors: &[Tensor]| -> Vec<f64> {
        Reference::evaluate(graph, point, tensors).unwrap().iter().flat_map(Array::to_f64).collect()
    };
    let (left, right) = (terms(left.as_slice()), terms(&right));
    let scale: f64 = left.iter().chain(&right).map(|t| t.abs()).sum::<f64>() + 1e-300;
    let error = (left.iter().sum::<f64>() - right.iter().sum::<f64>()).abs() / scale;
    assert!(error < 1e-12, "adjoint identity off by {error:e}");
}

/// The value of a tensor at these inputs.
pub fn value(graph: &Graph, inputs: &[(Tensor, Array)], tensor: Tensor) -> Array {
    Reference::evaluate(graph, inputs, &[tensor]).unwrap().remove(0)
}

/// The gradient of a loss with respect to one input, evaluated on graphs with and without simplification, which must be the
/// same to the last bit.
pub fn gradient_at(at: &Array, loss: impl Fn(&Graph, Tensor) -> Tensor) -> Vec<f64> {
    let on = |graph: Graph| {
        let x = graph.input("x", at.shape(), at.dtype());
        let dx = gradient_or_zeros(loss(&graph, x), &[x]).unwrap()[0];
        value(&graph, &[(x, at.clone())], dx).to_f64()
    };
    let (simplified, plain) = (on(Graph::new()), on(Graph::without_simplification()));
    assert_eq!(simplified, plain, "simplified and as written");
    simplified
}

/// The numbers of an integer array.
pub fn integers(array: &Array) -> Vec<i32> {
    match array.data() {
        Data::I32(values) => values.to_vec(),
        other => panic!("not integers: {other:?}"),
    }
}
