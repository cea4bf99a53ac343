//! After one run to warm up, runs, sets and reads neither allocate nor free.

mod common;

use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{Dice, Inputs};
use bilevel_graph::{
    Array, ConvDims, DType, Executor, Graph, Program, RandomKind, gradient, nn, random::seed_key, vjp,
};
use common::counting::{Counting, counted};

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Runs the program with this team and counts what each kind of call allocates.
fn check(name: &str, program: &Program, inputs: &Inputs, steps: u32) {
    for threads in [1, 2] {
        let mut run = Cpu::with_threads(threads).compile(program).unwrap();
        let numbered: Vec<(usize, Array)> =
            inputs.iter().map(|(name, value)| (program.input(name).unwrap(), value.clone())).collect();
        let zeros = |port: &bilevel_graph::Port| Array::zeros(&port.meta.shape, port.meta.dtype);
        let mut outputs: Vec<Array> = program.outputs.iter().map(zeros).collect();
        let mut carried: Vec<Array> = program.carries.iter().map(|c| zeros(&program.inputs[c.input])).collect();
        numbered.iter().for_each(|(input, value)| run.set(*input, value).unwrap());
        run.run(0..steps).unwrap();
        let what = format!("{name}, {threads} threads");
        // A worker thread may still be starting, once, also where the program does not need it: it disturbs two attempts at most.
        let quiet = |kind: &str, work: &mut dyn FnMut()| {
            let attempts = [(); 3].map(|_| counted(&mut *work));
            assert!(
                attempts.contains(&(0, 0)) && (threads > 1 || attempts == [(0, 0); 3]),
                "{what}: {kind} {attempts:?}"
            );
        };
        quiet("run", &mut || (0..5).for_each(|_| run.run(0..steps).unwrap()));
        quiet("set", &mut || numbered.iter().for_each(|(input, value)| run.set(*input, value).unwrap()));
        quiet("read", &mut || outputs.iter_mut().enumerate().for_each(|(i, into)| run.read(i, into).unwrap()));
        quiet("read_input", &mut || {
            program.carries.iter().zip(&mut carried).for_each(|(c, into)| run.read_input(c.input, into).unwrap());
        });
    }
}

fn scalar_loop() -> (Program, Inputs) {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let slope = gradient((x - 3.0).square() * x.sin(), &[x]).unwrap()[0].unwrap();
    let program = Program::builder(&g).output("slope", slope).carry(x, x - slope * 0.01).build().unwrap();
    (program, vec![("x".into(), Array::scalar(0.5, DType::F64))])
}

fn noisy_mlp() -> (Program, Inputs) {
    let g = Graph::new();
    let f = DType::F32;
    let (w, b) = (g.input("w", [40, 30], f), g.input("b", [30], f));
    let (u, key) = (g.input("u", [30, 10], f), g.input("key", [2], DType::I32));
    let (x, labels) = (g.input("x", [600, 40], f), g.input("labels", [600], DType::I32));
    let loss = nn::cross_entropy(nn::linear(x, w, b).tanh().matmul(u), labels);
    let parameters = [w, b, u];
    let slopes: Vec<_> = gradient(loss, &parameters).unwrap().into_iter().flatten().collect();
    let products: Vec<_> = vjp(&slopes, &parameters, &parameters).unwrap().into_iter().flatten().collect();
    let mut builder = Program::builder(&g).output("loss", loss);
    for (i, &p) in parameters.iter().enumerate() {
        let noise = key.random(g.step(), RandomKind::Normal, i as u32, p.shape(), f);
        builder = builder.carry(p, p - slopes[i] * 0.1 - products[i] * 0.01 + noise * 1e-3);
        builder = builder.output(format!("product {i}"), products[i]);
        builder =
            builder.output(format!("transposed {i}"), slopes[i].transpose((0..p.rank()).rev().collect::<Vec<_>>()));
    }
    let mut dice = Dice::new(1);
    let inputs = vec![
        ("w".into(), dice.array(&[40, 30], f).unwrap()),
        ("b".into(), dice.array(&[30], f).unwrap()),
        ("u".into(), dice.array(&[30, 10], f).unwrap()),
        ("x".into(), dice.array(&[600, 40], f).unwrap()),
        ("labels".into(), dice.indices(&[600], 10).unwrap()),
        ("key".into(), Array::from_i32([2], seed_key(4).to_vec()).unwrap()),
    ];
    (builder.build().unwrap(), inputs)
}

