//! Gauss-Newton products against the matrix JᵀH_outJ written out, where they are definite, and which outputs are found.

use bilevel_graph::random::fill_normal_f64;
use bilevel_graph::{
    Array, DType, Function, GaussNewton, Graph, Program, Reference, Tensor, gauss_newton_vector, gradient,
    hessian_vector, jvp, nn,
};

const ROWS: usize = 5;
const WIDTH: usize = 3;
const CLASSES: usize = 4;
/// Weights of two layers, and what they are as leaves.
const SHAPES: [[usize; 2]; 2] = [[WIDTH, WIDTH], [WIDTH, CLASSES]];

fn normals(stream: u32, count: usize) -> Vec<f64> {
    let mut values = vec![0.0; count];
    fill_normal_f64([7, 11], stream, 0, 0, &mut values);
    values
}

fn inputs(g: &Graph, prefix: &str) -> Vec<Tensor> {
    (0..2).map(|i| g.input(format!("{prefix}{i}"), SHAPES[i], DType::F64)).collect()
}

/// Two layers with a curved function between and after them.
fn model(g: &Graph, theta: &[Tensor]) -> Tensor {
    let x = g.iota([ROWS, WIDTH], 0, DType::F64) * 0.3 - g.iota([ROWS, WIDTH], 1, DType::F64) * 0.7 + 0.2;
    x.matmul(theta[0]).tanh().matmul(theta[1])
}

fn labels(g: &Graph) -> Tensor {
    g.iota([ROWS], 0, DType::I32).minimum((CLASSES - 1) as f64)
}

/// Splits a long vector into leaves.
fn leaves(values: &[f64]) -> Vec<Array> {
    let (a, b) = values.split_at(SHAPES[0][0] * SHAPES[0][1]);
    vec![Array::from_f64(SHAPES[0], a.to_vec()).unwrap(), Array::from_f64(SHAPES[1], b.to_vec()).unwrap()]
}

fn size() -> usize {
    SHAPES.iter().map(|[a, b]| a * b).sum()
}

fn unit(count: usize, at: usize) -> Vec<f64> {
    (0..count).map(|i| (i == at) as u8 as f64).collect()
}

fn evaluate(g: &Graph, given: &[(Tensor, Array)], results: &[Tensor]) -> Vec<f64> {
    Reference::evaluate(g, given, results).unwrap().iter().flat_map(|array| array.to_f64()).collect()
}

type Loss = fn(&Graph, Tensor, &[Tensor]) -> Tensor;

/// G by its columns, from products.
fn products(loss: Loss, theta: &[f64]) -> Vec<Vec<f64>> {
    let g = Graph::new();
    let (t, v) = (inputs(&g, "t"), inputs(&g, "v"));
    let found = gauss_newton_vector(loss(&g, model(&g, &t), &t), &t, &v).unwrap();
    let found: Vec<Tensor> = found.into_iter().zip(&t).map(|(d, t)| d.unwrap_or(t.zeros_like())).collect();
    let column = |j: usize| {
        let given: Vec<(Tensor, Array)> =
            t.iter().copied().zip(leaves(theta)).chain(v.iter().copied().zip(leaves(&unit(size(), j)))).collect();
        evaluate(&g, &given, &found)
    };
    (0..size()).map(column).collect()
}

/// The same by J of the model and the Hessian of F by (z, θ), both written out.
fn written_out(loss: Loss, theta: &[f64]) -> Vec<Vec<f64>> {
    let outputs = ROWS * CLASSES;
    let g = Graph::new();
    let (t, v) = (inputs(&g, "t"), inputs(&g, "v"));
    let z = model(&g, &t);
    let moved = jvp(&[z], &t, &v).unwrap()[0].unwrap();
    let at = |v_: &[f64]| -> Vec<(Tensor, Array)> {
        t.iter().copied().zip(leaves(theta)).chain(v.iter().copied().zip(leaves(v_))).collect()
    };
    let point = evaluate(&g, &at(&unit(size(), 0)), &[z]);
    // Columns of [J; I].
    let stacked: Vec<Vec<f64>> =
        (0..size()).map(|j| [evaluate(&g, &at(&unit(size(), j)), &[moved]), unit(size(), j)].concat()).collect();

    let g = Graph::new();
    let (t, vt) = (inputs(&g, "t"), inputs(&g, "v"));
    let (z, vz) = (g.input("z", [ROWS, CLASSES], DType::F64), g.input("vz", [ROWS, CLASSES], DType::F64));
    let (all, along) = ([&[z], &t[..]].concat(), [&[vz], &vt[..]].concat());
    let bent = hessian_vector(loss(&g, z, &t), &all, &along).unwrap();
    let bent: Vec<Tensor> = bent.into_iter().zip(&all).map(|(d, t)| d.unwrap_or(t.zeros_like())).collect();
    let array = |values: &[f64]| Array::from_f64([ROWS, CLASSES], values.to_vec()).unwrap();
    let times = |x: &[f64]| {
        let mut given = vec![(z, array(&point)), (vz, array(&x[..outputs]))];
        given.extend(t.iter().copied().zip(leaves(theta)));
        given.extend(vt.iter().copied().zip(leaves(&x[outputs..])));
        evaluate(&g, &given, &bent)
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let bent: Vec<Vec<f64>> = stacked.iter().map(|column| times(column)).collect();
    bent.iter().map(|bent| stacked.iter().map(|row| dot(row, bent)).collect()).collect()
}

/// True where a symmetric matrix, a little lifted, has a Cholesky factor.
fn is_positive(matrix: &[Vec<f64>]) -> bool {
    let n = matrix.len();
    let mut l = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let rest: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            let value = matrix[i][j] - rest + if i == j { 1e-9 } else { 0.0 };
            if i == j && value <= 0.0 {
                return false;
            }
            l[i][j] = if i == j { value.sqrt() } else { value / l[j][j] };
        }
    }
    true
}

