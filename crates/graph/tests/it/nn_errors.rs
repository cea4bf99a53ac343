//! Operands that do not fit: the error names the composite, the shapes and the line of the call, and nothing panics.

use bilevel_graph::conformance::Dice;
use bilevel_graph::nn::{self, AttentionParameters, Conv2d, ConvTranspose2d, Pool2d};
use bilevel_graph::{DType, ErrorKind, Graph, Line, Tensor, gradient};

/// The error's first word is the composite, its operands are shown, and its line is that of the call.
#[track_caller]
fn refused(name: &str, tensor: Tensor) {
    let caller = Line::caller();
    let error = tensor.check().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("{name}: ")), "{text}");
    let ErrorKind::Operation { operands, reason, .. } = &error.kind else { panic!("{text}") };
    assert!(!operands.is_empty() && !reason.is_empty(), "{text}");
    let line = error.location.expect("a line of user code");
    assert_eq!(line.file(), caller.file());
    assert!((caller.line()..caller.line() + 8).contains(&line.line()), "{text} at line {}", caller.line());
}

#[test]
fn composites_of_rows_refuse_what_does_not_fit() {
    let g = Graph::new();
    let f = |shape: &[usize]| g.constant(1.0, shape, DType::F64);
    let single = |shape: &[usize]| g.constant(1.0, shape, DType::F32);
    let whole = |shape: &[usize]| g.constant(1.0, shape, DType::I32);

    refused("linear", nn::linear(f(&[2, 3]), f(&[4, 5]), None));
    refused("linear", nn::linear(f(&[2, 3]), f(&[3, 5]), f(&[4])));
    refused("linear", nn::linear(f(&[]), f(&[3, 5]), None));
    refused("linear", nn::linear(f(&[2, 3]), single(&[3, 5]), None));
    refused("softmax", nn::softmax(f(&[2, 3]), 2));
    refused("softmax", nn::softmax(whole(&[2, 3]), 1));
    refused("log_softmax", nn::log_softmax(f(&[]), 0));
    refused("logsumexp", nn::logsumexp(f(&[2]), 1));
    refused("cross_entropy", nn::cross_entropy(f(&[4, 3]), whole(&[3])));
    refused("cross_entropy", nn::cross_entropy(f(&[4, 3]), f(&[4])));
    refused("cross_entropy", nn::cross_entropy(f(&[0, 3]), whole(&[0])));
    refused("cross_entropy_rows", nn::cross_entropy_rows(f(&[]), whole(&[])));
    refused("cross_entropy_soft", nn::cross_entropy_soft(f(&[4, 3]), f(&[4, 2])));
    refused("accuracy", nn::accuracy(f(&[4, 3]), whole(&[3])));
    refused("accuracy", nn::accuracy(f(&[4, 3]), f(&[4])));
    refused("accuracy", nn::accuracy(whole(&[4, 3]), whole(&[4])));
    refused("accuracy", nn::accuracy(f(&[]), whole(&[])));
    refused("accuracy", nn::accuracy(f(&[0, 3]), whole(&[0])));
    refused("accuracy", nn::accuracy(f(&[4, 0]), whole(&[4])));
    refused("top_k_accuracy", nn::top_k_accuracy(f(&[4, 3]), whole(&[4]), 0));
    refused("top_k_accuracy", nn::top_k_accuracy(f(&[4, 3]), whole(&[4]), 4));
    refused("mse", nn::mse(f(&[4, 3]), f(&[3])));
    refused("layer_norm", nn::layer_norm(f(&[4, 3]), f(&[4]), f(&[3]), 1e-5));
    refused("layer_norm", nn::layer_norm(f(&[4, 3]), f(&[3]), f(&[1]), 1e-5));
    refused("batch_norm", nn::batch_norm(f(&[4, 3]), f(&[4]), f(&[3]), 1e-5).y);
    refused("batch_norm", nn::batch_norm(f(&[0, 3]), f(&[3]), f(&[3]), 1e-5).mean);
    refused("batch_norm", nn::batch_norm(f(&[4]), f(&[4]), f(&[4]), 1e-5).variance);
    let c = f(&[3]);
    refused("batch_norm_frozen", nn::batch_norm_frozen(f(&[4, 3]), c, f(&[2]), c, c, 1e-5));
    refused("group_norm", nn::group_norm(f(&[4, 3, 2]), 2, c, c, 1e-5));
    refused("group_norm", nn::group_norm(f(&[4, 3, 2]), 0, c, c, 1e-5));
    refused("gelu", nn::gelu(whole(&[3])));
    refused("softplus", nn::softplus(whole(&[3])));
    refused("elu", nn::elu(whole(&[3]), 1.0));
    refused("silu", nn::silu(whole(&[3])));
    refused("sigmoid", nn::sigmoid(whole(&[3])));
    refused("tanh", nn::tanh(whole(&[3])));
    refused("safe_sqrt", nn::safe_sqrt(whole(&[3])));
    refused("norm", nn::norm(f(&[3]), [1]));
    refused("matrix_exponential", nn::matrix_exponential(f(&[2, 3])));
    refused("matrix_exponential", nn::matrix_exponential(f(&[2])));
    refused("gaussian_prior", nn::gaussian_prior(f(&[2]), f(&[3])));
    refused("gaussian_prior", nn::gaussian_prior(f(&[2]), single(&[])));
    refused("laplace_prior", nn::laplace_prior(whole(&[2]), whole(&[])));
    refused("laplace_prior", nn::laplace_prior(f(&[2]), f(&[2, 2])));
    refused("cumsum", nn::cumsum(f(&[2]), 1));
    refused("cumprod", nn::cumprod(f(&[2]), 1));
}

