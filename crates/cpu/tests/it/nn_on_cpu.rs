//! Every composite of `nn` on the CPU: value, gradient and Hessian product against the reference in 64 bits, and in 32 bits
//! against 64.

use crate::common::assert_close;
use bilevel_cpu::Cpu;
use bilevel_graph::conformance::Dice;
use bilevel_graph::nn::{self, AttentionParameters, Conv2d, ConvTranspose2d, Pool2d};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference, Tensor, gradient, random::seed_key, vjp};

type Build = Box<dyn Fn(&Graph, &[Tensor]) -> Tensor>;

type Function = fn(Tensor) -> Tensor;

struct Case {
    name: String,
    inputs: Vec<Array>,
    build: Build,
    /// False for draws, which are others in another type.
    single: bool,
}

fn numbers(shapes: &[&[usize]]) -> Vec<Array> {
    let mut dice = Dice::new(shapes.len() as u64 + shapes[0].iter().sum::<usize>() as u64);
    shapes.iter().map(|shape| dice.array(shape, DType::F64).unwrap()).collect()
}

fn case(name: &str, shapes: &[&[usize]], build: impl Fn(&[Tensor]) -> Tensor + 'static) -> Case {
    let build: Build = Box::new(move |_, t| build(t));
    Case { name: format!("{name} of {shapes:?}"), inputs: numbers(shapes), build, single: true }
}

/// Adds integer inputs in 0..limit after the numbers.
fn with_labels(mut case: Case, shape: &[usize], limit: usize) -> Case {
    case.inputs.push(Dice::new(11).indices(shape, limit).unwrap());
    case
}

/// y, then slopes and Hessian products of a scalar that depends on every element of it, linearly and quadratically.
fn results(g: &Graph, case: &Case, dtype: DType) -> (Vec<Tensor>, Vec<Tensor>) {
    g.set_float_type(dtype).unwrap();
    let declared = |(i, v): (usize, &Array)| {
        g.input(format!("{i}"), v.shape(), if v.dtype() == DType::I32 { DType::I32 } else { dtype })
    };
    let inputs: Vec<Tensor> = case.inputs.iter().enumerate().map(declared).collect();
    let y = (case.build)(g, &inputs).check().unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let mut all = vec![y];
    if y.dtype() != DType::I32 && !y.is_empty() {
        // Angles stay small, so that 32 bits hold them.
        let turn = 9.0 / y.len() as f64;
        let weights =
            |phase: f64| (y.constant_like(0.0, [y.len()]).iota_like(0) * turn + phase).sin().reshape(y.shape());
        let loss = (weights(0.3) * y + weights(1.1) * y * y).sum_all();
        let wrt: Vec<Tensor> = inputs.iter().copied().filter(|t| t.dtype() == dtype).collect();
        let slopes = gradient(loss, &wrt).unwrap();
        let (known, v): (Vec<_>, Vec<_>) = slopes.iter().zip(&wrt).filter_map(|(d, x)| Some(((*d)?, x.cos()))).unzip();
        all.extend(&known);
        all.extend(vjp(&known, &v, &wrt).unwrap().iter().flatten());
    }
    (inputs, all)
}

fn evaluate(executor: &dyn Executor, case: &Case, dtype: DType) -> Vec<Array> {
    let g = Graph::new();
    let (inputs, all) = results(&g, case, dtype);
    let mut builder = Program::builder(&g).outputs("", all.iter().copied());
    for &input in &inputs {
        builder = builder.keep_input(input);
    }
    let program = builder.build().unwrap();
    let mut run = executor.compile(&program).unwrap();
    for (i, value) in case.inputs.iter().enumerate() {
        let kind = if value.dtype() == DType::I32 { DType::I32 } else { dtype };
        let value = Array::from_values(value.shape(), &value.to_f64(), kind).unwrap();
        run.set(program.input(&i.to_string()).unwrap(), &value).unwrap();
    }
    run.run(0..1).unwrap();
    (0..all.len()).map(|i| run.output(i).unwrap()).collect()
}