fn pooled_convolution(dtype: DType) -> (Program, Inputs) {
    let g = Graph::new();
    let (x, w) = (g.input("x", [4, 3, 24, 24], dtype), g.input("w", [8, 3, 3, 3], dtype));
    let w2 = g.input("w2", [8, 4, 3, 3], dtype);
    let first = nn::max_pool2d(nn::relu(nn::conv2d(x, w, None, nn::Conv2d::default())), nn::Pool2d::of([2, 2]));
    let dims = ConvDims { stride: [2, 1], padding: [(1, 1), (1, 1)], groups: 2, ..Default::default() };
    let loss = nn::avg_pool2d(first.conv(w2, dims).tanh(), nn::Pool2d::of([3, 3])).square().sum_all();
    let slopes: Vec<_> = gradient(loss, &[w, w2]).unwrap().into_iter().flatten().collect();
    let products: Vec<_> = vjp(&slopes, &[w, w2], &[w, w2]).unwrap().into_iter().flatten().collect();
    let program = Program::builder(&g)
        .output("loss", loss)
        .output("product", products[0])
        .carry(w, w - slopes[0] * 1e-3)
        .carry(w2, w2 - slopes[1] * 1e-3)
        .build()
        .unwrap();
    let mut dice = Dice::new(2);
    let inputs = vec![
        ("x".into(), dice.array(&[4, 3, 24, 24], dtype).unwrap()),
        ("w".into(), dice.array(&[8, 3, 3, 3], dtype).unwrap()),
        ("w2".into(), dice.array(&[8, 4, 3, 3], dtype).unwrap()),
    ];
    (program, inputs)
}

fn indexed() -> (Program, Inputs) {
    let g = Graph::new();
    let f = DType::F64;
    let (x, i) = (g.input("x", [300, 200], f), g.input("i", [500], DType::I32));
    let rows = x.take(i.check_index(300));
    let padded = rows.sin().scatter_add(i, 0, 300).pad_all(vec![1, 0], vec![0, 2], vec![0, 1]);
    let joined = padded.concat(&[padded.reverse([0]) * 2.0], 0).transpose([1, 0]);
    let sums = joined.cumsum(0);
    let sums_back = joined.cumsum_from(1, true);
    let program = Program::builder(&g)
        .output("rows", rows)
        .output("joined", joined.slice_step(0, 1, 100, 3))
        .output("sums", sums.reverse([1]))
        .output("best", sums_back.argmax(1))
        .output("most", sums_back.max([0]))
        .output("x", x.t())
        .carry(x, x.reverse([1]))
        .build()
        .unwrap();
    let mut dice = Dice::new(3);
    (program, vec![("x".into(), dice.array(&[300, 200], f).unwrap()), ("i".into(), dice.indices(&[500], 300).unwrap())])
}

/// One test, so that no other thread of this process allocates meanwhile.
#[test]
fn after_a_first_run_nothing_allocates_or_frees() {
    let (program, inputs) = scalar_loop();
    check("scalar loop", &program, &inputs, 100);
    let (program, inputs) = noisy_mlp();
    check("noisy mlp", &program, &inputs, 3);
    for dtype in [DType::F32, DType::F64] {
        let (program, inputs) = pooled_convolution(dtype);
        check("pooled convolution", &program, &inputs, 2);
    }
    let (program, inputs) = indexed();
    check("indexed", &program, &inputs, 2);
    let (allocations, frees) = counted(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!((allocations, frees), (1, 1), "the counter counts");
}