#[test]
fn composites_of_images_sequences_and_draws_refuse_what_does_not_fit() {
    let g = Graph::new();
    let f = |shape: &[usize]| g.constant(1.0, shape, DType::F64);
    let whole = |shape: &[usize]| g.constant(1.0, shape, DType::I32);
    let step = g.step();

    refused("conv2d", nn::conv2d(f(&[1, 2, 3, 3]), f(&[4, 3, 2, 2]), None, Conv2d::default()));
    refused("conv2d", nn::conv2d(f(&[1, 2, 3, 3]), f(&[4, 2, 4, 2]), None, Conv2d::default()));
    refused("conv2d", nn::conv2d(f(&[1, 2, 3, 3]), f(&[4, 2, 2, 2]), f(&[3]), Conv2d::default()));
    refused("conv2d", nn::conv2d(f(&[1, 3, 3]), f(&[4, 2, 2, 2]), None, Conv2d::default()));
    let still = Conv2d { stride: [0, 1], ..Conv2d::default() };
    refused("conv2d", nn::conv2d(f(&[1, 2, 3, 3]), f(&[4, 2, 2, 2]), None, still));
    let plain = ConvTranspose2d::default();
    refused("conv_transpose2d", nn::conv_transpose2d(f(&[1, 2, 3, 3]), f(&[4, 3, 2, 2]), None, plain));
    refused("conv_transpose2d", nn::conv_transpose2d(f(&[1, 2, 3]), f(&[2, 3, 2, 2]), None, plain));
    refused("conv_transpose2d", nn::conv_transpose2d(f(&[1, 2, 3, 3]), f(&[2, 3, 2, 2]), f(&[2]), plain));
    let far = ConvTranspose2d { output_padding: [1, 0], ..plain };
    refused("conv_transpose2d", nn::conv_transpose2d(f(&[1, 2, 3, 3]), f(&[2, 3, 2, 2]), None, far));
    let cropped = ConvTranspose2d { padding: [9, 9], ..plain };
    refused("conv_transpose2d", nn::conv_transpose2d(f(&[1, 2, 3, 3]), f(&[2, 3, 2, 2]), None, cropped));
    refused("max_pool2d", nn::max_pool2d(f(&[3, 3]), Pool2d::of([2, 2])));
    refused("max_pool2d", nn::max_pool2d(f(&[1, 1, 3, 3]), Pool2d::of([4, 2])));
    refused("max_pool2d", nn::max_pool2d(f(&[1, 1, 3, 3]), Pool2d { padding: [2, 0], ..Pool2d::of([2, 2]) }));
    refused("avg_pool2d", nn::avg_pool2d(f(&[1, 1, 3, 3]), Pool2d { stride: [0, 1], ..Pool2d::of([2, 2]) }));
    refused("avg_pool2d", nn::avg_pool2d(whole(&[1, 1, 3, 3]), Pool2d::of([2, 2])));
    refused("global_avg_pool2d", nn::global_avg_pool2d(f(&[3, 3])));
    refused("global_avg_pool2d", nn::global_avg_pool2d(f(&[3, 3, 0, 2])));
    refused("global_max_pool2d", nn::global_max_pool2d(f(&[3, 3, 0, 2])));

    let attend = nn::scaled_dot_product_attention;
    refused("scaled_dot_product_attention", attend(f(&[2, 3]), f(&[4, 2]), f(&[4, 2]), None));
    refused("scaled_dot_product_attention", attend(f(&[2, 3]), f(&[4, 3]), f(&[5, 2]), None));
    let (q, k) = (f(&[2, 3]), f(&[4, 3]));
    refused("scaled_dot_product_attention", nn::scaled_dot_product_attention(q, k, k, f(&[3, 4])));
    let (x, w) = (f(&[1, 2, 4]), f(&[4, 4]));
    let good = AttentionParameters { query: w.into(), key: w.into(), value: w.into(), output: w.into() };
    refused("multi_head_attention", nn::multi_head_attention(x, x, x, &good, 3, None));
    refused("multi_head_attention", nn::multi_head_attention(x, x, f(&[1, 3, 4]), &good, 2, None));
    refused("multi_head_attention", nn::multi_head_attention(x, x, x, &good, 2, f(&[7])));
    let bad = AttentionParameters { output: f(&[3, 4]).into(), ..good };
    refused("multi_head_attention", nn::multi_head_attention(x, x, x, &bad, 2, None));
    let bad = AttentionParameters { key: (w, f(&[3])).into(), ..good };
    refused("multi_head_attention", nn::multi_head_attention(x, x, x, &bad, 2, None));

    refused("embedding", nn::embedding(f(&[3, 2]), f(&[4])));
    refused("embedding", nn::embedding(f(&[]), whole(&[4])));
    refused("one_hot", nn::one_hot(f(&[4]), 3, DType::F64));
    refused("sine_encoding", nn::sine_encoding(f(&[4]), 0));
    refused("sine_encoding", nn::sine_encoding(f(&[]), 3));
    refused("position_table", nn::position_table(&g, 3, 5, DType::F64));
    refused("position_table", nn::position_table(&g, 3, 4, DType::I32));
    refused("affine_grid", nn::affine_grid(f(&[2, 3]), [2, 2], true));
    refused("grid_sample", nn::grid_sample(f(&[1, 2, 3, 3]), f(&[1, 2, 3, 3]), true));
    refused("grid_sample", nn::grid_sample(f(&[1, 2, 0, 3]), f(&[1, 2, 3, 2]), true));
    let key = whole(&[2]);
    refused("normal", nn::normal(whole(&[3]), step, 0, [2], DType::F64));
    refused("uniform", nn::uniform(key, key, 0, [2], DType::F64));
    refused("uniform", nn::uniform(key, step, 0, [2], DType::I32));
    refused("bernoulli", nn::bernoulli(key, step, 0, 1.5, [2], DType::F64));
    refused("bernoulli", nn::bernoulli(key, step, 0, f64::NAN, [2], DType::F64));
    refused("dropout", nn::dropout(f(&[2]), 1.0, key, step, 0));
    refused("dropout", nn::dropout(whole(&[2]), 0.5, key, step, 0));
}