const CONVEX: [(&str, Loss); 10] = [
    ("cross entropy", |g, z, _| nn::cross_entropy(z, labels(g)) * 3.0),
    ("weighted rows", |g, z, _| {
        let weights = g.iota([ROWS], 0, DType::F64).sin().exp();
        (weights * nn::cross_entropy_rows(z, labels(g))).sum_all() / 2.0
    }),
    ("a cross entropy written out", |g, z, _| {
        let shifted = z - z.max([1]).stop_gradient().unsqueeze([1]);
        let picked = nn::one_hot(labels(g), CLASSES, DType::F64) * shifted;
        (shifted.exp().sum([1]).log() - picked.sum([1])).mean_all()
    }),
    ("the same, of logits that are not shifted", |g, z, _| {
        let largest = z.max([1]).stop_gradient();
        let normaliser = (z - largest.unsqueeze([1])).exp().sum([1]).log() + largest;
        (normaliser - (nn::one_hot(labels(g), CLASSES, DType::F64) * z).sum([1])).mean_all()
    }),
    ("soft targets", |_, z, _| nn::cross_entropy_soft(z, nn::softmax((z * 0.0).stop_gradient() + 1.0, 1)) * 0.5),
    ("squared errors", |g, z, _| nn::mse(z, g.iota([ROWS, CLASSES], 1, DType::F64))),
    ("squares by hand, less a linear term", |_, z, t| (z - 0.5).square().sum_all() * 0.5 - t[0].sum_all()),
    ("a penalty beside", |g, z, t| {
        nn::cross_entropy(z, labels(g)) + (t[0].square().sum_all() + t[1].square().sum_all()) * 0.05
    }),
    ("a hinge and an exponential", |_, z, _| (1.0 - z).maximum(0.0).sum_all() + z.exp().mean_all()),
    ("marked by hand", |_, z, _| {
        let cosh = ((z.exp() + (-z).exp()) * 0.5).log();
        nn::convex_in(cosh * 0.5, &[z]).mean_all() * 4.0
    }),
];

#[test]
fn products_are_those_of_the_matrix_written_out_and_it_is_positive() {
    let theta = normals(1, size());
    for (name, loss) in CONVEX {
        let (found, expected) = (products(loss, &theta), written_out(loss, &theta));
        let scale = expected.iter().flatten().fold(1.0, |m: f64, v| m.max(v.abs()));
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() <= 1e-12 * scale, "{name}: {found} and not {expected}");
        }
        assert!(is_positive(&found), "{name}");
        let g = Graph::new();
        let t = inputs(&g, "t");
        let z = model(&g, &t);
        let product = GaussNewton::new(loss(&g, z, &t), &t).unwrap();
        assert!(product.is_definite(), "{name}");
    }
}

#[test]
fn the_hessian_of_the_same_network_is_not_positive() {
    let theta = normals(1, size());
    let g = Graph::new();
    let (t, v) = (inputs(&g, "t"), inputs(&g, "v"));
    let loss = nn::cross_entropy(model(&g, &t), labels(&g));
    let found: Vec<Tensor> = hessian_vector(loss, &t, &v).unwrap().into_iter().flatten().collect();
    let columns: Vec<Vec<f64>> = (0..size())
        .map(|j| {
            let given: Vec<(Tensor, Array)> =
                t.iter().copied().zip(leaves(&theta)).chain(v.iter().copied().zip(leaves(&unit(size(), j)))).collect();
            evaluate(&g, &given, &found)
        })
        .collect();
    assert!(!is_positive(&columns), "or the test above would show nothing");
}

