//! What every test of a composite asks: derivatives against differences, the adjoint identity, symmetry, third
//! derivatives, and the same answers with and without simplification.

use bilevel_graph::{
    Array, DType, GradientCheck, Graph, Quantity, Reference, Tensor, gradient_or_zeros, hessian_vector, jvp, vjp,
};

/// Pseudo-random numbers in (−1, 1).
pub fn noise(shape: &[usize], seed: u64) -> Array {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    for _ in 0..20 {
        next();
    }
    let count: usize = shape.iter().product();
    Array::from_f64(shape, (0..count).map(|_| next()).collect()).unwrap()
}

/// As `noise`, moved: scale·noise + offset.
pub fn noise_around(shape: &[usize], seed: u64, scale: f64, offset: f64) -> Array {
    let values = noise(shape, seed).to_f64().iter().map(|v| v * scale + offset).collect();
    Array::from_f64(shape, values).unwrap()
}

/// Numbers no two of which are nearer than 2/count, in a mixed order: for operations that choose the largest.
pub fn spread_out(shape: &[usize], seed: u64) -> Array {
    let keys = noise(shape, seed).to_f64();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
    let mut values = vec![0.0; keys.len()];
    for (rank, &place) in order.iter().enumerate() {
        values[place] = 2.0 * (rank as f64 + 0.5) / keys.len() as f64 - 1.0;
    }
    Array::from_f64(shape, values).unwrap()
}

pub fn array(shape: &[usize], values: &[f64]) -> Array {
    Array::from_f64(shape, values.to_vec()).unwrap()
}

/// The value of a composite at a point.
pub fn value(point: &[Array], build: impl Fn(&[Tensor]) -> Tensor) -> Array {
    let g = Graph::new();
    let inputs = declare(&g, point);
    let y = build(&inputs);
    evaluate(&g, &inputs, point, &[y]).remove(0)
}

pub fn declare(g: &Graph, point: &[Array]) -> Vec<Tensor> {
    point.iter().enumerate().map(|(i, v)| g.input(format!("argument {i}"), v.shape(), v.dtype())).collect()
}

pub fn evaluate(g: &Graph, inputs: &[Tensor], point: &[Array], outputs: &[Tensor]) -> Vec<Array> {
    let pairs: Vec<(Tensor, Array)> = inputs.iter().copied().zip(point.iter().cloned()).collect();
    Reference::evaluate(g, &pairs, outputs).unwrap()
}

#[track_caller]
pub fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0, |m: f64, v| m.max(v.abs())).max(1e-300);
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance * scale || a == b, "element {i}: {a:e} but expected {b:e}");
    }
}

/// What to ask of one composite.
pub struct Asked {
    pub tolerance: f64,
    /// Largest difference step.
    pub step: f64,
    /// Third derivatives too.
    pub third: bool,
    /// Elements of each gradient that are differenced.
    pub coordinates: usize,
}

/// For smooth composites.
pub const SMOOTH: Asked = Asked { tolerance: 1e-8, step: 0.0625, third: true, coordinates: 24 };
/// For composites with kinks near the point.
pub const KINKED: Asked = Asked { tolerance: 1e-6, step: 1e-3, third: false, coordinates: 24 };

/// Numbers that differ from element to element, in the shape and type of x.
fn weights(x: Tensor, phase: f64) -> Tensor {
    (x.constant_like(0.0, [x.len()]).iota_like(0) * 1.7 + phase).sin().reshape(x.shape())
}

/// A scalar that depends on every element of y, linearly and quadratically.
fn scalar_of(y: Tensor) -> Tensor {
    (weights(y, 0.3) * y + weights(y, 1.1) * y * y).sum_all()
}