fn check(cases: Vec<Case>) {
    let (one, two) = (Cpu::with_threads(1), Cpu::with_threads(2));
    for case in cases {
        let expected = evaluate(&Reference, &case, DType::F64);
        let found = evaluate(&one, &case, DType::F64);
        assert_close(&case.name, &found, &expected, 1e-12);
        assert_eq!(evaluate(&two, &case, DType::F64), found, "{}: two threads", case.name);
        if case.single {
            let rounded = evaluate(&one, &case, DType::F32).into_iter().map(|a| match a.dtype() {
                DType::I32 => a,
                _ => Array::from_f64(a.shape(), a.to_f64()).unwrap(),
            });
            assert_close(&format!("{} in 32 bits", case.name), &rounded.collect::<Vec<_>>(), &expected, 2e-4);
        }
    }
}

#[test]
fn activations_are_right() {
    let one: [(&str, Function); 13] = [
        ("relu", nn::relu),
        ("relu6", |x| nn::relu6(x * 10.0)),
        ("leaky_relu", |x| nn::leaky_relu(x, 0.1)),
        ("elu", |x| nn::elu(x, 0.7)),
        ("gelu", nn::gelu),
        ("gelu_tanh", nn::gelu_tanh),
        ("silu", nn::silu),
        ("sigmoid", nn::sigmoid),
        ("tanh", nn::tanh),
        ("softplus", nn::softplus),
        ("safe_sqrt", nn::safe_sqrt),
        ("cumsum", |x| nn::cumsum(x, x.rank() - 1)),
        ("cumprod", |x| nn::cumprod(x + 1.5, 0) * 0.1),
    ];
    for shape in [&[7][..], &[3, 10], &[4, 197]] {
        check(one.iter().map(|&(name, f)| case(name, &[shape], move |t| f(t[0]))).collect());
    }
}

#[test]
fn softmax_and_losses_are_right_along_rows_of_every_length_and_along_other_axes() {
    for columns in [2, 10, 197, 768] {
        let shape: &[usize] = &[5, columns];
        let logits = |name: &str, f: fn(Tensor, Tensor) -> Tensor| {
            with_labels(case(name, &[shape], move |t| f(t[0] * 3.0, t[1])), &[5], columns)
        };
        check(vec![
            case("softmax", &[shape], |t| nn::softmax(t[0], 1)),
            case("softmax of columns", &[shape], |t| nn::softmax(t[0], 0)),
            case("log_softmax", &[shape], |t| nn::log_softmax(t[0], 1)),
            case("log_softmax of columns", &[shape], |t| nn::log_softmax(t[0], 0)),
            case("logsumexp", &[shape], |t| nn::logsumexp(t[0] * 5.0, 1)),
            case("logsumexp of columns", &[shape], |t| nn::logsumexp(t[0] * 5.0, 0)),
            case("mse", &[shape, shape], |t| nn::mse(t[0], t[1])),
            case("soft", &[shape, shape], |t| nn::cross_entropy_soft(t[0], nn::softmax(t[1], 1))),
            case("norm", &[shape], |t| nn::norm(t[0], [1])),
            case("norm of columns", &[shape], |t| nn::norm(t[0], [0])),
            logits("cross_entropy", nn::cross_entropy),
            logits("cross_entropy_rows", nn::cross_entropy_rows),
            logits("accuracy", nn::accuracy),
            logits("top_k_accuracy", |logits, labels| nn::top_k_accuracy(logits, labels, 2)),
            logits("mean of integers", |logits, labels| logits.argmax(1).equal(labels).mean_all()),
        ]);
    }
    check(vec![
        case("softmax in the middle", &[&[3, 10, 4]], |t| nn::softmax(t[0], 1)),
        case("softmax of a transpose", &[&[3, 10, 4]], |t| nn::softmax(t[0].transpose([1, 2, 0]), 2)),
        case("log_softmax first", &[&[10, 3, 4]], |t| nn::log_softmax(t[0], 0)),
    ]);
}

