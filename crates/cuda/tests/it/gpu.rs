//! The conformance suite on a GPU, and products and convolutions too large for it: `cargo test --release -p
//! bilevel-cuda -- --ignored`.

use bilevel_cuda::Cuda;
use bilevel_graph::conformance::{self, Dice, Inputs, agree, outputs};
use bilevel_graph::{Array, DType, ErrorKind, Executor, Graph, Precision, Program, Reference, gradient_or_zeros, nn};

fn gpu() -> Cuda {
    Cuda::new(0).unwrap_or_else(|error| panic!("no CUDA device: {error}"))
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_passes_the_conformance_suite() {
    let cuda = gpu();
    let failures = conformance::check_all(&cuda, 0..2).unwrap();
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
}

#[test]
#[ignore = "needs a GPU"]
fn long_products_are_near_those_of_the_reference_whatever_numbers_they_are_of() {
    let cuda = gpu();
    for case in conformance::long_products().unwrap() {
        case.check(&cuda).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A loss of two convolutions, one of them halving, on the largest of windows, with its gradient.
fn network(g: &Graph) -> (Program, Inputs) {
    let mut dice = Dice::new(3);
    let named = [("image", [64, 64, 64, 64]), ("first", [64, 64, 3, 3]), ("second", [128, 64, 3, 3])];
    let [image, first, second] = named.map(|(name, shape)| g.input(name, shape, DType::F32));
    let convolved = |x, w, stride| {
        nn::conv2d(x, w, None, nn::Conv2d { stride: [stride; 2], padding: [1, 1], ..Default::default() }) * 0.05
    };
    // The largest are chosen before anything is rounded, and the rest is smooth: a sum that is rounded otherwise never
    // takes the other branch.
    let pooled = nn::max_pool2d(image, nn::Pool2d::of([2, 2]));
    let y = convolved(convolved(pooled, first, 1).tanh(), second, 2);
    let loss = y.tanh().mean([2, 3]).sum_all();
    let builder =
        Program::builder(g).output("loss", loss).outputs("", gradient_or_zeros(loss, &[image, first, second]).unwrap());
    let inputs = named.map(|(name, shape)| (name.to_string(), dice.array(&shape, DType::F32).unwrap()));
    (builder.build().unwrap(), inputs.into())
}

#[test]
#[ignore = "needs a GPU"]
fn an_executor_that_is_opened_later_chooses_the_same_ways_to_the_same_bits() {
    for precision in [Precision::Tf32, Precision::Bf16] {
        let (program, inputs) = network(&Graph::new());
        let program = program.with_precision(precision);
        // Each asks anew: the first may try, the second finds what was kept, or asks the library again where nothing is
        // kept.
        let [first, second] = [gpu(), gpu()].map(|cuda| outputs(&cuda, &program, &inputs, 1).unwrap());
        agree(&second, &first, &vec![0.0; first.len()]).unwrap_or_else(|e| panic!("{precision}: {e}"));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn large_convolutions_are_the_same_with_and_without_cudnn() {
    let cuda = gpu();
    for (precision, tolerance) in [(Precision::Full, 1e-4), (Precision::Tf32, 1e-2), (Precision::Bf16, 3e-2)] {
        let (program, inputs) = network(&Graph::new());
        let program = program.with_precision(precision);
        let [found, again] = [0, 1].map(|_| outputs(&cuda, &program, &inputs, 1).unwrap());
        let expected = outputs(&cuda.without_cudnn(), &program, &inputs, 1).unwrap();
        agree(&again, &found, &vec![0.0; found.len()]).unwrap_or_else(|e| panic!("{precision}, again: {e}"));
        // Gradients are small: relative to the largest of each.
        for (a, b) in found.iter().zip(&expected) {
            let (a, b) = (a.to_f64(), b.to_f64());
            let largest = b.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0f64, f64::max);
            assert!(apart <= tolerance * largest, "{precision}: {apart} of {largest} in {} numbers", b.len());
        }
    }
}

/// Every pass has new buffers, for which a graph is recorded anew, while other threads have, fill, read and free
/// theirs.
#[test]
#[ignore = "needs a GPU"]
fn threads_that_share_a_gpu_do_not_get_in_each_others_recordings() {
    let cuda = gpu();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let cuda = cuda.clone();
            scope.spawn(move || {
                let g = Graph::new();
                let x = g.input("x", [1000 + number], DType::F64);
                let program =
                    Program::builder(&g).output("y", x * x + number as f64).carry(x, x + 1.0).build().unwrap();
                let inputs: Inputs =
                    vec![("x".into(), Dice::new(number as u64).array(&[1000 + number], DType::F64).unwrap())];
                let expected = outputs(&Reference, &program, &inputs, 3).unwrap();
                for _ in 0..50 {
                    let found = outputs(&cuda, &program, &inputs, 3).unwrap();
                    agree(&found, &expected, &[1e-15, 1e-15]).unwrap_or_else(|e| panic!("thread {number}: {e}"));
                }
            });
        }
    });
}

/// Each of more than a thousand operations has an index check of its own.
#[test]
#[ignore = "needs a GPU"]
fn an_index_out_of_range_is_reported_by_the_operation_it_belongs_to_however_many_there_are() {
    let cuda = gpu();
    for wrong in [0, 1023, 1024, 1100, 1199] {
        let g = Graph::new();
        let at = g.input("at", [3], DType::I32);
        let mut builder = Program::builder(&g);
        let mut inputs: Inputs = vec![("at".into(), Array::from_i32([3], vec![0, 1, 7]).unwrap())];
        for number in 0..1200 {
            let (name, rows) = (format!("table {number}"), if number == wrong { 7 } else { 8 });
            builder = builder.output(number.to_string(), g.input(name.clone(), [rows, 9], DType::F32).take(at));
            inputs.push((name, Array::zeros([rows, 9], DType::F32)));
        }
        let error = outputs(&cuda, &builder.build().unwrap(), &inputs, 1).unwrap_err();
        let expected = ErrorKind::IndexOutOfRange { operation: "gather".into(), index: 7, limit: 7 };
        assert_eq!(error.kind, expected, "table {wrong}");
    }
}

/// A sum of products, biases and a gradient step, each of products of its own and large enough for the library.
pub fn affine(g: &Graph, dtype: DType) -> (Program, Inputs) {
    let (m, n, k) = (72, 96, 80);
    let (mut dice, mut inputs) = (Dice::new(11), Inputs::new());
    let mut input = |shape: &[usize]| {
        let name = format!("input {}", inputs.len());
        inputs.push((name.clone(), dice.array(shape, dtype).unwrap()));
        g.input(name, shape, dtype)
    };
    let (x, w) = (input(&[m, k]), input(&[k, n]));
    let mut product = || x.matmul(input(&[k, n]));
    let products = [product(), product(), product(), product(), product(), product()];
    let [c, d, rows] = [&[m, n][..], &[m, n], &[4 * n]].map(&mut input);
    let row = |first: usize| rows.slice(0, first, first + n).broadcast_to([m, n]);
    let outputs = [
        ("sum", products[0] + products[1]),
        ("bias", products[2] * 0.3 + row(n)),
        // It begins where no vector of 16 bytes does.
        ("odd bias", products[3] + row(2 * n + 1)),
        ("both", (c - products[4]) * 2.0 + row(0)),
        ("turned", (products[5] + d).t()),
    ];
    // Products of an input that changes are computed in every step.
    let next = w - x.t().matmul(x.matmul(w).tanh()) * 0.01;
    let builder = Program::builder(g).carry(w, next).carry(x, x * 0.9);
    let builder = outputs.into_iter().fold(builder, |builder, (name, value)| builder.output(name, value));
    (builder.build().unwrap(), inputs)
}

/// Compares an executor with the reference on products with affine epilogues in every precision.
pub fn agrees_on_affine_epilogues(executor: &dyn Executor) {
    for (dtype, precision, tolerance) in [
        (DType::F64, Precision::Full, 1e-13),
        (DType::F32, Precision::Full, 1e-5),
        (DType::F32, Precision::Tf32, 4.0 * Precision::Tf32.unit()),
        (DType::F32, Precision::Bf16, 4.0 * Precision::Bf16.unit()),
    ] {
        let (program, inputs) = affine(&Graph::new(), dtype);
        let program = program.with_precision(precision);
        let found = outputs(executor, &program, &inputs, 3).unwrap();
        let expected = outputs(&Reference, &program, &inputs, 3).unwrap();
        for (a, b) in found.iter().zip(&expected) {
            let (a, b) = (a.to_f64(), b.to_f64());
            let largest = b.iter().fold(1.0f64, |most, x| most.max(x.abs()));
            let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0f64, f64::max);
            assert!(apart <= tolerance * largest, "{dtype} in {precision}: {apart} of {largest}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn affine_epilogues_of_the_library_agree_with_the_reference() {
    agrees_on_affine_epilogues(&gpu());
}

/// The prologue runs once, and the windows of a pipelined loop that fails are run again.
#[test]
#[ignore = "needs a GPU"]
fn an_index_out_of_range_before_a_pipelined_loop_is_reported() {
    let g = Graph::new();
    let (table, at) = (g.input("table", [8, 16], DType::F32), g.input("at", [8], DType::I32));
    let [w, h] = ["w", "h"].map(|name| g.input(name, [16, 16], DType::F32));
    let rows = table.take(at);
    let next = w - rows.t().matmul(rows.matmul(w).tanh()) * 0.1;
    // The old weights are read after the new ones are known.
    let late = rows.matmul(next).tanh().matmul(next).tanh().matmul(w).tanh().matmul(next);
    let program = Program::builder(&g).carry(w, next).carry(h, h + late.t().matmul(late)).build().unwrap();
    let run = |last: i32| {
        let at = Array::from_i32([8], (0..8).map(|i| if i == 7 { last } else { i }).collect()).unwrap();
        let mut dice = Dice::new(5);
        let mut inputs: Inputs = [("table", [8, 16]), ("w", [16, 16]), ("h", [16, 16])]
            .map(|(name, shape)| (name.to_string(), dice.array(&shape, DType::F32).unwrap()))
            .into();
        inputs.insert(1, ("at".into(), at));
        outputs(&gpu(), &program, &inputs, 5)
    };
    run(3).unwrap();
    let expected = ErrorKind::IndexOutOfRange { operation: "gather".into(), index: 8, limit: 8 };
    assert_eq!(run(8).unwrap_err().kind, expected);
}