#[test]
fn the_first_error_is_the_one_that_is_told() {
    let g = Graph::new();
    let x = g.input("x", [2, 3], DType::F64);
    let broken = nn::linear(x, g.constant(1.0, [4, 5], DType::F64), None);
    let later = nn::cross_entropy(nn::softmax(nn::relu(broken), 1), g.constant(0.0, [2], DType::I32));
    assert_eq!(later.check().unwrap_err(), broken.check().unwrap_err());
    let norm = nn::batch_norm(broken, x, x, 1e-5);
    assert_eq!(norm.variance.check().unwrap_err(), broken.check().unwrap_err());
}

#[test]
fn tensors_of_two_graphs_are_told_under_the_composites_name() {
    let (g, h) = (Graph::new(), Graph::new());
    let (x, w) = (g.constant(1.0, [2, 3], DType::F64), h.constant(1.0, [3, 4], DType::F64));
    for tensor in [nn::linear(x, w, None), nn::mse(x, h.constant(1.0, [2, 3], DType::F64)), nn::mse(x, w)] {
        let error = tensor.check().unwrap_err();
        let ErrorKind::ForeignTensor { operation } = &error.kind else { panic!("{error}") };
        assert!(operation == "linear" || operation == "mse", "{error}");
        assert!(error.location.is_some_and(|line| line.file().ends_with("nn_errors.rs")), "{error}");
    }
    drop(h);
    assert!(nn::mse(w, w).check().is_err(), "a tensor that outlived its graph");
}