#[test]
fn normalisations_are_right_for_rows_of_every_length() {
    for columns in [10, 197, 768] {
        check(vec![case("layer_norm", &[&[2, 3, columns], &[columns], &[columns]], |t| {
            nn::layer_norm(t[0], t[1], t[2], 1e-5)
        })]);
    }
    let shapes: &[&[usize]] = &[&[3, 4, 5, 6], &[4], &[4]];
    check(vec![
        case("layer_norm over two axes", &[&[4, 5, 6], &[5, 6], &[5, 6]], |t| nn::layer_norm(t[0], t[1], t[2], 1e-5)),
        case("batch_norm", shapes, |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).y),
        case("batch_norm mean", shapes, |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).mean),
        case("batch_norm variance", shapes, |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).variance),
        case("batch_norm of rows", &[&[20, 7], &[7], &[7]], |t| nn::batch_norm(t[0], t[1], t[2], 1e-3).y),
        case("frozen", &[&[3, 4, 5, 6], &[4], &[4], &[4], &[4]], |t| {
            nn::batch_norm_frozen(t[0], t[1], t[2].square() + 0.5, t[3], t[4], 1e-3)
        }),
        case("group_norm", shapes, |t| nn::group_norm(t[0], 2, t[1], t[2], 1e-3)),
    ]);
}

#[test]
fn linear_maps_attention_and_matrix_functions_are_right() {
    let projected = |t: &[Tensor], heads: usize| {
        let [query, key, value, output] = [1, 3, 5, 7].map(|i| (t[i], t[i + 1]).into());
        let parameters = AttentionParameters { query, key, value, output };
        nn::multi_head_attention(t[0], t[0].reverse([1]), t[0], &parameters, heads, None)
    };
    let attention: &[&[usize]] = &[&[2, 5, 6], &[6, 6], &[6], &[6, 6], &[6], &[6, 6], &[6], &[6, 6], &[6]];
    check(vec![
        case("linear", &[&[7, 5], &[5, 4], &[4]], |t| nn::linear(t[0], t[1], t[2])),
        case("linear of a batch", &[&[2, 3, 5], &[5, 4]], |t| nn::linear(t[0], t[1], None)),
        case("attention", &[&[2, 4, 3], &[2, 6, 3], &[2, 6, 5]], |t| {
            nn::scaled_dot_product_attention(t[0], t[1], t[2], None)
        }),
        case("masked attention", &[&[4, 3], &[6, 3], &[6, 5], &[4, 6]], |t| {
            nn::scaled_dot_product_attention(t[0], t[1], t[2], t[3] * 3.0)
        }),
        case("attention of rows of 197", &[&[2, 197, 4], &[2, 197, 4], &[2, 197, 4]], |t| {
            nn::scaled_dot_product_attention(t[0].slice(1, 0, 10), t[1], t[2], None)
        }),
        case("multi_head_attention", attention, move |t| projected(t, 3)),
        case("matrix_exponential", &[&[4, 4]], |t| nn::matrix_exponential(t[0])),
        case("matrix_exponential of large", &[&[3, 3]], |t| nn::matrix_exponential(t[0] * 4.0) * 0.05),
    ]);
}

