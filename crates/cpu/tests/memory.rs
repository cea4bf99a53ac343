//! The one block of memory is near what must be alive at once, and does not depend on how long a loop runs.

mod common;

use bilevel_cpu::{Cpu, CpuRun};
use bilevel_graph::conformance::Dice;
use bilevel_graph::{Array, DType, Executor, Graph, Program, Runnable, Tensor, gradient, nn, vjp};
use common::counting::{Counting, HELD};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;

/// Held by each test: bytes are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[global_allocator]
static GLOBAL: Counting = Counting;

/// A loss and the parameters it is derived by.
struct Case {
    loss: Tensor,
    parameters: Vec<Tensor>,
}

type Build = fn(&Graph, DType) -> Case;

/// The benchmark's multilayer perceptron, a tenth as wide.
fn mlp(g: &Graph, dtype: DType) -> Case {
    let [w1, b1, w2, b2] = [("w1", vec![78, 100]), ("b1", vec![100]), ("w2", vec![100, 10]), ("b2", vec![10])]
        .map(|(name, shape)| g.input(name, shape, dtype));
    let (x, y) = (g.input("x", [100, 78], dtype), g.input("y", [100], DType::I32));
    let loss = nn::cross_entropy(nn::linear(nn::linear(x, w1, b1).tanh(), w2, b2), y);
    Case { loss, parameters: vec![w1, b1, w2, b2] }
}

/// Four blocks of convolution, relu and pooling, with 16 channels on small images.
fn conv(g: &Graph, dtype: DType) -> Case {
    let mut h = g.input("x", [5, 3, 48, 48], dtype);
    let mut parameters = vec![];
    for layer in 0..4 {
        let kernel = g.input(format!("k{layer}"), [16, h.dim(1), 3, 3], dtype);
        parameters.push(kernel);
        let options = nn::Conv2d { padding: [1, 1], ..nn::Conv2d::default() };
        h = nn::max_pool2d(nn::relu(nn::conv2d(h, kernel, None, options)), nn::Pool2d::of([2, 2]));
    }
    let head = g.input("head", [16 * 9, 5], dtype);
    parameters.push(head);
    let loss = nn::cross_entropy(h.reshape([5, 16 * 9]).matmul(head), g.input("y", [5], DType::I32));
    Case { loss, parameters }
}