/// Calls every composite with these tensors and numbers, whatever they are.
fn call_all(g: &Graph, t: &[Tensor], n: &[usize]) -> Vec<(&'static str, Tensor)> {
    let pair = |i: usize| [n[i], n[i + 1]];
    let conv = Conv2d { stride: pair(0), padding: pair(2), dilation: pair(4), groups: n[6] };
    let transpose =
        ConvTranspose2d { stride: pair(0), padding: pair(2), output_padding: pair(1), dilation: pair(4), groups: n[6] };
    let pool = Pool2d { kernel: pair(0), stride: pair(2), padding: pair(4), count_include_pad: n[6].is_multiple_of(2) };
    let parameters =
        AttentionParameters { query: t[3].into(), key: t[3].into(), value: t[3].into(), output: (t[3], t[4]).into() };
    let norm = nn::batch_norm(t[0], t[1], t[2], 1e-5);
    let rate = n[0] as f64 / 4.0;
    vec![
        ("linear", nn::linear(t[0], t[1], t[2])),
        ("softmax", nn::softmax(t[0], n[0])),
        ("log_softmax", nn::log_softmax(t[0], n[0])),
        ("logsumexp", nn::logsumexp(t[0], n[0])),
        ("accuracy", nn::accuracy(t[0], t[1])),
        ("top_k_accuracy", nn::top_k_accuracy(t[0], t[1], 2)),
        ("cross_entropy", nn::cross_entropy(t[0], t[1])),
        ("cross_entropy_rows", nn::cross_entropy_rows(t[0], t[1])),
        ("cross_entropy_soft", nn::cross_entropy_soft(t[0], t[1])),
        ("mse", nn::mse(t[0], t[1])),
        ("layer_norm", nn::layer_norm(t[0], t[1], t[2], 1e-5)),
        ("batch_norm", norm.y),
        ("batch_norm", norm.mean),
        ("batch_norm", norm.variance),
        ("batch_norm_frozen", nn::batch_norm_frozen(t[0], t[1], t[2], t[1], t[2], 1e-5)),
        ("group_norm", nn::group_norm(t[0], n[0], t[1], t[2], 1e-5)),
        ("relu", nn::relu(t[0])),
        ("relu6", nn::relu6(t[0])),
        ("leaky_relu", nn::leaky_relu(t[0], 0.1)),
        ("elu", nn::elu(t[0], 1.0)),
        ("gelu", nn::gelu(t[0])),
        ("gelu_tanh", nn::gelu_tanh(t[0])),
        ("silu", nn::silu(t[0])),
        ("softplus", nn::softplus(t[0])),
        ("safe_sqrt", nn::safe_sqrt(t[0])),
        ("norm", nn::norm(t[0], &n[..2])),
        ("matrix_exponential", nn::matrix_exponential(t[0])),
        ("cumsum", nn::cumsum(t[0], n[0])),
        ("cumprod", nn::cumprod(t[0], n[0])),
        ("conv2d", nn::conv2d(t[0], t[1], t[2], conv)),
        ("conv_transpose2d", nn::conv_transpose2d(t[0], t[1], t[2], transpose)),
        ("max_pool2d", nn::max_pool2d(t[0], pool)),
        ("avg_pool2d", nn::avg_pool2d(t[0], pool)),
        ("global_avg_pool2d", nn::global_avg_pool2d(t[0])),
        ("global_max_pool2d", nn::global_max_pool2d(t[0])),
        ("scaled_dot_product_attention", nn::scaled_dot_product_attention(t[0], t[1], t[2], t[3])),
        ("multi_head_attention", nn::multi_head_attention(t[0], t[1], t[2], &parameters, n[0], t[4])),
        ("embedding", nn::embedding(t[0], t[1])),
        ("one_hot", nn::one_hot(t[0], n[0], DType::F32)),
        ("sine_encoding", nn::sine_encoding(t[0], n[0])),
        ("position_table", nn::position_table(g, n[0], n[1], DType::F32)),
        ("affine_grid", nn::affine_grid(t[0], pair(0), n[6].is_multiple_of(2))),
        ("grid_sample", nn::grid_sample(t[0], t[1], n[6].is_multiple_of(2))),
        ("normal", nn::normal(t[0], t[1], 0, t[2].shape(), DType::F64)),
        ("uniform", nn::uniform(t[0], t[1], 0, t[2].shape(), DType::F64)),
        ("bernoulli", nn::bernoulli(t[0], t[1], 0, rate, t[2].shape(), DType::F64)),
        ("dropout", nn::dropout(t[0], rate, t[1], t[2], 0)),
    ]
}