/// Asks everything of a composite with respect to every float argument; integer arguments are data.
#[track_caller]
pub fn ask(name: &str, asked: &Asked, point: &[Array], build: impl Fn(&[Tensor]) -> Tensor) {
    let float = |i: &usize| point[*i].dtype() == DType::F64;
    let places: Vec<usize> = (0..point.len()).filter(float).collect();
    let g = Graph::new();
    let inputs = declare(&g, point);
    let given: Vec<(Tensor, Array)> = inputs.iter().copied().zip(point.iter().cloned()).collect();
    let variables: Vec<Tensor> = places.iter().map(|&i| inputs[i]).collect();
    let y = build(&inputs).check().unwrap();
    let loss = scalar_of(y);

    let check = |loss: Tensor, what: &str, tolerance: f64| {
        let check = GradientCheck::new(&g, loss, &variables, &given).step(asked.step).coordinates(asked.coordinates);
        let report = check.run().unwrap();
        assert!(report.passed(tolerance), "{name}, {what}:\n{report}");
        let symmetry = report.row(Quantity::Symmetry, "all").unwrap();
        assert!(symmetry.max_relative_error <= 1e-12, "{name}, {what}:\n{report}");
    };
    check(loss, "first and second derivatives", asked.tolerance);

    let directions: Vec<Tensor> = variables.iter().map(|&x| weights(x, 2.3)).collect();
    if asked.third {
        let products = hessian_vector(loss, &variables, &directions).unwrap();
        let terms = products.iter().zip(&directions).filter_map(|(h, &v)| h.map(|h| (h * v).sum_all()));
        let curvature = terms.reduce(|a, b| a + b).unwrap();
        check(curvature, "third and fourth derivatives", asked.tolerance * 10.0);
    }

    // u·(J·v) = (Jᵀ·u)·v.
    let u = weights(y, 0.7);
    let pushed = jvp(&[y], &variables, &directions).unwrap()[0].unwrap();
    let pulled = vjp(&[y], &[u], &variables).unwrap();
    let left = (u * pushed).sum_all();
    let right =
        pulled.iter().zip(&directions).filter_map(|(d, &v)| d.map(|d| (d * v).sum_all())).reduce(|a, b| a + b).unwrap();
    let size = (u * pushed).abs().sum_all();
    let found: Vec<f64> =
        evaluate(&g, &inputs, point, &[left, right, size]).iter().map(|a| a.item().unwrap()).collect();
    assert!((found[0] - found[1]).abs() <= 1e-12 * found[2], "{name}: the adjoint identity fails: {found:?}");

    let simplified = value_and_derivatives(&Graph::new(), point, &places, &build);
    let as_written = value_and_derivatives(&Graph::without_simplification(), point, &places, &build);
    for (a, b) in simplified.iter().zip(&as_written) {
        assert_close(a, b, 1e-12);
    }
}

/// The elements of y, of the gradient and of a Hessian product. All arguments' derivatives are one list: one that is zero
/// but for rounding is measured against the others.
fn value_and_derivatives(
    g: &Graph,
    point: &[Array],
    places: &[usize],
    build: impl Fn(&[Tensor]) -> Tensor,
) -> [Vec<f64>; 3] {
    let inputs = declare(g, point);
    let variables: Vec<Tensor> = places.iter().map(|&i| inputs[i]).collect();
    let y = build(&inputs);
    let loss = scalar_of(y);
    let directions: Vec<Tensor> = variables.iter().map(|&x| weights(x, 2.3)).collect();
    let products = hessian_vector(loss, &variables, &directions).unwrap();
    let products = products.iter().zip(&variables).map(|(h, x)| h.unwrap_or_else(|| x.zeros_like())).collect();
    let lists = [vec![y], gradient_or_zeros(loss, &variables).unwrap(), products];
    lists.map(|outputs| evaluate(g, &inputs, point, &outputs).iter().flat_map(|a| a.to_f64()).collect())
}

/// Value, first and second derivative of a function of one number at these places, in closed form by the graph.
pub fn orders(at: &[f64], build: impl Fn(Tensor) -> Tensor) -> [Vec<f64>; 3] {
    let g = Graph::new();
    let x = g.input("x", [at.len()], DType::F64);
    let y = build(x);
    let first = gradient_or_zeros(y.sum_all(), &[x]).unwrap()[0];
    let second = gradient_or_zeros(first.sum_all(), &[x]).unwrap()[0];
    let found = Reference::evaluate(&g, &[(x, array(&[at.len()], at))], &[y, first, second]).unwrap();
    [0, 1, 2].map(|i| found[i].to_f64())
}