#[test]
fn convolutions_and_pools_are_right() {
    let geometry = Conv2d { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 1 };
    let transposed =
        ConvTranspose2d { stride: [2, 1], padding: [1, 0], output_padding: [1, 0], dilation: [1, 1], groups: 1 };
    let padded = Pool2d { kernel: [3, 2], stride: [2, 1], padding: [1, 1], count_include_pad: false };
    let image: &[usize] = &[2, 3, 8, 7];
    check(vec![
        case("conv2d", &[image, &[4, 3, 3, 3], &[4]], |t| nn::conv2d(t[0], t[1], t[2], Conv2d::default())),
        case("conv2d everywhere", &[image, &[4, 3, 3, 2]], move |t| nn::conv2d(t[0], t[1], None, geometry)),
        case("grouped conv2d", &[&[2, 4, 6, 5], &[6, 2, 3, 3], &[6]], |t| {
            nn::conv2d(t[0], t[1], t[2], Conv2d { groups: 2, ..Conv2d::default() })
        }),
        case("depthwise conv2d", &[&[2, 4, 6, 5], &[4, 1, 3, 3]], |t| {
            nn::conv2d(t[0], t[1], None, Conv2d { groups: 4, padding: [1, 1], ..Conv2d::default() })
        }),
        case("conv_transpose2d", &[&[2, 3, 5, 4], &[3, 4, 3, 2], &[4]], move |t| {
            nn::conv_transpose2d(t[0], t[1], t[2], transposed)
        }),
        case("grouped conv_transpose2d", &[&[2, 4, 5, 4], &[4, 3, 3, 2]], |t| {
            let geometry = ConvTranspose2d {
                stride: [1, 1],
                padding: [0, 0],
                output_padding: [0, 0],
                dilation: [1, 1],
                groups: 2,
            };
            nn::conv_transpose2d(t[0], t[1], None, geometry)
        }),
        case("max_pool2d", &[&[2, 3, 8, 6]], |t| nn::max_pool2d(t[0], Pool2d::of([2, 2]))),
        case("max_pool2d with padding", &[image], move |t| nn::max_pool2d(t[0], padded)),
        case("avg_pool2d", &[&[2, 3, 8, 6]], |t| nn::avg_pool2d(t[0], Pool2d::of([2, 3]))),
        case("avg_pool2d with padding", &[image], move |t| nn::avg_pool2d(t[0], padded)),
        case("global_avg_pool2d", &[image], |t| nn::global_avg_pool2d(t[0])),
        case("global_max_pool2d", &[image], |t| nn::global_max_pool2d(t[0])),
    ]);
}

#[test]
fn encodings_sampling_and_draws_are_right() {
    let key = || Array::from_i32([2], seed_key(3).to_vec()).unwrap();
    let drawn = |name: &str, shapes: &[&[usize]], build: fn(&Graph, &[Tensor]) -> Tensor| {
        let mut inputs = numbers(shapes);
        inputs.push(key());
        Case { name: name.into(), inputs, build: Box::new(build), single: false }
    };
    check(vec![
        with_labels(case("embedding", &[&[9, 5]], |t| nn::embedding(t[0], t[1])), &[3, 4], 9),
        with_labels(case("one_hot", &[&[12, 5]], |t| nn::one_hot(t[1], 5, t[0].dtype()) * t[0]), &[12], 5),
        case("sine_encoding", &[&[4, 3]], |t| nn::sine_encoding(t[0], 4)),
        Case {
            name: "position_table".into(),
            inputs: numbers(&[&[6, 8]]),
            build: Box::new(|g, t| nn::position_table(g, 6, 8, t[0].dtype()) * t[0]),
            single: true,
        },
        case("affine_grid", &[&[2, 2, 3]], |t| nn::affine_grid(t[0], [4, 3], false)),
        case("grid_sample", &[&[2, 3, 5, 4], &[2, 6, 3, 2]], |t| nn::grid_sample(t[0], t[1], true)),
        case("grid_sample off corners", &[&[1, 2, 5, 4], &[1, 6, 3, 2]], |t| nn::grid_sample(t[0], t[1] * 1.3, false)),
        drawn("normal", &[&[7, 9]], |g, t| nn::normal(t[1], g.step(), 1, [7, 9], t[0].dtype()) * t[0]),
        drawn("uniform", &[&[7, 9]], |g, t| nn::uniform(t[1], g.step(), 1, [7, 9], t[0].dtype()) * t[0]),
        drawn("bernoulli", &[&[7, 9]], |g, t| nn::bernoulli(t[1], g.step(), 1, 0.3, [7, 9], t[0].dtype()) * t[0]),
        drawn("dropout", &[&[7, 9]], |g, t| nn::dropout(t[0], 0.4, t[1], g.step(), 2)),
    ]);
}