#[test]
fn a_linear_model_has_the_same_hessian_and_gauss_newton_matrix() {
    let g = Graph::new();
    let (x, w, v) =
        (g.input("x", [6, 3], DType::F64), g.input("w", [3, 4], DType::F64), g.input("v", [3, 4], DType::F64));
    let labels = g.iota([6], 0, DType::I32).minimum(3.0);
    let loss = nn::cross_entropy(x.matmul(w), labels) + w.square().sum_all() * 0.1;
    let both = [gauss_newton_vector(loss, &[w], &[v]), hessian_vector(loss, &[w], &[v])];
    let both: Vec<Tensor> = both.into_iter().map(|d| d.unwrap()[0].unwrap()).collect();
    let array = |stream, shape: [usize; 2]| Array::from_f64(shape, normals(stream, shape[0] * shape[1])).unwrap();
    let given = [(x, array(1, [6, 3])), (w, array(2, [3, 4])), (v, array(3, [3, 4]))];
    let found = Reference::evaluate(&g, &given, &both).unwrap();
    for (a, b) in found[0].to_f64().iter().zip(found[1].to_f64()) {
        assert!((a - b).abs() < 1e-14, "{a} and {b}");
    }
}

#[test]
fn what_is_not_known_to_be_convex_is_not_called_definite() {
    let g = Graph::new();
    let (w, weights) = (g.input("w", [3], DType::F64), g.input("weights", [3], DType::F64));
    let z = w.tanh();
    let definite = |loss: Tensor| GaussNewton::new(loss, &[w]).unwrap().is_definite();
    assert!(definite((z - 1.0).square().sum_all()));
    assert!(definite((weights.exp() * z.square()).sum_all()));
    assert!(definite((nn::sigmoid(weights) * z.square()).sum_all()));
    assert!(definite(nn::softplus(-z * 2.0).mean_all()), "the logistic loss");
    assert!(definite(-(z + 2.0).log().sum_all()));
    assert!(definite((w * 3.0).sum_all()), "a linear loss has no curvature");
    assert!(!definite((weights * z.square()).sum_all()), "a weight may be negative");
    assert!(!definite(-z.square().sum_all()));
    assert!(!definite((z.square() - w.exp().sin()).sum_all()));
    assert!(!definite((z * w).sum_all()));
    let spread = |z: Tensor| z.exp().sum_all().log();
    assert!(definite(spread(z) - z.sum_all()), "the second part is linear in z");
    assert!(!definite(z.sum_all() - spread(z)), "concave in z");
    assert!(!definite(spread(z) - z.sin().sum_all()));
    assert!(!definite((z.exp() * weights).sum_all().log()), "a weight may be negative");
}

#[test]
fn a_function_keeps_what_is_convex() {
    let traced = {
        let g = Graph::new();
        let w = g.input("w", [3], DType::F64);
        let z = w.tanh();
        let smooth = ((z.exp() + (-z).exp()) * 0.5).log();
        Program::builder(&g).output("loss", nn::convex_in(smooth, &[z]).sum_all()).function().unwrap()
    };
    let definite = |function: &Function| {
        let g = Graph::new();
        let w = g.input("w", [3], DType::F64);
        let loss = function.inline(&g, &[w]).unwrap()[0];
        GaussNewton::new(loss, &[w]).unwrap().is_definite()
    };
    assert!(definite(&traced));
    let text = serde_json::to_string(&traced).unwrap();
    assert!(definite(&serde_json::from_str(&text).unwrap()));
    let wrong = text.replace("\"convex\":[{\"node\":", "\"convex\":[{\"node\":99");
    assert!(wrong != text && serde_json::from_str::<Function>(&wrong).is_err());
}

#[test]
fn an_output_is_where_the_first_convex_function_begins() {
    let g = Graph::new();
    let w = g.input("w", [3], DType::F64);
    let (z, other) = (w.tanh(), w.sin() - 0.5);
    let loss = z.square().sum_all() + (other.square() * 2.0).mean_all() + w.square().sum_all();
    let found = GaussNewton::new(loss, &[w]).unwrap();
    let outputs = found.outputs();
    assert!(outputs.len() == 2 && outputs[0].is_same_node(z) && outputs[1].is_same_node(other), "{outputs:?}");
    // Errors come up as everywhere else.
    let foreign = Graph::new().input("x", [3], DType::F64);
    assert!(gauss_newton_vector(loss, &[w], &[foreign]).is_err());
    assert!(gradient(nn::convex_in(loss, &[foreign]), &[w]).is_ok());
}