/// A transformer block of width 96 with 3 heads on 50 tokens.
fn vit(g: &Graph, dtype: DType) -> Case {
    let (d, m, batch, tokens, heads) = (96, 384, 2, 50, 3);
    let shapes = [
        vec![d],
        vec![d],
        vec![d, 3 * d],
        vec![3 * d],
        vec![d, d],
        vec![d],
        vec![d],
        vec![d],
        vec![d, m],
        vec![m],
        vec![m, d],
        vec![d],
    ];
    let p: Vec<Tensor> = shapes.iter().enumerate().map(|(i, s)| g.input(format!("p{i}"), s, dtype)).collect();
    let x = g.input("x", [batch, tokens, d], dtype);
    let normed = nn::layer_norm(x, p[0], p[1], 1e-6);
    let qkv = nn::linear(normed, p[2], p[3]).reshape([batch, tokens, 3, heads, d / heads]).transpose([2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|i| qkv.index(0, i));
    let scores = nn::softmax(q.matmul(k.t()) * 0.17, 3);
    let mixed = scores.matmul(v).transpose([0, 2, 1, 3]).reshape([batch, tokens, d]);
    let x = x + nn::linear(mixed, p[4], p[5]);
    let hidden = nn::gelu(nn::linear(nn::layer_norm(x, p[6], p[7], 1e-6), p[8], p[9]));
    let out = x + nn::linear(hidden, p[10], p[11]);
    Case { loss: (out * out).sum_all(), parameters: p }
}

fn program(g: &Graph, case: &Case, second: bool) -> Program {
    let slopes: Vec<Tensor> = gradient(case.loss, &case.parameters).unwrap().into_iter().flatten().collect();
    let mut builder = Program::builder(g).output("loss", case.loss).outputs("slope ", slopes.iter().copied());
    if second {
        let v: Vec<Tensor> = case.parameters.iter().map(|p| p.cos()).collect();
        for (i, product) in vjp(&slopes, &v, &case.parameters).unwrap().into_iter().flatten().enumerate() {
            builder = builder.output(format!("product {i}"), product);
        }
    }
    builder.build().unwrap()
}

#[test]
fn memory_stays_near_the_most_that_is_alive_at_once() {
    let _alone = ALONE.lock();
    let cases: [(&str, Build); 3] = [("mlp", mlp), ("conv", conv), ("vit", vit)];
    for (name, build) in cases {
        for second in [false, true] {
            for threads in [1, 2] {
                let g = Graph::new();
                let case = build(&g, DType::F32);
                let run = Cpu::with_threads(threads).plan(&program(&g, &case, second)).unwrap();
                let (bytes, bound) = (run.memory_bytes(), run.memory_lower_bound());
                assert!(bytes >= bound);
                assert!(
                    bytes as f64 <= 1.3 * bound as f64,
                    "{name}, second order {second}, {threads} threads: {bytes} bytes for a bound of {bound}"
                );
            }
        }
    }
}

#[test]
fn a_lower_bound_is_at_least_inputs_and_outputs_and_at_most_all_values() {
    let _alone = ALONE.lock();
    let g = Graph::new();
    let case = vit(&g, DType::F32);
    let program = program(&g, &case, true);
    let bytes = |shape: &[usize]| 4 * shape.iter().product::<usize>();
    let ports: usize = program.inputs.iter().chain(&program.outputs).map(|p| bytes(&p.meta.shape)).sum();
    let all: usize = program.nodes.iter().map(|n| bytes(&n.meta.shape)).sum();
    let run = Cpu::with_threads(1).plan(&program).unwrap();
    assert!(run.memory_lower_bound() >= ports && run.memory_bytes() < all / 2, "{}", run.memory_bytes());
}

/// A training loop with a carried state.
fn training(cpu: &Cpu) -> CpuRun {
    let g = Graph::new();
    let case = mlp(&g, DType::F64);
    let slopes = gradient(case.loss, &case.parameters).unwrap();
    let mut builder = Program::builder(&g).output("loss", case.loss);
    for (&p, slope) in case.parameters.iter().zip(slopes) {
        builder = builder.carry(p, p - slope.unwrap() * 0.05);
    }
    let program = builder.build().unwrap();
    let mut run = cpu.plan(&program).unwrap();
    let mut dice = Dice::new(1);
    for (i, port) in program.inputs.iter().enumerate() {
        let shape = &port.meta.shape;
        let value: Array = match port.meta.dtype {
            DType::I32 => dice.indices(shape, 10).unwrap(),
            dtype => dice.array(shape, dtype).unwrap(),
        };
        run.set(i, &value).unwrap();
    }
    run
}

#[test]
fn a_loop_of_a_thousand_steps_holds_no_more_than_a_loop_of_one() {
    let _alone = ALONE.lock();
    for threads in [1, 2] {
        let mut run = training(&Cpu::with_threads(threads));
        let planned = run.memory_bytes();
        run.run(0..1).unwrap();
        let loss = run.output(0).unwrap().item().unwrap();
        // Only the harness may allocate meanwhile, a few names of tests.
        let one = HELD.load(SeqCst);
        run.run(1..1001).unwrap();
        let thousand = HELD.load(SeqCst);
        assert!(thousand.saturating_sub(one) < 1 << 15, "{one} and {thousand}");
        assert_eq!(run.memory_bytes(), planned);
        assert!(run.output(0).unwrap().item().unwrap() < loss * 0.5, "the loop has learned");
        assert_eq!(training(&Cpu::with_threads(threads)).memory_bytes(), planned);
    }
}

#[test]
fn programs_of_one_executor_share_data_and_scratch() {
    let _alone = ALONE.lock();
    let cpu = Cpu::with_threads(1);
    let g = Graph::new();
    let x = g.input("x", [400, 400], DType::F64);
    // Two products lie in memory between the input and the output.
    let program = Program::builder(&g).output("sum", x.matmul(x).matmul(x).sum_all()).build().unwrap();
    let data = cpu.upload(&Array::full([400, 400], 0.01, DType::F64)).unwrap();
    let matrix = 400 * 400 * 8;
    let before = HELD.load(SeqCst);
    let mut runs: Vec<CpuRun> = vec![];
    let mut held = vec![];
    for _ in 0..3 {
        runs.push(cpu.plan(&program).unwrap());
        runs.last_mut().unwrap().bind_input(0, &data).unwrap();
        runs.iter_mut().for_each(|run| run.run(0..1).unwrap());
        held.push(HELD.load(SeqCst) - before);
    }
    assert!(held[0] > 2 * matrix, "the first needs room for its products: {held:?}");
    assert!(held[2] - held[0] < matrix / 4, "the others need none of their own: {held:?}");
    let sums: Vec<f64> = runs.iter().map(|run| run.output(0).unwrap().item().unwrap()).collect();
    assert!(sums.iter().all(|sum| *sum == sums[0]));
}