/// What could be made can be differentiated, and that again.
fn differentiate(name: &str, tensor: Tensor, inputs: &[Tensor]) {
    let mut value = tensor;
    for order in 1..=2 {
        if !value.dtype().is_float() {
            return;
        }
        let found = gradient(value.sum_all(), inputs).unwrap_or_else(|e| panic!("{name}, order {order}: {e}"));
        let Some(first) = found.iter().zip(inputs).find_map(|(d, x)| d.map(|d| (d, x))) else { return };
        assert_eq!((first.0.shape(), first.0.dtype()), (first.1.shape(), first.1.dtype()), "{name}, order {order}");
        value = first.0.square();
    }
}

#[test]
fn whatever_it_is_given_a_composite_answers_and_names_itself_in_the_error() {
    let mut dice = Dice::new(7);
    let mut next = |below: usize| dice.below(below);
    let (mut made, mut refused) = (0, 0);
    for round in 0..3000 {
        let g = if round % 2 == 0 { Graph::new() } else { Graph::without_simplification() };
        // Few ranks, lengths and types, so that some operands fit by chance.
        let rank = next(6);
        let tensors: Vec<Tensor> = (0..5)
            .map(|i| {
                let rank = if next(2) == 0 { rank } else { next(5) };
                let shape: Vec<usize> = (0..rank).map(|_| [1, 2, 2, 2, 3, 0, 4][next(7)]).collect();
                let dtype = [DType::F64, DType::F64, DType::F64, DType::I32, DType::F32][next(5)];
                g.input(i.to_string(), shape, dtype)
            })
            .collect();
        let numbers: Vec<usize> =
            (0..8).map(|_| [0, 1, 1, 2, 2, 3, 70, 1 << 20, usize::MAX, usize::MAX / 2][next(10)]).collect();
        for (name, tensor) in call_all(&g, &tensors, &numbers) {
            match tensor.check() {
                Ok(_) => {
                    made += 1;
                    differentiate(name, tensor, &tensors);
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
                    assert!(error.location.is_some_and(|line| line.file().ends_with("nn_errors.rs")), "{error}");
                }
            }
        }
    }
    assert!(made > 10_000 && refused > 10_000, "{made} made, {refused} refused");
}
